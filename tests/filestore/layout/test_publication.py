"""Announcements of fast-forwards: where they are kept, and what a dead one means to others."""

from contextlib import suppress
from itertools import count

import pytest

from filestore.branch.branches import create_branch
from filestore.branch.fast_forward import FastForward, fast_forward
from filestore.branch.main_replacement import replace_main
from filestore.evolution.publication import publish_changes
from filestore.evolution.schema_change import AddColumn
from filestore.layout.branch_state import is_gone, is_open_main
from filestore.layout.publication import Publication, announce, end_publication, read_publication
from filestore.maintenance.verification import verify_files
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from filestore.types.data_types import parse_data_type
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError, UnavailableError
from tests.support.faults import Disks, MemoryFileIO, Nth, When
from tests.support.tables import failing_at, key_table, key_values, reopened, rows


def announced_table() -> FileTable:
    """Snapshot 1 in main; 2 and 3 in the branch ``dev``."""
    table = key_table(MemoryFileIO())
    table.write(rows((1, 10)))
    create_branch(table.store, "dev", snapshot_id=1)
    table.on_branch("dev").write(rows((2, 20)))
    table.on_branch("dev").write(rows((3, 30)))
    return table


def died(table: FileTable, *, published: bool = True) -> None:
    """As a fast-forward that dies behind its announcement, or behind its first snapshot."""
    there = table.on_branch("dev").store.snapshots.read(2)
    announce(table.store.io, table.store.paths, Publication(branch="dev", first_id=2, identity=there.identity))
    if published:
        assert table.store.snapshots.publish(there)


def added(name: str) -> AddColumn:
    return AddColumn(path=(name,), type=parse_data_type("INT"))


@pytest.mark.parametrize("main", ["main", "other"])
def test_an_announcement_is_no_seal(main: str) -> None:
    table = key_table(MemoryFileIO())
    table.write(rows((1, 10)))
    if main != "main":
        create_branch(table.store, main, snapshot_id=1)
        replace_main(table.store, main)
        table = table.on_branch(main)
    io, paths = table.store.io, table.store.paths
    first = Publication(branch="a b", first_id=7, identity="x")
    second = Publication(branch="a b", first_id=8, identity="")
    assert read_publication(io, paths) is None
    for each in (first, second):
        announce(io, paths, each)
        assert read_publication(io, paths) == each
        assert not is_gone(io, paths, schema_id=table.store.schema.id)
    with pytest.raises(ConflictError, match="another operation on the branch is in progress"):
        announce(io, paths, Publication(branch="c", first_id=7, identity="x"))
    end_publication(io, paths, "c")
    assert read_publication(io, paths) == second
    end_publication(io, paths, "a b")
    assert read_publication(io, paths) is None
    assert is_open_main(io, paths.root) is (main == "main")


def test_writers_wait_for_the_rest_of_a_branch_until_the_same_call_completes_it() -> None:
    table = announced_table()
    died(table)
    with pytest.raises(ConflictError, match=r"a fast-forward is publishing its snapshots: .*branch=dev newest=2"):
        table.write(rows((9, 90)))
    found = verify_files(table.store, progress=lambda done, of: None)
    assert any("fast-forward to=dev first=2" in each.problem for each in found)
    assert fast_forward(table.store, "dev") == FastForward(branch="dev", published=(3,))
    table.write(rows((9, 90)))
    assert key_values(table) == [(1, 10), (2, 20), (3, 30), (9, 90)]
    assert not [*verify_files(table.store, progress=lambda done, of: None)]


@pytest.mark.sweep
def test_wherever_the_repeat_of_a_dead_one_dies_too_writers_still_wait() -> None:
    """It does not announce itself: its own first snapshot is the second of the branch, which main does not have yet."""
    before = announced_table()
    before.on_branch("dev").write(rows((4, 40)))
    died(before)
    waited, disks = 0, Disks()
    for fail_at in count(1):
        table, failing, faulty = failing_at(before, fail_at, When.BEFORE)
        with suppress(UnavailableError, OutcomeUnknownError):
            fast_forward(failing.store, "dev")
        if faulty.calls < fail_at:
            break
        if not disks.is_new(table.store.io):
            continue
        try:
            table.write(rows((9, 90)))
        except ConflictError:
            waited += 1
            fast_forward(table.store, "dev")
            table.write(rows((9, 90)))
        assert key_values(table) == [(1, 10), (2, 20), (3, 30), (4, 40), (9, 90)], f"fail_at={fail_at}"
    assert waited >= 2


def test_the_first_number_decides() -> None:
    table = announced_table()
    died(table, published=False)
    table.write(rows((9, 90)))
    reopened(table, table.store.io).write(rows((8, 80)))
    with pytest.raises(ConflictError, match="main has advanced since the branch began"):
        fast_forward(table.store, "dev")
    assert key_values(table) == [(1, 10), (8, 80), (9, 90)]
    assert read_publication(table.store.io, table.store.paths) is None


def test_what_has_begun_is_not_refused_but_waits_for_what_stops_it() -> None:
    table = announced_table()
    create_tag(table.on_branch("dev").store, "mine", snapshot_id=3)
    died(table)
    create_tag(table.store, "mine", snapshot_id=1)
    with pytest.raises(OutcomeUnknownError, match=r"a part of the branch is published.*main has another tag"):
        fast_forward(table.store, "dev")
    assert read_publication(table.store.io, table.store.paths) is not None
    with pytest.raises(InvalidInputError, match="no such branch"):
        fast_forward(table.store, "other")
    table.store.io.delete(table.store.paths.tag("mine"))
    assert fast_forward(table.store, "dev").published == (3,)
    assert key_values(table) == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.parametrize("publishes", ["schema", "snapshot"])
def test_a_schema_change_waits_for_the_schemas_and_snapshots_of_a_branch(publishes: str) -> None:
    """Else the repeat of the dead fast-forward finds a number taken, and a part of the branch stays in main."""
    table = announced_table()
    there = table.on_branch("dev").store
    for name in ("own", "second"):
        publish_changes(there, lambda _, name=name: [added(name)])
    died(table, published=publishes == "snapshot")
    if publishes == "schema":  # the first of two
        table.store.schemas.create(there.schemas.read(table.store.schema.id + 1))
    before = table.store.schemas.ids()
    with pytest.raises(ConflictError, match=r"a fast-forward is publishing .* branch=dev fix="):
        publish_changes(table.store, lambda _: [added("later")])
    assert table.store.schemas.ids() == before
    fast_forward(table.store, "dev")
    after = publish_changes(table.store, lambda _: [added("later")])
    assert [field.name for field in after.fields][-3:] == ["own", "second", "later"]
    assert key_values(table) == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.sweep
def test_wherever_a_fast_forward_dies_a_schema_change_leaves_all_of_the_branch_or_nothing_in_main() -> None:
    """One snapshot with two schema versions: it is announced too."""
    before = key_table(MemoryFileIO())
    before.write(rows((1, 10)))
    create_branch(before.store, "dev", snapshot_id=1)
    for name in ("own", "second"):
        publish_changes(before.on_branch("dev").store, lambda _, name=name: [added(name)])
    before.on_branch("dev").write(rows((2, 20)))
    seen, disks = set(), Disks()
    for fail_at in count(1):
        table, failing, faulty = failing_at(before, fail_at, When.BEFORE)
        with suppress(UnavailableError, OutcomeUnknownError):
            fast_forward(failing.store, "dev")
        if faulty.calls < fail_at:
            break
        if not disks.is_new(table.store.io):
            continue
        with suppress(ConflictError):
            publish_changes(table.store, lambda _: [added("later")])
        with suppress(ConflictError):
            fast_forward(table.store, "dev")
        schema = table.store.schemas.latest()
        assert schema is not None
        found = tuple(schema.column_names[2:]), len(key_values(reopened(table, table.store.io)))
        assert found in {(("later",), 1), (("own", "second"), 2), (("own", "second", "later"), 2)}
        assert read_publication(table.store.io, table.store.paths) is None
        seen.add(found)
    assert {(("later",), 1), (("own", "second"), 2)} <= seen


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("comes", ["a commit", "a commit with the new schema"])
def test_a_refused_fast_forward_leaves_no_schema_version(comes: str) -> None:
    """A writer of main comes between the branch's schemas and its first snapshot: main keeps the columns it had.

    Unless the writer opened the table with the new ones, and so needs them.
    """
    table = announced_table()
    publish_changes(table.on_branch("dev").store, lambda _: [added("a"), added("b")])
    table.on_branch("dev").write(rows((4, 40)))
    refused = []
    for nth in count(1):
        disk = reopened(table, MemoryFileIO(dict(table.store.io.files)))  # type: ignore[attr-defined]
        writer, acted = reopened(disk, disk.store.io), []

        def act(writer: FileTable = writer, acted: list[int] = acted) -> None:
            if 2 not in writer.store.snapshots.ids():
                (writer if comes == "a commit" else reopened(writer, writer.store.io)).write(rows((9, 90)))
                acted.append(1)

        try:
            fast_forward(reopened(disk, Nth(disk.store.io, nth, act)).store, "dev")  # type: ignore[arg-type]
        except ConflictError:
            newest = disk.store.snapshots.latest()
            assert newest is not None
            assert max(disk.store.schemas.ids()) == newest.schema_id
            refused.append(newest.schema_id)
        now = reopened(disk, disk.store.io)
        assert read_publication(now.store.io, now.store.paths) is None
        assert ((9, 90) in key_values(now)) == bool(acted)
        now.write(rows((8, 80)))
        publish_changes(now.store, lambda _: [added("c")])
        if not acted:
            break
    assert {*refused} == {0, 1}
