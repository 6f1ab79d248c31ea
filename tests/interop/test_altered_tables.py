"""Tables that were altered by SQL, as Apache Paimon for Java and pypaimon read them."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from engine.catalog import Catalog
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from engine.procedures import create_tag, rollback_to_as_latest
from filestore.catalog.catalog import FileCatalog
from filestore.evolution.schema_change import AddColumn
from filestore.types.data_types import parse_data_type
from tests.peers.agreement import Agreement
from tests.support.schema_histories import SchemaHistory

pytestmark = pytest.mark.interop

CREATE = (
    "CREATE TABLE t (dt STRING, id INT, a INT, gone STRING, s STRING, PRIMARY KEY (dt, id) NOT ENFORCED) "
    "PARTITIONED BY (dt) WITH ('bucket'='1', 'sequence.field'='a')"
)
ALTER = """
    ALTER TABLE t RENAME COLUMN s TO text; ALTER TABLE t ALTER COLUMN a TYPE BIGINT;
    ALTER TABLE t DROP COLUMN gone; ALTER TABLE t ADD COLUMN gone DOUBLE AFTER dt;
    ALTER TABLE t ADD COLUMN new INT COMMENT 'added'; ALTER TABLE t RENAME COLUMN a TO version;
    ALTER TABLE t ALTER COLUMN new FIRST; ALTER TABLE t RENAME COLUMN id TO number;
"""


def test_everybody_reads_a_state_that_was_taken_back_across_changes(
    tmp_path: Path, assert_peers_agree: Agreement
) -> None:
    """Issue 16 point 1: its files are older than the schema of the newest snapshot."""
    catalog = Catalog(str(tmp_path))
    session = SqlSession(SqlContext(catalog=catalog, open_spark=lambda: pytest.fail("no Spark"), database="db"))
    session.execute(f"CREATE DATABASE db; {CREATE.replace('gone STRING, ', '')}")
    table = catalog.table("db.t")
    old = {"dt": ["x", "x", "y"], "id": [1, 2, 1], "a": [1, 5, 1], "s": ["one", "two", None]}
    table.write(pa.table(old, schema=table.schema.arrow_schema))
    create_tag(table, "good")
    session.execute("; ".join(line for line in ALTER.split(";") if "gone" not in line))
    session.execute("ALTER TABLE t SET ('snapshot.num-retained.max'='77')")
    table = catalog.table("db.t")
    wrong = {"new": [7, 8], "dt": ["x", "z"], "number": [2, 3], "version": [9, 2**40], "text": ["no", "three"]}
    table.write(pa.table(wrong, schema=table.schema.arrow_schema))
    rollback_to_as_latest(table, tag="good")
    rows = assert_peers_agree(table.store.paths.root)
    assert sorted((row["dt"], row["number"], row["version"], row["text"], row["new"]) for row in rows) == [
        ("x", 1, 1, "one", None), ("x", 2, 5, "two", None), ("y", 1, 1, None, None),
    ]  # fmt: skip
    table.compact(full=True)
    assert_peers_agree(table.store.paths.root)


@pytest.mark.parametrize("compacts", [False, True])
def test_everybody_reads_old_and_new_rows_alike(tmp_path: Path, assert_peers_agree: Agreement, compacts: bool) -> None:
    """FL-121."""
    catalog = Catalog(str(tmp_path))
    session = SqlSession(SqlContext(catalog=catalog, open_spark=lambda: pytest.fail("no Spark"), database="db"))
    session.execute(f"CREATE DATABASE db; {CREATE}")
    table = catalog.table("db.t")
    old = {"dt": ["x", "x", "y"], "id": [1, 2, 1], "a": [1, 5, 1], "gone": ["g"] * 3, "s": ["one", "two", None]}
    table.write(pa.table(old, schema=table.schema.arrow_schema))
    assert len(assert_peers_agree(table.store.paths.root)) == 3
    session.execute(ALTER)
    table = catalog.table("db.t")
    assert table.schema.column_names == ("new", "dt", "gone", "number", "version", "text")
    new = {
        "new": [7, 8],
        "dt": ["x", "x"],
        "gone": [0.5, 1.5],
        "number": [2, 3],
        "version": [4, 2**40],
        "text": ["no", "three"],
    }
    table.write(pa.table(new, schema=table.schema.arrow_schema))
    if compacts:
        table.compact(full=True)
    rows = assert_peers_agree(table.store.paths.root)
    assert len(rows) == 4
    assert table.read().to_arrow().sort_by([("dt", "ascending"), ("number", "ascending")]).to_pylist() == [
        {"new": None, "dt": "x", "gone": None, "number": 1, "version": 1, "text": "one"},
        {"new": None, "dt": "x", "gone": None, "number": 2, "version": 5, "text": "two"},
        {"new": 8, "dt": "x", "gone": 1.5, "number": 3, "version": 2**40, "text": "three"},
        {"new": None, "dt": "y", "gone": None, "number": 1, "version": 1, "text": None},
    ]


@pytest.mark.parametrize("compacts", [False, True])
def test_java_reads_any_history_of_changes_alike(tmp_path: Path, assert_peers_agree: Agreement, compacts: bool) -> None:
    """FL-121: fields inside of rows, arrays and maps too. (pypaimon does not map fields inside of columns.)"""
    for seed in range(6):
        catalog = FileCatalog(str(tmp_path))
        name = f"db.t{seed}"
        history = SchemaHistory(
            catalog=catalog, name=name, random=random.Random(f"{seed} {compacts}"), compacts=compacts
        )
        history.begin()
        history.run(steps=12)
        rows = assert_peers_agree(catalog.table(name).store.paths.root, only=("java",))
        assert len(rows) == len(history.rows)


def test_a_default_is_not_a_value_of_old_rows_to_anybody(tmp_path: Path, assert_peers_agree: Agreement) -> None:
    """Paimon's defaults are for writers that leave a column out; files from before the column show null."""
    table = Catalog(str(tmp_path)).create_table(
        "db.t", pa.schema([("id", pa.int64())]), primary_key=["id"], options={"bucket": "1"}
    )
    table.write(pa.table({"id": [1]}))
    added = AddColumn(path=("n",), type=parse_data_type("INT"), default="7")
    later = Catalog(str(tmp_path)).alter_table("db.t", [added])
    later.write(pa.table({"id": [2], "n": pa.array([2], pa.int32())}))
    assert len(assert_peers_agree(table.store.paths.root)) == 2
    assert later.read().to_arrow().to_pylist() == [{"id": 1, "n": None}, {"id": 2, "n": 2}]


def test_everybody_reads_a_table_that_grew_with_its_rows(tmp_path: Path, assert_peers_agree: Agreement) -> None:
    """``write.merge-schema``: new columns, fields and wider types."""
    options = {"bucket": "1", "write.merge-schema": "true", "write.merge-schema.type-widening": "true"}
    columns = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("p", pa.struct([("x", pa.int32())]))])
    table = Catalog(str(tmp_path)).create_table("db.t", columns, primary_key=["id"], options=options)
    table.write(pa.table({"id": [1], "n": pa.array([1], pa.int32()), "p": [{"x": 1}]}, schema=columns))
    table.write(pa.table({"id": [2], "n": [2**40], "a": ["a"], "p": [{"x": 2, "y": 2}]}))
    cast = {"write.merge-schema.explicit-cast": "true"}
    table.write(pa.table({"id": [3], "n": [1.5], "l": [[{"z": 3}]]}), options=cast)
    assert len(assert_peers_agree(table.store.paths.root, only=("java",))) == 3


def test_everybody_opens_a_table_with_an_initial_default_and_reads_it_once_files_are_rewritten(
    tmp_path: Path, assert_peers_agree: Agreement
) -> None:
    """Other engines skip the key ``initialDefault`` of a field, and read null until a compaction has written it."""
    catalog = Catalog(str(tmp_path))
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("v", pa.int32())])
    table = catalog.create_table("db.t", schema, primary_key=["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [1, 2], "v": [1, 2]}, schema=schema))
    added = AddColumn(path=("e",), type=parse_data_type("INT"), initial_default="7")
    table = catalog.alter_table("db.t", [added])
    table.write(pa.table({"id": [2, 3], "v": [3, 4], "e": [None, 8]}, schema=table.schema.arrow_schema))
    table.compact(full=True)
    rows = assert_peers_agree(table.store.paths.root)
    assert sorted((row["id"], row["v"], row["e"]) for row in rows) == [(1, 1, 7), (2, 3, None), (3, 4, 8)]
