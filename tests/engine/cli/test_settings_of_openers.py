"""What who opens a table needs works however it is given: each setting of the security page, by each of the ways."""

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from engine import Catalog
from engine.broker.broker import Broker
from engine.cli.app import run_command
from filestore.manifest.entries import ManifestEntry
from logstore.format import schema_registry
from lsm.errors import FluvialError, InvalidInputError
from tests.stores.hive_metastore import RunningMetastore
from tests.stores.schema_registry import TOKEN, USER_INFO, SchemaRegistryServer
from tests.stores.secure_broker import Right, SecureBroker
from tests.support.hostile_table import forge
from tests.support.logs import log_changes
from tests.support.rows import id_rows
from tests.support.stored_login import store_options
from tests.support.streams import Query
from tests.support.warehouses import ID_SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A table of the rows 1 and 2, and what its opener needs."""

    warehouse: str
    options: Mapping[str, str]  # of the catalog
    secret: str | None = None  # the option that is one
    table: str = "db.t"

    @property
    def without(self) -> dict[str, str]:
        """The options but for what is tested: no one gets rows with these."""
        return {key: text for key, text in self.options.items() if key != self.secret}


def given_table(warehouse: Path, options: Mapping[str, str], secret: str | None, table: str, **more: str) -> Given:
    catalog = Catalog(str(warehouse), options=options)
    catalog.create_table(table, ID_SCHEMA, primary_key=["id"], options={"bucket": "1", **more}).write(id_rows([1, 2]))
    return Given(warehouse=str(warehouse), options=options, secret=secret, table=table)


@pytest.fixture
def broker_login(tmp_path: Path, secure_broker: SecureBroker) -> Given:
    table = f"db.t{uuid4().hex}"
    owner = secure_broker.new_user(
        Right("ALL", "TOPIC", table, is_prefix=True), Right("ALL", "TRANSACTIONAL_ID", "fluvial.", is_prefix=True)
    )
    options = {f"log.kafka.{name}": text for name, text in owner.items()}
    return given_table(tmp_path / "w", options, "log.kafka.sasl.password", table)


@pytest.fixture
def broker_authority(broker_login: Given) -> Given:
    return replace(broker_login, secret="log.kafka.ssl.ca.location")


def of_registry(tmp_path: Path, broker: Broker, registry: SchemaRegistryServer, login: str, text: str) -> Given:
    options = {
        "log.kafka.bootstrap.servers": broker.bootstrap_servers,
        "log.schema-registry.url": registry.url,
        login: text,
    }
    return given_table(tmp_path / "w", options, login, f"db.t{uuid4().hex}", **{"log.format": "avro"})


@pytest.fixture
def registry_login(tmp_path: Path, broker: Broker) -> Iterator[Given]:
    with SchemaRegistryServer(is_closed=True) as registry:
        yield of_registry(tmp_path, broker, registry, "log.schema-registry.basic-auth.user-info", USER_INFO)


@pytest.fixture
def registry_token(tmp_path: Path, broker: Broker) -> Iterator[Given]:
    with SchemaRegistryServer(is_closed=True) as registry:
        yield of_registry(tmp_path, broker, registry, "log.schema-registry.bearer-auth.token", TOKEN)


@pytest.fixture
def place_outside(tmp_path: Path) -> Given:
    """A table of Java, with its files in a place of their own."""
    outside = tmp_path / "outside" / "db.db" / "t" / "bucket-0"
    outside.mkdir(parents=True)
    given = given_table(tmp_path / "w", {}, None, "db.t")
    table = Catalog(given.warehouse).table(given.table)

    def moved(entry: ManifestEntry) -> ManifestEntry:
        here = Path(table.store.file_path(entry.partition, entry.bucket, entry.file))
        there = outside / here.name
        if here.exists():
            here.rename(there)
        return replace(entry, file=replace(entry.file, external_path=str(there)))

    forge(table.files, moved)
    store_options(table.store.paths.schema(0), {"data-file.external-paths": f"file://{tmp_path}/outside"})
    allowed = "external-paths.allowed"
    return replace(given, options={allowed: f"file://{tmp_path}/outside"}, secret=allowed)


@pytest.fixture
def names_in_a_database(tmp_path: Path, postgres: str) -> Given:
    """The server of the tests takes any password."""
    address = urlsplit(postgres)
    options = {
        "metastore": "jdbc",
        "uri": f"postgresql://{address.hostname}:{address.port}/postgres",
        "jdbc.user": str(address.username),
        "jdbc.password": str(address.password),
        "catalog-key": uuid4().hex,
    }
    return given_table(tmp_path / "w", options, None, "db.t")


@pytest.fixture
def names_in_hive(tmp_path: Path, hive_metastore: RunningMetastore) -> Given:
    options = {"metastore": "hive", "uri": hive_metastore.uri}
    return given_table(tmp_path / "w", options, None, f"db{uuid4().hex}.t")


def by_catalog(given: Given, options: Mapping[str, str], _: Path) -> list[int]:
    table = Catalog(given.warehouse, options=options).table(given.table)
    if table.log is not None:
        return sorted(row["id"] for _, row in log_changes(table))
    return sorted(table.read().to_arrow()["id"].to_pylist())


def by_reference(given: Given, options: Mapping[str, str], directory: Path) -> list[int]:
    """Each secret stands in a file of its own."""
    references = dict(options)
    for number, (key, text) in enumerate(options.items()):
        if key.endswith(("password", "user-info", "token")):
            file = directory / f"value-{number}"
            file.write_text(text)
            references[key] = f"${{file:{file}}}"
    return by_catalog(given, references, directory)


def by_source(given: Given, options: Mapping[str, str], _: Path) -> list[int]:
    """``format("fluvial")``, but for Spark itself."""
    start = {"log.scan": "from-timestamp", "log.scan.timestamp-mills": "0"}
    return sorted(row["id"] for row in Query(given.warehouse, given.table, **options, **start).available())


def said_by(arguments: list[str]) -> list[int]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = run_command(["tail", *arguments, "--from", "timestamp.2020-01-01"])
    if code:
        raise InvalidInputError(f"exit code {code}")
    return sorted(json.loads(line)["id"] for line in out.getvalue().splitlines())


def by_command(given: Given, options: Mapping[str, str], _: Path) -> list[int]:
    words = [word for key, text in options.items() for word in ("--catalog-option", f"{key}={text}")]
    return said_by([given.table, "--warehouse", given.warehouse, *words])


def by_job_file(given: Given, options: Mapping[str, str], directory: Path) -> list[int]:
    log = {key.removeprefix("log."): text for key, text in options.items() if key.startswith("log.")}
    rest = {key: text for key, text in options.items() if not key.startswith("log.")}
    source = {"format": "kafka", "options": {"subscribe": "in", "kafka.bootstrap.servers": "localhost:1"}}
    pipeline = {"name": "p", "source": source, "target": given.table, "checkpoint": str(directory / "checkpoint")}
    job = {"name": "job", "warehouse": given.warehouse, "catalog": rest, "log": log, "pipelines": [pipeline]}
    file = directory / "job.yaml"
    file.write_text(json.dumps(job))
    return said_by([given.table, "--config", str(file)])


WAYS: dict[str, Callable[[Given, Mapping[str, str], Path], list[int]]] = {
    "Catalog": by_catalog,
    "${file:...}": by_reference,
    "format": by_source,
    "--catalog-option": by_command,
    "job file": by_job_file,
}
SETTINGS = [
    pytest.param("broker_login", marks=pytest.mark.broker),
    pytest.param("broker_authority", marks=pytest.mark.broker),
    pytest.param("registry_login", marks=pytest.mark.broker),
    pytest.param("registry_token", marks=pytest.mark.broker),
    "place_outside",
    "names_in_a_database",
    "names_in_hive",
]


@pytest.mark.long
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_works_by_each_way_and_is_needed(
    setting: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    given: Given = request.getfixturevalue(setting)
    for way, read in WAYS.items():
        schema_registry._schema_text.cache_clear()
        assert read(given, given.options, tmp_path) == [1, 2], way
        if given.secret is not None:
            schema_registry._schema_text.cache_clear()
            with pytest.raises(FluvialError):
                read(given, given.without, tmp_path)
