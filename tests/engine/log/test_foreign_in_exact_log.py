"""What Flink's sink writes into an exact log by a hint is not exact: it does not look up what its rows replace."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from engine.procedures import reset_log
from engine.table import Table
from logstore.kafka.clients import ErrorNotes
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from lsm.errors import CorruptDataError
from tests.support.streams import as_foreign, query

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
EXACT = {"bucket": "1", "log.changelog-mode": "all", "changelog-producer": "lookup", "write-only": "true"}


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    """Two rows of ours, which a test's first stream has read; then Flink replaces one of them."""
    with serving("memory:9092", MemoryEnvironment(MemoryCluster())):
        catalog = Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": "memory:9092"})
        made = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=EXACT)
        put_row(made, {1: "a", 2: "a"})
        yield made


def put_row(table: Table, rows: dict[int, str]) -> None:
    """Our batch."""
    table.write(pa.table({"id": list(rows), "v": list(rows.values())}, schema=SCHEMA))


def flink_writes(table: Table, key: int, v: str) -> None:
    """The log and then the files, as a checkpoint of its sink does."""
    producer = table.log.properties.producer(ErrorNotes(), transactional_id="flink")
    producer.init_transactions(10)
    producer.begin_transaction()
    value = b'{"before":null,"after":{"id":%d,"v":"%s"},"op":"c"}' % (key, v.encode())
    producer.produce(table.log.topic, value, b'{"id":%d}' % key, partition=0)
    producer.commit_transaction(10)
    end = table.latest_snapshot().log_offsets[0] + 2  # behind the mark of our transaction
    Table(table.files.with_options({"log.system": "none"})).write(pa.table({"id": [key], "v": [v]}, schema=SCHEMA))
    as_foreign(table, commitIdentifier=1, logOffsets={"0": end})


@pytest.mark.long
def test_streams_take_its_changes_from_the_files_and_our_next_write_asks_for_a_new_log(
    table: Table, tmp_path: Path
) -> None:
    """Issue 23, 4: an exact difference, and a new log by one command; nothing comes twice, to a stream behind too."""
    stream, behind = query(table), query(table)
    assert len(stream.available()) == len(behind.available()) == 2
    flink_writes(table, 2, "flink")
    changed = [("-U", 2, "a"), ("+U", 2, "flink")]
    assert [(row["_row_kind"], row["id"], row["v"]) for row in stream.available()] == changed
    with pytest.raises(CorruptDataError, match=r"exact log.*hint.*CALL sys\.reset_log"):
        put_row(table, {1: "b"})
    reset_log(table)
    table = Catalog(str(tmp_path)).table("db.t")
    put_row(table, {1: "b"})
    ours = [("-U", 1, "a"), ("+U", 1, "b")]
    assert [(row["_row_kind"], row["id"], row["v"]) for row in stream.available()] == ours
    assert [(row["_row_kind"], row["id"], row["v"]) for row in behind.available()] == changed + ours
