"""The whole ingest as Paimon's own Spark sink does it: run by bench_ingest.py in a virtual environment of its own.

usage: python paimon_spark_ingest.py --jar paimon-spark.jar --input DIR --work DIR --buckets 2

Reads one Parquet file of ``--input`` per micro-batch, writes it to a key table, prints one JSON line with the seconds
from the start of the query to its end and those of each micro-batch. Needs pyspark 3.5 and Paimon's jar; nothing of
Fluvial.
"""

import argparse
import json
import os
import sys
import time

from pyspark.sql import SparkSession


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("jar", "input", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--buckets", type=int, default=2)
    args = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", args.jar)
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.catalog.paimon", "org.apache.paimon.spark.SparkCatalog")
        .config("spark.sql.catalog.paimon.warehouse", f"file://{args.work}/warehouse")
        .config("spark.sql.extensions", "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql("CREATE DATABASE IF NOT EXISTS paimon.bench")
    rows = spark.read.parquet(args.input)
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in rows.schema.fields)
    spark.sql(
        f"CREATE TABLE paimon.bench.t ({columns}) TBLPROPERTIES ('primary-key'='id', 'bucket'='{args.buckets}', "
        "'file.format'='parquet', 'file.compression'='zstd')"
    )
    changes = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(args.input)
    started = time.perf_counter()
    query = (
        changes.writeStream.format("paimon")
        .option("checkpointLocation", f"{args.work}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{args.work}/warehouse/bench.db/t")
    )
    query.awaitTermination()
    seconds = time.perf_counter() - started
    batches = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
    count = spark.table("paimon.bench.t").count()
    print(json.dumps({"seconds": seconds, "batch_seconds": batches, "rows_in_table": count}))
    spark.stop()


if __name__ == "__main__":
    main()
