"""Pieces of a plan: each reads itself, wherever it is unpickled. The tail of a log: see test_union_read."""

import pickle

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.read.batch_read import BatchRead
from engine.read.pieces import DiffPiece, FallbackPiece, FilePiece
from engine.versions.branches import create_branch
from filestore.tag.tags import create_tag

SCHEMA = pa.schema(
    [pa.field("p", pa.int64(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("v", pa.string())]
)
READS = {
    FilePiece: {"read.metadata-columns": "_snapshot_id"},
    FallbackPiece: {"scan.fallback-branch": "dev", "read.changelog": "true"},
    DiffPiece: {"incremental-between": "first,latest", "read.changelog": "true"},
}
ROWS = {
    FilePiece: [(1, 1, "a"), (1, 2, "B"), (2, 3, "c")],
    FallbackPiece: [(1, 1, "a"), (1, 2, "B"), (2, 3, "c"), (3, 9, "z")],
    DiffPiece: [(1, 2, "B"), (1, 2, "b")],
}


def rows(*values: tuple[int, int, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, each, strict=True)) for each in values], SCHEMA)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Partitions 1 and 2 on main, 1 to 3 on the branch; the second snapshot of main changes a row of partition 1."""
    catalog = Catalog(str(tmp_path_factory.mktemp("warehouse")))
    options = {"bucket": "2"}
    table = catalog.create_table("db.t", SCHEMA, partition_by=["p"], primary_key=["p", "id"], options=options)
    table.write(rows((1, 1, "a"), (1, 2, "b"), (2, 3, "c")))
    create_tag(table.store, "first")
    create_branch(table.store, "dev", tag="first")
    catalog.table("db.t$branch_dev").write(rows((1, 1, "not read"), (3, 9, "z")))
    table.write(rows((1, 2, "B")))
    return table


def read_by_pieces(read: BatchRead, names: list[str], filter: str | None = None) -> list[pa.RecordBatch]:
    plan = read.plan(filter)
    reader, pieces = pickle.loads(pickle.dumps((plan.reader(names), plan.pieces)))
    return [batch for piece in pieces for batch in reader(piece)]


@pytest.mark.parametrize("kind", READS)
def test_pieces_read_themselves_to_the_rows_of_the_read(table: Table, kind: type) -> None:
    read = table.read(options=READS[kind])
    assert kind in {type(piece) for piece in read.plan().pieces}
    batches = read_by_pieces(read, read.schema.names)
    assert all(batch.num_rows for batch in batches)
    assert all(batch.schema.names == read.schema.names for batch in batches)
    found = pa.Table.from_batches(batches)
    assert found.equals(read.to_arrow().select(found.column_names))
    assert sorted(tuple(row.values()) for row in found.select(SCHEMA.names).to_pylist()) == ROWS[kind]


@pytest.mark.parametrize("kind", READS)
def test_columns_come_in_the_order_of_the_names_and_rows_are_counted_without_any(table: Table, kind: type) -> None:
    read = table.read(options=READS[kind])
    extra = read.schema.names[-1]
    batches = read_by_pieces(read, ["v", extra, "p"])
    assert {tuple(batch.schema.names) for batch in batches} == {("v", extra, "p")}
    assert sum(batch.num_rows for batch in read_by_pieces(read, [extra])) == len(ROWS[kind])
    if kind is not DiffPiece:  # without kinds a difference is the rows that are new
        assert sum(batch.num_rows for batch in read_by_pieces(read, [])) == len(ROWS[kind])


@pytest.mark.parametrize("kind", READS)
@pytest.mark.parametrize("filter", ["v = 'B'", "id > 2", "p = 3", "v IS NULL"])
def test_a_piece_of_a_filtered_plan_has_the_rows_that_match_and_no_others(
    table: Table, kind: type, filter: str
) -> None:
    read = table.read(options=READS[kind])
    tests = {"v = 'B'": lambda p, k, v: v == "B", "id > 2": lambda p, k, v: k > 2, "p = 3": lambda p, k, v: p == 3}
    matches = tests.get(filter, lambda p, k, v: v is None)
    found = [tuple(row.values()) for batch in read_by_pieces(read, SCHEMA.names, filter) for row in batch.to_pylist()]
    if kind is DiffPiece:
        found_kinds = read_by_pieces(read, [*SCHEMA.names, "_row_kind"], filter)
        found = [tuple(row.values())[:3] for batch in found_kinds for row in batch.to_pylist()]
    assert sorted(found) == [row for row in ROWS[kind] if matches(*row)]


def test_a_difference_without_kinds_is_the_rows_that_are_new(table: Table) -> None:
    read = table.read(options={"incremental-between": "first,latest"})
    assert [batch.to_pylist() for batch in read_by_pieces(read, SCHEMA.names)] == [[{"p": 1, "id": 2, "v": "B"}]]


def test_a_piece_says_what_else_must_be_read_than_plain_files(table: Table) -> None:
    facts = {
        kind: {
            (piece.own_split is not None, piece.is_fallback, piece.plain_files(table.files) is not None)
            for piece in table.read(options=READS[kind]).plan().pieces
        }
        for kind in READS
    }
    assert facts == {
        FilePiece: {(True, False, True)},
        FallbackPiece: {(True, False, True), (False, True, True)},
        DiffPiece: {(False, False, False)},
    }
