"""pytest fixtures of the stores, one of each for the session; a plugin that tests/conftest.py names."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from engine.broker.broker import Broker
from tests.stores.apicurio import Apicurio
from tests.stores.azurite import AzureEmulator, Azurite
from tests.stores.chromium import Chromium
from tests.stores.debezium import MariaDbSource, PostgresSource
from tests.stores.hdfs import MiniHdfs
from tests.stores.hive_metastore import RunningMetastore
from tests.stores.iceberg_rest import IcebergRestServer
from tests.stores.kafka_connect import KafkaConnect
from tests.stores.mariadb import MariaDb
from tests.stores.object_store import ObjectStore, S3Proxy
from tests.stores.postgres import Postgres
from tests.stores.schema_registry import SchemaRegistryServer
from tests.stores.secure_broker import SecureBroker

_numbers = count(1)


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A server that speaks S3; it must run for a test to pass."""
    with S3Proxy(tmp_path_factory.mktemp("object-store")) as running:
        yield running


@pytest.fixture
def new_bucket(object_store: ObjectStore) -> Callable[[], str]:
    """Makes buckets that no other test uses and gives their names."""
    return lambda: object_store.make_bucket(f"bucket-{next(_numbers)}")


@pytest.fixture(scope="session")
def azure_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureEmulator]:
    """A server that speaks Azure's Blob protocol; it must run for a test to pass."""
    with Azurite(tmp_path_factory.mktemp("azurite")) as running:
        yield running


@pytest.fixture
def new_container(azure_store: AzureEmulator) -> Callable[[], str]:
    """Makes containers that no other test uses and gives their names."""
    return lambda: azure_store.make_container(f"container-{next(_numbers)}")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A browser without a screen; it must run for a test to pass."""
    with Chromium(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture(scope="session")
def iceberg_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Iceberg's REST catalog server; it must run for a test to pass."""
    with IcebergRestServer(tmp_path_factory.mktemp("iceberg-rest")) as running:
        yield running


@pytest.fixture(scope="session")
def secure_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A broker with TLS, logins and access lists; it must run for a test to pass."""
    with SecureBroker(tmp_path_factory.mktemp("secure-broker")) as running:
        yield running


@pytest.fixture(scope="session")
def running_schema_registry() -> Iterator[SchemaRegistryServer]:
    """A schema registry for the session: its ids are never given twice."""
    with SchemaRegistryServer() as running:
        yield running


@pytest.fixture
def schema_registry(running_schema_registry: SchemaRegistryServer) -> SchemaRegistryServer:
    """A schema registry without subjects."""
    running_schema_registry.subjects.clear()
    return running_schema_registry


@pytest.fixture(scope="session")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real schema registry; it must run for a test to pass."""
    with Apicurio(tmp_path_factory.mktemp("apicurio")) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL server; it must run for a test to pass."""
    server = Postgres()
    with server:
        yield server


@pytest.fixture(scope="session")
def postgres(postgres_server: Postgres) -> str:
    """The address of a PostgreSQL server."""
    return postgres_server.url


@pytest.fixture(scope="session")
def mysql() -> Iterator[str]:
    """The address of a server that speaks MySQL; it must run for a test to pass."""
    with MariaDb() as uri:
        yield uri


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHdfs]:
    """A name node and a data node, and Java Paimon beside them; they must run for a test to pass."""
    running = MiniHdfs(tmp_path_factory.mktemp("hdfs"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def hive_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMetastore]:
    """A Hive metastore, and Java Paimon's clients of it; it must run for a test to pass."""
    running = RunningMetastore(tmp_path_factory.mktemp("hive-metastore"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def connect(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaConnect]:
    """A Kafka Connect worker with Debezium's connectors, and the session's broker; it must run for a test to pass."""
    with KafkaConnect(tmp_path_factory.mktemp("connect"), broker.bootstrap_servers) as running:
        yield running


@pytest.fixture
def postgres_source(connect: KafkaConnect, broker: Broker, postgres: str) -> Iterator[PostgresSource]:
    """A database of PostgreSQL, whose changes Debezium publishes once it is started."""
    made = PostgresSource(f"shop{next(_numbers)}", postgres, connect, broker.bootstrap_servers)
    yield made
    made.close()


@pytest.fixture
def mariadb_source(
    connect: KafkaConnect, broker: Broker, mysql: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MariaDbSource]:
    """A database of MariaDB, whose changes Debezium publishes once it is started."""
    number = next(_numbers)
    directory = tmp_path_factory.mktemp("history")
    made = MariaDbSource(f"shop{number}", mysql, connect, broker.bootstrap_servers, directory, number)
    yield made
    made.close()
