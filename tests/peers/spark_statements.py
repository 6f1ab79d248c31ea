"""Runs queries of Spark SQL with another format's runtime; started as a program, by the Python of Spark 3.5.

    python tests/peers/spark_statements.py SETTINGS < QUERIES

Both are JSON: settings of the session; a list of queries, of which ``["stream", FORMAT, PATH]`` is the batch that a
stream of a table begins with and all that is there after it. Nothing of Fluvial is imported; see ``older_spark``.
"""

import json
import sys
import tempfile
from typing import Any

from pyspark.sql import SparkSession


def rows_of_query(spark: SparkSession, query: str | list[str]) -> list[list[Any]]:
    """The rows of one query."""
    if isinstance(query, str):
        return [list(row) for row in spark.sql(query).collect()]
    _, kind, path = query
    found: list[list[Any]] = []
    frame = spark.readStream.format(kind).load(path)
    with tempfile.TemporaryDirectory() as checkpoint:
        writing = frame.writeStream.foreachBatch(lambda batch, _: found.extend(list(row) for row in batch.collect()))
        writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    return found


def main() -> None:
    """Print the rows of all queries as JSON."""
    builder = SparkSession.builder.master("local[2]")
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    found = [rows_of_query(spark, query) for query in json.load(sys.stdin)]
    spark.stop()
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main()
