"""INSERT: columns that it adds, the two ways to overwrite, REPLACE WHERE."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from filestore.types.data_types import DataField, parse_data_type
from tests.engine.dialect.dml.conftest import KEY, Tables
from tests.support.rows import row_set

pytestmark = pytest.mark.spark

PARTS = pa.schema(
    [pa.field("p", pa.int32(), nullable=False), pa.field("q", pa.int32(), nullable=False), ("n", pa.int32())]
)
MODE = "spark.sql.sources.partitionOverwriteMode"


@pytest.fixture
def mode(tables: Tables) -> Iterator[str]:
    """The key of the setting, which no other test sees."""
    yield MODE
    tables.context.spark.conf.unset(MODE)


@pytest.mark.parametrize(
    ("rest", "row"),
    [
        ("INTO {t} SELECT 9L, 1, 'x', 7 AS more", {"id": 9, "v": 1, "name": "x", "more": 7}),
        ("INTO {t} BY NAME SELECT 7 AS more, 9L AS id", {"id": 9, "v": None, "name": None, "more": 7}),
        ("INTO {t} (id, more) VALUES (9, 7)", {"id": 9, "v": None, "name": None, "more": 7}),
        ("OVERWRITE {t} BY NAME SELECT 9L AS id, 7 AS more", {"id": 9, "v": None, "name": None, "more": 7}),
        ("INTO {t} VALUES (9, 1, 'x')", {"id": 9, "v": 1, "name": "x"}),
    ],
)
def test_an_insert_with_schema_evolution_adds_its_columns(tables: Tables, rest: str, row: dict[str, object]) -> None:
    tables.keyed()
    tables.run(f"INSERT WITH SCHEMA EVOLUTION {rest}")
    table = tables.context.catalog.table(f"default.{tables.names['t']}")
    assert row in table.read().to_arrow().to_pylist()
    assert table.schema.column_names == tuple(row)


@pytest.mark.parametrize("options", [{}, {"row-counts": "true", "bucket": "1"}, {"deletion-vectors.enabled": "true"}])
def test_a_table_without_a_key_grows(tables: Tables, options: dict[str, str]) -> None:
    tables.make("t", options=options).write(pa.table({"id": [1], "v": [10], "name": ["a"]}, schema=KEY))
    tables.run("INSERT WITH SCHEMA EVOLUTION INTO {t} SELECT 1L, 10, 'a', 7 AS more")
    tables.run(
        "MERGE WITH SCHEMA EVOLUTION INTO {t} a USING (SELECT 2L AS id, 'x' AS other) q ON a.id = q.id "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    rows = tables.context.catalog.table(f"default.{tables.names['t']}").read().to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in rows if row["more"] is None) == [
        (1, 10, "a", None, None),
        (2, None, None, None, "x"),
    ]
    assert [tuple(row.values()) for row in rows if row["more"]] == [(1, 10, "a", 7, None)]


def test_the_default_of_a_moment_is_one_moment_however_a_value_is_left_out(tables: Tables) -> None:
    """By the statement, as a null that the writer fills, by the word, by MERGE: in a session of another zone, too."""
    kind, text = parse_data_type("TIMESTAMP_LTZ(6)"), "2026-01-02 03:04:05.000006"
    moment = DataField(id=1, name="at", type=kind, default_value=text)
    tables.make("t", [DataField(id=0, name="id", type=parse_data_type("BIGINT NOT NULL")), moment], primary_key=["id"])
    zone, conf = "spark.sql.session.timeZone", tables.context.spark.conf
    before = conf.get(zone)
    conf.set(zone, "Asia/Tokyo")
    try:
        tables.run("INSERT INTO {t} (id) VALUES (1)")
        tables.run("INSERT INTO {t} (id) SELECT 2")
        tables.run("INSERT INTO {t} VALUES (3, NULL)")
        tables.run("INSERT INTO {t} VALUES (4, DEFAULT)")
        tables.run("MERGE INTO {t} USING (SELECT 5 AS k) q ON id = k WHEN NOT MATCHED THEN INSERT (id) VALUES (k)")
    finally:
        conf.set(zone, str(before))
    rows = tables.context.catalog.table(f"default.{tables.names['t']}").read().to_arrow().to_pylist()
    expected = f"{text.replace(' ', 'T')}+00:00"
    assert {row["id"]: row["at"].isoformat() for row in rows} == dict.fromkeys(range(1, 6), expected)


@pytest.mark.parametrize("how", ["INTO", "OVERWRITE"])
@pytest.mark.parametrize("values", ["3000000000, 'x', 7", "1, 'x', 1 / (id - 1)", "array(1), 'x', 7"])
def test_an_insert_that_fails_adds_no_column(tables: Tables, how: str, values: str) -> None:
    table = tables.keyed()
    with pytest.raises(Exception, match=r"DIVIDE_BY_ZERO|column=v"):
        tables.run(f"INSERT WITH SCHEMA EVOLUTION {how} {{t}} SELECT id, {values} AS more FROM {{t}}")
    assert table.store.schemas.ids() == [0]
    assert row_set(table) == {(1, 10, "a"), (2, 20, "b"), (3, 30, "c")}


@pytest.mark.parametrize(
    ("setting", "clause", "kept"),
    [
        ("STATIC", "SELECT 1, 1, 0", {(1, 1, 0)}),
        ("STATIC", "PARTITION (p, q) (n, p, q) SELECT 0, 1, 1", {(1, 1, 0)}),
        ("STATIC", "PARTITION (p = 1, q) SELECT 1, 0", {(1, 1, 0), (2, 1, 3)}),
        ("STATIC", "PARTITION (p = 1, q = 1) SELECT 0", {(1, 1, 0), (1, 2, 2), (2, 1, 3)}),
        (
            "STATIC",
            "/*+ OPTIONS('dynamic-partition-overwrite'='true') */ SELECT 1, 1, 0",
            {(1, 1, 0), (1, 2, 2), (2, 1, 3)},
        ),
        ("dynamic", "SELECT 1, 1, 0", {(1, 1, 0), (1, 2, 2), (2, 1, 3)}),
        ("DYNAMIC", "PARTITION (p = 1, q) SELECT 1, 0", {(1, 1, 0), (1, 2, 2), (2, 1, 3)}),
        ("DYNAMIC", "PARTITION (p = 1, q = 1) SELECT 0 WHERE false", {(1, 2, 2), (2, 1, 3)}),
        ("DYNAMIC", "SELECT 1, 1, 0 WHERE false", {(1, 1, 1), (1, 2, 2), (2, 1, 3)}),
        ("DYNAMIC", "/*+ OPTIONS('dynamic-partition-overwrite'='false') */ SELECT 1, 1, 0", {(1, 1, 0)}),
    ],
)
@pytest.mark.parametrize("own", ["true", "false"])
def test_an_overwrite_replaces_what_sparks_setting_says(
    tables: Tables, mode: str, setting: str | None, clause: str, kept: set[tuple[int, int, int]], own: str
) -> None:
    """As it does for Spark's own tables, and for frames; an option of the statement comes first."""
    table = tables.make("t", PARTS, partition_by=["p", "q"], options={"dynamic-partition-overwrite": own})
    table.write(pa.table({"p": [1, 1, 2], "q": [1, 2, 1], "n": [1, 2, 3]}, schema=PARTS))
    if setting is not None:
        tables.context.spark.conf.set(mode, setting)
    tables.run(f"INSERT OVERWRITE {{t}} {clause}")
    assert row_set(table) == kept


@pytest.mark.parametrize("own", ["true", "false"])
def test_where_no_session_says_it_the_table_says_what_an_overwrite_replaces(tables: Tables, own: str) -> None:
    """Other doors than ``spark.sql``, whose default is Spark's: a statement does not delete more than it did."""
    table = tables.make("t", PARTS, partition_by=["p", "q"], options={"dynamic-partition-overwrite": own})
    table.write(pa.table({"p": [1, 1, 2], "q": [1, 2, 1], "n": [1, 2, 3]}, schema=PARTS))
    tables.run("INSERT OVERWRITE {t} SELECT 1, 1, 0")
    assert row_set(table) == ({(1, 1, 0), (1, 2, 2), (2, 1, 3)} if own == "true" else {(1, 1, 0)})


KINDS = {
    "key": {"primary_key": ["id"]},
    "row counts": {"options": {"row-counts": "true", "bucket": "1"}},
    "deletion vectors": {"options": {"deletion-vectors.enabled": "true"}},
    "key and deletion vectors": {
        "primary_key": ["id"],
        "options": {"deletion-vectors.enabled": "true", "write-only": "true"},
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_replace_where_replaces_the_rows_that_meet_the_condition(tables: Tables, kind: str) -> None:
    table = tables.make("t", **KINDS[kind])
    table.write(pa.table({"id": [1, 2, 3], "v": [10, 20, None], "name": ["a", "b", "c"]}, schema=KEY))
    tables.run("INSERT INTO {t} REPLACE WHERE v < 15 SELECT 1L, 11, 'x' UNION ALL SELECT 7L, 12, 'y'")

    def now() -> set[tuple[object, ...]]:
        return {
            tuple(row.values())
            for row in table.read(options={"deletion-vectors.merge-on-read": "true"}).to_arrow().to_pylist()
        }

    assert now() == {(1, 11, "x"), (2, 20, "b"), (3, None, "c"), (7, 12, "y")}
    tables.run(
        "INSERT INTO {t} BY NAME REPLACE WHERE id IN (1, 2) AND v IS NOT NULL VALUES (2L, 'z', 5) AS s(id, name, v)"
    )
    assert now() == {(2, 5, "z"), (3, None, "c"), (7, 12, "y")}
    tables.run("INSERT INTO {t} REPLACE WHERE id = 50 VALUES (50, 1, 'new')")
    tables.run("WITH c AS (SELECT 1) INSERT INTO {t} REPLACE WHERE id = 7 OR {t}.id = 2 SELECT * FROM {t} WHERE v = 0")
    assert now() == {(3, None, "c"), (50, 1, "new")}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_do_not_meet_the_condition_are_refused(tables: Tables, kind: str) -> None:
    table = tables.make("t", **KINDS[kind])
    table.write(pa.table({"id": [1, 2, 3], "v": [10, 20, None], "name": ["a", "b", "c"]}, schema=KEY))
    for condition, values in (
        ("v < 15", "(1, 11, 'x'), (4, 15, 'y')"),
        ("id < 3", "(3, 1, 'x')"),
        ("v = 1", "(9, NULL, 'x')"),
    ):
        assert "a row does not meet the condition" in tables.refused(
            f"INSERT INTO {{t}} REPLACE WHERE {condition} VALUES {values}"
        )
    assert "has no query" in tables.refused("INSERT INTO {t} REPLACE WHERE id IN (SELECT 1) VALUES (1, 1, 'x')")
    assert "nope" in tables.refused("INSERT INTO {t} REPLACE WHERE nope = 1 VALUES (1, 1, 'x')")
    assert table.store.snapshots.latest_id() == 1 or kind == "key and deletion vectors"


def test_a_row_outside_the_condition_is_not_replaced_by_one_of_its_key(tables: Tables) -> None:
    """An INSERT would upsert it."""
    table = tables.keyed()
    refused = tables.refused("INSERT INTO {t} REPLACE WHERE v = 10 VALUES (2, 10, 'x')")
    assert "a row that does not meet the condition has the key" in refused
    assert '"id":2' in refused
    assert row_set(table) == {(1, 10, "a"), (2, 20, "b"), (3, 30, "c")}


def test_replace_where_of_a_partition_needs_no_key(tables: Tables) -> None:
    table = tables.make("t", PARTS, partition_by=["p", "q"])
    table.write(pa.table({"p": [1, 1, 2], "q": [1, 2, 1], "n": [1, 2, 3]}, schema=PARTS))
    tables.run("INSERT INTO {t} REPLACE WHERE p = 1 VALUES (1, 3, 4)")
    assert row_set(table) == {(1, 3, 4), (2, 1, 3)}
    assert "p" in tables.refused("INSERT INTO {t} REPLACE WHERE p = 1 VALUES (1, 3, 5), (2, 1, 5)")
    assert "statement=INSERT with REPLACE WHERE" in tables.refused(
        "INSERT INTO {t} REPLACE WHERE n = 1 VALUES (1, 3, 1)"
    )
    assert row_set(table) == {(1, 3, 4), (2, 1, 3)}
