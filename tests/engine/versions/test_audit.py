"""Write, audit, publish: main sees all of what was checked, in one commit, or nothing."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.cli.app import run_command
from engine.procedures import audit_publish, create_tag
from engine.versions.expectations import ExpectationError
from filestore.branch.branches import list_branches
from lsm.errors import ConflictError, InvalidInputError
from tests.support.streams import Query, ids, rows

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture
def main(catalog: Catalog) -> Table:
    """Rows 1 to 3 in two buckets, and a tag ``eod`` on the first two."""
    made = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "2"})
    made.write(rows([1, 2]))
    create_tag(made, "eod")
    made.write(rows([3]))
    return made


def branches(table: Table) -> list[str]:
    return [each.name for each in list_branches(table.store)]


def row_ids(table: Any) -> list[int]:
    return sorted(table.read().to_arrow()["id"].to_pylist())


@pytest.mark.sweep
def test_what_is_published_comes_in_one_commit_that_streams_read(catalog: Catalog, main: Table) -> None:
    """Idea 11, BR-15, BR-28: several writes on the branch are one snapshot of main."""
    query = Query(catalog.warehouse, main.name)
    assert ids(query.available()) == [1, 2, 3]
    with main.audit_branch("fix") as fix:
        assert (fix.branch, fix.name, fix.table.branch) == ("fix", "db.t$branch_fix", "fix")
        fix.write(rows([4]))
        fix.write(rows([5], v="y"))
        fix.compact(full=True)
        assert row_ids(main) == [1, 2, 3]
        assert row_ids(fix) == [1, 2, 3, 4, 5]
        assert [each.passed for each in fix.check(["count(*) = 5", "v = 'x'"])] == [True, False]
        before = main.store.snapshots.latest_id()
        done = fix.publish(["count(*) = 5", "id > 0", lambda table: table.branch == "fix"])
        assert done.snapshot is not None
        assert done.snapshot.id == main.store.snapshots.latest_id() == (before or 0) + 1
        assert row_ids(main) == [1, 2, 3, 4, 5]
        fix.write(rows([6]))  # one may go on, and publish again
        assert fix.publish(["count(*) = 6"]).snapshot is not None
    assert branches(main) == []
    assert ids(query.available()) == [4, 5, 6]
    assert main.store.snapshots.tag_names() == ["eod"]


def test_what_is_not_as_expected_stays_for_inspection(main: Table) -> None:
    """Idea 11: nothing is published; the branch is deleted if that is wanted, or replaced by the next run."""
    for keep, left in ((None, ["fix"]), (False, []), (True, ["fix"])):
        with pytest.raises(ExpectationError, match=r"(?s)table=db.t\$branch_fix failed=1 of=2\n  v = 'x': 1 of 4 rows"):  # noqa: PT012, SIM117
            with main.audit_branch("fix", replace=True, keep=keep) as fix:
                fix.write(rows([4], v="bad"))
                fix.publish(["v = 'x'", "count(*) > 0"])
        assert branches(main) == left
        assert row_ids(main) == [1, 2, 3]
    assert row_ids(Table(main.files.on_branch("fix"))) == [1, 2, 3, 4]
    with pytest.raises(InvalidInputError, match="branch exists already"), main.audit_branch("fix"):
        pass


def test_what_is_not_published_is_gone(main: Table) -> None:
    """Idea 11: also when the block fails; without a name each block has a branch of its own."""
    with main.audit_branch() as first, main.audit_branch() as second:
        first.write(rows([4]))
        assert row_ids(second) == [1, 2, 3]
        assert len(branches(main)) == 2
    assert branches(main) == []
    with pytest.raises(ZeroDivisionError), main.audit_branch("fix") as fix:
        fix.write(rows([1 // 0]))
    assert branches(main) == []
    with main.audit_branch("fix", keep=True):
        pass
    assert branches(main) == ["fix"]
    with pytest.raises(InvalidInputError, match="fix=use with"):
        main.audit_branch("other").write(rows([4]))


def test_a_correction_begins_at_a_tag(main: Table) -> None:
    """BR-04: a correction on top of a tag, exactly what lay before the cut."""
    with main.audit_branch("fix", tag="eod") as fix:
        assert row_ids(fix) == [1, 2]
    with main.audit_branch("fix", snapshot_id=1) as fix:
        assert row_ids(fix) == [1, 2]


@pytest.mark.sweep
def test_main_that_changed_the_same_rows_and_a_branch_that_changed_under_the_check_are_conflicts(main: Table) -> None:
    """Idea 11, BR-15: nothing is published, and the branch stays."""
    with main.audit_branch("fix") as fix:
        fix.write(rows([1], v="ours"))
        main.write(rows([1], v="theirs"))
        with pytest.raises(ConflictError, match="changed the same keys differently"):
            fix.publish()
    assert branches(main) == ["fix"]

    def writes(table: Any) -> None:
        table.write(rows([9]))

    with main.audit_branch("fix", replace=True) as fix:
        fix.write(rows([4]))
        with pytest.raises(ConflictError, match="the branch was written during the merge"):
            fix.publish([writes])
    assert 4 not in row_ids(main)
    with main.audit_branch("fix", replace=True) as fix:
        fix.write(rows([1], v="ours"))
        main.write(rows([1, 2, 7], v="theirs"))
        fix.publish(force=True)
    found = {row["id"]: row["v"] for row in main.read().to_arrow().to_pylist()}
    assert (found[1], found[2], found[7]) == ("ours", "theirs", "theirs")


def test_main_takes_writes_while_a_branch_is_checked_and_published(main: Table) -> None:
    """H3: of other keys of the same buckets; both stay."""
    with main.audit_branch("fix") as fix:
        fix.write(rows([1], v="ours"))
        fix.publish([lambda _: main.write(rows([2, 20], v="theirs")) is not None])
    found = {row["id"]: row["v"] for row in main.read().to_arrow().to_pylist()}
    assert (found[1], found[2], found[20]) == ("ours", "theirs", "theirs")


def test_a_procedure_publishes_what_is_as_expected(main: Table, capsys: pytest.CaptureFixture[str]) -> None:
    """Idea 11: CALL sys.audit_publish, fluvial audit-publish."""
    with main.audit_branch("fix", keep=True) as fix:
        fix.write(rows([4], v="bad"))
    with pytest.raises(ExpectationError, match="v = 'x': 1 of 4 rows"):
        audit_publish(main, "fix", expect="v = 'x'; count(*) > 0")
    place = ["--warehouse", str(Path(main.store.paths.root).parents[1])]
    command = ["audit-publish", "db.t", "--branch", "fix", "--expect", "v IN ('x', 'bad'); count(*) = 4"]
    assert run_command([*command, "--drop-branch", "--json", *place]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert (row["expectations"], row["snapshot_id"], row["branch_deleted"]) == (2, 3, True)
    assert row_ids(main) == [1, 2, 3, 4]
    assert branches(main) == []
