"""Delta, on the newest release of Spark that it runs on: on 4.3 it fails for a constructor that is not there."""

import json
import os
import subprocess
import sys
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


def delta_notebook(home: Path) -> list[dict[str, Any]]:
    """What the notebook's queries give on Delta, run in a directory; see ``run_notebook``."""
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
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
