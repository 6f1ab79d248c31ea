"""The law of ``log.overwrite=changes``: what bypasses the log is in it once, whichever process dies.

Random histories over a log in memory. After each step that brings the log up to the table, the topic alone makes the
table's rows; a union read is right at every moment; streams that began at any of them get every change once.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from engine.log.log_rows import log_rows
from engine.table import Table
from engine.write import log_sync
from engine.write.log_sync import complete_log
from filestore.changelog.log_gap import log_gap
from filestore.maintenance.partitions import drop_partitions, list_partitions
from filestore.maintenance.rewriting import restore
from filestore.table import FileTable
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from logstore.offsets import LogRange
from lsm.row_kind import ROW_KIND_SYMBOLS, RowKind
from tests.support.streams import Query, as_foreign
from tests.support.tails import DiedError, adopt, write_log_only

SCHEMA = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())]
)
ADDS = (RowKind.INSERT, RowKind.UPDATE_AFTER)
EXACT = {"log.changelog-mode": "all", "changelog-producer": "lookup"}
KINDS: Mapping[str, tuple[bool, Mapping[str, str]]] = {
    "upserts": (True, {}),
    "tombstones": (True, {"log.format": "json"}),
    "given": (True, {"log.changelog-mode": "all"}),
    "exact": (True, EXACT),
    "sums": (True, {**EXACT, "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}),
    "append": (False, {"bucket-key": "id"}),
    "counted": (False, {"row-counts": "true"}),
}
SEEDS = (0, 3)
MOST_STEPS = 15
Row = tuple[str, int, int | None]


@pytest.fixture
def catalog(tmp_path: Any) -> Iterator[Catalog]:
    with serving("memory:9092", MemoryEnvironment(MemoryCluster())):
        yield Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": "memory:9092"})


def create(catalog: Catalog, kind: str, **more: str) -> Table:
    has_key, options = KINDS[kind]
    given = {"bucket": "2", "log.overwrite": "changes", "write-only": "true", **options, **more}
    key = ["p", "id"] if has_key else []
    return catalog.create_table(f"d.{kind}", SCHEMA, primary_key=key, partition_by=["p"], options=given)


def table_of(rows: list[Row], kinds: list[str] | None = None) -> pa.Table:
    columns = [[row[index] for row in rows] for index in range(3)]
    found = pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)
    return found if kinds is None else found.append_column("_row_kind", pa.array(kinds, pa.string()))


def rows_of_table(table: Table) -> Counter[Row]:
    return Counter(tuple(row.values()) for row in table.files.read().to_arrow().to_pylist())


def topic(table: Table, *, has_key: bool, strict: bool) -> Counter[Row]:
    """What a consumer of the topic alone makes of it, up to the offsets of the newest snapshot."""
    log, newest = table.log, table.latest_snapshot()
    assert log is not None
    state: dict[tuple[str, int], Row] = {}
    bag: Counter[Row] = Counter()
    for bucket, end in (newest.log_offsets if newest else {}).items():
        for found in log_rows(
            table.files, log, LogRange(bucket=bucket, start_offset=0, end_offset=end), columns=SCHEMA.names
        ):
            for row, kind in zip(found.rows.to_pylist(), found.kinds.to_pylist(), strict=True):
                fold_into(tuple(row.values()), RowKind(kind), state, bag, has_key=has_key, strict=strict)
    return Counter(state.values()) if has_key else bag


def fold_into(
    row: Any, kind: RowKind, state: dict[Any, Any], bag: Counter[Any], *, has_key: bool, strict: bool
) -> None:
    if not has_key:
        bag[row] += 1 if kind in ADDS else -1
        if not bag[row]:
            del bag[row]
    elif kind in ADDS:
        assert not strict or (row[:2] in state) == (kind is RowKind.UPDATE_AFTER) or state.get(row[:2]) is None, row
        assert not strict or state.get(row[:2]) is None, ("twice", row, state.get(row[:2]))
        state[row[:2]] = row
    elif kind is RowKind.UPDATE_BEFORE or kind is RowKind.DELETE:
        assert not strict or state.get(row[:2]) == row, ("what is not there", row, state.get(row[:2]))
        state.pop(row[:2], None)


class Follower:
    """A stream and what it made of the changes; a strict one gets each row that goes as it came."""

    def __init__(self, table: Table, *, has_key: bool, strict: bool, **options: str) -> None:
        self.query = Query(str(table.store.paths.root).rpartition("/d.db/")[0], table.name, **options)
        self.has_key, self.strict = has_key, strict
        self.state: dict[Any, Any] = {}
        self.bag: Counter[Any] = Counter()
        if options:
            for row in rows_of_table(table).elements():
                fold_into(row, RowKind.INSERT, self.state, self.bag, has_key=has_key, strict=False)

    def check(self, table: Table) -> None:
        symbols = ROW_KIND_SYMBOLS.to_pylist()
        for change in self.query.available():
            kind = RowKind(symbols.index(change.pop("_row_kind")))
            fold_into(tuple(change.values()), kind, self.state, self.bag, has_key=self.has_key, strict=self.strict)
        assert (Counter(self.state.values()) if self.has_key else self.bag) == rows_of_table(table)


class Dying:
    """Kills the writer of a difference at its n-th point: before or after a bucket, before or after the snapshot."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        dying = self

        class Log(log_sync.BucketLog):
            def commit(self, *given: Any, **named: Any) -> Any:
                dying.point()
                done = super().commit(*given, **named)
                dying.point()
                return done

        class Commit(log_sync.TableCommit):
            def commit(self, *given: Any) -> Any:
                dying.point()
                done = super().commit(*given)
                dying.point()
                return done

        patch.setattr(log_sync, "BucketLog", Log)
        patch.setattr(log_sync, "TableCommit", Commit)

    def point(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise DiedError


class SyncHistory:
    """A table and all that happens to it."""

    def __init__(self, catalog: Catalog, kind: str, chance: random.Random, dying: Dying) -> None:
        self.table, self.chance, self.dying, self.kind = create(catalog, kind), chance, dying, kind
        self.has_key = KINDS[kind][0]
        self.strict = kind in ("exact", "sums")
        self.followers: list[Follower] = []
        self.did: list[str] = []

    def rows(self) -> list[Row]:
        keys = self.chance.sample([(p, i) for p in "ab" for i in range(6)], self.chance.randint(1, 6))
        return [(p, i, self.chance.randint(0, 9)) for p, i in keys]

    def inserts(self) -> pa.Table:
        rows = self.rows()
        return table_of(rows, ["+I"] * len(rows))

    def write(self) -> None:
        rows = self.rows()
        kinds = [self.chance.choice(["+I", "+I", "+I", "-D"]) for _ in rows]
        if self.kind == "append":
            kinds = ["+I"] * len(rows)
        if self.kind == "counted":
            there = list(rows_of_table(self.table).elements())
            gone = self.chance.sample(there, min(2, len(there)))
            rows, kinds = rows + gone, ["+I"] * len(rows) + ["-D"] * len(gone)
        if self.kind == "sums":
            kinds = ["+I"] * len(rows)
        self.table.write(table_of(rows, kinds))

    def orphan(self) -> None:
        """A batch whose writer dies before its commit, and what others do before it is taken over."""
        if self.kind in ("exact", "sums"):
            return  # its changes would be stale, see another test
        write_log_only(self.table, self.inserts())
        if self.chance.random() < 0.5:
            self.chance.choice([self.overwrite, self.drop])()
        adopt(self.table, self.inserts())

    def overwrite(self) -> None:
        self.table.overwrite(table_of(self.rows()))

    def overwrite_all(self) -> None:
        rows = self.rows() if self.chance.random() < 0.7 else []
        self.table.overwrite(table_of(rows), partition={})

    def drop(self) -> None:
        store = self.table.store
        there = [each.partition for each in list_partitions(store, store.snapshots.latest())]
        if there:
            drop_partitions(store, [self.chance.choice(there)])

    def restore(self) -> None:
        ids = self.table.store.snapshots.ids()
        if ids:
            restore(self.table.store, self.table.store.snapshots.read(self.chance.choice(ids)))

    def foreign(self) -> None:
        if self.kind in ("exact", "sums", "counted"):
            return
        before = self.table.latest_snapshot()
        opened = FileTable.open(self.table.name, self.table.store.paths.root)
        opened.write(table_of(self.rows()))
        newest = self.table.latest_snapshot()
        if newest is not None and newest != before:
            as_foreign(self.table)

    def compact(self) -> None:
        self.table.compact(full=True)

    def follow(self) -> None:
        if len(self.followers) < 4:
            options = self.chance.choice([{}, {"log.scan": "latest"}])
            found = Follower(self.table, has_key=self.has_key, strict=False, **options)
            if options:
                found.query.plan()
                found.query.available()
            self.followers.append(found)

    def step(self) -> None:
        names = [
            "write",
            "write",
            "overwrite",
            "overwrite_all",
            "drop",
            "restore",
            "foreign",
            "compact",
            "follow",
            "orphan",
        ]
        name = self.chance.choice(names)
        self.dying.left = self.chance.choice([None, None, 0, 1, 2, 3, 4, 5])
        self.did.append(f"{name} dying={self.dying.left}")
        try:
            getattr(self, name)()
        except DiedError:
            self.did.append("died")
        self.dying.left = None
        self.check()

    def check(self) -> None:
        self.check_union()
        gap = log_gap(self.table.store, self.table.latest_snapshot())
        if gap is None:
            assert topic(self.table, has_key=self.has_key, strict=self.strict) == rows_of_table(self.table)
        if self.chance.random() < 0.5:
            for each in self.followers:
                each.check(self.table)

    def check_union(self) -> None:
        union = self.table.read(options={"scan.log.union": "true"}).to_arrow()
        found = Counter(tuple(row.values()) for row in union.to_pylist())
        assert found == rows_of_table(self.table)


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_alone_makes_the_table(catalog: Catalog, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = Dying(monkeypatch)
    for seed in SEEDS:
        history = SyncHistory(catalog, kind, random.Random(seed), dying)
        try:
            for _ in range(MOST_STEPS):
                history.step()
            complete_log(history.table.files)
            history.check()
            assert log_gap(history.table.store, history.table.latest_snapshot()) is None
            history.write()
            for each in history.followers:
                each.check(history.table)
            Follower(history.table, has_key=history.has_key, strict=False).check(history.table)
        except BaseException as error:
            error.add_note(f"seed={seed} {history.did}")
            raise
        catalog.drop_table(history.table.name)
