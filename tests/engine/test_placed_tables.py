"""Tables in a place of their own: made by each door, shown, renamed, dropped and fenced. FL-65, FL-68."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import engine
from engine import Catalog, procedures
from engine.deploy.checks import check_job
from engine.deploy.config.job_config import load_job
from filestore.catalog.catalog import FileCatalog
from filestore.io.file_io import LocalFileIO
from filestore.io.memory_files import MemoryObjects
from lsm.errors import ConflictError, InvalidInputError

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
ROWS = pa.table({"id": [1, 2], "v": [1, 2]}, schema=SCHEMA)
PLACED = ("file.path", "path", "file.root-path", "table-storage.file.path")


@pytest.fixture
def options(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """Of each kind of catalog that keeps its names on a local disk; places below ``tmp_path/places`` are allowed."""
    allowed = {"external-paths.allowed": str(tmp_path / "places")}
    if getattr(request, "param", "filesystem") == "filesystem":
        return allowed
    return {**allowed, "metastore": "jdbc", "uri": f"sqlite:///{tmp_path}/names.sqlite"}


each_catalog = pytest.mark.parametrize("options", ["filesystem", "jdbc"], indirect=True)


def placed(tmp_path: Path, options: Mapping[str, str], key: str = "path", name: str = "db.t") -> tuple[Catalog, Path]:
    """A catalog with a table of two rows in a place of its own, and the place."""
    catalog = Catalog(str(tmp_path / "w"), options=options)
    place = tmp_path / "places" / "own"
    catalog.create_table(name, SCHEMA, primary_key=["id"], options={key: str(place)}).write(ROWS)
    return catalog, place if key == "path" else place / "db.db" / name.partition(".")[2]


def sql(catalog: Catalog, text: str) -> pa.Table:
    """A statement that needs no Spark."""
    return engine.sql(None, text, catalog=catalog)  # type: ignore[return-value]


@each_catalog
@pytest.mark.parametrize("key", PLACED)
def test_a_table_has_a_place_of_its_own(tmp_path: Path, options: Mapping[str, str], key: str) -> None:
    """FL-65, FL-68: ``path`` is its directory, ``file.path`` a root; nothing of it is in the warehouse."""
    catalog, place = placed(tmp_path, options, key)
    assert (place / "schema" / "schema-0").is_file()
    assert not list((tmp_path / "w").rglob("schema-0"))
    again = Catalog(str(tmp_path / "w"), options=options)
    table = again.table("db.t")
    assert (table.store.paths.root, table.read().to_arrow().num_rows) == (str(place), 2)
    assert (again.list_tables("db"), again.table_exists("db.t"), again.own_place("db.t")) == (["t"], True, str(place))
    assert "path" not in table.schema.options
    assert "file.path" not in table.schema.options
    catalog.create_table("db.usual", SCHEMA)
    assert (again.own_place("db.usual"), again.list_tables("db")) == (None, ["t", "usual"])


@each_catalog
def test_it_is_shown_where_it_is_and_made_again_there(tmp_path: Path, options: Mapping[str, str]) -> None:
    """FL-44: the path of DESCRIBE is the true one; SHOW CREATE TABLE makes a table in the same place."""
    catalog, place = placed(tmp_path, options)
    described = sql(catalog, "DESCRIBE TABLE EXTENDED db.t")
    assert dict(zip(*(described.column(at).to_pylist() for at in (0, 1)), strict=True))["file.path"] == str(place)
    (text,) = sql(catalog, "SHOW CREATE TABLE db.t").column(0).to_pylist()
    assert f"'path' = '{place}'" in text
    sql(catalog, "DROP TABLE db.t")
    assert not place.exists()
    assert catalog.list_tables("db") == []
    assert not list((tmp_path / "places").iterdir())
    sql(catalog, text.replace(text.split("(")[0], "CREATE TABLE db.t "))
    assert catalog.own_place("db.t") == str(place)
    sql(catalog, f"CREATE TABLE db.u (id BIGINT) LOCATION 'file://{place}2'")
    assert catalog.own_place("db.u") == f"{place}2"


@each_catalog
def test_it_is_renamed_and_stays(tmp_path: Path, options: Mapping[str, str]) -> None:
    """The name changes, in one step; open writers go on, and the old name is free, for the usual place too."""
    catalog, place = placed(tmp_path, options)
    catalog.create_database("other")
    held = catalog.table("db.t")
    catalog.rename_table("db.t", "db.u")
    assert (catalog.list_tables("db"), catalog.own_place("db.u")) == (["u"], str(place))
    held.write(ROWS.slice(0, 1))
    catalog.create_table("db.t", SCHEMA)
    with pytest.raises(InvalidInputError, match=r"table exists already: table=db\.t"):
        catalog.rename_table("db.u", "db.t")
    catalog.rename_table("db.u", "other.v")
    assert catalog.table("other.v").read().to_arrow().num_rows == 2
    with pytest.raises(InvalidInputError, match=r"place has files of another table.*fix="):
        catalog.create_table("db.z", SCHEMA, options={"path": str(place)})
    catalog.drop_table("other.v")
    assert not place.exists()
    assert catalog.list_tables("db") == ["t"]


@each_catalog
def test_a_root_is_for_all_tables_of_a_catalog_or_a_session(tmp_path: Path, options: Mapping[str, str]) -> None:
    """FL-65: as the document has it, a root of all; a table's own option wins; other catalogs find the tables."""
    root, own = tmp_path / "places" / "root", tmp_path / "places" / "own"
    catalog = Catalog(str(tmp_path / "w"), options={**options, "table-storage.file.path": str(root)})
    catalog.create_table("db.a", SCHEMA)
    catalog.create_table("db.b", SCHEMA, options={"path": str(own)})
    catalog.create_table("db.c", SCHEMA, options={"file.path": str(tmp_path / "w")})
    session = {"table-storage.file.path": str(tmp_path / "places" / "session")}
    engine.sql(None, "CREATE TABLE db.d (id INT)", catalog=Catalog(str(tmp_path / "w"), {**options, **session}))
    plain = Catalog(str(tmp_path / "w"), options=options)
    assert {name: plain.own_place(f"db.{name}") for name in plain.list_tables("db")} == {
        "a": f"{root}/db.db/a",
        "b": str(own),
        "c": None,
        "d": f"{tmp_path}/places/session/db.db/d",
    }


@each_catalog
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"path": "{other}"}, "or where its opener allows it: option=path"),
        ({"file.path": "{other}"}, "or where its opener allows it: option=file.path"),
        ({"path": "{places}/../other"}, "opener allows it"),
        ({"path": "s3://bucket/t"}, "in the store of its catalog"),
        ({"path": "relative"}, "path must be an absolute path: path='relative'"),
        ({"file.path": "a/b"}, "file.path must be an absolute path: file.path='a/b'"),
        ({"path": "{w}/db.db/x"}, "another name in the warehouse"),
        ({"path": "{places}/a", "file.path": "{places}/b"}, "one place"),
        ({"path": "{places}/full"}, "not empty"),
        ({"path": "{places}/own/bucket-0"}, "of another table"),
    ],
)
def test_a_place_that_cannot_be_is_refused_and_nothing_is_made(
    tmp_path: Path, options: Mapping[str, str], given: Mapping[str, str], words: str
) -> None:
    """By each of the doors alike: Python, files, SQL."""
    catalog, _ = placed(tmp_path, options, name="db.first")
    (tmp_path / "places" / "full").mkdir()
    (tmp_path / "places" / "full" / "mine").write_text("")
    places = {"places": tmp_path / "places", "other": tmp_path / "other", "w": tmp_path / "w"}
    texts = {key: text.format(**places) for key, text in given.items()}
    before = sorted(tmp_path.rglob("*"))
    files = FileCatalog(str(tmp_path / "w"), options)
    clause = ", ".join(f"'{key}' = '{text}'" for key, text in texts.items())
    for make in (
        lambda: catalog.create_table("db.t", SCHEMA, options=texts),
        lambda: files.create_table("db.t", SCHEMA, options=texts),
        lambda: sql(catalog, f"CREATE TABLE db.t (id INT) WITH ({clause})"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            make()
    assert sorted(tmp_path.rglob("*")) == before
    assert catalog.list_tables("db") == ["first"]


def test_a_job_file_is_checked_with_its_places(tmp_path: Path, options: Mapping[str, str]) -> None:
    """``fluvial validate`` says what the run would."""
    text = (
        f"name: job\nwarehouse: {tmp_path}/w\ncatalog:\n  external-paths.allowed: {tmp_path}/places\n"
        "tables:\n  db.t:\n    columns: {id: BIGINT}\n    options: {path: PLACE}\n"
        "pipelines:\n- name: p\n  source: {options: {subscribe: a, kafka.bootstrap.servers: 'b:1'}}\n"
        f"  target: db.t\n  checkpoint: {tmp_path}/c\n"
    )
    file = tmp_path / "job.yaml"
    for place, is_fine in ((f"{tmp_path}/places/t", True), (f"{tmp_path}/other", False)):
        file.write_text(text.replace("PLACE", place))
        if is_fine:
            check_job(load_job(str(file), environment={}))
        else:
            with pytest.raises(InvalidInputError, match=r"opener allows it: option=path.*job\.yaml"):
                check_job(load_job(str(file), environment={}))


@each_catalog
def test_who_does_not_allow_the_place_sees_the_name_and_touches_nothing(
    tmp_path: Path, options: Mapping[str, str]
) -> None:
    """The note of a place is data of a file: it leads no one outside who has not said so."""
    _, place = placed(tmp_path, options)
    stranger = Catalog(str(tmp_path / "w"), {k: v for k, v in options.items() if k != "external-paths.allowed"})
    assert stranger.list_tables("db") == ["t"]
    before = sorted(place.rglob("*"))
    for act in (
        lambda: stranger.table("db.t"),
        lambda: stranger.table_exists("db.t"),
        lambda: stranger.drop_table("db.t"),
        lambda: stranger.rename_table("db.t", "db.u"),
        lambda: stranger.create_table("db.t", SCHEMA),
        lambda: stranger.drop_database("db", cascade=True),
    ):
        with pytest.raises(InvalidInputError, match=r"option=external-paths.allowed .*fix="):
            act()
    assert sorted(place.rglob("*")) == before


def test_a_note_that_came_with_a_warehouse_drops_no_other_table(tmp_path: Path, options: Mapping[str, str]) -> None:
    """A note names the table that it means: of another one in the place nothing is read or deleted."""
    catalog, place = placed(tmp_path, options)
    note = tmp_path / "w" / "db.db" / ".places" / "t" / "place"
    forged = tmp_path / "w" / "db.db" / ".places" / "forged" / "place"
    forged.parent.mkdir()
    forged.write_text(json.dumps({**json.loads(note.read_text()), "table-uuid": "another"}))
    with pytest.raises(InvalidInputError, match="another table by now"):
        catalog.table("db.forged")
    catalog.drop_table("db.forged")
    assert (place / "schema" / "schema-0").is_file()
    assert catalog.list_tables("db") == ["t"]
    forged.parent.mkdir()
    for body in ("", "[]", '{"version":2,"path":"/x","table-uuid":"u"}', '{"version":1,"path":"x","table-uuid":"u"}'):
        forged.write_text(body)
        with pytest.raises(Exception, match="the note of a table's place cannot be read"):
            catalog.table("db.forged")


@each_catalog
def test_it_has_branches_tags_and_maintenance_as_any_table(tmp_path: Path, options: Mapping[str, str]) -> None:
    """All that is found by the table's directory."""
    catalog, place = placed(tmp_path, options)
    table = catalog.table("db.t")
    table.tags.create("a")
    table.branches.create("b", tag="a")
    catalog.table("db.t$branch_b").write(pa.table({"id": [3], "v": [3]}, schema=SCHEMA))
    table.branches.merge("b")
    assert table.read().to_arrow().num_rows == 3
    table.branches.replace_main("b")
    again = Catalog(str(tmp_path / "w"), options=options).table("db.t")
    assert sorted(again.read().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert catalog.list_tables("db") == ["t"]
    procedures.copy(catalog, "db.t", "db.copied")
    assert catalog.own_place("db.copied") is None
    sql(catalog, "CREATE TABLE db.alike LIKE db.t")
    assert catalog.own_place("db.alike") is None
    catalog.drop_database("db", cascade=True)
    assert not place.exists()
    assert catalog.list_databases() == []


@each_catalog
def test_or_replace_leaves_one_table(tmp_path: Path, options: Mapping[str, str]) -> None:
    """Into a root, or back into the warehouse; into the place of the old table it is refused, and that stays."""
    catalog, place = placed(tmp_path, options)
    with pytest.raises(InvalidInputError, match="place has files of another table"):
        sql(catalog, f"CREATE OR REPLACE TABLE db.t (id INT) WITH ('path' = '{place}')")
    assert catalog.table("db.t").read().to_arrow().num_rows == 2
    sql(catalog, f"CREATE OR REPLACE TABLE db.t (id INT) WITH ('file.path' = '{tmp_path}/places/root')")
    assert not place.exists()
    moved = catalog.own_place("db.t")
    assert moved is not None
    assert moved.startswith(f"{tmp_path}/places/root/db.db/t__")
    sql(catalog, "CREATE OR REPLACE TABLE db.t (id INT)")
    assert catalog.own_place("db.t") is None
    assert catalog.list_tables("db") == ["t"]


def test_the_same_in_an_object_store(tmp_path: Path) -> None:
    """A place is in the same store; a drop that was interrupted is done by the next one."""
    io, allowed = MemoryObjects(), {"external-paths.allowed": "s3://bucket/places"}
    catalog = FileCatalog("s3://bucket/w", allowed, io=io)
    place = "s3://bucket/places/own"
    with pytest.raises(InvalidInputError, match="in the store of its catalog"):
        catalog.create_table("db.t", SCHEMA, options={"path": "s3://other/places/own"})
    catalog.create_table("db.t", SCHEMA, options={"path": place})
    assert (catalog.list_tables("db"), catalog.table("db.t").store.paths.root) == (["t"], place)
    io.delete_tree(f"{place}/schema")
    assert catalog.list_tables("db") == []
    io.write_new(f"{place}/snapshot/LATEST", b"1")
    catalog.drop_table("db.t")
    assert not [path for path in io.files if "/places/" in path or "/.places/" in path]
    catalog.create_table("db.t", SCHEMA)


def test_sparks_own_statements_have_a_place_too(
    spark: SparkSession, tmp_path: Path, options: Mapping[str, str]
) -> None:
    """LOCATION, TBLPROPERTIES, the option ``path`` of a frame; DESCRIBE has the place; partitions, rows and streams."""
    catalog = Catalog(str(tmp_path / "w"), options=options)
    engine.install(spark, catalog, name="placed")
    try:
        places = tmp_path / "places"
        spark.sql("CREATE DATABASE placed.db")
        spark.sql(f"CREATE TABLE placed.db.a (id BIGINT, p STRING) PARTITIONED BY (p) LOCATION '{places}/a'")
        spark.sql(f"CREATE TABLE placed.db.b (id BIGINT) TBLPROPERTIES ('file.path' = '{places}/root')")
        frame = spark.range(3)
        frame.writeTo("placed.db.c").option("path", f"{places}/c").create()
        spark.sql(f"CREATE TABLE placed.db.d LOCATION '{places}/d' AS SELECT id FROM placed.db.c")
        spark.sql("INSERT INTO placed.db.a SELECT id, 'x' FROM placed.db.c")
        found = {name: catalog.own_place(f"db.{name}") for name in catalog.list_tables("db")}
        assert found == {
            **{name: f"{places}/{name}" for name in "acd"}, "b": f"{places}/root/db.db/b",
        }  # fmt: skip
        assert [spark.table(f"placed.db.{name}").count() for name in "abcd"] == [3, 0, 3, 3]
        facts = {row.col_name: row.data_type for row in spark.sql("DESCRIBE EXTENDED placed.db.a").collect()}
        assert (facts["Location"], facts["file.path"]) == (f"{places}/a", f"{places}/a")
        spark.sql("ALTER TABLE placed.db.a RENAME TO placed.db.z")
        assert spark.table("placed.db.z").count() == 3
        spark.sql("DROP TABLE placed.db.z")
        assert not (places / "a").exists()
    finally:
        engine.uninstall(spark, name="placed")


class _Killed(BaseException):
    """The process ends."""


class _Dying(LocalFileIO):
    """Files of a process that dies before its n-th change."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self._left = left

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _Killed

    def create_exclusive(self, path: str, body: bytes) -> bool:
        self._count()
        return super().create_exclusive(path, body)

    def delete(self, path: str) -> None:
        self._count()
        super().delete(path)

    def delete_tree(self, path: str) -> None:
        self._count()
        super().delete_tree(path)

    def delete_empty_directory(self, path: str) -> bool:
        self._count()
        return super().delete_empty_directory(path)

    def move_directory(self, source: str, target: str) -> None:
        self._count()
        super().move_directory(source, target)


@each_catalog
@pytest.mark.parametrize("act", ["create", "drop", "rename"])
def test_killed_anywhere_nothing_half_stays(tmp_path: Path, options: Mapping[str, str], act: str) -> None:
    """The table is there or not; the same statement again does the rest, and nothing of a dropped one is left."""
    for left in range(8):
        here = tmp_path / f"{left}"
        allowed = {**options, "external-paths.allowed": str(here / "places")}
        if "uri" in allowed:
            allowed["uri"] = f"sqlite:///{tmp_path}/{left}.sqlite"
        place = str(here / "places" / "own")
        whole = FileCatalog(str(here / "w"), allowed)
        whole.create_database("db")
        if act != "create":
            whole.create_table("db.t", SCHEMA, options={"path": place})
        dying = FileCatalog(str(here / "w"), allowed, io=_Dying(left))
        acts = {
            "create": lambda there, place=place: there.create_table(
                "db.t", SCHEMA, options={"path": place}, if_not_exists=True
            ),
            "drop": lambda there: there.drop_table("db.t", if_exists=True),
            "rename": lambda there: there.table_exists("db.u") or there.rename_table("db.t", "db.u"),
        }
        try:
            acts[act](dying)
        except _Killed:
            died = True
        else:
            died = False
        exists = whole.table_exists("db.t")
        assert whole.list_tables("db") == [*(["t"] if exists else []), *(["u"] if whole.table_exists("db.u") else [])]
        acts[act](FileCatalog(str(here / "w"), allowed))
        expected = {"create": ["t"], "drop": [], "rename": ["u"]}[act]
        assert whole.list_tables("db") == expected
        if act == "drop":
            assert not list((here / "places").iterdir())
            whole.create_table("db.t", SCHEMA)
        if not died:
            break
    else:
        pytest.fail("it never ended")


def test_a_name_that_an_interrupted_create_left_is_said_and_forgotten(
    tmp_path: Path, options: Mapping[str, str]
) -> None:
    """Another CREATE says what is noted; DROP TABLE, and DROP TABLE IF EXISTS, forget it."""
    warehouse, place = str(tmp_path / "w"), str(tmp_path / "places" / "own")
    FileCatalog(warehouse, options).create_database("db")
    for drop in ("DROP TABLE db.t", "DROP TABLE IF EXISTS db.t"):
        with pytest.raises(_Killed):
            FileCatalog(warehouse, options, io=_Dying(1)).create_table("db.t", SCHEMA, options={"path": place})
        catalog = Catalog(warehouse, options)
        assert catalog.list_tables("db") == []
        with pytest.raises(InvalidInputError, match=r"interrupted CREATE or DROP .*fix='DROP TABLE db.t"):
            catalog.create_table("db.t", SCHEMA)
        sql(catalog, drop)
        catalog.create_table("db.t", SCHEMA)
        catalog.drop_table("db.t")


class _Meanwhile(LocalFileIO):
    """Files of a process in which another act happens right before a file is made."""

    def __init__(self, ending: str, act: object) -> None:
        super().__init__()
        self._ending, self._act = ending, act

    def create_exclusive(self, path: str, body: bytes) -> bool:
        if path.endswith(self._ending) and callable(act := self._act):
            self._act = None
            act()
        return super().create_exclusive(path, body)


@pytest.mark.parametrize("ending", ["/place", "/schema-0"])
@pytest.mark.parametrize("others", ["path", "usual"])
def test_of_two_that_take_a_name_at_once_one_gets_it(
    tmp_path: Path, options: Mapping[str, str], ending: str, others: str
) -> None:
    """Whichever comes in between, and wherever its table is to lie: the name is one whole table's."""
    warehouse, places = str(tmp_path / "w"), tmp_path / "places"
    other = FileCatalog(warehouse, options)
    other.create_database("db")
    place = {"path": str(places / "other")} if others == "path" else {}

    def make_other() -> None:
        with suppress(ConflictError, InvalidInputError):
            other.create_table("db.t", SCHEMA, options=place)

    first = FileCatalog(warehouse, options, io=_Meanwhile(ending, make_other))
    try:
        first.create_table("db.t", SCHEMA, options={"path": str(places / "first")})
    except (ConflictError, InvalidInputError):
        assert other.list_tables("db") in ([], ["t"])
    if other.list_tables("db"):
        other.table("db.t")
    assert len(list(tmp_path.rglob("schema-0"))) == len(other.list_tables("db"))
