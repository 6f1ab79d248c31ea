"""Tables that were altered by SQL, as Apache Paimon for Java and pypaimon read them."""

from pathlib import Path

import pyarrow as pa
import pytest

from engine.catalog import Catalog
from engine.sql.context import SqlContext
from engine.sql.session import SqlSession
from tests.peers.agreement import Agreement

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
