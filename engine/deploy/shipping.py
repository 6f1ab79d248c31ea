"""An archive of Fluvial to ship with a job, for clusters where it is not installed.

The packages that Fluvial depends on (pyarrow, confluent-kafka, …) must be installed on the cluster, or shipped in an
archived environment, see Spark's "Python Package Management"; they contain native code, which cannot be imported from
a source archive. The archive is passed twice: ``--py-files`` ships it to the executors, and ``PYTHONPATH`` makes it
visible to the driver's process in which Spark plans Python data sources, which ignores ``--py-files``.
"""

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import engine
import filestore
import fluvial
import logstore
import lsm
import pyspark_fluvial
import pyspark_fluvial_kafka
from lsm.errors import InvalidInputError

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


# ---- Files for deployments that come with Fluvial: in a wheel beside this module, in a checkout in ``conf/``


_IN_WHEEL: Final = Path(__file__).parent / "conf"
_IN_CHECKOUT: Final = Path(__file__).parents[2] / "conf"
_EXECUTABLE: Final = 0o755

SHIPPED_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "systemd": ("deploy/fluvial@.service", "deploy/fluvial-compact.service"),
    "kubernetes": (
        "deploy/kubernetes.yaml",
        "deploy/kubernetes-cluster.yaml",
        "deploy/executor-pod.yaml",
        "deploy/kubernetes.conf",
        "deploy/Dockerfile",
    ),
    "spark-submit": ("deploy/spark-submit.sh", "deploy/log4j2.properties", "deploy/yarn.conf"),
    "airflow": ("deploy/airflow_dag.py",),
    "monitoring": tuple(
        f"deploy/monitoring/{name}"
        for name in (
            "dashboard.json",
            "alerts.yaml",
            "prometheus.yaml",
            "grafana-datasource.yaml",
            "grafana-dashboards.yaml",
            "compose.yaml",
            "monitoring.yaml",
            "kustomization.yaml",
        )
    ),
    "examples": ("orders.yaml", "orders-prod.yaml", "events.yaml", "fluvial.schema.json"),
}
"""By what they are for."""


def shipped_file(name: str) -> Path:
    """A file of ``conf/``. Raises: InvalidInputError: this installation lacks it."""
    found = next((each / name for each in (_IN_WHEEL, _IN_CHECKOUT) if (each / name).is_file()), None)
    if found is None:
        raise InvalidInputError(f"this installation has no such file: file=conf/{name} fix='install fluvial again'")
    return found


def write_shipped(directory: Path, kinds: Iterable[str]) -> list[Path]:
    """Copy files of some kinds into a directory, which is made if missing.

    Raises:
        InvalidInputError: one of the files exists, or the directory cannot be written. Nothing was written.
    """
    files = {directory / Path(name).name: shipped_file(name) for kind in kinds for name in SHIPPED_FILES[kind]}
    for path in files:
        if path.exists():
            raise InvalidInputError(f"file exists and is not overwritten: file={path} fix='name another directory'")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, source in files.items():
            path.write_bytes(source.read_bytes())
            if path.suffix == ".sh":
                path.chmod(_EXECUTABLE)
    except OSError as error:
        raise InvalidInputError(
            f"directory cannot be written: directory={directory} reason={error.strerror} fix='name another directory'"
        ) from error
    return list(files)
