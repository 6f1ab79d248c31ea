"""Tables in a real HDFS: laws of files, Java Paimon beside us, a name node that restarts."""

import pickle
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from filestore.io.file_io import FileIO, MovesDirectories
from lsm.errors import ConflictError, InvalidInputError
from tests.stores.hdfs import MiniHdfs

SCHEMA = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("v", pa.string())])
MIB = 1 << 20


def catalog_at(hdfs: MiniHdfs, name: str, **more: str) -> Catalog:
    return Catalog(f"{hdfs.root}/{name}", options={**hdfs.options, **more})


def valued(ids: list[int], value: str = "x", dt: str = "a/b") -> pa.Table:
    return pa.table({"dt": [dt] * len(ids), "id": ids, "v": [value] * len(ids)}, SCHEMA)


def make_shop_table(catalog: Catalog, name: str) -> Any:
    return catalog.create_table(name, SCHEMA, primary_key=["dt", "id"], partition_by=["dt"], options={"bucket": "1"})


def io_of(hdfs: MiniHdfs, name: str) -> tuple[FileIO, str]:
    catalog = catalog_at(hdfs, name)
    io: FileIO = pickle.loads(pickle.dumps(catalog.file_io))
    return io, catalog.warehouse


@pytest.mark.long
def test_files_keep_the_promises_of_a_file_system(hdfs: MiniHdfs) -> None:
    """FL-92: whole or not at all, once, under any name; directories move in one step."""
    io, root = io_of(hdfs, "files")
    path = f"{root}/d/dt=a%2Fb é+?#/f"
    assert io.create_exclusive(path, b"one")
    assert not io.create_exclusive(path, b"two")
    with pytest.raises(ConflictError, match="file exists already, nothing was written"):
        io.write_new(path, b"two")
    assert io.read_bytes(path) == b"one"
    io.replace(path, b"three")
    assert (io.read_bytes(path), io.size_bytes(path)) == (b"three", 5)
    assert io.list_names(path.rpartition("/")[0]) == ["f"]  # nothing hidden is left
    assert io.list_names(path) == io.list_names(f"{root}/none") == []
    with pytest.raises(FileNotFoundError):
        io.read_bytes(f"{root}/none")
    body = bytes(range(256)) * (3 * MIB // 256)
    with io.open_output(f"{root}/d/big") as output:
        output.write(body[:MIB])
        output.write(body[MIB:])
    with io.open_input(f"{root}/d/big") as reader:
        assert reader.size() == len(body)
        reader.seek(MIB - 3)
        assert reader.read(6) == body[MIB - 3 : MIB + 3]
        reader.seek(0)
        assert reader.read() == body

    assert isinstance(io, MovesDirectories)
    assert [io.make_inside(f"{root}/d/in"), io.make_inside(f"{root}/d/in")] == [True, True]
    assert not io.make_inside(f"{root}/none/in")
    assert not io.exists(f"{root}/none")
    assert io.move_into(f"{root}/d/big", f"{root}/d/in")
    assert not io.move_into(f"{root}/d/big", f"{root}/d/in")
    io.move_directory(f"{root}/d", f"{root}/d2")
    io.make_directory(f"{root}/d")
    with pytest.raises(ConflictError, match="directory exists already"):
        io.move_directory(f"{root}/d", f"{root}/d2")
    assert not io.delete_empty_directory(f"{root}/d2/in")
    io.delete(f"{root}/d2/in/big")
    assert io.delete_empty_directory(f"{root}/d2/in")
    io.delete(f"{root}/d2/in/big")
    io.delete_tree(f"{root}/d2")
    assert not io.is_directory(f"{root}/d2")
    assert [name for name in io.list_names(root) if name.startswith(".")] == []


@pytest.mark.long
def test_of_many_that_create_a_file_one_wins(hdfs: MiniHdfs) -> None:
    """FL-92: a commit is a rename; who finds the name taken makes the next one."""
    io, root = io_of(hdfs, "race")
    won: list[int] = []

    def create(number: int) -> None:
        if io.create_exclusive(f"{root}/snapshot-1", str(number).encode()):
            won.append(number)

    writers = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert len(won) == 1
    assert io.read_bytes(f"{root}/snapshot-1") == str(won[0]).encode()
    assert io.list_names(root) == ["snapshot-1"]


def test_a_table_is_one_for_java_with_hadoops_client_and_for_us(hdfs: MiniHdfs) -> None:
    """FL-92, FL-17: written, compacted, renamed and dropped here; read and written there."""
    ours, java = catalog_at(hdfs, "lake"), hdfs.java()
    table = make_shop_table(ours, "shop.t")
    table.write(valued([1, 2]))
    warehouse: Any = ours.warehouse
    assert [(row["dt"], row["id"]) for row in java.read(warehouse, "shop.t")] == [("a/b", 1), ("a/b", 2)]
    required = pa.schema([pa.field("dt", pa.string(), False), pa.field("id", pa.int64(), False), ("v", pa.string())])
    java.write(warehouse, "shop.t", valued([2, 3], "of java").cast(required))
    table.compact(full=True)
    expected = [(1, "x"), (2, "of java"), (3, "of java")]
    assert [(row["id"], row["v"]) for row in java.read(warehouse, "shop.t")] == expected
    ours.rename_table("shop.t", "shop.u")
    found = ours.table("shop.u").read().to_arrow().sort_by("id")
    assert list(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
    ours.drop_table("shop.u")
    assert ours.list_tables("shop") == []
    with pytest.raises(InvalidInputError, match=r"commit lock is not supported in HDFS: commit\.lock=file"):
        ours.create_table("shop.v", SCHEMA, options={"bucket": "-1", "commit.lock": "file"})


@pytest.mark.soak
def test_a_name_node_that_restarts_loses_and_doubles_no_commit(hdfs: MiniHdfs) -> None:
    """FL-92: two writers go on while it is away; what was acknowledged is there, once."""
    table = make_shop_table(catalog_at(hdfs, "restart"), "shop.t")
    begun, acknowledged = threading.Event(), []

    def write(base: int) -> None:
        mine = catalog_at(hdfs, "restart").table("shop.t")
        for number in range(base, base + 3):
            mine.write(valued([number]))
            acknowledged.append(number)
            begun.set()

    writers = [threading.Thread(target=write, args=(base,)) for base in (0, 100)]
    for each in writers:
        each.start()
    assert begun.wait(60)
    hdfs.stop_name_node()
    hdfs.start_name_node()
    for each in writers:
        each.join()
    assert sorted(acknowledged) == [*range(3), *range(100, 103)]
    assert sorted(table.read().to_arrow()["id"].to_pylist()) == sorted(acknowledged)
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    appends = [table.store.snapshots.read(each) for each in range(1, snapshot.id + 1)]
    assert sum(each.commit_kind == "APPEND" for each in appends) == len(acknowledged)


@pytest.mark.long
def test_addresses_that_are_none_are_refused(tmp_path: Path) -> None:
    """FL-92."""
    with pytest.raises(InvalidInputError, match="write hdfs://namenode:8020/path"):
        Catalog("hdfs:///path")
    with pytest.raises(InvalidInputError, match=r"not the HTTP address of a name node: hdfs\.webhdfs-address=host:1"):
        Catalog("hdfs://host/path", options={"hdfs.webhdfs-address": "host:1"})
