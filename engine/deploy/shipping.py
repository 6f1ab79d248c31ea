"""An archive of Fluvial to ship with a job, for clusters where it is not installed.

The packages that Fluvial depends on (pyarrow, confluent-kafka, …) must be installed on the cluster, or shipped in an
archived environment, see Spark's "Python Package Management"; they contain native code, which cannot be imported from
a source archive. The archive is passed twice: ``--py-files`` ships it to the executors, and ``PYTHONPATH`` makes it
visible to the driver's process in which Spark plans Python data sources, which ignores ``--py-files``.
"""

import zipfile
from pathlib import Path
from typing import Final

import engine
import filestore
import fluvial
import logstore
import lsm
import pyspark_fluvial
import pyspark_fluvial_kafka

ARCHIVE: Final = "fluvial.zip"
SHIPPED_SCRIPT: Final = "fluvial_job.py"
_PACKAGES: Final = (engine, filestore, logstore, lsm, fluvial, pyspark_fluvial, pyspark_fluvial_kafka)
_MAIN: Final = '''"""A Fluvial job, for ``PYTHONPATH=fluvial.zip spark-submit --py-files fluvial.zip``."""

import sys

from engine.cli.app import run_command

given = sys.argv[1:]  # a job file, or: cdc run FILE
sys.exit(run_command(given if given[:1] == ["cdc"] else ["run", *given]))
'''


def write_shipment(directory: Path) -> tuple[Path, Path]:
    """Write the archive for ``--py-files`` and the script to submit; return both paths."""
    directory.mkdir(parents=True, exist_ok=True)
    archive, script = directory / ARCHIVE, directory / SHIPPED_SCRIPT
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in _PACKAGES:
            assert package.__file__ is not None
            root = Path(package.__file__).parent
            for file in sorted(root.rglob("*.py")):
                name = Path(package.__name__) / file.relative_to(root)
                if "plugin" not in name.parts[:2]:
                    packed.write(file, str(name))
    script.write_text(_MAIN, encoding="utf-8")
    return archive, script
