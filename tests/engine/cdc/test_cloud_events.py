"""Envelopes of CloudEventsConverter are refused by name, in a batch and by ``plan``; they are no rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.cdc.records.scan import split_of
from engine.cdc.samples import samples
from engine.cdc.settings import TableSettings
from engine.cdc.survey import survey
from filestore.types.data_types import STRING, DataType
from tests.support.cdc_job import memory_job
from tests.support.change_events import Record, SourceTable, int32, text

T = SourceTable("t", [int32("id", optional=False), text("v")])
EVENTS = SourceTable("events", [int32("id", optional=False)], schema="other")
ATTRIBUTES = {
    "id": "name:shop;lsn:29274832;txId:565;sequence:[null,\"29274832\"]", "source": "/debezium/postgresql/shop",
    "specversion": "1.0", "type": "io.debezium.connector.postgresql.DataChangeEvent",
    "time": "2026-01-13T14:04:18.597Z", "datacontenttype": "application/json",
}  # fmt: skip
EXTENSIONS = {"iodebeziumop": "c", "iodebeziumversion": "3.4.0.Final", "iodebeziumname": "shop", "iodebeziumtable": "t"}


def event(*, has_schema: bool = False, **more: str) -> bytes:
    whole = json.loads(T.insert({"id": 1, "v": "a"})[2] or b"")
    return json.dumps({**ATTRIBUTES, **more, "data": whole if has_schema else whole["payload"]}).encode()


def of_avro() -> bytes:
    """Their schema is a part of its own, as that of each record in Avro."""
    names = [*ATTRIBUTES, *EXTENSIONS]
    fields = [*map(text, names), {"type": "bytes", "optional": True, "field": "data"}]
    part = {"type": "struct", "fields": fields, "optional": False, "name": "shop.public.t.CloudEvents.Envelope"}
    return json.dumps({"schema": part, "payload": {**ATTRIBUTES, **EXTENSIONS, "data": "AAAA"}}).encode()


SHAPES = {
    "attributes": event(),
    "extensions": event(**EXTENSIONS),
    "schema": event(has_schema=True, **EXTENSIONS),
    "own type": event(**{**EXTENSIONS, "type": "OrderCreated"}),
    "avro": of_avro(),
}
DECLARED = {"tables": {"t": TableSettings(columns=(("id", DataType(root="INT")), ("v", STRING)), key=("id",))}}
JOBS: list[dict[str, Any]] = [
    {},
    {"flattened": (r"public\..*",)},
    {"flattened": (r"public\..*",), **DECLARED},
    DECLARED,
]


@pytest.mark.parametrize("settings", JOBS)
@pytest.mark.parametrize("shape", SHAPES)
def test_they_are_refused_by_the_name_of_their_converter(tmp_path: Path, shape: str, settings: dict[str, Any]) -> None:
    """Also where rows alone are expected: an event has an id, too."""
    record: Record = (T.topic, b'{"id":1}', SHAPES[shape])
    with memory_job(tmp_path, **settings) as job:
        report = job.batch(record, EVENTS.insert({"id": 1}))
        reason = str(report.tables["t"].parked)
        assert "CloudEvents envelope: fix=set value.converter of the connector to JsonConverter with" in reason
        assert reason.endswith("fluvial cdc skip t --until end")
        assert report.tables["events"].parked is None
        found = survey(samples(job.settings, count=50), job.settings, split_of(job.settings))
        assert "CloudEvents envelope: fix=" in found.problems[T.topic]
        assert not job.catalog.table_exists("shop.t")


def test_rows_with_such_texts_are_rows(tmp_path: Path) -> None:
    """An outbox of events, and a row that names the attribute in a text."""
    columns = [int32("id", optional=False), *map(text, ("specversion", "type", "datacontenttype", "data"))]
    outbox = SourceTable("outbox", columns)
    row = {"id": 1, "specversion": "1.0", "type": "OrderCreated", "datacontenttype": "text/plain", "data": "x"}
    with memory_job(tmp_path, **DECLARED) as job:
        topic, key, value = T.insert({"id": 1, "v": '"specversion": "1.0", "type": "io.debezium.connector.x"'})
        payload = json.dumps(json.loads(value or b"")["payload"]).encode()
        report = job.batch((topic, key, payload), outbox.insert(row))
        assert [each.parked for each in report.tables.values()] == [None, None]
        assert job.rows("outbox") == [row]
        assert len(job.rows("t")) == 1
