"""Tables that streams read, each with a topic of its own."""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from tests.stores.schema_registry import SchemaRegistryServer
from tests.support.option_keys import dotted
from tests.support.warehouses import ID_SCHEMA

NewTable = Callable[..., Table]
_numbers = count(1)


@pytest.fixture
def new_table(tmp_path: Path, broker: Broker, schema_registry: SchemaRegistryServer) -> NewTable:
    """``new_table(log=False, schema=…, key=["id"], bucket="2", merge__engine="…")``: a table with a log, or without."""

    def make(
        *,
        schema: pa.Schema = ID_SCHEMA,
        key: Sequence[str] = ("id",),
        partition_by: Sequence[str] = (),
        log: bool = True,
        **options: str,
    ) -> Table:
        given = {"bucket": "1" if key or log else "-1", **dotted(options)}
        if log:
            given["log.kafka.bootstrap.servers"] = broker.bootstrap_servers
        if given.get("log.format", "").endswith("avro"):
            given["log.schema-registry.url"] = schema_registry.url
        name = f"db.stream{next(_numbers)}_{abs(hash(str(tmp_path))) % 10**9}"
        catalog = Catalog(str(tmp_path))
        return catalog.create_table(name, schema, primary_key=key, partition_by=partition_by, options=given)

    return make


@pytest.fixture
def table(new_table: NewTable) -> Table:
    """An empty table of two buckets with a log."""
    return new_table(bucket="2")
