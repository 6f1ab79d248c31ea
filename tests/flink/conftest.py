from pathlib import Path

import pytest

from engine import Catalog
from engine.broker.broker import Broker


@pytest.fixture
def catalog(broker: Broker, tmp_path: Path) -> Catalog:
    """Tables with a log."""
    return Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})
