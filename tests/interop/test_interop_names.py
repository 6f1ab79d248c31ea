"""Renamed tables in a JDBC catalog where no directory moves, and Java Paimon's own catalog of the same names."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from filestore.catalog.catalog import FileCatalog
from filestore.catalog.sql_database import TABLE_PROPERTIES, SqlDatabase
from tests.peers import PeerError
from tests.peers.java_peer import JavaPeer
from tests.support.faults import WithoutMoves

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
COLUMNS = {"id": "BIGINT NOT NULL", "v": "STRING"}
MADE: Mapping[str, Any] = {"primary_key": ["id"], "options": {"bucket": "1"}}
NO_FILES, NO_NAME = "There is no paimon table in", r"TableNotExistException.*shop\.{} does not exist"


def own(shared: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in shared.items() if key != "sync-all-properties"}


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(each.relative_to(directory)): each.read_bytes() for each in directory.rglob("*") if each.is_file()}


@pytest.fixture(params=["true", "false"])
def shared(request: pytest.FixtureRequest, postgres: str) -> Mapping[str, str]:
    """Options of Java's catalog and of ours, of names that no other test uses."""
    url = sa.make_url(postgres)
    names = {"metastore": "jdbc", "uri": f"jdbc:postgresql://{url.host}:{url.port}/{url.database}"}
    names |= {"catalog-key": f"moved-{request.param}", "jdbc.user": str(url.username)}
    names |= {"sync-all-properties": request.param}
    return {**names, "jdbc.password": str(url.password), "lock.enabled": "false"}


@pytest.mark.sampled(1)
def test_java_refuses_a_renamed_table_and_never_takes_another_one_for_it(
    tmp_path: Path, java_peer: JavaPeer, shared: Mapping[str, str]
) -> None:
    """Issue 20 point 6: whatever Java tries by name, no file and no name of another table changes."""
    java = java_peer.catalog({**shared, "warehouse": str(tmp_path)})
    peer = java_peer.with_options(shared)
    ours = FileCatalog(str(tmp_path), own(shared), io=WithoutMoves())

    def make(name: str, value: str) -> None:
        ours.create_table(name, SCHEMA, **MADE).write(pa.table({"id": [1], "v": [value]}, schema=SCHEMA))

    def seen() -> dict[str, str]:
        read = {name: ours.table(f"shop.{name}").read().to_arrow() for name in ours.list_tables("shop")}
        return {name: rows["v"][0].as_py() for name, rows in read.items() if rows.num_rows}

    def java_reads(name: str) -> str:
        return str(peer.read(tmp_path, f"shop.{name}")[0]["v"])

    def refused(name: str, fact: str) -> None:
        """Each way to use a name; a table of the name cannot be made, neither by another name."""
        before = files_below(tmp_path), seen(), java.list_tables("shop")
        ways: list[Callable[[], object]] = [
            lambda: java_reads(name),
            lambda: java.column_names(f"shop.{name}"),
            lambda: peer.write(tmp_path, f"shop.{name}", pa.table({"id": [1], "v": ["java"]}, schema=SCHEMA)),
            lambda: java.drop_table(f"shop.{name}"),
            lambda: java.rename_table(f"shop.{name}", "shop.z"),
            lambda: peer.alter(tmp_path, f"shop.{name}", "addColumn", "m", peer.data_type("DOUBLE")),
        ]
        for way in ways:
            with pytest.raises(PeerError, match=fact):
                way()
        with pytest.raises(PeerError, match=f"{NO_FILES}|Schema in filesystem exists, creation is not allowed"):
            java.create_table(f"shop.{name}", COLUMNS, ["id"])
        assert (files_below(tmp_path), seen(), java.list_tables("shop")) == before

    java.create_database("shop")
    java.create_table("shop.of_java", COLUMNS, ["id"])
    make("shop.a", "first")
    assert java_reads("a") == "first"
    ours.rename_table("shop.a", "shop.b")
    assert java.list_tables("shop") == ["b", "of_java"]
    refused("b", NO_FILES)
    refused("a", NO_NAME.format("a"))

    assert [row["v"] for row in java_peer.read(tmp_path, "shop.a")] == ["first"]  # as a catalog of directories names it

    make("shop.a", "second")  # in a directory beside that of its name
    assert seen() == {"a": "second", "b": "first"}
    assert java.list_tables("shop") == ["b", "of_java"]
    refused("b", NO_FILES)
    refused("a", NO_NAME.format("a"))

    ours.rename_table("shop.of_java", "shop.renamed")
    refused("renamed", NO_FILES)
    ours.rename_table("shop.renamed", "shop.of_java")
    assert java.column_names("shop.of_java") == ["id", "v"]

    ours.drop_table("shop.b")
    assert java.list_tables("shop") == ["a", "of_java"]
    refused("a", NO_FILES)
    ours.rename_table("shop.a", "shop.a-2")  # the name of its directory: Java has it again
    assert java_reads("a-2") == "second"
    java.create_table("shop.a", COLUMNS, ["id"])
    assert java.list_tables("shop") == ["a", "a-2", "of_java"]
    java.drop_table("shop.a-2")
    assert sorted(each.name for each in (tmp_path / "shop.db").iterdir()) == ["a", "of_java"]
    ours.drop_database("shop", cascade=True)
    with SqlDatabase.of(shared["uri"], user=shared["jdbc.user"], password=shared["jdbc.password"]).transaction(
        "look"
    ) as connection:
        left = sa.select(TABLE_PROPERTIES).where(TABLE_PROPERTIES.c.catalog_key == shared["catalog-key"])
        assert connection.execute(left).all() == []


def test_what_java_takes_for_its_own_is_no_table_here_and_loses_the_name_with_the_next_change(
    tmp_path: Path, java_peer: JavaPeer, shared: Mapping[str, str]
) -> None:
    """Java lists directories that have files, and moves a table into one: ours are as they were."""
    java = java_peer.catalog({**shared, "warehouse": str(tmp_path)})
    ours = FileCatalog(str(tmp_path), own(shared), io=WithoutMoves())
    for number, name in enumerate(("a", "x")):
        ours.create_table(f"shop.{name}", SCHEMA, **MADE).write(pa.table({"id": [number], "v": [name]}, schema=SCHEMA))
    ours.rename_table("shop.a", "shop.b")
    java.repair_database("shop")  # which also forgets notes of the names that it lists
    assert (java.list_tables("shop"), ours.list_tables("shop")) == (["a", "b", "x"], ["b", "x"])
    ours.rename_table("shop.b", "shop.c")
    assert (java.list_tables("shop"), ours.list_tables("shop")) == (["c", "x"], ["c", "x"])
    java.rename_table("shop.x", "shop.a")
    assert (java.list_tables("shop"), ours.list_tables("shop")) == (["a", "c"], ["c"])
    assert ours.table("shop.c").read().to_arrow()["v"].to_pylist() == ["a"]
    ours.create_table("shop.a", SCHEMA, **MADE)
    assert (java.list_tables("shop"), ours.list_tables("shop")) == (["c"], ["a", "c"])
    assert ours.table("shop.c").read().to_arrow()["v"].to_pylist() == ["a"]
    assert ours.table("shop.a").read().to_arrow().num_rows == 0
    java.repair_database("shop")
    found = ours.list_tables("shop")
    assert found == (["a-2", "c"] if shared["sync-all-properties"] == "true" else ["a", "c"])
    assert {ours.table_path(f"shop.{name}").rpartition("/")[2] for name in found} == {"a", "a-2"}
    ours.drop_database("shop", cascade=True)
