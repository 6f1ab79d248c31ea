"""Differences of states: by Python, as a batch read, through Spark and on the command line."""

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog, Table
from engine.cli.app import run_command
from engine.procedures import create_tag, table_diff
from filestore.evolution.schema_change import AddColumn, RenameColumn
from filestore.types.data_types import parse_data_type
from lsm.errors import InvalidInputError
from tests.support.rows import arrow_rows

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("w", pa.int64())])
CHANGES = [("-U", 2, "b", 2), ("+U", 2, "x", 2), ("-D", 3, "c", 3), ("+I", 4, "d", 4)]
NEW = [(2, "x", 2), (4, "d", 4)]


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Tag ``start`` is of snapshot 1; three keys have changed until snapshot 3."""
    made = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1", "log.system": "none"})
    made.write(arrow_rows(SCHEMA, (1, "a", 1), (2, "b", 2), (3, "c", 3)))
    create_tag(made, "start")
    made.write(arrow_rows(SCHEMA, (2, "y", 2), (4, "d", 4)))
    made.write(arrow_rows(SCHEMA, (2, "x", 2), (3, "c", 3)), kinds=pa.array(["+U", "-D"]))
    return made


def kinds_and_rows(found: pa.Table) -> list[tuple[Any, ...]]:
    kinds = found.column("_row_kind").to_pylist()
    values = found.drop_columns(["_row_kind"]).to_pylist()
    return [(kind, *row.values()) for kind, row in zip(kinds, values, strict=True)]


def test_two_states_are_compared_by_rows_and_by_columns(table: Table, catalog: Catalog) -> None:
    """Idea 14: any two of snapshot, tag, time and branch; the later one's columns, and what became of the others."""
    found = table.diff("start", "latest")
    assert kinds_and_rows(found.to_arrow()) == CHANGES
    summary = found.summary()
    assert (summary.inserted, summary.deleted, summary.updated) == (1, 1, 1)
    assert summary.changed_values == {"v": 1}
    assert table.diff(3, 3).to_arrow().num_rows == 0
    changes = [RenameColumn(("w",), "weight"), AddColumn(path=("x",), type=parse_data_type("INT"))]
    catalog.alter_table("db.t", changes)
    catalog.table("db.t").write(pa.table({"id": [1], "v": ["a"], "weight": [9], "x": [None]}))
    (by_rows, *by_columns) = table_diff(catalog.table("db.t"), 3).to_pylist()
    assert (by_rows["inserted"], by_rows["updated"]) == (0, 1)
    assert [(each["name"], each["changed_values"], each["change"]) for each in by_columns] == [
        ("weight", 1, "renamed w to weight"),
        ("x", 0, "added x INT"),
    ]


def test_a_difference_is_read_like_a_state(table: Table) -> None:
    """incremental-between and the like: new and changed rows; with read.changelog all changes."""
    read = table.read(options={"incremental-between": "start,3"})
    assert [tuple(row.values()) for row in read.to_arrow().to_pylist()] == NEW
    assert read.describe().startswith("difference: table=db.t snapshot=3 ")
    assert "reason='what differs from snapshot 1 of main'" in read.describe()
    assert read.to_arrow(columns=["w"], filter="v = 'd'").to_pylist() == [{"w": 4}]
    with_kinds = table.read(options={"incremental-between": "start, latest", "read.changelog": "true"})
    assert kinds_and_rows(with_kinds.to_arrow()) == CHANGES
    assert kinds_and_rows(with_kinds.to_arrow(filter="id = 2")) == CHANGES[:2]
    times = ",".join(str(table.store.snapshots.read(each).time_ms) for each in (1, 3))
    by_time = table.read(options={"incremental-between-timestamp": times}).to_arrow()
    assert by_time == read.to_arrow()
    from_nothing = table.read(options={"incremental-between-timestamp": f"1,{times.split(',')[0]}"})
    assert from_nothing.to_arrow().column("id").to_pylist() == [1, 2, 3]


def test_an_automatic_tag_is_compared_with_the_one_before(catalog: Catalog) -> None:
    """incremental-to-auto-tag: what the day brought; tags of others do not count, the first day brought everything."""
    options = {"bucket": "1", "log.system": "none", "tag.automatic-creation": "process-time"}
    table = catalog.create_table("db.days", SCHEMA, primary_key=["id"], options=options)
    for day, key in (("2026-01-01", 1), ("mine", 2), ("2026-01-02", 3)):
        table.write(arrow_rows(SCHEMA, (key, "a", 0)))
        create_tag(table, day)

    def day(name: str) -> list[int]:
        found = table.read(options={"incremental-to-auto-tag": name}).to_arrow()
        return found.column("id").to_pylist()  # type: ignore[no-any-return]

    assert (day("2026-01-01"), day("2026-01-02"), day("mine")) == ([1], [2, 3], [2])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"incremental-between": "1"}, "not two states: incremental-between=1 example="),
        ({"incremental-between": "1,2,3"}, "not two states"),
        ({"incremental-between": "1,"}, "not two states"),
        ({"incremental-between": "1,nope"}, "no such version: .*version='nope'"),
        ({"incremental-between": "1,2", "incremental-to-auto-tag": "start"}, "only one difference can be read"),
        ({"incremental-between": "1,2", "scan.snapshot-id": "1"}, "a difference is no state"),
        ({"incremental-between": "1,2", "incremental-between-scan-mode": "delta"}, "always the net one"),
        ({"incremental-to-auto-tag": "nope"}, "no such tag: tag=nope"),
    ],
)
def test_what_is_no_difference_is_refused(table: Table, options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        table.read(options=options)


def test_the_command_shows_rows_or_counts(table: Table, catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    """fluvial diff db.t A B [--json] [--columns] [--limit]."""

    def run(*arguments: str) -> str:
        assert run_command(["diff", table.name, *arguments, "--warehouse", catalog.warehouse]) == 0
        return capsys.readouterr().out

    lines = [json.loads(line) for line in run("start", "--json").splitlines()]
    assert [tuple(line.values()) for line in lines] == CHANGES
    assert len(run("start", "3", "--json", "--limit", "1").splitlines()) == 1
    assert json.loads(run("start", "latest", "--columns", "--json")) == {
        "table": "db.t",
        "rows": {"inserted": 1, "deleted": 1, "updated": 1},
        "changed_values": {"v": 1},
        "columns": [],
    }
    assert "changed values" in run("1", "3", "--columns")
    assert run("start").count("+U") == 1


@pytest.mark.spark
def test_spark_reads_a_difference(spark: SparkSession, table: Table, catalog: Catalog) -> None:
    """By format("fluvial") and by Table.dataframe."""
    reader = spark.read.format("fluvial").option("warehouse", catalog.warehouse).option("table", "db.t")
    between = reader.option("incremental-between", "start,latest")
    assert sorted(tuple(row) for row in between.load().collect()) == NEW
    kinds = between.option("read.changelog", "true").load().select("_row_kind", "id", "v", "w").collect()
    assert sorted(tuple(row) for row in kinds) == sorted(CHANGES)
    frame = table.dataframe(spark, options={"incremental-between": "start,latest", "read.changelog": "true"})
    assert sorted((row["_row_kind"], row["id"]) for row in frame.collect()) == sorted(each[:2] for each in CHANGES)
    assert frame.filter("_row_kind = '-D'").select("id").collect()[0]["id"] == 3
