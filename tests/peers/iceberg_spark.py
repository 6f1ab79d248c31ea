"""Spark SQL with Iceberg's own runtime, as a reader, on Spark 3.5: the runtime loads on none of the Sparks of ours."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from engine.broker.jars import fetch_jars

_ROOT: Final = Path(__file__).parents[2]
_LOCK_FILE: Final = _ROOT / "conf" / "bench-iceberg-jars.lock"
_RUNTIME: Final = "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.9.2@jar"
_PYTHON: Final = _ROOT / ".venv-bench" / "bin" / "python"


def iceberg_runtime() -> Path:
    """The jar, fetched at the first call."""
    [jar] = fetch_jars((_RUNTIME,), _LOCK_FILE)
    return jar


def iceberg_rows(warehouse: Path, queries: Sequence[str]) -> list[list[list[Any]]]:
    """The rows of each query, in a process of its own; tables are ``ice.<database>.<table>``."""
    assert _PYTHON.exists(), "the environment of Spark 3.5 is missing: fix=make venv-bench"
    environment = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "PYTHONPATH")}
    done = subprocess.run(
        [str(_PYTHON), str(Path(__file__).with_name("iceberg_statements.py")), str(iceberg_runtime()), str(warehouse)],
        input=json.dumps(list(queries)),
        env=environment | {"PYSPARK_PYTHON": str(_PYTHON)},
        cwd=warehouse,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[list[list[Any]]] = json.loads(done.stdout)
    return found
