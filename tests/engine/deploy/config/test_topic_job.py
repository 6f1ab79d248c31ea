"""``fluvial init --from-topic``: a job file from the records of a topic, which validates and runs as it is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from engine.broker.broker import Broker
from engine.deploy.checks import check_job
from engine.deploy.config.job_config import JobConfig, parse_job
from engine.deploy.config.json_schema import job_schema
from engine.deploy.config.topic_job import topic_job
from lsm.errors import InvalidInputError
from tests.support.clients import quiet_producer

Rows = list[tuple[Any, Any]]


def job_of(rows: Rows, topic: str = "order-changes") -> JobConfig:
    records = [tuple(None if each is None else json.dumps(each).encode() for each in row) for row in rows]
    text = topic_job(topic, records, brokers="localhost:9092", table="shop.order_changes")  # type: ignore[arg-type]
    jsonschema.Draft202012Validator(job_schema()).validate(yaml.safe_load(text))
    job = parse_job(text, name="job.yaml", environment={})
    check_job(job, with_sql=True)
    return job


def types_of(rows: Rows) -> dict[str, str]:
    [table] = job_of(rows).tables.values()
    return {name: column.type for name, column in table.columns.items()}


def test_rows_give_columns_and_keys_give_the_key() -> None:
    job = job_of([({"id": 1}, {"id": 1, "on": True, "amount": 1}), ({"id": 2}, {"id": 2, "amount": 2.5, "who": "ada"})])
    [(name, table)] = job.tables.items()
    assert name == "shop.order_changes"
    assert {each: column.type for each, column in table.columns.items()} == {
        "id": "BIGINT", "on": "BOOLEAN", "amount": "DOUBLE", "who": "STRING"
    }  # fmt: skip
    assert table.primary_key == ("id",)
    [pipeline] = job.pipelines
    assert (pipeline.source.options["value.format"], pipeline.source.options["subscribe"]) == ("json", "order-changes")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ([None, None], "2 of 2 records have no JSON object as their key"),
        ([{"id": 1}, None], "1 of 2 records have no JSON object as their key"),
        ([{"id": 1}, {"id": 2, "s": "b"}], "keys of the records have different members"),
        ([{"k": 1}, {"k": 2}], "members of the keys are no columns, k"),
    ],
)
def test_a_table_without_a_key_says_why(keys: list[Any], why: str) -> None:
    rows: Rows = [(key, {"id": 1, "s": "a"}) for key in keys]
    assert job_of(rows).tables["shop.order_changes"].primary_key == ()
    records = [tuple(None if each is None else json.dumps(each).encode() for each in row) for row in rows]
    assert f"# no primary_key, so updates would be more rows: {why}\n" in topic_job("t", records, brokers="b")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrap", [lambda body: body, lambda body: {"schema": {}, "payload": body}])
def test_changes_of_debezium_are_known(wrap: Callable[[Any], Any]) -> None:
    after = {"op": "c", "before": None, "after": {"id": 1, "s": "a"}}
    gone = {"op": "d", "before": {"id": 1, "s": None}, "after": None}
    job = job_of([(wrap({"id": 1}), wrap(after)), (wrap({"id": 1}), wrap(gone))])
    [table] = job.tables.values()
    assert (list(table.columns), table.primary_key) == (["id", "s"], ("id",))
    assert job.pipelines[0].source.options["value.format"] == "debezium-json"


def test_nested_mixed_and_odd_values() -> None:
    row = {"r": {"x": 1, "a b": [1.5]}, "l": [], "big": 2**70, "mixed": 1, "none": None, "a b": 1, "e": {}}
    found = types_of([(None, row), (None, {"mixed": "text"}), ("no object", None)])
    assert found == {
        "r": "ROW<x BIGINT, `a b` ARRAY<DOUBLE>>", "l": "ARRAY<STRING>", "big": "STRING", "mixed": "STRING",
        "none": "STRING", "a b": "BIGINT", "e": "STRING",
    }  # fmt: skip


def test_a_topic_without_objects_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no record has a JSON object as its value: topic=t"):
        topic_job("t", [(b"k", b"\x00avro"), (None, None), (None, b"[1]")], brokers="b")


@pytest.mark.broker
def test_the_command_reads_a_topic(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path, fluvial: Callable[..., tuple[int, str, str]]
) -> None:
    topic = new_topic(bucket_count=1)
    producer = quiet_producer(broker.bootstrap_servers)
    for number in range(3):
        producer.produce(topic, json.dumps({"id": number, "v": "x"}), key=json.dumps({"id": number}))
    assert producer.flush(30) == 0
    given = (
        "init",
        str(tmp_path),
        "--from-topic",
        topic,
        "--kafka",
        broker.bootstrap_servers,
        "--table",
        "shop.orders",
    )
    code, out, err = fluvial(*given)
    assert (code, err) == (0, "")
    file = tmp_path / f"{topic}.yaml"
    assert str(file) in out
    job = parse_job(file.read_text(), name="job", environment={})
    [(name, table)] = job.tables.items()
    assert (name, list(table.columns), table.primary_key) == ("shop.orders", ["id", "v"], ("id",))
    assert fluvial(*given)[0] == 2, "files are not overwritten"
    assert fluvial("init", str(tmp_path), "--from-topic", "nope", "--kafka", broker.bootstrap_servers)[0] == 2
