"""Changes of columns that a table cannot follow as it is: another column, or a wait with the command that helps."""

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.cdc.settings import TableSettings
from engine.cdc.signals import check_resnapshot, request_snapshots
from engine.cdc.status import latest_offsets
from logstore.format.source.unavailable import UNAVAILABLE_VALUE
from logstore.kafka.topics import LogTopics
from lsm.errors import InvalidInputError
from tests.support.cdc_job import SERVERS, MemoryJob, memory_job
from tests.support.change_events import Field, SourceTable, decimal, int32, int64, text

FLOAT: Field = {"type": "float", "optional": True, "field": "a"}
DOUBLE: Field = {**FLOAT, "type": "double"}
LOG = {"bucket": "1", "log.system": "kafka", "log.kafka.bootstrap.servers": SERVERS}
Rows = list[dict[str, Any]]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    with memory_job(tmp_path) as made:
        yield made


def resnapshot(job: MemoryJob, source: SourceTable, rows: Rows, *, options: str) -> None:
    """As the command does, and what the connector publishes then."""
    latest = latest_offsets(job.settings.properties, job.settings.pattern)
    request_snapshots(
        job.state, job.settings, [source.name], latest, topic=None, at_ms=1, drops="--drop" in options,
        are_writers_stopped="--writers-stopped" in options,
    )  # fmt: skip
    job.restarted()
    job.batch()
    job.batch(*(source.read(row, snapshot="true") for row in rows))
    assert job.state.table(source.name).parked is None


def command_in(reason: str, table: str) -> str:
    """The options of the command that the message names."""
    assert f"fluvial cdc resnapshot {table} --drop" in reason, reason
    return reason.partition(f"fluvial cdc resnapshot {table} ")[2].partition(";")[0].strip("'")


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    ("settings", "key", "narrow", "wide"),
    [
        ({}, ("id",), int32("id", optional=False), int64("id", optional=False)),
        ({}, ("id", "v"), int32("id", optional=False), int64("id", optional=False)),
        ({"partition_by": ("id",)}, ("id", "v"), int32("id", optional=False), int64("id", optional=False)),
    ],
)
def test_a_key_that_gets_a_wider_type_is_made_again(
    tmp_path: Path, settings: dict[str, Any], key: tuple[str, ...], narrow: Field, wide: Field, together: bool
) -> None:
    """int to bigint of the primary key, the commonest migration: the message says what to do, and that does it."""
    first = SourceTable("t", [narrow, int32("v")], key=key)
    later = first.with_columns(wide, int32("v"))
    with memory_job(tmp_path, tables={"t": TableSettings(**settings)}) as job:
        changes = [first.insert({"id": 1, "v": 1}), later.insert({"id": 1 << 40, "v": 2})]
        for each in [changes] if together else [[one] for one in changes]:
            job.batch(*each)
        options = command_in(str(job.state.table("t").parked.reason), "t")  # type: ignore[union-attr]
        resnapshot(job, later, [{"id": 1, "v": 1}, {"id": 1 << 40, "v": 2}], options=options)
        job.batch(later.update({"id": 1 << 40, "v": 2}))
        assert job.rows("t") == [{"id": 1, "v": 1}, {"id": 1 << 40, "v": 2}]


def test_a_type_that_the_log_of_a_table_cannot_take_is_another_column(tmp_path: Path) -> None:
    """real to double precision: the records of the log would be read differently."""
    first = SourceTable("t", [int32("id", optional=False), FLOAT])
    later = first.with_columns(int32("id", optional=False), DOUBLE)
    with memory_job(tmp_path, options=LOG) as job:
        job.batch(first.insert({"id": 1, "a": 0.5}))
        report = job.batch(later.insert({"id": 2, "a": 0.1}), later.update({"id": 1, "a": 0.25}))
        assert report.tables["t"].parked is None
        assert {row["id"]: row["a_2"] for row in job.rows("t")} == {1: 0.25, 2: 0.1}
    with memory_job(tmp_path / "files") as job:  # without a log it is the same column
        job.batch(first.insert({"id": 1, "a": 0.5}))
        job.batch(later.insert({"id": 2, "a": 0.1}))
        assert {row["id"]: row["a"] for row in job.rows("t")} == {1: 0.5, 2: 0.1}


KEYLESS = SourceTable("nk", [int32("id"), decimal("d", 10, 2)], key=())
CHANGED: list[list[Field]] = [
    [*KEYLESS.columns, {**int32("n", optional=False), "default": 7}],
    [int32("id"), decimal("d", 14, 4)],
    [int64("id"), decimal("d", 10, 2)],
    [text("id"), decimal("d", 10, 2)],
    [int32("id")],
]


@pytest.mark.parametrize("columns", CHANGED)
@pytest.mark.parametrize("together", [True, False])
def test_a_table_without_a_key_waits_when_its_old_rows_have_other_values(
    job: MemoryJob, columns: list[Field], together: bool
) -> None:
    """A later DELETE would not find them, in silence: a new column with a default, a dropped one, another type."""
    later = KEYLESS.with_columns(*columns)
    row: dict[str, Any] = {each["field"]: None for each in columns} | {"id": "1" if columns[0] == text("id") else 1}
    first, second = KEYLESS.insert({"id": 1, "d": None}), later.insert(row | ({"n": 7} if len(columns) == 3 else {}))
    for each in [[first, second]] if together else [[first], [second]]:
        job.batch(*each)
    reason = str(job.state.table("nk").parked.reason)  # type: ignore[union-attr]
    assert "known by all their values" in reason
    with pytest.raises(InvalidInputError, match="add --writers-stopped"):
        check_resnapshot("nk", (), {("t", 0): 1})
    options = command_in(reason, "nk")
    rows = [row | ({"n": 7} if "n" in row else {}), row | ({"n": 8} if "n" in row else {})]
    resnapshot(job, later, rows, options=options)
    assert job.rows("nk") == sorted(rows, key=repr)
    job.batch(later.delete(rows[0]))
    assert job.rows("nk") == rows[1:]


def test_a_table_without_a_key_takes_a_new_column_without_a_default(job: MemoryJob) -> None:
    """Old rows are null in it here and there."""
    later = KEYLESS.with_columns(*KEYLESS.columns, text("x"))
    job.batch(KEYLESS.insert({"id": 1, "d": None}), KEYLESS.insert({"id": 2, "d": None}))
    job.batch(later.insert({"id": 3, "d": None, "x": "x"}), later.delete({"id": 1, "d": None, "x": None}))
    assert [row["id"] for row in job.rows("nk")] == [2, 3]


def test_partitions_without_a_key_take_a_new_column_one_after_the_other(job: MemoryJob) -> None:
    """The one that has none of the new rows yet has not dropped the column."""
    later = KEYLESS.with_columns(*KEYLESS.columns, text("x"))
    LogTopics(job.settings.properties).create_topic(KEYLESS.topic, bucket_count=2)
    keys = {zlib.crc32(key) % 2: key for key in (b"a", b"b", b"c", b"d")}
    old, new = KEYLESS.insert({"id": 1, "d": None})[2], later.insert({"id": 2, "d": None, "x": "x"})[2]
    for place, value in ((0, old), (1, old), (0, new), (1, old), (1, new), (0, new)):
        job.restarted()
        assert job.batch((KEYLESS.topic, keys[place], value)).tables["nk"].parked is None
    assert [row["id"] for row in job.rows("nk")] == [1, 1, 1, 2, 2, 2]


def test_a_table_that_only_grows_takes_every_change(tmp_path: Path) -> None:
    """``without-key: append`` finds no rows, so none gets lost."""
    later = KEYLESS.with_columns(int64("id"), {**int32("n", optional=False), "default": 7})
    with memory_job(tmp_path, without_key="append") as job:
        job.batch(KEYLESS.insert({"id": 1, "d": None}))
        job.batch(later.insert({"id": 1 << 40, "n": 8}))
        assert {(row["id"], row["id_2"], row["n"]) for row in job.rows("nk")} == {(1, None, 7), (None, 1 << 40, 8)}


@pytest.mark.parametrize("default", [0.0, 0.5, -1e300, 1e-300, 12345678901234567890.5])
@pytest.mark.parametrize("key", [("id",), ()])
def test_a_fractional_default_is_a_default(job: MemoryJob, default: float, key: tuple[str, ...]) -> None:
    """Connect writes the default of a float with a point; the job ended with a TypeError."""
    column = {**DOUBLE, "default": default}
    table = replace(SourceTable("t", [int32("id", optional=False)]), key=key)
    grown = table.with_columns(*table.columns, column)
    if key:
        job.batch(table.insert({"id": 1}))
    job.batch(grown.insert({"id": 2, "a": 0.25}))
    assert [(row["id"], row["a"]) for row in job.rows("t")] == [*([(1, default)] if key else []), (2, 0.25)]


@pytest.mark.parametrize("together", [True, False])
def test_rows_before_a_new_column_have_its_default_in_any_batches(job: MemoryJob, together: bool) -> None:
    """In one batch with it they were null: the table had the column already when it got them."""
    old = SourceTable("t", [int32("id", optional=False), int32("a")])
    new = old.with_columns(*old.columns, {**int32("n"), "default": 7})
    without = new.with_columns(int32("id", optional=False), {**int32("n"), "default": 7})
    again = without.with_columns(*without.columns, {**int32("a"), "default": 3})
    records = [old.insert({"id": 1, "a": 1}), new.insert({"id": 2, "a": 2, "n": 8}), without.insert({"id": 3, "n": 9})]
    records += [again.insert({"id": 4, "n": None, "a": 5})]
    for part in [records] if together else [[each] for each in records]:
        assert job.batch(*part).tables["t"].parked is None
        job.restarted()
    assert [(each["id"], each["a"], each["n"], each["a_2"]) for each in job.rows("t")] == [
        (1, 1, 7, 3), (2, 2, 8, 3), (3, None, 9, 3), (4, None, None, 5),
    ]  # fmt: skip


def test_an_update_without_its_values_names_the_command_that_brings_them(job: MemoryJob) -> None:
    """Of a table that was renamed: its old rows are in no topic, and the message named no command."""
    docs = SourceTable("docs", [int32("id", optional=False), int32("v"), text("body")])
    job.batch(docs.insert({"id": 1, "v": 1, "body": "a"}))
    reason = str(job.batch(docs.update({"id": 2, "v": 2, "body": UNAVAILABLE_VALUE})).tables["docs"].parked)
    assert "key={'id': 2}" in reason
    assert "fluvial cdc resnapshot docs," in reason
    rows = [{"id": 1, "v": 1, "body": "a"}, {"id": 2, "v": 2, "body": "large"}]
    resnapshot(job, docs, rows, options="")
    assert job.rows("docs") == rows
