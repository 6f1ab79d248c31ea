"""Tags as files: what they hold, and what is left when making or deleting one dies."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import count

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.branch.branches import create_branch, list_branches
from filestore.catalog.catalog import FileCatalog
from filestore.io.file_io import FileIO
from filestore.io.memory_files import MemoryFiles
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.refs.savepoint_files import list_savepoints
from filestore.snapshot.retention import Retention
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore
from filestore.tag.neighbours import next_tag, previous_tag
from filestore.tag.savepoints import create_savepoint, delete_savepoint
from filestore.tag.tags import (
    Tag,
    create_tag,
    delete_tag,
    expire_tags,
    expired_tags,
    hold_snapshot,
    list_tags,
    read_tag,
    rename_tag,
    replace_tag,
)
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError, OutcomeUnknownError, UnavailableError
from tests.support.faults import Disks, Nth, When, paused_before
from tests.support.roots import check_orphans_go, files_there, used_files
from tests.support.tables import (
    KEY_SCHEMA,
    content,
    copied,
    expire_all_but,
    failing_at,
    key_table,
    memory_catalog,
    reopened,
    rows,
)

ALL_BUT_ONE = Retention(min_count=1, max_count=1, age_ms=0, limit=99)


def tagged_table() -> FileTable:
    """Tag ``old`` is of an expired snapshot, and has files of its own."""
    table = key_table(bucket="1", **{"num-sorted-run.compaction-trigger": "2"})
    table.write(rows((1, 1)))
    create_tag(table.store, "old")
    table.write(rows((1, 2)))
    table.compact(full=True)
    table.write(rows((2, 2)))
    list(expire_snapshots(table.store, ALL_BUT_ONE))
    return table


def test_a_tag_is_a_copy_of_its_snapshots_file() -> None:
    """TAG-23..TAG-25, TAG-47, TAG-62: made, read and listed."""
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    create_tag(table.store, "eod")
    assert table.store.io.read_bytes("/warehouse/db.db/t/tag/tag-eod") == table.store.io.read_bytes(
        table.store.paths.snapshot(1)
    )
    tag = create_tag(table.store, "week", retained_ms=90_500)
    body = orjson.loads(table.store.io.read_bytes(table.store.paths.tag("week")))
    assert body["tagTimeRetained"] == 90.5
    *moment, nanos = body["tagCreateTime"]
    made_ms = round(datetime(*moment, tzinfo=UTC).timestamp() * 1000) + nanos // 1_000_000
    assert made_ms == tag.created_ms
    assert Snapshot.from_json(orjson.dumps(body)) == table.store.snapshots.read(1)
    assert read_tag(table.store, "week") == tag
    assert [each.name for each in list_tags(table.store)] == ["eod", "week"]


@pytest.mark.parametrize(
    "parts", [[2026, 11, 20, 22, 6], [2026, 11, 20, 22, 6, 2], [2026, 11, 20, 22, 6, 2, 742196610]]
)
def test_times_are_read_as_java_writes_them(parts: list[int]) -> None:
    """Trailing zeros may be missing."""
    table = tagged_table()
    path = table.store.paths.tag("old")
    more = {"tagCreateTime": parts, "tagTimeRetained": 86400.5}
    table.store.io.replace(path, orjson.dumps({**orjson.loads(table.store.io.read_bytes(path)), **more}))
    tag = read_tag(table.store, "old")
    seconds = datetime(*parts[:6], tzinfo=UTC).timestamp()  # type: ignore[arg-type]
    assert tag.created_ms == round(seconds) * 1000 + (742 if len(parts) == 7 else 0)
    assert tag.retained_ms == 86_400_500
    table.store.io.replace(
        path, orjson.dumps({**orjson.loads(table.store.io.read_bytes(path)), "tagCreateTime": "soon"})
    )
    with pytest.raises(CorruptDataError, match=r"tag cannot be decoded: file=.*tag-old"):
        read_tag(table.store, "old")


def test_a_tag_from_which_a_branch_was_made_stays() -> None:
    """Trap 5: other engines look at the tag only when they expire main's snapshots."""
    table = tagged_table()
    there = table.store.paths.with_branch("dev")
    table.store.io.replace(there.tag("old"), table.store.io.read_bytes(table.store.paths.tag("old")))
    with pytest.raises(
        InvalidInputError, match=r"a branch was created from this tag.*branch=dev fix=delete the branch"
    ):
        delete_tag(table.store, "old")
    assert content(table, tag="old") == {1: 1}


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda store: delete_tag(store, "b"), set()),
        (lambda store: rename_tag(store, "b", "x"), {"x"}),
        (lambda store: replace_tag(store, "b", retained_ms=10**9), {"b"}),
        (lambda store: create_branch(store, "dev", tag="b"), {"b"}),
    ],
    ids=["deleted", "renamed", "moved", "branched"],
)
def test_tags_that_others_change_while_tags_expire_are_theirs(
    change: Callable[[TableStore], object], left: set[str]
) -> None:
    """soak: ``no such tag`` ended an expiry, and the tags behind it stayed."""
    table = key_table(bucket="1")
    for name in "abc":
        table.write(rows((1, ord(name))))
        create_tag(table.store, name, retained_ms=1)
    table.store.clock.sleep(1)
    with paused_before(table.store.io, "delete", lambda: change(table.store)) as io:
        gone = expire_tags(reopened(table, io).store)
    assert {*table.store.snapshots.tag_names()} == left
    assert {each.tag.name for each in gone} == {"a", "c"}


@pytest.mark.parametrize("has_origin", [True, False], ids=["ours", "Java's"])
def test_a_branch_keeps_the_tag_that_it_began_at_and_no_other_of_the_same_name(has_origin: bool) -> None:
    """versions.md M4: both sides tag a snapshot of the same number with the same name, and save it."""
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    create_tag(table.store, "start")
    create_branch(table.store, "dev", tag="start")
    if not has_origin:
        table.store.io.delete(f"{table.store.paths.with_branch('dev').branch_root}/ORIGIN")
    branch = table.on_branch("dev")
    for each in (table, branch):
        each.write(rows((2, 2)))
        create_tag(each.store, "daily", retained_ms=1)
        create_savepoint(each.store, compact=False)
    assert table.store.snapshots.tag("daily").id == branch.store.snapshots.tag("daily").id == 2
    table.store.clock.sleep(1)
    assert [tag.name for tag in expired_tags(table.store)] == ["daily"]
    replace_tag(table.store, "daily")
    delete_tag(table.store, "daily")
    delete_savepoint(table.store, 1)
    for action in (delete_tag, replace_tag):
        with pytest.raises(InvalidInputError, match=r"a branch was created from this tag.* tag=start branch=dev"):
            action(table.store, "start")
    delete_tag(branch.store, "start")  # the branch's own copy is its own, and its origin is on record by now
    with pytest.raises(InvalidInputError, match=r"tag=start branch=dev"):
        delete_tag(table.store, "start")
    assert content(branch) == {1: 1, 2: 2}


@pytest.mark.parametrize("which", ["base_manifest_list", "delta_manifest_list"])
def test_a_read_of_a_tag_that_lost_its_files_names_the_tag(which: str) -> None:
    """versions.md H2: as tags of older versions may have."""
    table = tagged_table()
    path = table.store.paths.manifest(getattr(table.store.snapshots.tag("old"), which))
    table.store.io.delete(path)
    for travel in ({"tag": "old"}, {"version": "old"}):
        with pytest.raises(CorruptDataError, match=r"a manifest is lost: table=db.t .*needed_by='tag old'"):
            table.read(**travel).to_arrow()
    delete_tag(table.store, "old")
    assert expire_all_but(table, 1) == []


def test_tags_have_an_order_and_places() -> None:
    """TAG-24, TAG-28..TAG-36 (TAG-29, TAG-30, TAG-32, TAG-33, TAG-34): what Paimon's TagManager offers."""
    table = key_table(bucket="1")
    for number, name in enumerate(("b", "c", "a"), start=1):
        table.write(rows((1, number)))
        create_tag(table.store, name, snapshot_id=number)
    assert table.store.paths.tag_dir == "/warehouse/db.db/t/tag"
    assert table.store.paths.tag("b") == "/warehouse/db.db/t/tag/tag-b"
    assert [previous_tag(table.store, name) for name in ("b", "c", "a")] == [None, "b", "c"]
    assert [next_tag(table.store, name) for name in ("b", "c", "a")] == ["c", "a", None]
    assert table.store.snapshots.tag("c") == table.store.snapshots.read(2)
    assert [each.snapshot.id for each in list_tags(table.store)] == [3, 1, 2]
    assert delete_tag(table.store, "c").tag.snapshot.id == 2
    assert table.store.snapshots.tag_names() == ["a", "b"]
    assert (previous_tag(table.store, "a"), next_tag(table.store, "b")) == ("b", "a")
    for neighbour in (previous_tag, next_tag):
        with pytest.raises(InvalidInputError, match="no such tag"):
            neighbour(table.store, "c")


@cache
def written_five_times() -> FileTable:
    table = key_table(bucket="1")
    for number in range(1, 6):
        table.write(rows((1, number)))
    return table


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from("abcdefgh")), min_size=1, unique_by=lambda each: each[1]))
def test_a_neighbour_of_a_tag_is_the_nearest_of_an_earlier_or_a_later_snapshot(tags: list[tuple[int, str]]) -> None:
    """TAG-35, TAG-36: tags of one snapshot are no neighbours of each other; by the sorted list of them all."""
    table, order = copied(written_five_times()), sorted(tags)
    for snapshot_id, name in tags:
        create_tag(table.store, name, snapshot_id=snapshot_id)
    for snapshot_id, name in tags:
        earlier = [each for number, each in order if number < snapshot_id]
        later = [each for number, each in order if number > snapshot_id]
        assert previous_tag(table.store, name) == (earlier[-1] if earlier else None)
        assert next_tag(table.store, name) == (later[0] if later else None)


def test_deleting_a_tag_spares_what_snapshots_and_its_neighbours_use() -> None:
    """TAG-48..TAG-53, step by step: candidates, earliest snapshot, deltas that streams may read, neighbours, rest.

    TAG-50: the deltas; TAG-51: only the earliest snapshot is asked when it is behind the tag.
    """
    table = key_table(bucket="1", **{"num-sorted-run.compaction-trigger": "9"})
    for number in (1, 2, 3):
        table.write(rows((number, number)))
        create_tag(table.store, f"t{number}")
    table.compact(full=True)
    table.write(rows((9, 9)))  # snapshot 5
    assert delete_tag(table.store, "t2", dry_run=True).data == ()  # earliest 1 <= 2: its files, and those of (1, 2]
    list(expire_snapshots(table.store, Retention(min_count=1, max_count=1, age_ms=0, limit=99)))
    assert table.store.snapshots.ids() == [5]  # earliest 5 > 3: only its own full set counts, beside neighbouring tags
    assert delete_tag(table.store, "t3", dry_run=True).data != ()  # file 3 is in no neighbour and in no snapshot
    assert delete_tag(table.store, "t2").data == ()  # files 1 and 2 are in t3
    gone = delete_tag(table.store, "t3")
    assert len(gone.data) == 2  # files 2 and 3; file 1 is in t1, its neighbour
    assert content(table, tag="t1") == {1: 1}
    assert files_there(table) == used_files(table)
    assert len(delete_tag(table.store, "t1").data) == 1
    assert content(table) == {1: 1, 2: 2, 3: 3, 9: 9}


FAULTS = (UnavailableError, OutcomeUnknownError, ConflictError, CorruptDataError)


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("action", ["create", "delete", "rename", "replace"])
def test_whatever_dies_a_tag_that_is_there_can_be_read(action: str, when: When) -> None:
    """Every operation fails once; what is not needed any more is found as orphans."""
    before, disks = tagged_table(), Disks()
    for fail_at in range(1, 200):
        table, again, faulty = failing_at(before, fail_at, when)
        try:
            match action:
                case "create":
                    create_tag(again.store, "new")
                case "delete":
                    delete_tag(again.store, "old")
                case "rename":
                    rename_tag(again.store, "old", "new")
                case "replace":
                    replace_tag(again.store, "old")
        except FAULTS:
            pass
        if not disks.is_new(table.store.io) and faulty.calls >= fail_at:
            continue
        expected = {1: {1: 1}, 4: {1: 2, 2: 2}}
        for tag in list_tags(table.store):
            assert content(table, tag=tag.name) == expected[tag.snapshot.id]
        if action in ("rename", "replace"):
            assert list_tags(table.store)
        assert content(table) == expected[4]
        check_orphans_go(table)
        if faulty.calls < fail_at:
            break
    else:
        pytest.fail("the sweep did not end")


# ---- in two steps


def _expire(table: FileTable) -> None:
    expire_all_but(table, 1)


class Killed(BaseException):
    """The process is dead."""


class Dying:
    """A file system whose process dies before the first exclusive creation; a dead process cleans nothing up."""

    def __init__(self, inner: FileIO) -> None:
        self.inner, self.is_dead = inner, False

    def __getattr__(self, name: str) -> object:
        self.is_dead |= name == "create_exclusive"
        if self.is_dead:
            raise Killed
        return getattr(self.inner, name)


def four_snapshots() -> FileTable:
    """The third one removes the files of those before."""
    table = key_table(bucket="1", **{"num-sorted-run.compaction-trigger": "2"})
    table.write(rows((1, 1)))
    table.write(rows((1, 2)))
    table.compact(full=True)
    table.write(rows((2, 2)))
    return table


def test_a_process_that_dies_before_the_name_leaves_no_tag_and_expiry_continues() -> None:
    """versions.md H2: it left a tag whose files an expiry deleted, and which stopped every later expiry."""
    table = four_snapshots()
    with pytest.raises(Killed):
        create_tag(replace(table.store, io=Dying(table.store.io)), "new", snapshot_id=3)
    assert list_tags(table.store) == []
    (pending,) = table.store.io.list_names(table.store.paths.tag_dir)
    assert pending.startswith(".pending-new.")
    assert expire_all_but(table, 1) == [1, 2, 3]
    check_orphans_go(table)
    assert table.store.io.list_names(table.store.paths.tag_dir) == []


def test_an_expiry_between_the_steps_spares_the_files_of_the_tag() -> None:
    table = four_snapshots()
    with paused_before(table.store.io, "create_exclusive", lambda: _expire(table)) as io:
        create_tag(replace(table.store, io=io), "new", snapshot_id=2)
    assert table.store.snapshots.ids() == [4]
    assert content(table, tag="new") == {1: 2}
    assert files_there(table) == used_files(table)


def test_a_pending_tag_without_files_stops_no_one() -> None:
    table = four_snapshots()
    body = table.store.io.read_bytes(table.store.paths.snapshot(2))
    expire_all_but(table, 2)
    table.store.io.replace(f"{table.store.paths.tag_dir}/.pending-late.1.tmp", body)
    assert expire_all_but(table, 1) == [3]
    create_tag(table.store, "late")
    assert content(table, tag="late") == content(table)


def test_a_tag_is_of_the_snapshot_that_was_asked_for_and_of_no_other_with_its_number() -> None:
    table = four_snapshots()
    other = orjson.loads(table.store.io.read_bytes(table.store.paths.snapshot(3)))

    def rewritten() -> None:
        body = orjson.dumps({**other, "uuid": "another"})
        table.store.io.replace(table.store.paths.snapshot(3), body)

    with (
        paused_before(table.store.io, "write_new", rewritten) as io,
        pytest.raises(ConflictError, match="the snapshot expired while it was tagged"),
    ):
        create_tag(replace(table.store, io=io), "new", snapshot_id=3)
    assert list_tags(table.store) == []


@pytest.mark.parametrize("change", [delete_tag, lambda store, name: rename_tag(store, name, "new")])
def test_a_tag_whose_name_goes_while_it_is_replaced_is_refused_there_or_asked_about_here(
    change: Callable[[TableStore, str], object],
) -> None:
    """Whichever wins, none hears that the name is gone while another one brings it back."""
    table = tagged_table()
    with (
        paused_before(table.store.io, "write_new", lambda: change(table.store, "old")) as io,  # its pending file
        pytest.raises(InvalidInputError, match="no such tag"),
    ):
        replace_tag(replace(table.store, io=io), "old")
    assert "old" not in {tag.name for tag in list_tags(table.store)}
    check_orphans_go(table)

    table, said = tagged_table(), []

    def gone() -> None:
        with pytest.raises(OutcomeUnknownError, match="another process replaces the tag that was") as raised:
            change(table.store, "old")
        said.append(raised.value)

    with paused_before(table.store.io, "replace", gone) as io:
        replace_tag(replace(table.store, io=io), "old")
    assert len(said) == 1
    assert content(table, tag="old") == {1: 2, 2: 2}
    delete_tag(table.store, "old")
    check_orphans_go(table)


@pytest.mark.sweep
@pytest.mark.parametrize("retained_ms", [None, 10**9])
def test_a_tag_that_is_moved_while_it_expires_stays(retained_ms: int | None) -> None:
    """Before every operation of the expiry on files, but the deletion right behind the look at what is deleted."""
    before = key_table(bucket="1")
    before.write(rows((1, 1)))
    create_tag(before.store, "short", retained_ms=1000)
    before.write(rows((1, 2)))
    before.store.clock.sleep(3600)
    went = []
    for nth in range(1, 1000):
        table, moved = copied(before), []

        def move(table: FileTable = table, moved: list[Tag] = moved) -> None:
            with suppress(InvalidInputError):  # it has gone
                moved.append(replace_tag(table.store, "short", retained_ms=retained_ms))

        io = Nth(table.store.io, nth, move)
        expire_tags(reopened(table, io).store)  # type: ignore[arg-type]
        if io.left > 0:
            break
        is_left = "short" in {tag.name for tag in list_tags(table.store)}
        assert not is_left or content(table, tag="short") == {1: 2}
        went += [nth] if moved and not is_left else []
    assert nth > 10
    assert len(went) <= 1


# ---- beside what ends the table

CHANGES: dict[str, Callable[[FileTable], object]] = {
    "create": lambda table: create_tag(table.store, "new"),
    "replace": lambda table: replace_tag(table.store, "old"),
    "rename": lambda table: rename_tag(table.store, "old", "new"),
    "delete": lambda table: delete_tag(table.store, "old"),
    "save": lambda table: create_savepoint(table.store, compact=False),
    "unsave": lambda table: delete_savepoint(table.store, 1),
}


def two_snapshots(catalog: FileCatalog) -> FileTable:
    """With a tag and a savepoint of the first one."""
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(rows((1, 1)))
    create_tag(table.store, "old")
    create_savepoint(table.store, compact=False)
    table.write(rows((2, 2)))
    return table


def names_of(table: FileTable) -> dict[str, int]:
    """Snapshots by the names of tags, with those of savepoints, and by the numbers of savepoints."""
    tags = {tag.name: tag.snapshot.id for tag in list_tags(table.store)}
    return tags | {str(each.id): each.saved_snapshot_id for each in list_savepoints(table.store)}


def made_again(catalog: FileCatalog) -> None:
    catalog.drop_table("db.t")
    catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})


@pytest.mark.parametrize("create", [create_tag, lambda store, name: hold_snapshot(store, name, 1)])
def test_a_tag_that_a_dead_process_put_into_a_table_made_again_does_not_keep_its_name(
    create: Callable[[TableStore, str], Tag],
) -> None:
    """It names a snapshot of the former table: a branch began at it."""
    disk = MemoryFiles()
    catalog = memory_catalog(disk)
    body = disk.read_bytes(two_snapshots(catalog).store.paths.tag("old"))
    made_again(catalog)
    table = catalog.table("db.t")
    table.write(rows((5, 5)))
    disk.write_new(table.store.paths.tag("old"), body)
    assert create(table.store, "old").snapshot == table.store.snapshots.read(1)
    assert table.store.snapshots.tag("old").ref == table.store.snapshots.read(1).ref


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("ending", "left"),
    [
        (lambda catalog: catalog.drop_table("db.t"), []),
        (lambda catalog: catalog.rename_table("db.t", "db.u"), ["u"]),
        (made_again, ["t"]),
    ],
    ids=["drop", "rename", "drop and create"],
)
def test_a_tag_beside_the_end_of_its_table_is_refused_or_of_unknown_outcome(
    change: str, ending: Callable[[FileCatalog], None], left: list[str]
) -> None:
    """Before every change of a file: what is refused has changed nothing, and nothing is left in another table."""
    kinds = set()
    for nth in range(1, 100):
        disk = MemoryFiles()
        catalog = memory_catalog(disk)
        table = two_snapshots(catalog)
        before, is_refused = names_of(table), False
        steps = ("write_new", "create_exclusive", "replace", "delete", "exists")
        io = Nth(disk, nth, lambda catalog=catalog: ending(catalog), of=steps)  # type: ignore[misc]
        try:
            CHANGES[change](FileTable(replace(table.store, io=io)))  # type: ignore[arg-type]
        except (InvalidInputError, ConflictError, OutcomeUnknownError) as error:
            kinds.add(type(error))
            is_refused = not isinstance(error, OutcomeUnknownError)
        if io.left > 0:
            break
        assert catalog.list_tables("db") == left
        for name in left:
            found = catalog.table(f"db.{name}")
            assert names_of(found) == {} if name == "t" else not is_refused or names_of(found) == before
            found.write(rows((5, 5)))
            assert content(found)[5] == 5
        if not left:
            two_snapshots(catalog)  # the name is free
    assert OutcomeUnknownError in kinds


def test_a_tag_that_is_created_between_the_plan_of_an_expiry_and_its_claim_keeps_its_files() -> None:
    table = four_snapshots()
    with paused_before(table.store.io, "replace", lambda: create_tag(table.store, "late", snapshot_id=2)) as io:
        expire_all_but(replace(table, store=replace(table.store, io=io)), 1)
    assert table.store.snapshots.ids() == [4]
    assert content(table, tag="late") == {1: 2}
    assert files_there(table) == used_files(table)


@pytest.mark.sweep
@pytest.mark.parametrize("is_branch_first", [True, False], ids=["branch", "tag"])
@pytest.mark.parametrize("take_away", ["delete", "rename", "move"])
def test_a_branch_has_its_tag_or_is_refused_whatever_becomes_of_the_tag_meanwhile(
    take_away: str, is_branch_first: bool
) -> None:
    """A tag was deleted behind its look for branches, and one was created from it: it could not be merged any more."""
    before, outcomes = key_table(bucket="1"), set()
    before.write(rows((1, 1)))
    create_tag(before.store, "start")
    before.write(rows((2, 2)))

    def take(table: FileTable) -> object:
        match take_away:
            case "delete":
                return delete_tag(table.store, "start")
            case "rename":
                return rename_tag(table.store, "start", "other")
        return replace_tag(table.store, "start")

    def branch(table: FileTable) -> object:
        return create_branch(table.store, "b", tag="start")

    first, second = (branch, take) if is_branch_first else (take, branch)
    for nth in count(1):
        table, done = copied(before), []

        def run(operation: Callable[[FileTable], object], table: FileTable, done: list[object] = done) -> None:
            with suppress(ConflictError, InvalidInputError):
                operation(table)
                done.append(operation)

        io = Nth(table.store.io, nth, lambda table=table, run=run: run(second, table))
        run(first, reopened(table, io))  # type: ignore[arg-type]
        if io.left > 0:
            break
        outcomes.add((branch in done, take in done))
        found = table.store.snapshots.find_tag("start")
        assert (found is not None and found.id == 1) is (take not in done)
        assert [each.name for each in list_branches(table.store)] == (["b"] if branch in done else [])
        assert content(table) == {1: 1, 2: 2}
        if branch in done:  # perhaps of the snapshot that the tag was moved to before
            assert found is not None
            assert take not in done or take_away == "move"
            assert content(table.on_branch("b")) == content(table, tag="start")
    assert (True, False) in outcomes
    assert (False, True) in outcomes or take_away == "move"
