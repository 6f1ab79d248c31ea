"""The whole ingest as Fluvial does it, as a process of its own: run by bench_ingest.py.

usage: python ingest_job.py --input DIR --work DIR --buckets 2 [--bootstrap HOST:PORT] [--writer format | bare]

The same work as peers/paimon_spark_ingest.py: one Parquet file of ``--input`` per micro-batch into a key table, with
compaction. With ``--bootstrap`` the table has a log; with ``--writer format`` the query writes by
``writeStream.format("fluvial")`` instead of the sink; with ``--writer bare`` a session of plain PySpark only takes each
batch to the driver, with ``toArrow``, and writes nothing. Prints one JSON line.
"""

import argparse
import json
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from engine import Catalog, session, sink

CONF = {
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("input", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--buckets", type=int, default=2)
    parser.add_argument("--bootstrap")
    parser.add_argument("--table", default="bench.t")
    parser.add_argument("--writer", choices=["sink", "format", "bare"], default="sink")
    args = parser.parse_args()
    print(json.dumps(bare(args) if args.writer == "bare" else fluvial(args)))


def fluvial(args: argparse.Namespace) -> dict[str, object]:
    """Into a table, until it has all."""
    spark = session("ingest", master="local[2]", conf=CONF)
    rows = spark.read.parquet(args.input)
    options = {"bucket": str(args.buckets), "log.system": "none"}
    if args.bootstrap:
        options |= {"log.system": "kafka", "log.kafka.bootstrap.servers": args.bootstrap}
    catalog = Catalog(f"{args.work}/warehouse")
    schema = to_arrow_schema(rows.schema, timezone="UTC")
    table = catalog.create_table(args.table, schema, primary_key=["id"], options=options)
    write = sink(table)
    started = time.perf_counter()
    stream = changes(spark, args).foreachBatch(write)
    if args.writer == "format":
        stream = changes(spark, args).format("fluvial").options(warehouse=catalog.warehouse, table=args.table)
    query = run(stream, args)
    write.close()
    seconds = time.perf_counter() - started
    count = table.dataframe(spark).count()
    spark.stop()
    return {"seconds": seconds, "batch_seconds": batch_seconds(query), "rows_in_table": count}


def bare(args: argparse.Namespace) -> dict[str, object]:
    """To the driver, and nowhere else."""
    builder = SparkSession.builder.master("local[2]")
    for key, value in CONF.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    started = time.perf_counter()
    query = run(changes(spark, args).foreachBatch(take), args)
    seconds = time.perf_counter() - started
    spark.stop()
    return {"seconds": seconds, "batch_seconds": batch_seconds(query), "rows_in_table": None}


def take(frame: DataFrame, _: int) -> None:
    frame.toArrow()


def changes(spark: SparkSession, args: argparse.Namespace) -> DataStreamWriter:
    schema = spark.read.parquet(args.input).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(args.input).writeStream


def run(stream: DataStreamWriter, args: argparse.Namespace) -> StreamingQuery:
    query = stream.option("checkpointLocation", f"{args.work}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def batch_seconds(query: StreamingQuery) -> list[float]:
    return [each["durationMs"]["triggerExecution"] / 1000 for each in query.recentProgress if each["numInputRows"]]


if __name__ == "__main__":
    main()
