"""Copies of a table for other readers: equal to the table at each step, and never half visible.

Oracles: the library of Delta Lake (deltalake), and pyarrow's own reader of Parquet directories.
"""

import datetime
import decimal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from filestore.branch.branches import create_branch
from filestore.evolution.schema_change import AddColumn, DropColumn, RenameColumn, SchemaChange, SetOption
from filestore.export import parts
from filestore.export.delta import export_delta
from filestore.export.delta_log import read_log
from filestore.export.iceberg import export_iceberg
from filestore.export.parquet import export_parquet
from filestore.export.parts import open_state
from filestore.export.result import Exported, ExportPlace
from filestore.io.file_io import FileIO, LocalFileIO
from filestore.read.split_read import read_split
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from filestore.types.data_types import parse_data_type
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError, UnavailableError
from tests.support.faults import ManualClock, MemoryFileIO
from tests.support.tables import expire_all_but, key_table, memory_catalog, rows

DAY_MS = 86_400_000
Export = Callable[..., Exported]
FORMATS = pytest.mark.parametrize(
    "export", [export_delta, export_parquet, export_iceberg], ids=["delta", "parquet", "iceberg"]
)


def place_of(root: Path, io: FileIO | None = None, **more: Any) -> ExportPlace:
    given = {"clock": ManualClock(), "retain_ms": DAY_MS, **more}
    return ExportPlace(io=io or LocalFileIO(), root=str(root), **given)


def exported(export: Export, table: FileTable, place: ExportPlace, version: str = "latest") -> Exported:
    return export(open_state(table, version), place, lambda done, of: None)


def sorted_table(found: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def iceberg_copy(root: Path) -> StaticTable:
    version = (root / "metadata" / "version-hint.text").read_text()
    return StaticTable.from_metadata(str(root / "metadata" / f"v{version}.metadata.json"))


def copied(export: Export, root: Path) -> pa.Table | None:
    """What the other library reads; None: there is no copy."""
    if export is export_delta:
        return pa.table(DeltaTable(str(root)).to_pyarrow_table()) if DeltaTable.is_deltatable(str(root)) else None
    if export is export_iceberg:
        return iceberg_copy(root).scan().to_arrow() if (root / "metadata" / "version-hint.text").exists() else None
    return ds.dataset(str((root / "current").resolve())).to_table() if (root / "current").exists() else None


def check(export: Export, root: Path, table: FileTable, version: str = "latest") -> None:
    wanted, found = open_state(table, version).to_arrow(), copied(export, root)
    assert found is not None
    assert found.schema.names == wanted.schema.names
    assert sorted_table(found) == sorted_table(wanted)


def steps_of_a_key(table: FileTable) -> Iterator[FileTable]:
    """The table after each change, as opened then."""
    opened = lambda: table.on_branch("main")  # noqa: E731
    table.write(rows((1, 10), (2, 20), (3, 30)))
    yield opened()
    table.write(rows((2, 21), (4, 40)))
    yield opened()
    table.write(rows((1, None), (3, 30)), pa.array(["+U", "-D"]))
    yield opened()
    table.compact(full=True)
    yield opened()
    table.write(rows((9, 90)))
    yield opened()
    table.overwrite(rows((5, 50)))
    yield opened()
    table.overwrite(rows())
    yield opened()
    table.write(rows((6, 60)))
    yield opened()


@pytest.mark.sweep
@pytest.mark.sampled(2)
@FORMATS
@pytest.mark.parametrize(
    "options",
    [
        {"bucket": "1"},
        {"bucket": "3"},
        {"bucket": "2", "deletion-vectors.enabled": "true"},
        {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    ],
    ids=["one bucket", "buckets", "deletion vectors", "sums"],
)
def test_the_copy_is_the_table_after_every_step(export: Export, options: dict[str, str], tmp_path: Path) -> None:
    """Deletions, compaction and overwriting included; an export without a change changes nothing."""
    if "aggregation" in options.values():
        options = {**options, "aggregation.remove-record-on-delete": "true"}
    table, place = key_table(**options), place_of(tmp_path / "copy")
    exported(export, table, place)
    check(export, tmp_path / "copy", table)
    for now in steps_of_a_key(table):
        exported(export, now, place)
        check(export, tmp_path / "copy", now)
        names = sorted(str(each) for each in (tmp_path / "copy").rglob("*"))
        again = exported(export, now, place)
        assert (again.written, again.removed) == (0, 0)
        assert sorted(str(each) for each in (tmp_path / "copy").rglob("*")) == names
    for version in ("2", "1", "4"):  # back and forth
        exported(export, table, place, version)
        check(export, tmp_path / "copy", table, version)


@FORMATS
def test_only_what_changed_is_written(export: Export, tmp_path: Path) -> None:
    """A bucket, a partition, the newest files of a table without a key; a dry run says so and does nothing."""
    columns = pa.schema([("day", pa.int32()), ("v", pa.int64())])
    table = memory_catalog().create_table("db.t", columns, partition_by=["day"], options={"bucket": "-1"})
    for day in range(5):
        table.write(pa.table({"day": [day] * 3, "v": [1, 2, 3]}, schema=columns))
    place = place_of(tmp_path / "copy")
    assert exported(export, table, place).written == 5
    table.write(pa.table({"day": [7], "v": [1]}, schema=columns))
    before = sorted((tmp_path / "copy").rglob("*"))
    dry = exported(export, table, place_of(tmp_path / "copy", dry_run=True))
    assert sorted((tmp_path / "copy").rglob("*")) == before
    done = exported(export, table, place)
    assert (done.written, done.kept, done.removed, done.rows) == (1, 5, 0, 16)
    assert (dry.written, dry.kept, dry.removed, dry.rows) == (1, 5, 0, None)
    check(export, tmp_path / "copy", table)
    table.overwrite(columns.empty_table(), partition={"day": 3})
    done = exported(export, table, place)
    assert (done.written, done.kept, done.removed) == (0, 5, 1)
    check(export, tmp_path / "copy", table)


@pytest.mark.sweep
@FORMATS
def test_branches_tags_and_columns(export: Export, tmp_path: Path) -> None:
    catalog, place = memory_catalog(), place_of(tmp_path / "copy")
    table = catalog.create_table("db.t", rows().schema, primary_key=["id"], options={"bucket": "1"})
    table.write(rows((1, 10)))
    create_branch(table.store, "dev", snapshot_id=1)
    table.on_branch("dev").write(rows((7, 70)))
    table.write(rows((2, 20)))
    for version in ("dev.latest", "dev.2", "2", "1"):
        exported(export, table, place, version)
        check(export, tmp_path / "copy", table, version)
    with pytest.raises(InvalidInputError, match="no such version"):
        exported(export, table, place, "missing")
    create_tag(table.store, "eod", snapshot_id=2)
    changes: list[list[SchemaChange]] = [
        [AddColumn(path=("w",), type=parse_data_type("TIMESTAMP(3)"))],
        [RenameColumn(("v",), "x")],
        [DropColumn(("x",))],
    ]
    for change in changes:
        catalog.alter_table("db.t", change)
        table = catalog.table("db.t")
        table.write(pa.table({name: [len(name) if name != "w" else None] for name in table.schema.column_names}))
        for version in ("latest", "eod", "latest"):
            exported(export, table, place, version)
            check(export, tmp_path / "copy", table, version)


@FORMATS
def test_an_option_that_gives_the_same_files_other_rows(export: Export, tmp_path: Path) -> None:
    catalog, place = memory_catalog(), place_of(tmp_path / "copy")
    options = {"bucket": "8", "write-only": "true"}
    table = catalog.create_table("db.t", rows().schema, primary_key=["id"], options=options)
    table.write(rows((1, 20)))
    table.write(rows((1, 10)))
    exported(export, table, place)
    catalog.alter_table("db.t", [SetOption("sequence.field", "v")])
    table = catalog.table("db.t")
    table.write(rows((2, 0)))
    assert table.read().to_arrow(filter="id = 1")["v"].to_pylist() == [20]
    exported(export, table, place)
    check(export, tmp_path / "copy", table)


@FORMATS
def test_columns_of_every_type_the_format_has(export: Export, tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 1, 31, 12, 30, 0, 123000)
    nested = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
    found = {
        "i8": (pa.int8(), 1),
        "i16": (pa.int16(), 2),
        "i32": (pa.int32(), 3),
        "f4": (pa.float32(), 0.5),
        "f8": (pa.float64(), 0.25),
        "flag": (pa.bool_(), True),
        "day": (pa.date32(), moment.date()),
        "text": (pa.string(), "ü"),
        "raw": (pa.binary(), b"\0\1"),
        "money": (pa.decimal128(20, 3), decimal.Decimal("12.345")),
        "at": (pa.timestamp("ms"), moment),
        "then": (pa.timestamp("us", "UTC"), moment.replace(tzinfo=datetime.UTC)),
        "nest": (nested, {"a": 1, "b": ["x", None]}),
        "tags": (pa.map_(pa.string(), pa.int64()), [("k", 1)]),
    }
    columns = pa.schema([pa.field("id", pa.int64()), *(pa.field(name, kind) for name, (kind, _) in found.items())])
    table = memory_catalog().create_table("db.t", columns, primary_key=["id"], options={"bucket": "1"})
    values = {name: [value, None] for name, (_, value) in found.items()}
    table.write(pa.table({"id": [1, 2], **values}, schema=columns))
    exported(export, table, place_of(tmp_path / "copy"))
    check(export, tmp_path / "copy", table)


@pytest.mark.parametrize(
    ("export", "problem"),
    [
        (export_delta, r"no such type: column=at type=time32\[ms\] fix='export as parq"),
        (export_iceberg, r"no Iceberg type: column=at type=TIME\(\d\) fix='export as parq"),
    ],
    ids=["delta", "iceberg"],
)
def test_a_type_that_the_format_has_not_is_named_before_anything_is_written(
    export: Export, problem: str, tmp_path: Path
) -> None:
    columns = pa.schema([pa.field("id", pa.int64()), pa.field("at", pa.time32("ms"))])
    table = memory_catalog().create_table("db.t", columns, primary_key=["id"], options={"bucket": "1"})
    with pytest.raises(InvalidInputError, match=problem):
        exported(export, table, place_of(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


class KilledError(BaseException):
    """The process is dead."""


class FilesOfADead:
    """A file system of a process that dies at its n-th call: no later call has an effect."""

    def __init__(self, inner: FileIO, at: int) -> None:
        self.inner, self.left = inner, at

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation: Callable[..., Any] = getattr(self.inner, name)

        def call(*arguments: Any) -> Any:
            self.left -= 1
            if self.left <= 0:
                if self.left == 0 and name == "open_output":  # dead in the middle of a file
                    with operation(*arguments) as output:
                        output.write(b"PAR1 and no end")
                raise KilledError(name)
            return operation(*arguments)

        return call


@pytest.mark.sampled(1)
@pytest.mark.sweep
@FORMATS
def test_killed_at_every_call_the_copy_is_the_old_or_the_new_state_and_the_next_run_completes_it(
    export: Export, tmp_path: Path
) -> None:
    """What a dead run leaves is found, used or deleted; nothing of it is ever visible."""
    table = key_table(bucket="2")
    table.write(rows((1, 10), (2, 20), (3, 30)))
    table.write(rows((1, 11), (4, 40)))
    table.write(rows((2, 20), (5, 50)), pa.array(["-D", "+I"]))
    states = [None, *(sorted_table(open_state(table, str(number)).to_arrow()) for number in (1, 3))]
    kills = 0
    for start, number in ((0, 1), (1, 3)):
        for at in range(1, 200):
            root = tmp_path / f"{number}-{at}"
            for version in range(start):
                exported(export, table, place_of(root), str(version + 1))
            dying: Any = FilesOfADead(LocalFileIO(), at)
            try:
                exported(export, table, place_of(root, dying), str(number))
            except KilledError:
                kills += 1
            else:
                break
            found = copied(export, root)
            assert (None if found is None else sorted_table(found)) in (states[start], states[start + 1])
            done = exported(export, table, place_of(root), str(number))
            assert done.rows == len(states[start + 1] or ())
            check(export, root, table, str(number))
            late = place_of(root, clock=ManualClock(2_900_000_000_000))
            exported(export, table, late, str(number))
            check(export, root, table, str(number))
            names = [each.name for each in root.rglob("*") if each.is_file()]
            assert not [name for name in names if name.endswith(".tmp")]
        else:
            pytest.fail("it never ends")
    assert kills > 20


@FORMATS
def test_a_reader_of_an_older_state_keeps_its_files_until_the_retention(export: Export, tmp_path: Path) -> None:
    table, root = key_table(bucket="1"), tmp_path / "copy"
    table.write(rows((1, 10)))
    exported(export, table, place_of(root))
    if export is export_delta:
        reader, old = DeltaTable(str(root)), lambda: pa.table(reader.to_pyarrow_table())
    elif export is export_iceberg:
        table_of_reader = iceberg_copy(root)
        old = lambda: table_of_reader.scan().to_arrow()  # noqa: E731
    else:
        state = (root / "current").resolve()
        old = lambda: ds.dataset(str(state)).to_table()  # noqa: E731
    table.write(rows((1, 11)))
    now = time.time_ns() // 1_000_000
    exported(export, table, place_of(root, clock=ManualClock(now)))
    exported(export, table, place_of(root, clock=ManualClock(now + DAY_MS // 2)))
    assert old()["v"].to_pylist() == [10]
    done = exported(export, table, place_of(root, clock=ManualClock(now + 2 * DAY_MS)))
    assert done.deleted == 1
    check(export, root, table)
    with pytest.raises(OSError, match=r"(part|state|snap)-"):
        old()
    exported(export, table, place_of(root), "1")  # what was deleted is written again
    check(export, root, table, "1")


@FORMATS
def test_a_copy_belongs_to_one_table(export: Export, tmp_path: Path) -> None:
    catalog, place = memory_catalog(), place_of(tmp_path / "copy")
    tables = [
        catalog.create_table(name, rows().schema, primary_key=["id"], options={"bucket": "1"})
        for name in ("db.a", "db.b")
    ]
    exported(export, tables[0], place)
    with pytest.raises(InvalidInputError, match=r"copy of another table: .*its_table=db\.a table=db\.b fix="):
        exported(export, tables[1], place)
    check(export, tmp_path / "copy", tables[0])


@pytest.mark.parametrize("export", [export_delta, export_iceberg], ids=["delta", "iceberg"])
def test_of_two_exports_one_commits(export: Export, tmp_path: Path) -> None:
    """The slower one says so, and the copy is the faster one's."""
    table = key_table(bucket="1")
    table.write(rows((1, 10)))
    table.write(rows((2, 20)))
    place = place_of(tmp_path / "copy")
    faster = lambda done, of: exported(export, table, place) if done == 0 else None  # noqa: E731
    with pytest.raises(ConflictError, match=r"another export .*has written"):
        export(open_state(table, "1"), place, faster)
    check(export, tmp_path / "copy", table)


def test_an_iceberg_copy_keeps_states_and_the_ids_of_columns(tmp_path: Path) -> None:
    """States by snapshot while they are retained, statistics of files, and a renamed column of the same id."""
    catalog, place = memory_catalog(), place_of(tmp_path / "copy")
    table = catalog.create_table("db.t", rows().schema, primary_key=["id"], options={"bucket": "1"})
    table.write(rows((1, 10), (2, 20)))
    exported(export_iceberg, table, place)
    table.write(rows((1, 11)))
    exported(export_iceberg, table, place)
    catalog.alter_table("db.t", [RenameColumn(("v",), "x")])
    table = catalog.table("db.t")
    table.write(pa.table({"id": [3], "x": [30]}))
    exported(export_iceberg, table, place)
    copy = iceberg_copy(tmp_path / "copy")
    states = [each.snapshot_id for each in copy.snapshots()]
    shown = [sorted_table(copy.scan(snapshot_id=each).to_arrow()) for each in states]
    assert shown == [[(1, 10), (2, 20)], [(1, 11), (2, 20)], [(1, 11), (2, 20), (3, 30)]]
    assert [field.name for field in copy.schema().fields] == ["id", "x"]
    assert copy.schemas()[0].find_field("v").field_id == copy.schema().find_field("x").field_id
    assert [file.file.record_count for file in copy.scan(row_filter="x > 11").plan_files()] == [3]
    assert not list(copy.scan(row_filter="x > 30").plan_files())  # by statistics
    assert copy.metadata.snapshots[-1].summary["fluvial.snapshot"] == "3"


@pytest.mark.sweep
def test_an_iceberg_copy_without_its_hint_and_first_metadata_is_continued(tmp_path: Path) -> None:
    """The newest version is found by its name: not a second history beside the first; a hint ahead is damage."""
    table, root = key_table(bucket="1"), tmp_path / "copy"
    metadata, hint = root / "metadata", root / "metadata" / "version-hint.text"
    for turn in range(11):
        table.write(rows((turn, 10)))
        exported(export_iceberg, table, place_of(root))
    for version in range(1, 10):
        (metadata / f"v{version}.metadata.json").unlink()
    (metadata / "vx.metadata.json").write_bytes(b"no version")
    for newest, lost in enumerate((hint.unlink, lambda: hint.write_text("2"), lambda: hint.write_text("none")), 12):
        lost()
        table.write(rows((99, newest)))
        exported(export_iceberg, table, place_of(root))
        assert hint.read_text() == str(newest)
        states = [each.summary["fluvial.snapshot"] for each in iceberg_copy(root).snapshots() if each.summary]
        assert states == [str(each + 1) for each in range(newest)]
        check(export_iceberg, root, table)
    hint.write_text("15")
    with pytest.raises(CorruptDataError, match=r"metadata cannot be read: path=.* version=15"):
        exported(export_iceberg, table, place_of(root))


def test_an_iceberg_copy_in_an_object_store() -> None:
    table, io = key_table(bucket="1"), MemoryFileIO()
    table.write(rows((1, 10)))
    place = ExportPlace(io=io, root="s3://bucket/copy", clock=ManualClock(), retain_ms=DAY_MS)
    assert exported(export_iceberg, table, place).rows == 1
    assert exported(export_iceberg, table, place).kept == 1
    names = {path.removeprefix("s3://bucket/copy/") for path in io.files}
    assert {"metadata/v1.metadata.json", "metadata/version-hint.text"} <= names
    assert "metadata/v2.metadata.json" not in names
    io.files["s3://bucket/copy/metadata/v1.metadata.json"] = b"{"
    with pytest.raises(CorruptDataError, match=r"metadata cannot be read: path=s3://bucket/copy version=1"):
        exported(export_iceberg, table, place)


def test_a_copy_in_an_object_store_is_a_delta_table_and_no_parquet_directory() -> None:
    table, io = key_table(bucket="1"), MemoryFileIO()
    table.write(rows((1, 10)))
    place = ExportPlace(io=io, root="s3://bucket/copy", clock=ManualClock(), retain_ms=DAY_MS)
    assert exported(export_delta, table, place).rows == 1
    assert exported(export_delta, table, place).kept == 1
    assert read_log(io, place.root).version == 0
    with pytest.raises(InvalidInputError, match=r"needs a local directory.*fix='export as delta'"):
        exported(export_parquet, table, place)


def test_a_part_that_was_cut_off_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files have no links, one whose rows could not all be read appears under its name all the same."""
    table, io = key_table(bucket="1"), MemoryFileIO()
    table.write(rows((1, 10), (2, 20)))
    place = ExportPlace(io=io, root="s3://bucket/copy", clock=ManualClock(), retain_ms=DAY_MS)

    def breaks(*arguments: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        for batch in read_split(*arguments, **named):
            yield batch.slice(0, 1)
            raise UnavailableError("injected")

    monkeypatch.setattr(parts, "read_split", breaks)
    with pytest.raises(UnavailableError, match="injected"):
        exported(export_delta, table, place)
    [left] = [path for path in io.files if path.endswith(".parquet")]
    monkeypatch.undo()
    assert exported(export_delta, table, place).rows == 2
    assert pq.read_table(pa.BufferReader(io.files[left])).num_rows == 2
    for damaged in (b"", io.files[left][:-9]):  # as HDFS has it of a writer that died
        io.files = {left: damaged}
        assert exported(export_delta, table, place).rows == 2
        assert pq.read_table(pa.BufferReader(io.files[left])).num_rows == 2


def test_a_snapshot_that_expires_on_the_way_leaves_the_copy_as_it_was(tmp_path: Path) -> None:
    table, place = key_table(bucket="1"), place_of(tmp_path / "copy")
    table.write(rows((1, 10)))
    exported(export_delta, table, place)
    table.write(rows((2, 20)))
    table.write(rows((3, 30)))
    read = open_state(table, "2")
    table.compact(full=True)
    expire_all_but(table, 1)
    with pytest.raises(FileNotFoundError):
        export_delta(read, place, lambda done, of: None)
    assert sorted_table(copied(export_delta, tmp_path / "copy") or pa.table({})) == [(1, 10)]
