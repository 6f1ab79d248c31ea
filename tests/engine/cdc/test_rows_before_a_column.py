"""What rows from before a new column have in it: no record says it, so it is said, or the table waits."""

import logging
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from engine.cdc.signals import request_snapshots
from engine.cdc.status import latest_offsets
from engine.deploy.config.cdc_config import CdcSourceConfig
from logstore.format.connect_types import TypeRules, columns_of_part
from tests.engine.cdc.test_ways_on import reason_of
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Field, SourceTable, decimal, int32, int64, text

NULLS_STAY = {"value.converter.replace.null.with.default": "false"}
OLD = SourceTable("t", [int32("id", optional=False)])


def zoned(default: str) -> Field:
    """A ``timestamptz``."""
    return {**text("c"), "name": "io.debezium.time.ZonedTimestamp", "default": default}


def moment(default: int) -> Field:
    """A ``timestamp``."""
    return {**int64("c"), "name": "io.debezium.time.MicroTimestamp", "default": default}


NO_UUID: Field = {**text("c"), "name": "io.debezium.data.Uuid", "default": "00000000-0000-0000-0000-000000000000"}
DAY: Field = {**int32("c"), "name": "io.debezium.time.Date", "default": 0}
UNKNOWN: list[tuple[Field, Any, str]] = [
    (zoned("1970-01-01T00:00:00.000000Z"), "2026-01-01T00:00:00Z", "the database computes its default"),
    (zoned("1970-01-01T00:00:00Z"), "2026-01-01T00:00:00Z", "the database computes its default"),
    (moment(0), 1, "the database computes its default"),
    (DAY, 1, "the database computes its default"),
    (NO_UUID, "58394bf0-eca3-11f1-8356-02fc00000001", "the database computes its default"),
    ({**text("c"), "default": "SESSION_USER"}, "me", "the database computes its default"),
    (int32("c", optional=False), 7, "it is NOT NULL, and records have no default of it"),
    ({**text("c", optional=False)}, "", "it is NOT NULL, and records have no default of it"),
    ({"type": "array", "items": {"type": "int32"}, "optional": False, "default": [1], "field": "c"}, [2],
     "records have no literal of its default"),
]  # fmt: skip


def do_resnapshot(job: MemoryJob, new: SourceTable, rows: list[dict[str, Any]], reason: str) -> None:
    """What the message says, and the snapshot that comes then."""
    assert "fluvial cdc resnapshot t" in reason, reason
    latest = latest_offsets(job.settings.properties, job.settings.pattern)
    request_snapshots(
        job.state, job.settings, ["t"], latest, topic=None, at_ms=1, drops="resnapshot t --drop" in reason,
        are_writers_stopped="--writers-stopped" in reason,
    )  # fmt: skip
    job.restarted()
    job.batch()
    job.batch(*(new.read(row, snapshot="true") for row in rows))


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("column", "given", "why"), UNKNOWN)
def test_a_default_that_no_record_says_is_null_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, column: Field, given: Any, why: str, together: bool
) -> None:
    """1970 where the source has the time of the ALTER TABLE; zeros for a UUID; null where NOT NULL: now with a word."""
    new = OLD.with_columns(*OLD.columns, column)
    records = [OLD.insert({"id": 1}), new.insert({"id": 2, "c": given})]
    with memory_job(tmp_path) as job, caplog.at_level(logging.WARNING, "fluvial.cdc"):
        for part in [records] if together else [[each] for each in records]:
            assert job.batch(*part).tables["t"].parked is None
        first, second = job.rows("t")
        assert first == {"id": 1, "c": None}
        assert second["c"] is not None
        (said,) = [each for each in caplog.messages if "rows from before a new column" in each]
        assert why in said
        do_resnapshot(job, new, [{"id": 1, "c": given}, {"id": 2, "c": given}], said)
        assert [row["c"] for row in job.rows("t")] == [second["c"]] * 2


@pytest.mark.parametrize(("column", "given", "why"), UNKNOWN)
def test_by_rule_a_table_waits_for_them(tmp_path: Path, column: Field, given: Any, why: str) -> None:
    new = OLD.with_columns(*OLD.columns, column)
    connector = {"value.converter.replace.null.with.default": "false"}
    with memory_job(tmp_path, types=TypeRules(lossy="refuse"), connector=connector) as job:
        job.batch(OLD.insert({"id": 1}))
        job.batch(new.insert({"id": 2, "c": given}))
        reason = reason_of(job)
        assert why in reason
        do_resnapshot(job, new, [{"id": 1, "c": given}, {"id": 2, "c": given}], reason)
        assert job.state.table("t").parked is None
        assert len({repr(row["c"]) for row in job.rows("t")}) == 1


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("column", "given", "why"), UNKNOWN)
def test_a_table_without_a_key_waits_for_them(
    tmp_path: Path, column: Field, given: Any, why: str, together: bool
) -> None:
    """A later DELETE of a row from before would not find it."""
    old = SourceTable("t", OLD.columns, key=())
    new = old.with_columns(*old.columns, column)
    records = [old.insert({"id": 1}), new.insert({"id": 2, "c": given})]
    with memory_job(tmp_path) as job:
        for part in [records] if together else [[each] for each in records]:
            job.batch(*part)
        reason = reason_of(job)
        assert f"c has values: {why}" in reason
        do_resnapshot(job, new, [{"id": 1, "c": given}, {"id": 2, "c": given}], reason)
        job.batch(new.delete({"id": 1, "c": given}))
        assert [row["id"] for row in job.rows("t")] == [2]


def test_a_default_that_is_taken_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It may have been set after the column was added: then rows from before have another one in the source."""
    new = OLD.with_columns(*OLD.columns, {**int32("c"), "default": 7}, int32("d"))
    with memory_job(tmp_path) as job, caplog.at_level(logging.WARNING, "fluvial.cdc"):
        job.batch(OLD.insert({"id": 1}))
        job.batch(new.insert({"id": 2, "c": 8, "d": 9}))
        job.batch(new.insert({"id": 3, "c": 8, "d": 9}))
        assert job.rows("t")[0] == {"id": 1, "c": 7, "d": None}
        (said,) = [each for each in caplog.messages if "rows from before a new column" in each]
        assert "column=c value='the default of this record: 7'" in said


def test_a_column_without_a_default_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of ``DEFAULT (UUID())`` of a nullable column no record says a thing: a line, but no warning at each ADD."""
    new = OLD.with_columns(*OLD.columns, text("c"))
    with memory_job(tmp_path) as job, caplog.at_level(logging.INFO, "fluvial.cdc"):
        job.batch(OLD.insert({"id": 1}))
        job.batch(new.insert({"id": 2, "c": "x"}))
        (said,) = [each for each in caplog.records if "rows from before a new column" in each.getMessage()]
        assert said.levelno == logging.INFO
        do_resnapshot(job, new, [{"id": 1, "c": "y"}, {"id": 2, "c": "x"}], said.getMessage())
        assert job.rows("t") == [{"id": 1, "c": "y"}, {"id": 2, "c": "x"}]


def test_a_type_that_became_another_column_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old = OLD.with_columns(*OLD.columns, int32("c"))
    with memory_job(tmp_path) as job, caplog.at_level(logging.WARNING, "fluvial.cdc"):
        job.batch(old.insert({"id": 1, "c": 1}), old.with_columns(*OLD.columns, text("c")).insert({"id": 2, "c": "x"}))
        (said,) = [each for each in caplog.messages if "rows from before a new column" in each]
        assert "column=c_2 value='null, because no record has their values of the new type'" in said


@pytest.mark.parametrize("connector", [{}, {"value.converter.replace.null.with.default": "false"}])
def test_a_null_that_a_converter_replaces_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, connector: dict[str, str]
) -> None:
    """Connect's JSON converter publishes the default in place of a null, unless it is told not to."""
    (loss,) = columns_of_part({"fields": [{**int32("c"), "default": 7}]})
    assert loss.has_default
    table = OLD.with_columns(*OLD.columns, {**int32("c"), "default": 7}, {**int32("d", optional=False), "default": 7})
    with memory_job(tmp_path, connector=connector) as job, caplog.at_level(logging.WARNING, "fluvial.cdc"):
        job.batch(table.insert({"id": 1, "c": None, "d": 1}))
        said = [each for each in caplog.messages if "loses something" in each]
        assert [each for each in said if "value.converter.replace.null.with.default=false" in each] == said
        assert len(said) == (0 if connector else 1)
        assert job.rows("t") == [{"id": 1, "c": None, "d": 1}]
    with memory_job(tmp_path / "refuse", connector=connector, types=TypeRules(lossy="refuse")) as job:
        job.batch(table.insert({"id": 1, "c": None, "d": 1}))
        assert (job.state.table("t").parked is None) == bool(connector)


def test_settings_of_a_connector_that_nothing_reads_are_refused() -> None:
    given = {"subscribePattern": "shop", "kafka.bootstrap.servers": "x:1"}
    CdcSourceConfig(options=given, connector={"value.converter.replace.null.with.default": "false"})
    with pytest.raises(ValueError, match=r"replace\.nulls"):
        CdcSourceConfig(options=given, connector={"value.converter.replace.nulls": "false"})


def decimals(precision: int, scale: int) -> Field:
    return decimal("c", precision, scale)


MICROS, MILLIS = ({**int64("c"), "name": f"io.debezium.time.{name}"} for name in ("MicroTimestamp", "Timestamp"))
FLOAT, DOUBLE = ({**int32("c"), "type": kind} for kind in ("float", "double"))
ROUNDED = [
    (decimals(14, 4), decimals(10, 2), None),
    (decimals(14, 4), int32("c"), 7),
    (DOUBLE, FLOAT, 0.5),
    (DOUBLE, int32("c"), 7),
    (MICROS, MILLIS, 7),
]
KEPT = [(decimals(14, 2), decimals(10, 2), None), (int64("c"), int32("c"), 7), (MILLIS, MICROS, 7)]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("before", "after", "value"), ROUNDED)
def test_a_type_with_fewer_digits_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: Field, after: Field, value: Any, together: bool
) -> None:
    """The source rounds its rows and publishes none of them; rows of before kept all digits, in silence."""
    old, new = (OLD.with_columns(*OLD.columns, each) for each in (before, after))
    later = new.with_columns(*new.columns, text("d"))
    records = [old.insert({"id": 1, "c": None}), new.insert({"id": 2, "c": value})]
    records.append(later.insert({"id": 3, "c": value, "d": "x"}))
    with memory_job(tmp_path) as job, caplog.at_level(logging.WARNING, "fluvial.cdc"):
        for part in [records] if together else [[each] for each in records]:
            job.restarted()
            assert job.batch(*part).tables["t"].parked is None
        (said,) = [each for each in caplog.messages if "rows from before a new column or type" in each]
        assert "which the source has made" in said
        do_resnapshot(job, new, [{"id": 1, "c": value}], said)
        assert [row["id"] for row in job.rows("t")] == [1]


@pytest.mark.parametrize(("before", "after", "value"), ROUNDED)
def test_rows_without_a_key_wait_for_a_type_with_fewer_digits(
    tmp_path: Path, before: Field, after: Field, value: Any
) -> None:
    old = SourceTable("t", [*OLD.columns, before], key=())
    new = old.with_columns(*OLD.columns, after)
    with memory_job(tmp_path) as job:
        job.batch(old.insert({"id": 1, "c": None}))
        job.batch(new.insert({"id": 2, "c": value}))
        rows = [{"id": 1, "c": value}, {"id": 2, "c": value}]
        do_resnapshot(job, new, rows, reason_of(job))
        job.batch(new.delete(rows[0]))
        assert [row["id"] for row in job.rows("t")] == [2]


@pytest.mark.parametrize(("before", "after", "value"), KEPT)
def test_a_type_that_keeps_all_digits_needs_no_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: Field, after: Field, value: Any
) -> None:
    old, new = (OLD.with_columns(*OLD.columns, each) for each in (before, after))
    with memory_job(tmp_path) as job, caplog.at_level(logging.WARNING, "fluvial.cdc"):
        job.batch(old.insert({"id": 1, "c": None}), new.insert({"id": 2, "c": value}))
        assert [each for each in caplog.messages if "rows from before" in each] == []


@pytest.mark.parametrize(
    ("column", "past", "found"),
    [
        (int32("c"), "7", 7),
        ({**int32("c"), "default": 9}, "7", 7),
        (int32("c", optional=False), "7", 7),
        ({**text("c"), "default": "SESSION_USER"}, "o'me", "o'me"),
        (zoned("1970-01-01T00:00:00Z"), "2026-01-02 03:04:05.5Z", datetime(2026, 1, 2, 3, 4, 5, 500_000, UTC)),
        (moment(0), "2026-01-02 03:04:05.5", datetime(2026, 1, 2, 3, 4, 5, 500_000)),
        (decimal("c", 10, 2), "7.00", Decimal("7.00")),
        ({**text("c"), "type": "boolean"}, "true", True),
    ],
)
def test_the_source_says_what_rows_from_before_a_column_have(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, column: Field, past: str, found: Any
) -> None:
    """``SET DEFAULT`` and ``DROP DEFAULT`` came behind ``ADD COLUMN``, or the database computed the default."""
    asked = []

    def values(source: Any) -> dict[str, str]:
        asked.append(str(source))
        return {"c": past, "other": "no number"}

    with memory_job(tmp_path, types=TypeRules(lossy="refuse"), connector=NULLS_STAY) as job:
        job.past = values
        job.batch(OLD.insert({"id": 1}))
        assert asked == []
        new = OLD.with_columns(*OLD.columns, column)
        report = job.batch(new.insert({"id": 2, "c": None}))
        assert (report.tables["t"].parked, asked) == (None, ["public.t"])
        assert [row["c"] for row in job.rows("t")] == [found, None]
        job.restarted()
        job.again()
        job.batch(new.insert({"id": 3, "c": None}))
        assert (len(job.rows("t")), asked) == (3, ["public.t"])
    assert "rows from before" not in caplog.text


@pytest.mark.parametrize("past", [{}, {"c": "no number"}])
def test_without_an_answer_of_the_source_records_count(tmp_path: Path, past: dict[str, str]) -> None:
    with memory_job(tmp_path) as job:
        job.past = lambda source: past
        job.batch(OLD.insert({"id": 1}))
        job.batch(OLD.with_columns(*OLD.columns, {**int32("c"), "default": 9}).insert({"id": 2, "c": 1}))
        assert [row["c"] for row in job.rows("t")] == [9, 1]


def test_a_table_without_a_key_waits_also_with_the_answer_of_the_source(tmp_path: Path) -> None:
    """Its old rows were not found by the value that the source says."""
    bag = SourceTable("t", OLD.columns, key=())
    with memory_job(tmp_path) as job:
        job.past = lambda source: {"c": "7"}
        job.batch(bag.insert({"id": 1}))
        job.batch(bag.with_columns(*bag.columns, int32("c")).insert({"id": 2, "c": 1}))
        assert "c has a default" in reason_of(job)


A, B, Z = int32("a"), int32("b"), int32("z")
PLACES: list[tuple[list[Field], dict[str, Any], dict[str, Any], str]] = [
    ([B, A], {"b": 2, "a": 3}, {"a": 1, "b": 2, "a_2": None}, "was dropped and added"),
    ([B, {**A, "default": 5}], {"b": 2, "a": 3}, {"a": 1, "b": 2, "a_2": 5}, "was dropped and added"),
    ([B, A, Z], {"b": 2, "a": 3, "z": 4}, {"a": 1, "b": 2, "a_2": None, "z": None}, "was dropped and added"),
    ([{**Z, "default": 7}, B], {"z": 3, "b": 2}, {"a": 1, "b": 2, "z": None}, "was not added"),
    ([A, {**Z, "default": 7}, B], {"a": 1, "z": 3, "b": 2}, {"a": 1, "z": None, "b": 2}, "was not added"),
]


@pytest.mark.parametrize(("key", "together"), [(("id",), True), (("id",), False), ((), True)])
@pytest.mark.parametrize(("columns", "given", "expected", "why"), PLACES)
def test_the_order_of_columns_says_which_of_them_are_others(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    columns: list[Field],
    given: dict[str, Any],
    expected: dict[str, Any],
    why: str,
    key: tuple[str, ...],
    together: bool,
) -> None:
    """PostgreSQL appends columns. A dropped one that came back had its values of the past, a renamed one a default."""
    old = SourceTable("t", [int32("id", optional=False), A, B], key=key)
    new = old.with_columns(old.columns[0], *columns)
    records = [old.insert({"id": 1, "a": 1, "b": 2}), new.insert({"id": 2, **given})]
    with memory_job(tmp_path) as job, caplog.at_level(logging.WARNING, "fluvial.cdc"):
        for part in [records] if together else [[each] for each in records]:
            job.batch(*part)
            job.restarted()
        if key:
            assert job.rows("t")[0] == {"id": 1, **expected}
            assert why in caplog.text
        else:
            assert "known by all their values" in reason_of(job)


@pytest.mark.parametrize(
    ("columns", "is_perhaps"),
    [([A, Z], True), ([Z, B], True), ([A, text("z")], False), ([B, Z], False), ([A, B, Z], False)],
)
def test_a_column_that_comes_where_another_goes_may_be_that_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, columns: list[Field], is_perhaps: bool
) -> None:
    """By its type and place; old rows are null in it, as where it was added, but the source may have their values."""
    old = OLD.with_columns(*OLD.columns, A, B)
    new = old.with_columns(*OLD.columns, *columns)
    row = {each["field"]: None for each in columns} | {"id": 2}
    with memory_job(tmp_path / "say") as job, caplog.at_level(logging.WARNING, "fluvial.cdc"):
        job.batch(old.insert({"id": 1, "a": 1, "b": 2}), new.insert(row))
        assert [row["z"] for row in job.rows("t")] == [None, None]
        assert ("rows from before" in caplog.text) == is_perhaps
    with memory_job(tmp_path / "refuse", types=TypeRules(lossy="refuse"), connector=NULLS_STAY) as job:
        job.batch(old.insert({"id": 1, "a": 1, "b": 2}))
        assert (job.batch(new.insert(row)).tables["t"].parked is not None) == is_perhaps


def test_a_column_that_was_renamed_has_not_what_rows_got_when_it_was_added(tmp_path: Path) -> None:
    """The catalog says 7 of the column, whatever its name was: rows that were inserted since have other values."""
    old, new = OLD.with_columns(*OLD.columns, A), OLD.with_columns(*OLD.columns, Z)
    with memory_job(tmp_path) as job:
        job.past = lambda _: {"z": "7"}
        job.batch(old.insert({"id": 1, "a": 1}), new.insert({"id": 2, "z": 2}))
        assert [row["z"] for row in job.rows("t")] == [None, 2]
