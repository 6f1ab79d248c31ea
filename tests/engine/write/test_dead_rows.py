"""log.consistency=eventual: after a writer that died in a batch, the log comes to say what the table has."""

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine import procedures as sys_
from engine.broker.broker import Broker
from lsm.errors import UnavailableError
from tests.support.logs import folded, log_changes
from tests.support.warehouses import ID_SCHEMA

pytestmark = pytest.mark.broker


@pytest.fixture
def table(catalog: Catalog, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Table:
    """An eventual table of two buckets with the rows 0 to 5, of which each change is visible at once."""
    monkeypatch.setattr("logstore.log.log_writer.CHUNK_S", 0.0)
    options = {
        "bucket": "2",
        "log.consistency": "eventual",
        "log.kafka.bootstrap.servers": broker.bootstrap_servers,
    }
    made = catalog.create_table("db.t", ID_SCHEMA, primary_key=["id"], options=options)
    made.write(id_rows(range(6), "good"))
    return made


def id_rows(keys: range, v: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(keys), "v": [v] * len(keys)}, schema=ID_SCHEMA)


def die(table: Table, *batches: pa.RecordBatch) -> None:
    """A writer that ends before its batch does."""

    def source() -> Iterator[pa.RecordBatch]:
        yield from batches
        raise UnavailableError("the source is gone")

    with suppress(UnavailableError):
        table.write(pa.RecordBatchReader.from_batches(ID_SCHEMA, source()))
    shown = folded(log_changes(table), "id")
    assert shown != rows_by_id(table), "readers of the log see rows of the dead writer"


def rows_by_id(table: Table) -> dict[int, dict[str, object]]:
    return {row["id"]: row for row in table.read().to_arrow().to_pylist()}


def wrong(table: Table) -> list[str]:
    return [each["problem"] for each in sys_.verify(table).to_pylist() if each["check"] == "log"]


@pytest.mark.parametrize("next_keys", [range(100, 103), range(1), range(3, 40)])
def test_the_next_batch_leaves_nothing_of_a_dead_one_in_the_log(table: Table, next_keys: range) -> None:
    """FL-58, FL-108, FL-189: whatever its keys are; changed, new and deleted ones of the dead batch."""
    die(table, id_rows(range(2, 12), "dead"), id_rows(range(0, 30, 3), "dead again"))
    assert any("rows of a batch that has not ended" in each for each in wrong(table))
    table.write(id_rows(next_keys, "next"))
    assert folded(log_changes(table), "id") == rows_by_id(table)
    assert wrong(table) == []


def test_a_log_is_right_after_sync_log_without_a_next_id_rows(table: Table) -> None:
    before = rows_by_id(table)
    die(table, id_rows(range(2, 12), "dead"))
    sys_.sync_log(table)
    assert rows_by_id(table) == before
    assert folded(log_changes(table), "id") == before
    assert wrong(table) == []
    count, snapshot = len(log_changes(table)), table.latest_snapshot()
    sys_.sync_log(table)
    assert (len(log_changes(table)), table.latest_snapshot()) == (count, snapshot)


def test_writers_that_die_one_after_the_other_leave_nothing(table: Table) -> None:
    for number in range(3):
        die(table, id_rows(range(number, 20 + number), f"dead {number}"))
    table.write(id_rows(range(50, 51), "next"))
    assert folded(log_changes(table), "id") == rows_by_id(table)
    assert wrong(table) == []


def test_what_follows_a_running_reader_ends_equal_to_the_table(table: Table) -> None:
    """A stream, plain and from before, and a union read."""
    stream = table.stream(timeout_s=60)
    die(table, id_rows(range(2, 12), "dead"))
    table.write(id_rows(range(99, 100), "last"))
    changes: list[dict[str, object]] = []
    while not any(row["id"] == 99 for row in changes):
        changes += next(stream).rows.to_pylist()
    stream.close()
    seen: dict[object, dict[str, object]] = {}
    for row in changes:
        seen.pop(row["id"], None)
        if row["_row_kind"] in ("+I", "+U"):
            seen[row["id"]] = {"id": row["id"], "v": row["v"]}
    assert seen == rows_by_id(table)
