"""A plan of many files keeps columns: it is the plan of objects, and makes objects of what a reader looks at."""

import pickle
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.manifest import live_rows
from filestore.manifest.commit_message import CommitMessage
from filestore.scan import table_scan
from filestore.scan.data_split import DataSplit
from filestore.scan.table_scan import TableScan
from filestore.table import FileTable
from filestore.types.binary_row import encode_row
from tests.support.entries import file
from tests.support.tables import key_table, memory_catalog

SCHEMA = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("v", pa.int64())])


def planned(table: FileTable, *, from_columns: bool, block: int = 3, **wanted: Any) -> tuple[DataSplit, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_scan, "MANY_FILES", 0 if from_columns else 1 << 30)
        patch.setattr(table_scan, "BLOCK_FILES", block)
        splits = TableScan(table.store).plan(**wanted).splits
        assert all(isinstance(each.files, tuple) is not from_columns for each in splits)
        for each in splits:
            len(each.files)
            assert tuple(each.files) == each.files
        return tuple(replace(each, files=tuple(each.files)) for each in splits)


def publish(table: FileTable, *messages: CommitMessage) -> None:
    committable = Committable(identifier=BATCH_IDENTIFIER, messages=messages)
    latest = table.store.snapshots.latest_ref()
    table.new_commit(table.store.new_commit_user()).replace_files(committable, only_after=latest.id)


FILES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),  # partition
        st.integers(0, 2),  # bucket
        st.integers(0, 2),  # level
        st.tuples(st.integers(-9, 20), st.integers(0, 4)),  # first key and how many
        st.sampled_from([0, 0, 0, 2, None]),  # deletes
        st.integers(1, 90),  # bytes
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.sweep
@settings(max_examples=60, deadline=None, derandomize=True)
@given(FILES, st.integers(1, 5), st.sampled_from([None, "dt = 'a'", "dt IS NULL"]))
@example([("a", 0, 1, (0, 9), 0, 50), ("a", 0, 1, (10, 9), 0, 51), ("a", 0, 0, (15, 1), 0, 1)], 1, None)
@example([("a", 0, 1, (0, 9), 0, 50), ("a", 0, 0, (9, 3), 0, 51)], 1, None)
def test_a_plan_of_columns_is_the_plan_of_objects(given_files: list[Any], commits: int, text: str | None) -> None:
    """Issue 17 item 5: any order of keys, sizes, deletes and levels, from one manifest or several."""
    options = {"bucket": "3", "manifest.merge-min-count": "1000"}
    options |= {"source.split.target-size": "100b", "source.split.open-file-cost": "20b"}
    table = key_table(schema=SCHEMA, primary_key=["dt", "id"], partition_by=["dt"], **options)
    store = table.store
    for commit in range(commits):
        messages = []
        for number, (value, bucket, level, (low, count), deletes, size_bytes) in enumerate(given_files):
            if number % commits == commit:
                made = file(f"data-{number}.parquet", level=level, sequence=(number, number), size_bytes=size_bytes)
                keys = [encode_row((each,), store.key_types) for each in (low, low + count)]
                made = replace(made, min_key=keys[0], max_key=keys[1], delete_row_count=deletes, creation_time_ms=None)
                partition = encode_row((value,), store.partition_types)
                messages.append(
                    CommitMessage(partition=partition, bucket=bucket, total_buckets=3, compact_after=(made,))
                )
        if messages:
            publish(table, *messages)
    for wanted in ({"filter": text}, {"filter": text, "buckets": {1}}):
        assert planned(table, from_columns=True, **wanted) == planned(table, from_columns=False, **wanted)


@pytest.mark.parametrize(
    "options",
    [
        {"bucket": "2"},
        {"bucket": "2", "deletion-vectors.enabled": "true"},
        {"bucket": "1", "merge-engine": "first-row"},
        {"bucket": "2", "row-counts": "true"},
        {"bucket": "2", "bucket-key": "id"},
        {"bucket": "-1"},
    ],
    ids=lambda options: " ".join(options),
)
def test_tables_of_each_kind_are_planned_alike(options: dict[str, str]) -> None:
    has_key = options.keys() & {"deletion-vectors.enabled", "merge-engine"} or options == {"bucket": "2"}
    key = ["dt", "id"] if has_key else []
    table = memory_catalog().create_table("db.t", SCHEMA, primary_key=key, partition_by=["dt"], options=options)
    for first in (0, 40, 20, 30):
        ids = range(first, first + 30)
        table.write(pa.table({"dt": ["a", "b"] * 15, "id": ids, "v": ids}, schema=SCHEMA))
    if "merge-engine" in options:
        table.compact(full=True)  # before, none of its rows is seen
    plan = planned(table, from_columns=True)
    assert plan == planned(table, from_columns=False)
    assert plan
    assert any(each.deletion_vectors for each in plan) == ("deletion-vectors.enabled" in options)


@pytest.mark.sweep
def test_objects_are_made_of_the_files_that_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting, sizes and routing of splits need none; a reader of one split needs those of its block."""
    made = 0
    inner = live_rows.entries_at

    def counting(columns: Any, rows: Any = None) -> Any:
        nonlocal made
        found = inner(columns, rows)
        made += len(found)
        return found

    monkeypatch.setattr(live_rows, "entries_at", counting)
    monkeypatch.setattr(table_scan, "MANY_FILES", 100)
    monkeypatch.setattr(table_scan, "BLOCK_FILES", 100)
    table = key_table(schema=SCHEMA, primary_key=["dt", "id"], partition_by=["dt"], bucket="1")
    store = table.store
    keys = [encode_row((each,), store.key_types) for each in range(5000)]
    files = [
        replace(
            file(f"data-{n}.parquet", level=5, size_bytes=1 << 30), min_key=each, max_key=each, creation_time_ms=None
        )
        for n, each in enumerate(keys)
    ]
    partition = encode_row(("a",), store.partition_types)
    publish(table, CommitMessage(partition=partition, bucket=0, total_buckets=1, compact_after=tuple(files)))
    made = 0
    splits = TableScan(store).plan().splits
    assert sum(len(each.files) for each in splits) == len(splits) == 5000
    assert made == 0
    assert splits[4321].files[0].file_name == "data-4321.parquet"
    assert made == 100
    again = pickle.loads(pickle.dumps(splits[4322]))
    assert again == splits[4322]
    assert type(again.files) is tuple
    assert DataSplit.from_json(splits[4322].to_json()) == again
    assert made == 100
    assert [each.files[0].file_name for each in splits] == [each.file_name for each in files]
    assert made <= 100 + 5000


def test_keys_of_columns_have_the_order_of_keys_of_objects() -> None:
    """-0.0 before 0.0, NaN last, texts by their bytes, numbers by value."""
    columns: dict[pa.DataType, list[Any]] = {
        pa.float64(): [0.0, -0.0, float("nan"), float("-inf"), -1.5, 2.0, float("inf")],
        pa.float32(): [0.0, -0.0, float("nan"), -1.5, 2.0],
        pa.string(): ["", "a", "ab", "a long text behind", "é", "𝄞", "￿"],
        pa.binary(): [b"", b"\xff", b"a", b"a long value behind"],
        pa.int8(): [-1, 0, 1],
        pa.bool_(): [True, False],
        pa.date32(): [-3, 0, 7],
        pa.timestamp("us"): [-3, 0, 7],
        pa.decimal128(10, 2): [Decimal("-1.50"), Decimal("0.00"), Decimal("7.25")],
        pa.decimal128(30, 2): [Decimal("-1.50"), Decimal("0.00"), Decimal("12345678901234567890.25")],
    }
    for kind, values in columns.items():
        schema = pa.schema([("k", kind), ("n", pa.int64())])
        store = key_table(schema=schema, primary_key=["k", "n"]).store
        rows = [encode_row((value, number), store.key_types) for number in (5, -5) for value in values]
        rows = [*rows, *rows[:3]]
        ranks = store.key_ranks(pa.array(rows, pa.large_binary())).tolist()
        keys = store.keys_of(rows)
        distinct = sorted(set(keys))
        assert ranks == [distinct.index(each) for each in keys], kind
    assert store.key_ranks(pa.array([], pa.large_binary())).tolist() == []
