"""Streams that run while the table's schema changes."""

import logging
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from filestore.evolution.schema_change import (
    AddColumn,
    ChangeNullability,
    ChangeType,
    DropColumn,
    RenameColumn,
    SchemaChange,
)
from filestore.types.data_types import parse_data_type
from lsm.errors import InvalidInputError
from tests.engine.stream.conftest import NewTable
from tests.support.logs import write_without_commit
from tests.support.rows import write_rows
from tests.support.streams import query

pytestmark = pytest.mark.broker

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("v", pa.string()), ("p", pa.struct([("x", pa.int32())]))])
INT, BIGINT, STRING = (parse_data_type(text) for text in ("INT", "BIGINT", "STRING"))
KINDS = {
    "log": {},
    "json log": {"log.format": "json"},
    "avro log": {"log.format": "avro"},
    "envelopes in avro": {"log.format": "debezium-avro"},
    "normalized log": {},
    "files": {"log": False},
    "changelog": {"log": False, "changelog__producer": "input"},
    "no key": {"log": False, "key": ()},
    "no key, log": {"key": ()},
}


def altered(table: Table, *changes: SchemaChange) -> Table:
    return Catalog(table.store.paths.root.rsplit("/", 2)[0]).alter_table(table.name, list(changes))


def shown_columns(found: list[dict[str, Any]] | None) -> list[tuple[Any, ...]]:
    """Rows as id, n, v, p.x."""
    return [(row["id"], row["n"], row["v"], row["p"] and row["p"]["x"]) for row in found or []]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_crosses_new_and_renamed_columns_in_both_phases(
    new_table: NewTable, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """FL-24: in the snapshot phase, through the switch and behind it, and the restart has the new columns."""
    table = new_table(schema=SCHEMA, **KINDS[kind])
    nested = [] if table.log else [RenameColumn(("p", "x"), "left")]  # a log keeps names inside of columns
    write_rows(table, {"id": 1, "n": 1, "v": "a", "p": {"x": 1}})
    write_rows(table, {"id": 2, "n": 2, "v": "b", "p": None})
    options = {"log.scan.normalize": "true"} if kind == "normalized log" else {}
    options["read.stream.maxRowsPerTrigger"] = "1"
    stream = query(table, with_kinds=kind[:6] != "no key", **options)
    assert stream.plan()
    # the snapshot is planned, and the schema changes before its tasks read it
    second = altered(
        table,
        AddColumn(path=("more",), type=INT),
        AddColumn(path=("p", "y"), type=INT),
        RenameColumn(("n",), "number"),
        *nested,
    )
    x = "left" if nested else "x"
    write_rows(second, {"id": 3, "number": 3, "v": "c", "p": {x: 3, "y": 3}, "more": 3})
    found = stream.read()
    stream.commit()
    write_rows(table, {"id": 4, "n": 4, "v": "d", "p": {"x": 4}})  # a writer that was open
    with caplog.at_level(logging.WARNING, logger="fluvial.stream"):
        found += stream.available()
    third = altered(second, RenameColumn(("number",), "count"), RenameColumn(("v",), "word"))
    write_rows(third, {"id": 5, "count": 5, "word": "e", "p": {x: 5, "y": 5}, "more": 5})
    found += stream.available()
    assert sorted(shown_columns(found)) == [
        (1, 1, "a", 1),
        (2, 2, "b", None),
        (3, 3, "c", 3),
        (4, 4, "d", 4),
        (5, 5, "e", 5),
    ]
    reported = [each.message for each in caplog.records if "schema changed" in each.message]
    assert len(reported) == 2, "one line for each version"
    assert "schema=1 stream_schema=0 not_delivered_until_restart=[p.y, more] renamed=[n -> number" in reported[0]
    assert stream.position["schema"] == 0
    write_rows(third, {"id": 6, "count": 6, "word": "f", "p": {x: 6, "y": 6}, "more": 6})
    stream.start()
    [row] = stream.available()
    assert (row["count"], row["word"], row["more"], row["p"]) == (6, "f", 6, {x: 6, "y": 6})
    assert stream.position["schema"] == 2


@pytest.mark.parametrize("kind", ["log", "json log", "avro log", "normalized log", "files", "changelog"])
def test_wider_values_are_delivered_while_they_fit_and_never_cut(new_table: NewTable, kind: str) -> None:
    table = new_table(schema=SCHEMA, **KINDS[kind])
    write_rows(table, {"id": 1, "n": 1, "v": "a", "p": {"x": 1}})
    options = {"log.scan.normalize": "true"} if kind == "normalized log" else {}
    stream = query(table, **options)
    assert shown_columns(stream.available()) == [(1, 1, "a", 1)]
    wide = altered(table, ChangeType(("n",), BIGINT), ChangeType(("p", "x"), BIGINT))
    write_rows(wide, {"id": 2, "n": 2, "v": "b", "p": {"x": 2}})
    assert shown_columns(stream.available()) == [(2, 2, "b", 2)]
    write_rows(wide, {"id": 3, "n": 2**40, "v": "c", "p": {"x": 3}})
    problem = r"column=n type=INT new_type=BIGINT schema=1 opened_schema=0 .*fix=.*restart the query"
    with pytest.raises(InvalidInputError, match=problem):
        stream.available()
    stream.start()
    assert shown_columns(stream.available()) == [(3, 2**40, "c", 3)]
    write_rows(wide, {"id": 4, "n": 4, "v": "d", "p": {"x": 2**40}})
    assert shown_columns(stream.available()) == [(4, 4, "d", 2**40)]


@pytest.mark.parametrize("kind", ["log", "files"])
def test_a_dropped_column_stops_the_stream_unless_null_is_asked_for(new_table: NewTable, kind: str) -> None:
    table = new_table(schema=SCHEMA, **KINDS[kind])
    write_rows(table, {"id": 1, "n": 1, "v": "a", "p": {"x": 1}})
    strict = query(table)
    lenient = query(table, **{"read.stream.on-dropped-column": "null"})
    careless = query(table, columns="id,v,p")
    for stream in (strict, lenient):
        assert shown_columns(stream.available()) == [(1, 1, "a", 1)]
    assert [row["v"] for row in careless.available()] == ["a"]
    write_rows(table, {"id": 2, "n": 2, "v": "b", "p": {"x": 2}})
    without = altered(table, DropColumn(("n",)))
    write_rows(without, {"id": 3, "v": "c", "p": {"x": 3}})
    problem = (
        r"schema changed: table=\S+ column=n reason='it was dropped' schema=1 stream_schema=0 "
        r"fix=restart the query.* or set read.stream.on-dropped-column=null"
    )
    with pytest.raises(InvalidInputError, match=problem):
        strict.available()
    assert shown_columns(lenient.available()) == [(2, 2, "b", 2), (3, None, "c", 3)]
    assert [row["v"] for row in careless.available()] == ["b", "c"]
    strict.start()
    assert [(row["id"], row["v"]) for row in strict.available()] == [(2, "b"), (3, "c")]


@pytest.mark.parametrize("kind", ["log", "files"])
def test_a_null_where_there_was_none_is_an_error(new_table: NewTable, kind: str) -> None:
    schema = SCHEMA.set(1, SCHEMA.field("n").with_nullable(False))
    table = new_table(schema=schema, **KINDS[kind])
    stream = query(table)
    loose = altered(table, ChangeNullability(("n",), True))
    write_rows(loose, {"id": 1, "n": 1, "v": "a", "p": None})
    assert shown_columns(stream.available()) == [(1, 1, "a", None)]
    write_rows(loose, {"id": 2, "n": None, "v": "b", "p": None})
    with pytest.raises(InvalidInputError, match="column=n"):
        stream.available()
    stream.start()
    assert shown_columns(stream.available()) == [(2, None, "b", None)]


def test_another_type_stops_the_stream(new_table: NewTable) -> None:
    table = new_table(schema=SCHEMA, log=False)
    write_rows(table, {"id": 1, "n": 1, "v": "a", "p": None})
    stream = query(table)
    assert shown_columns(stream.available()) == [(1, 1, "a", None)]
    write_rows(altered(table, ChangeType(("n",), STRING)), {"id": 2, "n": "two", "v": "b", "p": None})
    with pytest.raises(InvalidInputError, match=r"new_type=STRING .*schema=1 stream_schema=0 fix=restart"):
        stream.available()
    stream.start()
    assert shown_columns(stream.available()) == [(2, "two", "b", None)]


@pytest.mark.parametrize("wide", [3, 2**40])
def test_a_table_that_was_opened_before_merges_files_and_log_as_it_knows_them(new_table: NewTable, wide: int) -> None:
    """A union read of a table that somebody altered since it was opened."""
    table = new_table(schema=SCHEMA, log_consistency="eventual")
    write_rows(table, {"id": 1, "n": 1, "v": "a", "p": {"x": 1}})
    more = AddColumn(path=("more",), type=INT)
    second = altered(table, RenameColumn(("n",), "m"), ChangeType(("m",), BIGINT), more)
    write_rows(second, {"id": 2, "m": 2, "v": "b", "p": {"x": 2}, "more": 2})
    news = {"id": 3, "m": wide, "v": "c", "p": None, "more": 3}
    write_without_commit(second, 1, pa.Table.from_pylist([news], schema=second.schema.arrow_schema))
    assert sorted(shown_columns(table.read().to_arrow().to_pylist())) == [(1, 1, "a", 1), (2, 2, "b", 2)]
    fresh = table.read(options={"scan.log.union": "true"})
    if wide == 3:
        assert sorted(shown_columns(fresh.to_arrow().to_pylist())) == [
            (1, 1, "a", 1),
            (2, 2, "b", 2),
            (3, 3, "c", None),
        ]
    else:
        with pytest.raises(InvalidInputError, match="column=n type=INT new_type=BIGINT"):
            fresh.to_arrow()
