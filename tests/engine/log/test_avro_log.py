"""A table whose log is in Avro: its schemas are in the registry before its rows are in the log."""

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog
from engine.broker.broker import Broker
from filestore.evolution.schema_change import AddColumn, RenameColumn
from filestore.types.data_types import DataType
from logstore.kafka.topics import LogTopics
from lsm.errors import InvalidInputError, UnavailableError
from lsm.row_kind import RowKind
from tests.stores.schema_registry import TOKEN, USER_INFO, SchemaRegistryServer
from tests.support.logs import log_changes
from tests.support.rows import id_rows
from tests.support.warehouses import ID_SCHEMA, new_table

PAGE = (Path(__file__).parents[3] / "docs/kafka-log.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.broker


@pytest.fixture
def catalog(tmp_path: Path, broker: Broker, schema_registry: SchemaRegistryServer) -> Catalog:
    options = {
        "log.kafka.bootstrap.servers": broker.bootstrap_servers,
        "log.schema-registry.url": schema_registry.url,
        "log.format": "debezium-avro",
    }
    return Catalog(str(tmp_path), options=options)


def test_a_table_registers_its_schemas_once(catalog: Catalog, schema_registry: SchemaRegistryServer) -> None:
    """FL-126: not for each batch, bucket or task; a changed table once more."""
    table = new_table(catalog, options={"bucket": "2"})
    assert table.log is not None
    topic = table.log.topic
    assert {len(schema_registry.subjects[f"{topic}-{part}"]) for part in ("key", "value")} == {1}
    table.write(id_rows(range(8)))
    before = schema_registry.requests["POST subjects"]
    table.write(id_rows(range(8)))
    assert schema_registry.requests["POST subjects"] == before + 2, "the key's and the value's, by the driver"
    changed = catalog.alter_table(
        table.name, [AddColumn(path=("n",), type=DataType(root="INT")), RenameColumn(("v",), "word")]
    )
    assert len(schema_registry.subjects[f"{topic}-value"]) == 2, "known before a row is written"
    changed.write(pa.table({"id": [9], "word": ["x"], "n": pa.array([1], pa.int32())}))
    table.write(id_rows([10]))  # a writer that was open
    assert len(schema_registry.subjects[f"{topic}-value"]) == 2
    found = {row["id"]: row for _, row in log_changes(changed)}
    assert (found[9], len(found)) == ({"id": 9, "word": "x", "n": 1}, 10)


def test_the_example_of_the_page_runs(tmp_path: Path, broker: Broker, schema_registry: SchemaRegistryServer) -> None:
    """FL-125: a consumer with Confluent's deserializer alone gets the rows."""
    (code,) = re.findall(r"<!-- run by tests/engine/log/test_avro_log.py -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    places = {
        "/data/warehouse": str(tmp_path),
        "localhost:9092": broker.bootstrap_servers,
        "http://localhost:8081": schema_registry.url,
        "shop.orders": "shop.orders_in_avro",
        '"copy"': f'"{uuid4()}"',
    }
    for shown, real in places.items():
        assert shown in code
        code = code.replace(shown, real)
    exec(code, {})


def test_a_table_without_a_key_has_envelopes_without_keys(catalog: Catalog) -> None:
    """FL-126."""
    table = new_table(catalog, key=())
    table.write(id_rows([1, 1]))
    assert [kind for kind, _ in log_changes(table)] == [RowKind.INSERT, RowKind.INSERT]


def test_an_exact_log_is_in_avro_too(catalog: Catalog, schema_registry: SchemaRegistryServer) -> None:
    """FL-126, FL-134: -U with the whole old row, also where rows have columns that the writer does not know."""
    options = {"log.changelog-mode": "all", "changelog-producer": "lookup"}
    table = new_table(catalog, options=options)
    table.write(id_rows([1], "a"))
    table.write(id_rows([1], "b"))
    newer = catalog.alter_table(table.name, [AddColumn(path=("n",), type=DataType(root="INT"))])
    newer.write(pa.table({"id": [1], "v": ["c"], "n": pa.array([1], pa.int32())}))
    table.write(id_rows([1], "d"))
    found = [(kind, row["v"], row["n"]) for kind, row in log_changes(newer)]
    assert found == [
        (RowKind.INSERT, "a", None),
        *((RowKind.DELETE, "a", None), (RowKind.INSERT, "b", None)),
        *((RowKind.DELETE, "b", None), (RowKind.INSERT, "c", 1)),
        *((RowKind.DELETE, "c", 1), (RowKind.INSERT, "d", None)),
    ]
    assert table.log is not None
    assert len(schema_registry.subjects[f"{table.log.topic}-value"]) == 2


def test_a_table_that_counts_its_rows_has_a_log_in_avro(catalog: Catalog) -> None:
    """FL-126: the counts are not in it."""
    table = new_table(catalog, key=(), options={"row-counts": "true"})
    table.write(id_rows([1, 1, 2]))
    table.write(id_rows([1]).append_column("_row_kind", pa.array(["-D"])))
    kinds = [(kind, row) for kind, row in log_changes(table)]
    row = {"id": 1, "v": "x"}
    assert kinds == [
        (RowKind.INSERT, row),
        (RowKind.INSERT, row),
        (RowKind.INSERT, {**row, "id": 2}),
        (RowKind.DELETE, row),
    ]


@pytest.mark.spark
def test_tasks_get_their_schemas_from_the_driver(
    catalog: Catalog, schema_registry: SchemaRegistryServer, spark: SparkSession
) -> None:
    """FL-125: however many buckets there are, and readers ask once a process."""
    table = new_table(catalog, options={"bucket": "4", "log.format": "avro"})
    before = schema_registry.requests.copy()
    table.append(spark.range(100).selectExpr("id", "'x' AS v").repartition(4))
    assert schema_registry.requests - before == {"POST subjects": 2}
    assert sorted(row["id"] for _, row in log_changes(table)) == list(range(100))
    assert (schema_registry.requests - before)["GET schemas"] <= 1


def test_a_schema_that_the_registry_refuses_changes_nothing(
    catalog: Catalog, schema_registry: SchemaRegistryServer, topics: LogTopics
) -> None:
    """FL-125: neither the table nor a topic."""
    table = new_table(catalog)
    assert table.log is not None
    subject = f"{table.log.topic}-value"
    field = '{"name":"v","type":["null","string"],"default":null}'
    others = schema_registry.text_of(subject).replace(field, f'{field},{{"name":"w","type":"string","default":""}}')
    status, _ = schema_registry.answer("POST", f"subjects/{subject}/versions", {"schema": others}, None)
    assert (status, others.count('"w"')) == (200, 2)
    with pytest.raises(InvalidInputError, match=f"subject={subject} .*changed=.*fix="):
        catalog.alter_table(table.name, [AddColumn(path=("w",), type=DataType(root="INT"))])
    assert catalog.table(table.name).schema.id == 0
    schema_registry.answer("POST", "subjects/db.taken-value/versions", {"schema": '{"type":"int"}'}, None)
    with pytest.raises(InvalidInputError, match=r"subject=db\.taken-value"):
        catalog.create_table("db.taken", ID_SCHEMA, primary_key=["id"])
    assert topics.find_topic("db.taken") is None
    assert not catalog.table_exists("db.taken")


def test_without_a_registry_nothing_is_written(catalog: Catalog) -> None:
    """FL-125."""
    table = new_table(catalog)
    schema = Path(table.store.paths.schema(0))
    schema.write_text(schema.read_text().replace(catalog.options["log.schema-registry.url"], "http://127.0.0.1:1"))
    away = catalog.table(table.name)
    with pytest.raises(UnavailableError, match=r"log\.schema-registry\.url=http://127\.0\.0\.1:1"):
        away.write(id_rows([1]))
    assert (away.latest_snapshot(), log_changes(table)) == (None, [])


@pytest.mark.parametrize(
    ("name", "kind", "fact"),
    [
        ("unit-price", pa.int32(), "Avro allows no such name: column=unit-price"),
        ("größe", pa.int32(), "Avro allows no such name: column=größe"),
        ("p", pa.struct([("1st", pa.int32())]), "Avro allows no such name: column=1st"),
        ("m", pa.map_(pa.int32(), pa.string()), "keys of a map in Avro are texts: column=m"),
    ],
)
def test_columns_that_avro_cannot_have_are_refused_at_creation(
    catalog: Catalog, name: str, kind: pa.DataType, fact: str
) -> None:
    with pytest.raises(InvalidInputError, match=fact):
        catalog.create_table("db.odd", pa.schema([("id", pa.int64()), (name, kind)]), primary_key=["id"])


@pytest.fixture
def closed() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer(is_closed=True) as server:
        yield server


@pytest.mark.parametrize(
    "login",
    [{"basic-auth.user-info": USER_INFO}, {"bearer-auth.token": TOKEN}],
    ids=["user", "token"],
)
def test_the_login_of_a_catalog_is_used_and_not_stored(
    tmp_path: Path, broker: Broker, closed: SchemaRegistryServer, login: dict[str, str]
) -> None:
    place = {
        "log.kafka.bootstrap.servers": broker.bootstrap_servers,
        "log.schema-registry.url": closed.url,
        "log.format": "avro",
    }
    catalog = Catalog(str(tmp_path), {**place, **{f"log.schema-registry.{key}": text for key, text in login.items()}})
    table = new_table(catalog)
    table.write(id_rows([1]))
    assert len(log_changes(table)) == 1
    for file in tmp_path.rglob("schema-*"):
        assert not any(secret in file.read_text() for secret in login.values())
    with pytest.raises(InvalidInputError, match="status=401"):
        Catalog(str(tmp_path), place).table(table.name).write(id_rows([2]))
