"""Whether a catalog keeps lineage, and that it stands."""

import json
from collections.abc import Callable
from datetime import datetime
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from engine.catalog import Catalog
from engine.lineage import settings
from engine.lineage.lineage import Lineage, lineage_of
from engine.lineage.settings import (
    Storage,
    kind_of_disk,
    options_in_force,
    options_of_existing,
    options_of_new,
    settings_of,
)
from engine.lineage.store.entities import LineageRecords, TableLineage
from filestore.catalog.catalog import FileCatalog
from filestore.options.catalog_options import CatalogOptions
from lsm.errors import InvalidInputError
from tests.stores.object_store import ObjectStore
from tests.support.lineage_stores import FaultyMeta

ON = {"table-lineage": "true", "data-lineage": "true"}
OFF = {"table-lineage": "false", "data-lineage": "false"}
URL = {"jdbc.url": "postgresql://h/d"}


def test_a_new_catalog_keeps_lineage_wherever_there_is_a_place_for_it() -> None:
    """LN-07, LN-08, LN-10: on in a local warehouse, in an object store with a database; else asked for."""
    assert options_of_new({}, Storage.LOCAL) == ON
    assert options_of_new({"data-lineage": "FALSE "}, Storage.LOCAL) == {**ON, "data-lineage": "false"}
    assert options_of_new({}, Storage.OBJECTS) == OFF
    assert options_of_new(URL, Storage.OBJECTS) == {**ON, **URL}
    assert options_of_new({"lineage-meta": "mine"}, Storage.OBJECTS) == {**ON, "lineage-meta": "mine"}
    assert options_of_new({}, Storage.SHARED) == OFF
    assert options_of_new(ON, Storage.SHARED) == ON
    assert options_of_existing({}, Storage.LOCAL) == OFF
    assert options_of_existing(URL, Storage.LOCAL) == OFF
    assert options_of_existing({"table-lineage": "true"}, Storage.LOCAL) == {**OFF, "table-lineage": "true"}
    for decide in (options_of_new, options_of_existing):
        with pytest.raises(InvalidInputError, match=r"needs a database: option=table-lineage .*fix='set jdbc.url="):
            decide({"table-lineage": "true"}, Storage.OBJECTS)


def test_the_options_stand_once_the_catalog_is_made(tmp_path: Path) -> None:
    """LN-09, LN-45: another value is refused with what stands; the same one, and none, are fine."""
    Catalog(str(tmp_path), {"data-lineage": "false"}).create_table("db.t", pa.schema([("n", pa.int64())]))
    noted = json.loads((tmp_path / ".fluvial" / "catalog.json").read_text())
    assert noted["options"] == {"table-lineage": "true", "data-lineage": "false"}
    with pytest.raises(
        InvalidInputError, match=r"option=data-lineage given=true stored=false path=.* fix='open it with"
    ):
        Catalog(str(tmp_path), {"data-lineage": "true"})
    with pytest.raises(InvalidInputError, match=r"option=table-lineage given=false stored=true"):
        Catalog(str(tmp_path), {"table-lineage": "false"})
    for given in ({}, {"data-lineage": "False"}, {"table-lineage": "true", "data-lineage": "false"}):
        opened = settings_of(Catalog(str(tmp_path), given))
        assert opened is not None
        assert (opened.has_tables, opened.has_snapshots) == (True, False)
    with pytest.raises(InvalidInputError, match="option value is not valid: option=table-lineage value='maybe'"):
        Catalog(str(tmp_path / "other"), {"table-lineage": "maybe"})


def test_of_two_that_make_a_catalog_one_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LN-09: the other one gets an error, whether it sees the file or loses the race for it; agreeing is fine."""
    names = ("first", "later", "racing", "same")
    first, later, racing, same = (Catalog(str(tmp_path), {"data-lineage": str(n in ("first", "same"))}) for n in names)
    first.create_database("db")
    with pytest.raises(InvalidInputError, match="option=data-lineage given=False stored=true"):
        later.create_database("other")
    same.create_database("same")
    whole = settings.read_stored_options
    monkeypatch.setattr(settings, "read_stored_options", _once_none(whole))
    monkeypatch.setattr(Catalog, "list_databases", lambda _: [])
    with pytest.raises(InvalidInputError, match="option=data-lineage given=False stored=true"):
        racing.create_database("other")


def _once_none(whole: Callable[..., settings.StoredOptions | None]) -> Callable[..., settings.StoredOptions | None]:
    calls = count()
    return lambda *given: whole(*given) if next(calls) else None


def test_a_catalog_from_before_keeps_none_until_it_is_asked(tmp_path: Path) -> None:
    """LN-10: somebody else's warehouse is not written to unless it is said; then it stands."""
    FileCatalog(str(tmp_path)).create_database("old")
    catalog = Catalog(str(tmp_path))
    catalog.create_database("new")
    catalog.create_table("new.t", pa.schema([("n", pa.int64())]))
    assert lineage_of(catalog) is None
    assert not (tmp_path / ".fluvial").exists()
    assert options_in_force(catalog) == OFF
    Catalog(str(tmp_path), {"data-lineage": "true"})
    asked = lineage_of(catalog)
    assert asked is not None
    assert (asked.settings.has_tables, asked.settings.has_snapshots) == (False, True)
    with pytest.raises(InvalidInputError, match="option=table-lineage given=true stored=false"):
        Catalog(str(tmp_path), {"table-lineage": "true"})


def test_a_network_file_system_is_known_by_its_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LN-10: SQLite does not work there for several machines, so nothing is decided for the user."""
    lines = (
        "d / ext4",
        "host:/x /data nfs4",
        "d /data/own\\040one xfs",
        "s /lake fuse.s3fs",
        "o /o fuse.fuse-overlayfs",
    )
    mounts = "\n".join(f"{each} rw 0 0" for each in lines)
    assert kind_of_disk(mounts, "/database/w") == "ext4"
    assert kind_of_disk(mounts, "/data/w") == "nfs4"
    assert kind_of_disk(mounts, "/data/own one/w") == "xfs"
    assert kind_of_disk(mounts, "/lake") == "fuse.s3fs"
    assert kind_of_disk("", "/lake") == ""
    table = tmp_path / "mounts"
    table.write_text(mounts)
    monkeypatch.setattr(settings, "_MOUNTS", table)
    shared = [settings.is_on_shared_disk(each) for each in ("/w", "/data/w", "/lake/w", "/o/w")]
    assert shared == [False, True, True, False]
    monkeypatch.setattr(settings, "_MOUNTS", tmp_path / "none")
    assert not settings.is_on_shared_disk("/data/w")


def test_a_warehouse_may_have_any_name(tmp_path: Path) -> None:
    """LN-10: the file of lineage lies in it."""
    catalog = Catalog(str(tmp_path / "a b?c#d%41"))
    catalog.create_database("db")
    lineage = lineage_of(catalog)
    assert lineage is not None
    lineage.store(LineageRecords(sink_tables=(TableLineage("j", "db", "t", datetime(2023, 6, 5)),)))
    assert (Path(catalog.warehouse) / ".fluvial" / "lineage.sqlite").exists()


def test_opening_makes_nothing(tmp_path: Path) -> None:
    """A catalog is made with its first database."""
    catalog = Catalog(str(tmp_path / "w"), {"table-lineage": "true"})
    assert options_in_force(catalog) == ON
    assert lineage_of(catalog) is None
    assert not (tmp_path / "w").exists()


def test_who_opens_the_catalog_without_its_options_finds_its_lineage(tmp_path: Path) -> None:
    """LN-49 to LN-52: the address is noted without the password; what is given wins."""
    url = "jdbc:postgresql://me:secret@h:5/d?password=hidden"
    Catalog(str(tmp_path), {"jdbc.url": url, "jdbc.password": "never", "jdbc.database": "own"}).create_database("db")
    body = (tmp_path / ".fluvial" / "catalog.json").read_text()
    assert not [word for word in ("secret", "hidden", "never") if word in body]
    opened = settings_of(Catalog(str(tmp_path)))
    assert opened is not None
    assert opened.catalog_options.jdbc_url == "postgresql+psycopg://me@h:5/d"
    assert opened.catalog_options.jdbc_database == "own"
    assert "me@h" not in repr(opened)
    moved = settings_of(Catalog(str(tmp_path), {"jdbc.url": "postgresql://elsewhere/d"}))
    assert moved is not None
    assert moved.catalog_options.jdbc_url == "postgresql://elsewhere/d"


def test_other_engines_and_lists_do_not_see_the_directory(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    assert catalog.list_databases() == ["db"]
    assert FileCatalog(str(tmp_path)).list_databases() == ["db"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".fluvial", "db.db"]


def test_keys_of_the_catalog_are_told_from_those_of_tables() -> None:
    """LN-47 to LN-52: the names of the PIP, its user too; options of other stores behind ``lineage-meta.``."""
    given = {"jdbc.username": "u", "jdbc.driver": "com.mysql.jdbc.Driver", "lineage-meta.token": "x", "bucket": "2"}
    parsed = CatalogOptions.parse(given)
    assert parsed.jdbc_user == "u"
    assert parsed.given["lineage-meta.token"] == "x"
    assert dict(parsed.table_defaults) == {"bucket": "2"}
    with pytest.raises(InvalidInputError, match=r"unknown option: option=table-linage did_you_mean=\['table-lineage"):
        CatalogOptions.parse({"table-linage": "true"})


def test_a_warehouse_in_an_object_store_keeps_lineage_in_a_database(
    object_store: ObjectStore, new_bucket: Callable[[], str], tmp_path: Path
) -> None:
    """LN-10, LN-49: without one it keeps none, and nothing is noted yet; the queue is there, too."""
    warehouse = f"s3://{new_bucket()}/lake"
    silent = Catalog(warehouse, object_store.options)
    silent.create_database("db")
    assert lineage_of(silent) is None
    assert options_in_force(silent) == OFF
    reported = {**object_store.options, "table-lineage": "true", "jdbc.url": f"sqlite:////{tmp_path}/l.sqlite"}
    assert silent.list_databases() == ["db"]
    catalog = Catalog(warehouse, reported)
    lineage = lineage_of(catalog)
    assert lineage is not None
    record = LineageRecords(sink_tables=(TableLineage("j", "db", "t", datetime(2023, 6, 5)),))
    Lineage(lineage.settings, meta=FaultyMeta(fails=bool)).store(record)
    assert len(catalog.file_io.list_names(lineage.settings.queue_path)) == 1
    assert catalog.system_table("paimon.sink_job_lineage").to_arrow().num_rows == 1
    assert catalog.file_io.list_names(lineage.settings.queue_path) == []
    assert catalog.list_databases() == ["db"]
    with pytest.raises(InvalidInputError, match=r"outside of the warehouse .* option=jdbc\.url "):
        lineage_of(Catalog(warehouse, object_store.options))
    assert lineage_of(Catalog(warehouse, reported)) is not None


def shared(warehouse: Path, **options: str) -> None:
    """A catalog whose file others have written."""
    Catalog(str(warehouse)).create_database("db")
    path = warehouse / ".fluvial" / "catalog.json"
    body = json.loads(path.read_text())
    body["options"] |= {key.replace("_", "."): text for key, text in options.items()}
    path.write_text(json.dumps(body))


LIES: list[tuple[str, str, str]] = [
    ("jdbc.url", "postgresql://127.0.0.1:1/x", "jdbc.password"),
    ("jdbc.url", "jdbc:mysql://evil/x", "jdbc.user"),
    ("openlineage.url", "http://evil", "openlineage.api-key"),
    ("openlineage.url", "https://evil/api?x=1", "openlineage.api-key"),
]


@pytest.mark.parametrize(("key", "address", "secret"), LIES)
def test_a_secret_does_not_go_to_an_address_that_only_the_catalogs_file_has(
    key: str, address: str, secret: str, tmp_path: Path
) -> None:
    shared(tmp_path, **{key: address})
    with pytest.raises(InvalidInputError, match=f"option={secret} address=.*fix='give the catalog {key} beside it'"):
        settings_of(Catalog(str(tmp_path), {secret: "hush"}))
    assert settings_of(Catalog(str(tmp_path))) is not None
    opened = settings_of(Catalog(str(tmp_path), {secret: "hush", key: address}))
    assert opened is not None


@pytest.mark.parametrize("address", ["postgresql://127.0.0.1:1/x", "jdbc:mysql://evil/x", "mysql+pymysql://evil/x"])
@pytest.mark.parametrize("secret", ["PGPASSWORD", "PGSERVICE", "MYSQL_PWD"])
def test_a_secret_of_the_environment_does_not_go_there_either(
    address: str, secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of databases send it to any address."""
    shared(tmp_path, **{"jdbc.url": address})
    monkeypatch.setenv(secret, "hush")
    with pytest.raises(InvalidInputError, match=f"option={secret} address=.*fix='give the catalog jdbc.url beside"):
        settings_of(Catalog(str(tmp_path)))
    assert settings_of(Catalog(str(tmp_path), {"jdbc.url": address})) is not None


@pytest.mark.parametrize("parameter", ["passfile", "service", "SSLKEY", "read_default_file", "ssl_ca"])
def test_an_address_of_the_catalogs_file_names_no_file_or_login_of_its_opener(parameter: str, tmp_path: Path) -> None:
    address = f"postgresql://evil/x?application_name=a&{parameter}=/etc/x"
    shared(tmp_path, **{"jdbc.url": address})
    with pytest.raises(InvalidInputError, match=f"option={parameter} address=.*fix='give the catalog jdbc.url beside"):
        settings_of(Catalog(str(tmp_path)))
    assert settings_of(Catalog(str(tmp_path), {"jdbc.url": address})) is not None


def test_the_catalogs_file_names_no_database_outside_of_the_warehouse(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x"
    shared(tmp_path / "w", **{"jdbc.url": url})
    with pytest.raises(InvalidInputError, match=r"path outside of the warehouse .* option=jdbc\.url "):
        settings_of(Catalog(str(tmp_path / "w")))
    assert settings_of(Catalog(str(tmp_path / "w"), {"jdbc.url": url})) is not None


@pytest.mark.parametrize("path", ["{}/victim", "file://{}/victim", "/etc/x", "{}/w/../victim", "victim"])
def test_events_go_to_no_path_outside_of_the_warehouse_that_the_catalogs_file_alone_names(
    path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The table works, as its events are not what its opener asked for; a warning says what they lack."""
    key = "openlineage.url"
    shared(tmp_path / "w", **{key: path.format(tmp_path)})
    found = settings_of(Catalog(str(tmp_path / "w")))
    assert found is not None
    assert key not in found.options
    assert "no events are written: a path outside of the warehouse" in caplog.text
    given = settings_of(Catalog(str(tmp_path / "w"), {key: path.format(tmp_path)}))
    assert given is not None
    assert given.options[key] == path.format(tmp_path)


@pytest.mark.parametrize("linked", [".fluvial", ".fluvial/lineage-queue", ".fluvial/lineage.sqlite", "jdbc.url"])
def test_no_link_leads_lineage_out_of_the_warehouse(linked: str, tmp_path: Path) -> None:
    """Who may write the directory of a shared warehouse makes one, in place of what is there."""
    warehouse, victim = tmp_path / "w", tmp_path / "victim"
    shared(warehouse, **({linked: f"sqlite:///{warehouse}/x"} if linked == "jdbc.url" else {}))
    link = warehouse / ("x" if linked == "jdbc.url" else linked)
    if link.exists():
        link.rename(victim)
    link.symlink_to(victim)
    with pytest.raises(InvalidInputError, match=rf"(target={victim}|outside of the warehouse)"):
        settings_of(Catalog(str(warehouse)))
    given = {"external-paths.allowed": str(victim)}
    if linked != "jdbc.url":
        assert settings_of(Catalog(str(warehouse), given)) is not None


def test_events_go_to_no_place_that_a_link_leads_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared(tmp_path / "w", **{"openlineage.url": f"{tmp_path}/w/events"})
    (tmp_path / "w" / "events").symlink_to(tmp_path / "victim")
    found = settings_of(Catalog(str(tmp_path / "w")))
    assert found is not None
    assert "openlineage.url" not in found.options
    assert "no events are written: a path outside of the warehouse" in caplog.text


@pytest.mark.parametrize("key", ["openlineage.url", "jdbc.url"])
def test_a_path_inside_of_the_warehouse_is_found_by_all(key: str, tmp_path: Path) -> None:
    inside = f"{tmp_path}/.fluvial/here"
    shared(tmp_path, **{key: inside if key == "openlineage.url" else f"sqlite:///{inside}"})
    assert settings_of(Catalog(str(tmp_path))) is not None


@pytest.mark.parametrize("url", ["http://ou:hush@h:1/api", "https://h/api?api_key=hush", "http://hush@h"])
def test_an_address_of_a_collector_is_stored_without_its_login(url: str, tmp_path: Path) -> None:
    Catalog(str(tmp_path), {"openlineage.url": url}).create_database("db")
    body = (tmp_path / ".fluvial" / "catalog.json").read_text()
    assert "hush" not in body
    assert "://h" in body
