"""Tables with a log, to engines that know no log: they read them, and write between two of our batches."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from logstore.kafka.topics import LogTopics
from lsm.row_kind import RowKind
from tests.peers import INSERT, TableDefinition, normalise
from tests.peers.java_peer import JavaPeer
from tests.support.streams import Query, content, fold

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False), ("v", pa.string())])
EXACT = {"log.changelog-mode": "all", "changelog-producer": "lookup"}
KINDS: dict[str, dict[str, str]] = {
    "upsert": {},
    "eventual": {"log.consistency": "eventual"},
    "json-eventual": {"log.format": "json", "log.consistency": "eventual"},
    "exact": EXACT,
}


def logged_rows(first: int, v: str) -> pa.Table:
    return pa.table({"id": range(first, first + 6), "v": [v] * 6}, schema=SCHEMA)


@pytest.mark.parametrize("kind", KINDS)
def test_java_reads_and_writes_a_table_with_a_log(
    kind: str, catalog: Catalog, java_peer: JavaPeer, tmp_path: Path
) -> None:
    """Issue 23, 2: in batch and by its changes, rows of level 0 too; what it writes is reported once by our stream."""
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "2", **KINDS[kind]})
    table.write(logged_rows(0, "a"))
    table.compact(full=True)
    compacted = table.latest_snapshot().id
    stream = Query(tmp_path, "db.t")
    reported = stream.available()
    table.write(logged_rows(3, "b"))  # in level 0
    assert java_peer.read(tmp_path, "db.t") == normalise(table.read().to_arrow())
    java_peer.write(tmp_path, "db.t", logged_rows(6, "java"))
    news = stream.available()
    assert sorted((row["id"], row["v"]) for row in news if row["_row_kind"] in ("+I", "+U")) == sorted(
        [*((key, "b") for key in range(3, 9)), *((key, "java") for key in range(6, 12))]
    )
    table.write(logged_rows(9, "c"))
    table.compact(full=True)
    news += stream.available()
    assert fold(reported + news) == content(table)
    assert java_peer.read(tmp_path, "db.t") == normalise(table.read().to_arrow())
    steps = range(compacted, table.latest_snapshot().id)
    changes = [each for step in steps for each in java_peer.changes(tmp_path, "db.t", after=step, until=step + 1)]
    state: dict[Any, Any] = {row["id"]: {"id": row["id"], "v": row["v"]} for row in reported}
    for number, row in changes:
        if RowKind(number).is_retract:
            assert state.pop(row["id"]) == row
        else:
            state[row["id"]] = row
    assert {(key,): row for key, row in state.items()} == content(table)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_java_made_with_the_names_of_a_log_opens_with_it(
    kind: str, catalog: Catalog, java_peer: JavaPeer, tmp_path: Path
) -> None:
    """Issue 23, 1: it has Paimon's names only; the topic is there, and empty."""
    other = catalog.create_table("db.other", SCHEMA, primary_key=["id"], options={"bucket": "2"})
    LogTopics(other.log.properties).create_topic("made.by.hand", bucket_count=2, config={})
    definition = TableDefinition(
        columns=[("id", "INT NOT NULL"), ("v", "STRING")],
        primary_key=["id"],
        options={
            "bucket": "2",
            "log.system": "kafka",
            "kafka.bootstrap.servers": "memory:9092",
            "kafka.topic": "made.by.hand",
            **KINDS[kind],
        },
    )
    java_peer.create(tmp_path, "db.made", definition)
    java_peer.write(tmp_path, "db.made", logged_rows(0, "java"), kinds=[INSERT] * 6)
    table = catalog.table("db.made")
    stream = Query(tmp_path, "db.made")
    reported = stream.available()
    table.write(logged_rows(3, "b"))
    assert table.log.topic == "made.by.hand"
    news = stream.available()
    assert sorted(row["id"] for row in news if row["_row_kind"] in ("+I", "+U")) == [*range(3, 9)]
    assert fold(reported + news) == content(table)
    assert java_peer.read(tmp_path, "db.made") == normalise(table.read().to_arrow())
