"""Union reads, time travel and read-your-writes through Spark, by format and by frame."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from engine import Catalog, Table, sink
from engine.broker.broker import Broker
from engine.request.commit_handle import CommitHandle
from tests.support.spark_reads import by_format
from tests.support.tails import changes, write_log_only
from tests.support.warehouses import new_table

pytestmark = [pytest.mark.spark, pytest.mark.broker]

Reader = Callable[..., DataFrame]


def by_frame(spark: SparkSession, table: Table, **options: str) -> DataFrame:
    columns = options.pop("columns", None)
    return table.dataframe(
        spark, columns=columns.split(",") if columns else None, filter=options.pop("filter", None), options=options
    )


@pytest.fixture(scope="module")
def table(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Keys 0 to 99 in compacted files; 0 deleted, 1 updated and 200 added in the log behind them."""
    made = new_table(tmp_path_factory.mktemp("warehouse"), broker=broker, options={"bucket": "4"})
    made.write(changes([("+I", key, "file") for key in range(100)]))
    made.compact(full=True)
    write_log_only(made, changes([("-D", 0, "file"), ("+U", 1, "tail"), ("+I", 200, "tail")]))
    return made


@pytest.mark.sampled(1)
@pytest.mark.parametrize("read", [by_format, by_frame], ids=["format", "dataframe"])
def test_spark_reads_files_and_log_as_one_table(spark: SparkSession, table: Table, read: Reader) -> None:
    plain, union = read(spark, table), read(spark, table, **{"scan.log.union": "true"})
    assert plain.count() == 100
    found = {row.id: row.v for row in union.collect()}
    assert len(found) == union.count() == 100
    assert found == {**dict.fromkeys(range(1, 100), "file"), 1: "tail", 200: "tail"}
    some = read(spark, table, **{"scan.log.union": "true", "filter": "v = 'tail' and id < 100", "columns": "v,id"})
    assert [tuple(row) for row in some.collect()] == [("tail", 1)]
    assert read(spark, table, **{"scan.max-staleness": "1 ms"}).count() == 100
    assert sorted(row.id for row in read(spark, table, **{"scan.max-staleness": "1 ms"}).collect())[-1] == 200


def test_a_user_may_name_some_columns_and_let_them_be_null(spark: SparkSession, table: Table) -> None:
    warehouse = table.store.paths.root.rsplit("/", 2)[0]
    reader = spark.read.format("fluvial").options(warehouse=warehouse, table=table.name).schema("v STRING, id BIGINT")
    assert sorted(row.id for row in reader.load().collect()) == list(range(100))


def test_buckets_without_a_tail_stay_with_sparks_own_scan(spark: SparkSession, table: Table) -> None:
    plan = by_frame(spark, table, **{"scan.log.union": "true"})._jdf.queryExecution().executedPlan().toString()
    assert "FileScan parquet" in plan
    assert "MapInArrow" in plan


@pytest.mark.parametrize("read", [by_format, by_frame], ids=["format", "dataframe"])
def test_snapshot_and_kind_can_be_columns(spark: SparkSession, table: Table, read: Reader) -> None:
    frame = read(spark, table, **{"read.metadata-columns": "_snapshot_id", "columns": "id"})
    assert frame.dtypes == [("id", "bigint"), ("_snapshot_id", "bigint")]
    assert {row._snapshot_id for row in frame.collect()} == {2}
    kinds = read(spark, table, **{"read.changelog": "true", "scan.log.union": "true"})
    assert {row._row_kind for row in kinds.collect()} == {"+I"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scan.mode": "compacted-full"}, r"no such start: scan\.mode=compacted-full"),
        ({"scan.at-least": "99", "scan.at-least.timeout": "10 ms"}, "wanted_snapshot=99 visible_snapshot=2"),
        ({"read.metadata-columns": "_log_timestamp"}, "rows of files have no time of their own"),
        ({"scan.timestamp": "1999-01-01"}, "no such snapshot"),
    ],
)
def test_what_cannot_be_read_is_said_in_spark(
    spark: SparkSession, table: Table, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        by_format(spark, table, **options).count()


def test_spark_travels_in_time_and_says_what_it_read(
    spark: SparkSession, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    first = table.store.snapshots.read(1).time_ms
    assert by_format(spark, table, **{"scan.timestamp": str(first)}).count() == 100
    assert (
        by_format(spark, table, **{"scan.mode": "from-timestamp", "scan.timestamp-millis": str(first)}).count() == 100
    )
    with caplog.at_level(logging.INFO, "fluvial.read"):
        by_frame(spark, table, **{"scan.log.union": "true"})
    assert "snapshot+log: table=" in caplog.text


def test_a_stream_hands_on_what_it_committed(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Idea 6, read your writes: the sink's handle, as text, in another reader."""
    source = Catalog(str(tmp_path / "in")).create_table(
        "db.source", changes([("+I", 1, "x")]).drop_columns(["_row_kind"]).schema, options={"bucket": "-1"}
    )
    source.write(changes([("+I", 1, "x"), ("+I", 2, "x")]).drop_columns(["_row_kind"]))
    target = new_table(tmp_path / "out", broker=broker)
    write = sink(target)
    assert write.last_commit is None
    place = {"warehouse": str(tmp_path / "in"), "table": "db.source"}
    stream = spark.readStream.format("fluvial").options(**place).load()
    query = (
        stream.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    write.close()
    latest = target.latest_snapshot()
    assert latest is not None
    assert write.last_commit == CommitHandle(snapshot_id=latest.id, log_offsets=latest.log_offsets)
    assert by_format(spark, target, **{"scan.at-least": str(write.last_commit)}).count() == 2
