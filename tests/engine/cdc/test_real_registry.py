"""A job over Avro with a schema registry: PostgreSQL, Debezium, Apicurio's converter, a real registry."""

from pathlib import Path

import pytest

from logstore.format.schema_registry import SchemaRegistry
from tests.stores.apicurio import API
from tests.stores.change_scenarios import POSTGRES
from tests.stores.debezium import PostgresSource
from tests.stores.following import Follower


@pytest.mark.soak
def test_a_job_over_avro_is_equal_to_its_source(postgres_source: PostgresSource, apicurio: str, tmp_path: Path) -> None:
    """A: types, large values, a new column, a truncate, a killed connector; every row once, also without a key."""
    types, large = POSTGRES["types"], POSTGRES["large"]
    postgres_source.execute(
        *types.before,
        "ALTER TABLE types DROP COLUMN ia2",
        *large.before,
        "CREATE TABLE nokey (v int, t text)",
        "ALTER TABLE nokey REPLICA IDENTITY FULL",
        "INSERT INTO nokey VALUES (1, 'a'), (1, 'a')",
    )
    registry = apicurio.removesuffix(API) + "/apis/registry/v2"
    converter = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": registry,
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.find-latest": "true",
        ".apicurio.registry.headers.enabled": "false",
        ".apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
        ".apicurio.registry.use-id": "contentId",
    }
    settings = {f"{side}.converter{name}": value for side in ("key", "value") for name, value in converter.items()}
    postgres_source.start({**settings, "schema.name.adjustment.mode": "avro"})
    follower = Follower(postgres_source, tmp_path, registry=SchemaRegistry(url=apicurio))
    follower.catch_up()
    assert follower.differences() == {}
    postgres_source.execute(*large.after[:2], "INSERT INTO nokey VALUES (2, 'b')")
    follower.catch_up()
    postgres_source.connect.kill()
    postgres_source.execute(
        "ALTER TABLE large ADD COLUMN e int NOT NULL DEFAULT 7",
        "UPDATE large SET v = 2",
        "UPDATE nokey SET t = 'c' WHERE v = 2",
        "DELETE FROM types",
    )
    postgres_source.connect.start()
    report = follower.catch_up()
    assert [each.parked for each in report.tables.values() if each.parked] == []
    assert follower.differences() == {}
    postgres_source.execute("TRUNCATE nokey", "INSERT INTO nokey VALUES (3, 'd')")
    follower.catch_up()
    assert follower.differences() == {}
