"""Files for deployments that come with Fluvial: in a wheel beside this module, in a checkout in ``conf/``."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from lsm.errors import InvalidInputError

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
