"""pytest fixtures of the peers, one of each for the session; a plugin that tests/conftest.py names."""

from collections.abc import Iterator

import pytest

from tests.peers.agreement import Agreement
from tests.peers.duckdb_peer import DuckDB
from tests.peers.iceberg_java import IcebergJava
from tests.peers.java_peer import JavaPeer
from tests.peers.pypaimon_peer import PyPaimonPeer


@pytest.fixture(scope="session")
def java_peer() -> Iterator[JavaPeer]:
    """Apache Paimon for Java."""
    peer = JavaPeer()
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def iceberg_java() -> Iterator[IcebergJava]:
    """Apache Iceberg for Java, as a reader."""
    peer = IcebergJava()
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def duckdb_peer() -> Iterator[DuckDB]:
    """DuckDB, as a reader of Iceberg tables."""
    peer = DuckDB()
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def pypaimon_peer() -> Iterator[PyPaimonPeer]:
    """Apache Paimon for Python."""
    peer = PyPaimonPeer()
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def assert_peers_agree(java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer) -> Agreement:
    """Call it with a table's directory: every implementation must read the same rows. Mark the test `interop`."""
    return Agreement([java_peer, pypaimon_peer])
