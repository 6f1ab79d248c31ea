"""Tables in a real Hive metastore: Java Paimon's Hive catalog and Fluvial see the same, under one lock."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from filestore.catalog.catalog import FileCatalog
from filestore.catalog.hive_metastore import HiveMetastore
from filestore.catalog.hive_names import HiveNames
from filestore.catalog.hive_registry import HiveLock, HiveLockFactory
from filestore.catalog.hive_tables import left_alone
from filestore.evolution.schema_change import AddColumn, RemoveOption, SetOption
from filestore.io.file_io import SystemClock
from filestore.types.data_types import DataField, parse_data_type
from lsm.errors import ConflictError, FluvialError, InvalidInputError, UnavailableError
from tests.peers import PeerError, TableDefinition
from tests.stores.hive_metastore import LOCK_TIMEOUT_S, RunningMetastore
from tests.support.faults import WithoutMoves
from tests.support.warehouses import digests_below

COLUMNS = {
    "id": "BIGINT NOT NULL",
    "v": "STRING",
    "short": "VARCHAR(7)",
    "code": "CHAR(3)",
    "price": "DECIMAL(10, 2)",
    "seen": "TIMESTAMP(3)",
    "zoned": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "at": "TIME(0)",
    "body": "BYTES",
}
FIELDS = [
    DataField(id=number, name=name, type=parse_data_type(kind)) for number, (name, kind) in enumerate(COLUMNS.items())
]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
ROWS = [{"id": 1, "v": "one"}, {"id": 2, "v": None}]
_OF_ITS_TIME = {"createTime", "lastAccessTime", "dbName", "parameters", "sd"}


def catalog_of(metastore: RunningMetastore, warehouse: Path, **more: str) -> Catalog:
    options = {key.replace("_", "-").replace("lock-enabled", "lock.enabled"): text for key, text in more.items()}
    return Catalog(str(warehouse), options={"metastore": "hive", "uri": metastore.uri, **options})


def names_of(metastore: RunningMetastore, warehouse: Path) -> HiveNames:
    """What the metastore itself says."""
    client = HiveMetastore.of(metastore.uri)
    return HiveNames(metastore=client, root=str(warehouse), user="root", clock=SystemClock())


def lock_of(metastore: RunningMetastore, timeout_ms: int = 60_000) -> HiveLockFactory:
    client = HiveMetastore.of(metastore.uri)
    return HiveLockFactory(
        metastore=client, user="root", clock=SystemClock(), timeout_ms=timeout_ms, longest_sleep_ms=100
    )


def entry(table: Any) -> Mapping[str, Any]:
    """An entry of the metastore without what differs between any two tables."""
    found = {key: value for key, value in vars(table).items() if key not in _OF_ITS_TIME}
    place = {key: value for key, value in vars(table.sd).items() if key != "location"}
    counted = ("totalSize", "numFiles", "transient_lastDdlTime")  # what the metastore counts
    return {**found, **place, **{key: text for key, text in table.parameters.items() if key not in counted}}


def test_the_entries_of_java_and_of_us_are_equal_and_each_reads_what_the_other_wrote(
    tmp_path: Path, hive_metastore: RunningMetastore
) -> None:
    """FL-97, FL-112: columns, properties, formats and places; databases that exist already."""
    ours, java = catalog_of(hive_metastore, tmp_path), hive_metastore.java_catalog(tmp_path)
    peer, names = hive_metastore.java(), names_of(hive_metastore, tmp_path)
    java.create_database("of_java")
    java.create_table("of_java.t", COLUMNS, ["id"])
    ours.create_database("ours")
    ours.create_table("ours.t", FIELDS, primary_key=["id"], options={"bucket": "1"})
    made, given = entry(names.find("ours", "t")), entry(names.find("of_java", "t"))
    assert dict(made) == {**given, "file.format": "parquet"}  # Java leaves out its defaults
    assert [(each.name, each.type) for each in made["cols"]] == [
        ("id", "bigint"),
        ("v", "string"),
        ("short", "varchar(7)"),
        ("code", "char(3)"),
        ("price", "decimal(10,2)"),
        ("seen", "timestamp"),
        ("zoned", "timestamp"),  # Hive 2 has no other one
        ("at", "string"),
        ("body", "binary"),
    ]
    assert ours.list_databases() == java.list_databases() == ["default", "of_java", "ours"]
    for database in ("of_java", "ours"):
        name = f"{database}.t"
        assert ours.list_tables(database) == java.list_tables(database) == ["t"]
        ours.table(name).write(pa.Table.from_pylist(ROWS, schema=SCHEMA))
        assert [(row["id"], row["v"]) for row in peer.read(tmp_path, name)] == [(1, "one"), (2, None)]
    with pytest.raises(InvalidInputError, match="table exists already"):
        ours.create_table("of_java.t", SCHEMA)
    with pytest.raises(PeerError, match="already exist"):
        java.create_table("ours.t", COLUMNS, ["id"])
    with pytest.raises(InvalidInputError, match="database exists already"):
        ours.create_database("of_java")
    ours.drop_database("of_java", cascade=True)
    java.drop_table("ours.t")
    assert not ours.table_exists("ours.t")
    ours.drop_database("ours")
    assert ours.list_databases() == java.list_databases() == ["default"]


@pytest.mark.long
def test_changes_of_schema_and_name_reach_the_other_side(tmp_path: Path, hive_metastore: RunningMetastore) -> None:
    """FL-112: ALTER, rename and drop, from both sides."""
    ours, java = catalog_of(hive_metastore, tmp_path), hive_metastore.java_catalog(tmp_path)
    peer, names = hive_metastore.java(), names_of(hive_metastore, tmp_path)
    ours.create_table("shop.a", SCHEMA, primary_key=["id"], options={"bucket": "1", "snapshot.time-retained": "2 h"})
    java.create_table("shop.b", {"id": "BIGINT NOT NULL", "v": "STRING"}, ["id"])
    for name in ("shop.a", "shop.b"):
        ours.table(name).write(pa.Table.from_pylist(ROWS, schema=SCHEMA))
        ours.alter_table(name, [AddColumn(path=("n",), type=parse_data_type("INT")), SetOption("num-levels", "6")])
        peer.alter(tmp_path, name, "addColumn", "m", peer.data_type("DOUBLE"))
        found = names.find(*name.split("."))
        assert [column.name for column in found.sd.cols] == ["id", "v", "n", "m"]
        assert found.parameters["num-levels"] == "6"
        assert ours.table(name).schema.column_names == ("id", "v", "n", "m")
    ours.alter_table("shop.a", [RemoveOption("snapshot.time-retained")])
    assert "snapshot.time-retained" not in names.find("shop", "a").parameters

    ours.rename_table("shop.a", "shop.c")
    java.rename_table("shop.b", "shop.d")
    assert ours.list_tables("shop") == java.list_tables("shop") == ["c", "d"]
    for name in ("shop.c", "shop.d"):
        assert [row["v"] for row in peer.read(tmp_path, name)] == ["one", None]
        assert ours.table(name).read().to_arrow(columns=["v"])["v"].to_pylist() == ["one", None]
        assert names.place(*name.split(".")).path == str(tmp_path / "shop.db" / name[-1])
    with pytest.raises(InvalidInputError, match="table exists already"):
        ours.rename_table("shop.c", "shop.d")
    with pytest.raises(InvalidInputError, match="lower case only: name=Big"):
        ours.rename_table("shop.c", "shop.Big")
    ours.drop_database("shop", cascade=True)
    assert java.list_databases() == ["default"]
    assert not (tmp_path / "shop.db").exists()


@pytest.mark.long
def test_a_name_changes_where_no_directory_can_be_moved(tmp_path: Path, hive_metastore: RunningMetastore) -> None:
    """Issue 20 point 6: the entry keeps the place, and Java finds it there; no other table gets a name of that place.

    Java's drop deletes the directory of the name, too, wherever the table is.
    """
    options = {"metastore": "hive", "uri": hive_metastore.uri}
    ours = FileCatalog(str(tmp_path), options, io=WithoutMoves())  # type: ignore[arg-type]
    java, peer = hive_metastore.java_catalog(tmp_path), hive_metastore.java()
    rows = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    made = {"primary_key": ["id"], "options": {"bucket": "1"}}
    table = ours.create_table("shop.t", SCHEMA, **made)  # type: ignore[arg-type]
    table.write(rows)
    assert ours.can_rename_tables
    for old, new in (("t", "u"), ("u", "t"), ("t", "u")):
        ours.rename_table(f"shop.{old}", f"shop.{new}")
        assert ours.list_tables("shop") == java.list_tables("shop") == [new]
        assert [row["v"] for row in peer.read(tmp_path, f"shop.{new}")] == ["one", None]
        assert ours.table_path(f"shop.{new}") == f"{tmp_path}/shop.db/t"
    names = names_of(hive_metastore, tmp_path)
    assert names.find("shop", "u").tableType == "MANAGED_TABLE"
    names._alter(("shop", "u"), left_alone(names.find("shop", "u")))  # and the renaming process dies
    assert names.owns_files("shop", "u")
    ours.rename_table("shop.u", "shop.v")
    ours.rename_table("shop.v", "shop.u")
    assert names.find("shop", "u").tableType == "MANAGED_TABLE"
    assert "EXTERNAL" not in names.find("shop", "u").parameters
    ours.create_database("other")
    with pytest.raises(InvalidInputError, match=r"fix='CALL sys\.copy"):  # dropping the database would drop its files
        ours.rename_table("shop.u", "other.u")
    ours.drop_database("other")
    with pytest.raises(PeerError, match="exist"):
        java.create_table("shop.t", {"id": "BIGINT NOT NULL", "v": "STRING"}, ["id"])
    with pytest.raises(InvalidInputError, match=r"table=shop\.t .* is_of=shop\.u fix='choose another name'"):
        ours.create_table("shop.t", SCHEMA, **made)  # type: ignore[arg-type]
    peer.write(tmp_path, "shop.u", rows.slice(1, 1).set_column(1, "v", pa.array(["of java"])).cast(SCHEMA))
    table.write(pa.table({"id": [3], "v": ["open before"]}, schema=SCHEMA))
    found = [(row["id"], row["v"]) for row in peer.read(tmp_path, "shop.u")]
    assert found == [(1, "one"), (2, "of java"), (3, "open before")]
    assert ours.table("shop.u").read().to_arrow().num_rows == 3

    beside = ours.create_table("shop.u__new", SCHEMA, **made)  # type: ignore[arg-type]  # as OR REPLACE does
    beside.write(rows)
    with pytest.raises(InvalidInputError, match=r"table=shop\.t .* is_of=shop\.u fix='choose another name'"):
        ours.rename_table("shop.u__new", "shop.t")
    ours.drop_table("shop.u")
    ours.rename_table("shop.u__new", "shop.u")
    assert [row["id"] for row in peer.read(tmp_path, "shop.u")] == [1, 2]
    java.drop_table("shop.u")
    assert [path.name for path in (tmp_path / "shop.db").iterdir()] == []
    ours.drop_database("shop")


def test_a_table_in_a_place_of_its_own_is_javas_too(tmp_path: Path, hive_metastore: RunningMetastore) -> None:
    """FL-65: the place is the entry's location, under each name; files go with a drop, of either side."""
    places = tmp_path / "places"
    ours = catalog_of(hive_metastore, tmp_path / "w", **{"external-paths.allowed": str(places)})
    java, peer = hive_metastore.java_catalog(tmp_path / "w"), hive_metastore.java()
    for name in ("placed.t", "placed.u"):
        options = {"bucket": "1", "path": str(places / name)}
        ours.create_table(name, SCHEMA, primary_key=["id"], options=options).write(
            pa.Table.from_pylist(ROWS, schema=SCHEMA)
        )
        assert (ours.own_place(name), (places / name / "schema").is_dir()) == (str(places / name), True)
        assert [(row["id"], row["v"]) for row in peer.read(tmp_path / "w", name)] == [(1, "one"), (2, None)]
    ours.rename_table("placed.t", "placed.z")
    assert ours.own_place("placed.z") == str(places / "placed.t")
    assert [(row["id"], row["v"]) for row in peer.read(tmp_path / "w", "placed.z")] == [(1, "one"), (2, None)]
    with pytest.raises(InvalidInputError, match="where its opener allows it: option=path"):
        catalog_of(hive_metastore, tmp_path / "w").create_table("placed.x", SCHEMA, options={"path": str(places / "x")})
    ours.drop_table("placed.z")
    java.drop_table("placed.u")
    assert not [each for name in ("placed.t", "placed.u") for each in (places / name).rglob("*")]
    assert ours.list_tables("placed") == java.list_tables("placed") == []


def test_tables_of_hive_itself_and_external_ones_are_left_alone(
    tmp_path: Path, hive_metastore: RunningMetastore
) -> None:
    """FL-112: what is not Paimon's is neither shown nor replaced; files of an external table stay."""
    from hive_metastore.ttypes import SerDeInfo, StorageDescriptor, Table

    ours, names = catalog_of(hive_metastore, tmp_path), names_of(hive_metastore, tmp_path)
    ours.create_table("mixed.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    text = "org.apache.hadoop.mapred.TextInputFormat"
    place = StorageDescriptor(cols=[], location=str(tmp_path / "x"), inputFormat=text, serdeInfo=SerDeInfo())
    plain = Table(tableName="plain", dbName="mixed", sd=place, partitionKeys=[], parameters={})
    names.metastore.run("add", lambda client: client.create_table(plain))
    assert ours.list_tables("mixed") == ["t"]
    assert not ours.table_exists("mixed.plain")
    with pytest.raises(InvalidInputError, match=r"that of a table of another format: table=mixed\.plain"):
        ours.create_table("mixed.plain", SCHEMA)

    external = names.find("mixed", "t")
    external.tableType, external.parameters["EXTERNAL"] = "EXTERNAL_TABLE", "TRUE"
    names.metastore.run("alter", lambda client: client.alter_table("mixed", "t", external))
    ours.drop_table("mixed.t")
    assert ours.list_tables("mixed") == []
    assert (tmp_path / "mixed.db" / "t" / "schema" / "schema-0").exists()
    with pytest.raises(InvalidInputError, match="is not empty"):
        ours.drop_database("mixed", cascade=True)
    assert (tmp_path / "mixed.db").exists()
    names.metastore.run("drop", lambda client: client.drop_table("mixed", "plain", False))
    ours.drop_database("mixed")


FOREIGN = {"f1": "private/db.db/t", "f2": "w/other.db/t"}
"""By database: places of tables of another warehouse, and of another database of this one."""


@pytest.mark.parametrize("database", FOREIGN)
def test_a_table_that_another_named_in_the_metastore_is_read_and_not_deleted(
    database: str, tmp_path: Path, hive_metastore: RunningMetastore
) -> None:
    """Unless who opens the catalog allows tables there; a rename changes the name alone."""
    warehouse, victim = tmp_path / "w", tmp_path / FOREIGN[database]
    theirs = FileCatalog(str(victim.parents[1])).create_table(f"{victim.parent.stem}.t", SCHEMA)
    theirs.write(pa.Table.from_pylist(ROWS, schema=SCHEMA))
    ours = catalog_of(hive_metastore, warehouse)
    named_elsewhere(hive_metastore, ours, f"{database}.t", victim)
    before = digests_below(victim)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=f"path={victim} option=external-paths.allowed .*fix="):
            ours.drop_table(f"{database}.t")
        with pytest.raises(InvalidInputError, match=f"path={victim} option=external-paths.allowed .*fix="):
            ours.drop_database(database, cascade=True)
    assert ours.table(f"{database}.t").read().to_arrow().num_rows == len(ROWS)
    ours.rename_table(f"{database}.t", f"{database}.u")
    assert digests_below(victim) == before
    catalog_of(hive_metastore, warehouse, **{"external-paths.allowed": str(victim)}).drop_table(f"{database}.u")
    assert digests_below(victim) == {}


@pytest.mark.parametrize("inner", ["file", "bucket-0/data-1.parquet"])
def test_nor_is_a_directory_that_is_no_table(inner: str, tmp_path: Path, hive_metastore: RunningMetastore) -> None:
    """Also where it has what a table that was dropped in part would leave."""
    victim, database = tmp_path / "private", f"n{len(inner)}"
    (victim / inner).parent.mkdir(parents=True)
    (victim / inner).write_text("kept")
    ours = catalog_of(hive_metastore, tmp_path / "w")
    named_elsewhere(hive_metastore, ours, f"{database}.t", victim)
    for deed in (lambda: ours.drop_table(f"{database}.t"), lambda: ours.drop_database(database, cascade=True)):
        with suppress(FluvialError):
            deed()
        assert (victim / inner).read_text() == "kept"


def named_elsewhere(metastore: RunningMetastore, catalog: Catalog, name: str, place: Path) -> None:
    """A table whose location another user of the metastore has changed."""
    database, table = name.split(".")
    catalog.create_table(name, SCHEMA)
    names = names_of(metastore, Path(catalog.warehouse))
    found = names.find(database, table)
    found.sd.location = str(place)
    names.metastore.run("alter", lambda client: client.alter_table(database, table, found))


def test_partitions_are_listed_where_the_table_asks_for_it(tmp_path: Path, hive_metastore: RunningMetastore) -> None:
    """FL-112: ``metastore.partitioned-table``: the same values and places as Java's, gone with an overwrite."""
    ours, names = catalog_of(hive_metastore, tmp_path), names_of(hive_metastore, tmp_path)
    peer = hive_metastore.java()
    asked = {"bucket": "-1", "metastore.partitioned-table": "true"}
    schema = pa.schema([("dt", pa.date32()), ("area", pa.string()), ("id", pa.int64())])
    ours.create_table("parted.ours", schema, partition_by=["dt", "area"], options=asked)
    columns = [("dt", "DATE"), ("area", "STRING"), ("id", "BIGINT")]
    definition = TableDefinition(columns=columns, primary_key=[], partition_by=["dt", "area"], options=asked)
    peer.create(tmp_path, "parted.java", definition)
    rows = pa.table({"dt": pa.array([20_000, 20_001], pa.date32()), "area": ["a/b", "c"], "id": [1, 2]})
    ours.table("parted.ours").write(rows)
    peer.write(tmp_path, "parted.java", rows)

    def listed(table: str) -> list[tuple[list[str], str]]:
        found = names.metastore.run("list", lambda client: client.get_partitions("parted", table, -1))
        return [(each.values, each.sd.location.partition(f"parted.db/{table}/")[2]) for each in found]

    first, second = (["20000", "a/b"], "dt=20000/area=a%2Fb"), (["20001", "c"], "dt=20001/area=c")
    assert listed("ours") == listed("java") == [first, second]
    assert [column.name for column in names.find("parted", "ours").partitionKeys] == ["dt", "area"]
    ours.table("parted.java").write(rows.set_column(1, "area", pa.array(["a/b", "d"])))
    assert listed("java") == [first, second, (["20001", "d"], "dt=20001/area=d")]
    ours.table("parted.ours").overwrite(rows.slice(0, 0), partition={"dt": date(2024, 10, 5), "area": "c"})
    assert listed("ours") == [first]
    ours.rename_table("parted.ours", "parted.moved")
    assert listed("moved") == [first]
    ours.drop_database("parted", cascade=True)


@contextmanager
def holding(lock: HiveLock, names: HiveNames, table: str) -> Iterator[None]:
    """The lock of a table, of a holder that lives, however long a busy machine takes."""
    from hive_metastore.ttypes import HeartbeatRequest

    lock_id, is_done = lock._acquired("locked", table), threading.Event()

    def beat() -> None:
        while not is_done.wait(0.2):
            names.metastore.run("beat", lambda client: client.heartbeat(HeartbeatRequest(lockid=lock_id)))

    alive = threading.Thread(target=beat)
    alive.start()
    try:
        yield
    finally:
        is_done.set()
        alive.join()
        lock._release(lock_id)


def test_writers_exclude_each_other_by_the_lock_of_the_metastore(
    tmp_path: Path, hive_metastore: RunningMetastore
) -> None:
    """FL-93..FL-96: one lock for Java and us; a dead holder loses it; of two writers both commit."""
    hasty = {"lock_enabled": "true", "lock_acquire_timeout": "1 s", "lock_check_max_sleep": "100 ms"}
    ours = catalog_of(hive_metastore, tmp_path, **hasty)
    java = hive_metastore.java_catalog(
        tmp_path, **{"lock.enabled": "true", "lock-acquire-timeout": "1 s", "lock-check-max-sleep": "100 ms"}
    )
    table = ours.create_table("locked.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    held, names = lock_of(hive_metastore).create(), names_of(hive_metastore, tmp_path)
    rows = pa.Table.from_pylist(ROWS, schema=SCHEMA)

    def refused() -> None:
        with pytest.raises(UnavailableError, match=r"held by another writer, nothing was published: table=locked\.t"):
            table.write(rows)

    with holding(held, names, "t"):
        refused()
    assert table.read().to_arrow().num_rows == 0
    with holding(held, names, "u"), pytest.raises(PeerError, match="Acquire lock failed"):
        java.create_table("locked.u", {"id": "INT NOT NULL"}, ["id"])

    held._acquired("locked", "t")  # and its process dies
    patience = {"lock_acquire_timeout": f"{10 * LOCK_TIMEOUT_S} s"}
    # the metastore forgets who waits and is not heard of for its timeout, too: here seconds, else five minutes
    patient = catalog_of(hive_metastore, tmp_path, lock_enabled="true", lock_check_max_sleep="200 ms", **patience)
    writers = [
        threading.Thread(target=lambda key=key: patient.table("locked.t").write(pa.table({"id": [key], "v": ["x"]})))
        for key in (7, 8)
    ]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert sorted(table.read().to_arrow()["id"].to_pylist()) == [7, 8]
    ours.drop_database("locked", cascade=True)


def test_a_metastore_that_does_not_do_is_named(tmp_path: Path, hive_metastore: RunningMetastore) -> None:
    """FL-97: away, or refusing; a table that is open goes on while the metastore is away."""
    names = names_of(hive_metastore, tmp_path)
    away = HiveNames(
        metastore=HiveMetastore.of("thrift://127.0.0.1:1"), root=str(tmp_path), user="root", clock=SystemClock()
    )
    with pytest.raises(UnavailableError, match=r"does not answer: action=list databases uri=thrift://127.0.0.1:1"):
        away.databases()
    either = HiveMetastore.of(f"thrift://127.0.0.1:1,{hive_metastore.uri}")
    assert "default" in either.run("list", lambda client: client.get_all_databases())
    with pytest.raises(InvalidInputError, match="does not allow this: action=add a database"):
        names.add_database("with space")
    with pytest.raises(ConflictError, match="name is taken"):
        names.add_database("default")
    with pytest.raises(UnavailableError, match="default database"):
        names.remove_database("default")
    assert names.find("none", "none") is None
    assert names.table_paths("none") == {}
