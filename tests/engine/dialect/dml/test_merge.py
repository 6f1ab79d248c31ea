"""MERGE: WITH queries before it, columns that it adds, fields inside columns, tables without a key."""

from typing import Any

import pyarrow as pa
import pytest

from tests.engine.dialect.dml.conftest import KEY, Tables
from tests.support.rows import row_set

pytestmark = pytest.mark.spark

NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string()), ("in", pa.struct([("z", pa.int32())]))])),
    ]
)
BOTH = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


def rows_of(tables: Tables, name: str = "t") -> list[dict[str, Any]]:
    """As they are now, whatever columns the table has."""
    table = tables.context.catalog.table(f"default.{tables.names[name]}")
    return sorted(table.read().to_arrow().to_pylist(), key=lambda row: str(row["id"]))


@pytest.mark.parametrize(
    ("clauses", "more", "columns"),
    [
        (BOTH, {2: 7, 9: 8}, ["id", "v", "name", "more"]),
        ("WHEN MATCHED THEN UPDATE SET more = q.more", {2: 7}, ["id", "v", "name", "more"]),
        (
            "WHEN NOT MATCHED THEN INSERT (id, more) VALUES (q.id, q.more + 1)",
            {9: 9},
            ["id", "v", "name", "more"],
        ),
        ("WHEN MATCHED THEN UPDATE SET v = q.more", {}, ["id", "v", "name"]),
        ("WHEN MATCHED THEN DELETE", {}, ["id", "v", "name"]),
    ],
)
def test_a_merge_with_schema_evolution_adds_the_columns_that_it_assigns(
    tables: Tables, clauses: str, more: dict[int, int], columns: list[str]
) -> None:
    tables.keyed()
    tables.run(
        "MERGE WITH SCHEMA EVOLUTION INTO {t} AS a USING (VALUES (2L, 'B', 7), (9L, 'i', 8)) AS q(id, name, more) "
        f"ON a.id = q.id {clauses}"
    )
    rows = rows_of(tables)
    assert list(rows[0]) == columns
    assert {row["id"]: row["more"] for row in rows if row.get("more") is not None} == more
    kept = [row for row in rows if row["id"] in (1, 3)]
    assert [(row["v"], row["name"]) for row in kept] == [(10, "a"), (30, "c")]


def test_a_star_with_schema_evolution_keeps_what_the_source_lacks(tables: Tables) -> None:
    """As in Spark: an update leaves the column, a new row gets its default."""
    tables.keyed()
    tables.run(
        "MERGE WITH SCHEMA EVOLUTION INTO {t} AS a USING (VALUES (2L, 7), (9L, 8)) AS q(id, more) ON a.id = q.id "
        + BOTH
    )
    assert rows_of(tables) == [
        {"id": 1, "v": 10, "name": "a", "more": None},
        {"id": 2, "v": 20, "name": "b", "more": 7},
        {"id": 3, "v": 30, "name": "c", "more": None},
        {"id": 9, "v": None, "name": None, "more": 8},
    ]


@pytest.mark.parametrize(
    "source",
    [
        "(SELECT 2L AS id, 1 AS v, 'x' AS name, 1 / (id - id) AS more FROM {t} WHERE id = 2)",
        "(SELECT 2L AS id, 3000000000 AS v, 'x' AS name, 1 AS more)",
        "(SELECT 2L AS id, array(1) AS v, 'x' AS name, 1 AS more)",
        "(SELECT 2L AS id, explode(array(1, 2)) AS v, 'x' AS name, 1 AS more)",
    ],
)
def test_a_merge_that_fails_adds_no_column(tables: Tables, source: str) -> None:
    table = tables.keyed()
    with pytest.raises(Exception, match=r"DIVIDE_BY_ZERO|column=v|several rows"):
        tables.run(f"MERGE WITH SCHEMA EVOLUTION INTO {{t}} t USING {source} q ON t.id = q.id {BOTH}")
    assert table.store.schemas.ids() == [0]
    assert row_set(table) == {(1, 10, "a"), (2, 20, "b"), (3, 30, "c")}


def test_with_queries_come_before_every_change_of_rows(tables: Tables) -> None:
    """Also one that has the name of the table, which it does not hide where the table is written."""
    table = tables.keyed()
    tables.run("WITH c AS (SELECT 1L AS id, 11 AS v, 'A' AS name) MERGE INTO {t} t USING c ON t.id = c.id " + BOTH)
    assert row_set(table) == {(1, 11, "A"), (2, 20, "b"), (3, 30, "c")}
    tables.run("WITH c AS (SELECT 2L AS id), d AS (SELECT id FROM c) UPDATE {t} SET v = 0 WHERE id IN (FROM d)")
    tables.run("WITH c AS (SELECT max(id) AS id FROM {t}) DELETE FROM {t} WHERE id = (SELECT id FROM c)")
    assert row_set(table) == {(1, 11, "A"), (2, 0, "b")}
    tables.run(
        "WITH {t} AS (SELECT 2L AS id, 5 AS v, 'own' AS name) MERGE INTO {t} a USING {t} AS q ON a.id = q.id "
        "WHEN MATCHED AND q.v > (SELECT max(v) - 1 FROM {t}) THEN UPDATE SET *"
    )
    assert row_set(table) == {(1, 11, "A"), (2, 5, "own")}


def test_a_merge_assigns_fields_inside_columns(tables: Tables) -> None:
    """As UPDATE does: also of a struct that is null, and inside of one in it."""
    tables.make("t", NESTED, primary_key=["id"])
    tables.run("INSERT INTO {t} VALUES (1, named_struct('x', 1, 'y', 'a', 'in', NULL)), (2, NULL), (3, NULL)")
    tables.run(
        "MERGE INTO {t} AS a USING (VALUES (1L), (2L)) AS q(id) ON a.id = q.id "
        "WHEN MATCHED AND q.id = 1 THEN UPDATE SET a.s.x = a.s.x + 10, s.`in`.z = 5 "
        "WHEN MATCHED THEN UPDATE SET s.y = 'new' WHEN NOT MATCHED BY SOURCE THEN UPDATE SET s.x = 0"
    )
    assert [row["s"] for row in rows_of(tables)] == [
        {"x": 11, "y": "a", "in": {"z": 5}},
        {"x": None, "y": "new", "in": None},
        {"x": 0, "y": None, "in": None},
    ]
    refused = tables.refused(
        "MERGE INTO {t} a USING (SELECT 1L AS id) q ON a.id = q.id WHEN MATCHED THEN UPDATE SET s.q = 1"
    )
    assert "no such field: column=s.q fields=['x', 'y', 'in']" in refused


def test_a_null_struct_gets_no_field_beside_one_that_is_not_null(tables: Tables) -> None:
    """As by Spark's own plans, which say the same as NOT_NULL_ASSERT_VIOLATION; with all its fields it is one."""
    inner = pa.struct([pa.field("x", pa.int32(), nullable=False), ("y", pa.string())])
    tables.make("t", pa.schema([KEY.field("id"), ("s", inner)]), primary_key=["id"])
    tables.run("INSERT INTO {t} VALUES (1, NULL), (2, named_struct('x', 5, 'y', 'a'))")
    merge = "MERGE INTO {t} a USING (VALUES (1L), (2L)) AS q(id) ON a.id = q.id WHEN MATCHED THEN UPDATE SET "
    for text in ("UPDATE {t} SET s.y = 'n'", merge + "s.y = 'n'"):
        assert "null in a NOT NULL column: column=s.x" in tables.refused(text)
    assert [row["s"] for row in rows_of(tables)] == [None, {"x": 5, "y": "a"}]
    tables.run(merge + "s.y = 'n', s.x = coalesce(a.s.x, 7)")
    assert [row["s"] for row in rows_of(tables)] == [{"x": 7, "y": "n"}, {"x": 5, "y": "n"}]


@pytest.mark.parametrize("options", [{}, {"row-counts": "true", "bucket": "1"}, {"deletion-vectors.enabled": "true"}])
def test_a_merge_that_only_inserts_needs_no_key(tables: Tables, options: dict[str, str]) -> None:
    table = tables.make("t", options=options)
    table.write(pa.table({"id": [1, 1], "v": [10, 11], "name": ["a", "b"]}, schema=KEY))
    merge = "MERGE INTO {t} a USING (VALUES (1L, 'x'), (2L, 'y'), (2L, 'y'), (3L, 'n')) AS q(id, name) ON a.id = q.id "
    tables.run(
        merge + "WHEN NOT MATCHED AND q.name = 'y' THEN INSERT (id, name) VALUES (q.id, q.name) "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (q.id, 0)"
    )
    found = sorted(map(tuple, (row.values() for row in table.read().to_arrow().to_pylist())))
    assert [row[0] for row in found] == [1, 1, 2, 2, 3]
    assert set(found) == {(1, 10, "a"), (1, 11, "b"), (2, None, "y"), (3, 0, None)}
    assert "statement=MERGE" in tables.refused(merge + "WHEN MATCHED THEN UPDATE SET v = 1")


NONE_MATCHES = "MERGE INTO {t} a USING (SELECT 9L AS id, 90 AS v, 'n' AS more) q ON a.id = q.id "


def test_a_clause_sees_the_columns_of_its_rows_without_their_tables_names(tables: Tables) -> None:
    """As in Spark: a row that does not match has one side, so a name of both is that side's."""
    table = tables.keyed()
    tables.run(
        NONE_MATCHES + "WHEN NOT MATCHED AND v > 10 THEN INSERT (id, v, name) VALUES (id, v + 1, more) "
        "WHEN NOT MATCHED BY SOURCE AND id > 1 AND v < 30 THEN UPDATE SET v = v + 1 "
        "WHEN NOT MATCHED BY SOURCE AND v > 10 THEN DELETE"
    )
    assert row_set(table) == {(1, 10, "a"), (2, 21, "b"), (9, 91, "n")}


@pytest.mark.parametrize(
    ("clause", "name"),
    [
        ("WHEN NOT MATCHED AND name IS NULL THEN INSERT (id) VALUES (q.id)", "name"),
        ("WHEN NOT MATCHED AND a.v IS NULL THEN INSERT (id) VALUES (q.id)", "v"),
        ("WHEN NOT MATCHED THEN INSERT (id, name) VALUES (q.id, name)", "name"),
        ("WHEN NOT MATCHED THEN INSERT (id, name) VALUES (q.id, a.name)", "name"),
        ("WHEN NOT MATCHED BY SOURCE AND more IS NULL THEN DELETE", "more"),
        ("WHEN NOT MATCHED BY SOURCE AND q.v IS NULL THEN DELETE", "v"),
        ("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = more", "more"),
        ("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = q.v", "v"),
    ],
)
def test_a_column_that_the_rows_of_a_clause_lack_is_refused(tables: Tables, clause: str, name: str) -> None:
    """It was null in all of them: rows were changed, or were not."""
    table = tables.keyed()
    assert f"`{name}`" in tables.refused(NONE_MATCHES + clause)
    assert row_set(table) == {(1, 10, "a"), (2, 20, "b"), (3, 30, "c")}
