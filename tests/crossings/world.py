"""Where histories happen: a catalog, a log and a registry in memory, with a clock that a history moves."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Final

from engine import Catalog
from filestore.catalog.catalog import FileCatalog
from filestore.io.file_io import Clock, FileIO, NameSource
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from tests.crossings.space import BEGAN_MS
from tests.stores.schema_registry import SchemaRegistryServer
from tests.support.faults import CountedNames, ManualClock, MemoryFileIO

WAREHOUSE: Final = "/warehouse"
_LINEAGE: Final = {"table-lineage": "false", "data-lineage": "false"}
_addresses: Final = count()


class MemoryCatalog(Catalog):
    """A catalog whose files, clock and names belong to a test."""

    cluster: MemoryCluster

    def __init__(self, options: Mapping[str, str], *, io: FileIO, clock: Clock, names: NameSource) -> None:
        super().__init__(WAREHOUSE, {**_LINEAGE, **options})
        self._files = FileCatalog(WAREHOUSE, self._options.given, io=io, clock=clock, names=names)

    @property
    def clock(self) -> ManualClock:
        """Of the tables."""
        assert isinstance(self._files._clock, ManualClock)
        return self._files._clock


@contextmanager
def world() -> Iterator[MemoryCatalog]:
    """An empty catalog that knows brokers and a registry."""
    address, registry = f"crossings-{next(_addresses)}:9092", _registry()
    registry.subjects.clear()  # ids of schemas stay: this process remembers them
    cluster = MemoryCluster()
    with serving(address, MemoryEnvironment(cluster)):
        options = {"log.kafka.bootstrap.servers": address, "log.schema-registry.url": registry.url}
        catalog = MemoryCatalog(options, io=MemoryFileIO(), clock=ManualClock(BEGAN_MS), names=CountedNames())
        catalog.cluster = cluster
        yield catalog


@cache
def _registry() -> SchemaRegistryServer:
    return SchemaRegistryServer().__enter__()  # its thread ends with the process
