"""The main statements of the founding documents, wherever tables, names and lineage are kept.

Tags, savepoints, branches, ways back and questions about lineage, by SQL that needs no Spark: on a local disk, in an
object store, with names in a database or a Hive metastore, with lineage in PostgreSQL and MariaDB, and on a table that
Paimon for Java has made, whose manifest entries have version 2.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import engine
from engine import Catalog, Table

GOLDEN = Path(__file__).parents[1] / "golden" / "java-1.4.2"
SCHEMA = pa.schema([pa.field("pt", pa.string(), nullable=False), pa.field("k", pa.int32(), nullable=False)])
PLACES = ("disk", "postgres", "mysql", "object_store", "hive_metastore", "sql names", "java")


@dataclass(frozen=True)
class Place:
    catalog: Catalog
    name: str

    @property
    def table(self) -> Table:
        return self.catalog.table(self.name)

    def write(self, key: int, branch: str = "") -> None:
        opened = self.catalog.table(f"{self.name}{branch}")
        rows = pa.table({"pt": ["p"], "k": [key]}, schema=SCHEMA)
        opened.write(rows, options={"pipeline.name": f"load{branch}"})

    def call(self, procedure: str, *more: object) -> list[dict[str, Any]]:
        given = ", ".join(map(repr, (self.name, *more)))
        return engine.sql(None, f"CALL sys.{procedure}({given})", self.catalog).to_pylist()  # type: ignore[union-attr]

    def call_named(self, procedure: str, arguments: str) -> None:
        engine.sql(None, f"CALL sys.{procedure}(table => '{self.name}', {arguments})", self.catalog)

    def keys(self, **options: Any) -> set[int]:
        return {row["k"] for row in self.table.read(**options).to_arrow().to_pylist() if row["k"] >= 100}


@pytest.fixture(params=PLACES)
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    kind, warehouse = request.param, str(tmp_path / "w")
    options = {"table-lineage": "true", "data-lineage": "true"}  # asked for: these catalogs are not all new
    if kind == "java":
        shutil.copytree(GOLDEN, warehouse)
        return Place(Catalog(warehouse, options=options), "db.pk")
    if kind in ("postgres", "mysql"):
        options |= {"jdbc.url": request.getfixturevalue(kind), "jdbc.database": "founding"}
    elif kind == "object_store":
        store = request.getfixturevalue("object_store")
        warehouse = f"s3://{request.getfixturevalue('new_bucket')()}/lake"
        options |= {**store.options, "jdbc.url": f"sqlite:///{tmp_path}/lineage.sqlite"}
    elif kind == "hive_metastore":
        options |= {"metastore": "hive", "uri": request.getfixturevalue(kind).uri}
    elif kind == "sql names":
        options |= {"metastore": "jdbc", "uri": f"sqlite:///{tmp_path}/names.sqlite"}
    catalog = Catalog(warehouse, options=options)
    create = "CREATE TABLE IF NOT EXISTS db.t (pt STRING, k INT, PRIMARY KEY (pt, k) NOT ENFORCED) PARTITIONED BY (pt)"
    engine.sql(None, create, catalog)
    return Place(catalog, "db.t")


@pytest.mark.sweep
def test_the_documents_hold_in_every_place(place: Place) -> None:
    """TAG-02 to TAG-07, TAG-21, TAG-22, TAG-65, SP-18, BR-07 to BR-16, BR-26 to BR-32, LN-10, LN-26, LN-28, FL-93."""
    for key in (100, 101):
        place.write(key)
    place.call("create_tag", "tag-1")
    place.call("create_branch", "branch-1", "tag-1")
    place.write(102)
    place.write(103, "$branch_branch-1")
    place.call("create_savepoint")
    newest = place.table.latest_snapshot()
    assert newest is not None
    assert place.keys(tag="tag-1") == {100, 101}
    assert place.keys(options={"scan.branch": "branch-1"}) == {100, 101, 103}
    assert place.keys(options={"scan.version": "branch-1.tag-1"}) == {100, 101}
    assert place.keys(options={"scan.savepoint-id": "1"}) == {100, 101, 102}
    place.call("merge_branch", "branch-1")
    assert place.keys() == {100, 101, 102, 103}
    lineage_is_known(place)
    place.call_named("rollback", f"snapshot => {newest.id}, force => true")
    assert place.keys() == {100, 101, 102}
    place.write(104, "$branch_branch-1")
    place.call("delete_savepoint", 1)  # of a commit that the branch has not
    place.call_named("replace_main_branch", "branch => 'branch-1', force => true")
    assert place.keys() == {100, 101, 103, 104}
    assert place.table.branches.main == "branch-1"
    place.write(105)
    for tag in place.table.tags.list():
        place.call("delete_tag", tag.name)
    place.call("expire_snapshots", 1, 1)
    assert place.keys() == {100, 101, 103, 104, 105}
    assert engine.sql(None, f"CALL sys.verify('{place.name}')", place.catalog).num_rows == 0  # type: ignore[union-attr]
    engine.sql(None, f"DROP TABLE {place.name}", place.catalog)
    assert not place.catalog.table_exists(place.name)
    if "db" in place.catalog.list_databases() and not place.catalog.list_tables("db"):
        engine.sql(None, "DROP DATABASE db", place.catalog)  # other tests share the metastore


def lineage_is_known(place: Place) -> None:
    """The merge has read the branch, which job ``load$branch_branch-1`` has written."""
    database, _, table = place.name.partition(".")

    def rows(name: str, **wanted: object) -> list[Mapping[str, Any]]:
        found = place.catalog.system_table(f"paimon.{name}").to_arrow().to_pylist()
        return [row for row in found if wanted.items() <= row.items()]

    assert rows("sink_job_lineage", job="load", database=database, table=table)
    (merged,) = rows("source_job_lineage", database=database, table=f"{table}$branch_branch-1")
    newest = place.table.latest_snapshot()
    assert newest is not None
    (written,) = rows("sink_snapshot_lineage", table=table, snapshot_id=newest.id)
    assert written["job"] == merged["job"]
    (read,) = rows("source_snapshot_lineage", job=merged["job"], barrier_id=written["barrier_id"])
    assert read["table"] == f"{table}$branch_branch-1"
