"""Manifests as columns: the oracle reads entry by entry with fastavro, and folds objects."""

import tracemalloc
from dataclasses import replace
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.format.simple_stats import SimpleStats
from filestore.layout.paths import TablePaths
from filestore.manifest.avro_schemas import MANIFEST_SCHEMA
from filestore.manifest.avro_walk import PADDING, Field, walk_records
from filestore.manifest.entries import EntryKind, ManifestEntry, live_entries
from filestore.manifest.entry_building import entries_at
from filestore.manifest.entry_columns import (
    EntryColumns,
    columns_of_entries,
    encoded_of_entries,
    encoded_of_file,
    entry_columns_of,
)
from filestore.manifest.lists import ManifestFileMeta, describe_manifest
from filestore.manifest.live_rows import ChosenEntries, chosen_rows, live_rows
from filestore.manifest.manifest_store import ManifestStore, entry_rows
from filestore.manifest.record_files import decoded_records, record_bytes
from filestore.types.binary_row import encode_row
from filestore.types.data_types import parse_data_type
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.entries import add, any_entries, any_files, delete, file
from tests.support.faults import CountedNames, MemoryFileIO
from tests.support.vectors import PROPERTY, golden_tables

PATHS = TablePaths("/w/db.db/t")
STRING = parse_data_type("STRING")
PARTITIONS = [encode_row((text,), (STRING,)) for text in ("a", "b", None, "2026-11-23 and a long text")]
FEW = any_files(
    file_name=st.sampled_from(["f0", "f1", "f2"]),
    level=st.integers(0, 1),
    extra_files=st.sampled_from([(), (), ("f0.index",)]),
    embedded_index=st.sampled_from([None, None, b"x"]),
    external_path=st.sampled_from([None, None, "/elsewhere/f0"]),
)
COLLIDING = any_entries(
    partition=st.sampled_from(PARTITIONS[:2]), bucket=st.integers(0, 1), total_buckets=st.just(2), file=FEW
)


def manifest(entries: list[ManifestEntry], codec: str = "zstd") -> bytes:
    return record_bytes(MANIFEST_SCHEMA, [each.to_avro() for each in entries], compression=codec)


def columns_in(body: bytes) -> EntryColumns:
    encoded = encoded_of_file(body)
    assert encoded is not None
    columns = entry_columns_of([encoded])
    assert columns is not None, "read one by one"
    return columns


def everything(columns: EntryColumns) -> ChosenEntries:
    return ChosenEntries(columns, np.arange(len(columns)))


def one_by_one(body: bytes) -> list[ManifestEntry]:
    return decoded_records(body, source="m", decode=ManifestEntry.from_avro)


@pytest.mark.sweep
@PROPERTY
@given(st.lists(any_entries(partition=st.sampled_from(PARTITIONS)), min_size=1, max_size=30), st.data())
def test_columns_give_back_the_entries(written: list[ManifestEntry], data: st.DataObject) -> None:
    """FL-150 to FL-156: whatever the values are, all of them and any choice, in any order."""
    body = manifest(written)
    columns = columns_in(body)
    assert entries_at(columns) == one_by_one(body) == written
    chosen = data.draw(st.lists(st.integers(0, len(written) - 1), max_size=5))
    assert entries_at(columns, np.array(chosen, np.int64)) == [written[row] for row in chosen]
    assert [each.kind for each in entry_rows(columns)] == [each.kind for each in written]
    assert columns.buckets.tolist() == [each.bucket for each in written]
    assert columns.levels.tolist() == [each.file.level for each in written]
    assert columns.max_sequence_numbers.tolist() == [each.file.max_sequence_number for each in written]


@pytest.mark.sweep
@PROPERTY
@given(st.lists(st.lists(any_entries(), min_size=1, max_size=5), min_size=1, max_size=4))
def test_manifests_are_read_together_as_one_after_the_other(given: list[list[ManifestEntry]]) -> None:
    columns = entry_columns_of([encoded_of_entries(each) for each in given])
    assert columns is not None
    assert entries_at(columns) == [entry for each in given for entry in each]
    assert entries_at(columns_of_entries(given[0])) == given[0]


@pytest.mark.parametrize("table", golden_tables(), ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_golden_manifests_are_the_same_as_columns(table: Any) -> None:
    """FL-150 to FL-156: of Java, of pypaimon and our own."""
    for path in sorted((table / "manifest").glob("manifest-[!l]*")):
        body = path.read_bytes()
        encoded = encoded_of_file(body)
        if "java" in str(path):
            assert encoded is not None, "Java's schema is ours"
        found = one_by_one(body)
        columns = entry_columns_of([encoded_of_entries(found) if encoded is None else encoded])
        assert columns is not None
        assert entries_at(columns) == found


def test_bytes_that_look_like_the_start_of_an_entry_are_none() -> None:
    """Each value holds what an entry begins with, or all of one."""
    start = bytes([4, 0, 24, 0, 0, 0, 0])
    inner = encoded_of_entries([add(file("inner"))]).body
    written = [
        add(
            replace(
                file(f"f{n}"), min_key=start * n, embedded_index=inner * n, value_stats_cols=("\x04\x00\x18\0\0\0\0",)
            )
        )
        for n in range(9)
    ]
    assert entries_at(columns_in(manifest(written))) == written


COUNTS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1, -1, 63, 64]))


@pytest.mark.sweep
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.lists(COUNTS, max_size=20), min_size=1, max_size=6), st.sampled_from([1, 40, 400]), st.booleans())
def test_lists_of_any_length_are_read(parts: list[list[int | None]], longer: int, many: bool) -> None:
    """Null counts and names, beyond 4,096 items, of few entries and of so many that all are read side by side."""
    written = [
        add(
            replace(
                file(f"f{place}"),
                value_stats=SimpleStats(min_values=b"", max_values=b"", null_counts=tuple(counts * longer)),
                value_stats_cols=tuple(f"c{each}" for each in counts * longer),
            )
        )
        for place, counts in enumerate(parts * (30 if many and longer == 1 else 1))
    ]
    assert entries_at(columns_in(manifest(written))) == written
    assert entries_at(columns_of_entries(written)) == written


def test_as_many_columns_as_a_table_may_have_are_in_an_entry() -> None:
    counts = tuple(None if each % 7 else each for each in range(100_000))
    stats = SimpleStats(min_values=b"", max_values=b"", null_counts=counts)
    written = [add(replace(file(name), value_stats=stats)) for name in "ab"]
    assert entries_at(columns_in(manifest(written))) == written


@pytest.mark.parametrize("count", [2**62, 2**31, 10**6, 5_000])
@pytest.mark.parametrize("places", [1, 200])
def test_what_says_that_it_is_long_costs_no_more_memory_than_its_bytes(count: int, places: int) -> None:
    """Lists that end with the bytes, or would have all of them each: every place is marked, none is walked twice."""
    claim = BytesIO()
    fastavro.schemaless_writer(claim, "long", count)
    one = claim.getvalue() + b"\x02\x06" * 500
    data = np.frombuffer(one * places + bytes(PADDING), np.uint8)
    starts = np.arange(places) * len(one)
    for item in (Field(name="i", kind="number", is_nullable=True), Field(name="i", kind="bytes", is_nullable=False)):
        field = Field(name="a", kind="array", is_nullable=False, item=item)
        tracemalloc.start()
        read = walk_records(data, starts, [field])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert read.is_bad.any()
        assert peak < 100 * len(data) + 100_000


@pytest.mark.sweep
def test_many_entries_are_read_in_pieces() -> None:
    written = [add(file(f"f{n}", deletes=n), bucket=n % 7) for n in range(20_000)]
    columns = columns_in(manifest(written))
    assert entries_at(columns) == written
    assert entries_at(columns, np.array([3, 19_999])) == [written[3], written[19_999]]


@pytest.mark.sweep
@PROPERTY
@given(st.lists(COLLIDING, min_size=1, max_size=12), st.integers(0, 12))
def test_live_rows_are_the_live_entries(written: list[ManifestEntry], cut: int) -> None:
    """FL-179: any order of adds and deletes over two manifests; an entry that is live twice is refused."""
    parts = [everything(columns_of_entries(each)) for each in (written[:cut], written[cut:]) if each]
    try:
        expected = live_entries(written)
    except CorruptDataError as error:
        with pytest.raises(CorruptDataError, match=str(error)):
            live_rows(parts)
        return
    assert [entry for part in live_rows(parts) for entry in part.entries()] == expected


@pytest.mark.sweep
@PROPERTY
@given(
    st.lists(any_entries(partition=st.sampled_from(PARTITIONS), bucket=st.integers(-2, 3)), min_size=1, max_size=20),
    st.sets(st.sampled_from(PARTITIONS)),
    st.sets(st.integers(-2, 3)),
    st.integers(0, 3),
)
def test_rows_are_chosen_like_entries(
    written: list[ManifestEntry], partitions: set[bytes], buckets: set[int], min_level: int
) -> None:
    found = chosen_rows(
        columns_of_entries(written),
        keep_partition=partitions.__contains__,
        keep_bucket=lambda bucket, total: bucket in buckets and total > 0,
        min_level=min_level,
    )
    assert found.entries() == [
        each
        for each in written
        if each.partition in partitions
        and each.bucket in buckets
        and each.total_buckets > 0
        and (each.file.level >= min_level or min_level == 0)
    ]


# ---- the store


def store_of(disk: MemoryFileIO) -> ManifestStore:
    return ManifestStore(disk, PATHS, CountedNames(), partition_types=(STRING,), external_roots=["/elsewhere"])


@pytest.mark.sweep
@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(any_entries(partition=st.sampled_from(PARTITIONS)), min_size=1, max_size=9))
def test_copies_are_byte_for_byte_what_a_writer_of_entries_writes(written: list[ManifestEntry]) -> None:
    """FL-158: the same file, and the same statistics of it."""
    disk = MemoryFileIO()
    store = store_of(disk)
    first = store.write_manifest(written)
    again = store.write_rows(store.read_rows(first))
    assert disk.files[PATHS.manifest(again.file_name)] == disk.files[PATHS.manifest(first.file_name)]
    assert replace(again, file_name=first.file_name) == first
    some = store.read_rows(again)[1:]
    if some:
        meta = store.write_rows(some)
        assert meta == describe_manifest(meta.file_name, meta.size_bytes, written[1:], (STRING,))


def test_a_manifest_of_another_schema_is_read_entry_by_entry_and_copied_into_ours() -> None:
    """FL-151: fields of older and newer writers."""
    schema = {**MANIFEST_SCHEMA, "fields": [*reversed(MANIFEST_SCHEMA["fields"])]}
    written = [add(file(f"f{n}"), partition=PARTITIONS[0]) for n in range(100)]
    buffer = BytesIO()
    fastavro.writer(buffer, fastavro.parse_schema(schema), [each.to_avro() for each in written])
    disk = MemoryFileIO()
    disk.files[PATHS.manifest("theirs")] = buffer.getvalue()
    store = store_of(disk)
    meta = describe_manifest("theirs", len(buffer.getvalue()), written, (STRING,))
    assert encoded_of_file(buffer.getvalue()) is None
    assert store.read_manifest(meta) == written
    copy = store.write_rows(store.read_rows(meta))
    assert columns_in(disk.files[PATHS.manifest(copy.file_name)]).buckets.tolist() == [0] * 100
    assert store.read_manifest(copy) == written


def test_small_manifests_are_read_once_and_checked_against_their_list() -> None:
    """FL-157: the counts of each, also where several are read together."""
    disk = MemoryFileIO()
    store = store_of(disk)
    metas = [store.write_manifest([add(file(f"f{n}"), partition=PARTITIONS[n % 2])]) for n in range(5)]
    (columns,) = store.read_columns(metas)
    assert entries_at(columns) == [entry for meta in metas for entry in store_of(disk).read_manifest(meta)]
    disk.files.clear()
    assert store.read_columns(metas)[0] is columns
    assert len(store.read_columns(metas[1:])[0]) == 4, "of bytes that are known"

    disk = MemoryFileIO()
    metas = [store_of(disk).write_manifest([add(file("f"), partition=PARTITIONS[0])])]
    wrong: list[ManifestFileMeta] = [replace(metas[0], added_count=0, deleted_count=1)]
    with pytest.raises(CorruptDataError, match="added=1 deleted=0 expected_added=0 expected_deleted=1"):
        store_of(disk).read_columns(wrong)


@pytest.mark.parametrize("cut", range(1, 120, 7))
def test_a_damaged_manifest_is_never_other_entries(cut: int) -> None:
    """FL-162: without compression no decoder sees the damage but ours."""
    written = [add(file(f"f{n}"), partition=PARTITIONS[n % 4], bucket=n) for n in range(100)]
    body = bytearray(manifest(written, "none"))
    place = len(body) * cut // 120
    body[place] ^= 0xFF
    disk = MemoryFileIO()
    disk.files[PATHS.manifest("m")] = bytes(body)
    meta = describe_manifest("m", len(body), written, (STRING,))
    try:
        expected = store_of(disk).read_manifest("m")
    except CorruptDataError:
        with pytest.raises(CorruptDataError):
            store_of(disk).read_manifest(meta)
        return
    found = store_of(disk).read_columns([meta])
    assert [entry for each in found for entry in entries_at(each)] == expected


@pytest.mark.parametrize(
    "wrong", [{"level": 2**31}, {"level": -(2**31) - 1}, {"size_bytes": 2**63}, {"row_count": 2**64}]
)
def test_what_no_reader_takes_is_refused_before_it_is_written(wrong: dict[str, Any]) -> None:
    disk = MemoryFileIO()
    with pytest.raises(InvalidInputError, match=r"a manifest cannot hold these files: .* fix='nothing was committed"):
        store_of(disk).write_manifest([add(file("a")), add(replace(file("b"), **wrong))])
    assert disk.files == {}


# ---- the cache


def test_a_delete_after_its_add_leaves_nothing() -> None:
    rows = live_rows([everything(columns_of_entries([add(file("a")), add(file("b")), delete(file("a"))]))])
    assert [each.file.file_name for part in rows for each in part.entries()] == ["b"]
    assert EntryKind.DELETE not in {each.kind for part in rows for each in part.entries()}
