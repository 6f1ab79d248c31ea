"""ANALYZE: what is found is what the rows are, it is carried until the schema changes, and disturbs nobody."""

import datetime as dt
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Catalog, procedures, sql
from filestore.changelog.snapshot_changes import plan_changes
from filestore.evolution.schema_change import AddColumn
from filestore.hashing.xxhash import wang
from filestore.maintenance.orphans import find_orphans
from filestore.maintenance.table_statistics import DistinctCount, analyze, statistics_of
from filestore.snapshot.snapshot import CommitKind
from filestore.table import FileTable
from filestore.types.data_types import DataType
from lsm.errors import ConflictError, FluvialError, InvalidInputError
from tests.support.faults import When, fail_points
from tests.support.tables import KEY_SCHEMA, failing_at, key_table, memory_catalog, newest_snapshot, rows

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("d", pa.decimal128(20, 2)),
        ("t", pa.timestamp("ms")),
        ("day", pa.date32()),
        ("b", pa.bool_()),
        ("x", pa.binary()),
        ("l", pa.list_(pa.int64())),
    ]
)


@pytest.mark.parametrize("count", [0, 1, 10, 1_000, 40_000, 300_000])
def test_distinct_values_are_counted_within_three_percent(count: int) -> None:
    """Issue 20 point 7: four standard errors; what is added twice counts once."""
    found = DistinctCount()
    hashes = wang(np.arange(count, dtype=np.int64))
    for part in (hashes, hashes[: count // 2]):
        found.add(part)
    assert abs(found.value - count) <= 0.032 * count


def test_literals() -> None:
    """Issue 20 point 7: bounds as Paimon spells them, lengths as Spark counts them, nulls, two batches."""
    table = memory_catalog().create_table("db.t", SCHEMA)
    ids = {field.name: field.id for field in table.schema.fields}
    body: list[dict[str, Any]] = [
        {"i": 3, "s": "äb", "f": 1.5, "d": Decimal("-1.25"), "b": True, "x": b"\0\0\0", "l": [1]},
        {"i": -1, "s": "abcd", "f": float("nan"), "t": dt.datetime(2026, 1, 2, 3), "day": dt.date(1970, 1, 3)},
        {"i": 3},
    ]
    table.write(pa.Table.from_pylist(body[:2], schema=SCHEMA))
    table.write(pa.Table.from_pylist(body[2:], schema=SCHEMA))
    found = analyze(table, SCHEMA.names)
    assert found is not None
    assert (found.snapshot_id, found.row_count) == (2, 3)
    assert found.size_bytes == sum(file.size_bytes for split in table.read().plan().splits for file in split.files)
    one = {"distinctCount": 1, "nullCount": 2}
    moment = "2026-01-02 03:00:00.000"
    assert found.columns == {
        "i": {"colId": 0, "distinctCount": 2, "min": "-1", "max": "3", "nullCount": 0, "avgLen": 4, "maxLen": 4},
        "s": {"colId": 1, "distinctCount": 2, "nullCount": 1, "avgLen": 3, "maxLen": 4},
        "f": {"colId": 2, "distinctCount": 2, "min": "1.5", "max": "1.5", "nullCount": 1, "avgLen": 8, "maxLen": 8},
        "d": {"colId": 3, **one, "min": "-1.25", "max": "-1.25", "avgLen": 16, "maxLen": 16},
        "t": {"colId": 4, **one, "min": moment, "max": moment, "avgLen": 8, "maxLen": 8},
        "day": {"colId": 5, **one, "min": "2", "max": "2", "avgLen": 4, "maxLen": 4},
        "b": {"colId": 6, **one, "min": "true", "max": "true", "avgLen": 1, "maxLen": 1},
        "x": {"colId": 7, **one, "avgLen": 3, "maxLen": 3},
        "l": {"colId": ids["l"], "nullCount": 2},
    }
    assert statistics_of(table.store, newest_snapshot(table)) == found


@pytest.mark.sweep
@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 8), st.none() | st.integers(-50, 50)), min_size=1, max_size=40))
def test_merged_rows_are_what_is_described(pairs: list[tuple[int, int | None]]) -> None:
    """Issue 20 point 7: of a table with a key newer rows hide older ones."""
    table = key_table(bucket="2")
    for pair in pairs:
        table.write(rows(pair))
    found = analyze(table, ["id", "v"])
    assert found is not None
    newest = {row["id"]: row["v"] for row in table.read().to_arrow().to_pylist()}
    known = {value for value in newest.values() if value is not None}
    assert found.row_count == len(newest)
    column = found.columns["v"]
    assert column["nullCount"] == sum(value is None for value in newest.values())
    assert column["distinctCount"] == len(known)
    assert (column.get("min"), column.get("max")) == ((str(min(known)), str(max(known))) if known else (None, None))


def statistics_name(table: FileTable) -> str | None:
    return newest_snapshot(table).statistics


def test_a_snapshot_of_no_change_carries_them_until_the_schema_changes() -> None:
    """Issue 20 point 7: kind ANALYZE; streams see nothing; kept by orphans' cleaning; of an old schema refused."""
    catalog = memory_catalog()
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    assert analyze(table, []) is None
    table.write(rows((1, 1)))
    before = newest_snapshot(table)
    analyze(table, [])
    after = newest_snapshot(table)
    assert (after.id, after.commit_kind, after.total_record_count) == (before.id + 1, CommitKind.ANALYZE, 1)
    assert list(plan_changes(table.store, before, after)) == []
    name = statistics_name(table)
    table.write(rows((2, 2)))
    assert statistics_name(table) == name
    assert find_orphans(table.store, before_ms=10**15) == []
    catalog.alter_table("db.t", [AddColumn(path=("w",), type=DataType(root="INT"))])
    with pytest.raises(ConflictError, match="analyze it again"):
        analyze(table, ["v"])
    assert find_orphans(table.store, before_ms=10**15) == []  # the file of the refused one is gone
    table = catalog.table("db.t")
    assert analyze(table, ["w"]) is not None  # before any commit with the new schema
    table.write(pa.table({"id": [3], "v": [3], "w": pa.array([3], pa.int32())}))
    assert statistics_of(table.store, newest_snapshot(table)) is not None
    with pytest.raises(InvalidInputError, match=r"column=z columns=\['id', 'v', 'w'\]"):
        analyze(table, ["z"])


@pytest.mark.sweep
@pytest.mark.parametrize("when", When)
def test_a_fault_at_any_place_leaves_all_or_nothing(when: When) -> None:
    """Issue 20 point 7: a snapshot refers to a whole file of statistics, or to none."""
    before = key_table(bucket="1")
    before.write(rows((1, 1)))
    _, clean, faulty = failing_at(before, 0, when)
    analyze(clean, ["v"])
    places = fail_points(faulty, when)
    assert len(places) > 3
    for place in places:
        table, failing, _ = failing_at(before, place, when)
        with suppress(FluvialError, OSError):
            analyze(failing, ["v"])
        found = statistics_of(table.store, newest_snapshot(table))
        assert found is None or found.row_count == 1
        assert table.read().to_arrow().to_pylist() == [{"id": 1, "v": 1}]


def test_by_sql_and_by_name(tmp_path: Any) -> None:
    """Issue 20 point 7: ANALYZE TABLE as Spark spells it, CALL, and what DESCRIBE EXTENDED shows."""
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.t", pa.schema([("a", pa.int64()), ("b", pa.string())]))
    table.write(pa.table({"a": [1, 2, 2], "b": ["x", None, "yy"]}))

    def described() -> dict[str, str]:
        found = sql(None, "DESCRIBE EXTENDED db.t", catalog=catalog).to_pylist()
        return {row["col_name"]: row["data_type"] for row in found}

    assert "Statistics" not in described()
    for text, columns in (
        ("ANALYZE TABLE db.t COMPUTE STATISTICS", set()),
        ("analyze table db.t compute statistics for columns a, a", {"a"}),
        ("ANALYZE TABLE db.t COMPUTE STATISTICS FOR ALL COLUMNS", {"a", "b"}),
    ):
        sql(None, text, catalog=catalog)
        found = statistics_of(table.store, table.latest_snapshot())
        assert found is not None
        assert found.columns.keys() == columns
    assert described()["Statistics"] == f"{found.size_bytes} bytes, 3 rows"
    assert described()["statistics.snapshot"] == "3"
    listed = sql(None, "CALL sys.analyze(table => 'db.t', columns => '*')", catalog=catalog).to_pylist()
    assert [(row["column"], row["row_count"], row["distinct_count"], row["min"]) for row in listed] == [
        (None, 3, None, None),
        ("a", 3, 2, "1"),
        ("b", 3, 2, None),
    ]
    assert procedures.analyze(table).num_rows == 1
