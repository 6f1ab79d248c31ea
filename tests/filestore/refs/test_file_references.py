"""Which files may go, against brute force: over random histories of snapshots, tags, branches and consumers.

After every step, everything that somebody can still ask for reads as it did, and nothing else is on the disk.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from filestore.layout.branch_names import is_merge_tag
from filestore.maintenance.partitions import drop_partitions
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.manifest.entries import live_entries
from filestore.refs.branch_origins import branch_made_from
from filestore.refs.deciding import Deciders, DecidingReferences
from filestore.refs.file_references import FileReferences
from filestore.refs.live_references import LiveReference, ReferenceKind, all_references
from filestore.refs.savepoint_files import list_savepoints
from filestore.scan.live_files import LiveFiles
from filestore.scan.snapshot_files import live_files
from filestore.scan.table_scan import TableScan
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from filestore.tag.savepoints import create_savepoint, delete_savepoint
from filestore.tag.tags import create_tag, delete_tag, keeps_merge, rename_tag, replace_tag
from tests.support.faults import MemoryFileIO
from tests.support.roots import KnownUse, branches_of, files_there, used_files
from tests.support.rows import rows_by
from tests.support.tables import memory_catalog

SCHEMA = pa.schema([("p", pa.string()), ("id", pa.int64()), ("v", pa.int64())])
SEEN = (
    "expired", "expired beside tags", "expired beside branches", "freed by a tag",
    "expired beside savepoints", "freed by a savepoint",
)  # fmt: skip
Content = frozenset[tuple[str, int, int]]


# ---- the decision


def root(kind: ReferenceKind, snapshot_id: int, branch: str = "main") -> LiveReference:
    return LiveReference(kind=kind, branch=branch, name=f"{snapshot_id}", snapshot_id=snapshot_id)


def asked(tags: list[int], *, snapshot_id: int, is_last: bool, chain: tuple[int, ...] = ()) -> list[int]:
    roots = [root(ReferenceKind.TAG, each) for each in tags] + [root(ReferenceKind.SNAPSHOT, each) for each in chain]
    found = DecidingReferences(roots, branch="main").about(snapshot_id, is_last=is_last)
    return sorted(each.snapshot_id for each in nearest(found))


def nearest(found: Deciders) -> list[LiveReference]:
    """Those that are asked where each side has one that decides."""
    return [*(each for side in found.sides() for each in next(side, ())), *found.others]


def test_a_file_that_came_and_went_between_two_tags_is_nobodys() -> None:
    """TAG-55..TAG-57, with tags [100, 200, 300], and files as the commits say that removed them.

    A was added at 105 and removed at 120: tag 100, the newest before, is asked, and does not have it, so it goes when
    119 expires. A file removed at 201 is in tag 200, and stays when 200 expires.
    """
    assert asked([100, 200, 300], snapshot_id=119, is_last=True) == [100]
    assert asked([100, 200, 300], snapshot_id=200, is_last=True) == [200]
    assert asked([100, 200, 300], snapshot_id=99, is_last=True) == []


def test_a_deleted_tag_asks_its_neighbours() -> None:
    """TAG-49..TAG-52: the tags beside it, or the snapshots that are left when they are nearer."""
    assert asked([100, 300], snapshot_id=200, is_last=False) == [100, 300]
    assert asked([100, 300], snapshot_id=200, is_last=False, chain=(250, 251)) == [100, 250]
    assert asked([100, 300], snapshot_id=200, is_last=False, chain=(198, 199, 200, 201)) == [200, 201]
    assert asked([], snapshot_id=200, is_last=False) == []


def test_other_branches_and_changelogs_are_always_asked() -> None:
    """Traps 5 and 14: a file that main has removed may be alive on a branch."""
    others = [
        root(ReferenceKind.SNAPSHOT, 3, "dev"), root(ReferenceKind.TAG, 900, "dev"), root(ReferenceKind.CHANGELOG, 2),
    ]  # fmt: skip
    found = DecidingReferences([*others, root(ReferenceKind.SNAPSHOT, 7)], branch="main").about(5, is_last=True)
    assert nearest(found) == others


# ---- against brute force


class VersionedTable:
    """A table with branches, beside what each of its states held when it was made."""

    def __init__(self, rng: random.Random, options: Mapping[str, str]) -> None:
        self.rng = rng
        self.io = MemoryFileIO()
        sizes = {"bucket": "1", "num-sorted-run.compaction-trigger": "3", "manifest.merge-min-count": "3"}
        self.has_key = "bucket-key" not in options
        key = ["p", "id"] if self.has_key else []
        self.table = memory_catalog(self.io).create_table(
            "db.t", SCHEMA, primary_key=key, partition_by=["p"], options={**sizes, **options}
        )
        self.states: dict[tuple[str, int], Content] = {}
        self.tags: dict[tuple[str, str], Content] = {}
        self.savepoints: dict[tuple[str, int], Content] = {}
        self.turn = 0
        self.seen = dict.fromkeys(SEEN, 0)
        self.read: dict[bytes, Content] = {}
        self.known: KnownUse = {}

    def step(self) -> None:
        table = self.rng.choice([self.table, *branches_of(self.table)])
        actions = self.actions()
        self.rng.choices(list(actions), weights=list(actions.values()))[0](table)
        for snapshot_id in reversed(
            table.store.as_found.snapshots.ids()
        ):  # it may be gone; some writes are followed by a compaction
            if (table.store.paths.branch, snapshot_id) in self.states:
                break
            self.states[table.store.paths.branch, snapshot_id] = self.content(table, snapshot_id=snapshot_id)

    def actions(self) -> Mapping[Callable[[FileTable], None], int]:
        """What may happen, and how often."""
        return {
            self.write: 10, self.compact: 5, self.drop_partition: 1, self.tag: 4, self.delete_tag: 4,
            self.rename_tag: 1, self.make_branch: 1, self.consume: 1, self.expire: 6,
            self.save: 2, self.delete_savepoint: 4,
        }  # fmt: skip

    def write(self, table: FileTable) -> None:
        self.turn += 1
        keys = {(self.rng.choice("ab"), self.rng.randint(0, 5)) for _ in range(self.rng.randint(1, 4))}
        data = [{"p": p, "id": each, "v": self.turn} for p, each in sorted(keys)]
        table.write(pa.Table.from_pylist(data, schema=SCHEMA))

    def compact(self, table: FileTable) -> None:
        table.compact(full=self.rng.random() < 0.5)

    def drop_partition(self, table: FileTable) -> None:
        partitions = sorted({key.partition for key in LiveFiles.latest(table.store).buckets()})
        drop_partitions(table.store, partitions[:1])

    def tag(self, table: FileTable) -> None:
        ids, branch, name = self.whole_ids(table), table.store.paths.branch, self.rng.choice("xyz")
        if not ids or (name in table.store.snapshots.tag_names() and self.has_branch(table, name)):
            return
        snapshot_id = self.rng.choice(ids)
        if name in table.store.snapshots.tag_names():
            replace_tag(table.store, name, snapshot_id=snapshot_id)
        else:
            create_tag(table.store, name, snapshot_id=snapshot_id)
        self.tags[branch, name] = self.states[branch, snapshot_id]

    def delete_tag(self, table: FileTable) -> None:
        name = self.some_tag(table)
        if name is not None:
            self.seen["freed by a tag"] += len(delete_tag(table.store, name).data)
            del self.tags[table.store.paths.branch, name]
            self.check()

    def save(self, table: FileTable) -> None:
        if table.store.snapshots.latest_id() is None:
            return
        before, branch = self.newest(table), table.store.paths.branch
        kept = {each.id: each for each in list_savepoints(table.store)}
        savepoint = create_savepoint(table.store, compact=self.rng.random() < 0.8)
        assert savepoint.id > max((number for where, number in self.savepoints if where == branch), default=0)
        assert kept.items() <= {each.id: each for each in list_savepoints(table.store)}.items()
        if TableScan(table.store).skips_level0:  # what a write left there is only seen now
            before = self.newest(table)
        for snapshot_id in table.store.snapshots.ids():
            self.states.setdefault((branch, snapshot_id), before)  # rows are as before
        self.savepoints[branch, savepoint.id] = self.tags[branch, savepoint.tag_name] = before

    def delete_savepoint(self, table: FileTable) -> None:
        names = [each for each in list_savepoints(table.store) if not self.has_branch(table, each.tag_name)]
        is_old = bool(names) and names[0].saved_snapshot_id < (table.store.snapshots.earliest_id() or 0)
        if names and (is_old or self.rng.random() < 0.1):
            chosen, branch = names[0], table.store.paths.branch
            self.seen["freed by a savepoint"] += len(delete_savepoint(table.store, chosen.id).metadata)
            del self.savepoints[branch, chosen.id], self.tags[branch, chosen.tag_name]
            self.check()

    def rename_tag(self, table: FileTable) -> None:
        name, branch = self.some_tag(table), table.store.paths.branch
        if name is not None and not is_merge_tag(name) and f"{name}2" not in table.store.snapshots.tag_names():
            rename_tag(table.store, name, f"{name}2")
            self.tags[branch, f"{name}2"] = self.tags.pop((branch, name))

    def make_branch(self, table: FileTable) -> None:
        """From a tag, as Paimon makes one: schemas, the tag and its snapshot are copied."""
        ours = sorted(name for where, name in self.tags if where == self.table.store.paths.branch)
        branch = self.rng.choice(["dev", "fix"])
        if not ours or any(each.store.paths.branch == branch for each in branches_of(self.table)):
            return
        name = self.rng.choice(ours)
        paths, there = self.table.store.paths, self.table.store.paths.with_branch(branch)
        body, snapshot = self.io.files[paths.tag(name)], self.table.store.snapshots.tag(name)
        self.io.files[there.schema(0)] = self.io.files[paths.schema(0)]
        self.io.files[there.tag(name)] = self.io.files[there.snapshot(snapshot.id)] = body
        self.states[branch, snapshot.id] = self.tags[branch, name] = self.tags[self.table.store.paths.branch, name]

    def consume(self, table: FileTable) -> None:
        latest = table.store.snapshots.latest_id()
        if self.rng.random() < 0.5:
            table.store.consumers.delete("c")
        elif latest is not None:
            table.store.consumers.write("c", max(1, latest - self.rng.randint(0, 3)), may_go_back=True)

    def expire(self, table: FileTable) -> None:
        least, ids = self.rng.randint(1, 3), table.store.snapshots.ids()
        retention = Retention(
            min_count=least,
            max_count=least + self.rng.randint(0, 3),
            age_ms=self.rng.choice([0, 10**12]),
            limit=self.rng.randint(1, 9),
        )
        gone = [step.snapshot.id for step in expire_snapshots(table.store, retention)]
        assert table.store.snapshots.ids() == ids[len(gone) :]
        assert len(ids) - len(gone) >= min(least, len(ids))
        if gone:
            self.seen["expired"] += 1
            self.seen["expired beside tags"] += len(table.store.snapshots.tag_names()) > 0
            self.seen["expired beside savepoints"] += len(list_savepoints(table.store)) > 0
            self.seen["expired beside branches"] += len(branches_of(self.table)) > 1
        self.check()

    def whole_ids(self, table: FileTable) -> list[int]:
        """The snapshots whose rows are all seen; with deletion vectors not those before the compaction of a write."""
        snapshots = table.store.snapshots
        skips = TableScan(table.store).skips_level0
        if not skips:
            return snapshots.ids()
        files = {each: live_files(table.store, snapshots.read(each)) for each in snapshots.ids()}
        return [each for each, found in files.items() if all(entry.file.level for entry in found)]

    def some_tag(self, table: FileTable) -> str | None:
        """One from which no branch was made, and that is not a savepoint's."""
        names = [
            name
            for name in table.store.snapshots.tag_names()
            if not self.has_branch(table, name)
            and not name.startswith("savepoint-")
            and not keeps_merge(table.store, name)
        ]
        return self.rng.choice(names) if names else None

    def has_branch(self, table: FileTable, name: str) -> bool:
        return branch_made_from(table.store, name, table.store.snapshots.tag(name)) is not None

    def content(self, table: FileTable, **travel: Any) -> Content:
        """Of a state that may have been read before: its files are those of then, unless one of them is missing."""
        paths = table.store.paths
        body = self.io.files[paths.tag(travel["tag"]) if "tag" in travel else paths.snapshot(travel["snapshot_id"])]
        if body not in self.read:
            self.read[body] = unique_content(table, **travel)
        return self.read[body]

    def newest(self, table: FileTable) -> Content:
        """Of the newest snapshot."""
        newest_id = table.store.snapshots.latest_id()
        return frozenset() if newest_id is None else self.content(table, snapshot_id=newest_id)

    def check(self, *, again: bool = False) -> None:
        """Everything that is left reads as it did, and nothing else is on the disk.

        What was read before is only read again if asked, as nothing that is used may be missing.
        """
        if again:
            self.read.clear()
            self.known.clear()
        for table in branches_of(self.table):
            branch = table.store.paths.branch
            for snapshot_id in table.store.snapshots.ids():
                assert self.content(table, snapshot_id=snapshot_id) == self.states[branch, snapshot_id]
            found = {name: self.content(table, tag=name) for name in table.store.snapshots.tag_names()}
            assert found == {name: kept for (where, name), kept in self.tags.items() if where == branch}
            saved = {each.id: self.content(table, tag=each.tag_name) for each in list_savepoints(table.store)}
            assert saved == {number: kept for (where, number), kept in self.savepoints.items() if where == branch}
            for each in list_savepoints(table.store):
                full = [
                    entry
                    for m in each.data_manifests(table.store.manifests)
                    for entry in table.store.manifests.read_manifest(m)
                ]
                names = {(entry.partition, entry.bucket, entry.file.file_name) for entry in live_entries(full)}
                assert names == {
                    (entry.partition, entry.bucket, entry.file.file_name)
                    for entry in live_files(table.store, each.snapshot)
                }
        used = used_files(self.table, self.known)
        assert used == files_there(self.table)
        references, roots = FileReferences(self.table.store), all_references(self.table.store)
        assert references.data(roots) | references.metadata(roots) == used


def unique_content(table: FileTable, **travel: Any) -> Content:
    """Rows of a state; each commit of a table without a key has other values."""
    key = ["p", "id"] if table.store.has_key else ["p", "id", "v"]
    return frozenset((row["p"], row["id"], row["v"]) for row in rows_by(key, table, **travel).values())


OPTIONS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "changelog": {"changelog-producer": "input"},
    "moving files": {"compaction.small-file-ratio": "0"},  # each is worth a place of its own, so they change levels
    "lookup": {"changelog-producer": "lookup"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "indexed": {"file-index.bloom-filter.columns": "id", "file-index.in-manifest-threshold": "1 b"},
    "dynamic": {"bucket": "-1"},
    "without a key": {"bucket-key": "id", "compaction.min.file-num": "3"},
}


def references_history(kind: str, seed: int, *, steps: int = 90) -> Mapping[str, int]:
    """One random history; what happened in it, and how often."""
    versioned = VersionedTable(random.Random(f"{kind} {seed}"), OPTIONS[kind])
    for _ in range(steps):
        versioned.step()
    versioned.check(again=True)
    return versioned.seen


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("kind", OPTIONS)
def test_what_can_be_asked_for_stays_and_nothing_else(kind: str) -> None:
    """Issue 6 point 2; TAG-31, TAG-47..TAG-56, TAG-64; BR-50; SP-20."""
    seen = dict.fromkeys(SEEN, 0)
    for seed in range(6):
        found = references_history(kind, seed)
        seen = {name: count + found[name] for name, count in seen.items()}
        if seed > 0 and all(seen.values()):
            break
    assert all(seen.values()), seen
