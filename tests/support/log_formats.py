"""The formats of a log, for tests whose law holds in each."""

from collections.abc import Callable

import pytest

from tests.stores.schema_registry import SchemaRegistryServer

FORMATS = ("debezium-json", "json", "debezium-avro", "avro")
FormatOptions = Callable[[str], dict[str, str]]


@pytest.fixture
def format_options(schema_registry: SchemaRegistryServer) -> FormatOptions:
    """The options of a table whose log has a format."""

    def options(log_format: str) -> dict[str, str]:
        registry = {"log.schema-registry.url": schema_registry.url} if log_format.endswith("avro") else {}
        return {"log.format": log_format, **registry}

    return options
