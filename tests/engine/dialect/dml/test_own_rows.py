"""Statements that write what they read of their own table: all rows of it, and none that others commit meanwhile."""

from typing import Any

import pyarrow as pa
import pytest

from engine.dialect.dml.target import WriteTarget
from engine.dialect.session import SqlSession
from engine.replacement import Replacement
from engine.table import Table
from lsm.errors import InvalidInputError
from tests.engine.dialect.conftest import Warehouse
from tests.engine.dialect.dml.test_waiting_rows import SCHEMA, newest_rows, waiting

pytestmark = pytest.mark.spark

ADDS = {
    "overwrite": "INSERT OVERWRITE db.waiting SELECT id, n + 1, s FROM db.waiting",
    "with": "WITH q AS (SELECT * FROM db.waiting) INSERT OVERWRITE db.waiting SELECT id, n + 1, s FROM q",
    "replace where": "INSERT INTO db.waiting REPLACE WHERE id < 100 SELECT id, n + 1, s FROM db.waiting",
    "create or replace": "CREATE OR REPLACE TABLE db.waiting AS SELECT id, n + 1 AS n, s FROM db.waiting",
    "replace": "REPLACE TABLE db.waiting AS SELECT id, n + 1 AS n, s FROM db.waiting",
}
"""Each adds one to all rows."""
INSERT = "INSERT INTO db.waiting SELECT id, n + 1, s FROM db.waiting"
ONCE = "INSERT INTO db.waiting SELECT 7L, 7, 'once' WHERE NOT EXISTS (SELECT 1 FROM db.waiting WHERE s = 'once')"
KINDS = {
    "key": ({"bucket": "2"}, ["id"]),
    "dynamic": ({}, ["id"]),
    "vectors": ({"bucket": "1", "deletion-vectors.enabled": "true"}, ["id"]),
    "no key": ({}, []),
    "no key with vectors": ({"deletion-vectors.enabled": "true"}, []),
    "row counts": ({"row-counts": "true", "bucket": "1"}, []),
}


@pytest.mark.parametrize("text", [*ADDS.values(), INSERT], ids=[*ADDS, "insert"])
def test_rows_that_wait_for_a_compaction_are_among_those_that_are_written(warehouse: Warehouse, text: str) -> None:
    """Readers of a table with deletion vectors leave out level 0; what replaces rows would lose it."""
    table, sql = waiting(warehouse)
    sql.execute("INSERT INTO db.waiting VALUES (1, 0, 'a'), (2, 0, 'a')")
    table.compact(full=True)
    sql.execute("INSERT INTO db.waiting VALUES (1, 100, 'new'), (3, 5, 'three')")
    sql.execute(text)
    found = newest_rows(warehouse.context.catalog.table("db.waiting"))
    assert found == [(1, 101, "new"), (2, 1, "a"), (3, 6, "three")]


def written_beside(warehouse: Warehouse, kind: str) -> tuple[Table, SqlSession]:
    options, keys = KINDS[kind]
    warehouse.context.catalog.drop_table("db.waiting", if_exists=True)
    table = warehouse.context.catalog.create_table("db.waiting", SCHEMA, primary_key=keys, options=options)
    table.write(pa.table({"id": [1, 2], "n": [0, 0], "s": ["a", "b"]}, schema=SCHEMA))
    return table, SqlSession(warehouse.context)


def meanwhile(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, write: Any) -> None:
    """Let another writer commit when a statement has read its rows, and is about to publish what it made of them."""
    own, done = getattr(owner, method), []

    def late(*given: Any, **named: Any) -> Any:
        if not done:
            done.append(True)
            write()
        return own(*given, **named)

    monkeypatch.setattr(owner, method, late)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((kind, ADDS["overwrite"]) for kind in KINDS),
        *((kind, INSERT) for kind in ("key", "dynamic", "vectors")),
        ("key", ADDS["replace where"]),
        ("key", ADDS["create or replace"]),
        ("no key", ADDS["replace"]),
    ],
)
def test_what_another_writer_commits_meanwhile_is_read_again(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, kind: str, text: str
) -> None:
    table, sql = written_beside(warehouse, kind)
    row = pa.table({"id": [3], "n": [50], "s": ["late"]}, schema=SCHEMA)
    owner, method = (Replacement, "finish") if "REPLACE TABLE" in text else (WriteTarget, "overwrite")
    if text.startswith("INSERT INTO"):
        method = "append"
    meanwhile(monkeypatch, owner, method, lambda: table.write(row))
    sql.execute(text)
    assert newest_rows(warehouse.context.catalog.table("db.waiting")) == [(1, 1, "a"), (2, 1, "b"), (3, 51, "late")]


@pytest.mark.parametrize("kind", ["key", "no key"])
def test_a_row_that_is_inserted_unless_it_is_there_comes_once(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    table, sql = written_beside(warehouse, kind)
    row = pa.table({"id": [8], "n": [8], "s": ["once"]}, schema=SCHEMA)
    meanwhile(monkeypatch, WriteTarget, "append", lambda: table.write(row))
    sql.execute(ONCE)
    assert [each for each in newest_rows(table) if each[2] == "once"] == [(8, 8, "once")]


def test_an_old_state_of_the_table_is_written_whatever_others_commit(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not change: nothing has to be computed again."""
    table, sql = written_beside(warehouse, "key")
    table.write(pa.table({"id": [2], "n": [9], "s": ["z"]}, schema=SCHEMA))
    row = pa.table({"id": [3], "n": [50], "s": ["late"]}, schema=SCHEMA)
    meanwhile(monkeypatch, WriteTarget, "overwrite", lambda: table.write(row))
    sql.execute("INSERT OVERWRITE db.waiting SELECT * FROM db.waiting VERSION AS OF 1")
    assert newest_rows(table) == [(1, 0, "a"), (2, 0, "b")]


@pytest.mark.parametrize("kind", ["key", "no key with vectors"])
def test_a_constant_row_that_the_query_leaves_out_is_not_checked(warehouse: Warehouse, kind: str) -> None:
    """Spark derives conditions of the join with the table's keys from all constants of the source."""
    table, sql = written_beside(warehouse, kind)
    source = "SELECT 10L AS id, 127L AS n UNION ALL SELECT 3L, 0L UNION ALL SELECT 4L, 5L"
    meets = "(id < 1) OR (n IN (0, 5))"
    sql.execute(f"INSERT INTO db.waiting REPLACE WHERE {meets} SELECT id, n, 'c' FROM ({source}) WHERE {meets}")
    assert newest_rows(table) == [(3, 0, "c"), (4, 5, "c")]
    with pytest.raises(InvalidInputError, match="a row does not meet the condition"):
        sql.execute(f"INSERT INTO db.waiting REPLACE WHERE {meets} SELECT id, n, 'c' FROM ({source})")
