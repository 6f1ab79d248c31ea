"""Truncate events as rows: what the connectors published, decoded as the source does."""

from typing import Any

import pyarrow as pa
import pytest

from engine.kafka.options import KafkaSourceOptions
from engine.kafka.rows import decoder, spark_rows
from tests.stores import change_samples
from tests.stores.debezium import ChangeRecord

COLUMNS = pa.schema([("id", pa.int32()), ("a", pa.int64())])
WITH_KINDS = COLUMNS.append(pa.field("_row_kind", pa.string()))


def orders() -> list[ChangeRecord]:
    return [each for each in change_samples.read("changes") if each.topic.endswith(".orders")]


def decoded(records: list[ChangeRecord], *, emits: bool) -> Any:
    options = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "value.format": "debezium-json", "key.columns": "id"}
    decode = decoder(KafkaSourceOptions.parse(options), COLUMNS, emits_truncates=emits)
    keys, values = ([getattr(each, name) for each in records] for name in ("key", "value"))
    return decode(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))


def test_a_truncate_of_postgres_is_the_first_row_of_what_is_left() -> None:
    """TRUNCATE; INSERT 7: of all rows before it none is given."""
    found = decoded(orders(), emits=True)
    assert (found.bad, found.first_truncate is None) == ((), False)
    rows = spark_rows(found, WITH_KINDS).to_pylist()
    assert rows == [{"id": None, "a": None, "_row_kind": "-T"}, {"id": 7, "a": 7, "_row_kind": "+I"}]


@pytest.mark.parametrize("emits", [True, False])
def test_records_without_a_truncate_are_as_they_were(emits: bool) -> None:
    records = orders()
    (truncate,) = [place for place, each in enumerate(records) if each.key is None]
    found = decoded(records[:truncate], emits=emits)
    assert found.first_truncate is None
    assert {each["_row_kind"] for each in spark_rows(found, WITH_KINDS).to_pylist()} == {"+I", "+U"}
    (bad,) = decoded(records, emits=False).bad
    assert (bad.index, "truncates=emit" in bad.reason) == (truncate, True)


def test_a_truncate_alone_is_a_row() -> None:
    (only,) = [each for each in orders() if each.key is None]
    rows = spark_rows(decoded([only], emits=True), WITH_KINDS)
    assert rows["_row_kind"].to_pylist() == ["-T"]
