"""One rollback at a time, decided before it removes anything: of two at once, one is whole and the other is refused."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest

from filestore.io.memory_files import MemoryFiles
from filestore.maintenance.history_repair import repair_history
from filestore.maintenance.rollback import RollbackPlan, plan_rollback, roll_back
from filestore.maintenance.rollback_run import find_run
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.maintenance.verification import verify_files
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from filestore.tag.tags import create_tag, delete_tag, rename_tag, replace_tag
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError, UnavailableError
from tests.support.faults import Disks, FaultyFileIO, Nth
from tests.support.roots import files_there, used_files
from tests.support.tables import KEY_SCHEMA, check_metadata, content, copied, key_table, memory_catalog, reopened, rows

NOTES = "/rollback/", "/removed/"


class DiedError(BaseException):
    """A process ends, without any clean-up that works."""


class Dying:
    """Files of a process that dies before its n-th operation."""

    def __init__(self, inner: object, fail_at: int) -> None:
        self.inner, self.left = inner, fail_at

    def __getattr__(self, name: str) -> Callable[..., object]:
        operation = getattr(self.inner, name)

        def call(*arguments: object) -> object:
            self.left -= 1
            if self.left <= 0:
                raise DiedError
            return operation(*arguments)

        return call


def four_commits() -> FileTable:
    """Snapshots 1 to 4 with the keys 1 to 4."""
    table = key_table(bucket="1", **{"write-only": "true", "commit.max-retries": "2", "commit.min-retry-wait": "1 ms"})
    for key in (1, 2, 3, 4):
        table.write(rows((key, key)))
    return table


def back_to(table: FileTable, snapshot_id: int) -> RollbackPlan:
    plan = plan_rollback(table.store, table.store.snapshots.read(snapshot_id))
    roll_back(table.store, plan)
    return plan


def write_five(table: FileTable) -> object:
    return table.write(rows((5, 5)))


def tag_four(table: FileTable) -> object:
    return create_tag(table.store, "newest", snapshot_id=4)


def expire_all_but_one(table: FileTable) -> object:
    return list(expire_snapshots(table.store, Retention(min_count=1, max_count=1, age_ms=10**15, limit=99)))


def roll_back_too(table: FileTable) -> object:
    back_to(table, 2)
    table.write(rows((13, 13)))
    return table.write(rows((14, 14)))


@pytest.mark.parametrize("first", [write_five, tag_four, expire_all_but_one])
def test_a_rollback_that_is_refused_has_removed_nothing(first: Callable[[FileTable], object]) -> None:
    table = four_commits()
    plan = plan_rollback(table.store, table.store.snapshots.read(2))
    first(table)
    before = {path: body for path, body in table.store.io.files.items()}  # type: ignore[attr-defined]
    faulty = FaultyFileIO(table.store.io)
    with pytest.raises(ConflictError, match=r"during the rollback"):
        roll_back(reopened(table, faulty).store, plan)  # type: ignore[arg-type]
    assert table.store.io.files == before  # type: ignore[attr-defined]
    deleted = [line.split(" ", 1)[1] for line in faulty.log if line.startswith("delete ")]
    assert [path for path in deleted if not any(each in path for each in NOTES)] == []


@pytest.mark.sweep
@pytest.mark.parametrize("other", [write_five, tag_four, expire_all_but_one, roll_back_too])
def test_whatever_comes_while_a_rollback_is_paused_one_of_both_is_refused_whole(
    other: Callable[[FileTable], object],
) -> None:
    """The other one runs at every single operation of the rollback, to its end or to its refusal."""
    before, outcomes, disks = four_commits(), set(), Disks()
    for nth in range(1, 200):
        table, answers = copied(before), []

        def meanwhile(table: FileTable = table, answers: list[bool] = answers) -> None:
            try:
                other(table)
            except (ConflictError, InvalidInputError):
                answers.append(False)
            else:
                answers.append(True)

        io = Nth(table.store.io, 0, meanwhile)
        rolling = reopened(table, io)  # type: ignore[arg-type]
        plan = plan_rollback(rolling.store, rolling.store.snapshots.read(2))
        io.left = nth
        try:
            roll_back(rolling.store, plan)
            is_back = True
        except ConflictError:
            is_back = False
        io.left = -1
        if not answers:
            break
        outcomes.add((is_back, answers[0]))
        if not disks.is_new(table.store.io, is_back, answers[0]):
            continue
        assert {*content(table)} == _expected(other, is_back=is_back, is_other_done=answers[0])
        if other is tag_four and answers[0]:
            assert {*content(table, tag="newest")} == {1, 2, 3, 4}
        assert find_run(table.store) is None
        table.write(rows((50, 50)))
        assert content(table)[50] == 50
        check_metadata(table)
    else:
        pytest.fail("the sweep did not end")
    assert (False, True) in outcomes
    assert (False, False) not in outcomes
    assert len(outcomes) > 1


def back_to_one(table: FileTable) -> object:
    return back_to(table, 1)


def back_and_on(table: FileTable) -> object:
    """The numbers of what the expiry knows are those of other snapshots then."""
    back_to(table, 1)
    for key in (13, 14, 15, 16):
        table.write(rows((key, key)))
    return None


@pytest.mark.sweep
@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("other", [back_to_one, back_and_on])
def test_an_expiry_that_a_rollback_overtakes_calls_no_file_lost(
    other: Callable[[FileTable], object], dry_run: bool
) -> None:
    """The rollback runs at every single operation of the expiry, to its end or to its refusal."""
    before, outcomes, disks = four_commits(), set(), Disks()
    for nth in range(1, 300):
        table, answers = copied(before), []

        def meanwhile(table: FileTable = table, answers: list[bool] = answers) -> None:
            try:
                other(table)
            except (ConflictError, InvalidInputError, FileNotFoundError):  # snapshot 1 may have expired
                answers.append(False)
            else:
                answers.append(True)

        expiring = reopened(table, Nth(table.store.io, nth, meanwhile))  # type: ignore[arg-type]
        retention = Retention(min_count=1, max_count=1, age_ms=10**15, limit=99)
        list(expire_snapshots(expiring.store, retention, dry_run=dry_run))
        if not answers:
            break
        (is_back,) = answers
        outcomes.add((is_back, len(table.store.snapshots.ids())))
        if not disks.is_new(table.store.io, is_back):
            continue
        found = {1, 2, 3, 4} if not is_back else {1} if other is back_to_one else {1, 13, 14, 15, 16}
        assert {*content(table)} == found
        assert list(verify_files(table.store, progress=lambda done, total: None)) == []
        table.write(rows((50, 50)))
        assert {*content(table)} == found | {50}
        check_metadata(table)
    else:
        pytest.fail("the sweep did not end")
    assert dry_run or {is_back for is_back, _ in outcomes} == {True, False}


def _expected(other: Callable[[FileTable], object], *, is_back: bool, is_other_done: bool) -> set[int]:
    added = {write_five: {5}, roll_back_too: {13, 14}}.get(other, set()) if is_other_done else set()
    return {1, 2} | added if is_back or other is roll_back_too else {1, 2, 3, 4} | added


def kept_by_a_tag() -> FileTable:
    """Snapshot 2 has expired, and only the tag ``kept`` has it; 3 and 4 are there."""
    table = four_commits()
    create_tag(table.store, "kept", snapshot_id=2)
    list(expire_snapshots(table.store, Retention(min_count=2, max_count=2, age_ms=10**15, limit=99)))
    return table


def delete_kept(table: FileTable) -> object:
    return delete_tag(table.store, "kept")


def move_kept(table: FileTable) -> object:
    return replace_tag(table.store, "kept")


def rename_kept(table: FileTable) -> object:
    return rename_tag(table.store, "kept", "other")


@pytest.mark.sweep
@pytest.mark.parametrize("other", [delete_kept, move_kept, rename_kept])
def test_what_becomes_of_the_tag_of_its_target_stops_a_rollback_or_comes_too_late(
    other: Callable[[FileTable], object],
) -> None:
    """A rollback that was decided found no tag any more: the table took no commit, and repair could not complete it."""
    before, outcomes, disks = kept_by_a_tag(), set(), Disks()
    for nth in range(1, 200):
        table = copied(before)

        def meanwhile(table: FileTable = table) -> None:
            with suppress(ConflictError, InvalidInputError):
                other(table)

        io = Nth(table.store.io, 0, meanwhile)
        rolling = reopened(table, io)  # type: ignore[arg-type]
        plan = plan_rollback(rolling.store, table.store.snapshots.find_tag("kept"))  # type: ignore[arg-type]
        io.left = nth
        try:
            roll_back(rolling.store, plan)
            is_back = True
        except ConflictError:
            is_back = False
        if io.left > 0:
            break
        outcomes.add(is_back)
        if not disks.is_new(table.store.io, is_back):
            continue
        assert {*content(table)} == ({1, 2} if is_back else {1, 2, 3, 4})
        assert table.store.snapshots.ids() == ([2] if is_back else [3, 4])
        assert find_run(table.store) is None
        assert files_there(table) == used_files(table)
        table.write(rows((50, 50)))
        assert content(table)[50] == 50
        check_metadata(table)
    else:
        pytest.fail("the sweep did not end")
    assert outcomes == {True, False}


@pytest.mark.sweep
def test_wherever_a_rollback_to_a_tag_dies_it_is_completed_without_the_tag_or_taken_back() -> None:
    before, disks, ends = kept_by_a_tag(), Disks(), set()
    for fail_at in range(1, 300):
        table = copied(before)
        dying = Dying(table.store.io, 10**9)
        rolling = reopened(table, dying)  # type: ignore[arg-type]
        plan = plan_rollback(rolling.store, table.store.snapshots.find_tag("kept"))  # type: ignore[arg-type]
        dying.left = fail_at
        try:
            roll_back(rolling.store, plan)
        except DiedError:
            pass
        else:
            break
        if not disks.is_new(table.store.io):
            continue
        delete_tag(table.store, "kept")
        list(repair_history(table.store))
        assert find_run(table.store) is None
        assert list(repair_history(table.store)) == []
        ends.add(tuple(content(table)))
        assert files_there(table) == used_files(table)
        table.write(rows((50, 50)))
        assert content(table)[50] == 50
        check_metadata(table)
    else:
        pytest.fail("the sweep did not end")
    assert ends == {(1, 2), (1, 2, 3, 4)}


@pytest.mark.sweep
def test_wherever_a_rollback_dies_repair_completes_it_or_takes_it_back() -> None:
    """Commits meanwhile are refused or stay, and verify names the rollback."""
    before, seen_actions, disks = four_commits(), set(), Disks()
    for fail_at in range(1, 300):
        table = copied(before)
        dying = Dying(table.store.io, 10**9)
        rolling = reopened(table, dying)  # type: ignore[arg-type]
        plan = plan_rollback(rolling.store, rolling.store.snapshots.read(2))
        dying.left = fail_at
        try:
            roll_back(rolling.store, plan)
        except DiedError:
            pass
        else:
            break
        if not disks.is_new(table.store.io):
            continue
        run = find_run(table.store)
        found = [each.check for each in verify_files(table.store, progress=lambda done, total: None)]
        assert ("rollback" in found) is (run is not None)
        with_more = set()
        try:
            table.write(rows((9, 9)))
            with_more = {9}
        except ConflictError:
            assert run is not None
        actions = [each.action for each in repair_history(table.store)]
        seen_actions |= {*actions}
        seen = {*content(table)}
        assert seen in ({1, 2} | with_more, {1, 2, 3, 4} | with_more)
        assert find_run(table.store) is None
        assert list(repair_history(table.store)) == []
        back_to(table, 2)
        table.write(rows((50, 50)))
        assert content(table)[50] == 50
        assert files_there(table) >= used_files(table)
        assert not [path for path in table.store.io.files if "/rollback/" in path]  # type: ignore[attr-defined]
    else:
        pytest.fail("the sweep did not end")
    assert seen_actions >= {"complete rollback", "take back rollback"}


@pytest.mark.sweep
def dead_behind_its_removals() -> FileTable:
    """A rollback to snapshot 2 has removed 3 and 4 when it dies, and three commits have followed since."""
    before = four_commits()
    for fail_at in range(1, 300):
        table = copied(before)
        dying = Dying(table.store.io, 10**9)
        rolling = reopened(table, dying)  # type: ignore[arg-type]
        plan = plan_rollback(rolling.store, rolling.store.snapshots.read(2))
        dying.left = fail_at
        with pytest.raises(DiedError):
            roll_back(rolling.store, plan)
        if table.store.snapshots.ids() == [1, 2]:
            for key in (5, 6, 7):
                table.write(rows((key, key)))
            return table
    raise AssertionError("it ends before it has removed anything")


@pytest.mark.sweep
@pytest.mark.parametrize("way", ["repair", "again"])
def test_the_target_of_a_dead_rollback_expires_when_commits_have_followed_it(way: str) -> None:
    """Seed 1546: its completion took the claim back, and the half deleted target was a snapshot of the table again."""
    before, disks, refused = dead_behind_its_removals(), Disks(), 0
    for fail_at in count(1):
        table = copied(before)
        dying = Dying(table.store.io, 10**9)
        expiring = reopened(table, dying)  # type: ignore[arg-type]
        dying.left = fail_at
        try:
            expire_all_but_one(expiring)
        except DiedError:
            pass
        else:
            break
        if not disks.is_new(table.store.io):
            continue
        kept = {1, 2, 5, 6, 7}
        if way == "again" and table.store.snapshots.exists(2):
            try:
                back_to(table, 2)
                kept = {1, 2}
            except ConflictError:
                refused += 1
        list(repair_history(table.store))
        assert find_run(table.store) is None
        assert {*content(table)} == kept, f"died before operation {fail_at}"
        table.write(rows((8, 8)))
        expire_all_but_one(table)
        check_metadata(table)
        assert files_there(table) == used_files(table)
    assert refused or way == "repair"


@pytest.mark.sweep
def test_a_refusal_that_leaves_something_is_none() -> None:
    """Seed 3004600: a note could not be deleted, the rollback was refused, and no commit was possible any more."""
    said = set()
    for fail_at in count(1):
        table = four_commits()
        faulty = FaultyFileIO(table.store.io, fail_at)
        io = Nth(faulty, 1, lambda table=table: write_five(table), of=("replace",))  # its first note
        plan = plan_rollback(table.store, table.store.snapshots.read(2))
        with pytest.raises((ConflictError, UnavailableError)) as raised:
            roll_back(reopened(table, io).store, plan)  # type: ignore[arg-type]
        if isinstance(raised.value, ConflictError):
            assert find_run(table.store) is None
        else:
            list(repair_history(table.store))
        said.add((type(raised.value), "so the refused rollback is not undone" in str(raised.value)))
        table.write(rows((6, 6)))
        assert {1, 2, 6} <= content(reopened(table, table.store.io)).keys()
        if faulty.calls < fail_at:
            break
    assert said == {(ConflictError, False), (UnavailableError, False), (UnavailableError, True)}


@pytest.mark.sweep
def test_a_refusal_beside_a_rename_is_none_where_the_notes_moved_with_the_table() -> None:
    """Seed 3020531: the refused rollback looked for its notes under the former name."""
    said = set()
    for nth in count(1):
        catalog = memory_catalog(MemoryFiles())
        table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
        for key in (1, 2):
            table.write(rows((key, key)))
        plan = plan_rollback(table.store, table.store.snapshots.read(1))
        io = Nth(table.store.io, 1, lambda table=table: write_five(table), of=("replace",))  # its first note
        ending = Nth(io, nth, lambda catalog=catalog: catalog.rename_table("db.t", "db.u"))
        with pytest.raises((ConflictError, InvalidInputError, OutcomeUnknownError, UnavailableError)) as raised:
            roll_back(replace(table.store, io=ending), plan)
        if ending.left > 0:
            break
        renamed = catalog.table("db.u")
        if isinstance(raised.value, OutcomeUnknownError):
            list(repair_history(renamed.store))
        said.add(type(raised.value))
        renamed.write(rows((6, 6)))
        assert 6 in content(renamed)
    assert said == {OutcomeUnknownError}


def test_a_second_rollback_is_refused_while_the_first_one_may_be_alive() -> None:
    table = four_commits()
    dying = Dying(table.store.io, 10**9)
    rolling = reopened(table, dying)  # type: ignore[arg-type]
    plan = plan_rollback(rolling.store, rolling.store.snapshots.read(2))
    dying.left = 3
    with pytest.raises(DiedError):
        roll_back(rolling.store, plan)
    with pytest.raises(ConflictError, match=r"another rollback is in progress: .*fix='wait for it; .*run repair"):
        back_to(table, 2)
    assert {*content(table)} == {1, 2, 3, 4}


def test_a_commit_costs_one_look_for_a_note_of_its_parent() -> None:
    table = four_commits()
    counted = FaultyFileIO(table.store.io)
    reopened(table, counted).write(rows((5, 5)))  # type: ignore[arg-type]
    assert [line for line in counted.log if "/removed/" in line] == [
        f"exists {table.store.paths.removed_dir}/{table.store.snapshots.read(4).identity}"
    ]
