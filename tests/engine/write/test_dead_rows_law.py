"""The law of log.consistency=eventual: once a writer or ``sync_log`` has ended, every reader says what the table has.

Random histories of batches, writers that die in one, and ways back to tags, snapshots and times, over a log in memory.
"""

import json
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine import procedures as sys_
from filestore.options.table_options import TableOptions
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from lsm.errors import FluvialError, InvalidInputError, UnavailableError
from tests.support.logs import log_changes
from tests.support.streams import Query
from tests.support.warehouses import ID_SCHEMA

Rows = dict[int, str | int | None]
STEPS = ("write", "die", "roll_back", "write", "die", "roll_back", "sync", "tag", "overwrite", "follow", "compact")
KINDS = {"plain": {}, "tombstones": {"log.format": "json"}}


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setattr("logstore.log.log_writer.CHUNK_S", 0.0)
    with serving("memory:9092", MemoryEnvironment(MemoryCluster())):
        yield Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": "memory:9092"})


class FoldedStream:
    """A stream, and what folding its changes by key makes of the rows that it began with."""

    def __init__(self, catalog: Catalog, table: Table, begun: Rows, **options: str) -> None:
        self.query = Query(catalog.warehouse, table.name, **options)
        self.seen = begun
        if options:
            self.query.plan()

    def follow(self) -> Rows:
        for row in self.query.available():
            self.seen.pop(row["id"], None)
            if row["_row_kind"] in ("+I", "+U"):
                self.seen[row["id"]] = row["v"]
        return self.seen


class EventualHistory:
    """One table, its readers, and the dictionary that says what it has."""

    def __init__(self, catalog: Catalog, kind: str, chance: random.Random) -> None:
        self.catalog, self.chance, self.did = catalog, chance, list[str]()
        options = {"bucket": "2", "log.consistency": "eventual", **KINDS[kind]}
        self.table = catalog.create_table("d.t", ID_SCHEMA, primary_key=["id"], options=options)
        self.rows: Rows = {}
        self.states: dict[int, Rows] = {}
        self.followers = [FoldedStream(catalog, self.table, {})]
        self.number = 0
        self.write()

    def keys(self) -> list[int]:
        return self.chance.sample(range(20), self.chance.randint(1, 6))

    def batch(self, keys: list[int], kinds: bool = True) -> pa.RecordBatch:
        self.number += 1
        values = [f"v{self.number}"] * len(keys)
        found = pa.RecordBatch.from_pydict({"id": keys, "v": values}, schema=ID_SCHEMA)
        gone = [self.chance.random() < 0.3 for _ in keys]
        symbols = pa.array(["-D" if each else "+U" for each in gone], pa.string())
        return found.append_column("_row_kind", symbols) if kinds else found

    def note(self) -> None:
        self.rows = {row["id"]: row["v"] for row in self.table.read().to_arrow().to_pylist()}
        newest = self.table.latest_snapshot()
        if newest is not None:
            self.states[newest.id] = dict(self.rows)

    def write(self) -> None:
        rows, batch = dict(self.rows), self.batch(self.keys())
        for row in batch.to_pylist():
            rows.pop(row["id"], None)
            if row["_row_kind"] == "+U":
                rows[row["id"]] = row["v"]
        self.table.write(batch)
        self.note()
        assert self.rows == rows
        self.check()

    def die(self) -> None:
        batches = [self.batch(self.keys()) for _ in range(self.chance.randint(1, 3))]

        def source() -> Iterator[pa.RecordBatch]:
            yield from batches
            raise UnavailableError("the source is gone")

        with suppress(UnavailableError):
            self.table.write(pa.RecordBatchReader.from_batches(batches[0].schema, source()))
        if self.chance.random() < 0.5:
            for each in self.followers:
                each.follow()  # sees rows that no snapshot has

    def roll_back(self) -> None:
        ids = sorted(set(self.table.store.snapshots.ids()) & self.states.keys())
        target = self.chance.choice(ids)
        wanted, tags = self.states[target], [each.name for each in self.table.tags.list()]
        way = self.chance.choice(["snapshot", "timestamp", "latest", *(["tag"] if tags else [])])
        if way == "tag":
            tag = self.chance.choice(tags)
            wanted = self.states[self.table.tags.get(tag).snapshot.id]
            sys_.rollback(self.table, tag=tag, force=True)
        elif way == "timestamp":
            at_ms = self.table.store.snapshots.read(target).time_ms
            wanted = self.states[max(each for each in ids if self.table.store.snapshots.read(each).time_ms <= at_ms)]
            moment = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
            sys_.rollback_to_timestamp(self.table, timestamp=moment, force=True)
        elif way == "snapshot":
            sys_.rollback(self.table, snapshot=target, force=True)
        else:
            sys_.rollback_to_as_latest(self.table, snapshot=target)
        self.did.append(way)
        self.note()
        assert self.rows == wanted

    def sync(self) -> None:
        sys_.sync_log(self.table)
        self.note()
        self.check()

    def tag(self) -> None:
        newest = self.table.latest_snapshot()
        assert newest is not None
        if newest.id in self.states:
            self.table.tags.create(f"t{self.number}-{len(self.did)}")

    def overwrite(self) -> None:
        self.table.overwrite(pa.Table.from_batches([self.batch(self.keys(), kinds=False)]))
        self.note()

    def compact(self) -> None:
        self.table.compact(full=True)
        self.note()

    def follow(self) -> None:
        self.sync()
        time.sleep(0.002)
        now = {"log.scan": "from-timestamp", "log.scan.timestamp-mills": str(int(time.time() * 1000))}
        for options in ({"log.scan": "latest"}, now):
            if len(self.followers) < 5:
                self.followers.append(FoldedStream(self.catalog, self.table, dict(self.rows), **options))

    def check(self) -> None:
        union = self.table.read(options={"scan.log.union": "true"}).to_arrow()
        assert {row["id"]: row["v"] for row in union.to_pylist()} == self.rows, "union"
        for number, each in enumerate([*self.followers, FoldedStream(self.catalog, self.table, {})]):
            assert each.follow() == self.rows, f"follower {number}"


@pytest.mark.sweep
@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", KINDS)
def test_readers_come_to_say_what_the_table_has(catalog: Catalog, kind: str, seed: int) -> None:
    """FL-58, FL-108, FL-189, TAG-02: with dead rows before a way back, behind it, and on both sides."""
    history = EventualHistory(catalog, kind, random.Random(f"{kind} {seed}"))
    try:
        for _ in range(14):
            name = history.chance.choice(STEPS)
            history.did.append(name)
            getattr(history, name)()
        history.sync()
        history.write()
    except (AssertionError, FluvialError) as error:
        error.add_note(f"{history.did}")
        raise


@pytest.mark.parametrize("engine", ["partial-update", "aggregation", "first-row"])
def test_records_that_are_no_rows_are_not_shown_before_their_snapshot(catalog: Catalog, engine: str) -> None:
    """FL-58: what a dead writer had added to a sum could not be taken back."""
    options = {"bucket": "1", "log.consistency": "eventual", "merge-engine": engine}
    with pytest.raises(InvalidInputError, match=f"needs records that replace .*merge-engine={engine} fix="):
        catalog.create_table("d.t", ID_SCHEMA, primary_key=["id"], options=options)


@pytest.mark.parametrize("was_eventual", [False, True])
@pytest.mark.parametrize("kind", ["sum", "last_non_null_value"])
def test_an_older_table_whose_records_are_no_rows_shows_them_with_their_snapshot(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, kind: str, was_eventual: bool
) -> None:
    """FL-58, FL-108: such a table could be made once; what it has of earlier dead writers stays where it is."""
    options = {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": kind}
    made = catalog.create_table(
        "d.t",
        pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())]),
        primary_key=["id"],
        options=options,
    )
    path = Path(f"{made.store.paths.schema_dir}/schema-0")
    schema = json.loads(path.read_text())
    schema["options"]["log.consistency"] = "eventual"
    path.write_text(json.dumps(schema))
    table = catalog.table("d.t")
    follower = FoldedStream(catalog, table, {})
    table.write(pa.table({"id": [1, 2], "v": [10, 20]}))
    assert follower.follow() == {1: 10, 2: 20}

    def die() -> None:
        def source() -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"id": [1, 3], "v": [5, 7]})
            raise UnavailableError("the source is gone")

        with pytest.raises(UnavailableError):
            table.write(pa.RecordBatchReader.from_batches(table.schema.arrow_schema, source()))

    if was_eventual:
        with monkeypatch.context() as before:
            before.setattr(TableOptions, "log_is_eventual", True)
            die()
    die()
    assert follower.follow() == {1: 10, 2: 20}
    table.write(pa.table({"id": [1], "v": [1]}))
    rows = {1: 11 if kind == "sum" else 1, 2: 20}
    assert {row["id"]: row["v"] for row in table.read().to_arrow().to_pylist()} == rows
    assert follower.follow() == rows
    if not was_eventual:  # what any consumer adds up
        assert [(row["id"], row["v"]) for _, row in log_changes(table)] == [(1, 10), (2, 20), (1, 1)]
    assert sys_.verify(table).num_rows == 0
