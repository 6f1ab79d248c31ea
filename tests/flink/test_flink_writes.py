"""A real Flink as a writer of our tables, in turn with us: with its sink of the log, and without."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from engine.broker.broker import Broker
from engine.table import Table
from tests.peers.flink import Flink, folded
from tests.support.streams import Query

SCHEMA = pa.schema([("id", pa.int32()), ("v", pa.string())])
State = dict[tuple[int], tuple[object, ...]]


@pytest.fixture
def catalog(broker: Broker, tmp_path: Path) -> Catalog:
    """Tables with a log."""
    return Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})


def put(table: Table, rows: Mapping[int, str]) -> None:
    table.write(pa.table({"id": pa.array(rows, pa.int32()), "v": pa.array(rows.values(), pa.string())}))


def in_table(table: Table) -> State:
    return {(row["id"],): tuple(row.values()) for row in table.read().to_arrow().to_pylist()}


class Turns:
    """One table, its oracle, and four readers: our batch and stream, and Flink's."""

    def __init__(self, catalog: Catalog, flink: Flink, warehouse: Path, **options: str) -> None:
        """Make the table."""
        texts = {"bucket": "2", **{key.replace("_", "."): text for key, text in options.items()}}
        self.table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=texts)
        self.name, self.flink, self.expected = f"{flink.catalog(warehouse)}.db.t", flink, {}
        self.ours, self.seen = Query(warehouse, "db.t"), []

    def put(self, rows: Mapping[int, str]) -> None:
        """Our turn."""
        put(self.table, rows)
        self._changed(rows)

    def insert(self, rows: Mapping[int, str], *, streaming: bool = False, hint: str = "") -> None:
        """Flink's turn."""
        values = ", ".join(f"({key}, '{text}')" for key, text in rows.items())
        self.flink.sql(f"INSERT INTO {self.name} {hint} VALUES {values}", streaming=streaming)
        self._changed(rows)

    def _changed(self, rows: Mapping[int, str]) -> None:
        self.expected |= {(key,): (key, text) for key, text in rows.items()}
        news = self.ours.available()
        self.seen += [(row["_row_kind"], row["id"], row["v"]) for row in news]
        assert in_table(self.table) == self.expected
        assert folded(self.seen) == self.expected
        assert sorted((row["id"], row["v"]) for row in news if row["_row_kind"] != "-U") == sorted(rows.items())


def test_flink_and_fluvial_write_in_turn(catalog: Catalog, flink: Flink, tmp_path: Path) -> None:
    turns = Turns(catalog, flink, tmp_path)
    turns.put({1: "a", 2: "a", 3: "a"})
    with flink.stream(f"SELECT * FROM {turns.name}") as stream:
        turns.insert({2: "flink", 4: "flink"})
        turns.put({3: "b", 5: "b"})
        turns.insert({1: "streamed", 6: "streamed"}, streaming=True)
        turns.put({6: "c", 4: "c"})
        stream.wait(lambda changes: folded(changes) == turns.expected)
    assert {row[1:2]: row[1:] for row in flink.sql(f"SELECT * FROM {turns.name}")} == turns.expected
