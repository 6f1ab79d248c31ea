"""Tags, branches and savepoints as objects of a table: the words of commands and procedures, and what these do."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Branches, Catalog, Savepoints, Table, Tags, procedures
from engine.procedures.registry import Procedure
from lsm.errors import InvalidInputError

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])


def write_pairs(table: Table, *pairs: tuple[int, str]) -> None:
    table.write(pa.table({"id": [key for key, _ in pairs], "v": [value for _, value in pairs]}, schema=SCHEMA))


def values_by_key(table: Table, **place: str) -> dict[int, str]:
    rows = table.read(**place).to_arrow()
    return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three snapshots, of 1, 2 and 3 rows."""
    made = Catalog(str(tmp_path)).create_table("d.t", SCHEMA, primary_key=["id"])
    for number in (1, 2, 3):
        write_pairs(made, (number, f"v{number}"))
    return made


def test_tags(table: Table) -> None:
    """TAG-21, TAG-22, TAG-28 to TAG-36, TAG-02: made, found in order, compared, gone back to, deleted."""
    tags = table.tags
    assert isinstance(tags, Tags)
    assert [tags.create(name, snapshot_id=at).snapshot.id for name, at in (("one", 1), ("two", 2))] == [1, 2]
    last = tags.create("last", time_retained=timedelta(days=30))
    assert (last.snapshot.id, last.retained_ms) == (3, 30 * 86_400_000)
    assert [each.name for each in tags.list()] == ["last", "one", "two"]
    assert tags.get("two").snapshot == table.store.snapshots.read(2)
    before, after = tags.previous("two"), tags.next("two")
    assert before is not None
    assert after is not None
    assert (before.name, after.name, tags.previous("one"), tags.next("last")) == ("one", "last", None, None)
    assert tags.diff("one").to_arrow().num_rows == 2
    assert tags.diff("one", "two").to_arrow().num_rows == 1
    assert tags.rename("last", "newest").name == "newest"
    assert tags.replace("newest", snapshot_id=2).snapshot.id == 2
    planned = tags.delete("newest", dry_run=True)
    assert (tags.delete("newest"), [each.name for each in tags.list()]) == (planned, ["one", "two"])
    plan = tags.rollback("one", dry_run=True, force=True)
    assert values_by_key(table) == {1: "v1", 2: "v2", 3: "v3"}
    assert [each.reference.name for each in tags.rollback("one", force=True).removals] == [
        each.reference.name for each in plan.removals
    ]
    assert values_by_key(table) == {1: "v1"}
    with pytest.raises(InvalidInputError, match="no such tag"):
        tags.get("two")


def test_branches(table: Table) -> None:
    """BR-07, BR-08, BR-33 to BR-37: made, written, compared, merged, put in the place of main, deleted."""
    branches = table.branches
    assert isinstance(branches, Branches)
    table.tags.create("base")
    made = branches.create("dev", tag="base")
    assert (made.name, made.tag, made.snapshot_id, branches.main) == ("dev", "base", 3, "main")
    write_pairs(branches.open("dev"), (4, "dev"))
    write_pairs(table, (5, "main"))
    found = branches.diff("dev").to_arrow()
    assert sorted(found["id"].to_pylist()) == [4, 5]
    planned = branches.merge("dev", dry_run=True)
    done = branches.merge("dev")
    assert (done.bucket_count, done.file_count, done.conflict_count) == (planned.bucket_count, planned.file_count, 0)
    assert values_by_key(table) == {1: "v1", 2: "v2", 3: "v3", 4: "dev", 5: "main"}
    assert [each.name for each in branches.list()] == ["dev"]
    assert branches.rename("dev", "next").name == "next"
    branches.create("other", tag="base")
    branches.delete("other")
    write_pairs(branches.open("next"), (6, "next"))
    assert branches.replace_main("next").main == branches.main == "next"
    assert table.main_branch == "next"
    with pytest.raises(InvalidInputError, match="no such branch"):
        branches.get("other")


def test_savepoints_and_history(table: Table) -> None:
    """SP-12 to SP-16, SP-18: made, listed, compared, gone back to by a new commit, deleted."""
    savepoints = table.savepoints
    assert isinstance(savepoints, Savepoints)
    saved = savepoints.create()
    write_pairs(table, (1, "changed"))
    assert savepoints.get(saved.id) == saved
    assert [each.id for each in savepoints.list()] == [1]
    assert {*savepoints.diff(1).to_arrow()["id"].to_pylist()} == {1}
    savepoints.rollback(1)
    assert values_by_key(table) == {1: "v1", 2: "v2", 3: "v3"}
    ids = [each.id for each in table.history()]
    assert ids == sorted(ids, reverse=True)
    assert ids[0] == table.store.snapshots.latest_id()
    assert [each.id for each in table.history(2)] == ids[:2]
    assert table.history(0) == []
    with pytest.raises(InvalidInputError, match="a number of snapshots is 0 or more: limit=-1"):
        table.history(-1)
    assert repr(table.tags) == f"Tags({table.name!r})"
    planned = savepoints.delete(1, dry_run=True)
    assert savepoints.delete(1) == planned
    assert list(savepoints.list()) == []


def test_each_method_has_the_word_of_a_procedure(table: Table) -> None:
    """What a program calls is found under the same word in SQL and in the shell."""
    own = {"list", "get", "open", "main", "previous", "next", "diff"}  # which rows of system tables and reads give
    kinds: dict[type, str] = {Tags: "tag", Branches: "branch", Savepoints: "savepoint"}
    there = {name for name, each in vars(procedures).items() if isinstance(each, Procedure)}
    for kind, noun in kinds.items():
        for word in {each for each in dir(kind) if not each.startswith("_")} - own:
            spellings = {word, f"{word}_{noun}", f"{word}_{noun}s", f"{word}_{noun}es", f"{word}_to_{noun}"}
            assert spellings & there or f"{word}_branch" in there, (kind, word)


def test_a_call_is_about_the_table_that_was_opened(table: Table, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.drop_table("d.t")
    catalog.create_table("d.t", SCHEMA, primary_key=["id"])
    for call in (table.tags.list, table.branches.list, table.savepoints.list):
        with pytest.raises(InvalidInputError, match="table"):
            call()
