"""Tables with a log, for other engines."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Catalog
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """With a broker in this process."""
    with serving("memory:9092", MemoryEnvironment(MemoryCluster())):
        yield Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": "memory:9092"})
