"""Every way to a table leads to its branches, too."""

from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog, sink
from engine.cli.app import run_command
from engine.deploy.config.job_config import load_job
from engine.procedures import create_tag, replace_main_branch
from engine.read.batch_read import BatchRead
from engine.spark.data_source import FluvialDataSource
from filestore.branch.branches import create_branch
from lsm.errors import InvalidInputError
from tests.support.streams import Query, ids, rows

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A table db.t with rows 1 and 2, and 3 on its branch b."""
    made = Catalog(str(tmp_path))
    main = made.create_table("db.t", SCHEMA, primary_key=["id"])
    main.write(rows([1, 2]))
    create_branch(main.store, "b", snapshot_id=1)
    made.table("db.t$branch_b").write(rows([3]))
    return made


def read_ids(read: BatchRead) -> list[int]:
    return sorted(read.to_arrow().column("id").to_pylist())


def by_format(catalog: Catalog, table: str, **options: str) -> list[int]:
    source = FluvialDataSource({"warehouse": catalog.warehouse, "table": table, **options})
    reader = source.reader(source.schema())
    return sorted(key for part in reader.partitions() for batch in reader.read(part) for key in batch["id"].to_pylist())


def test_a_branch_is_read_by_its_name_and_by_options(catalog: Catalog) -> None:
    """BR-11, BR-21, BR-42, BR-43."""
    main = catalog.table("db.t")
    assert read_ids(main.read()) == by_format(catalog, "db.t") == [1, 2]
    branch = catalog.table("db.t", branch="b")
    assert (branch.name, branch.branch, main.branch) == ("db.t$branch_b", "b", "main")
    assert read_ids(branch.read()) == [1, 2, 3]
    assert read_ids(catalog.table("db.t$branch_b").read()) == [1, 2, 3]
    assert read_ids(main.read(options={"scan.branch": "b"})) == [1, 2, 3]
    assert read_ids(main.read(options={"branch": "b"}, snapshot_id=1)) == [1, 2]
    assert by_format(catalog, "db.t$branch_b") == [1, 2, 3]
    assert by_format(catalog, "db.t", **{"scan.branch": "b"}) == by_format(catalog, "db.t", branch="b") == [1, 2, 3]
    assert by_format(catalog, "db.t$audit_log", **{"scan.branch": "b"}) == [1, 2, 3]
    assert read_ids(branch.read(options={"scan.branch": "b"})) == [1, 2, 3]


def test_a_branch_that_is_not_there_and_two_at_once_are_refused(catalog: Catalog) -> None:
    """BR-42, BR-43: the message names the branches that there are."""
    main, branch = catalog.table("db.t"), catalog.table("db.t$branch_b")
    for wrong in (
        lambda: catalog.table("db.t$branch_c"),
        lambda: main.read(options={"scan.branch": "c"}),
        lambda: by_format(catalog, "db.t", branch="c"),
        lambda: main.write(rows([4]), options={"branch": "c"}),
        lambda: sink(main, {"branch": "c"}),
    ):
        with pytest.raises(InvalidInputError, match=r"no such branch: .*branch=c branches=\['main', 'b'\]"):
            wrong()
    for wrong in (
        lambda: branch.read(options={"scan.branch": "main"}),
        lambda: by_format(catalog, "db.t", branch="b", **{"scan.branch": "c"}),
        lambda: by_format(catalog, "db.t$branch_b$files", branch="c"),
        lambda: branch.write(rows([4]), options={"branch": "main"}),
        lambda: sink(branch, {"branch": "main"}),
        lambda: catalog.table("db.t$branch_b", branch="c"),
    ):
        with pytest.raises(InvalidInputError, match=r"two branches are named: table=db.t"):
            wrong()
    for wrong in (catalog.drop_table, lambda name: catalog.rename_table(name, "db.u")):
        with pytest.raises(InvalidInputError, match=r"a branch is not a table of its own: .*fix='CALL sys\."):
            wrong("db.t$branch_b")


def test_a_branch_is_written_overwritten_compacted_and_tagged(catalog: Catalog) -> None:
    """BR-09, BR-13, BR-24: main does not see it."""
    main, branch = catalog.table("db.t"), catalog.table("db.t$branch_b")
    main.write(rows([4]), options={"branch": "b"})
    assert read_ids(branch.read()) == [1, 2, 3, 4]
    create_tag(branch, "before")
    branch.overwrite(rows([9]).drop(["_row_kind"]))
    branch.write(rows([9]))
    branch.compact(full=True)
    assert read_ids(branch.read()) == [9]
    assert read_ids(branch.read(tag="before")) == [1, 2, 3, 4]
    assert read_ids(branch.read(snapshot_id=2)) == [1, 2, 3]
    assert branch.store.snapshots.ids() == [1, 2, 3, 4, 5, 6]
    assert main.store.snapshots.ids() == [1]
    assert main.store.snapshots.tag_names() == ["branch-b"]
    assert read_ids(main.read()) == [1, 2]


def test_a_stream_of_a_branch_follows_that_branch(catalog: Catalog) -> None:
    """BR-12, BR-42: and the stream of main goes on undisturbed."""
    main, branch = catalog.table("db.t"), catalog.table("db.t$branch_b")
    ours = Query(catalog.warehouse, "db.t")
    theirs = [Query(catalog.warehouse, "db.t$branch_b"), Query(catalog.warehouse, "db.t", scan_branch="b")]
    theirs += [Query(catalog.warehouse, "db.t$branch_b$audit_log", with_kinds=False)]
    assert ids(ours.available()) == [1, 2]
    assert [ids(each.available()) for each in theirs] == [[1, 2, 3]] * 3
    branch.write(rows([5]))
    main.write(rows([6]))
    assert ids(ours.available()) == [6]
    assert [ids(each.available()) for each in theirs] == [[5]] * 3


def test_a_stream_of_a_branch_that_moved_into_the_table_names_that_as_a_cause(catalog: Catalog) -> None:
    """versions.md L8: it said that the table was corrupt."""
    stream = Query(catalog.warehouse, "db.t$branch_b")
    assert ids(stream.available()) == [1, 2, 3]
    replace_main_branch(catalog.table("db.t"), "b")
    catalog.table("db.t").write(rows([4]))
    assert ids(stream.available()) == [4]
    replace_main_branch(catalog.table("db.t"), "main")
    catalog.table("db.t").write(rows([5]))
    with pytest.raises(InvalidInputError, match=r"branch is gone, .* or moved into the table since it was opened"):
        stream.available()
    assert ids(Query(catalog.warehouse, "db.t").available()) == [1, 2, 3, 4, 5]


def test_a_job_file_names_a_branch_three_ways(catalog: Catalog, tmp_path: Path) -> None:
    """BR-14, BR-43."""
    text = """
name: j
warehouse: /nowhere
pipelines:
  - {name: p, source: {format: rate}, checkpoint: /c, TARGET}
"""
    for target in (
        "target: db.t$branch_b",
        "targets: [{table: db.t, branch: b}]",
        "target: db.t, options: {branch: b}",
        "targets: [{table: db.t$branch_b, branch: b, options: {branch: b}}]",
    ):
        (tmp_path / "job.yaml").write_text(text.replace("TARGET", target))
        [output] = load_job(tmp_path / "job.yaml", environment={}).pipelines[0].outputs
        assert (output.table, output.branch, dict(output.options)) == ("db.t$branch_b", None, {})
    for target, words in (
        ("targets: [{table: db.t$branch_b, branch: c}]", "two branches are named"),
        ("targets: [{table: db.t, branch: b}, db.t$branch_b]", "a table is a target twice"),
    ):
        (tmp_path / "job.yaml").write_text(text.replace("TARGET", target))
        with pytest.raises(InvalidInputError, match=words):
            load_job(tmp_path / "job.yaml", environment={})


def test_commands_take_a_branch(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    """BR-09, BR-43."""
    place = ["--warehouse", catalog.warehouse]
    assert run_command(["read", "db.t$branch_b", "--columns", "id", "--format", "csv", *place]) == 0
    assert capsys.readouterr().out.split() == ['"id"', "1", "2", "3"]
    assert run_command(["create-tag", "db.t$branch_b", "--tag", "ours", *place]) == 0
    assert run_command(["describe", "db.t$branch_b", *place]) == 0
    assert "db.t$branch_b" in capsys.readouterr().out
    assert catalog.table("db.t$branch_b").store.snapshots.tag_names() == ["branch-b", "ours"]
