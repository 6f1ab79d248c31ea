"""The whole ingest as Fluvial does it, as a process of its own: run by bench_ingest.py.

usage: python ingest_job.py --input DIR --work DIR --buckets 2 [--bootstrap HOST:PORT]
           [--writer format | bare | bare-tasks] [--query] [--master MASTER] [--files N] [--files-by auto]

The same work as peers/paimon_spark_ingest.py: one Parquet file of ``--input`` per micro-batch, or ``--files``, into a
key table, with compaction. With ``--query`` the rows come through a filter, so Spark computes them; without one the
driver reads the files itself. With ``--bootstrap`` the table has a log; with ``--writer format`` the query writes by
``writeStream.format("fluvial")`` instead of the sink; with ``--writer bare`` a session of plain PySpark only takes each
batch to the driver, with ``toArrow``, and writes nothing; with ``--writer bare-tasks`` it spreads the rows by key, and
each task takes its rows as Arrow and writes them sorted into a Parquet file: no table, no commit, no compaction. Prints
one JSON line; ``cpu_seconds`` are those of the query, of executors with their Python workers, and of all other
processes of the job.
"""

import argparse
import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
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
BARE = ("bare", "bare-tasks")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("input", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--buckets", type=int, default=2)
    parser.add_argument("--bootstrap")
    parser.add_argument("--table", default="bench.t")
    parser.add_argument("--writer", choices=["sink", "format", *BARE], default="sink")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--files", default="1")
    parser.add_argument("--files-by", default="auto")
    parser.add_argument("--query", action="store_true")
    args = parser.parse_args()
    print(json.dumps(bare(args) if args.writer in BARE else fluvial(args)))


def fluvial(args: argparse.Namespace) -> dict[str, object]:
    """Into a table, until it has all."""
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))  # of a local-cluster's executors
    spark = session("ingest", master=args.master, conf=CONF)
    rows = spark.read.parquet(args.input)
    options = {"bucket": str(args.buckets), "log.system": "none"}
    if args.bootstrap:
        options |= {"log.system": "kafka", "log.kafka.bootstrap.servers": args.bootstrap}
    catalog = Catalog(f"{args.work}/warehouse")
    schema = to_arrow_schema(rows.schema, timezone="UTC")
    table = catalog.create_table(args.table, schema, primary_key=["id"], options=options)
    write = sink(table)
    before, started = cpu_seconds(), time.perf_counter()
    stream = changes(spark, args).foreachBatch(write)
    if args.writer == "format":
        stream = changes(spark, args).format("fluvial").options(warehouse=catalog.warehouse, table=args.table)
        stream = stream.option("write.files-by", args.files_by)
    query = run(stream, args)
    write.close()
    seconds = time.perf_counter() - started
    spent = {place: round(now - before[place], 2) for place, now in cpu_seconds().items()}
    count = table.dataframe(spark).count()
    spark.stop()
    figures = {"seconds": seconds, "batch_seconds": batch_seconds(query), "rows_in_table": count}
    return figures | {"cpu_seconds": spent}


def bare(args: argparse.Namespace) -> dict[str, object]:
    """To the driver, or to files of tasks, and nowhere else."""
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # as ``session`` does
    builder = SparkSession.builder.master(args.master)
    for key, value in CONF.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    work = take if args.writer == "bare" else partial(write_files, f"{args.work}/files", args.buckets)
    before, started = cpu_seconds(), time.perf_counter()
    query = run(changes(spark, args).foreachBatch(work), args)
    seconds = time.perf_counter() - started
    spent = {place: round(now - before[place], 2) for place, now in cpu_seconds().items()}
    spark.stop()
    figures = {"seconds": seconds, "batch_seconds": batch_seconds(query), "rows_in_table": None}
    return figures | {"cpu_seconds": spent}


def write_files(directory: str, count: int, frame: DataFrame, _: int) -> None:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches).sort_by("id")
        os.makedirs(directory, exist_ok=True)
        pq.write_table(rows, f"{directory}/{uuid.uuid4()}.parquet", compression="zstd")
        yield pa.RecordBatch.from_pydict({"rows": [rows.num_rows]})

    frame.repartition(count, "id").mapInArrow(write, "rows long").collect()


def take(frame: DataFrame, _: int) -> None:
    frame.toArrow()


def changes(spark: SparkSession, args: argparse.Namespace) -> DataStreamWriter:
    schema = spark.read.parquet(args.input).schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", args.files).parquet(args.input)
    return (rows.where("id >= 0") if args.query else rows).writeStream


def run(stream: DataStreamWriter, args: argparse.Namespace) -> StreamingQuery:
    query = stream.option("checkpointLocation", f"{args.work}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def batch_seconds(query: StreamingQuery) -> list[float]:
    return [each["durationMs"]["triggerExecution"] / 1000 for each in query.recentProgress if each["numInputRows"]]


def cpu_seconds() -> dict[str, float]:
    """Processor time of this process and all below it until now; what has ended counts for the process it was of."""
    found = {"executors": 0.0, "others": 0.0}
    waiting = [(psutil.Process(), "others")]
    while waiting:
        process, place = waiting.pop()
        with contextlib.suppress(psutil.Error):
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                place = "executors"
            times = process.cpu_times()
            found[place] += times.user + times.system + times.children_user + times.children_system
            waiting += [(child, place) for child in process.children()]
    return found


if __name__ == "__main__":
    main()
