"""Tables whose schema grows with what is written: faults, races, costs, and frames of Spark."""

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.write.batch_part import write_part
from engine.write.batch_writer import BatchWriter
from engine.write.schema_evolution import cast_rows, evolve_schema, fields_of_rows
from filestore.catalog.catalog import FileCatalog
from filestore.evolution.schema_change import ChangeComment, DropColumn, RenameColumn
from filestore.evolution.schema_merge import MergeRules
from filestore.io.file_io import LocalFileIO
from filestore.table import FileTable
from filestore.types.data_types import parse_data_type
from lsm.errors import FluvialError, InvalidInputError
from tests.support.faults import CountedNames, FaultyFileIO, ManualClock, MemoryFileIO, When, fail_points
from tests.support.rows import row_dicts

ON = {"write.merge-schema": "true"}
RULES = MergeRules(widens=True)
NAMES = CountedNames()
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("p", pa.struct([("x", pa.int32())]))])
OLD = pa.table({"id": [1], "n": pa.array([1], pa.int32()), "p": [{"x": 1}]}, schema=SCHEMA)
NEW = pa.table({"id": [2], "n": [2**40], "p": [{"x": 2, "y": "q"}], "more": ["m"]})
BOTH = [
    {"id": 1, "n": 1, "p": {"x": 1, "y": None}, "more": None},
    {"id": 2, "n": 2**40, "p": {"x": 2, "y": "q"}, "more": "m"},
]


def evolving_table(io: Any, root: str = "/warehouse", **options: str) -> FileTable:
    catalog = FileCatalog(root, io=io, clock=ManualClock(), names=NAMES)
    if not catalog.table_exists("db.t"):
        catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1", **options})
    return catalog.table("db.t")


def write_batch(io: Any, batch: int, rows: pa.Table, *, root: str = "/warehouse") -> None:
    """One micro-batch of a query, in a process of its own."""
    store = evolving_table(io, root)
    store = evolve_schema(store, fields_of_rows(rows.schema, store.schema), RULES)
    writer = BatchWriter(store, None, commit_user="query")
    writer.write(batch, lambda spec: write_part(spec, cast_rows(rows.to_batches(), store.schema, RULES)))


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("when", When)
def test_a_batch_that_dies_anywhere_is_replayed_into_one_new_version(when: When) -> None:
    """FL-86: the schema is changed first, so what is left of a crash is a column that is null."""

    def run(fail_at: int) -> FaultyFileIO:
        disk = MemoryFileIO()
        write_batch(disk, 0, OLD)
        io = FaultyFileIO(disk, fail_at=fail_at, when=when)
        try:
            write_batch(io, 1, NEW)
        except FluvialError:
            there = evolving_table(disk)  # readers meanwhile: the old rows, in the old schema or in the new one
            assert [row["id"] for row in row_dicts(there, "id")] in ([1], [1, 2])
            assert there.schema.id in (0, 1)
            write_batch(disk, 1, NEW)
        table = evolving_table(disk)
        assert row_dicts(table, "id") == BOTH
        assert table.store.schemas.ids() == [0, 1]
        assert [
            each.commit_identifier for each in map(table.store.snapshots.find, table.store.snapshots.ids()) if each
        ] == [0, 1]
        return io

    clean = run(0)
    for fail_at in fail_points(clean, When.BEFORE if when is When.UNSURE else when):
        run(fail_at)


def test_rows_that_fit_cost_no_file_operation() -> None:
    """The check of a micro-batch is made in memory; the first one that brings a column reads and writes the schema."""

    def operations(rules: MergeRules | None, rows: pa.Table) -> Sequence[str]:
        disk = MemoryFileIO()
        write_batch(disk, 0, OLD)
        io = FaultyFileIO(disk)
        store = evolving_table(io)
        before = io.calls
        store = evolve_schema(store, fields_of_rows(rows.schema, store.schema), rules)
        assert io.calls == before or rows is NEW
        BatchWriter(store, None, commit_user="q").write(1, lambda spec: write_part(spec, rows.to_batches()))
        return [line.split(" ")[0] for line in io.log[before:]]

    assert operations(RULES, OLD) == operations(None, OLD)
    more = len(operations(RULES, NEW)) - len(operations(None, OLD))
    assert more <= 11, more  # one looks for a fast-forward that is being published


@pytest.mark.sweep
def test_two_writers_that_bring_columns_at_once_both_get_them(tmp_path: Any) -> None:
    """A compare and swap: who loses decides again on what the other one made."""

    class Slow(LocalFileIO):
        """Everybody has read the schema before anybody publishes one."""

        def __init__(self, barrier: threading.Barrier) -> None:
            super().__init__()
            self.barrier: threading.Barrier | None = barrier

        def create_exclusive(self, path: str, body: bytes) -> bool:
            barrier, self.barrier = self.barrier, None
            if barrier is not None and "/schema/" in path:
                barrier.wait(30)
            return super().create_exclusive(path, body)

    count = 4
    barrier = threading.Barrier(count)
    Catalog(str(tmp_path)).create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    tables = [Table(FileCatalog(str(tmp_path), io=Slow(barrier)).table("db.t")) for _ in range(count)]
    failures: list[FluvialError] = []

    def write(number: int) -> None:
        try:
            rows = pa.table({"id": [number], "shared": ["s"], f"own{number}": [number]})
            tables[number].write(rows, options=ON)
        except FluvialError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    table = Catalog(str(tmp_path)).table("db.t")
    assert sorted(table.schema.column_names) == sorted(["id", "n", "p", "shared", *(f"own{n}" for n in range(count))])
    assert len({field.id for field in table.schema.fields}) == len(table.schema.fields)
    assert table.store.schemas.ids() == list(range(count + 1))
    assert [(row["id"], row["shared"], row[f"own{row['id']}"]) for row in row_dicts(table, "id")] == [
        (number, "s", number) for number in range(count)
    ]


def local(tmp_path: Any, **options: str) -> Table:
    catalog = Catalog(str(tmp_path))
    return catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1", **options})


def test_a_table_may_grow_by_its_own_option(tmp_path: Any) -> None:
    table = local(tmp_path, **ON, **{"write.merge-schema.type-widening": "true"})
    table.write(OLD)
    table.write(NEW)
    assert row_dicts(table, "id") == row_dicts(Catalog(str(tmp_path)).table("db.t")) == BOTH
    assert table.latest_snapshot().schema_id == 1  # type: ignore[union-attr]
    with pytest.raises(InvalidInputError, match=r"no such column: column=other .*write.merge-schema=true"):
        table.write(pa.table({"id": [3], "other": [1]}), options={"write.merge-schema": "false"})


def test_without_the_option_nothing_is_left_out_in_silence(tmp_path: Any) -> None:
    """Arrow's own cast drops fields of structs that are not wanted."""
    table = local(tmp_path)
    with pytest.raises(InvalidInputError, match=r"no such field: column=p field=y .*write.merge-schema=true"):
        table.write(NEW.select(["id", "p"]))
    assert table.latest_snapshot() is None


def test_values_are_cast_where_that_is_allowed(tmp_path: Any) -> None:
    table = local(tmp_path)
    table.write(OLD)
    options = {**ON, "write.explicit-cast": "true"}
    table.write(pa.table({"id": [2], "n": ["two"], "p": [{"x": 2.5}]}), options=options)
    table.write(pa.table({"id": [3], "n": [3], "p": [{"x": 3}]}), options=options)
    assert [(row["n"], row["p"]["x"]) for row in row_dicts(table, "id")] == [("1", 1.0), ("two", 2.5), ("3", 3.0)]
    with pytest.raises(InvalidInputError, match=r"type of a key.* column=id .*asked_by=write.merge-schema=true"):
        table.write(pa.table({"id": ["x"]}), options=options)
    with pytest.raises(InvalidInputError, match=r"column=n type=STRING given=DOUBLE .*explicit-cast=true"):
        table.write(pa.table({"id": [4], "n": [4.0]}), options=ON)


def test_what_others_renamed_or_dropped_is_not_made_anew(tmp_path: Any) -> None:
    table = local(tmp_path)
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [RenameColumn(("n",), "number"), ChangeComment(("p",), "a point")])
    with pytest.raises(
        InvalidInputError, match=r"column=n reason='its name is number now' schema=1 known_schema=0 fix="
    ):
        table.write(NEW, options=ON)
    catalog.alter_table("db.t", [DropColumn(("number",))])
    with pytest.raises(InvalidInputError, match=r"column=n reason='it was dropped' schema=2"):
        table.write(NEW, options=ON)
    table.write(OLD, options=ON)  # it goes on with the columns that it knows
    assert row_dicts(catalog.table("db.t")) == [{"id": 1, "p": {"x": 1}}]


def test_a_new_column_needs_a_type(tmp_path: Any) -> None:
    with pytest.raises(InvalidInputError, match="a new column has no type: column=nothing"):
        local(tmp_path).write(pa.table({"id": [1], "nothing": pa.nulls(1)}), options=ON)
    assert parse_data_type("INT") == Catalog(str(tmp_path)).table("db.t").schema.field("n").type
