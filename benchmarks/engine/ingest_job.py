"""The whole ingest as Fluvial does it, as a process of its own: run by bench_ingest.py.

usage: python ingest_job.py --input DIR --work DIR --buckets 2 [--bootstrap HOST:PORT] [--writer format]

The same work as peers/paimon_spark_ingest.py: one Parquet file of ``--input`` per micro-batch into a key table, with
compaction. With ``--bootstrap`` the table has a log; with ``--writer format`` the query writes by
``writeStream.format("fluvial")`` instead of the sink. Prints one JSON line.
"""

import argparse
import json
import time

from engine import Catalog, session, sink


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("input", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--buckets", type=int, default=2)
    parser.add_argument("--bootstrap")
    parser.add_argument("--table", default="bench.t")
    parser.add_argument("--writer", choices=["sink", "format"], default="sink")
    args = parser.parse_args()
    spark = session(
        "ingest",
        master="local[2]",
        conf={
            "spark.driver.memory": "4g",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "ERROR",
        },
    )
    rows = spark.read.parquet(args.input)
    options = {"bucket": str(args.buckets), "log.system": "none"}
    if args.bootstrap:
        options |= {"log.system": "kafka", "log.kafka.bootstrap.servers": args.bootstrap}
    catalog = Catalog(f"{args.work}/warehouse")
    schema = spark.createDataFrame([], rows.schema).toArrow().schema
    table = catalog.create_table(args.table, schema, primary_key=["id"], options=options)
    changes = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(args.input)
    write = sink(table)
    started = time.perf_counter()
    stream = changes.writeStream.foreachBatch(write)
    if args.writer == "format":
        stream = changes.writeStream.format("fluvial").options(warehouse=catalog.warehouse, table=args.table)
    query = stream.option("checkpointLocation", f"{args.work}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    write.close()
    seconds = time.perf_counter() - started
    batches = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
    count = table.dataframe(spark).count()
    print(json.dumps({"seconds": seconds, "batch_seconds": batches, "rows_in_table": count}))
    spark.stop()


if __name__ == "__main__":
    main()
