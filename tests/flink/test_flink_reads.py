"""A real Flink, with its stock connectors and without a hint, on our files, our log, and both as one."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from engine.broker.broker import Broker
from engine.table import Table
from filestore.options.flink_log import flink_reads_log
from tests.peers.flink import Flink, folded, replayed

SCHEMA = pa.schema([("id", pa.int32()), ("v", pa.string())])


@pytest.fixture
def catalog(broker: Broker, tmp_path: Path) -> Catalog:
    """Tables with a log."""
    return Catalog(str(tmp_path / "warehouse"), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})


def made(catalog: Catalog, options: Mapping[str, str], *, name: str = "db.t") -> Table:
    return catalog.create_table(name, SCHEMA, primary_key=["id"], options={"bucket": "2", **options})


def put(table: Table, rows: Mapping[int, str], kinds: str = "") -> None:
    """Write rows by key; ``kinds``: one of each, separated by blanks."""
    columns = {"id": pa.array(rows, pa.int32()), "v": pa.array(rows.values(), pa.string())}
    table.write(pa.table(columns | ({"_row_kind": kinds.split()} if kinds else {})))


def in_table(table: Table) -> dict[tuple[int], tuple[object, ...]]:
    return {(row["id"],): tuple(row.values()) for row in table.read().to_arrow().to_pylist()}


EXACT = {"log.changelog-mode": "all", "changelog-producer": "lookup"}
KINDS = {
    "upsert log": {},
    "upsert log, producer input": {"changelog-producer": "input"},
    "upsert log, producer lookup": {"changelog-producer": "lookup"},
    "upsert log, producer full-compaction": {"changelog-producer": "full-compaction"},
    "exact log": EXACT,
    "json log": {"log.format": "json"},
    "first-row": {"merge-engine": "first-row", "changelog-producer": "lookup"},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_a_stream_begins_with_every_row_and_goes_on(
    options: Mapping[str, str], catalog: Catalog, flink: Flink, tmp_path: Path
) -> None:
    table = made(catalog, options)
    put(table, {key: f"a{key}" for key in range(40)})
    put(table, {key: f"b{key}" for key in range(30, 50)})  # level 0 has two runs
    name = f"{flink.catalog(tmp_path / 'warehouse')}.db.t"
    assert {row[1:2]: row[1:] for row in flink.sql(f"SELECT * FROM {name}")} == in_table(table)
    hint = "/*+ OPTIONS('continuous.discovery-interval'='100ms') */"
    with flink.stream(f"SELECT * FROM {name} {hint}") as stream:
        import time

        t = time.time()
        if not flink_reads_log(table.options):
            table.compact(full=True)
        found = stream.wait(lambda changes: folded(changes) == in_table(table))
        print("START", options, time.time() - t)
        t = time.time()
        put(table, {1: "changed", 60: "new"})
        if options.get("merge-engine") != "first-row":
            put(table, {2: "a2"}, "-D")
        if not flink_reads_log(table.options):
            table.compact(full=True)
        found = stream.wait(lambda changes: folded(changes) == in_table(table))
        print("NEXT", options, time.time() - t, found[-6:])
    assert replayed(found) == in_table(table)
