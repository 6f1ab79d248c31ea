"""Ways of using tables that every Spark 4 has, and what they give: the same on each release.

    python -m tests.support.release_ways DIRECTORY

prints it as JSON; the PySpark that is first on ``PYTHONPATH`` runs it.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

import engine
from engine import Catalog
from lsm.errors import InvalidInputError

_CREATE = "CREATE TABLE shop.t (id BIGINT PRIMARY KEY NOT ENFORCED, v VARCHAR(9), at TIMESTAMP(6)) WITH ('bucket'='2')"
_KNOWN = (
    "type has no spark equivalent: type=TIME",
    "[UNSUPPORTED_TIME_TYPE]",
    "before 4.2 Spark does not tell",
    "needs Spark 4.1",
)
_AT = "timestamp_ntz'2026-01-02 03:04:05.000006'"


def ways(spark: SparkSession, directory: Path) -> dict[str, Any]:
    """What each way gives: rows, or the words of its error."""
    catalog = Catalog(str(directory / "warehouse"))
    catalog.create_database("shop")
    return _statements(spark, catalog) | _streams(spark, catalog, directory) | _readers(spark, catalog, directory)


def _statements(spark: SparkSession, catalog: Catalog) -> dict[str, Any]:
    for text in (
        _CREATE,
        f"INSERT INTO shop.t VALUES (1, 'a', {_AT}), (2, 'b', NULL), (3, 'c', NULL)",
        "UPDATE shop.t SET v = 'z' WHERE id = 2",
        "DELETE FROM shop.t WHERE id = 3",
        "MERGE INTO shop.t USING (SELECT 2L AS id, 'm' AS v UNION ALL SELECT 4L, 'n') AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)",
        "ALTER TABLE shop.t ADD COLUMN n INT",
    ):
        engine.sql(spark, text, catalog=catalog)
    found = engine.sql(spark, "SELECT id, v, CAST(at AS STRING) AS at, n FROM shop.t ORDER BY id", catalog=catalog)
    past = engine.sql(spark, "SELECT count(*) AS n FROM shop.t VERSION AS OF 1", catalog=catalog)
    return {"statements": _rows(found), "past": _rows(past), "time": _error(lambda: _with_time(spark, catalog))}


def _with_time(spark: SparkSession, catalog: Catalog) -> None:
    engine.sql(spark, "CREATE TABLE shop.clock (id BIGINT, at TIME)", catalog=catalog)
    catalog.table("shop.clock").dataframe(spark).collect()


def _streams(spark: SparkSession, catalog: Catalog, directory: Path) -> dict[str, Any]:
    """A sink and a format write the rows of files, in two runs each."""
    catalog_table, files = catalog.table("shop.t"), str(directory / "files")
    place = {"warehouse": catalog.warehouse, "table": "shop.t"}
    refused = None
    for run in range(2):
        rows = spark.range(10 + run * 5, 15 + run * 5).selectExpr("id", "'s' AS v", f"{_AT} AS at", "1 AS n")
        rows.write.mode("append").parquet(files)
        read = spark.readStream.schema("id BIGINT, v STRING, at TIMESTAMP_NTZ, n INT").parquet(files)
        _run(read.writeStream.foreachBatch(engine.sink(catalog_table)), directory / "sink")
        higher = read.selectExpr("id + 100 AS id", "v", "at", "n").writeStream
        refused = _error(partial(_run, higher.format("fluvial").options(**place), directory / "format"))
        if refused:
            _run(higher.foreachBatch(engine.sink(catalog_table)), directory / "instead")
    spark.sql("SELECT 200L AS id, 'w' AS v").write.format("fluvial").options(**place).mode("append").save()
    return {"format of a stream": refused, "ids": sorted(catalog_table.read().to_arrow().column("id").to_pylist())}


def _run(writer: DataStreamWriter, checkpoint: Path) -> None:
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def _readers(spark: SparkSession, catalog: Catalog, directory: Path) -> dict[str, Any]:
    place = {"warehouse": catalog.warehouse, "table": "shop.t"}
    batch = spark.read.format("fluvial").options(**place).load()
    frame = catalog.table("shop.t").dataframe(spark)
    system = spark.read.format("fluvial").options(**place | {"table": "shop.t$snapshots"}).load()
    checkpoint = str(directory / "read")
    stream = {**place, "read.changelog": "true", "checkpointLocation": checkpoint, "read.stream.maxRowsPerTrigger": "8"}
    found: list[list[int]] = []
    before = _followed(spark, stream, found)
    engine.sql(spark, "DELETE FROM shop.t WHERE id = 200", catalog=catalog)
    engine.sql(spark, "INSERT INTO shop.t (id, v) VALUES (300, 'x'), (301, 'x')", catalog=catalog)
    after = _followed(spark, stream, found)
    return {
        "batch": batch.where("id >= 110 AND id < 115").count(),
        "frame": [frame.where("n = 1").count(), frame.where("v = 's'").select("id").distinct().count()],
        "system": system.count() > 0,
        "followed": [before, after],
        "batches": len(found) > 2,
        "without a place": _error(lambda: _followed(spark, place | {"read.changelog": "true"}, [])),
    }


def _followed(spark: SparkSession, options: dict[str, str], found: list[list[int]]) -> list[Any]:
    """The changes until the stream's end, as row kind and key."""
    seen: list[Any] = []

    def note(frame: DataFrame, batch_id: int) -> None:
        rows = [[row["_row_kind"], row["id"]] for row in frame.select("_row_kind", "id").collect()]
        seen.extend(rows)
        found.append([row[1] for row in rows])

    while True:
        count = len(found)
        writer = spark.readStream.format("fluvial").options(**options).load().writeStream.foreachBatch(note)
        writer = writer.option("checkpointLocation", options.get("checkpointLocation", options["warehouse"] + "-none"))
        writer.trigger(availableNow=True).start().awaitTermination()
        if len(found) == count:  # before 4.2 a run with availableNow is one batch
            return sorted(seen)


def _rows(frame: Any) -> list[list[Any]]:
    return [list(row) for row in frame.collect()]


def _error(run: Callable[[], object]) -> str | None:
    """A part of an error's own words that tells which one it is; None: there is none."""
    try:
        run()
    except (InvalidInputError, PySparkException) as error:
        return next((each for each in _KNOWN if each in str(error)), f"{type(error).__name__}: {str(error)[:2000]}")
    return None


if __name__ == "__main__":
    started = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    started.sparkContext.setLogLevel("OFF")
    print(json.dumps({"version": pyspark.__version__} | ways(started, Path(sys.argv[1]))))
