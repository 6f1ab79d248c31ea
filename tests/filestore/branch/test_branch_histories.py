"""Branches over random histories, against brute force: what can be asked for reads as it did, and nothing is left over.

The machine is the one of ``test_file_references``, with everything that is done to branches as a whole besides.
"""

import os
import random
from collections.abc import Callable, Mapping

import orjson
import pytest

from filestore.branch.branches import create_branch, delete_branch, list_branches, read_branch, rename_branch
from filestore.branch.fast_forward import fast_forward
from filestore.branch.main_replacement import replace_main
from filestore.branch.merge import merge_branch
from filestore.layout.branch_names import is_merge_tag
from filestore.maintenance.rewriting import restore
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.refs.live_references import on_branch
from filestore.refs.savepoint_files import is_savepoint_tag, list_savepoints
from filestore.scan.snapshot_files import live_files
from filestore.scan.table_scan import TableScan
from filestore.table import FileTable
from lsm.errors import ConflictError, InvalidInputError
from tests.filestore.refs.test_file_references import OPTIONS, Content, VersionedTable, unique_content
from tests.support.roots import branches_of, files_there, used_files
from tests.support.tables import copied


def merged_by_rows(base: Content, main: Content, branch: Content) -> Content:
    """What a merge of a table without a key comes to: each row is in one file of either side, or of both."""
    return (main - (base - branch)) | (branch - base)


def merged_by_key(base: Content, main: Content, branch: Content, *, force: bool) -> Content:
    """What a merge comes to, key by key; fails when it should have been refused."""
    old, ours, theirs = ({(p, number): v for p, number, v in each} for each in (base, main, branch))
    found = dict(ours)
    for key in {*old, *theirs}:
        was, here, there = (each.get(key) for each in (old, ours, theirs))
        if there in (was, here):
            continue
        assert force or here == was, f"both changed {key}"
        found = {other: v for other, v in found.items() if other != key} | ({} if there is None else {key: there})
    return frozenset((p, number, v) for (p, number), v in found.items())


EXAMPLES = int(os.environ.get("FLUVIAL_MODEL_EXAMPLES", "2"))  # of each kind
SEEN = (
    "created",
    "deleted",
    "renamed",
    "merged",
    "refused",
    "forwarded",
    "forced",
    "replaced",
    "moved back",
    "saved over",
    "taken back",
    "rolled back",
)
NESTED_SEEN = ("nested", "merged into a branch", "kept for branches")


class BranchedTable(VersionedTable):
    """With branches that are made, merged, renamed and deleted, and become main.

    Args:
        nests: whether branches have branches, too.
    """

    def __init__(self, rng: random.Random, options: Mapping[str, str], *, nests: bool = False) -> None:
        super().__init__(rng, options)
        self.nests = nests
        self.parents: dict[str, str] = {}  # of branches of branches
        self.seen |= dict.fromkeys((*SEEN, *NESTED_SEEN), 0)
        self.common: dict[str, list[tuple[int, Content]]] = {}  # of a branch and its parent, with that one's snapshot

    def actions(self) -> Mapping[Callable[[FileTable], None], int]:
        often = {
            **super().actions(), self.save: 1, self.delete_savepoint: 1, self.make_branch: 1, self.create: 3,
            self.delete: 1, self.rename: 2, self.merge: 4, self.forward: 3, self.replace: 2, self.back: 2,
            self.roll_back: 1,
        }  # fmt: skip
        return often | {self.make_branch: 0, self.create: 8, self.merge: 8, self.replace: 1} if self.nests else often

    def create(self, _: FileTable) -> None:
        name, parent = self.rng.choice(["dev", "fix", "new", "odd"]), self.some_parent()
        where = parent.store.paths.branch
        tags, ids = parent.store.snapshots.tag_names(), self.whole_ids(parent)
        if (
            not ids
            or any(each.store.paths.branch == name for each in branches_of(self.table))
            or f"branch-{name}" in tags
        ):
            return
        if tags and self.rng.random() < 0.5:
            tag = self.rng.choice(tags)
            made = create_branch(parent.store, name, tag=tag)
        else:
            snapshot_id = self.rng.choice(ids)
            made = create_branch(parent.store, name, snapshot_id=snapshot_id)
            self.tags[where, f"branch-{name}"] = self.states[where, snapshot_id]
        assert made.tag is not None
        assert made.snapshot_id is not None
        known = self.tags[where, made.tag]
        self.states[name, made.snapshot_id] = self.tags[name, made.tag] = known
        self.common[name] = [(made.snapshot_id, known)]
        if where != self.table.store.paths.branch:
            self.parents[name] = where
            self.seen["nested"] += 1
        self.seen["created"] += 1

    def delete(self, _: FileTable) -> None:
        name = self.some_branch()
        if name is not None and not self.is_refused_for_children(name, lambda: delete_branch(self.table.store, name)):
            own, parent = read_branch(self.table.store, name).tag or "", self.parent_of(name)  # named after it
            deleted = delete_branch(self.table.store, name)
            self.forget(name)
            if own.startswith("branch-") and parent.store.snapshots.find_tag(own) is None:
                self.tags.pop((parent.store.paths.branch, own), None)  # else another branch began at it, too
            assert deleted.branch.name == name
            self.seen["deleted"] += 1
            self.check()

    def rename(self, _: FileTable) -> None:
        name, target = self.some_branch(), self.rng.choice(["dev", "fix", "new", "odd"])
        if name is None or name == target or any(each.store.paths.branch == target for each in branches_of(self.table)):
            return
        if self.has_tag(f"branch-{target}"):
            return
        if self.is_refused_for_children(name, lambda: rename_branch(self.table.store, name, target)):
            return
        before = read_branch(self.table.store, name).tag
        after = rename_branch(self.table.store, name, target).tag
        for known in (self.states, self.tags, self.savepoints):
            for where, what in [key for key in known if key[0] == name]:
                known[target, what] = known.pop((where, what))  # type: ignore[index]
        for where in (self.parent_of(name).store.paths.branch, target):
            there = on_branch(self.table.store, where).snapshots
            if before and after and (where, before) in self.tags and there.find_tag(before) is None:
                self.tags[where, after] = self.tags.pop((where, before))  # it was made for the branch
        if name in self.common:
            self.common[target] = self.common.pop(name)
        if name in self.parents:
            self.parents[target] = self.parents.pop(name)
        self.seen["renamed"] += 1
        self.check()

    def merge(self, _: FileTable) -> None:
        name = self.some_branch()
        if name is None:
            return
        into, there = self.parent_of(name), self.table.on_branch(name)
        before, theirs, whole = self.newest(into), self.newest(there), (self.whole(into), self.whole(there))
        force = self.rng.random() < 0.2
        try:
            done = merge_branch(self.table.store, name, force=force)
        except (ConflictError, InvalidInputError):
            self.seen["refused"] += 1
            assert self.newest(into) == before
        else:
            after = self.newest(into)
            if name in self.common:
                base, merged = self.common[name][-1][1], self.whole(into)
                if self.has_key:
                    assert merged == merged_by_key(base, *whole, force=force)
                else:  # force: partitions in which files cannot be kept apart are as on the branch
                    assert force or not done.conflicting_buckets
                    odd = {row[0] for row in merged ^ merged_by_rows(base, *whole)}
                    assert len(odd) <= len(done.conflicting_buckets)
                    assert all({r for r in merged if r[0] == p} == {r for r in whole[1] if r[0] == p} for p in odd)
            if name in self.common and done.snapshot is not None:
                self.common[name].append((done.snapshot.id, whole[1]))
            self.seen["merged"] += done.snapshot is not None
            self.seen["merged into a branch"] += done.snapshot is not None and name in self.parents
            self.states.setdefault((into.store.paths.branch, into.store.snapshots.latest_id() or 0), after)
            self.hold(name, theirs)
        self.check()

    def hold(self, name: str, theirs: Content) -> None:
        """What the branch has come to keep for its next merge."""
        there = list(filter(is_merge_tag, on_branch(self.table.store, name).snapshots.tag_names()))
        known = {key: each for key, each in self.tags.items() if key[0] == name and is_merge_tag(key[1])}
        self.tags = {key: each for key, each in self.tags.items() if key not in known}
        self.tags |= {(name, tag): known.get((name, tag), theirs) for tag in there}

    def forward(self, _: FileTable) -> None:
        name, main = self.some_branch(), self.table.store.paths.branch
        if name is None:
            return
        ids = {each: self.table.store.snapshots.tag(each).id for each in self.table.store.snapshots.tag_names()}
        there, force = self.table.on_branch(name), self.rng.random() < 0.7
        try:
            done = fast_forward(self.table.store, name, force=force)
        except (ConflictError, InvalidInputError):
            self.seen["refused"] += 1
            self.check()
            return
        if done.removed or done.published:
            floor = done.common_id
            self.states = {key: each for key, each in self.states.items() if key[0] != main or key[1] <= floor}
            self.tags = {key: each for key, each in self.tags.items() if key[0] != main or ids[key[1]] <= floor}
            self.states |= {(main, each): self.states[name, each] for each in done.published}
            if done.removed and floor:  # if it had expired, main has it again
                self.states[main, floor] = self.states[name, floor]
            self.went_back(main, floor)
            if name in self.common:  # main may go back to any of them
                self.common[name] += [(each, self.whole(there, each)) for each in done.published]
            self.hold(name, self.newest(there))
            self.seen["forwarded"] += 1
            self.seen["forced"] += bool(done.removed)
        for tag in there.store.snapshots.tag_names():
            if not is_savepoint_tag(there.store, tag) and not is_merge_tag(tag):
                self.tags.setdefault((main, tag), self.tags[name, tag])
        self.check()

    def replace(self, _: FileTable) -> None:
        old, name = self.table.store.paths.branch, self.some_branch()
        if old != "main" and self.rng.random() < 0.7:
            name = "main"
        if name is None:
            return
        if name in self.parents:
            with pytest.raises(InvalidInputError, match="created from another branch"):
                replace_main(self.table.store, name)
            return
        saved = {each.saved_snapshot_id: self.savepoints[old, each.id] for each in list_savepoints(self.table.store)}
        tagged = {tag: self.table.store.snapshots.tag(tag).id for tag in self.table.store.snapshots.tag_names()}
        shared_id, before = self.shared_id(name), self.tags_of(name)
        start = None if name == "main" else read_branch(self.table.store, name).tag
        count = len(list_savepoints(on_branch(self.table.store, name)))
        try:
            replace_main(self.table.store, name)
        except (ConflictError, InvalidInputError):
            self.seen["refused"] += 1
            self.check()
            return
        self.table = FileTable.open(
            "db.t", self.table.store.paths.root, io=self.io, clock=self.table.store.clock, names=self.table.store.names
        )
        assert self.table.store.paths.branch == name
        for snapshot_id in self.table.store.snapshots.ids():  # of before the branch began, or all of a main that moved
            self.states.setdefault((name, snapshot_id), self.states.get((old, snapshot_id), frozenset()))
        there = self.table.store.snapshots.tag_names()
        own = {tag for tag in before if is_merge_tag(tag) or tag == start}  # main is merged into nothing, and of no one
        for tag in own - {*there}:
            del self.tags[name, tag]
        for each in list_savepoints(self.table.store):  # a number of both sides is that of the branch
            content = saved.get(each.saved_snapshot_id, frozenset())
            self.savepoints.setdefault((name, each.id), content)
            self.tags.setdefault((name, each.tag_name), content)
        for tag in there:
            self.tags.setdefault((name, tag), self.tags.get((old, tag), frozenset()))
        kept = {
            tag for tag, number in tagged.items() if number <= shared_id and (name == "main" or not is_merge_tag(tag))
        }
        assert kept - before - {start} <= {*there}, (name, shared_id, tagged, there)
        self.seen["saved over"] += len(list_savepoints(self.table.store)) > count and name != "main"
        self.forget(old)
        self.common.pop(name, None)
        self.went_back(old, shared_id, default=old)  # branches of the former main are this one's
        ends = (old, name)
        self.parents = {key: each for key, each in self.parents.items() if key not in ends and each not in ends}
        self.seen["moved back" if name == "main" else "replaced"] += 1
        self.check()

    def back(self, table: FileTable) -> None:
        """To any state of its branch, by a new commit."""
        branch, store = table.store.paths.branch, table.store
        names, ids = store.snapshots.tag_names(), store.snapshots.ids()
        if not ids or (not names and len(ids) < 2):
            return
        if names and self.rng.random() < 0.5:
            name = self.rng.choice(names)
            wanted, content = store.snapshots.tag(name), self.tags[branch, name]
        else:
            wanted = store.snapshots.read(self.rng.choice(ids))
            content = self.states[branch, wanted.id]
        restore(store, wanted)
        assert self.newest(table) == content
        self.seen["taken back"] += 1

    def roll_back(self, table: FileTable) -> None:
        """To any state of its branch, and everything behind it is removed."""
        branch, snapshots = table.store.paths.branch, table.store.snapshots
        tagged = {name: snapshots.tag(name) for name in snapshots.tag_names()}
        kept = [*tagged.values(), *(snapshots.read(each) for each in snapshots.ids())]
        if not kept:
            return
        wanted = self.rng.choice(kept)
        known = {each.id: self.tags[branch, name] for name, each in tagged.items()}
        try:
            roll_back(table.store, plan_rollback(table.store, wanted))
        except (ConflictError, InvalidInputError):
            self.seen["refused"] += 1
            self.check()
            return
        self.states = {key: each for key, each in self.states.items() if key[0] != branch or key[1] <= wanted.id}
        self.states.setdefault((branch, wanted.id), known.get(wanted.id, frozenset()))
        self.tags = {k: each for k, each in self.tags.items() if k[0] != branch or tagged[k[1]].id <= wanted.id}
        self.went_back(branch, wanted.id)
        self.common.pop(branch, None)  # it may be behind what main has of it
        self.seen["rolled back"] += 1
        self.check()

    def whole(self, table: FileTable, snapshot_id: int | None = None) -> Content:
        """Of a snapshot (None: the newest) with the rows that wait for a compaction, for a merge is one."""
        snapshots = table.store.snapshots
        wanted = snapshots.latest() if snapshot_id is None else snapshots.read(snapshot_id)
        if wanted is None:
            return frozenset()
        waits = TableScan(table.store).skips_level0 and any(
            not each.file.level for each in live_files(table.store, wanted)
        )
        if not waits:
            return self.content(table, snapshot_id=wanted.id)
        main, branch = copied(self.table), table.store.paths.branch
        compacted = main if main.store.paths.branch == branch else main.on_branch(branch)
        if wanted.id != snapshots.latest_id():
            restore(compacted.store, wanted)
        compacted.compact(full=True)
        return unique_content(compacted)

    def some_parent(self) -> FileTable:
        """Main, or another branch that can have branches."""
        others = [each.name for each in list_branches(self.table.store)] if self.nests else []
        if not others or self.rng.random() < 0.5:
            return self.table
        return self.table.on_branch(self.rng.choice(others))

    def parent_of(self, name: str) -> FileTable:
        return self.table.on_branch(self.parents[name]) if name in self.parents else self.table

    def is_refused_for_children(self, name: str, act: Callable[[], object]) -> bool:
        if name not in self.parents.values():
            return False
        with pytest.raises(InvalidInputError, match="were created from this branch"):
            act()
        self.seen["kept for branches"] += 1
        return True

    def shared_id(self, name: str) -> int:
        """The newest snapshot that main and a branch have in files; a main that moves back has all of them."""
        if name == "main":
            return 10**9
        paths = (self.table.store.paths, self.table.store.paths.with_branch(name))
        found = []
        for each in paths:
            bodies = [
                orjson.loads(body)
                for path, body in self.io.files.items()
                if path.startswith((each.snapshot(0)[:-1], each.tag("")))
            ]
            found.append({(body["id"], body["deltaManifestList"]) for body in bodies if isinstance(body, dict)})
        return max((number for number, _ in found[0] & found[1]), default=0)

    def tags_of(self, name: str) -> set[str]:
        return {tag for where, tag in self.tags if where == name}

    def went_back(self, branch: str, newest_id: int, *, default: str | None = None) -> None:
        """Its branches have nothing in common with it any more that is newer; by default others are main's."""
        main = default or self.table.store.paths.branch
        for name in [each for each in self.common if self.parents.get(each, main) == branch]:
            self.common[name] = [each for each in self.common[name] if each[0] <= newest_id]
            if not self.common[name]:
                del self.common[name]

    def some_branch(self) -> str | None:
        names = [each.name for each in list_branches(self.table.store)]
        return self.rng.choice(names) if names else None

    def has_tag(self, name: str) -> bool:
        return any(
            on_branch(self.table.store, each.store.paths.branch).snapshots.find_tag(name)
            for each in branches_of(self.table)
        )

    def forget(self, branch: str) -> None:
        for known in (self.states, self.tags, self.savepoints):
            for key in [key for key in known if key[0] == branch]:
                del known[key]  # type: ignore[arg-type]
        self.common.pop(branch, None)
        self.parents.pop(branch, None)


def branched_table(kind: str, seed: int, *, steps: int, nests: bool = False) -> BranchedTable:
    """A table after one random history."""
    versioned = BranchedTable(random.Random(f"{'nested ' * nests}{kind} {seed}"), OPTIONS[kind], nests=nests)
    for _ in range(steps):
        versioned.step()
    versioned.check(again=True)
    return versioned


def history(kind: str, seed: int, *, steps: int = 80, nests: bool = False) -> Mapping[str, int]:
    """One random history; what happened in it, and how often."""
    versioned = branched_table(kind, seed, steps=steps, nests=nests)
    while names := [each.name for each in list_branches(versioned.table.store)]:
        for name in names:
            if name not in versioned.parents.values():
                delete_branch(versioned.table.store, name)
                versioned.forget(name)
    assert used_files(versioned.table) == files_there(versioned.table)
    return versioned.seen


@pytest.mark.long
@pytest.mark.sweep
def test_branches_read_as_they_did_whatever_happens_to_others() -> None:
    """BR-05 to BR-09, BR-15, BR-16, BR-24 to BR-32, BR-49; Traps 2, 5, 14."""
    histories = [history(kind, seed) for kind in OPTIONS for seed in range(EXAMPLES)]
    seen = {name: sum(each[name] for each in histories) for name in SEEN}
    assert all(seen.values()), seen


@pytest.mark.long
@pytest.mark.sweep
def test_branches_of_branches_read_as_they_did_whatever_happens_to_others() -> None:
    """Issue 16 point 6: merged into their parents, which stay as long as they are there, or become main."""
    histories = [history(kind, seed, nests=True) for kind in ("plain", "vectors") for seed in range(EXAMPLES)]
    seen = {name: sum(each[name] for each in histories) for name in NESTED_SEEN}
    assert all(seen.values()), seen
