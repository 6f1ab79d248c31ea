"""Records without schema parts: their columns are declared in the job, and what would be misread is refused."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.cdc.records.declared import declared_part
from engine.cdc.settings import TableSettings
from engine.deploy.cdc_job import cdc_of, cdc_settings
from engine.deploy.config.job_config import parse_job
from lsm.errors import InvalidInputError
from tests.support.cdc_job import memory_job
from tests.support.change_events import Record, SourceTable, int32, int64, text, tombstone

FILE = r"""
name: shop
warehouse: /data
log: {kafka.bootstrap.servers: "localhost:9092"}
cdc:
- name: shop
  database: shop
  source:
    options: {subscribePattern: 'shop\..*'}
    connector: {decimal.handling.mode: precise, binary.handling.mode: bytes}
  each:
    orders:
      columns: {id: INT, at: TIMESTAMP(6), day: DATE, amount: 'DECIMAL(10, 2)', raw: BYTES, zoned: TIMESTAMP_LTZ(6)}
      key: [id]
"""
ORDERS = SourceTable("orders", [int32("id"), int64("at"), int32("day"), text("amount"), text("raw"), text("zoned")])
ROW = {
    "id": 1, "at": 1_763_859_600_123_456, "day": 20_777, "amount": "A+c=", "raw": "AP8=",
    "zoned": "2026-11-20T12:34:56.5Z",
}  # fmt: skip


def bare(record: Record) -> Record:
    """As a connector with ``schemas.enable=false`` writes it."""
    key, value = (None if each is None else orjson.dumps(orjson.loads(each)["payload"]) for each in record[1:3])
    return record[0], key, value


def settings_of(text: str) -> dict[str, Any]:
    job = parse_job(text, name="job.yaml", environment={})
    found = cdc_settings(job, cdc_of(job, None))
    return {"tables": found.tables, "connector": found.connector}


def test_declared_columns_read_records_without_schema_parts(tmp_path: Path) -> None:
    """The same columns and values as with schema parts; a delete that has its key only deletes."""
    with memory_job(tmp_path, **settings_of(FILE)) as job:
        gone = ORDERS.delete({**ROW, "id": 2})
        _, key, _ = gone
        job.batch(
            bare(ORDERS.read(ROW)),
            bare(ORDERS.insert({**ROW, "id": 2})),
            bare(ORDERS.insert({**dict.fromkeys(ROW), "id": 3})),
        )
        table = job.catalog.table("shop.orders")
        assert table.schema.primary_keys == ("id",)
        kinds = ["INT NOT NULL", "TIMESTAMP(6)", "DATE", "DECIMAL(10, 2)", "BYTES", "TIMESTAMP(6) WITH LOCAL TIME ZONE"]
        assert [str(each.type) for each in table.schema.fields] == kinds
        delete = bare((gone[0], key, ORDERS.event("d", None, None)[2]))
        report = job.batch(delete, tombstone(bare(gone)), bare(ORDERS.update({**ROW, "amount": "Bg=="})))
        assert report.tables["orders"].parked is None
        full, empty = job.rows("orders")
    assert (full["id"], full["at"], full["day"]) == (
        1, datetime.datetime(2025, 11, 23, 1, 0, 0, 123456), datetime.date(2026, 11, 20),
    )  # fmt: skip
    zone = datetime.UTC
    assert (full["amount"], full["raw"]) == (Decimal("0.06"), b"\x00\xff")
    assert full["zoned"] == datetime.datetime(2026, 11, 20, 12, 34, 56, 500_000, zone)
    assert {name for name, value in empty.items() if value is not None} == {"id"}


@pytest.mark.parametrize(
    ("column", "value"),
    [("at", 1_763_859_600_123), ("at", "yesterday"), ("day", 1_763_859_600_000), ("amount", "12.34"), ("id", "one")],
)
def test_what_a_wrong_declaration_would_misread_parks_the_table(column: str, value: object, tmp_path: Path) -> None:
    """Finding 6: milliseconds under TIMESTAMP(6) were January 1970, silently."""
    with memory_job(tmp_path, **settings_of(FILE)) as job:
        report = job.batch(bare(ORDERS.read({**ROW, column: value})))
        assert f" {column}: " in str(report.tables["orders"].parked)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("decimal.handling.mode: precise, ", "", "write decimal.handling.mode: precise into source.connector"),
        ("precise", "string", "else declare STRING or DOUBLE"),
        ("binary.handling.mode: bytes", "", "column=raw type=BYTES source.connector.binary.handling.mode=None"),
        ("key: [id]", "key: [no]", "a key column is not declared: table=orders column=no"),
        ("DATE", "ARRAY<INT>", "no such column without schema parts: table=orders column=day type=ARRAY<INT>"),
        ("DATE", "TIME(3)", "no such column without schema parts: table=orders column=day"),
    ],
)
def test_a_declaration_that_cannot_be_sure_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        settings_of(FILE.replace(old, new))
    assert message in str(caught.value)


def test_a_declared_part_is_that_of_its_columns() -> None:
    """Equal declarations are one part: a table passes through it once."""
    given = TableSettings(columns=settings_of(FILE)["tables"]["orders"].columns, key=("id",))
    modes = {"decimal.handling.mode": "precise", "binary.handling.mode": "bytes"}
    parts = [declared_part("orders", columns, given.key, modes) for columns in (given.columns, given.columns[:2])]
    assert parts[0] == declared_part("orders", given.columns, given.key, modes)
    assert parts[0].digest != parts[1].digest
