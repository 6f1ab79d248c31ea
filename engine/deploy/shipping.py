"""Fluvial as something to ship with a job: for clusters on which nobody installed it.

The other packages that Fluvial needs (pyarrow, confluent-kafka, …) must be on the cluster, or travel in an archive of
an environment, as Spark's "Python Package Management" describes; they have parts in C, which cannot be imported from
an archive of sources. The archive is named twice: ``--py-files`` brings it to the executors, ``PYTHONPATH`` shows it
to the process of the driver in which Spark plans Python sources, which does not look at ``--py-files``.
"""

import zipfile
from pathlib import Path
from typing import Final

import pyspark_fluvial
import pyspark_fluvial_kafka

import engine
import filestore
import logstore
import lsm

ARCHIVE: Final = "fluvial.zip"
SHIPPED_SCRIPT: Final = "fluvial_job.py"
_PACKAGES: Final = (engine, filestore, logstore, lsm, pyspark_fluvial, pyspark_fluvial_kafka)
_MAIN: Final = '''"""A Fluvial job, for ``PYTHONPATH=fluvial.zip spark-submit --py-files fluvial.zip``."""

import sys

from engine.cli.app import run_command

sys.exit(run_command(["run", *sys.argv[1:]]))
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
