from pathlib import Path

import pytest

from engine import Catalog
from engine.broker.broker import Broker
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from tests.stores.schema_registry import SchemaRegistryServer
from tests.stores.secure_broker import SecureBroker


@pytest.fixture(scope="session")
def broker(secure_broker: SecureBroker) -> Broker:
    """It has a door for clients with a login besides; one broker is enough for these tests."""
    return secure_broker


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
