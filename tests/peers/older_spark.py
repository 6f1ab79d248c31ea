"""Spark SQL with other formats' own runtimes, as readers, on Spark 3.5: they load on none of the Sparks of ours."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from engine.broker.jars import fetch_jars

_ROOT: Final = Path(__file__).parents[2]
_ICEBERG: Final = ("org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.9.2@jar", "bench-iceberg-jars.lock")
_PAIMON: Final = ("org.apache.paimon:paimon-spark-3.5:0.9.0@jar", "bench-jars.lock")
_PYTHON: Final = _ROOT / ".venv-bench" / "bin" / "python"
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

Rows = list[list[Any]]
Query = str | list[str]


def iceberg_rows(warehouse: Path, queries: Sequence[Query]) -> list[Rows]:
    """The rows of each query by Iceberg's runtime; tables are ``ice.<database>.<table>``."""
    settings = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(warehouse),
    }
    return _rows(warehouse, _ICEBERG, settings, queries)


def paimon_rows(warehouse: Path, queries: Sequence[Query]) -> list[Rows]:
    """The rows of each query by Paimon for Spark; tables are ``paimon.<database>.<table>``."""
    settings = {
        "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
        "spark.sql.catalog.paimon": "org.apache.paimon.spark.SparkCatalog",
        "spark.sql.catalog.paimon.warehouse": str(warehouse),
    }
    return _rows(warehouse, _PAIMON, settings, queries)


def _rows(
    warehouse: Path, runtime: tuple[str, str], settings: Mapping[str, str], queries: Sequence[Query]
) -> list[Rows]:
    """In a process of its own."""
    assert _PYTHON.exists(), "the environment of Spark 3.5 is missing: fix=make venv-bench"
    [jar] = fetch_jars((runtime[0],), _ROOT / "conf" / runtime[1])
    environment = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "PYTHONPATH")}
    program = str(Path(__file__).with_name("spark_statements.py"))
    done = subprocess.run(
        [str(_PYTHON), program, json.dumps({"spark.jars": str(jar), **_QUIET, **settings})],
        input=json.dumps(list(queries)),
        env=environment | {"PYSPARK_PYTHON": str(_PYTHON)},
        cwd=warehouse,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[Rows] = json.loads(done.stdout)
    return found
