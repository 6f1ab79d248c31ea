"""What a later version of Paimon notes in metadata files survives every change of something else."""

import json
from dataclasses import replace
from io import BytesIO
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from filestore.branch.branches import create_branch
from filestore.commit.table_commit import TableCommit
from filestore.evolution.schema_change import AddColumn, RenameColumn, SetComment, SetOption
from filestore.io.file_io import FileIO
from filestore.maintenance.orphans import find_orphans
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.manifest.entries import DataFileMeta
from filestore.scan.snapshot_files import live_files
from filestore.schema.schema_store import SchemaStore
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from filestore.types.data_types import DataType
from lsm.errors import InvalidInputError
from tests.support.faults import MemoryFileIO
from tests.support.tables import memory_catalog

COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("s", pa.struct([("a", pa.int64())])), ("v", pa.int64())]
)


def noted(io: FileIO, path: str) -> dict[str, object]:
    body: dict[str, object] = json.loads(io.read_bytes(path))
    return body


def test_unknown_keys_of_a_schema_and_its_fields_survive_every_change() -> None:
    """Issue 1, finding 8: ALTER has dropped them; those of nested fields too, and of a branch."""
    io = MemoryFileIO()
    catalog = memory_catalog(io)
    table = catalog.create_table("db.t", COLUMNS, primary_key=["id"], options={"bucket": "1"})
    path = table.store.paths.schema(0)
    body = noted(io, path)
    body["futureKey"] = {"a": [1, None]}
    body["fields"][1]["futureField"] = [7]  # type: ignore[index]
    body["fields"][1]["type"]["fields"][0]["futureInner"] = True  # type: ignore[index]
    body["fields"][2]["futureField"] = "x"  # type: ignore[index]
    io.files[path] = json.dumps(body).encode()
    for change in (
        AddColumn(path=("w",), type=DataType(root="INT")),
        RenameColumn(path=("v",), name="vv"),
        SetComment("c"),
        SetOption("write-only", "true"),
    ):
        catalog.alter_table("db.t", [change])
    table = FileTable.open("db.t", table.store.paths.root, io=io)
    table.write(pa.table({"id": [1], "vv": [1]}))
    create_branch(table.store, "dev")
    branch = table.on_branch("dev")
    for store in (table.store, branch.store):
        newest = SchemaStore(io, store.paths).latest()
        assert newest is not None
        found = noted(io, store.paths.schema(newest.id))
        assert found["futureKey"] == {"a": [1, None]}
        fields = {each["name"]: each for each in found["fields"]}  # type: ignore[attr-defined]
        assert (fields["s"]["futureField"], fields["vv"]["futureField"]) == ([7], "x")
        assert fields["s"]["type"]["fields"][0]["futureInner"] is True
        assert "futureField" not in fields["w"]


def test_what_pypaimon_notes_beside_a_manifest_is_carried_on_and_kept() -> None:
    """Issue 1, finding 8: its sidecar has lost its reference with the next commit, and was an orphan."""
    io = MemoryFileIO()
    table = memory_catalog(io).create_table("db.t", COLUMNS, primary_key=["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [1]}))
    store, latest = table.store, table.store.snapshots.read(1)
    (found,) = store.manifests.read_list(latest.delta_manifest_list, latest.delta_manifest_list_size)
    noted_too = replace(found, total_buckets=1, extra_files=("manifest-x-0.sidecar",))
    name, size_bytes = store.manifests.write_list([noted_too])
    sidecar = store.paths.manifest("manifest-x-0.sidecar")
    io.files[sidecar] = b"x"
    body = noted(io, store.paths.snapshot(1)) | {"deltaManifestList": name, "deltaManifestListSize": size_bytes}
    io.files[store.paths.snapshot(1)] = json.dumps(body).encode()
    table = FileTable.open("db.t", store.paths.root, io=io)
    for number in (2, 3):
        table.write(pa.table({"id": [number]}))
    latest = table.store.snapshots.read(3)
    base = table.store.manifests.read_list(latest.base_manifest_list, latest.base_manifest_list_size)
    assert base[0] == noted_too
    assert [each.extra_files for each in base[1:]] == [None]
    list(expire_snapshots(table.store, Retention(min_count=1, max_count=1, age_ms=0, limit=9)))
    assert sidecar in io.files
    assert sidecar not in {each.path for each in find_orphans(table.store, before_ms=1 << 60)}
    assert sorted(table.read().to_arrow()["id"].to_pylist()) == [1, 2, 3]


PLAIN: Final = {"bucket": "1", "manifest.compression": "null"}
DEFINITIONS: Final[dict[str, Any]] = {
    "_NUMBER": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
    "_TEXTS": {"type": "array", "items": "string"},
    "_PART": ["null", {"type": "record", "name": "record__PART", "fields": [{"name": "f0", "type": "bytes"}]}],
}
ARROW_NOTED: Final = (
    pa.field("_NUMBER", pa.timestamp("ms")),
    pa.field("_TEXTS", pa.list_(pa.string())),
    pa.field("_PART", pa.struct([("f0", pa.binary())])),
)
NOTED: Final[dict[str, Any]] = {"_NUMBER": 7, "_TEXTS": ["a", "b"], "_PART": {"f0": b"x"}}


def arrow_table_of(body: bytes) -> pa.Table | None:
    """A file in ORC or Parquet; None: it is in Avro."""
    if body.startswith(b"ORC"):
        return orc.read_table(BytesIO(body))
    return pq.read_table(BytesIO(body)) if body.startswith(b"PAR1") else None


def records_of(body: bytes) -> tuple[Any, list[Any]]:
    if (rows := arrow_table_of(body)) is not None:
        return rows.schema, rows.to_pylist()
    read = fastavro.reader(BytesIO(body))
    return read.writer_schema, [*read]


def inner_record(field: Any) -> Any:
    """The schema of a field's record, or of its items'."""
    kind = field["type"]
    while not isinstance(kind, dict) or kind["type"] != "record":
        kind = kind[1] if isinstance(kind, list) else kind["items"]
    return kind


def inner_values(record: Any, name: str) -> list[Any]:
    value = record[name]
    return value if isinstance(value, list) else [] if value is None else [value]


def with_noted(io: MemoryFileIO, path: str, *, inner: str | None) -> int:
    """Rewrite a file of records as a later version of Paimon would, with more in itself and in a field.

    Returns: its new size.
    """
    if (rows := arrow_table_of(io.files[path])) is not None:
        io.files[path] = with_noted_columns(rows, inner=inner, write=orc if io.files[path][:3] == b"ORC" else pq)
        return len(io.files[path])
    schema, records = records_of(io.files[path])
    added = [{"name": name, "type": kind} for name, kind in DEFINITIONS.items()]
    holders = [schema]
    if inner:
        holders.append(inner_record(next(each for each in schema["fields"] if each["name"] == inner)))
    for holder in holders:
        names = [each["name"] for each in holder["fields"]]
        prefix = "" if holder is schema else "_IN"
        more = [{**each, "name": prefix + each["name"]} for each in added if each["name"] not in names]
        if prefix:
            more = [each for each in more if not each["name"].endswith("_PART")]  # a name is defined once
        holder["fields"] = [more[0], *holder["fields"], *more[1:]]
    for record in records:
        record.update(NOTED)
        for each in inner_values(record, inner) if inner else ():
            each.update({f"_IN{name}": value for name, value in NOTED.items()})
    sink = BytesIO()
    fastavro.writer(sink, schema, records)
    io.files[path] = sink.getvalue()
    return len(io.files[path])


def with_noted_columns(rows: pa.Table, *, inner: str | None, write: Any) -> bytes:
    columns, values = [*rows.schema, *ARROW_NOTED], rows.to_pylist()
    for record in values:
        record.update(NOTED)
        for each in inner_values(record, inner) if inner else ():
            each.update({f"_IN{name}": value for name, value in NOTED.items()})
    if inner:
        own = rows.schema.field(inner)
        more = [pa.field(f"_IN{each.name}", each.type) for each in ARROW_NOTED]
        items = own.type.value_type if isinstance(own.type, pa.ListType) else own.type
        wide: pa.DataType = pa.struct([*items, *more])
        columns[columns.index(own)] = own.with_type(pa.list_(wide) if isinstance(own.type, pa.ListType) else wide)
    sink = BytesIO()
    write.write_table(pa.Table.from_pylist(values, pa.schema(columns)), sink)
    return sink.getvalue()


def with_noted_entries(io: MemoryFileIO, table: FileTable) -> None:
    """The manifests, lists and index manifests of the newest snapshot as those of a later version."""
    store, latest = table.store, table.store.snapshots.latest()
    assert latest is not None
    path = store.paths.snapshot(latest.id)
    body = noted(io, path)
    for key in ("baseManifestList", "deltaManifestList"):
        manifests = store.manifests.read_list(str(body[key]), None)
        sized = [
            replace(each, size_bytes=with_noted(io, store.paths.manifest(each.file_name), inner="_FILE"))
            for each in manifests
        ]
        name, _ = store.manifests.write_list(sized)
        body |= {key: name, f"{key}Size": with_noted(io, store.paths.manifest(name), inner=None)}
    if latest.index_manifest is not None:
        with_noted(io, store.paths.manifest(latest.index_manifest), inner="_DELETIONS_VECTORS_RANGES")
    io.files[path] = json.dumps(body).encode()


def what_is_noted(record: Any, names: Any) -> dict[str, Any]:
    """What a later version has noted in a record, times as numbers."""
    found = {name: record.get(name) for name in names}
    number = found.get("_NUMBER") or found.get("_IN_NUMBER")
    if hasattr(number, "timestamp"):
        found = {key: 7 if value is number and number.microsecond == 7000 else value for key, value in found.items()}
    return found


INNER: Final = {f"_IN{name}": value for name, value in NOTED.items() if name != "_PART"}


def check_noted(io: MemoryFileIO, table: FileTable, noted_files: set[str]) -> None:
    """Every entry of these files, and every manifest of them, says what was noted of it."""
    store, latest = table.store, table.store.snapshots.latest()
    assert latest is not None
    seen: set[str] = set()
    for name in (latest.base_manifest_list, latest.delta_manifest_list):
        _, lists = records_of(io.files[store.paths.manifest(name)])
        for each in lists:
            _, entries = records_of(io.files[store.paths.manifest(each["_FILE_NAME"])])
            for entry in entries:
                if entry["_FILE"]["_FILE_NAME"] in noted_files and entry["_KIND"] == 0:
                    assert what_is_noted(entry, NOTED) == NOTED
                    assert what_is_noted(entry["_FILE"], INNER) == INNER
                    seen.add(entry["_FILE"]["_FILE_NAME"])
    assert seen == noted_files


@pytest.mark.parametrize(
    ("manifest_format", "merges"), [("avro", True), ("avro", False), ("orc", True), ("parquet", True)]
)
def test_unknown_fields_of_entries_survive_commits_and_merges_of_manifests(manifest_format: str, merges: bool) -> None:
    io = MemoryFileIO()
    options = {**PLAIN, "manifest.format": manifest_format, "write-only": "true"}
    options["manifest.merge-min-count"] = "2" if merges else "30"
    table = memory_catalog(io).create_table("db.t", COLUMNS, primary_key=["id"], options=options)
    for number in (1, 2):
        table.write(pa.table({"id": [number]}))
    with_noted_entries(io, table)
    table = FileTable.open("db.t", table.store.paths.root, io=io)
    noted_files = {each.file.file_name for each in live_files(table.store, table.store.snapshots.latest())}
    assert len(noted_files) == 2
    check_noted(io, table, noted_files)
    for number in (3, 4, 5):
        table.write(pa.table({"id": [number]}))
        check_noted(io, table, noted_files)
        table = FileTable.open("db.t", table.store.paths.root, io=io)
    merging = table.store.with_options({"manifest.full-compaction-threshold-size": "0 b"})
    assert TableCommit(merging, "merger").merge_manifests({}).snapshot is not None
    check_noted(io, table, noted_files)
    create_branch(table.store, "dev", snapshot_id=table.store.snapshots.latest_id())
    branch = table.on_branch("dev")
    branch.write(pa.table({"id": [6]}))
    check_noted(io, branch, noted_files)
    assert sorted(branch.read().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("manifest_format", ["avro", "orc", "parquet"])
def test_unknown_fields_of_lists_and_indexes_survive_a_commit(manifest_format: str) -> None:
    io = MemoryFileIO()
    options = {**PLAIN, "manifest.format": manifest_format, "bucket": "2", "deletion-vectors.enabled": "true"}
    table = memory_catalog(io).create_table("db.t", COLUMNS, primary_key=["id"], options=options)
    for ids in (range(20), [1], [3]):
        table.write(pa.table({"id": [*ids]}))
    with_noted_entries(io, table)
    table = FileTable.open("db.t", table.store.paths.root, io=io)
    before = table.store.snapshots.latest()
    assert before is not None
    table.write(pa.table({"id": [100]}))
    latest = table.store.snapshots.latest()
    assert latest is not None
    assert latest.index_manifest not in (None, before.index_manifest)
    _, lists = records_of(io.files[table.store.paths.manifest(latest.base_manifest_list)])
    _, indexes = records_of(io.files[table.store.paths.manifest(str(latest.index_manifest))])
    assert len(indexes) == 1
    listed = table.store.manifests.read_list(before.delta_manifest_list, before.delta_manifest_list_size)
    old = [each for each in lists if each["_FILE_NAME"] in {there.file_name for there in listed}]
    assert len(old) == len(listed) == 1
    assert [what_is_noted(each, NOTED) for each in (*old, *indexes)] == [NOTED] * 2
    vectors = [each for index in indexes for each in index["_DELETIONS_VECTORS_RANGES"]]
    assert vectors
    assert [what_is_noted(each, INNER) for each in vectors] == [INNER] * len(vectors)


@pytest.mark.parametrize("manifest_format", ["avro", "orc", "parquet"])
def test_unknown_fields_of_a_file_cross_processes_with_it(manifest_format: str) -> None:
    """A compaction on another process moves the file to another level: its description comes back as JSON."""
    io = MemoryFileIO()
    options = {**PLAIN, "manifest.format": manifest_format, "write-only": "true"}
    table = memory_catalog(io).create_table("db.t", COLUMNS, primary_key=["id"], options=options)
    table.write(pa.table({"id": [1]}))
    with_noted_entries(io, table)
    table = FileTable.open("db.t", table.store.paths.root, io=io)
    (entry,) = live_files(table.store, table.store.snapshots.latest())
    assert {each.name for each in entry.file.unknown} >= INNER.keys()
    there = DataFileMeta.from_json(json.loads(json.dumps(entry.file.to_json())))
    assert (there, there.unknown) == (entry.file, entry.file.unknown)


@pytest.mark.parametrize(("noted_in", "written_in"), [("avro", "parquet"), ("orc", "avro")])
def test_unknown_fields_are_not_lost_where_they_cannot_be_kept(noted_in: str, written_in: str) -> None:
    """Another engine has changed the format of a table that has manifests."""
    io = MemoryFileIO()
    options = {**PLAIN, "manifest.format": noted_in, "manifest.merge-min-count": "2"}
    table = memory_catalog(io).create_table("db.t", COLUMNS, primary_key=["id"], options=options)
    table.write(pa.table({"id": [1]}))
    with_noted_entries(io, table)
    path = table.store.paths.schema(0)
    io.files[path] = json.dumps(noted(io, path) | {"options": {**options, "manifest.format": written_in}}).encode()
    table = FileTable.open("db.t", table.store.paths.root, io=io)
    with pytest.raises(InvalidInputError, match=f"field=_.* manifest.format={written_in} "):
        table.write(pa.table({"id": [2]}))
    assert table.read().to_arrow()["id"].to_pylist() == [1]
