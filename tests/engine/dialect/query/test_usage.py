"""Rows that are left out before Spark sees them must not be missed, with SQLite as the judge."""

import sqlite3
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.catalog import Catalog
from engine.dialect.grammar.parser import parse_statements
from engine.dialect.grammar.splice import Edit, Spliced
from engine.dialect.query.references import StatementText, find_references, reads_nothing
from engine.dialect.query.usage import row_conditions, used_columns
from engine.dialect.scope.context import SqlContext
from filestore.predicate.evaluation import filter_mask
from filestore.predicate.predicate import and_all
from filestore.schema.table_schema import TableSchema
from tests.support.tables import memory_catalog

COLUMNS = {"a": ("k", "x", "y"), "b": ("k", "z"), "c": ("w",)}


class Tables:
    """A catalog of three tables."""

    def table_exists(self, name: str) -> bool:
        return name.removeprefix("default.") in COLUMNS


CONTEXT = SqlContext(catalog=cast(Catalog, Tables()), open_spark=lambda: None)  # type: ignore[arg-type,return-value]
_MADE = memory_catalog()
SCHEMAS: dict[str, TableSchema] = {
    name: _MADE.create_table(f"db.{name}", pa.schema([(each, pa.int64()) for each in columns])).schema
    for name, columns in COLUMNS.items()
}

small = st.one_of(st.none(), st.integers(0, 2))
contents = st.fixed_dictionaries(
    {name: st.lists(st.tuples(*[small] * len(columns)), max_size=4) for name, columns in COLUMNS.items()}
)
columns = st.sampled_from(["p.k", "p.x", "p.y", "q.k", "q.z", "y", "z", "x"])
tests = st.one_of(
    st.tuples(columns, st.sampled_from(["= 1", "> 0", "IS NULL", "IS NOT NULL", "<> 2", "IN (0, 2)", "IN (1, NULL)"])),
    st.tuples(st.just("NOT"), columns, st.sampled_from(["> 1", "= 0"])),
    st.tuples(columns, st.just("= 1 OR"), columns, st.just("IS NULL")),
    st.tuples(columns, st.just("="), columns),
).map(lambda parts: f"({' '.join(parts)})")
later = st.sampled_from(["r.w > 0", "r.w IS NULL", "w = 1"])
conjunctions = st.lists(tests, min_size=1, max_size=2).map(" AND ".join)
joins = st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])


@st.composite
def queries(draw: st.DrawFn) -> str:
    text = f"SELECT p.k, p.x, p.y, q.k, q.z{{third}} FROM a p {draw(joins)} b q ON {draw(conjunctions)}"
    third = ""
    if draw(st.booleans()):
        third = ", r.w"
        text += f" {draw(joins)} c r ON {draw(st.one_of(conjunctions, later, later))}"
    if draw(st.booleans()):
        text += f" WHERE {draw(st.one_of(conjunctions, later) if third else conjunctions)}"
    return text.format(third=third)


def sqlite_rows(text: str, tables: dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]]) -> list[tuple[Any, ...]]:
    with sqlite3.connect(":memory:") as database:
        for name, (names, rows) in tables.items():
            database.execute(f"CREATE TABLE {name} ({', '.join(names)})")
            database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(names))})", rows)
        return sorted(database.execute(text).fetchall(), key=repr)


def pruned(text: str, content: dict[str, list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """What the text gives over the rows that conditions leave."""
    (statement,) = parse_statements(text)
    references = find_references(CONTEXT, statement, cast(Any, statement.tree), is_view=lambda _: False)
    schemas = {each.start: SCHEMAS[each.name.removeprefix("default.")] for each in references}
    used = used_columns(StatementText(statement), cast(Any, statement.tree), references)
    edits, tables = [], {}
    for number, each in enumerate(references):
        name = each.name.removeprefix("default.")
        conditions = row_conditions(each, schemas, setting=lambda _: "UTC")
        predicate = and_all([found.predicate for found in conditions if found.predicate is not None])
        rows = pa.RecordBatch.from_pylist(
            [dict(zip(COLUMNS[name], row, strict=True)) for row in content[name]],
            schema=pa.schema([(column, pa.int64()) for column in COLUMNS[name]]),
        )
        if predicate is not None:
            rows = rows.filter(filter_mask(predicate, rows))
        kept = tuple(column for column in COLUMNS[name] if each.start not in used or column in used[each.start])
        tables[f"t{number}"] = (
            kept or ("nothing",),
            [tuple(row.get(c) for c in kept or "-") for row in rows.to_pylist()],
        )
        edits.append(Edit(each.start, each.stop, f"t{number}"))
    return sqlite_rows(Spliced.of(text, edits).text, tables)


@pytest.mark.long
@pytest.mark.sweep
@settings(max_examples=300)
@given(queries(), contents)
@example(
    "SELECT p.k, q.z FROM a p RIGHT JOIN b q ON p.k = q.k WHERE p.x IS NULL", {"a": [(1, 1, 1)], "b": [(1, 1)], "c": []}
)
@example(
    "SELECT p.k, w FROM a p JOIN b q ON p.k = q.k LEFT JOIN c r ON p.x > 1", {"a": [(1, 1, 1)], "b": [(1, 1)], "c": []}
)
@example(
    "SELECT p.k, q.z FROM a p LEFT JOIN b q ON p.k = q.k WHERE q.z IS NULL", {"a": [(1, 1, 1)], "b": [(1, 1)], "c": []}
)
@example(
    "SELECT p.k FROM a p WHERE x > 0 AND EXISTS (SELECT 1 FROM b q WHERE q.k = p.k AND z = 1)",
    {"a": [(1, 1, 1)], "b": [(1, 1)], "c": []},
)
def test_no_row_is_missed(text: str, content: dict[str, list[tuple[Any, ...]]]) -> None:
    whole = {name: (COLUMNS[name], rows) for name, rows in content.items()}
    assert pruned(text, content) == sqlite_rows(text, whole)


@pytest.mark.parametrize(
    "query",
    [
        "VALUES (1, 'x', -2.5D, NULL, true, DATE '2024-01-01', X'1A', INTERVAL 1 DAY), (1 + 1, (2), DEFAULT)",
        "SELECT 1 AS a, CAST('2' AS DECIMAL(9, 2)) UNION ALL SELECT 2, 3",
        "SELECT q.* FROM VALUES (1, 2) AS q(a, b)",
    ],
)
def test_a_query_of_constants_reads_nothing(query: str) -> None:
    (statement,) = parse_statements(f"INSERT INTO c {query}")
    assert reads_nothing(statement.tree)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO c SELECT * FROM b",
        "INSERT INTO c TABLE b",
        "INSERT INTO c FROM b SELECT *",
        "INSERT INTO c FROM b |> SELECT z",
        "INSERT INTO c SELECT * FROM IDENTIFIER('b')",
        "INSERT INTO c VALUES (1), ((SELECT max(z) FROM b))",
        "INSERT INTO c SELECT 1 WHERE EXISTS (SELECT 1 FROM b)",
        "INSERT INTO c SELECT a FROM VALUES (1) AS q(a) JOIN b ON q.a = b.k",
        "INSERT INTO c SELECT of_sql(1)",
        "INSERT INTO c SELECT abs(1)",
        "INSERT INTO c SELECT * FROM of_sql(1)",
        "INSERT INTO c SELECT 1 UNION SELECT z FROM parquet.`p`",
        "WITH q AS (SELECT * FROM b) INSERT INTO c SELECT * FROM q",
    ],
)
def test_what_may_read_a_table_is_asked(text: str) -> None:
    (statement,) = parse_statements(text)
    assert not reads_nothing(statement.tree)
