"""Records of connectors that no test runs, in the shapes of Debezium's documentation: what a job makes of them."""

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from logstore.format.connect_types import columns_of_part
from logstore.format.source.unavailable import UNAVAILABLE_VALUE
from tests.support.cdc_job import memory_job
from tests.support.change_events import Field, Record, int32, int64, text

Row = Mapping[str, Any]
SOURCES: dict[str, dict[str, Any]] = {
    "oracle": {
        "connector": "oracle", "db": "ORCLPDB1", "schema": "SALES", "table": "T", "txId": "6.28.807", "scn": "2122185",
        "commit_scn": "2122190", "lcr_position": None, "rs_id": "001234.00012345.0124", "ssn": 0, "redo_thread": 1,
    },
    "sqlserver": {
        "connector": "sqlserver", "db": "sales", "schema": "dbo", "table": "T", "event_serial_no": 1,
        "change_lsn": "00000027:00000758:0003", "commit_lsn": "00000027:00000758:0005",
    },
    "mysql": {
        "connector": "mysql", "db": "sales", "table": "T", "server_id": 223344, "gtid": None, "file": "bin.000003",
        "pos": 484, "row": 0, "thread": 7, "query": None,
    },
}  # fmt: skip
VARIABLE = {
    "type": "struct", "optional": True, "name": "io.debezium.data.VariableScaleDecimal", "version": 1, "field": "n",
    "fields": [int32("scale", optional=False), {"type": "bytes", "optional": False, "field": "value"}],
}  # fmt: skip
MONEY = {
    "type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal", "version": 1, "field": "n",
    "parameters": {"scale": "4", "connect.decimal.precision": "19"},
}  # fmt: skip


def typed_field(kind: str, name: str, column: str) -> Field:
    return {"type": kind, "optional": True, "name": name, "version": 1, "field": column}


COLUMNS: dict[str, list[Field]] = {
    "oracle": [text("t"), VARIABLE, typed_field("int64", "io.debezium.time.Timestamp", "at")],
    "sqlserver": [text("t"), MONEY, typed_field("int64", "io.debezium.time.NanoTimestamp", "at")],
    "mysql": [
        typed_field("string", "io.debezium.data.Json", "t"),
        MONEY,
        typed_field("int64", "io.debezium.time.Timestamp", "at"),
    ],
}
NUMBERS = {"oracle": {"scale": 1, "value": "Dw=="}, "sqlserver": "Opg=", "mysql": "Opg="}  # 1.5
MOMENTS = {"oracle": 1_763_859_600_000, "sqlserver": 1_763_859_600_000_000_000, "mysql": 1_763_859_600_000}


def connector_event(
    connector: str, op: str, before: Row | None, after: Row | None, *, snapshot: str = "false"
) -> Record:
    source = {"version": "3.4.0.Final", "name": "shop", "ts_ms": 1, "snapshot": snapshot, **SOURCES[connector]}
    columns = [int32("ID", optional=False), *COLUMNS[connector]]
    row = {"type": "struct", "fields": columns, "optional": True, "name": "shop.T.Value"}
    members: list[Field] = [{**row, "field": "before"}, {**row, "field": "after"}]
    members.append({"type": "struct", "fields": [text(each) for each in source], "field": "source"})
    part = {"type": "struct", "fields": [*members, text("op"), int64("ts_ms")], "name": "shop.T.Envelope"}
    payload = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 2, "transaction": None}
    key_part = {"type": "struct", "fields": columns[:1], "optional": False, "name": "shop.T.Key"}
    key = {"schema": key_part, "payload": {"ID": (after or before or {"ID": 0})["ID"]}}
    return f"shop.{connector}.T", json.dumps(key).encode(), json.dumps({"schema": part, "payload": payload}).encode()


@pytest.mark.parametrize("connector", sorted(SOURCES))
def test_rows_of_a_database_that_no_test_runs(connector: str, tmp_path: Path) -> None:
    """Rows of a snapshot, changes, a delete with its tombstone, and a large value that an update left alone."""
    value = {"n": NUMBERS[connector], "at": MOMENTS[connector]}
    first, second = ({"ID": number, "t": f"\u007b\u007d{number}", **value} for number in (1, 2))
    deleted = connector_event(connector, "d", second, None)
    with memory_job(tmp_path) as job:
        report = job.batch(
            connector_event(connector, "r", None, first, snapshot="first"),
            connector_event(connector, "c", None, second),
        )
        changed = {**first, "n": None, "t": UNAVAILABLE_VALUE if connector == "oracle" else first["t"]}
        job.batch(connector_event(connector, "u", first, changed), deleted, (deleted[0], deleted[1], None))
        assert report.tables["T"].parked is None
        (found,) = job.rows("T")
        assert (found["ID"], found["t"], found["n"]) == (1, first["t"], None)
        assert found["at"].year == 2025
        job.batch(connector_event(connector, "c", None, second))
        assert float(next(each["n"] for each in job.rows("T") if each["ID"] == 2)) == 1.5


def timed(name: str, kind: str = "int64") -> Field:
    return {"type": kind, "optional": True, "name": f"io.debezium.time.{name}", "version": 1}


DAY = date(2025, 11, 23)
MOMENT = datetime(2025, 11, 23, 1, 2, 3, 456000)
MILLIS = 1_763_859_723_456
VALUES: dict[str, list[tuple[str, Field, Any, Any, str]]] = {
    "oracle": [
        ("NUMBER(9)", {"type": "int32"}, 7, 7, ""),
        ("NUMBER", {**VARIABLE}, {"scale": 1, "value": "Dw=="}, "1.5", ""),
        ("BINARY_DOUBLE", {"type": "double"}, 0.5, 0.5, ""),
        ("VARCHAR2(20), CLOB", {"type": "string"}, "a", "a", ""),
        ("RAW(8), BLOB", {"type": "bytes"}, "AP8=", b"\x00\xff", ""),
        ("DATE", timed("Timestamp"), MILLIS, MOMENT, ""),
        ("TIMESTAMP(6)", timed("MicroTimestamp"), MILLIS * 1000, MOMENT, ""),
        ("TIMESTAMP(9)", timed("NanoTimestamp"), MILLIS * 10**6, MOMENT, "finer than a microsecond"),
        ("TIMESTAMP WITH TIME ZONE", timed("ZonedTimestamp", "string"), "2025-11-23T02:02:03.456+01:00",
         MOMENT.replace(tzinfo=UTC), ""),
        ("INTERVAL DAY TO SECOND", timed("MicroDuration"), 5_000_000, 5_000_000, "interval.handling.mode=string"),
    ],
    "sqlserver": [
        ("bit", {"type": "boolean"}, True, True, ""),
        ("tinyint, smallint", {"type": "int16"}, 255, 255, ""),
        ("bigint", {"type": "int64"}, 1 << 40, 1 << 40, ""),
        ("decimal(19,4), money", {**MONEY}, "Opg=", Decimal("1.5000"), ""),
        ("nvarchar(20), xml, uniqueidentifier", {"type": "string"}, "a", "a", ""),
        ("varbinary(8), rowversion", {"type": "bytes"}, "AP8=", b"\x00\xff", ""),
        ("date", timed("Date", "int32"), (DAY - date(1970, 1, 1)).days, DAY, ""),
        ("time(7)", timed("NanoTime"), 3_723_456_000_000, "01:02:03.456000", ""),
        ("datetime", timed("Timestamp"), MILLIS, MOMENT, ""),
        ("datetime2(7)", timed("NanoTimestamp"), MILLIS * 10**6, MOMENT, "finer than a microsecond"),
        ("datetimeoffset(7)", timed("ZonedTimestamp", "string"), "2025-11-23T02:02:03.456+01:00",
         MOMENT.replace(tzinfo=UTC), ""),
    ],
}  # fmt: skip
"""Types, the fields of their schema parts as documented, values in records and in tables, and what is lost."""


@pytest.mark.parametrize("connector", sorted(VALUES))
def test_types_of_a_database_that_no_test_runs(connector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page lists them, in rows of a snapshot and in changes; a loss is said."""
    fields = [{**each[1], "optional": True, "field": f"c{number}"} for number, each in enumerate(VALUES[connector])]
    monkeypatch.setitem(COLUMNS, connector, fields)
    values = {f"c{number}": each[2] for number, each in enumerate(VALUES[connector])}
    with memory_job(tmp_path) as job:
        job.batch(*(connector_event(connector, op, None, {"ID": n, **values}) for n, op in enumerate("rc")))
        assert job.state.table("T").parked is None
        for row in job.rows("T"):
            for number, (source, _, _, wanted, _) in enumerate(VALUES[connector]):
                assert row[f"c{number}"] == wanted, source
    notes = {each.name: each.note for each in columns_of_part({"fields": fields})}
    for number, (source, _, _, _, lost) in enumerate(VALUES[connector]):
        assert bool(lost) == bool(notes[f"c{number}"]), source
        assert lost in notes[f"c{number}"], source


def test_the_page_lists_these_types() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cdc-types.md").read_text(encoding="utf-8")
    for rows in VALUES.values():
        for source, *_ in rows:
            for name in re.split(r", (?![^(]*\))", source):
                assert f"`{name}`" in page, name


@pytest.mark.parametrize("connector", ["oracle", "mysql"])
def test_a_truncate_of_a_database_that_no_test_runs(connector: str, tmp_path: Path) -> None:
    """SQL Server's connector publishes none."""
    value = {"t": "a", "n": NUMBERS[connector], "at": MOMENTS[connector]}
    truncate = connector_event(connector, "t", None, None)
    with memory_job(tmp_path) as job:
        job.batch(connector_event(connector, "c", None, {"ID": 1, **value}))
        job.batch((truncate[0], None, truncate[2]), connector_event(connector, "c", None, {"ID": 2, **value}))
        assert [each["ID"] for each in job.rows("T")] == [2]


def test_documents_are_refused_by_name(tmp_path: Path) -> None:
    """MongoDB: there is one text for a document, and no table in the source."""
    json_text = typed_field("string", "io.debezium.data.Json", "after")
    part = {"type": "struct", "name": "shop.inventory.customers.Envelope"}
    members = [
        json_text,
        {**json_text, "field": "before"},
        {"type": "struct", "fields": [], "field": "source"},
        text("op"),
    ]
    source = {"connector": "mongodb", "db": "inventory", "collection": "customers", "rs": "rs0"}
    payload = {"after": '{"_id": {"$numberLong": "1004"}}', "before": None, "source": source, "op": "c"}
    value = {"schema": {**part, "fields": members}, "payload": payload}
    key = {"schema": {"type": "struct", "fields": [text("id")]}, "payload": {"id": "1004"}}
    with memory_job(tmp_path) as job:
        report = job.batch(("shop.inventory.customers", json.dumps(key).encode(), json.dumps(value).encode()))
        assert "MongoDB" in str(report.tables["customers"].parked)


@pytest.mark.parametrize(
    "value",
    [
        {"schema": {"type": "string", "optional": True, "name": "io.debezium.data.Json"}, "payload": '{"a": 1}'},
        {"schema": {"type": "struct", "name": "order.Event", "fields": [int32("a")]}, "payload": {"a": 1}},
        {"a": 1},
    ],
)
def test_what_is_no_change_is_left_out_with_a_word(
    value: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Events of an outbox (EventRouter), and rows alone without a schema part: a job ended well without a table."""
    caplog.set_level(logging.WARNING, "fluvial.cdc")
    topic = f"shop.outbox.{abs(hash(str(value)))}"
    with memory_job(tmp_path) as job:
        for _ in range(2):
            assert job.batch((topic, b'{"id":1}', json.dumps(value).encode())).tables == {}
    said = [each.getMessage() for each in caplog.records if f"topic={topic} " in each.getMessage()]
    assert len(said) == 1
    assert "no changes of rows" in said[0]
