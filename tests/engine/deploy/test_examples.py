"""The job files in conf/ do what they say."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.deploy.checks import check_job
from engine.deploy.config.job_config import load_job
from engine.deploy.job import run_job
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics

CONF = Path(__file__).resolve().parents[3] / "conf"


@pytest.mark.parametrize("name", ["orders.yaml", "flights.yaml", "events.yaml"])
def test_every_example_is_valid(name: str) -> None:
    check_job(load_job(str(CONF / name), environment={}), with_sql=True)


def test_the_overlay_is_valid_upon_its_base(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush")
    password = "pipelines.orders.source.options.kafka.sasl.password"
    job = load_job(
        str(CONF / "orders.yaml"),
        overlays=[str(CONF / "orders-prod.yaml")],
        overrides=[f"{password}=${{file:{secret}}}"],
        environment={},
    )
    check_job(job, with_sql=True)
    assert (job.warehouse, job.tables["shop.orders"].options["bucket"]) == ("/data/warehouse", "16")
    assert job.pipelines[0].source.options["subscribe"] == "orders"
    assert job.pipelines[0].trigger.processing_time == "1 minute"


@pytest.mark.spark
def test_files_become_a_table_and_that_another(spark: SparkSession, tmp_path: Path) -> None:
    environment = {"WAREHOUSE": f"{tmp_path}/w", "EVENTS": f"{tmp_path}/in", "CHECKPOINTS": f"{tmp_path}/c"}
    triggers = [f"pipelines.{name}.trigger=available-now" for name in ("visits", "long-visits")]
    job = load_job(str(CONF / "events.yaml"), overrides=triggers, environment=environment)
    (tmp_path / "in").mkdir()
    visits = [{"visit": 1, "page": "/a", "seconds": 30}, {"visit": 2, "page": "/b", "seconds": 90}]
    (tmp_path / "in" / "1.json").write_text("\n".join(map(json.dumps, visits)))
    for name in ("visits", "long-visits"):
        run_job(job.chosen([name]), spark=spark)
    catalog = Catalog(job.warehouse)
    assert catalog.table("web.visits").read().to_arrow().num_rows == 2
    [row] = catalog.table("web.long_visits").read().to_arrow().to_pylist()
    assert (row["visit"], row["page"], str(row["minutes"])) == (2, "/b", "1.5")


@pytest.mark.broker
@pytest.mark.spark
def test_orders_are_taken_in_once_and_what_is_no_change_is_put_aside(
    spark: SparkSession, kafka: KafkaProperties, topics: LogTopics, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    orders, rejected = new_topic(), new_topic()
    options = "pipelines.orders.source.options"
    overrides = [f"{options}.subscribe={orders}", f"{options}.dead-letter.topic={rejected}"]
    overrides.append(f"tables.shop.orders.options.log.kafka.topic={orders}-log")
    row = {"dt": "2026-11-20", "id": 1, "customer": " ada ", "amount": "1.50", "updated_at": 1_700_000_000_000}
    producer = kafka.producer(ErrorNotes(), transactional_id=None)
    for value in (json.dumps({"op": "c", "before": None, "after": row}), "garbage"):
        producer.produce(orders, value.encode())
    producer.flush(30)
    environment = {
        "WAREHOUSE": f"{tmp_path}/w",
        "CHECKPOINTS": f"{tmp_path}/c",
        "HEALTH_FILE": f"{tmp_path}/h/health.json",
        "KAFKA": kafka.by_name["bootstrap.servers"],
    }
    job = load_job(str(CONF / "orders.yaml"), profile="once", overrides=overrides, environment=environment)
    [result] = run_job(job, spark=spark)
    assert result.is_complete
    [found] = Catalog(job.warehouse).table("shop.orders").read().to_arrow().to_pylist()
    assert (found["customer"], str(found["amount"]), found["updated_at"].year) == ("ada", "1.50", 2023)
    assert topics.end_offsets(rejected, [0])[0] >= 1
