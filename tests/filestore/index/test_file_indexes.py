"""File indexes: what they hash and hold, and that a read with them has the rows of a read without."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.commit.committable import discard
from filestore.evolution.schema_change import AddColumn, DropColumn, RenameColumn
from filestore.hashing.xxhash import column_hashes, xxh64
from filestore.index.container import pack_indexes, unpack_indexes
from filestore.index.file_index import INDEX_SUFFIX, BloomFilter, IndexWriter, index_file_of
from filestore.maintenance.index_rewriting import write_indexes
from filestore.maintenance.orphans import delete_orphans, find_orphans
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.scan.live_files import LiveFiles
from filestore.schema.index_options import bloom_columns
from filestore.snapshot.retention import Retention
from filestore.system_tables import SYSTEM_TABLES
from filestore.table import FileTable
from filestore.types.data_types import DataType
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError
from tests.support.faults import Disks, MemoryFileIO, When
from tests.support.indexed import INDEXED, INDEXED_COLUMNS, indexed_rows
from tests.support.roots import files_there, used_files
from tests.support.tables import KEY_SCHEMA, content, failing_at, key_table, memory_catalog, messages_of, rows

GOLDEN = Path(__file__).parents[2] / "golden" / "file-index"
BLOOM = "file-index.bloom-filter.columns"


# ---- bytes


def _xxh64(data: bytes) -> int:
    """The specification, one byte string at a time, in numbers that do not wrap by themselves."""
    primes = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
    mask = 2**64 - 1

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & mask

    def mixed(lane: int, word: int) -> int:
        return rotated((lane + word * primes[1]) & mask, 31) * primes[0] & mask

    def word(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    place, value = 0, primes[4]
    if len(data) >= 32:
        lanes = [primes[0] + primes[1] & mask, primes[1], 0, -primes[0] & mask]
        for place in range(0, len(data) - 31, 32):
            lanes = [mixed(lane, word(place + 8 * number, 8)) for number, lane in enumerate(lanes)]
        place += 32
        value = sum(map(rotated, lanes, (1, 7, 12, 18))) & mask
        for lane in lanes:
            value = ((value ^ mixed(0, lane)) * primes[0] + primes[3]) & mask
    value = value + len(data) & mask
    while place + 8 <= len(data):
        value = (rotated(value ^ mixed(0, word(place, 8)), 27) * primes[0] + primes[3]) & mask
        place += 8
    if place + 4 <= len(data):
        value = (rotated(value ^ word(place, 4) * primes[0] & mask, 23) * primes[1] + primes[2]) & mask
        place += 4
    for byte in data[place:]:
        value = rotated(value ^ byte * primes[4] & mask, 11) * primes[0] & mask
    for shift, prime in ((33, primes[1]), (29, primes[2])):
        value = (value ^ value >> shift) * prime & mask
    return value ^ value >> 32


def test_hashes_of_byte_strings_are_those_of_the_specification() -> None:
    """Known answers, and every length up to four stripes, whatever lies around the value in the column."""
    assert xxh64(pa.array([b"", b"a"], pa.large_binary())).tolist() == [0xEF46DB3751D8E999, 0xD24EC4F1A98C6E5B]
    some = random.Random(7)
    values = [some.randbytes(size) for size in [*range(130), 1000, 0, 31, 64]]
    expected = [_xxh64(value) for value in values]
    assert xxh64(pa.array(values, pa.large_binary())).tolist() == expected
    column = pa.chunked_array([pa.array([b"xy", None, *values[:50]]).slice(1), pa.array([*values[50:], None])])
    assert column_hashes(column, DataType(root="VARBINARY")).tolist() == expected


def test_an_index_is_byte_for_byte_javas() -> None:
    """Paimon for Java 1.4.2 wrote the golden index of the same rows: a filter for every type that can have one."""
    theirs = unpack_indexes((GOLDEN / "java-1.4.2.index").read_bytes(), source="golden")
    table = _indexed_table()
    writer = IndexWriter(bloom_columns(table.schema, table.options))
    for first in (0, 50, 100):
        writer.add(indexed_rows().slice(first, 50))
    assert writer.indexes() == theirs
    assert theirs.keys() == {*INDEXED_COLUMNS}


@settings(deadline=None)
@given(st.sets(st.integers(0, 2**64 - 1), max_size=300), st.sampled_from([0.5, 0.1, 0.001]))
def test_a_filter_never_forgets(hashes: set[int], rate: float) -> None:
    found = BloomFilter.empty(items=max(len(hashes), 1), false_positive_rate=rate)
    given = np.array(sorted(hashes), np.uint64)
    found.add(given)
    assert BloomFilter.from_bytes(found.to_bytes()).may_hold(given).all()


def test_a_filter_is_wrong_about_as_often_as_it_may() -> None:
    everything = np.random.default_rng(5).integers(0, 2**64, 40_000, np.uint64)
    for rate in (0.1, 0.01):
        found = BloomFilter.empty(items=20_000, false_positive_rate=rate)
        found.add(everything[:20_000])
        assert rate / 2 < found.may_hold(everything[20_000:]).mean() < rate * 1.5


@pytest.mark.sweep
@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=5),
        st.dictionaries(st.text(max_size=5), st.none() | st.binary(max_size=9), min_size=1),
        max_size=4,
    )
)
def test_a_container_gives_back_what_was_put_in(indexes: dict[str, dict[str, bytes | None]]) -> None:
    """Whatever the names: Java writes zero bytes and letters outside of the first plane in its own way."""
    packed = pack_indexes(indexes)
    assert unpack_indexes(packed, source="x") == indexes
    for cut in range(0, len(packed), 7):
        with pytest.raises(CorruptDataError):
            unpack_indexes(packed[:cut], source="x")


# ---- reading


def _indexed_table(io: MemoryFileIO | None = None, **more: str) -> FileTable:
    schema = indexed_rows().schema
    options = {**INDEXED.options, **more}
    catalog = memory_catalog(io)
    return catalog.create_table("db.t", schema, options=options)


def _all_files(table: FileTable) -> list[tuple[str, Any]]:
    live = LiveFiles.latest(table.store)
    return [
        (table.store.file_path(key.partition, key.bucket, file), file)
        for key in live.buckets()
        for file in live.files(key)
    ]


def _spoil(table: FileTable) -> None:
    """Whoever opens a data file now fails; indexes are as they were."""
    for path, _ in _all_files(table):
        table.store.io.files[path] = b"spoilt"  # type: ignore[attr-defined]


HITS = "text = '41' or big = 5 or real in (1.0, 77.0) or double = 0.0 or bytes = X'000102'"
MISSES = ["text = 'nobody'", "big in (1, 3)", "id = 77 and text = 'nobody'", "small = 1 or day = DATE '1960-11-30'"]


@pytest.mark.parametrize("threshold", ["0 b", "1 mb"])
@pytest.mark.parametrize("where", MISSES)
def test_files_without_the_value_are_not_opened(where: str, threshold: str) -> None:
    """Beside the file or in the manifest; a switch turns it off, and an index that is lost costs only time."""
    table = _indexed_table(**{"file-index.in-manifest-threshold": threshold, "metadata.stats-mode": "none"})
    table.write(indexed_rows())
    assert bool(_all_files(table)[0][1].extra_files) == (threshold == "0 b")
    assert bool(_all_files(table)[0][1].embedded_index) == (threshold == "1 mb")
    _spoil(table)
    assert table.read().to_arrow(filter=where).num_rows == 0
    with pytest.raises(CorruptDataError):
        table.with_options({"file-index.read.enabled": "false"}).read().to_arrow(filter=where)
    with pytest.raises(CorruptDataError):
        table.read().to_arrow(filter=HITS)
    for path, file in _all_files(table):
        for name in file.extra_files:
            table.store.io.delete(f"{path.rpartition('/')[0]}/{name}")
    if threshold == "0 b":
        with pytest.raises(CorruptDataError):
            table.read().to_arrow(filter=where)


def test_what_is_there_is_found_by_every_type() -> None:
    """A row is found by each of its values: nulls, zeros of both signs, NaN."""
    table = _indexed_table()
    table.write(indexed_rows())
    plain = table.with_options({"file-index.read.enabled": "false"})
    more = ["double = 0.0", "double = -0.0", "double = double('NaN')", "text is null", "text <> '41'"]
    for where in (HITS, *more, "id = 41 or text = 'nobody'"):
        found = table.read().to_arrow(["id"], filter=where)
        assert found.equals(plain.read().to_arrow(["id"], filter=where))
        assert found.num_rows > 0


def test_zeros_are_equal_whatever_their_sign() -> None:
    """They have different bits, and a filter knows bits only."""
    for stored, asked in ((-0.0, "0.0"), (0.0, "-0.0")):
        schema = pa.schema([("d", pa.float64()), ("f", pa.float32())])
        table = memory_catalog().create_table("db.t", schema, options={BLOOM: "d,f"})
        table.write(pa.table({"d": [stored], "f": [stored]}, schema=schema))
        assert table.read().to_arrow(filter=f"d = {asked} and f in ({asked}, 9)").num_rows == 1


def found(table: FileTable, where: str) -> dict[int, int | None]:
    """The rows of a table of KEY_SCHEMA that a filter wants."""
    return {row["id"]: row["v"] for row in table.read().to_arrow(["id", "v"], filter=where).to_pylist()}


@pytest.mark.parametrize("threshold", ["0 b", "1 mb"])
def test_a_newer_version_is_never_passed_over(threshold: str) -> None:
    """Its index knows that it does not match; but without it the older version would."""
    table = key_table(bucket="1", **{BLOOM: "id,v", "file-index.in-manifest-threshold": threshold})
    table.write(rows((1, 1)))
    table.write(rows((1, 50)))
    for where in ("id = 1 and v = 1", "v = 1", "id in (1, 2) and v in (1, 3)"):
        assert found(table, where) == {}


@pytest.mark.sweep
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_read_with_indexes_has_the_rows_of_a_read_without(data: st.DataObject) -> None:
    """Over random histories of a key table: an older version must not appear because a newer one was passed over."""
    table = key_table(
        bucket="1",
        **{
            BLOOM: "id,v",
            "file-index.in-manifest-threshold": data.draw(st.sampled_from(["0 b", "1 kb"])),
            "num-sorted-run.compaction-trigger": "3",
            "metadata.stats-mode": "none",
        },
    )
    known: dict[int, int | None] = {}
    for _ in range(data.draw(st.integers(1, 6))):
        batch = data.draw(st.dictionaries(st.integers(0, 9), st.none() | st.integers(0, 3), min_size=1, max_size=4))
        gone = data.draw(st.booleans())
        table.write(rows(*batch.items()), pa.array(["-D" if gone else "+I"] * len(batch)))
        for key, value in batch.items():
            known.pop(key, None) if gone else known.update({key: value})
        if data.draw(st.booleans()):
            table.compact(full=data.draw(st.booleans()))
    for wanted in range(4):
        expected = {key: value for key, value in known.items() if value == wanted}
        assert found(table, f"v = {wanted}") == expected
        expected = {key: value for key, value in known.items() if key in (wanted, wanted + 4)}
        assert found(table, f"id in ({wanted}, {wanted + 4})") == expected
        expected = {key: value for key, value in known.items() if key == wanted and value == 1}
        assert found(table, f"id = {wanted} and v = 1") == expected


# ---- the files


def _key_table(io: MemoryFileIO | None = None) -> FileTable:
    return key_table(io, bucket="1", **{BLOOM: "v", "file-index.in-manifest-threshold": "0 b"})


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_whatever_dies_no_index_is_left_that_nobody_knows(when: When) -> None:
    """Writers, compactions and the procedure leave nothing behind that the search for orphans does not take."""

    def work(table: FileTable) -> None:
        table.write(rows((1, 9), (4, 4)))
        table.compact(full=True)
        write_indexes(table.with_options({BLOOM: "id,v"}).store)

    before = _key_table()
    before.write(rows((1, 1), (2, 2)))
    disks = Disks()
    for fail_at in range(1, 400):
        table, again, faulty = failing_at(before, fail_at, when)
        try:
            work(again)
        except (FluvialError, OSError):
            assert faulty.calls >= fail_at
        if not disks.is_new(table.store.io) and faulty.calls >= fail_at:
            continue
        assert content(table) in ({1: 1, 2: 2}, {1: 9, 2: 2, 4: 4})
        delete_orphans(table.store, find_orphans(table.store, before_ms=10**15), progress=lambda done, of: None)
        assert files_there(table) == used_files(table)
        for path, file in _all_files(table):
            name = index_file_of(file)
            assert name is not None
            assert table.store.io.exists(f"{path.rpartition('/')[0]}/{name}")
        if faulty.calls < fail_at:
            break
    else:
        pytest.fail("more operations than expected")


def test_files_that_are_not_committed_go_with_their_indexes() -> None:
    table = _key_table()
    before = files_there(table)
    discard(table.store, messages_of(table, rows((1, 1))))
    writer = table.new_write(max_sequence_numbers={}, budget_bytes=1)
    writer.write(rows((1, 1)))
    writer.write(rows((2, 2)))
    assert any(path.endswith(INDEX_SUFFIX) for path in files_there(table))
    writer.abort()
    assert files_there(table) == before


def test_indexes_go_with_their_files() -> None:
    """Expiry takes the index with the data; a file that only changed its level keeps its index."""
    table = _key_table()
    for number in range(3):
        table.write(rows((number, number)))
    table.compact(full=True)
    assert sum(path.endswith(INDEX_SUFFIX) for path in files_there(table)) >= 3
    assert list(expire_snapshots(table.store, Retention(min_count=1, max_count=1, age_ms=10**15, limit=1000)))
    assert files_there(table) == used_files(table)
    assert sum(path.endswith(INDEX_SUFFIX) for path in files_there(table)) == len(_all_files(table))


def test_older_files_get_their_indexes_later() -> None:
    """``rewrite_file_index``: data files stay, readers of older snapshots too; what has its index is left alone."""
    table = key_table(bucket="2", **{"metadata.stats-mode": "none"})
    table.write(rows(*((number, number) for number in range(50))))
    asking = table.with_options({BLOOM: "v", "file-index.in-manifest-threshold": "0 b"})
    before = {path for path, _ in _all_files(table)}
    done = write_indexes(asking.store)
    assert (done.partitions, done.files) == (1, 2)
    assert {path for path, _ in _all_files(table)} == before
    assert content(table) == content(table, snapshot_id=1) == {number: number for number in range(50)}
    again = write_indexes(asking.store)
    assert (again.files, again.committed) == (0, None)
    also = write_indexes(asking.with_options({BLOOM: "v,id"}).store)
    assert also.files == 2
    _spoil(table)
    assert found(table, "v = 77") == {}
    with pytest.raises(CorruptDataError):
        found(table, "v = 7")
    with pytest.raises(InvalidInputError, match=r"bloom-filter\.columns"):
        write_indexes(table.store)


@pytest.mark.parametrize("threshold", ["0 b", "1 mb"])
def test_the_system_table_tells_which_file_has_which_index(threshold: str) -> None:
    """``$file_indexes``, with Paimon's columns: files without one, and those whose index is lost, are not in it."""
    table = key_table(bucket="1", **{"file-index.in-manifest-threshold": threshold})
    table.write(rows((7, 7)))
    table = table.with_options({BLOOM: "id,v"})
    table.write(rows((1, 1), (2, 2)))
    found = SYSTEM_TABLES["file_indexes"].read(table.store).to_pylist()
    assert [(each["column_name"], each["index_type"], each["record_count"]) for each in found] == [
        ("id", "bloom-filter", 2),
        ("v", "bloom-filter", 2),
    ]
    [(_, file)] = [each for each in _all_files(table) if each[1].row_count == 2]
    is_embedded = threshold == "1 mb"
    for each in found:
        assert each["storage_type"] == ("EMBEDDED" if is_embedded else "FILE")
        assert each["index_file_path"] == (None if is_embedded else each["file_path"] + INDEX_SUFFIX)
        assert each["file_path"].endswith(file.file_name)
        assert 4 < each["index_size_in_bytes"] < each["index_container_size_in_bytes"]
        assert each["is_empty"] is False
    if not is_embedded:
        table.store.io.delete(found[0]["index_file_path"])
        assert SYSTEM_TABLES["file_indexes"].read(table.store).num_rows == 0


def test_a_renamed_column_is_still_asked_by_its_own_index() -> None:
    """The index has the name of then; options follow the column; another column of that name has no index yet."""
    catalog = memory_catalog()
    options = {"bucket": "1", BLOOM: "v", "file-index.bloom-filter.v.fpp": "0.01", "metadata.stats-mode": "none"}
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options=options)
    table.write(rows((1, 1), (2, 2)))
    changes = [RenameColumn(path=("v",), name="w"), AddColumn(path=("v",), type=DataType(root="BIGINT"))]
    catalog.alter_table("db.t", changes)
    table = catalog.table("db.t")
    assert {key: text for key, text in table.schema.options.items() if key.startswith("file-index")} == {
        BLOOM: "w",
        "file-index.bloom-filter.w.fpp": "0.01",
    }
    assert table.read().to_arrow(["id"], filter="w = 2").to_pylist() == [{"id": 2}]
    assert table.read().to_arrow(["id"], filter="v = 2").num_rows == 0
    assert table.read().to_arrow(["id"], filter="v is null and w = 1").num_rows == 1
    with pytest.raises(InvalidInputError, match="used"):
        catalog.alter_table("db.t", [DropColumn(path=("w",))])
    _spoil(table)
    assert table.read().to_arrow(["id"], filter="w = 3").num_rows == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({BLOOM: "v,nobody"}, "column=nobody"),
        ({"file-index.bitmap.columns": "v"}, "file indexes of this kind are not written"),
        ({BLOOM: "v", "file-index.bloom-filter.v.fpp": "0"}, r"fpp value='0' expected='above 0"),
        ({BLOOM: "v", "file-index.bloom-filter.v.fp": "0.1"}, "unknown option of a bloom filter"),
        ({BLOOM: "v", "file-index.bloom-filter.id.fpp": "0.1"}, "unknown option of a bloom filter"),
    ],
)
def test_mistakes_in_the_options_are_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        key_table(bucket="1", **options)


def test_types_without_a_hash_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="type=BOOLEAN"):
        memory_catalog().create_table("db.t", pa.schema([("a", pa.bool_())]), options={BLOOM: "a"})
