from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.read.split_read import BucketFiles
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.table import FileTable
from filestore.types.binary_row import EMPTY_ROW, encode_row
from filestore.types.data_types import DataField, parse_data_type
from filestore.write.table_write import TableWrite
from lsm.errors import InvalidInputError, UnavailableError
from lsm.row_kind import SEQUENCE_NUMBER, VALUE_KIND
from tests.support.faults import FaultyFileIO, MemoryFileIO
from tests.support.tables import KEY_SCHEMA, content, key_table, memory_catalog, rows


def physical_rows(table: FileTable, message: CommitMessage, file: DataFileMeta) -> list[dict[str, Any]]:
    """What a file holds, system columns included."""
    files = BucketFiles(table=table.store, partition=message.partition, bucket=message.bucket, files=[file])
    batches = list(files.read(file, table.schema.column_names, with_system=table.store.has_key))
    return pa.Table.from_batches(batches).to_pylist()


def written(table: FileTable, data: pa.Table, kinds: list[str] | None = None, **highest: int) -> list[CommitMessage]:
    writer = TableWrite(table, max_sequence_numbers={BucketKey(EMPTY_ROW, 0): highest.get("highest", -1)})
    writer.write(data, None if kinds is None else pa.array(kinds, pa.string()))
    return writer.prepare_commit()


# ---- one bucket


def test_a_flush_leaves_every_key_once_in_key_order_and_the_newest_wins() -> None:
    """FL-160, FL-161."""
    table = key_table()
    [message] = written(table, rows((3, 1), (1, 1), (3, 2), (2, 1)), ["+I", "+I", "+U", "-D"], highest=9)
    [file] = message.new_files
    assert physical_rows(table, message, file) == [
        {"id": 1, "v": 1, SEQUENCE_NUMBER: 11, VALUE_KIND: 0},
        {"id": 2, "v": 1, SEQUENCE_NUMBER: 13, VALUE_KIND: 3},
        {"id": 3, "v": 2, SEQUENCE_NUMBER: 12, VALUE_KIND: 2},
    ]
    assert (file.level, file.row_count, file.delete_row_count, file.file_source) == (0, 3, 1, 0)
    assert (file.min_sequence_number, file.max_sequence_number) == (11, 13)


def test_numbers_go_on_from_the_given_maximum_through_flushes_and_commits() -> None:
    table = key_table()
    writer = TableWrite(table, max_sequence_numbers=lambda partition, bucket: 99)
    writer.write(rows((1, 1), (2, 2)))
    writer.flush()
    writer.write(rows((1, 3)))
    first = writer.prepare_commit()
    writer.write(rows((1, 4)))
    second = writer.prepare_commit()
    numbers = [(f.min_sequence_number, f.max_sequence_number) for m in (*first, *second) for f in m.new_files]
    assert numbers == [(100, 101), (102, 102), (103, 103)]


def test_a_prepared_commit_hands_its_files_over_once() -> None:
    """FL-163."""
    table = key_table()
    writer = TableWrite(table, max_sequence_numbers={})
    writer.write(rows((1, 1)))
    assert len(writer.prepare_commit()) == 1
    assert writer.prepare_commit() == []


def test_messages_survive_a_process_border() -> None:
    table = key_table(bucket="3")
    messages = written(table, rows(*((n, n) for n in range(20))))
    assert len(messages) == 3
    assert [CommitMessage.from_json(each.to_json()) for each in messages] == messages


def test_abort_deletes_what_was_not_handed_over() -> None:
    disk = MemoryFileIO()
    table = key_table(disk, bucket="2")
    before = {*disk.files}
    writer = TableWrite(table, max_sequence_numbers={})
    writer.write(rows((1, 1), (2, 2), (3, 3)))
    writer.flush()
    assert {*disk.files} > before
    writer.abort()
    assert {*disk.files} == before


@pytest.mark.parametrize("fail_at", range(1, 6))
def test_a_failed_flush_and_its_abort_leave_nothing_behind(fail_at: int) -> None:
    disk = MemoryFileIO()
    table = key_table(disk)
    before = {*disk.files}
    io = FaultyFileIO(disk)
    writer = TableWrite(FileTable(replace(table.store, io=io)), max_sequence_numbers={})
    writer.write(rows((1, 1)))
    io.fail_at = io.calls + fail_at
    try:
        writer.flush()
    except UnavailableError:
        writer.abort()
        assert {*disk.files} == before
    else:
        assert fail_at > 2


# ---- kinds


def test_the_kind_may_stand_in_a_column() -> None:
    schema = pa.schema([("id", pa.int64()), ("op", pa.string())])
    table = key_table(schema=schema, **{"rowkind.field": "op"})
    [message] = written(table, pa.table({"id": [1, 2, 3], "op": ["+I", "-D", "+U"]}))
    assert [row[VALUE_KIND] for row in physical_rows(table, message, message.new_files[0])] == [0, 3, 2]


@pytest.mark.parametrize("symbol", ["I", "", None])
def test_what_is_no_row_kind_is_refused(symbol: str | None) -> None:
    schema = pa.schema([("id", pa.int64()), ("op", pa.string())])
    table = key_table(schema=schema, **{"rowkind.field": "op"})
    with pytest.raises(InvalidInputError, match="not a row kind: column=op row=1"):
        written(table, pa.table({"id": [1, 2], "op": pa.array(["+I", symbol], pa.string())}))


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        (pa.array([0, 4], pa.int8()), "not a row kind: row=1 value=4"),
        (pa.array([None, 0], pa.int8()), "not a row kind: row=0"),
        (pa.array([0], pa.int8()), "one row kind per row"),
    ],
)
def test_given_kinds_are_checked(kinds: pa.Array, text: str) -> None:
    writer = TableWrite(key_table(), max_sequence_numbers={})
    with pytest.raises(InvalidInputError, match=text):
        writer.write(rows((1, 1), (2, 2)), kinds)


def test_ignored_retracts_never_reach_a_file() -> None:
    """Other readers would take them for real ones (paimon-format.md 0.12)."""
    table = key_table(ignore_delete="true")
    [message] = written(table, rows((1, 1), (1, 1), (2, 2)), ["+I", "-D", "-U"])
    assert [row["id"] for row in physical_rows(table, message, message.new_files[0])] == [1]
    table = key_table(ignore_update_before="true")
    [message] = written(table, rows((1, 1), (2, 2)), ["-U", "-D"])
    assert [row["id"] for row in physical_rows(table, message, message.new_files[0])] == [2]


@pytest.mark.parametrize("kind", ["-D", "-U", "+U"])
def test_a_table_without_key_takes_inserts_only(kind: str) -> None:
    """The new row of an update would stand beside the old one, which a table without a key cannot find."""
    with pytest.raises(InvalidInputError, match="inserts only"):
        written(key_table(primary_key=()), rows((1, 1)), [kind])


@pytest.mark.parametrize("option", ["ignore_delete", "ignore_update_before"])
def test_a_table_without_key_takes_new_rows_of_updates_where_it_ignores_the_old_ones(option: str) -> None:
    table = key_table(primary_key=(), **{option: "true"})
    [message] = written(table, rows((1, 1), (1, 1), (1, 2)), ["+I", "-U", "+U"])
    assert message.new_files[0].row_count == 2


# ---- checks of values

CHECKED = [
    ("k", "INT NOT NULL"),
    ("name", "VARCHAR(3)"),
    ("code", "CHAR(2)"),
    ("raw", "VARBINARY(2)"),
    ("price", "DECIMAL(4, 2)"),
    ("small", "TINYINT"),
    ("at", "TIMESTAMP(3)"),
    ("must", "STRING NOT NULL"),
]
GOOD: dict[str, Any] = {
    "k": pa.array([1, 2], pa.int64()),
    "name": pa.array(["äöü", None]),
    "code": pa.array(["ab", "c"]).dictionary_encode(),
    "raw": pa.array([b"12", b""]),
    "price": pa.array([Decimal("99.99"), None], pa.decimal128(10, 2)),
    "small": pa.array([127, -128], pa.int32()),
    "at": pa.array([1_000_000, None], pa.timestamp("us")),
    "must": pa.array(["x", ""], pa.large_string()),
}


def checked_table() -> FileTable:
    fields = [DataField(id=n, name=name, type=parse_data_type(text)) for n, (name, text) in enumerate(CHECKED)]
    return memory_catalog().create_table("db.t", fields, primary_key=["k"])


def test_values_that_fit_are_cast_without_loss() -> None:
    table = checked_table()
    table.write(pa.table(GOOD))
    read = table.read().to_arrow()
    assert read.column("name").to_pylist() == ["äöü", None]
    assert read.column("price").to_pylist() == [Decimal("99.99"), None]
    assert read.schema.field("at").type == pa.timestamp("ms")


@pytest.mark.parametrize(
    ("column", "values", "text"),
    [
        ("k", pa.array([1, None], pa.int32()), "null in a NOT NULL column: column=k row=1"),
        ("k", pa.array([1, 2**31], pa.int64()), "does not fit the column: column=k .*2147483648"),
        ("k", pa.array(["1", "2"]), "another type: column=k given=string wanted=int32"),
        ("name", pa.array(["abc", "abcd"]), "too long: column=name row=1 value='abcd'"),
        ("code", pa.array(["abc", ""]), "too long: column=code row=0 value='abc'"),
        ("raw", pa.array([b"123", b""]), "too long: column=raw row=0 value=b'123'"),
        ("price", pa.array([Decimal("100.00"), None], pa.decimal128(5, 2)), "column=price"),
        ("price", pa.array([Decimal("1.005"), None], pa.decimal128(5, 3)), "column=price"),
        ("small", pa.array([128, 0], pa.int32()), "column=small .*128"),
        ("at", pa.array([1, 2], pa.timestamp("us")), "column=at"),
        ("at", pa.array([1, 2], pa.timestamp("ms", "UTC")), "another type: column=at"),
        ("must", pa.array(["x", None]), "null in a NOT NULL column: column=must row=1"),
        ("name", pa.array([1, 2]), "another type: column=name"),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name_and_value(column: str, values: pa.Array, text: str) -> None:
    """Readers do not check anything again (paimon-format.md 14.3)."""
    writer = TableWrite(checked_table(), max_sequence_numbers={})
    with pytest.raises(InvalidInputError, match=text):
        writer.write(pa.table({**GOOD, column: values}))
    assert writer.prepare_commit() == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda given: {**given, "extra": given["k"]}, "no such column: column=extra"),
        (
            lambda given: {name: given[name] for name in given if name != "must"},
            "NOT NULL column is missing: column=must",
        ),
    ],
)
def test_columns_must_be_the_tables(change: Callable[[dict[str, Any]], dict[str, Any]], text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        checked_table().write(pa.table(change(GOOD)))


def test_a_wrong_value_far_down_is_found_before_any_row_is_taken() -> None:
    table = key_table(primary_key=())
    count = (1 << 20) + 3
    values = np.zeros(count, np.int64)
    bad = pa.array(values, mask=np.arange(count) == count - 1)
    strict = memory_catalog().create_table("db.s", pa.schema([pa.field("v", pa.int64(), nullable=False)]))
    writer = TableWrite(strict, max_sequence_numbers={})
    with pytest.raises(InvalidInputError, match=r"column=v row=2 .* first_row=1048576"):
        writer.write(pa.table({"v": bad}))
    assert writer.size_bytes == 0
    writer = TableWrite(table, max_sequence_numbers={}, budget_bytes=1 << 20)
    writer.write(pa.table({"id": values, "v": values}, schema=KEY_SCHEMA))
    assert writer.size_bytes <= 1 << 20
    assert sum(message.row_count for message in writer.prepare_commit()) == count


def test_limits_inside_nested_values_are_checked() -> None:
    nested = parse_data_type(
        {"type": "ARRAY", "element": {"type": "ROW", "fields": [{"id": 2, "name": "f", "type": "VARCHAR(1)"}]}}
    )
    fields = [
        DataField(id=0, name="k", type=parse_data_type("INT")),
        DataField(id=1, name="n", type=nested),
    ]
    table = memory_catalog().create_table("db.t", fields, primary_key=["k"])
    arrow = table.schema.arrow_schema.field("n").type
    table.write(pa.table({"k": pa.array([1, 2], pa.int32()), "n": pa.array([[{"f": "a"}, None], None], arrow)}))
    with pytest.raises(InvalidInputError, match=r"too long: column=n.element.f row=0 value='ab'"):
        table.write(pa.table({"k": pa.array([1], pa.int32()), "n": pa.array([[None, {"f": "ab"}]], arrow)}))


def test_missing_nullable_columns_are_null() -> None:
    table = key_table()
    table.write(pa.table({"id": [1]}))
    assert content(table) == {1: None}


# ---- routing


@pytest.mark.sweep
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    data=st.lists(st.tuples(st.integers(-5, 5), st.sampled_from(["a", "b", None]), st.booleans()), min_size=1),
    bucket_count=st.integers(1, 4),
)
def test_every_row_goes_to_its_partition_and_bucket_in_order(
    data: list[tuple[int, str | None, bool]], bucket_count: int
) -> None:
    """FL-76, FL-141."""
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("q", pa.bool_()), ("n", pa.int64())])
    table = memory_catalog().create_table(
        "db.t", schema, partition_by=["p", "q"], options={"bucket": str(bucket_count), "bucket-key": "id"}
    )
    ids, texts, flags = (list(each) for each in zip(*data, strict=True))
    writer = TableWrite(table, max_sequence_numbers={})
    writer.write(pa.table({"id": ids, "p": texts, "q": flags, "n": range(len(data))}, schema=schema))
    found: dict[tuple[bytes, int], list[dict[str, Any]]] = {}
    for message in writer.prepare_commit():
        assert message.total_buckets == bucket_count
        found[message.partition, message.bucket] = [
            row for file in message.new_files for row in physical_rows(table, message, file)
        ]
    expected: defaultdict[bytes, list[dict[str, Any]]] = defaultdict(list)
    for number, (row_id, text, flag) in enumerate(data):
        partition = encode_row((text, flag), table.store.partition_types)
        expected[partition].append({"id": row_id, "p": text, "q": flag, "n": number})
    by_partition: defaultdict[bytes, list[dict[str, Any]]] = defaultdict(list)
    for (partition, _), part in found.items():
        assert [row["n"] for row in part] == sorted(row["n"] for row in part)
        by_partition[partition] += part
    assert {key: sorted(part, key=lambda row: row["n"]) for key, part in by_partition.items()} == expected
    places: defaultdict[int, set[int]] = defaultdict(set)
    for (_, bucket), part in found.items():
        for row in part:
            places[row["id"]].add(bucket)
    assert all(len(buckets) == 1 for buckets in places.values())


def test_keys_go_to_the_buckets_that_java_gives_them() -> None:
    """Source: paimon-format.md 5.2: INT keys 1, 2, 4, 5, 6 are in bucket 0 and 3 in bucket 1 of two."""
    schema = pa.schema([("id", pa.int32())])
    table = key_table(schema=schema, bucket="2")
    messages = written(table, pa.table({"id": pa.array(range(1, 7), pa.int32())}))
    found = {m.bucket: [row["id"] for f in m.new_files for row in physical_rows(table, m, f)] for m in messages}
    assert found == {0: [1, 2, 4, 5, 6], 1: [3]}


# ---- memory


def test_one_budget_holds_all_buckets_and_the_largest_is_flushed() -> None:
    """FL-161: a full buffer is flushed, and the flushed rows are not lost."""
    table = key_table(bucket="8")
    writer = TableWrite(table, max_sequence_numbers={}, budget_bytes=40_000)
    rng = np.random.default_rng(7)
    sizes = []
    for _ in range(40):
        ids = rng.integers(0, 1_000_000, 500)
        writer.write(pa.table({"id": ids, "v": ids}, schema=KEY_SCHEMA))
        sizes.append(writer.size_bytes)
    assert max(sizes) <= 40_000
    messages = writer.prepare_commit()
    assert sum(message.row_count for message in messages) <= 20_000
    assert sum(len(message.new_files) for message in messages) > 8


# ---- tables without a key


def test_rows_without_buckets_keep_their_order_and_count_from_zero() -> None:
    table = key_table(primary_key=())
    for start in (0, 3):
        table.write(rows(*((start + n, n) for n in range(3))))
    live = LiveFiles.latest(table.store)
    [key] = live.buckets()
    assert sorted((f.min_sequence_number, f.max_sequence_number) for f in live.files(key)) == [(0, 2), (0, 2)]
    assert live.total_buckets(key) == -1


def test_rows_of_a_fixed_bucket_are_numbered_on_and_read_in_order() -> None:
    table = key_table(primary_key=(), **{"bucket": "1", "bucket-key": "id"})
    for start in (0, 3):
        table.write(rows(*((start + n, n) for n in range(3))))
    live = LiveFiles.latest(table.store)
    [key] = live.buckets()
    assert sorted((f.min_sequence_number, f.max_sequence_number) for f in live.files(key)) == [(0, 2), (3, 5)]
    assert table.read().to_arrow().column("id").to_pylist() == list(range(6))


def test_small_writes_without_key_share_a_file() -> None:
    table = key_table(primary_key=())
    writer = TableWrite(table, max_sequence_numbers={}, budget_bytes=1)
    for number in range(5):
        writer.write(rows((number, number)))
    [message] = writer.prepare_commit()
    assert [file.row_count for file in message.new_files] == [5]


# ---- changelog producers


def test_every_input_row_goes_to_the_changelog_of_producer_input() -> None:
    """Source: paimon-format.md 6.6."""
    table = key_table(changelog_producer="input")
    [message] = written(table, rows((2, 1), (1, 1), (2, 2)), ["+I", "+I", "+U"])
    [changes] = message.changelog_files
    assert [(row["id"], row["v"], row[SEQUENCE_NUMBER]) for row in physical_rows(table, message, changes)] == [
        (1, 1, 1),
        (2, 1, 0),
        (2, 2, 2),
    ]
    table.write(rows((1, 5)))
    snapshot = table.store.snapshots.latest()
    assert snapshot is not None
    assert snapshot.changelog_manifest_list is not None
    assert snapshot.changelog_record_count == 1
    assert content(table) == {1: 5}


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_changelogs_of_compactions_are_not_the_writers(producer: str) -> None:
    table = key_table(changelog_producer=producer)
    table.write(rows((1, 1)))
    snapshot = table.store.snapshots.latest()
    assert snapshot is not None
    assert snapshot.changelog_manifest_list is None
    assert content(table) == {1: 1}


NANS = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000123], np.uint64).view(np.float64)


@pytest.mark.parametrize(
    "options",
    [
        {"bucket": "4"},
        {"bucket": "-1", "dynamic-bucket.target-row-num": "1"},
        {"bucket": "4", "deletion-vectors.enabled": "true"},
        {"bucket": "4", "changelog-producer": "input"},
    ],
    ids=["fixed", "dynamic", "vectors", "input"],
)
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_a_key_that_is_no_number_is_one_key_whatever_its_bits(kind: pa.DataType, options: dict[str, str]) -> None:
    schema = pa.schema([("id", kind), ("n", pa.int32()), ("v", pa.int64())])
    table = key_table(schema=schema, primary_key=["id", "n"], **options)

    def write(v: int, *ids: float, row_kind: str = "+I") -> None:
        columns = [pa.array(np.array(ids).astype(kind.to_pandas_dtype())), [1] * len(ids), [v] * len(ids)]
        table.write(pa.table(columns, schema=schema), pa.array([row_kind] * len(ids)))

    for v, value in enumerate(NANS):
        write(v, value, 1.5, -0.0, 0.0)
    found = table.read().to_arrow(columns=["id", "v"]).to_pylist()
    assert sorted(map(repr, found)) == sorted(repr({"id": each, "v": 2}) for each in (float("nan"), 1.5, -0.0, 0.0))
    write(9, NANS[1], row_kind="-D")
    assert sorted(repr(each["id"]) for each in table.read().to_arrow().to_pylist()) == ["-0.0", "0.0", "1.5"]


def test_a_bucket_key_has_one_nan() -> None:
    schema = pa.schema([("x", pa.float64()), ("id", pa.int64())])
    table = key_table(schema=schema, primary_key=[], **{"bucket": "4", "bucket-key": "x"})
    table.write(pa.table({"x": NANS, "id": [1, 2, 3]}, schema=schema))
    assert len([*LiveFiles.latest(table.store).buckets()]) == 1
    assert table.read().to_arrow().num_rows == 3
