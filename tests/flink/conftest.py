from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from engine import Catalog
from engine.broker.broker import Broker
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from tests.peers.flink import Flink
from tests.stores.schema_registry import SchemaRegistryServer


@pytest.fixture(scope="session")
def starting_flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[Flink]]:
    """It starts while the broker does."""
    with ThreadPoolExecutor(1) as beside:
        starting = beside.submit(Flink, tmp_path_factory.mktemp("flink"))
        yield starting
    starting.result().close()


@pytest.fixture(scope="session")
def broker(starting_flink: Future[Flink], request: pytest.FixtureRequest) -> Broker:
    """It has a door for clients with a login besides; one broker is enough for these tests."""
    found: Broker = request.getfixturevalue("secure_broker")  # not before Flink has begun
    return found


@pytest.fixture(scope="session")
def flink(broker: Broker, starting_flink: Future[Flink]) -> Flink:
    """Apache Flink with Paimon's connector and Kafka's, one for all tests; the broker is there first."""
    return starting_flink.result()


@pytest.fixture(scope="session")
def topics(broker: Broker) -> LogTopics:
    """Of this broker: that of the session may be of the other tests' one already."""
    return LogTopics(KafkaProperties.parse({"bootstrap.servers": broker.bootstrap_servers}))


@pytest.fixture
def catalog(broker: Broker, schema_registry: SchemaRegistryServer, tmp_path: Path) -> Catalog:
    """Tables with a log, and a registry for those in Avro."""
    options = {
        "log.kafka.bootstrap.servers": broker.bootstrap_servers,
        "log.schema-registry.url": schema_registry.url,
    }
    return Catalog(str(tmp_path), options=options)
