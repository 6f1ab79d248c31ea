"""Branches, tags and rollbacks as Iceberg readers see them: by the name of a ref, at once, and nothing is left over."""

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filestore.branch.branches import create_branch, delete_branch, list_branches, rename_branch
from filestore.branch.fast_forward import fast_forward
from filestore.branch.main_replacement import replace_main
from filestore.catalog.catalog import FileCatalog
from filestore.evolution.schema_change import AddColumn, DropColumn
from filestore.iceberg import history, manifests
from filestore.iceberg.metadata import Metadata
from filestore.iceberg.places import iceberg_state, metadata_directory
from filestore.io.file_io import LocalFileIO
from filestore.maintenance.orphans import find_orphans
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.table import FileTable
from filestore.tag.tags import create_tag, delete_tag, rename_tag
from filestore.types.data_types import DataType
from tests.support.faults import FaultyFileIO, Nth
from tests.support.iceberg import iceberg_rows, metadata_json, metadata_path, opened, own_rows, referenced
from tests.support.tables import expire_all_but, reopened

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
OPTIONS = {"metadata.iceberg.storage": "table-location", "bucket": "2", "metadata.iceberg.compaction.min.file-num": "3"}
VECTORS = {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"}
VECTORS |= {"metadata.iceberg.format-version": "3"}


def several_commits(*ids: int, v: str = "x") -> pa.Table:
    return pa.table({"id": list(ids), "v": [v] * len(ids)}, schema=SCHEMA)


def branched_table(directory: Path, **options: str) -> FileTable:
    given = {**OPTIONS, "bucket-key": "id", **options}
    return FileCatalog(str(directory)).create_table("db.t", SCHEMA, options=given)


def refs(table: FileTable) -> dict[str, tuple[int, str]]:
    return {name: (ref.snapshot_id, ref.snapshot_ref_type.value) for name, ref in opened(table).refs().items()}


def rows_at(table: FileTable, ref: str) -> Any:
    found = opened(table).snapshot_by_name(ref)
    assert found is not None, ref
    return iceberg_rows(table, found.snapshot_id)


def check_nothing_is_left_over(table: FileTable) -> None:
    """The directory has what the shown snapshots need, and no more."""
    metadata = metadata_json(table)
    names = {path.name for path in Path(metadata_directory(table.store)).iterdir()}
    assert names == {metadata_path(table).name, "version-hint.text", *referenced(metadata)}


def test_a_branch_is_a_ref_of_its_own_rows(tmp_path: Path) -> None:
    """Issue 20 point 1: from where it begins, at each commit of either side, with its history, until it is deleted."""
    table = branched_table(tmp_path)
    table.write(several_commits(1))
    create_branch(table.store, "dev", snapshot_id=1)
    assert refs(table) == {"main": (1, "branch"), "dev": (1, "branch"), "branch-dev": (1, "tag")}
    branch = table.on_branch("dev")
    branch.write(several_commits(7))
    table.write(several_commits(2))
    branch.write(several_commits(8))
    assert branch.store.snapshots.ids() == [1, 2, 3]
    assert table.store.snapshots.ids() == [1, 2]
    assert refs(table)["main"] == (2, "branch")
    assert [row[0] for row in iceberg_rows(table)] == [1, 2]
    head = opened(table).snapshot_by_name("dev")
    assert head is not None
    assert head.snapshot_id not in (1, 2, 3)
    assert [row[0] for row in iceberg_rows(table, head.snapshot_id)] == [1, 7, 8]
    assert head.parent_snapshot_id is not None
    assert [row[0] for row in iceberg_rows(table, head.parent_snapshot_id)] == [1, 7]
    before = opened(table).snapshot_by_id(head.parent_snapshot_id)
    assert before is not None
    assert before.parent_snapshot_id == 1
    check_nothing_is_left_over(table)
    state = iceberg_state(branch.store)
    assert state is not None
    assert (state.shown, state.newest, state.behind) == (3, 3, 0)
    delete_branch(table.store, "dev")
    assert refs(table) == {"main": (2, "branch")}
    check_nothing_is_left_over(table)


def test_tags_and_rollbacks_show_at_once(tmp_path: Path) -> None:
    """Issue 20 point 1: without a commit; after a rollback no reader is left with files that are gone."""
    table = branched_table(tmp_path)
    for number in range(4):
        table.write(several_commits(number))
    create_tag(table.store, "old", snapshot_id=2)
    rename_tag(table.store, "old", "eod")
    assert refs(table)["eod"] == (2, "tag")
    roll_back(table.store, plan_rollback(table.store, table.store.snapshots.read(3)))
    assert [each["snapshot-id"] for each in metadata_json(table)["snapshots"]] == [1, 2, 3]
    assert iceberg_rows(table) == own_rows(table)
    assert rows_at(table, "eod") == own_rows(table, tag="eod")
    check_nothing_is_left_over(table)
    delete_tag(table.store, "eod")
    assert refs(table) == {"main": (3, "branch")}


def test_a_rollback_of_a_branch_keeps_its_earlier_snapshots(tmp_path: Path) -> None:
    """Issue 20 point 1: what was taken back goes, also when the branch has gone on since; main is as it was."""
    table = branched_table(tmp_path)
    table.write(several_commits(1))
    create_branch(table.store, "dev", snapshot_id=1)
    branch = table.on_branch("dev")
    for number in (7, 8, 9):
        branch.write(several_commits(number))
    shown = [each["snapshot-id"] for each in metadata_json(table)["snapshots"]]
    roll_back(branch.store, plan_rollback(branch.store, branch.store.snapshots.read(3)))
    assert [each["snapshot-id"] for each in metadata_json(table)["snapshots"]] == [*shown[:2], 1]
    assert rows_at(table, "dev") == own_rows(branch)
    branch.write(several_commits(10))
    assert [each["snapshot-id"] for each in metadata_json(table)["snapshots"]][:2] == shown[:2]
    assert [row[0] for row in rows_at(table, "dev")] == [1, 10, 7, 8]
    check_nothing_is_left_over(table)


def test_main_may_go_back_to_before_a_branch_began(tmp_path: Path) -> None:
    """Issue 20 point 1: as other engines let it; no snapshot comes after the newest in the order of changes."""
    table = branched_table(tmp_path)
    for number in (1, 2):
        table.write(several_commits(number))
    create_branch(table.store, "dev", snapshot_id=2)
    table.on_branch("dev").write(several_commits(7))
    Path(table.store.paths.tag("branch-dev")).unlink()
    roll_back(table.store, plan_rollback(table.store, table.store.snapshots.read(1)))
    metadata = metadata_json(table)
    assert max(each["sequence-number"] for each in metadata["snapshots"]) == metadata["last-sequence-number"] == 1
    assert [row[0] for row in rows_at(table, "main")] == [1]
    assert [row[0] for row in rows_at(table, "dev")] == [1, 2, 7]
    check_nothing_is_left_over(table)


@pytest.mark.sweep
def test_manifests_that_branches_share_stay_when_their_tag_is_gone(tmp_path: Path) -> None:
    """Issue 20 point 1: another engine deletes the tag by which main keeps where they began; main and one go on."""
    table = branched_table(tmp_path, **{"metadata.iceberg.compaction.min.file-num": "100"})
    for number in (1, 2):
        table.write(several_commits(number))
    for name in ("a", "b"):
        create_branch(table.store, name, snapshot_id=2)
        table.on_branch(name).write(several_commits(7))
        Path(table.store.paths.tag(f"branch-{name}")).unlink()
    for each in (table, table.on_branch("a")):
        for _ in range(2):
            each.compact(full=True)
            each.write(several_commits(8))
        each.compact(full=True)
        expire_all_but(each, 1)
        each.write(several_commits(9))
        for name in ("main", "a", "b"):
            assert rows_at(table, name) == own_rows(table if name == "main" else table.on_branch(name))
    check_nothing_is_left_over(table)


def test_columns_of_a_branch_are_those_of_main_or_it_is_not_shown(tmp_path: Path) -> None:
    """Issue 20 point 1: readers take a branch by the ids of main's columns; one id may be of two columns."""
    catalog = FileCatalog(str(tmp_path))
    table = branched_table(tmp_path)
    table.write(several_commits(1))
    create_branch(table.store, "dev", snapshot_id=1)
    catalog.alter_table("db.t$branch_dev", [AddColumn(path=("of_dev",), type=DataType(root="STRING"))])
    catalog.table("db.t$branch_dev").write(pa.table({"id": [7], "v": ["x"], "of_dev": ["secret"]}))
    assert "dev" not in refs(table)
    assert str(iceberg_state(catalog.table("db.t$branch_dev").store)).startswith("nothing of 2, 2 behind, in ")
    catalog.alter_table("db.t", [AddColumn(path=("of_main",), type=DataType(root="STRING"))])
    table = catalog.table("db.t")
    table.write(pa.table({"id": [2], "v": ["x"], "of_main": ["m"]}))
    assert "dev" not in refs(table)
    for name, column in (("db.t", "of_main"), ("db.t$branch_dev", "of_dev")):
        catalog.alter_table(name, [DropColumn(path=(column,))])
        catalog.table(name).write(several_commits(9))
    assert [row[0] for row in rows_at(catalog.table("db.t"), "dev")] == [1, 7, 9]


def test_a_ref_has_one_name(tmp_path: Path) -> None:
    """Issue 20 point 1: a tag of main stays what its name means to readers; the branch comes when the tag is gone."""
    table = branched_table(tmp_path)
    table.write(several_commits(1))
    create_tag(table.store, "dev")
    create_branch(table.store, "dev", tag="dev")
    table.on_branch("dev").write(several_commits(7))
    assert refs(table)["dev"] == (1, "tag")
    create_branch(table.store, "empty")
    table.write(several_commits(2))
    assert "empty" not in refs(table)
    create_branch(table.store, "other", tag="dev")
    table.on_branch("other").write(several_commits(8))
    rename_branch(table.store, "other", "third")
    assert set(refs(table)) == {"main", "dev", "third"}
    assert [row[0] for row in rows_at(table, "third")] == [1, 8]
    check_nothing_is_left_over(table)
    create_tag(table.store, "third")
    assert refs(table)["third"] == (2, "tag")
    check_nothing_is_left_over(table)
    delete_tag(table.store, "third")
    assert [row[0] for row in rows_at(table, "third")] == [1, 8]


class Table:
    """A table on which a random history happens, and what its refs must show."""

    def __init__(self, directory: Path, seed: int, **options: str) -> None:
        self.catalog, self.chance, self.next = FileCatalog(str(directory)), random.Random(seed), 0
        self.keyed = "deletion-vectors.enabled" in options
        key = {"primary_key": ["id"]} if self.keyed else {}
        given = {**OPTIONS, **({} if self.keyed else {"bucket-key": "id"}), **options}
        self.catalog.create_table("db.t", SCHEMA, options=given, **key)
        self.write("main")

    def table(self, branch: str = "main") -> FileTable:
        return self.catalog.table("db.t" if branch == "main" else f"db.t$branch_{branch}")

    @property
    def branches(self) -> list[str]:
        return [each.name for each in list_branches(self.table().store)]

    def write(self, branch: str) -> None:
        ids = self.chance.sample(range(60), 8)
        kinds = pa.array([3 if self.keyed and self.chance.random() < 0.3 else 0 for _ in ids], pa.int8())
        self.next += 1
        self.table(branch).write(several_commits(*ids, v=f"v{self.next}"), kinds if self.keyed else None)

    def act(self, name: str) -> None:
        branch = self.chance.choice(["main", *self.branches])
        table = self.table(branch)
        ids = table.store.snapshots.ids()
        match name:
            case "write":
                self.write(branch)
            case "compact":
                table.compact(full=self.chance.random() < 0.5)
            case "branch" if len(self.branches) < 3 and ids:
                self.next += 1
                create_branch(table.store, f"b{self.next}", snapshot_id=self.chance.choice(ids))
            case "delete" if branch != "main" and not self._has_children(branch):
                delete_branch(self.table().store, branch)
            case "expire":
                expire_all_but(table, 2)
            case "rollback" if len(ids) > 1 and not self._is_held(branch, ids[-1]):
                roll_back(table.store, plan_rollback(table.store, table.store.snapshots.read(ids[-2])))

    def _has_children(self, branch: str) -> bool:
        return any(tag.startswith("branch-") for tag in self.table(branch).store.snapshots.tag_names())

    def _is_held(self, branch: str, snapshot_id: int) -> bool:
        tags = self.table(branch).store.snapshots
        return any(tags.tag(name).id >= snapshot_id for name in tags.tag_names())

    def check(self) -> None:
        main = self.table()
        with_rows = [each for each in self.branches if self.table(each).store.snapshots.latest_id()]
        assert {name for name, (_, kind) in refs(main).items() if kind == "branch"} == {"main", *with_rows}
        for branch in ("main", *with_rows):
            assert rows_at(main, branch) == visible_rows(self.table(branch)), branch
        metadata = Metadata(metadata_json(main))
        orders = {each["snapshot-id"]: each["sequence-number"] for each in metadata.snapshots}
        assert len(orders) == len(metadata.snapshots)
        assert max(orders.values()) == metadata.body["last-sequence-number"] == metadata.snapshot_id


def visible_rows(table: FileTable) -> Any:
    if not table.store.has_key:
        return own_rows(table)
    copy = table.with_options({"deletion-vectors.merge-on-read": "false"})
    return own_rows(copy)


ACTS = ("write", "write", "write", "compact", "branch", "delete", "expire", "rollback")


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(6))
def test_a_random_history_of_branches_is_the_same_to_readers(tmp_path: Path, seed: int) -> None:
    """Issue 20 point 1: after every act each ref has its branch's rows, and the directory nothing else."""
    case = Table(tmp_path, seed)
    for _ in range(25):
        case.act(case.chance.choice(ACTS))
        case.check()
    case.write("main")
    for branch in case.branches:
        case.write(branch)
    case.check()
    table = case.table()
    for each in metadata_json(table)["snapshots"]:
        iceberg_rows(table, each["snapshot-id"])  # no file of any of them is missing
    check_nothing_is_left_over(table)
    assert find_orphans(table.store, before_ms=10**15) == []


@pytest.mark.parametrize("step", ["fast-forward", "replace-main"])
def test_a_branch_that_becomes_main_is_what_readers_of_main_see(tmp_path: Path, step: str) -> None:
    """Issue 20 point 1: at once."""
    table = branched_table(tmp_path)
    table.write(several_commits(1))
    create_branch(table.store, "dev", snapshot_id=1)
    table.on_branch("dev").write(several_commits(7))
    if step == "fast-forward":
        fast_forward(table.store, "dev")
    else:
        table.write(several_commits(2))
        replace_main(table.store, "dev")
    now = FileCatalog(str(tmp_path)).table("db.t")
    assert [row[0] for row in own_rows(now)] == [1, 7]
    assert iceberg_rows(now) == own_rows(now)
    assert ("dev" in refs(now)) == (step == "fast-forward")
    now.write(several_commits(3))
    assert iceberg_rows(now) == own_rows(now)
    check_nothing_is_left_over(now)


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("late", ["main", "dev", "tag"])
def test_writers_of_main_and_of_a_branch_do_not_take_each_other_away(tmp_path: Path, late: str) -> None:
    """Issue 20 point 1: one is paused before each of its steps with the metadata while the other one commits."""
    table = branched_table(tmp_path)
    table.write(several_commits(0))
    create_branch(table.store, "dev", snapshot_id=1)
    table.on_branch("dev").write(several_commits(100))
    nth, done = 0, False
    while not done:
        nth += 1
        passed: list[int] = []

        def other(number: int = nth, passed: list[int] = passed) -> None:
            passed.append(number)
            (table if late == "dev" else table.on_branch("dev")).write(several_commits(1000 + number))

        io = Nth(LocalFileIO(), nth, other)
        mine = reopened(table, OnlyMetadata(io))  # type: ignore[arg-type]
        if late == "tag":
            create_tag(mine.store, f"t{nth}")
        else:
            (mine if late == "main" else mine.on_branch("dev")).write(several_commits(nth))
        done = not passed
        for branch, there in (("main", table), ("dev", table.on_branch("dev"))):
            assert rows_at(table, branch) == own_rows(there), (nth, branch)
        assert late != "tag" or f"t{nth}" in refs(table)
    assert nth > 8


@pytest.mark.parametrize("other_on", ["main", "dev"])
@pytest.mark.parametrize("mine_on", ["main", "dev"])
def test_the_hint_names_no_version_that_another_writer_has_replaced(
    tmp_path: Path, mine_on: str, other_on: str
) -> None:
    """Paused before each step with the hint, also the last look at it, behind a version that needs no change."""
    table = branched_table(tmp_path)
    table.write(several_commits(0))
    create_branch(table.store, "dev", snapshot_id=1)
    table.on_branch("dev").write(several_commits(100))
    steps = []
    for nth in count(1):
        passed: list[int] = []

        def other(number: int = nth, passed: list[int] = passed) -> None:
            passed.append(number)
            table.on_branch(other_on).write(several_commits(1000 + number))

        mine = reopened(table, BeforeHint(nth, other))  # type: ignore[arg-type]
        mine.on_branch(mine_on).write(several_commits(nth))
        for branch, there in (("main", table), ("dev", table.on_branch("dev"))):
            assert rows_at(table, branch) == own_rows(there), (nth, branch)
        steps += passed
        if not passed:
            break
    assert len(steps) > 1


class BeforeHint:
    """Files that run an action right before the n-th step with the hint: a look at it, or its replacement."""

    def __init__(self, nth: int, action: Callable[[], None]) -> None:
        self._files, self._left, self._action = LocalFileIO(), nth, action

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = getattr(self._files, name)

        def call(path: str, *more: Any) -> Any:
            if path.endswith("version-hint.text"):
                self._left -= 1
                if self._left == 0:
                    self._action()
            return operation(path, *more)

        return call


class OnlyMetadata:
    """Files of which those of the Iceberg metadata alone go through another object."""

    def __init__(self, through: Any) -> None:
        self._through = through

    def __getattr__(self, name: str) -> Callable[..., Any]:
        plain = getattr(self._through.inner, name)

        def call(path: str, *more: Any) -> Any:
            return (getattr(self._through, name) if "/metadata" in path else plain)(path, *more)

        return call


@pytest.mark.sweep
def test_a_commit_to_a_branch_costs_the_same_in_a_small_and_a_large_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 20 point 1: also the first one, which has main's manifests."""
    for module in (manifests, history):
        monkeypatch.setattr(module, "MOST_ENTRIES", 20)
    costs = []
    for buckets in (40, 200):
        table = branched_table(tmp_path / str(buckets), bucket=str(buckets))
        table.write(several_commits(*range(buckets * 8)))
        create_branch(table.store, "dev", snapshot_id=1)
        io = FaultyFileIO(LocalFileIO())
        reopened(table, io).on_branch("dev").write(several_commits(1, v="y"))  # type: ignore[arg-type]
        costs.append(sum("/metadata/" in line and ".avro" in line for line in io.log))
        assert rows_at(table, "dev") == own_rows(table.on_branch("dev"))
    assert costs[0] == costs[1] < 8
