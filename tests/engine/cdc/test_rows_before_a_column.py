"""What rows from before a new column have in it: no record says it, so it is said, or the table waits."""

import logging
from pathlib import Path
from typing import Any

import pytest

from engine.cdc.signals import request_snapshots
from engine.cdc.status import latest_offsets
from engine.deploy.config.cdc_config import CdcSourceConfig
from logstore.format.connect_types import TypeRules, columns_of_part
from tests.engine.cdc.test_ways_on import reason_of
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Field, SourceTable, int32, int64, text

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
