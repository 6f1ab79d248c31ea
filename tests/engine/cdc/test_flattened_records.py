"""Rows alone, as ExtractNewRecordState publishes them, by a rule of the job: tables as from events."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.cdc.records.scan import split_of
from engine.cdc.samples import samples
from engine.cdc.settings import TableSettings
from engine.cdc.survey import survey
from filestore.types.data_types import STRING, DataType
from logstore.format.source.unavailable import UNAVAILABLE_VALUE
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Field, Record, SourceTable, int32, int64, text

RULE = {"flattened": (r"public\..*",)}
COLUMNS = [int32("id", optional=False), int32("a"), text("t")]
ADDED = [text("__deleted"), text("__op"), text("__table"), int64("__source_ts_ms"), text("__source_snapshot")]
EVENTS = SourceTable("events", [int32("id", optional=False)], schema="other")
LARGE = "x" * 9


def flat_row(
    values: dict[str, Any] | None, *, key: int, more: list[Field] | None = None, has_key: bool = True
) -> Record:
    fields = [*COLUMNS, *(more or [])]
    part = {"type": "struct", "fields": fields, "optional": False, "name": "shop.public.o.Value"}
    payload = None if values is None else {name: values.get(name) for name in (each["field"] for each in fields)}
    value = None if payload is None else json.dumps({"schema": part, "payload": payload}).encode()
    key_part = {"type": "struct", "fields": COLUMNS[:1], "optional": False, "name": "shop.public.o.Key"}
    given = json.dumps({"schema": key_part, "payload": {"id": key}}).encode() if has_key else None
    return "shop.public.o", given, value


def with_tombstones() -> list[Record]:
    """What Debezium 3.4 published by default: of an update of a large row, a delete, and a change of a key."""
    rows = [{"id": 1, "a": 1, "t": LARGE}, {"id": 2, "a": 2, "t": "b"}, {"id": 1, "a": 9, "t": UNAVAILABLE_VALUE}]
    rows += [{"id": 3, "a": 3, "t": "c"}]
    found = [flat_row(each, key=each["id"]) for each in rows]  # type: ignore[arg-type]
    return [*found, flat_row(None, key=2), flat_row(None, key=3), flat_row({"id": 7, "a": 3, "t": "c"}, key=7)]


def rewritten() -> list[Record]:
    """The same with ``delete.tombstone.handling.mode=rewrite`` and added fields."""
    kinds = ["r", "r", "u", "c"]
    found = []
    for record, kind in zip(with_tombstones(), kinds, strict=False):
        payload = json.loads(record[2] or b"")["payload"]
        said = {"__deleted": "false", "__op": kind, "__table": "o", "__source_ts_ms": 1_763_859_600_000}
        found.append(flat_row({**payload, **said}, key=payload["id"], more=ADDED))
    for key in (2, 3):
        found.append(flat_row({"id": key, "__deleted": "true", "__op": "d"}, key=key, more=ADDED))
    return [*found, flat_row({"id": 7, "a": 3, "t": "c", "__deleted": "false", "__op": "c"}, key=7, more=ADDED)]


def with_wrapped_tombstones() -> list[Record]:
    """As JsonConverter writes a null of the transform: a schema, or none, and no payload."""
    found = with_tombstones()
    for at, schema in ((4, None), (5, {"type": "struct", "optional": True, "fields": COLUMNS})):
        value = json.dumps({"schema": schema, "payload": None}, separators=(",", ":")).encode()
        found[at] = (found[at][0], found[at][1], value)
    return found


WANTED = [{"id": 1, "a": 9, "t": LARGE}, {"id": 7, "a": 3, "t": "c"}]


@pytest.mark.parametrize("published", [with_tombstones, with_wrapped_tombstones, rewritten])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_rows_alone_become_the_table(tmp_path: Path, published: Any, size: int) -> None:
    """In any batches, tombstones without a row beside them included; topics of events are read as ever."""
    with memory_job(tmp_path, **RULE) as job:
        records = published()
        for start in range(0, len(records), size):
            report = job.batch(*records[start : start + size], EVENTS.insert({"id": start}))
            assert [each.parked for each in report.tables.values() if each.parked] == []
            job.restarted()
        assert job.rows("o") == WANTED
        assert len(job.rows("events")) == len(range(0, len(records), size))


def test_rows_that_are_deleted_softly_keep_their_values(tmp_path: Path) -> None:
    with memory_job(tmp_path, **RULE, deletes="soft") as job:
        for each in with_tombstones():
            assert job.batch(each).tables["o"].parked is None
        assert [(each["id"], each["t"], each["_deleted"]) for each in job.rows("o")] == [
            (1, LARGE, False), (2, "b", True), (3, "c", True), (7, "c", False),
        ]  # fmt: skip


def test_columns_that_come_are_added_and_what_the_connector_says_is_no_column(tmp_path: Path) -> None:
    with memory_job(tmp_path, **RULE, added={"_at": "source.ts_ms", "_op": "op"}) as job:
        job.batch(*rewritten()[:3])
        found = {each["id"]: each for each in job.rows("o")}
        assert (found[1]["_op"], found[2]["_op"]) == ("u", "r")
        assert found[1]["_at"].year == 2025
        job.batch(flat_row({"id": 4, "n": 5}, key=4, more=[int32("n")]))
        assert [each["n"] for each in job.rows("o") if each["id"] == 4] == [5]
        assert not any(name.startswith("__") for name in job.rows("o")[0])


def test_rows_without_a_key_are_refused(tmp_path: Path) -> None:
    """Which row an update or a delete is of is not in the records."""
    with memory_job(tmp_path, **RULE) as job:
        report = job.batch(flat_row({"id": 1}, key=1, has_key=False), EVENTS.insert({"id": 1}))
        assert "has no key" in str(report.tables["o"].parked)
        assert report.tables["events"].parked is None


def test_declared_columns_are_enough(tmp_path: Path) -> None:
    columns = (("id", DataType(root="INT")), ("t", STRING))
    with memory_job(tmp_path, **RULE, tables={"o": TableSettings(columns=columns, key=("id",))}) as job:
        topic, bare = "shop.public.o", [(1, b'{"id":1,"t":"a"}'), (2, b'{"id":2,"t":"b"}'), (1, None)]
        job.batch(*((topic, json.dumps({"id": key}).encode(), value) for key, value in bare))
        assert job.rows("o") == [{"id": 2, "t": "b"}]


@pytest.mark.parametrize("bad", [b"", b"{", b'"text"', b"17", b"[]", b'{"schema":null}'])
def test_what_is_no_row_stops_its_table_only(tmp_path: Path, bad: bytes) -> None:
    with memory_job(tmp_path, **RULE) as job:
        report = job.batch(*with_tombstones()[:1], ("shop.public.o", b"k", bad), EVENTS.insert({"id": 1}))
        assert "offset=1 " in str(report.tables["o"].parked)
        assert report.tables["events"].parked is None


def test_plan_shows_them_as_tables(tmp_path: Path) -> None:
    with memory_job(tmp_path, **RULE) as job:
        job.send(*rewritten())
        found = surveyed_table(job)
        assert [each.name for each in found.columns] == ["id", "a", "t"]
        assert (found.table, found.key, found.problems) == ("o", ("id",), ())


def surveyed_table(job: MemoryJob) -> Any:
    (found,) = survey(samples(job.settings, count=50), job.settings, split_of(job.settings)).tables
    return found
