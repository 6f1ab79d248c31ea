"""The whole ingest as other table formats do it: run by bench_ingest.py in a virtual environment of its own.

usage: python spark_ingest.py --format delta|hudi|iceberg --jars A.jar,B.jar --input DIR --work DIR --buckets 2

Reads one Parquet file of ``--input`` per micro-batch and upserts it by key, the way each format's documentation does it
for streams: Delta and Iceberg by MERGE in ``foreachBatch``, one row of each key in a batch; Hudi by its own stream sink
with a bucket index. Prints one JSON line, see paimon_spark_ingest.py. Needs pyspark 3.5 and the jars.
"""

import argparse
import json
import os
import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

CONF = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "hudi": {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.local.type": "hadoop",
    },
}
PROPERTIES = {
    "delta": "'delta.enableDeletionVectors'='true'",
    "iceberg": "'format-version'='2', 'write.merge.mode'='merge-on-read', 'write.update.mode'='merge-on-read'",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("format", "jars", "input", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--buckets", type=int, default=2)
    args = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.jars", args.jars)
    builder = builder.config("spark.driver.memory", "4g").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.catalog.local.warehouse", f"file://{args.work}/warehouse")
    for key, value in CONF[args.format].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    table = "local.bench.t" if args.format == "iceberg" else f"{args.format}.`{args.work}/warehouse/t`"
    rows = spark.read.parquet(args.input)
    if args.format in PROPERTIES:
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in rows.schema.fields)
        spark.sql(f"CREATE TABLE {table} ({columns}) USING {args.format} TBLPROPERTIES ({PROPERTIES[args.format]})")
    changes = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(args.input).writeStream
    started = time.perf_counter()
    query = (
        upserts(changes, args, table)
        .option("checkpointLocation", f"{args.work}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds = time.perf_counter() - started
    batches = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
    if args.format == "hudi":
        count = spark.read.format("hudi").load(f"{args.work}/warehouse/t").count()
    else:
        count = spark.table(table).count()
    print(json.dumps({"seconds": seconds, "batch_seconds": batches, "rows_in_table": count}))
    spark.stop()


def upserts(changes: DataStreamWriter, args: argparse.Namespace, table: str) -> DataStreamWriter:
    if args.format != "hudi":
        return changes.foreachBatch(lambda frame, _: merge(frame, table))
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "at",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": str(args.buckets),
        "hoodie.upsert.shuffle.parallelism": "2",
        "path": f"{args.work}/warehouse/t",
    }
    return changes.format("hudi").options(**options)


def merge(frame: DataFrame, table: str) -> None:
    frame.dropDuplicates(["id"]).createOrReplaceTempView("changes")
    frame.sparkSession.sql(
        f"MERGE INTO {table} AS t USING changes AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


if __name__ == "__main__":
    main()
