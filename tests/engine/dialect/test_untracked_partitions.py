"""Partitions without change tracking: in the files, and given to no stream."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine.broker.broker import Broker
from engine.catalog import Catalog
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from engine.log.log_rows import log_rows
from filestore.changelog.untracked import UNTRACKED_KEY, untracked_partitions, with_tracking
from filestore.options.table_options import TableOptions
from logstore.offsets import LogRange
from lsm.errors import InvalidInputError


def session_of(catalog: Catalog) -> SqlSession:
    return SqlSession(SqlContext(catalog=catalog, open_spark=lambda: pytest.fail("no Spark")))


def write_two_days(session: SqlSession, name: str, ids: list[int]) -> None:
    """Every id into partitions 2026-01-01 and 2026-01-02."""
    table = session.context.catalog.table(name)
    rows = {"dt": ["2026-01-01", "2026-01-02"] * len(ids), "id": [each for each in ids for _ in range(2)]}
    table.write(
        pa.table(rows, schema=pa.schema([("dt", pa.string()), ("id", pa.int64())])).cast(table.schema.arrow_schema)
    )


CREATE = (
    "CREATE TABLE {} (dt DATE, id BIGINT, PRIMARY KEY (dt, id) NOT ENFORCED) PARTITIONED BY (dt) WITH ('bucket'='1')"
)
OFF = "ALTER TABLE {} PARTITION (dt = DATE '2026-01-02') SET ('change-tracking' = 'false')"
ON = "ALTER TABLE {} PARTITION (dt = DATE '2026-01-02') SET ('change-tracking' = 'true')"


def test_the_option_lists_partitions() -> None:
    one = with_tracking(TableOptions.parse({}), {"a": "1"}, is_tracked=False) or ""
    both = with_tracking(TableOptions.parse({UNTRACKED_KEY: one}), {"a": None}, is_tracked=False)
    assert both == '[{"a":"1"},{"a":null}]'
    assert with_tracking(TableOptions.parse({UNTRACKED_KEY: '[{"a":"1"}]'}), {"a": "1"}, is_tracked=True) is None
    for text in ("{}", "[1]", "[{}]", "dt=1"):
        with pytest.raises(InvalidInputError, match="not a list of partitions"):
            untracked_partitions(TableOptions.parse({UNTRACKED_KEY: text}, strict=False))


@pytest.mark.broker
def test_the_log_does_not_get_their_rows(broker: Broker, tmp_path: Path) -> None:
    """FL-22, FL-23, FL-50."""
    session = session_of(Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers}))
    session.execute(CREATE.format("untracked"))
    write_two_days(session, "default.untracked", [1])
    session.execute(OFF.format("untracked"))
    write_two_days(session, "default.untracked", [2])
    shown = [
        dict(zip(*(described["col_name"].to_pylist(), described["data_type"].to_pylist()), strict=True))
        for day in (1, 2)
        if (described := session.execute(f"DESCRIBE untracked PARTITION (dt='2026-01-0{day}')")[0].table) is not None
    ]
    assert [each["change-tracking"] for each in shown] == ["true", "false"]
    session.execute(ON.format("untracked"))
    write_two_days(session, "default.untracked", [3])
    table = session.context.catalog.table("default.untracked")
    assert UNTRACKED_KEY not in table.schema.options
    assert table.log is not None
    whole = LogRange(bucket=0, start_offset=0, end_offset=table.log_end_offsets()[0])
    rows = [
        row for each in log_rows(table.files, table.log, whole, columns=["dt", "id"]) for row in each.rows.to_pylist()
    ]
    assert [(row["dt"].day, row["id"]) for row in rows] == [(1, 1), (2, 1), (1, 2), (1, 3), (2, 3)]
    assert table.read().to_arrow().num_rows == 6
    with pytest.raises(InvalidInputError, match="one option"):
        session.execute("ALTER TABLE untracked PARTITION (dt='2026-01-02') SET ('bucket'='2')")
    with pytest.raises(InvalidInputError, match="not a value of the partition column"):
        session.execute("ALTER TABLE untracked PARTITION (dt='soon') SET ('change-tracking'='false')")


@pytest.fixture
def stopped(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


@pytest.mark.sweep
def test_streams_that_read_files_do_not_get_them(spark: SparkSession, stopped: None, tmp_path: Path) -> None:
    """FL-23."""
    session = session_of(Catalog(str(tmp_path / "warehouse")))
    session.execute(CREATE.format("t"))
    place = {
        "warehouse": str(tmp_path / "warehouse"),
        "table": "default.t",
        "log.scan": "latest",
        "read.changelog": "true",
    }

    def drained() -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        stream = spark.readStream.format("fluvial").options(**place).load()
        query = (
            stream.writeStream.foreachBatch(
                lambda frame, _: found.extend((row.dt.day, row.id) for row in frame.collect())
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return sorted(found)

    write_two_days(session, "default.t", [1])
    assert drained() == []
    session.execute(OFF.format("t"))
    write_two_days(session, "default.t", [2])
    assert drained() == [(1, 2)]
    session.execute(ON.format("t"))
    write_two_days(session, "default.t", [3])
    assert drained() == [(1, 3), (2, 3)]
