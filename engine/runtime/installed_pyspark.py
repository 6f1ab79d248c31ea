"""The installed PySpark: what is said where there is none, and workers that import it, not Spark's copy in a zip file.

Spark puts ``pyspark/python/lib/pyspark.zip`` first on the module path of its workers, for clusters without PySpark.
Python caches no compiled modules of a zip file, so every process compiles PySpark again: 0.8 s of processor time.
Nothing here imports PySpark.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_ZIPS: Final = {"pyspark": "pyspark.zip", "py4j": "py4j-"}
_PACKAGES: Final = frozenset({"pyspark", "py4j", "pandas"})  # the extra fluvial[spark]
_LIB: Final = os.path.join("pyspark", "python", "lib")


def missing_spark(error: BaseException) -> str:
    """The message for an import that failed because PySpark is not installed; empty for any other error."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package not in _PACKAGES:
        return ""
    return f"this needs Spark, which is not installed: missing={package} fix=pip install 'fluvial[spark]'"


@contextmanager
def saying_that_spark_is_missing() -> Iterator[None]:
    """Around an import: where it fails because PySpark is not installed, the error says how to get it.

    Raises: ModuleNotFoundError.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if message := missing_spark(error):
            raise ModuleNotFoundError(message, name=error.name) from error
        raise


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
