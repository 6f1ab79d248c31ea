"""Runs statements of Spark SQL and keeps the rows of the queries; started as a program, on Delta.

    python tests/peers/notebook.py JAR,JAR

Nothing of Fluvial is imported; see ``delta``.
"""

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).resolve().parents[1] / "golden" / "notebook.sql"
QUERIES = ("SELECT", "WITH")


def statements(text: str) -> list[str]:
    """Each ends with a semicolon at the end of a line."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return [part.strip() for part in body.split(";\n") if part.strip()]


def run_notebook(spark: SparkSession) -> list[dict[str, object]]:
    """Every statement; of the queries, names and types of their columns, and their rows as text."""
    found: list[dict[str, object]] = []
    for text in statements(NOTEBOOK.read_text(encoding="utf-8")):
        frame = spark.sql(text)
        if text.startswith(QUERIES):
            rows = [[None if value is None else str(value) for value in row] for row in frame.collect()]
            found.append({"statement": text, "columns": [list(each) for each in frame.dtypes], "rows": rows})
        else:
            found.append({"statement": text})
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        settings = {
            "spark.jars": sys.argv[1],
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.sources.default": "delta",
            "spark.sql.warehouse.dir": home,
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "1",
            # CHANGES, which Delta answers where its rows have numbers
            "spark.databricks.delta.changelogV2.enabled": "true",
            "spark.databricks.delta.properties.defaults.enableChangeDataFeed": "true",
            "spark.databricks.delta.properties.defaults.enableRowTracking": "true",
            "spark.ui.enabled": "false",
        }
        builder = SparkSession.builder.master("local[2]")
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        print(json.dumps({"spark": spark.version, "statements": run_notebook(spark)}))


if __name__ == "__main__":
    main()
