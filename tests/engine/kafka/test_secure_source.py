"""``fluvial-kafka`` behind TLS, logins and access lists: the rights of who reads a topic, and a job of two users."""

import json
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from engine.catalog import Catalog
from engine.deploy.config.job_config import load_job
from engine.deploy.job import run_job
from engine.kafka.source import KafkaSource
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics
from lsm.errors import InvalidInputError
from tests.stores.secure_broker import Right, SecureBroker

CONF = Path(__file__).resolve().parents[3] / "conf"
GOOD, BAD = b'{"id": 1, "customer": "ada"}', b"garbage"


def topic_of(broker: SecureBroker, *records: bytes) -> str:
    """A topic that no other test uses, with these records."""
    name = f"in-{uuid4().hex}"
    owner = KafkaProperties.parse({"bootstrap.servers": broker.bootstrap_servers})
    LogTopics(owner).create_topic(name, bucket_count=1)
    producer = owner.producer(ErrorNotes(), transactional_id=None)
    for record in records:
        producer.produce(name, record, b'{"id": 1}')
    assert producer.flush(30) == 0
    return name


def count_read(client: Mapping[str, str], topic: str, letters: str) -> int:
    options = {f"kafka.{name}": value for name, value in client.items()}
    options |= {"subscribe": topic, "value.format": "json", "key.columns": "id"}
    options |= {"on-bad-record": "dead-letter", "dead-letter.topic": letters}
    source = KafkaSource(options)
    schema = StructType().add("id", "long").add("customer", "string").add("_row_kind", "string")
    reader = source.reader(schema)
    return sum(batch.num_rows for each in reader.partitions() for batch in reader.read(each))


def test_who_reads_a_topic_needs_to_read_it_and_to_write_dead_letters(secure_broker: SecureBroker) -> None:
    topic, letters = topic_of(secure_broker, GOOD, BAD), topic_of(secure_broker)
    read, write = Right("READ", "TOPIC", topic), Right("WRITE", "TOPIC", letters)
    assert count_read(secure_broker.new_user(read, write), topic, letters) == 1
    for rights, missing in (
        ([write], f"missing_right='Describe on topic {topic}'"),
        ([Right("DESCRIBE", "TOPIC", topic), write], f"missing_right='Read on topic {topic}'"),
        ([read], f"missing_right='Describe on topic {letters}'"),
        ([read, Right("DESCRIBE", "TOPIC", letters)], f"missing_right='Write on topic {letters}'"),
    ):
        with pytest.raises(InvalidInputError, match=missing):
            count_read(secure_broker.new_user(*rights), topic, letters)


def test_a_wrong_password_is_named_as_an_option_of_the_source(secure_broker: SecureBroker) -> None:
    wrong = {**secure_broker.new_user(), "sasl.password": "WRONG"}
    with pytest.raises(InvalidInputError, match=r" kafka\.sasl\.password") as caught:
        count_read(wrong, "t", "u")
    assert "WRONG" not in str(caught.value)


@pytest.mark.spark
def test_a_job_reads_as_one_user_and_logs_as_another(
    spark: SparkSession, secure_broker: SecureBroker, tmp_path: Path
) -> None:
    """FL-54: options and the secrets of files reach the Python workers, for the source and for the log."""
    row = {"dt": "2026-11-20", "id": 1, "customer": "ada", "amount": "1.50", "updated_at": 1_700_000_000_000}
    topic = topic_of(secure_broker, json.dumps({"op": "c", "before": None, "after": row}).encode(), BAD)
    letters, log = topic_of(secure_broker), f"log-{uuid4().hex}"
    source = secure_broker.new_user(Right("READ", "TOPIC", topic), Right("WRITE", "TOPIC", letters))
    on_log = [Right(operation, "TOPIC", log) for operation in ("CREATE", "READ", "WRITE")]
    writer = secure_broker.new_user(*on_log, Right("WRITE", "TRANSACTIONAL_ID", "fluvial.", is_prefix=True))
    options = "pipelines.orders.source.options"
    overrides = [
        f"{options}.subscribe={topic}",
        f"{options}.dead-letter.topic={letters}",
        f"tables.shop.orders.options.log.kafka.topic={log}",
        *_of_user(source, f"{options}.kafka", tmp_path / "source-password"),
        *_of_user(writer, "log.kafka", tmp_path / "log-password"),
    ]
    environment = {"WAREHOUSE": f"{tmp_path}/w", "CHECKPOINTS": f"{tmp_path}/c", "HEALTH_FILE": f"{tmp_path}/h.json"}
    environment["KAFKA"] = secure_broker.secure_servers
    job = load_job(str(CONF / "orders.yaml"), profile="once", overrides=overrides, environment=environment)
    [result] = run_job(job, spark=spark)
    assert result.is_complete
    table = Catalog(job.warehouse, options=job.catalog_options).table("shop.orders")
    [found] = table.read().to_arrow().to_pylist()
    assert found["customer"] == "ada"
    assert sum(table.log_end_offsets().values()) > 0
    [followed] = table.dataframe(spark).collect()
    assert followed["customer"] == "ada"
    left = [path for home in "wc" for path in (tmp_path / home).rglob("*") if path.is_file()]
    assert {path.name for path in left} >= {"schema-0", "metadata"}
    secrets = [client["sasl.password"].encode() for client in (source, writer)]
    assert [path for path in left if any(secret in path.read_bytes() for secret in secrets)] == [], "also no checkpoint"


def _of_user(client: Mapping[str, str], prefix: str, file: Path) -> list[str]:
    """The options of a client as words behind ``--set``, with the password in a file."""
    file.write_text(client["sasl.password"] + "\n")
    given = {**client, "sasl.password": f"${{file:{file}}}"}
    return [f"{prefix}.{name}={value}" for name, value in given.items() if name != "bootstrap.servers"]
