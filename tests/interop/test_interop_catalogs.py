"""Databases and tables of Java Paimon, pypaimon and Fluvial: each sees at once what the others made."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from engine import Catalog
from filestore.catalog.sql_names import SqlLockFactory
from lsm.errors import InvalidInputError
from tests.peers import PeerError, TableDefinition
from tests.peers.java_peer import JavaPeer
from tests.peers.pypaimon_peer import PyPaimonPeer
from tests.stores.object_store import ACCESS_KEY, REGION, SECRET_KEY, ObjectStore

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
DEFINITION = TableDefinition(
    columns=[("id", "BIGINT NOT NULL"), ("v", "STRING")], primary_key=["id"], partition_by=[], options={"bucket": "1"}
)
ROWS = [{"id": 1, "v": "one"}, {"id": 2, "v": None}]


def test_databases_and_tables_of_other_writers_are_there_at_once(
    tmp_path: Path, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer
) -> None:
    """FL-17: listed, described, read, written and dropped, by any engine."""
    ours, java = Catalog(str(tmp_path)), java_peer.catalog({"warehouse": str(tmp_path)})
    java.create_database("of_java")
    assert ours.list_databases() == ["of_java"]
    assert ours.list_tables("of_java") == []
    java_peer.create(tmp_path, "of_java.t", DEFINITION)
    pypaimon_peer.create(tmp_path, "of_python.t", DEFINITION)
    ours.create_table("ours.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    assert ours.list_databases() == java.list_databases() == ["of_java", "of_python", "ours"]
    for database in ours.list_databases():
        assert ours.list_tables(database) == java.list_tables(database) == ["t"]
        table = ours.table(f"{database}.t")
        assert table.schema.column_names == ("id", "v")
        assert table.schema.primary_keys == ("id",)
        table.write(pa.Table.from_pylist(ROWS, schema=SCHEMA))
        for peer in (java_peer, pypaimon_peer):
            assert [dict(each) for each in peer.read(tmp_path, f"{database}.t")] == ROWS
    ours.drop_database("of_java", cascade=True)
    java.drop_table("ours.t")
    assert ours.list_databases() == java.list_databases() == ["of_python", "ours"]
    assert ours.list_tables("ours") == []


@pytest.mark.long
def test_a_table_in_an_object_store_is_one_for_pypaimon_and_for_us(
    object_store: ObjectStore, new_bucket: Callable[[], str], pypaimon_peer: PyPaimonPeer
) -> None:
    """FL-17, FL-93: the same keys, the same files."""
    warehouse = f"s3://{new_bucket()}/lake"
    reached = {"fs.s3.endpoint": object_store.endpoint, "fs.s3.region": REGION}
    reached |= {"fs.s3.accessKeyId": ACCESS_KEY, "fs.s3.accessKeySecret": SECRET_KEY}
    ours = Catalog(warehouse, options=object_store.options)
    ours.create_table("ours.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    more = {"id": 3, "v": "three"}
    with pypaimon_peer.with_catalog(reached):
        pypaimon_peer.create(warehouse, "of_python.t", DEFINITION)
        for name in ("ours.t", "of_python.t"):
            table = ours.table(name)
            table.write(pa.Table.from_pylist(ROWS, schema=SCHEMA))
            assert [dict(each) for each in pypaimon_peer.read(warehouse, name)] == ROWS
            arrow = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
            pypaimon_peer.write(warehouse, name, pa.Table.from_pylist([more], schema=arrow))
            assert table.read().to_arrow().to_pylist() == [*ROWS, more]
    assert ours.list_databases() == ["of_python", "ours"]


def test_a_jdbc_catalog_in_postgresql_is_one_for_java_and_for_us(
    tmp_path: Path, java_peer: JavaPeer, postgres: str
) -> None:
    """FL-93..FL-97, FL-112: the same names, the same locations, one lock."""
    url = sa.make_url(postgres)
    jdbc = f"jdbc:postgresql://{url.host}:{url.port}/{url.database}"
    shared = {"metastore": "jdbc", "catalog-key": "shared", "lock.enabled": "true", "jdbc.user": str(url.username)}
    shared |= {"jdbc.password": str(url.password)}
    java = java_peer.catalog({**shared, "warehouse": str(tmp_path), "uri": jdbc})
    ours = Catalog(str(tmp_path), options={**shared, "uri": jdbc})
    java.create_database("of_java")
    java.create_table("of_java.t", {"id": "BIGINT NOT NULL", "v": "STRING"}, ["id"])
    ours.create_database("ours")
    ours.create_table("ours.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    ours.create_table("made_by_the_way.t", SCHEMA, primary_key=["id"])
    assert ours.list_databases() == java.list_databases() == ["made_by_the_way", "of_java", "ours"]
    for database in ours.list_databases():
        assert ours.list_tables(database) == java.list_tables(database) == ["t"]
        assert java.column_names(f"{database}.t") == ["id", "v"]
        table = ours.table(f"{database}.t")
        table.write(pa.Table.from_pylist(ROWS, schema=SCHEMA))
        assert table.read().to_arrow().to_pylist() == ROWS
    with pytest.raises(PeerError, match="already exist"):
        java.create_table("ours.t", {"id": "BIGINT NOT NULL"}, ["id"])
    with pytest.raises(InvalidInputError, match="table exists already"):
        ours.create_table("of_java.t", SCHEMA)
    hasty = java_peer.catalog(
        {
            **shared,
            "warehouse": str(tmp_path),
            "uri": jdbc,
            "lock-acquire-timeout": "1 s",
            "lock-check-max-sleep": "100 ms",
        }
    )
    lock = ours.table("ours.t").store.lock_factory
    assert isinstance(lock, SqlLockFactory)
    with pytest.raises(PeerError, match="Acquire lock failed"):
        lock.create().run_with_lock("ours", "u", lambda: hasty.create_table("ours.u", {"id": "INT NOT NULL"}, ["id"]))
    hasty.create_table("ours.u", {"id": "INT NOT NULL"}, ["id"])
    java.drop_table("ours.t")
    assert not ours.table_exists("ours.t")
    ours.drop_table("of_java.t")
    assert java.list_tables("of_java") == []
