"""Cuts as tags: all or none, whatever dies; and going back to them."""

from collections.abc import Iterator

import pytest

from engine.cuts.tags import CutRecord, find_incomplete_cut, plan_cut_rollback, read_cut, tag_cut
from filestore.catalog.catalog import FileCatalog
from filestore.maintenance.rewriting import restore
from filestore.table import FileTable
from filestore.table_store import TableStore
from filestore.tag.tags import create_tag
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError, UnavailableError
from tests.support.faults import CountedNames, FaultyFileIO, ManualClock, MemoryFileIO, When
from tests.support.tables import KEY_SCHEMA, content, rows

FAULTS = (UnavailableError, OutcomeUnknownError, ConflictError)
RECORD = CutRecord(id="c1", tables={"db.a": 1, "db.b": 2}, batches={"q": 7})


def two_tables(io: MemoryFileIO) -> dict[str, FileTable]:
    """The cut is behind row 1; row 2 came later."""
    catalog = FileCatalog("/warehouse", io=io, clock=ManualClock(), names=CountedNames())
    made = {
        name: catalog.create_table(name, KEY_SCHEMA, primary_key=("id",), options={"bucket": "1"})
        for name in ("db.a", "db.b")
    }
    made["db.b"].write(rows((1, 0)))
    for value in (1, 2):
        for table in made.values():
            table.write(rows((value, value)))
    return made


def through(tables: dict[str, FileTable], io: MemoryFileIO | FaultyFileIO) -> dict[str, FileTable]:
    return {
        name: FileTable.open(name, each.store.paths.root, io=io, clock=each.store.clock, names=each.store.names)  # type: ignore[arg-type]
        for name, each in tables.items()
    }


def stores(tables: dict[str, FileTable]) -> dict[str, TableStore]:
    return {name: each.store for name, each in tables.items()}


def tags_of(tables: dict[str, FileTable]) -> list[str]:
    return [name for name, each in tables.items() if "cut" in each.store.snapshots.tag_names()]


def test_every_tag_knows_the_whole_cut() -> None:
    """Issue 6 item 6: the tags read as those of their snapshots, by us and by engines that skip the rest."""
    tables = two_tables(MemoryFileIO())
    tag_cut(stores(tables), "cut", RECORD, retained_ms=5000)
    for name, each in tables.items():
        assert read_cut(each.store, "cut") == RECORD
        assert each.store.snapshots.tag("cut") == each.store.snapshots.read(RECORD.tables[name])
    with pytest.raises(InvalidInputError, match=r"the consistent tag already exists: tag=cut tables=db.a,db.b"):
        find_incomplete_cut(stores(tables), "cut")
    create_tag(tables["db.a"].store, "eod")
    with pytest.raises(InvalidInputError, match="the tag is not a consistent tag of several tables"):
        find_incomplete_cut(stores(tables), "eod")
    with pytest.raises(InvalidInputError, match="a tag name cannot be a number"):
        find_incomplete_cut(stores(tables), "7")


def test_a_cut_that_was_begun_is_completed_as_it_was() -> None:
    tables = two_tables(MemoryFileIO())
    tag_cut({"db.a": tables["db.a"].store}, "cut", RECORD)
    assert find_incomplete_cut(stores(tables), "cut") == RECORD
    with pytest.raises(InvalidInputError, match="a tag of another cut already exists"):
        find_incomplete_cut({"db.a": tables["db.a"].store}, "cut")
    with pytest.raises(InvalidInputError, match=r"no such tag: table=db\.b tag=cut"):
        plan_cut_rollback(stores(tables), "cut")
    for number in range(30):
        create_tag(tables["db.b"].store, f"daily-{number}")
    with pytest.raises(InvalidInputError, match=r"tag=cut nearest_tags=\['daily-.*\] count=30$"):
        plan_cut_rollback(stores(tables), "cut")
    tag_cut(stores(tables), "cut", RECORD)
    assert tags_of(tables) == ["db.a", "db.b"]


def test_a_tag_that_cannot_be_made_takes_the_others_back() -> None:
    """Issue 6 item 6: all or nothing. A snapshot that expires at this moment is one cause."""
    tables = two_tables(MemoryFileIO())
    tables["db.b"].store.snapshots.claim_up_to(3)
    with pytest.raises(ConflictError, match="the snapshot expired while it was tagged"):
        tag_cut(stores(tables), "cut", RECORD)
    assert tags_of(tables) == []


def sweep(
    names: dict[str, FileTable], before: MemoryFileIO, when: When
) -> Iterator[tuple[dict[str, FileTable], dict[str, FileTable]]]:
    """For each operation in turn: copies of the tables, and the same ones on a disk where it fails; then once more."""
    for fail_at in range(1, 200):
        io = MemoryFileIO(before.files)
        faulty = FaultyFileIO(io, when=when)
        tables, again = through(names, io), through(names, faulty)
        faulty.calls, faulty.fail_at = 0, fail_at
        yield tables, again
        if faulty.calls < fail_at:
            return
    pytest.fail("the sweep did not end")


@pytest.mark.parametrize("when", list(When))
def test_whatever_dies_the_cut_can_be_completed_or_is_not_there(when: When) -> None:
    """Every operation fails once; then it is done again."""
    before = MemoryFileIO()
    names = two_tables(before)
    for tables, again in sweep(names, before, when):
        try:
            tag_cut(stores(again), "cut", RECORD)
        except FAULTS:
            assert len(tags_of(tables)) < 2 or when is not When.BEFORE
        if tags_of(tables) != ["db.a", "db.b"]:
            assert find_incomplete_cut(stores(tables), "cut") in (None, RECORD)
            tag_cut(stores(tables), "cut", RECORD)
        assert [read_cut(each.store, "cut") for each in tables.values()] == [RECORD, RECORD]


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_whatever_dies_going_back_can_be_done_again(when: When) -> None:
    """Issue 6 item 6: tables that went back stay as they are, and each writes its rows once."""
    before = MemoryFileIO()
    names = two_tables(before)
    tag_cut(stores(names), "cut", RECORD)

    def go_back(tables: dict[str, FileTable]) -> None:
        for plan in plan_cut_rollback(stores(tables), "cut"):
            if plan.partitions:
                restore(tables[plan.name].store, plan.wanted)

    for tables, again in sweep(names, before, when):
        try:
            go_back(again)
        except FAULTS:
            go_back(tables)
        assert [content(each) for each in tables.values()] == [{1: 1}, {1: 1}]
        assert [each.store.snapshots.latest_id() for each in tables.values()] == [3, 4]
        assert all(not plan.partitions for plan in plan_cut_rollback(stores(tables), "cut"))
