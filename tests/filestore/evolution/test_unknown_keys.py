"""What a later version of Paimon notes in metadata files survives every change of something else."""

import json
from dataclasses import replace

import pyarrow as pa

from filestore.branch.branches import create_branch
from filestore.evolution.schema_change import AddColumn, RenameColumn, SetComment, SetOption
from filestore.io.file_io import FileIO
from filestore.maintenance.orphans import find_orphans
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.schema.schema_store import SchemaStore
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from filestore.types.data_types import DataType
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
