"""EXPLAIN says what is read of each table, and why not less."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from engine.broker.broker import Broker
from engine.dialect.grammar.parser import parse_statements
from engine.dialect.query.explain import run_explain
from engine.dialect.scope.context import SqlContext
from lsm.errors import InvalidInputError
from tests.engine.dialect.conftest import Warehouse

pytestmark = pytest.mark.spark


def explained(context: SqlContext, text: str) -> tuple[str, list[dict[str, Any]]]:
    (statement,) = parse_statements(text)
    (row,) = run_explain(context, statement).to_pylist()
    return row["plan"], row["tables"]


def test_a_compacted_table_is_scanned_by_spark_and_pruned(warehouse: Warehouse) -> None:
    """FL-26: columns, partitions and files that are left out, and by which condition."""
    text = "EXPLAIN SELECT id FROM db.p WHERE day >= DATE '2024-03-20' AND n < 25 AND length(n) > 0"
    plan, (table,) = explained(warehouse.context, text)
    assert (table["table"], table["reference"], table["columns"]) == ("db.p", "db.p", ["day", "id", "n"])
    assert [(each["used"], each["reason"]) for each in table["conditions"][:2]] == [(True, None), (True, None)]
    assert table["conditions"][2]["used"] is False
    assert table["partitions"] == {"read": 1, "all": 4}
    assert table["files"] == {"read": 1, "all": 4}
    assert (table["files_of_spark"], table["merged_splits"], table["merged_because"]) == (1, 0, [])
    assert "== Physical Plan ==" in plan
    assert "FileScan parquet" in plan
    assert "partitions 1 of 4" in plan
    assert "fluvial_" not in plan


def test_files_that_an_index_rules_out_are_not_given_to_spark(warehouse: Warehouse) -> None:
    """Spark does not know bloom filters beside files: they are asked while the read is planned."""
    options = {"file-index.bloom-filter.columns": "k", "file-index.in-manifest-threshold": "0 b"}
    table = warehouse.context.catalog.create_table("db.indexed", pa.schema([("k", pa.int64())]), options=options)
    for first in (0, 1, 2):
        table.write(pa.table({"k": range(first, 3000, 3)}))
    _, (found,) = explained(warehouse.context, "EXPLAIN SELECT k FROM db.indexed WHERE k = 1000")
    assert found["files"] == {"read": 3, "all": 3}
    assert found["files_of_spark"] < 3


def test_what_spark_cannot_scan_our_reader_reads(warehouse: Warehouse) -> None:
    """FL-145: ORC and Avro files beside Parquet, compacted or not; thin Parquet files are Spark's."""
    options = {"bucket": "1", "file.format.per.level": "0:avro,5:orc", "data-file.thin-mode": "true"}
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    table = warehouse.context.catalog.create_table("db.mixed", schema, primary_key=["k"], options=options)
    text = "SELECT sum(k), count(v) FROM db.mixed WHERE v = 'new'"
    for step, levels in ((lambda: None, {0}), (lambda: table.compact(full=True), {5})):
        table.write(pa.table({"k": [1, 2], "v": ["old", "new"]}))
        table.write(pa.table({"k": [2, 3], "v": ["new", "new"]}))
        step()
        assert warehouse.rows(text)[1:] == [(5, 2)]
        _, (found,) = explained(warehouse.context, f"EXPLAIN {text}")
        assert found["files_of_spark"] == 0
        assert {each["level"] for each in found["levels"]} == levels
    assert "files are not Parquet" in found["merged_because"]
    thin = warehouse.context.catalog.create_table(
        "db.thin", schema, primary_key=["k"], options={"bucket": "1", "data-file.thin-mode": "true"}
    )
    thin.write(pa.table({"k": [1, 2], "v": ["old", "new"]}))
    thin.compact(full=True)
    assert warehouse.rows("SELECT * FROM db.thin WHERE k = 2")[1:] == [(2, "new")]
    _, (found,) = explained(warehouse.context, "EXPLAIN SELECT * FROM db.thin")
    assert found["files_of_spark"] == 1


def test_overlapping_runs_are_told(warehouse: Warehouse) -> None:
    plan, (t, u) = explained(
        warehouse.context, "EXPLAIN FORMATTED SELECT a.id FROM t a JOIN u VERSION AS OF 2 ON k = id"
    )
    assert (t["merged_splits"], t["merged_files"], t["merged_because"]) == (1, 2, ["key ranges overlap"])
    assert t["levels"] == [{"level": 0, "files": 2}]
    assert (u["snapshot_id"], u["reference"], u["files"]) == (2, "u VERSION AS OF 2", {"read": 2, "all": 2})
    assert "merged: 2 files in 1 tasks (key ranges overlap)" in plan


@pytest.mark.broker
def test_the_range_of_the_log_is_told(warehouse: Warehouse, broker: Broker, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})
    context = SqlContext(catalog=catalog, open_spark=lambda: warehouse.context.spark)
    table = catalog.create_table(
        "default.logged", pa.schema([("k", pa.int64())]), options={"bucket": "1", "bucket-key": "k"}
    )
    table.write(pa.table({"k": [1, 2]}))
    from filestore.commit.table_commit import TableCommit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableCommit, "commit", lambda *_: (_ for _ in ()).throw(InvalidInputError("not now")))
        with pytest.raises(InvalidInputError):
            table.write(pa.table({"k": [3]}))
    _, (facts,) = explained(context, "EXPLAIN SELECT * FROM logged /*+ OPTIONS('scan.log.union'='true') */")
    assert facts["source"].startswith("snapshot+log")
    assert [(each["bucket"], each["start"]) for each in facts["log_ranges"]] == [(0, 2)]
    assert facts["merged_because"] == ["the log is merged over the files"]


@pytest.mark.parametrize("mode", ["", "EXTENDED", "COST", "CODEGEN"])
def test_every_mode_of_spark_is_known(warehouse: Warehouse, mode: str) -> None:
    plan, tables = explained(warehouse.context, f"EXPLAIN {mode} SELECT count(*) FROM t")
    assert len(tables) == 1
    assert "fluvial_" not in plan


def test_what_cannot_be_explained_says_so(warehouse: Warehouse) -> None:
    with pytest.raises(InvalidInputError, match="near='nope'"):
        explained(warehouse.context, "EXPLAIN SELECT nope FROM t")
    with pytest.raises(InvalidInputError, match="only queries are explained"):
        explained(warehouse.context, "EXPLAIN DELETE FROM t")
    assert explained(warehouse.context, "EXPLAIN VALUES (1)")[1] == []
