"""Deletion vectors of other writers: positions in, rows of Java's own tables out."""

import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyroaring import BitMap, BitMap64

from filestore.index.deletion_vectors import read_deletion_vectors, write_deletion_vectors
from filestore.io.file_io import LocalFileIO
from filestore.manifest.entries import EntryKind
from filestore.manifest.lists import DeletionVectorRange, IndexManifestEntry
from filestore.table import FileTable
from lsm.errors import CorruptDataError
from tests.support.faults import MemoryFileIO
from tests.support.tables import key_table

GOLDEN = Path(__file__).parents[2] / "golden" / "java-1.4.2" / "db.db"
DV_32 = "01 00000018 5e43f2d0 3a300000 01000000 0000 0100 10000000 0100 0200 c3366892"
DV_64 = "01 00000024 d1d33964 0100000000000000 00000000 3a30000001000000000001001000000001000200 712fa6e8"


def entry(
    *parts: tuple[str, int, int, int | None], kind: str = "DELETION_VECTORS", path: str | None = None
) -> IndexManifestEntry:
    ranges = [DeletionVectorRange(data_file_name=n, offset=o, length=ln, cardinality=c) for n, o, ln, c in parts]
    return IndexManifestEntry(
        kind=EntryKind.ADD,
        partition=bytes(12),
        bucket=0,
        index_type=kind,
        file_name="index-0",
        size_bytes=0,
        row_count=len(parts),
        deletion_vectors=tuple(ranges),
        external_path=path,
    )


def stored(body: bytes, path: str = "/warehouse/db.db/t/index/index-0") -> FileTable:
    io = MemoryFileIO()
    table = key_table(io)
    io.files[path] = body
    return table


def frame(blob: bytes) -> bytes:
    return len(blob).to_bytes(4, "big") + blob + zlib.crc32(blob).to_bytes(4, "big")


@pytest.mark.parametrize(("text", "length"), [(DV_32, 24), (DV_64, 44)])
def test_javas_vectors_name_the_deleted_rows(text: str, length: int) -> None:
    """Golden: paimon-format.md section 8."""
    found = read_deletion_vectors(stored(bytes.fromhex(text)).store, [entry(("f", 1, length, 2))])
    assert {name: rows.tolist() for name, rows in found.items()} == {"f": [1, 2]}
    assert found["f"].dtype == np.int64


@pytest.mark.parametrize("table", ["dv", "dv64"])
def test_index_files_of_java_tables_are_read(table: str) -> None:
    [index] = sorted((GOLDEN / table / "index").iterdir())[-1:]
    length = int.from_bytes(index.read_bytes()[1:5], "big") + (8 if table == "dv64" else 0)
    part = entry(("f", 1, length, None), path=str(index))
    assert read_deletion_vectors(replace(key_table().store, io=LocalFileIO()), [part])["f"].tolist() == [1, 2]


def test_one_file_holds_the_vectors_of_many() -> None:
    """Rows beyond 32 bits included, and an external path."""
    narrow = (1_581_511_376).to_bytes(4, "big") + BitMap([0, 7, 2**31]).serialize()
    wide = (1_681_511_377).to_bytes(4, "little") + BitMap64([3, 2**40]).serialize()
    body = b"\x01" + frame(narrow) + frame(wide)
    second = 1 + len(narrow) + 8
    parts = entry(("a", 1, len(narrow), 3), ("b", second, len(wide) + 8, None), path="/else/where")
    found = read_deletion_vectors(stored(body, "/else/where").store, [parts, entry(("c", 1, 1, 1), kind="HASH")])
    assert {name: rows.tolist() for name, rows in found.items()} == {"a": [0, 7, 2**31], "b": [3, 2**40]}


def test_entries_of_one_file_are_united_and_it_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits of a bucket each have an entry of its index file, with the vectors of their own data files."""
    blobs = [(1_581_511_376).to_bytes(4, "big") + BitMap([row]).serialize() for row in (3, 5)]
    table = stored(b"\x01" + b"".join(map(frame, blobs)))
    reads: list[str] = []
    read = table.store.io.read_bytes
    monkeypatch.setattr(table.store.io, "read_bytes", lambda path: reads.append(path) or read(path))
    ends = [1, 1 + len(blobs[0]) + 8]
    entries = [entry((name, end, len(blob), 1)) for name, end, blob in zip("ab", ends, blobs, strict=True)]
    found = read_deletion_vectors(table.store, entries)
    assert {name: rows.tolist() for name, rows in found.items()} == {"a": [3], "b": [5]}
    assert len(reads) == 1


@pytest.mark.parametrize(
    ("text", "length", "cardinality", "said"),
    [
        (DV_32.replace("01 0000", "02 0000", 1), 24, 2, "unknown version"),
        (DV_32, 23, 2, "corrupt"),
        (DV_32.replace("0200 c3", "0300 c3"), 24, 2, "corrupt"),
        (DV_32[:-6], 24, 2, "corrupt"),
        (DV_32, 24, 3, "a wrong cardinality"),
        (DV_64, 36, 2, "corrupt"),
    ],
)
def test_a_broken_vector_stops_the_read(text: str, length: int, cardinality: int, said: str) -> None:
    with pytest.raises(CorruptDataError, match=said):
        read_deletion_vectors(stored(bytes.fromhex(text)).store, [entry(("f", 1, length, cardinality))])


def test_a_vector_of_an_unknown_kind_stops_the_read() -> None:
    body = b"\x01" + frame(b"\x00\x00\x00\x00abcd")
    with pytest.raises(CorruptDataError, match="unknown kind"):
        read_deletion_vectors(stored(body).store, [entry(("f", 1, 8, None))])


@pytest.mark.parametrize(("wide", "text"), [("false", DV_32), ("true", DV_64)])
def test_a_vector_is_written_as_java_does(wide: str, text: str) -> None:
    """Golden: the same bytes, and the same place in the manifest."""
    table = key_table(**{"deletion-vectors.bitmap64": wide})
    written = write_deletion_vectors(table.store, bytes(12), 0, {"f": np.array([1, 2])})
    assert table.store.io.read_bytes(table.store.index_path(written)) == bytes.fromhex(text)
    [part] = written.index_vectors
    assert (part.offset, part.length, part.cardinality) == (1, 44 if wide == "true" else 24, 2)
    assert (written.row_count, written.size_bytes) == (1, len(bytes.fromhex(text)))


@pytest.mark.parametrize("wide", ["false", "true"])
def test_what_is_written_is_read(wide: str) -> None:
    table = key_table(**{"deletion-vectors.bitmap64": wide})
    vectors = {"a": np.array([0, 5, 2**31]), "b": np.arange(100_000), "c": np.array([7])}
    written = write_deletion_vectors(table.store, bytes(12), 0, vectors)
    found = read_deletion_vectors(table.store, [written])
    assert {name: rows.tolist() for name, rows in found.items()} == {n: r.tolist() for n, r in vectors.items()}
