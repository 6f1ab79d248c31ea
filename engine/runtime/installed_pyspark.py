"""Python workers that import the installed PySpark, not Spark's copy of it in a zip file.

Spark puts ``pyspark/python/lib/pyspark.zip`` first on the module path of its workers, for clusters without PySpark.
Python caches no compiled modules of a zip file, so every process compiles PySpark again: 0.8 s of processor time.
Nothing here imports PySpark.
"""

import os
import sys
from typing import Final

_ZIPS: Final = {"pyspark": "pyspark.zip", "py4j": "py4j-"}
_LIB: Final = os.path.join("pyspark", "python", "lib")


def prefer_installed_pyspark() -> None:
    """Remove the zip files from the module path where they lie inside of the PySpark that is found without them.

    That one is of the same release. All others stay: they may be of another.
    """
    sys.path[:] = [entry for entry in sys.path if not _is_copy(entry)]


def _is_copy(entry: str) -> bool:
    directory, name = os.path.split(entry)
    root = directory.removesuffix(_LIB).rstrip(os.sep)
    if root == directory or root not in sys.path:
        return False
    return any(name.startswith(start) and _has_package(root, package) for package, start in _ZIPS.items())


def _has_package(root: str, package: str) -> bool:
    return os.path.exists(os.path.join(root, package, "__init__.py"))
