"""Batch read in Spark: ``Table.dataframe`` and ``format("fluvial")``, beside ``spark.read.parquet`` of the same files.

Budget: after a full compaction 1.5 times plain Parquet. usage: python -m benchmarks batch_read [--quick | --tiny]
"""

import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.harness import measure, sized
from benchmarks.lsm_tables import table_of_runs
from engine import Catalog, Table, session
from engine.types.spark_types import spark_schema

BUDGET = 1.5
PEER = "spark.read.parquet"


def aggregate(frame: DataFrame) -> None:
    frame.agg(F.count("*"), F.sum(F.col("i64").cast("double")), F.max("many"), F.avg("d1")).collect()


def by_format(spark: SparkSession, root: str, name: str) -> DataFrame:
    return spark.read.format("fluvial").option("warehouse", root).option("table", name).load()


def plain(spark: SparkSession, table: Table) -> DataFrame:
    files = [str(path) for path in Path(table.store.paths.root).rglob("data-*.parquet")]
    live = {file.file_name for split in table.read().plan().splits for file in split.files}
    return spark.read.schema(spark_schema(table.schema.fields)).parquet(*[f for f in files if Path(f).name in live])


def main() -> None:
    rows, repeats, warm_ups = sized((4_000_000, 5, 2), quick=(200_000, 3, 2), tiny=(2_000, 1, 0))
    conf = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.driver.memory": "4g"}
    spark = session("bench", "local[2]", conf)
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        name = table_of_runs(Path(root), kind="int", runs=5, rows=rows).name
        table = Catalog(root).table(name)
        for state in ("before compaction", "after full compaction"):
            variants = {
                "fluvial": lambda: aggregate(table.dataframe(spark)),
                'format("fluvial")': lambda: aggregate(by_format(spark, root, name)),
                PEER: lambda: aggregate(plain(spark, table)),
            }
            found = measure("batch_read", variants, rows=rows, repeats=repeats, warm_ups=warm_ups)
            cost = round(1 / found.ratio("fluvial", PEER), 2)
            facts = {"state": state, "cost_to_parquet": cost}
            facts["format_cost_to_parquet"] = round(1 / found.ratio('format("fluvial")', PEER), 2)
            if state.startswith("after"):
                facts |= {"budget": BUDGET, "met": cost <= BUDGET}
            print(found.line(peer=PEER, **facts), flush=True)
            table.compact(full=True)
    spark.stop()


if __name__ == "__main__":
    main()
