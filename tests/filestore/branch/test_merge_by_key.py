"""Merging by key against a dict: thousands of keys, each with a history of its own on main and on a branch."""

import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from filestore.branch.branches import create_branch
from filestore.branch.key_places import LISTED
from filestore.branch.merge import merge_branch
from filestore.changelog.snapshot_changes import plan_changes, read_changes
from filestore.evolution.schema_change import AddColumn
from filestore.layout.branch_names import is_merge_tag
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from filestore.types.binary_row import EMPTY_ROW
from filestore.types.data_types import data_type_of
from filestore.write.row_deletion import delete_rows
from lsm.errors import ConflictError, FluvialError
from tests.support.faults import Disks, FaultyFileIO, When, fail_points
from tests.support.roots import files_there, used_files
from tests.support.rows import change_tuples, row_set
from tests.support.tables import (
    KEY_SCHEMA,
    content,
    copied,
    expire_all_but,
    failing_at,
    key_table,
    key_values,
    memory_catalog,
    reopened,
    rows,
)

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("w", pa.int64())])
KEYS = 300

KINDS: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "many buckets": {"bucket": "4"},
    "sequence": {"sequence.field": "w"},
    "ignoring deletes": {"ignore-delete": "true"},
    "first row": {"merge-engine": "first-row"},
    "partial update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "sums": {
        "merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "fields.w.aggregate-function": "max",
        "aggregation.remove-record-on-delete": "true",
    },
    "vectors": {"deletion-vectors.enabled": "true"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "100"},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "full compaction": {"changelog-producer": "full-compaction"},
    "counted": {"row-counts": "true"},
}  # fmt: skip
Content = dict[Any, Any]


class Histories:
    """A table and its branch, with what both had in common at last."""

    def __init__(self, kind: str, seed: int) -> None:
        self.rng = random.Random(f"{kind} {seed}")
        self.kind = kind
        self.is_counted = kind == "counted"
        self.table = memory_catalog().create_table(
            "db.t",
            SCHEMA,
            primary_key=[] if self.is_counted else ["id"],
            options={"bucket": "1", "num-sorted-run.compaction-trigger": "4", **KINDS[kind]},
        )
        self.write(self.table, share=0.7)
        create_tag(self.table.store, "t")
        create_branch(self.table.store, "dev", tag="t")
        self.branch = self.table.on_branch("dev")
        self.base = self.content(self.branch)

    def content(self, table: FileTable) -> Content:
        rows = row_tuples(table)
        if self.is_counted:
            return {row: {"count": count} for row, count in Counter(rows).items()}
        found = {row[0]: {"v": row[1], "w": row[2]} for row in rows}
        assert len(found) == len(rows), "a key is there twice"
        return found

    def write(self, table: FileTable, *, share: float) -> None:
        """A commit of changes of some keys, with few values, so that both sides often do the same."""
        rng, known = self.rng, {row[0]: row for row in row_tuples(table)}
        ids = rng.sample(range(KEYS), int(KEYS * share))
        rows, kinds = [], []
        for number in ids:
            old = known.get(number)
            deletes = self.kind not in ("first row", "ignoring deletes") and old is not None and rng.random() < 0.3
            values = [None if rng.random() < 0.2 else rng.randint(1, 2) for _ in "vw"]
            new = (number, values[0], rng.randint(1, 3) if self.kind == "sequence" else values[1])
            rows.append(dict(zip(SCHEMA.names, old if deletes and old is not None else new, strict=True)))
            kinds.append("-D" if deletes else "+I")
        table.write(pa.Table.from_pylist(rows, schema=SCHEMA), kinds=pa.array(kinds))

    def go_on(self) -> None:
        """Some commits of both sides."""
        for table in (self.table, self.branch):
            for _ in range(self.rng.randint(1, 2)):
                self.write(table, share=self.rng.choice([0.02, 0.1, 0.4]))
            if self.kind == "first row":
                table.compact(full=True)  # else its new rows are not seen
            elif self.rng.random() < 0.3:
                table.compact(full=self.rng.random() < 0.5)
            if self.rng.random() < 0.2:
                expire_all_but(table, keep=1)

    def merge(self) -> int:
        """Look, be refused, and force; the number of conflicts."""
        main, branch = self.content(self.table), self.content(self.branch)
        expected, conflicts = three_way(self.base, main, branch)
        preview = merge_branch(self.table.store, "dev", dry_run=True)
        assert preview.conflict_count == len(conflicts)
        listed = {self.key_of(each.key): (each.base, each.main, each.branch) for each in preview.conflicts}
        assert len(listed) == len(preview.conflicts) == min(len(conflicts), LISTED)
        assert listed.items() <= conflicts.items()
        assert self.content(self.table) == main
        previous = self.table.store.snapshots.latest()
        if conflicts:
            with pytest.raises(ConflictError, match=rf"count={len(conflicts)} "):
                merge_branch(self.table.store, "dev")
            assert self.content(self.table) == main
        planned = merge_branch(self.table.store, "dev", force=True, dry_run=True)
        assert used_files(self.table) == files_there(self.table)
        done = merge_branch(self.table.store, "dev", force=True)
        assert replace(done, snapshot=None) == planned, "a dry run says what the run does"
        assert self.content(self.table) == expected
        assert self.content(self.branch) == branch
        if done.snapshot is not None:
            self.base = branch
            changes = [
                change
                for split in plan_changes(self.table.store, previous, done.snapshot)
                for change in change_tuples(read_changes(self.table, split))
            ]
            assert applied(main, changes, is_counted=self.is_counted) == expected
        assert used_files(self.table) == files_there(self.table)
        return len(conflicts)

    def key_of(self, key: Mapping[str, Any]) -> Any:
        return tuple(key[name] for name in SCHEMA.names) if self.is_counted else key["id"]


def row_tuples(table: FileTable) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.read().to_arrow().to_pylist()]


def three_way(base: Content, main: Content, branch: Content) -> tuple[Content, Content]:
    """What a forced merge comes to, and the conflicts with the rows of the three."""
    found, conflicts = dict(main), {}
    for key in {*base, *main, *branch}:
        was, here, there = base.get(key), main.get(key), branch.get(key)
        if there in (was, here):
            continue
        if here != was:
            conflicts[key] = (was, here, there)
        found.pop(key, None)
        if there is not None:
            found[key] = there
    return found, conflicts


def applied(content: Content, changes: list[tuple[Any, ...]], *, is_counted: bool) -> Content:
    """Rows after the changes that a stream gets."""
    if is_counted:
        counts = Counter({key: each["count"] for key, each in content.items()})
        for kind, *row in changes:
            counts[tuple(row)] += 1 if kind == "+I" else -1
        return {key: {"count": count} for key, count in counts.items() if count}
    found = dict(content)
    for kind, number, v, w in changes:
        if kind in ("-U", "-D"):
            assert found.pop(number) == {"v": v, "w": w}
        else:
            assert number not in found
            found[number] = {"v": v, "w": w}
    return found


def merges_by_key(kind: str, seed: int, *, merges: int = 3) -> int:
    """One random history of a table and its branch; the number of keys that were in conflict."""
    histories, conflicts = Histories(kind, seed), 0
    for _ in range(merges):
        histories.go_on()
        conflicts += histories.merge()
    assert merge_branch(histories.table.store, "dev").snapshot is None
    merged = histories.content(histories.table)
    histories.table.compact(full=True)
    assert histories.content(histories.table) == merged
    return conflicts


@pytest.mark.sampled(3)
@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_a_merge_by_key_is_that_of_dicts(kind: str) -> None:
    """BR-15, BR-36: what was seen in a dry run, what is refused, what is forced, and what streams get of it."""
    assert merges_by_key(kind, 0) or kind == "first row"


def branched(**options: str) -> tuple[FileTable, FileTable]:
    """Rows 1 and 2 with the value 0 on main, and a branch of that."""
    table = key_table(bucket="1", **options)
    table.write(rows((1, 0), (2, 0)))
    create_branch(table.store, "dev", snapshot_id=1)
    return table, table.on_branch("dev")


def test_rows_of_other_keys_stay_however_long_main_goes_on() -> None:
    """H3: main is written between the attempts of a merge; the changed rows of both are read, and no others."""
    table, branch = branched()
    branch.write(rows((1, 7)))
    written = iter(range(10, 15))

    class Busy:
        """Main gets a row before each of the first snapshots is published."""

        def __getattr__(self, name: str) -> Any:
            return getattr(table.store.io, name)

        def create_exclusive(self, path: str, body: bytes) -> bool:
            if "/snapshot/" in path and (number := next(written, None)) is not None:
                table.write(rows((number, number)))
            return table.store.io.create_exclusive(path, body)

    done = merge_branch(reopened(table, Busy()).store, "dev")
    assert content(table) == {1: 7, 2: 0, 10: 10, 11: 11, 12: 12, 13: 13, 14: 14}
    assert (done.conflict_count, done.file_count) == (0, 1)
    assert used_files(table) == files_there(table)


def test_a_merge_of_few_changes_does_not_read_the_rest() -> None:
    """H3: the file of all other rows is not opened."""
    table, branch = branched()
    table.compact(full=True)
    create_branch(table.store, "late", snapshot_id=table.store.snapshots.latest_id())
    late = table.on_branch("late")
    (whole,) = LiveFiles.latest(table.store).files(BucketKey(EMPTY_ROW, 0))
    table.write(rows((3, 3)))
    late.write(rows((4, 4)))
    io = FaultyFileIO(table.store.io)
    merge_branch(reopened(table, io).store, "late")
    assert not any(whole.file_name in line for line in io.log)
    assert content(table) == {1: 0, 2: 0, 3: 3, 4: 4}
    assert merge_branch(table.store, "dev").snapshot is None
    assert content(branch) == {1: 0, 2: 0}


def test_a_new_column_of_the_branch_comes_along_by_key() -> None:
    """BR-10: rows of main are compared as the branch sees them."""
    catalog = memory_catalog()
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(rows((1, 0), (2, 0)))
    create_branch(table.store, "dev", snapshot_id=1)
    catalog.alter_table("db.t", [AddColumn(path=("w",), type=data_type_of(pa.int64(), nullable=True))], branch="dev")
    wide = KEY_SCHEMA.append(pa.field("w", pa.int64()))
    table.on_branch("dev").write(pa.table({"id": [2, 3], "v": [0, 7], "w": [5, 7]}, schema=wide))
    table.write(rows((1, 9)))
    merge_branch(table.store, "dev")
    found = catalog.table("db.t").read().to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(1, 9, None), (2, 0, 5), (3, 7, 7)]


def test_a_compaction_alone_is_not_merged() -> None:
    """L6: no snapshot is made, and the next merge has what comes after it."""
    table, branch = branched()
    branch.compact(full=True)
    assert merge_branch(table.store, "dev").snapshot is None
    assert table.store.snapshots.latest_id() == 1
    branch.write(rows((1, 5)))
    assert merge_branch(table.store, "dev").snapshot is not None
    assert content(table) == {1: 5, 2: 0}


def test_the_base_outlives_all_snapshots_and_a_rollback_of_main_is_noticed() -> None:
    """BR-28: what was merged is known when main has forgotten it, and not believed when main went back."""
    table, branch = branched()
    branch.write(rows((1, 5), (3, 5)))
    merge_branch(table.store, "dev")
    table.write(rows((2, 8)))
    branch.write(rows((1, 0)))  # back to what it was in the beginning
    for side in (table, branch):
        side.compact(full=True)
        expire_all_but(side, keep=1)
    assert merge_branch(table.store, "dev", dry_run=True).conflict_count == 0
    merge_branch(table.store, "dev")
    assert content(table) == {1: 0, 2: 8, 3: 5}
    assert len([name for name in branch.store.snapshots.tag_names() if is_merge_tag(name)]) == 1
    again, other = branched()
    other.write(rows((1, 5), (3, 5)))
    merge_branch(again.store, "dev")
    roll_back(again.store, plan_rollback(again.store, again.store.snapshots.read(1)))
    merge_branch(again.store, "dev")
    assert content(again) == {1: 5, 2: 0, 3: 5}


def test_rows_deleted_on_both_sides_of_a_table_without_a_key() -> None:
    """H3: by deletion vectors, of files that both have; with rows that both added."""
    options = {"bucket": "1", "bucket-key": "id", "deletion-vectors.enabled": "true"}
    table = memory_catalog().create_table("db.t", KEY_SCHEMA, options=options)
    table.write(rows(*((number, 0) for number in range(6))))
    create_branch(table.store, "dev", snapshot_id=1)
    branch = table.on_branch("dev")
    for side, ids in ((table, (0, 1)), (branch, (1, 2))):
        delete_rows(side.store, f"id in {ids}")
    table.write(rows((10, 1)))
    branch.write(rows((11, 1), (12, 1)))
    delete_rows(branch.store, "id = 12")
    merge_branch(table.store, "dev")
    assert key_values(table) == [(3, 0), (4, 0), (5, 0), (10, 1), (11, 1)]
    assert used_files(table) == files_there(table)
    delete_rows(branch.store, "id = 11")
    merge_branch(table.store, "dev", force=True)  # its file has another name in main by now
    assert key_values(branch) == [(0, 0), (3, 0), (4, 0), (5, 0)]
    assert key_values(table) == [(3, 0), (4, 0), (5, 0)]  # what main deleted stays deleted


@pytest.mark.sampled(2)
@pytest.mark.sweep
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("kind", ["deduplicate", "sums", "vectors"])
def test_a_merge_by_key_that_dies_is_all_or_nothing(kind: str, when: When) -> None:
    """H3: at every file operation; the same call completes it, and nothing is left but orphans."""
    table = memory_catalog().create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1", **KINDS[kind]})
    for side, ids in ((table, (1, 2, 3)), ("dev", (1, 4)), (table, (2, 5))):
        if side == "dev":
            create_branch(table.store, "dev", snapshot_id=table.store.snapshots.latest_id())
        there = table.on_branch("dev") if side == "dev" else table
        there.write(pa.table({"id": ids, "v": ids, "w": ids}, schema=SCHEMA))
    clean = copied(table)
    before, io = row_set(clean), FaultyFileIO(clean.store.io)
    merge_branch(reopened(clean, io).store, "dev")
    after = row_set(clean)
    assert before != after
    disks = Disks()
    for fail_at in fail_points(io, when):
        disk, failing, _ = failing_at(table, fail_at, when)
        with suppress(FluvialError):
            merge_branch(failing.store, "dev")
        if not disks.is_new(disk.store.io):
            continue
        assert row_set(disk) in (before, after)
        merge_branch(disk.store, "dev")
        assert row_set(disk) == after
        assert used_files(disk) <= files_there(disk)
        assert merge_branch(disk.store, "dev").snapshot is None
