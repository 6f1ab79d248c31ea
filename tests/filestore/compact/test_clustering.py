"""Append tables in another order: exactly the same rows, in files that filters by several columns leave out."""

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Catalog, procedures
from filestore.changelog.snapshot_changes import plan_changes
from filestore.commit.table_commit import TableCommit
from filestore.compact.compactor import compact_buckets, pick_tasks, run_task
from filestore.compact.row_order import OrderStrategy, RowOrder, rows_in_order
from filestore.compact.task import CompactionTask
from filestore.scan.live_files import LiveFiles
from filestore.scan.snapshot_files import deletion_indexes
from filestore.table import FileTable
from filestore.write.row_deletion import delete_rows
from lsm.errors import InvalidInputError
from tests.support.tables import check_metadata, memory_catalog

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("d", pa.decimal128(20, 2)),
        ("t", pa.timestamp("us")),
        ("b", pa.bool_()),
        ("x", pa.binary()),
    ]
)
VALUES = st.tuples(
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text("abé\0", max_size=12) | st.integers(0, 99).map(lambda n: f"https://example.org/{n}"),
    st.none() | st.floats(),
    st.none() | st.decimals(Decimal(-(10**17)), Decimal(10**17), places=2),
    st.none() | st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)),
    st.none() | st.booleans(),
    st.none() | st.binary(max_size=12),
)


def given_rows(values: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*values, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def counted(rows: pa.Table) -> Counter[str]:
    return Counter(repr(tuple(row.values())) for row in rows.to_pylist())


def random_rows(count: int, seed: int = 7) -> pa.Table:
    random = np.random.default_rng(seed)
    a, b = random.integers(0, 10_000, count), random.integers(0, 10_000, count)
    return pa.table({"a": a, "b": b, "n": np.arange(count)})


def clustered(rows: pa.Table, order: RowOrder, *, budget_bytes: int, step: int = 100) -> pa.Table:
    def read(columns: Any) -> Any:
        yield from rows.select(columns).to_batches(max_chunksize=step)

    found = rows_in_order(read, rows.column_names, order, row_count=rows.num_rows, budget_bytes=budget_bytes)
    return pa.concat_tables([rows.slice(0, 0), *found])


@pytest.mark.sweep
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(VALUES, min_size=1, max_size=60),
    st.permutations(SCHEMA.names),
    st.integers(1, 7),
    st.sampled_from(OrderStrategy),
    st.sampled_from([1, 2_000, 1 << 20]),
)
def test_the_same_rows_whatever_the_memory(
    values: list[tuple[Any, ...]], names: list[str], count: int, strategy: OrderStrategy, budget_bytes: int
) -> None:
    """Issue 20 point 7: any values of any types, nulls, NaN, common beginnings; by one run, or by many and ranges."""
    rows, order = given_rows(values), RowOrder(columns=tuple(names[:count]), strategy=strategy)
    found = clustered(rows, order, budget_bytes=budget_bytes, step=7)
    assert found.schema == rows.schema
    assert counted(found) == counted(rows)
    if budget_bytes == 1 << 20 and strategy is OrderStrategy.ORDER and "f" not in names[:count]:
        expected = sorted(zip(*[rows[n].to_pylist() for n in names[:count]], strict=True), key=with_nulls_first)
        assert list(zip(*[found[n].to_pylist() for n in names[:count]], strict=True)) == expected


def with_nulls_first(key: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    plain = (value.encode() if isinstance(value, str) else value for value in key)
    return [(value is not None, value) if value is not None else (False,) for value in plain]


@pytest.mark.parametrize("strategy", OrderStrategy)
def test_ranges_of_many_runs_are_one_order(strategy: OrderStrategy) -> None:
    """Issue 20 point 7: what is sorted through files on disk is what is sorted in memory."""
    rows = random_rows(40_000)
    order = RowOrder(columns=("a", "b"), strategy=strategy)
    small, large = (clustered(rows, order, budget_bytes=budget, step=1_000) for budget in (200_000, 1 << 30))
    assert counted(small.slice(0, 5_000)) == counted(large.slice(0, 5_000))
    if strategy is OrderStrategy.ORDER:
        pairs = list(zip(small["a"].to_pylist(), small["b"].to_pylist(), strict=True))
        assert pairs == sorted(pairs)


def appended_in_parts(rows: pa.Table, **options: str) -> FileTable:
    table = memory_catalog().create_table(
        "db.t",
        rows.schema,
        options={"target-file-row-num": "1000", "sort-spill-buffer-size": "96 kb", **options},
    )
    for start in range(0, rows.num_rows, max(rows.num_rows // 4, 1)):
        table.write(rows.slice(start, max(rows.num_rows // 4, 1)))
    return table


@pytest.mark.sweep
@pytest.mark.parametrize("strategy", ["zorder", "hilbert"])
def test_a_filter_of_two_columns_reads_few_files(strategy: str) -> None:
    """Issue 20 point 7: a box of a tenth by a tenth; by the order of one column all files of that tenth are read."""
    rows = random_rows(30_000)
    filters = ("a < 1000 and b < 1000", "b < 1000", "a >= 4000 and a < 5000")
    planned = {}
    for name in ("order", strategy):
        table = appended_in_parts(rows)
        compact_buckets(table.store, full=True, order=RowOrder.of(table.store.schema, ["a", "b"], name))
        planned[name] = [sum(len(s.files) for s in table.read().plan(filter).splits) for filter in ("a >= 0", *filters)]
        assert table.read().to_arrow().sort_by("n").equals(rows)
    every, box, by_second, _ = planned[strategy]
    assert every >= 20
    assert box <= every // 10
    assert by_second <= every // 2  # by order: all
    assert planned["order"][2] == planned["order"][0]


@pytest.mark.sweep
def test_deleted_rows_stay_deleted_and_streams_see_no_change(tmp_path: Path) -> None:
    """Issue 20 point 7: one partition, others untouched; a dry run does nothing; no vector is left."""
    rows = random_rows(8_000).append_column("p", pa.array(["x", "y"] * 4_000))
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table(
        "db.t",
        rows.schema,
        partition_by=["p"],
        options={"deletion-vectors.enabled": "true", "sort-spill-buffer-size": "64 kb", "target-file-row-num": "500"},
    )
    for start in range(0, 8_000, 2_000):
        table.write(rows.slice(start, 2_000))
    delete_rows(table.store, "n < 2500 and a > 5000")
    expected = counted(table.read().to_arrow())
    assert 0 < expected.total() < 8_000
    before = table.latest_snapshot()
    dry = procedures.cluster(table, order_by="a, b", partitions="p=x", dry_run=True).to_pylist()
    assert dry == [
        {
            "partition": "p=x",
            "bucket": 0,
            "row_count": 4_000,
            "files_before": 4,
            "size_before_bytes": dry[0]["size_before_bytes"],
            "files_after": None,
            "size_after_bytes": None,
            "snapshot_id": None,
        }
    ]
    assert table.latest_snapshot() == before
    seen: list[tuple[int, int | None]] = []
    done = procedures.cluster(
        table, order_by="a,b", partitions="p=x", progress=lambda done, of: seen.append((done, of))
    ).to_pylist()
    assert [each["partition"] for each in done] == ["p=x"]
    assert seen == [(0, 1), (1, 1)]
    after = table.latest_snapshot()
    assert after is not None
    assert counted(table.read().to_arrow()) == expected
    assert plan_changes(table.store, before, after) == ()
    found = procedures.compact(table, where="p = 'y'", order_by="b").to_pylist()
    assert [each["partition"] for each in found] == ["p=y"]
    files = sum(len(split.files) for split in table.files.read().plan("p = 'y' and b < 100").splits)
    assert files < found[0]["files_after"]
    assert counted(table.read().to_arrow()) == expected
    assert found[0]["snapshot_id"] == table.latest_snapshot().id  # type: ignore[union-attr]
    assert deletion_indexes(table.store, table.latest_snapshot()) == {}  # nothing is deleted any more: it is gone
    check_metadata(table.files)


def test_a_writer_beside_it_and_tasks_on_other_machines() -> None:
    """Issue 20 point 7: rows that come meanwhile stay; numbers of a bucket never fall; a task survives its JSON."""
    rows = random_rows(4_000)
    table = appended_in_parts(rows, bucket="2", **{"bucket-key": "n", "bucket-append-ordered": "false"})
    order = RowOrder.of(table.store.schema, ["a", "b"], "hilbert")
    live = LiveFiles.latest(table.store)
    tasks = pick_tasks(table.store, live, order=order)
    messages = [run_task(table.store, CompactionTask.from_json(task.to_json())) for task in tasks]
    table.write(random_rows(10, seed=1))
    rows = pa.concat_tables([rows, random_rows(10, seed=1)])
    TableCommit(table.store, "c").commit_compaction(messages, base=live.ref)
    assert counted(table.read().to_arrow()) == counted(rows)
    highest = LiveFiles.latest(table.store).max_sequence_numbers()
    compact_buckets(table.store, order=order)
    assert LiveFiles.latest(table.store).max_sequence_numbers() == highest
    assert counted(table.read().to_arrow()) == counted(rows)
    check_metadata(table)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"order_by": ""}, "order_by=''"),
        ({"order_by": "a,a"}, "order_by='a,a'"),
        ({"order_by": "a,q"}, "column=q"),
        ({"order_by": "p"}, r"column=p .* partition_columns=\['p'\]"),
    ],
)
def test_orders_that_cannot_be_are_refused(arguments: dict[str, str], expected: str, tmp_path: Path) -> None:
    """Issue 20 point 7."""
    schema = pa.schema([("p", pa.string()), ("a", pa.int64())])
    table = Catalog(str(tmp_path)).create_table("db.t", schema, partition_by=["p"])
    with pytest.raises(InvalidInputError, match=expected):
        procedures.cluster(table, **arguments)


@pytest.mark.parametrize(
    ("options", "key", "expected"),
    [
        ({"bucket": "1", "bucket-key": "a"}, [], "fix='set bucket-append-ordered=false"),
        ({"bucket": "1"}, ["a"], "order_by is for append tables"),
        ({"bucket": "-2"}, ["a"], "order_by is for append tables"),
        ({"bucket": "1", "row-counts": "true"}, [], "order_by is for append tables"),
    ],
)
def test_tables_whose_rows_have_an_order_are_refused(
    options: dict[str, str], key: list[str], expected: str, tmp_path: Path
) -> None:
    """Issue 20 point 7: before anything is written."""
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.int64())])
    table = Catalog(str(tmp_path)).create_table("db.t", schema, primary_key=key, options=options)
    table.write(pa.table({"a": [1], "b": [2]}))
    before = table.latest_snapshot()
    with pytest.raises(InvalidInputError, match=expected):
        procedures.compact(table, order_by="b")
    with pytest.raises(InvalidInputError, match="fix='give order_by too'"):
        procedures.compact(table, order_strategy="hilbert")
    assert table.latest_snapshot() == before
