"""Delta, on the newest release of Spark that it runs on: on 4.3 it fails for a constructor that is not there.

``python -m tests.peers.delta`` runs the notebook on it and records what it gives, see ``RECORDED``.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from engine.broker.jars import fetch_jars

_ROOT: Final = Path(__file__).parents[2]
_LOCK_FILE: Final = _ROOT / "conf" / "delta-jars.lock"
_COORDINATES: Final = (
    "io.delta:delta-spark_4.2_2.13:4.4.0@jar",
    "io.delta:delta-storage:4.4.0@jar",
    "io.delta:delta-kernel-api:4.4.0@jar",
    "io.delta:delta-kernel-defaults:4.4.0@jar",
    "io.delta:delta-kernel-unitycatalog:4.4.0@jar",
    "io.unitycatalog:unitycatalog-client:0.6.0@jar",
    "io.unitycatalog:unitycatalog-hadoop:0.6.0@jar",
)
OLDER_SPARK: Final = _ROOT / ".venv-older"
"""PySpark 4.2 alone; everything else is of this environment. Made by ``make test``."""


def delta_jars() -> tuple[Path, ...]:
    """Delta's own jars, fetched at the first call; Spark has the others."""
    return fetch_jars(_COORDINATES, _LOCK_FILE)


RECORDED: Final = _ROOT / "tests" / "golden" / "notebook-delta.json"
"""What Delta gave: its version, Spark's, and each statement of the notebook with the results of the queries."""
RECORD: Final = "python -m tests.peers.delta"
_PIN: Final = "pyspark=="


def delta_releases() -> dict[str, str]:
    """The versions that a recording has to be of: Delta's by its jar, Spark's by the pin of its environment."""
    pins = (_ROOT / "conf" / "older-constraints.txt").read_text(encoding="utf-8").splitlines()
    (spark,) = (line.removeprefix(_PIN) for line in pins if line.startswith(_PIN))
    return {"delta": _COORDINATES[0].split(":")[-1].removesuffix("@jar"), "spark": spark}


def recorded_notebook() -> dict[str, Any]:
    """The recording; see ``delta_notebook`` for its form."""
    recorded: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return recorded


def delta_notebook(home: Path) -> dict[str, Any]:
    """What the notebook gives on Delta, run in a directory; takes a minute.

    Returns:
        ``delta`` and ``spark``, versions, Spark's as it says itself, and ``statements`` of ``run_notebook``.
    """
    environment = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "PYTHONPATH")}
    environment |= {"PYTHONPATH": str(OLDER_SPARK), "PYSPARK_PYTHON": sys.executable}
    script = Path(__file__).with_name("notebook.py")
    done = subprocess.run(
        [sys.executable, str(script), ",".join(map(str, delta_jars()))],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return {"delta": delta_releases()["delta"]} | found


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        found = delta_notebook(Path(home))
    RECORDED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
