import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.format.simple_stats import EMPTY_STATS, SimpleStats
from filestore.io.file_io import LocalFileIO, RandomNames
from filestore.layout.paths import TablePaths
from filestore.manifest import manifest_store
from filestore.manifest.avro_schemas import INDEX_MANIFEST_SCHEMA, MANIFEST_LIST_SCHEMA, MANIFEST_SCHEMA
from filestore.manifest.entries import DataFileMeta, EntryKind, ManifestEntry, live_entries
from filestore.manifest.lists import ManifestFileMeta, describe_manifest
from filestore.manifest.live_rows import ChosenEntries
from filestore.manifest.manifest_store import ManifestStore
from filestore.manifest.record_files import decoded_records
from filestore.schema.schema_store import SchemaStore
from filestore.snapshot.snapshot import Snapshot
from filestore.snapshot.snapshot_store import SnapshotStore
from filestore.types.binary_row import decode_row, encode_row
from filestore.types.data_types import DataType, parse_data_type
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError
from tests.support.entries import any_entries, any_files
from tests.support.faults import CountedNames, MemoryFileIO
from tests.support.vectors import GOLDEN, PROPERTY, golden_tables, typed_rows

PATHS = TablePaths("/w/db.db/t")
STRING = parse_data_type("STRING")
TABLES = golden_tables()


def store_of(files: MemoryFileIO | None = None, **arguments: Any) -> ManifestStore:
    given_types: Sequence[DataType] = arguments.pop("partition_types", ())
    arguments.setdefault("external_roots", ["/elsewhere"])
    return ManifestStore(files or MemoryFileIO(), PATHS, CountedNames(), partition_types=given_types, **arguments)


def file(name: str = "data-1.parquet", **changes: Any) -> DataFileMeta:
    key = encode_row((1,), (parse_data_type("INT"),))
    first = DataFileMeta(
        file_name=name,
        size_bytes=1000,
        row_count=10,
        min_key=key,
        max_key=key,
        key_stats=SimpleStats(min_values=key, max_values=key, null_counts=(0,)),
        value_stats=EMPTY_STATS,
        min_sequence_number=0,
        max_sequence_number=9,
        schema_id=0,
        level=0,
        creation_time_ms=1_795_211_387_410,
        delete_row_count=0,
        file_source=0,
        value_stats_cols=(),
    )
    return replace(first, **changes)


def entry(name: str = "data-1.parquet", kind: EntryKind = EntryKind.ADD, **changes: Any) -> ManifestEntry:
    where: dict[str, Any] = {"partition": bytes(12), "bucket": 0, "total_buckets": 1}
    where |= {key: changes.pop(key) for key in list(changes) if key in where}
    return ManifestEntry(kind=kind, file=file(name, **changes), **where)


def as_kept_and_decoded(read: Callable[[], Any]) -> Any:
    """What is read of files that this process has written, and of their bytes, which is the same."""
    kept = read()
    manifest_store._SMALL.clear()
    assert read() == kept
    return kept


# ---- round trips


@pytest.mark.sweep
@PROPERTY
@given(st.lists(any_entries(), min_size=1, max_size=5), st.sampled_from(["zstd", "deflate", "none"]))
def test_manifests_give_back_their_entries(written: list[ManifestEntry], compression: str) -> None:
    """FL-150, FL-151, FL-152, FL-153, FL-154, FL-155, FL-156."""
    store = store_of(compression=compression)
    meta = store.write_manifest(written)
    assert as_kept_and_decoded(lambda: store.read_manifest(meta)) == store.read_manifest(meta.file_name) == written


@pytest.mark.sweep
@PROPERTY
@given(any_files())
def test_files_cross_processes_as_json(each: DataFileMeta) -> None:
    """FL-163: part of a task's message."""
    assert DataFileMeta.from_json(json.loads(json.dumps(each.to_json()))) == each


@pytest.mark.parametrize(
    "body", [{}, {"file_name": "x"}, {**file().to_json(), "min_key": "?"}, {**file().to_json(), "new": 1}]
)
def test_a_description_without_its_parts_is_corrupt(body: dict[str, Any]) -> None:
    with pytest.raises(CorruptDataError):
        DataFileMeta.from_json(body)


def test_lists_give_back_their_manifests() -> None:
    """FL-157, FL-158, FL-159."""
    disk = MemoryFileIO()
    store = store_of(disk)
    metas = [store.write_manifest([entry(f"data-{number}", level=number)]) for number in range(3)]
    name, size_bytes = store.write_list(metas)
    assert size_bytes == len(disk.files[PATHS.manifest(name)])
    assert as_kept_and_decoded(lambda: store.read_list(name, size_bytes)) == store.read_list(name, None) == metas


def test_an_empty_list_is_a_file_without_records() -> None:
    store = store_of()
    name, size_bytes = store.write_list([])
    assert size_bytes > 500
    assert as_kept_and_decoded(lambda: store.read_list(name, size_bytes)) == []


def test_a_manifest_is_never_empty() -> None:
    with pytest.raises(InvalidInputError):
        store_of().write_manifest([])


def test_names_are_new_and_java_like() -> None:
    store = store_of()
    assert store.write_manifest([entry()]).file_name == "manifest-00000000-0000-4000-8000-000000000000-0"
    assert store.write_list([])[0] == "manifest-list-00000000-0000-4000-8000-000000000001-0"
    assert store.write_index_manifest([]) == "index-manifest-00000000-0000-4000-8000-000000000002-0"


def test_a_taken_name_is_not_overwritten() -> None:
    disk = MemoryFileIO()
    store_of(disk).write_manifest([entry()])
    with pytest.raises(ConflictError):
        store_of(disk).write_manifest([entry("other")])


@pytest.mark.parametrize("compression", ["snappy", "lz4", ""])
def test_only_what_java_reads_is_written(compression: str) -> None:
    with pytest.raises(InvalidInputError, match=r"manifest\.compression"):
        store_of(compression=compression).write_list([])


# ---- what a list says about a manifest


def test_a_list_covers_all_entries_of_a_manifest() -> None:
    """FL-158, FL-159: deletes count as much as adds, or readers would skip them."""
    partitions = [encode_row((text,), (STRING,)) for text in ("b", "a", None, "b")]
    written = [
        entry("1", partition=partitions[0], bucket=3, level=0, schema_id=1),
        entry("2", partition=partitions[1], bucket=1, level=5, schema_id=4),
        entry("3", EntryKind.DELETE, partition=partitions[2], bucket=7, level=2),
        entry("4", EntryKind.DELETE, partition=partitions[3], bucket=2, level=0),
    ]
    meta = store_of(partition_types=(STRING,)).write_manifest(written)
    assert (meta.added_count, meta.deleted_count, meta.schema_id) == (2, 2, 4)
    assert (meta.min_bucket, meta.max_bucket, meta.min_level, meta.max_level) == (1, 7, 0, 5)
    assert decode_row(meta.partition_stats.min_values, (STRING,)) == ("a",)
    assert decode_row(meta.partition_stats.max_values, (STRING,)) == ("b",)
    assert meta.partition_stats.null_counts == (1,)


def test_the_partition_stats_of_an_unpartitioned_table_are_empty() -> None:
    assert store_of().write_manifest([entry()]).partition_stats == EMPTY_STATS


def test_partitions_that_are_not_numbers_have_no_bounds() -> None:
    double = parse_data_type("DOUBLE")
    written = [entry(str(value), partition=encode_row((value,), (double,))) for value in (1.0, float("nan"))]
    meta = store_of(partition_types=(double,)).write_manifest(written)
    assert decode_row(meta.partition_stats.min_values, (double,)) == (None,)


@pytest.mark.sweep
@PROPERTY
@given(st.lists(typed_rows(), min_size=1, max_size=5))
def test_partition_stats_bound_every_partition(rows: list[tuple[tuple[Any, ...], tuple[DataType, ...]]]) -> None:
    types = rows[0][1]
    values = [row for row, row_types in rows if row_types == types]
    written = [entry(str(index), partition=encode_row(row, types)) for index, row in enumerate(values)]
    found = describe_manifest("m", 1, written, types).partition_stats
    low, high = decode_row(found.min_values, types), decode_row(found.max_values, types)
    for index in range(len(types)):
        column = [row[index] for row in values]
        present = [each for each in column if each is not None]
        assert (low[index], high[index]) == ((min(present), max(present)) if present else (None, None))
        assert found.null_counts is not None
        assert found.null_counts[index] == column.count(None)


# ---- golden metadata


def open_table(table: Path) -> tuple[ManifestStore, list[Snapshot], tuple[DataType, ...]]:
    disk, paths = LocalFileIO(), TablePaths(str(table))
    schema = SchemaStore(disk, paths).latest()
    assert schema is not None
    types = tuple(field.type for field in schema.partition_fields)
    snapshots = SnapshotStore(disk, paths)
    return (
        ManifestStore(disk, paths, RandomNames(), partition_types=types),
        [snapshots.read(n) for n in snapshots.ids()],
        types,
    )


def lists_of(snapshot: Snapshot) -> list[tuple[str, int | None]]:
    lists = [
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
    ]
    if snapshot.changelog_manifest_list is not None:
        lists.append((snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size))
    return lists


def plain_records(path: Path) -> list[dict[str, Any]]:
    return decoded_records(path.read_bytes(), source=str(path), decode=dict)


@pytest.mark.parametrize("table", TABLES, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_golden_metadata_is_read_and_written_alike(table: Path) -> None:
    """FL-150 to FL-159: lists, manifests and index manifests by three writers, record for record."""
    store, snapshots, types = open_table(table)
    assert snapshots or table.name == "decoupled"
    for snapshot in snapshots:
        for name, size_bytes in lists_of(snapshot):
            metas = store.read_list(name, size_bytes)
            assert_same([meta.to_avro() for meta in metas], plain_records(table / "manifest" / name))
            for meta in metas:
                read = store.read_manifest(meta)
                records = plain_records(table / "manifest" / meta.file_name)
                assert_same([each.to_avro() for each in read], records)
                described = describe_manifest(meta.file_name, meta.size_bytes, read, types)
                carried = ("min_row_id", "max_row_id", "total_buckets", "extra_files")
                assert replace(described, **{name: getattr(meta, name) for name in carried}) == meta
                rewritten = store_of(partition_types=types)
                assert rewritten.read_manifest(rewritten.write_manifest(read)) == read
        if snapshot.index_manifest is not None:
            indexes = store.read_index_manifest(snapshot.index_manifest)
            assert_same(
                [each.to_avro() for each in indexes], plain_records(table / "manifest" / snapshot.index_manifest)
            )
            again = store_of()
            assert again.read_index_manifest(again.write_index_manifest(indexes)) == indexes


def assert_same(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    assert [known(each) for each in ours] == [known(each) for each in theirs]


UNKNOWN = {"_WRITE_COLS_SEQUENCES", "_TOTAL_BUCKETS", "_EXTRA_FILES"}


def known(record: dict[str, Any]) -> dict[str, Any]:
    """Without what pypaimon adds to lists and entries; in a list it is null, in an entry we keep the real ones."""
    is_list = "_NUM_ADDED_FILES" in record
    drop = UNKNOWN if is_list else {"_WRITE_COLS_SEQUENCES"}
    return {key: known(each) if key == "_FILE" else each for key, each in record.items() if key not in drop}


def test_live_files_of_a_compacted_golden_table() -> None:
    """FL-179: two level-0 files went, one on the top level came."""
    store, snapshots, _ = open_table(GOLDEN / "java-1.4.2" / "db.db" / "dedup")
    latest = snapshots[-1]
    read = [
        each
        for name, size in lists_of(latest)[:2]
        for meta in store.read_list(name, size)
        for each in store.read_manifest(meta)
    ]
    assert [(each.kind, each.file.level) for each in read[-3:]].count((EntryKind.DELETE, 0)) == 2
    assert [each.file.level for each in live_entries(read)] == [5]


def test_deletion_vectors_are_found() -> None:
    store, snapshots, _ = open_table(GOLDEN / "java-1.4.2" / "db.db" / "dv")
    (index,) = store.read_index_manifest(str(snapshots[-1].index_manifest))
    assert index.index_type == "DELETION_VECTORS"
    assert index.deletion_vectors is not None
    (vector,) = index.deletion_vectors
    assert (vector.offset, vector.length, vector.cardinality) == (1, 24, 2)


# ---- files of careless and of newer writers


def written_by_others(schema: Any, records: list[Any], codec: str = "null") -> bytes:
    buffer = io.BytesIO()
    fastavro.writer(buffer, fastavro.parse_schema(schema), records, codec=codec)
    return buffer.getvalue()


def read_back(body: bytes) -> list[ManifestEntry]:
    disk = MemoryFileIO()
    disk.files[PATHS.manifest("m")] = body
    return store_of(disk).read_manifest("m")


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy"])
def test_other_codecs_are_read(codec: str) -> None:
    assert read_back(written_by_others(MANIFEST_SCHEMA, [entry().to_avro()], codec)) == [entry()]


def test_a_union_at_the_top_is_read() -> None:
    """Old Java and Rust write it."""
    assert read_back(written_by_others(["null", MANIFEST_SCHEMA], [entry().to_avro()])) == [entry()]


def edited(schema: Any, change: Callable[[list[Any]], list[Any]]) -> Any:
    """The manifest schema with other fields in ``_FILE``."""
    copy = json.loads(json.dumps(schema))
    record = next(field for field in copy["fields"] if field["name"] == "_FILE")["type"]
    record["fields"] = change(record["fields"])
    return copy


NULLABLE = {
    "_CREATION_TIME",
    "_DELETE_ROW_COUNT",
    "_EMBEDDED_FILE_INDEX",
    "_FILE_SOURCE",
    "_VALUE_STATS_COLS",
    "_EXTERNAL_PATH",
    "_FIRST_ROW_ID",
    "_WRITE_COLS",
}


def test_fields_that_old_writers_did_not_know_are_null() -> None:
    schema = edited(MANIFEST_SCHEMA, lambda fields: [each for each in fields if each["name"] not in NULLABLE])
    (read,) = read_back(written_by_others(schema, [entry().to_avro()]))
    assert read.file == file(creation_time_ms=None, delete_row_count=None, file_source=None, value_stats_cols=None)


def test_fields_in_another_order_and_new_ones_do_not_matter() -> None:
    new = {"name": "_OF_THE_FUTURE", "type": ["null", "string"], "default": None}
    schema = edited(MANIFEST_SCHEMA, lambda fields: [new, *reversed(fields)])
    schema["name"] = "another_name"
    assert read_back(written_by_others(schema, [entry().to_avro()])) == [entry()]


def test_other_versions_are_refused() -> None:
    with pytest.raises(CorruptDataError, match="version is 3 instead of 2"):
        read_back(written_by_others(MANIFEST_SCHEMA, [entry().to_avro() | {"_VERSION": 3}]))


def test_a_file_of_something_else_is_refused() -> None:
    for schema, record in (("int", 1), ({"type": "record", "name": "x", "fields": []}, {}), ("string", "text")):
        with pytest.raises(CorruptDataError):
            read_back(written_by_others(schema, [record]))
    with pytest.raises(CorruptDataError):
        read_back(written_by_others(MANIFEST_SCHEMA, [entry().to_avro() | {"_KIND": 2}]))


def test_written_schemas_are_javas() -> None:
    """Field for field, as Java 1.4.2 has them in its files."""
    table = GOLDEN / "java-1.4.2" / "db.db" / "dv"
    snapshot = Snapshot.from_json((table / "snapshot" / "snapshot-4").read_bytes())
    store, _, _ = open_table(table)
    manifest = store.read_list(snapshot.delta_manifest_list, None)[0].file_name
    for name, ours in (
        (manifest, MANIFEST_SCHEMA),
        (snapshot.delta_manifest_list, MANIFEST_LIST_SCHEMA),
        (str(snapshot.index_manifest), INDEX_MANIFEST_SCHEMA),
    ):
        assert simplified(schema_in((table / "manifest" / name).read_bytes())) == simplified(ours)


def schema_in(body: bytes) -> Any:
    start = body.index(b"{")
    return json.JSONDecoder().raw_decode(body[start:].decode("utf-8", "replace"))[0]


def simplified(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: simplified(each) for key, each in schema.items() if key not in ("namespace", "default")}
    return [simplified(each) for each in schema] if isinstance(schema, list) else schema


# ---- truncated and garbled files


def one_manifest() -> tuple[MemoryFileIO, ManifestFileMeta]:
    disk = MemoryFileIO()
    return disk, store_of(disk).write_manifest([entry(f"data-{number}") for number in range(20)])


@pytest.mark.sweep
def test_a_truncated_manifest_names_file_and_sizes() -> None:
    disk, meta = one_manifest()
    path = PATHS.manifest(meta.file_name)
    body = disk.files[path]
    for size in range(len(body)):
        disk.files[path] = body[:size]
        with pytest.raises(
            CorruptDataError, match=f"file={path} size_bytes={size} expected_size_bytes={meta.size_bytes}"
        ):
            store_of(disk).read_manifest(meta)


def test_a_truncated_list_names_file_and_sizes() -> None:
    disk = MemoryFileIO()
    store = store_of(disk)
    name, size_bytes = store.write_list([store.write_manifest([entry()])])
    path = PATHS.manifest(name)
    body = disk.files[path]
    for size in range(len(body)):
        disk.files[path] = body[:size]
        with pytest.raises(CorruptDataError, match=f"size_bytes={size} expected_size_bytes={size_bytes}"):
            store.read_list(name, size_bytes)


def test_truncation_is_seen_without_a_size_too() -> None:
    """But for a file that ends behind its header: that is an empty list."""
    disk, meta = one_manifest()
    path = PATHS.manifest(meta.file_name)
    body = disk.files[path]
    seen_whole = []
    for size in range(len(body)):
        disk.files[path] = body[:size]
        try:
            seen_whole.append((size, store_of(disk).read_manifest(meta.file_name)))
        except CorruptDataError as error:
            assert path in str(error)  # noqa: PT017
    assert [read for _, read in seen_whole] == [[]]


def test_a_manifest_with_fewer_entries_than_its_list_says_is_corrupt() -> None:
    disk, meta = one_manifest()
    with pytest.raises(CorruptDataError, match="added=20 deleted=0 expected_added=21 expected_deleted=0"):
        store_of(disk).read_manifest(replace(meta, added_count=21))


@pytest.mark.sweep
@PROPERTY
@given(st.data())
def test_a_garbled_manifest_is_corrupt_or_decodes(data: st.DataObject) -> None:
    disk, meta = one_manifest()
    path = PATHS.manifest(meta.file_name)
    body = bytearray(disk.files[path])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    disk.files[path] = bytes(body)
    try:
        read = store_of(disk).read_manifest(meta)
    except CorruptDataError as error:
        assert meta.file_name in str(error)  # noqa: PT017
    else:
        assert len(read) == 20


@PROPERTY
@given(st.binary(max_size=300))
def test_garbage_is_corrupt(body: bytes) -> None:
    for each in (body, b"Obj\x01" + body):
        with pytest.raises(CorruptDataError):
            read_back(each)


def test_a_missing_file_is_not_corruption() -> None:
    """Its snapshot may have expired meanwhile; the caller knows."""
    with pytest.raises(FileNotFoundError):
        store_of().read_list("manifest-list-gone", None)


# ---- which files are live


def test_adds_without_a_delete_are_live_in_their_order() -> None:
    read = [entry("a"), entry("b"), entry("c"), entry("b", EntryKind.DELETE)]
    assert live_entries(read) == [entry("a"), entry("c")]


def test_a_delete_may_stand_in_front_of_its_add() -> None:
    assert live_entries([entry("a", EntryKind.DELETE), entry("a")]) == []


@pytest.mark.parametrize(
    "other",
    [
        {"level": 5},
        {"bucket": 1},
        {"partition": b"x"},
        {"extra_files": ("a.index",)},
        {"embedded_index": b"x"},
        {"external_path": "/x"},
    ],
)
def test_a_delete_takes_away_its_own_identity_only(other: dict[str, Any]) -> None:
    """An upgrade deletes the file on one level and adds it on another."""
    assert live_entries([entry("a", **other), entry("a", EntryKind.DELETE)]) == [entry("a", **other)]


def test_other_facts_do_not_matter_to_identity() -> None:
    assert live_entries([entry("a"), entry("a", EntryKind.DELETE, row_count=99, total_buckets=4)]) == []


def test_a_file_that_is_live_twice_is_corrupt() -> None:
    with pytest.raises(CorruptDataError, match="file=a"):
        live_entries([entry("a"), entry("a")])


@PROPERTY
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 1)), unique=True))
def test_live_files_are_the_difference_of_sets(actions: list[tuple[str, int]]) -> None:
    read = [entry(name, EntryKind(kind)) for name, kind in actions]
    added = {name for name, kind in actions if kind == 0}
    deleted = {name for name, kind in actions if kind == 1}
    assert {each.file.file_name for each in live_entries(read)} == added - deleted


@pytest.mark.parametrize(
    ("roots", "path", "is_read"),
    [
        (["/mnt/fast"], "/mnt/fast/bucket-0/data-1.parquet", True),
        (["file:/mnt/fast/"], "file:///mnt/fast/data-1.parquet", True),
        (["s3://one/x", "s3://two"], "s3://two/data-1.parquet", True),
        (["/mnt/fast"], "/mnt/faster/data-1.parquet", False),
        (["/mnt/fast"], "/mnt/fast/../slow/data-1.parquet", False),
        (["/mnt/fast"], "/mnt/fast", False),
        (["/"], "/etc/passwd", False),
        ([], "/mnt/fast/data-1.parquet", False),
    ],
)
def test_external_files_lie_below_a_root_that_the_opener_allows(roots: list[str], path: str, is_read: bool) -> None:
    store = store_of(external_roots=roots)
    meta = store.write_manifest([entry(external_path=path)])
    if is_read:
        assert store.read_manifest(meta)[0].file.external_path == path
    else:
        with pytest.raises(InvalidInputError, match=r"option=external-paths.allowed .* fix="):
            store.read_manifest(meta)


def test_a_small_manifest_is_read_by_each_table_and_known_to_its_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the file says meanwhile is seen, and each table decides which paths it allows."""
    disk, decoded = MemoryFileIO(), []
    for name in ("decoded_records", "entry_columns_of"):
        function = getattr(manifest_store, name)
        counted = lambda *given, function=function, **more: decoded.append(1) or function(*given, **more)  # noqa: E731
        monkeypatch.setattr(manifest_store, name, counted)

    def read(store: ManifestStore) -> list[Any]:
        (columns,) = store.read_columns([meta])
        entries = store.entries_of([ChosenEntries(columns, np.arange(len(columns)))])
        assert entries == store.read_manifest(meta)
        return [entries, store.read_list(listed, size)]

    first = store_of(disk, external_roots=["/mnt/decoded-once"])
    meta = first.write_manifest([entry("decoded-once.parquet", external_path="/mnt/decoded-once/1.parquet")])
    listed, size = first.write_list([meta])
    found = read(first)
    assert decoded == []
    manifest_store._SMALL.clear()
    assert read(store_of(disk, external_roots=["/mnt/decoded-once"])) == found
    assert len(decoded) == 3  # columns, entries and the list
    assert read(store_of(disk, external_roots=["/mnt/decoded-once", "/more"])) == found
    assert len(decoded) == 3
    with pytest.raises(InvalidInputError, match=r"option=external-paths.allowed .* fix="):
        store_of(disk).read_manifest(meta)
    with pytest.raises(InvalidInputError, match="where who opens it allows none"):
        read(store_of(disk))
    path = PATHS.manifest(meta.file_name)
    disk.files[path] = disk.files[path][:-1]
    with pytest.raises(CorruptDataError, match="recorded size"):
        read(store_of(disk, external_roots=["/mnt/decoded-once"]))
