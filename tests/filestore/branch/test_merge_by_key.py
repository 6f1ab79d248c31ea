"""Merging by key against a dict: thousands of keys, each with a history of its own on main and on a branch."""

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from filestore.branch.branches import create_branch
from filestore.branch.key_places import LISTED
from filestore.branch.merge import merge_branch
from filestore.changelog.snapshot_changes import plan_changes, read_changes
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from lsm.errors import ConflictError
from tests.support.roots import files_there, used_files
from tests.support.rows import change_tuples
from tests.support.tables import expire_all_but, memory_catalog

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
        done = merge_branch(self.table.store, "dev", force=True)
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


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_a_merge_by_key_is_that_of_dicts(kind: str) -> None:
    """BR-15, BR-36: what was seen in a dry run, what is refused, what is forced, and what streams get of it."""
    histories, conflicts, merges = Histories(kind, 0), 0, 3
    for _ in range(merges):
        histories.go_on()
        conflicts += histories.merge()
    assert conflicts or kind == "first row"
    assert merge_branch(histories.table.store, "dev").snapshot is None
    merged = histories.content(histories.table)
    histories.table.compact(full=True)
    assert histories.content(histories.table) == merged
