"""``db.t$branch_b`` is the table ``db.t`` on its branch ``b``, wherever a table is named."""

import pytest

from filestore.branch.branches import create_branch
from filestore.evolution.schema_change import AddColumn
from filestore.layout.branch_log import branch_options, read_branch_log, write_branch_log
from filestore.layout.branch_names import agreed_branch, on_branch_name, split_branch
from filestore.layout.paths import TablePaths
from filestore.snapshot.change_tracking import SYNCED_KEY, UNLOGGED_KEY, off_main_log
from filestore.snapshot.snapshot import CHANGES_KEY, CommitKind, Snapshot
from filestore.types.data_types import DataType
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.faults import MemoryFileIO
from tests.support.tables import KEY_SCHEMA, content, memory_catalog, rows


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("db.t", ("db.t", None)),
        ("db.t$branch_b", ("db.t", "b")),
        ("db.t$branch_branch_b", ("db.t", "branch_b")),
        ("db.t$files", ("db.t$files", None)),
        ("db.t$branch_b$files", ("db.t$branch_b$files", None)),
    ],
)
def test_a_name_names_a_branch_or_none(name: str, parts: tuple[str, str | None]) -> None:
    assert split_branch(name) == parts


def test_what_names_a_branch_agrees() -> None:
    """BR-21, BR-40: without a branch it is main."""
    assert agreed_branch("db.t") == ("db.t", None)
    assert agreed_branch("db.t", None, "b") == agreed_branch("db.t$branch_b", "b", None) == ("db.t", "b")
    with pytest.raises(InvalidInputError, match=r"two branches are named: table=db.t\$branch_b branches=\['b', 'c'\]"):
        agreed_branch("db.t$branch_b", "c")
    assert on_branch_name("db.t$branch_b", "c") == "db.t$branch_c"
    assert on_branch_name("db.t$branch_b", "main") == "db.t"


def test_a_catalog_opens_and_alters_a_branch_by_name() -> None:
    """BR-10, BR-11, BR-13, BR-21, BR-24, BR-43: rows, schemas and names of a branch are its own."""
    catalog = memory_catalog()
    main = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"])
    main.write(rows((1, 1)))
    create_branch(main.store, "b", snapshot_id=1)
    branch = catalog.table("db.t$branch_b")
    assert (branch.name, branch.store.paths.branch) == ("db.t$branch_b", "b")
    assert catalog.table("db.t", branch="b").store.paths == branch.store.paths
    assert branch.on_branch("main").name == "db.t"
    branch.write(rows((2, 2)))
    assert content(branch) == {1: 1, 2: 2}
    assert content(catalog.table("db.t")) == {1: 1}
    assert content(branch, snapshot_id=1) == {1: 1}
    catalog.alter_table("db.t$branch_b", [AddColumn(path=("w",), type=DataType(root="INT"))])
    assert catalog.table("db.t$branch_b").schema.column_names == ("id", "v", "w")
    assert catalog.table("db.t").schema.column_names == ("id", "v")
    assert catalog.table_exists("db.t$branch_b")
    assert not catalog.table_exists("db.t$branch_c")
    with pytest.raises(InvalidInputError, match=r"no such branch: .*branch=c branches=\['main', 'b'\]"):
        catalog.table("db.t$branch_c")
    with pytest.raises(InvalidInputError, match="two branches are named"):
        catalog.table("db.t$branch_b", branch="main")


def test_a_branch_has_the_log_that_its_file_names_or_none() -> None:
    """Idea 12: the topic of a table is main's, on branches of other engines, too."""
    io, paths = MemoryFileIO(), TablePaths("/t", "b")
    stored = {"bucket": "1", "log.kafka.bootstrap.servers": "h:1", "log.kafka.topic": "db.t", "log.scan": "latest"}
    assert branch_options(io, TablePaths("/t"), stored) == stored
    assert branch_options(io, paths, stored) == {"bucket": "1", "log.system": "none"}
    assert branch_options(io, paths, {"bucket": "1"}) == {"bucket": "1"}
    write_branch_log(io, paths, {"log.kafka.topic": "db.t.b"})
    assert branch_options(io, paths, stored) == {**stored, "log.kafka.topic": "db.t.b"}
    io.replace("/t/branch/branch-b/LOG", b"[]")
    with pytest.raises(
        CorruptDataError, match=r"file of a branch's log cannot be decoded: file=/t/branch/branch-b/LOG"
    ):
        read_branch_log(io, paths)


def test_a_snapshot_of_main_stands_before_the_first_record_of_the_log_of_a_branch() -> None:
    """Idea 12: and streams find what it changed in its files."""
    snapshot = Snapshot(
        id=7, schema_id=0, base_manifest_list="b", delta_manifest_list="d", commit_user="u", commit_identifier=1,
        commit_kind=CommitKind.APPEND, time_ms=1, log_offsets={0: 41, 1: 3},
        properties={CHANGES_KEY: "log", UNLOGGED_KEY: "2", "theirs": "x"},
    )  # fmt: skip
    first = off_main_log(snapshot, bucket_count=3)
    assert first.log_offsets == {0: 0, 1: 0, 2: 0}
    assert first.properties == {CHANGES_KEY: "files", UNLOGGED_KEY: "7", SYNCED_KEY: "7", "theirs": "x"}
