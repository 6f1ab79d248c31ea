from pathlib import Path

import pytest

from engine import Catalog
from engine.broker.broker import Broker
from tests.stores.schema_registry import SchemaRegistryServer


@pytest.fixture
def catalog(broker: Broker, schema_registry: SchemaRegistryServer, tmp_path: Path) -> Catalog:
    """Tables with a log, and a registry for those in Avro."""
    options = {
        "log.kafka.bootstrap.servers": broker.bootstrap_servers,
        "log.schema-registry.url": schema_registry.url,
    }
    return Catalog(str(tmp_path), options=options)
