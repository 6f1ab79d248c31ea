"""A delete as Flink's sink writes it into a log of debezium-json: a record with a key and no value."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from engine.log.log_rows import log_rows
from engine.table import Table
from logstore.kafka.clients import ErrorNotes
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from logstore.offsets import LogRange
from lsm.errors import InvalidInputError
from lsm.row_kind import RowKind
from tests.support.streams import as_foreign


@pytest.fixture
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Table]:
    """One bucket: two rows of ours and their marker, then a row and a tombstone by Flink, whose snapshot has both."""
    schema = pa.schema([("id", pa.int64()), pa.field("v", pa.int64(), nullable=getattr(request, "param", True))])
    with serving("memory:9092", MemoryEnvironment(MemoryCluster())):
        catalog = Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": "memory:9092"})
        made = catalog.create_table("db.t", schema, primary_key=["id"], options={"bucket": "1"})
        made.write(pa.table({"id": [1, 2], "v": [10, 20]}))
        producer = made.log.properties.producer(ErrorNotes(), transactional_id="flink")
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(made.log.topic, b'{"before":null,"after":{"id":3,"v":30},"op":"c"}', b'{"id":3}', partition=0)
        producer.produce(made.log.topic, None, b'{"id":1}', partition=0)
        producer.commit_transaction(10)
        end = made.latest_snapshot().log_offsets[0] + 3  # behind the mark of our transaction
        files = Table(made.files.with_options({"log.system": "none"}))
        files.write(pa.table({"id": [3, 1], "v": [30, 10], "_row_kind": ["+I", "-D"]}))
        as_foreign(made, commitIdentifier=1, logOffsets={"0": end})
        yield made


def changes_in_log(table: Table, columns: Sequence[str], **more: Any) -> list[tuple[Any, ...]]:
    """Kinds and values of the whole log."""
    whole = LogRange(bucket=0, start_offset=0, end_offset=5)
    return [
        (RowKind(kind).name, *row.values())
        for each in log_rows(table.files, table.log, whole, columns=columns, **more)
        for kind, row in zip(each.kinds.to_pylist(), each.rows.to_pylist(), strict=True)
    ]


def test_it_is_a_delete_of_its_key_in_its_place(table: Table) -> None:
    expected = [("INSERT", 1, 10), ("INSERT", 2, 20), ("INSERT", 3, 30), ("DELETE", 1, None)]
    assert changes_in_log(table, ["id", "v"]) == expected
    assert changes_in_log(table, ["v"]) == [(kind, v) for kind, _, v in expected]


@pytest.mark.parametrize("table", [False], indirect=True)
def test_it_is_refused_where_a_column_is_never_null(table: Table) -> None:
    with pytest.raises(InvalidInputError, match=r"missing=v .*RESET \('log.system'\)"):
        changes_in_log(table, ["id", "v"])
    assert len(changes_in_log(table, ["id"])) == 4


def test_it_is_refused_where_values_order_or_merge_deletes(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="missing=v"):
        changes_in_log(table, ["id", "v"], needed_of_deletes=["v"])
