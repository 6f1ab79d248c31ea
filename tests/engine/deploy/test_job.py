"""A job is checked against tables and sources before anything is started."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from engine.catalog import Catalog
from engine.cli.job_output import print_results
from engine.deploy.config.job_config import JobConfig
from engine.deploy.config.table_config import TableConfig
from engine.deploy.job import run_job
from engine.deploy.pipeline.pipeline import PipelineProgress
from engine.deploy.pipeline.table_changes import ensure_table
from engine.kafka.options import KafkaSourceOptions
from engine.kafka.rows import decoder
from filestore.evolution.schema_change import ChangeType
from filestore.types.data_types import parse_data_type
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError

ORDERS: dict[str, Any] = {
    "columns": {"id": "BIGINT", "day": "DATE", "amount": "DECIMAL(10, 2)"},
    "primary_key": ["id"],
    "options": {"bucket": "2", "log.system": "none"},
    "comment": "orders",
}


def with_amount_doubled(frame: DataFrame) -> DataFrame:
    return frame.withColumn("amount", (F.col("amount") * 2).cast("decimal(10, 2)"))


def nothing(_: DataFrame) -> None:
    return None


def orders(**changes: object) -> TableConfig:
    return TableConfig.model_validate(ORDERS | changes)


def test_a_missing_table_is_made_and_an_equal_one_is_taken(catalog: Catalog) -> None:
    made = ensure_table(catalog, "shop.orders", orders())
    assert [(field.name, str(field.type)) for field in made.schema.fields] == [
        ("id", "BIGINT NOT NULL"),
        ("day", "DATE"),
        ("amount", "DECIMAL(10, 2)"),
    ]
    assert (made.schema.comment, made.options.bucket) == ("orders", 2)
    assert ensure_table(catalog, "shop.orders", orders()).schema == made.schema


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"columns": ORDERS["columns"] | {"day": "STRING"}}, "column=day table_has=DATE job_has=STRING"),
        ({"columns": ORDERS["columns"] | {"more": "INT"}}, "column=more table_has=no such column"),
        ({"primary_key": []}, "the table exists with"),
        ({"primary_key": ["id", "day"], "partition_by": ["day"]}, "the table exists with"),
    ],
)
def test_a_table_that_exists_otherwise_is_refused(catalog: Catalog, changes: dict[str, object], fact: str) -> None:
    ensure_table(catalog, "shop.orders", orders())
    with pytest.raises(InvalidInputError) as caught:
        ensure_table(catalog, "shop.orders", orders(**changes))
    assert fact in str(caught.value)
    assert "table=shop.orders" in str(caught.value)


def test_a_table_that_has_grown_is_the_jobs_table_still(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    """``write.merge-schema`` widens columns that the job file has as they were."""
    ensure_table(catalog, "shop.orders", orders(columns=ORDERS["columns"] | {"n": "INT"}))
    catalog.alter_table("shop.orders", [ChangeType(("n",), parse_data_type("BIGINT"))])
    with caplog.at_level(logging.WARNING):
        ensure_table(catalog, "shop.orders", orders(columns=ORDERS["columns"] | {"n": "INT"}))
    assert "a wider column: column=n table_has=BIGINT job_has=INT" in caplog.text


def test_an_option_that_differs_is_warned_about(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    ensure_table(catalog, "shop.orders", orders())
    with caplog.at_level(logging.WARNING):
        ensure_table(catalog, "shop.orders", orders(options=ORDERS["options"] | {"bucket": "4"}))
    assert "option=bucket table_has=2 job_has=4" in caplog.text


Send = Callable[[list[str]], str]


@pytest.fixture
def send(kafka: KafkaProperties, new_topic: Callable[..., str]) -> Send:
    """Puts values into a new topic."""

    def to_new_topic(values: list[str]) -> str:
        topic = new_topic()
        producer = kafka.producer(ErrorNotes(), transactional_id=None)
        for value in values:
            producer.produce(topic, value.encode())
        producer.flush(30)
        return topic

    return to_new_topic


def job(home: Path, kafka: KafkaProperties, topic: str, **pipeline: object) -> JobConfig:
    source = {"options": {"subscribe": topic, "value.format": "debezium-json"} | dict(pipeline.pop("source", {}))}  # type: ignore[call-overload]
    source["options"]["kafka.bootstrap.servers"] = kafka.by_name["bootstrap.servers"]
    described = {"name": "p", "source": source, "target": "shop.orders", "checkpoint": str(home / "checkpoint")}
    return JobConfig.model_validate(
        {
            "name": "test",
            "warehouse": str(home / "warehouse"),
            "tables": {"shop.orders": ORDERS},
            "pipelines": [described | pipeline],
        }
    )


ENVELOPES = [
    '{"before": null, "after": {"id": 1, "day": "2024-02-29", "amount": "1.50"}, "op": "c"}',
    '{"before": null, "after": {"id": 2, "day": null, "amount": "7.00"}, "op": "r"}',
    '{"before": {"id": 2}, "after": null, "op": "d"}',
]


@pytest.mark.broker
@pytest.mark.spark
def test_a_python_function_may_stand_between_source_and_table(
    spark: SparkSession, kafka: KafkaProperties, send: Send, tmp_path: Path
) -> None:
    reported: list[PipelineProgress] = []
    config = job(tmp_path, kafka, send(ENVELOPES), transform={"python": f"{__name__}:with_amount_doubled"})
    [result] = run_job(config, spark=spark, on_progress=reported.append)
    assert (result.batch_count, result.row_count, result.targets[0].snapshot_id) == (1, 3, 1)
    assert [(each.row_count, each.waiting_count) for each in reported] == [(3, 0)]
    rows = Catalog(config.warehouse).table("shop.orders").read().to_arrow()
    assert [(row["id"], str(row["amount"])) for row in rows.to_pylist()] == [(1, "3.00")]


@pytest.mark.broker
@pytest.mark.spark
def test_sums_follow_the_changes_of_a_database(
    spark: SparkSession, kafka: KafkaProperties, send: Send, tmp_path: Path
) -> None:
    """An update counted twice, and a delete with its key alone took nothing back, both in silence."""
    values = [
        '{"before": null, "after": {"id": 1, "day": "2024-01-01", "amount": "1.50"}, "op": "c"}',
        '{"before": null, "after": {"id": 1, "day": "2024-01-01", "amount": "2.00"}, "op": "c"}',
        '{"before": {"id": 1, "day": "2024-01-01", "amount": "2.00"}, '
        '"after": {"id": 1, "day": "2024-01-01", "amount": "5.00"}, "op": "u"}',
        '{"before": {"id": 1, "day": "2024-01-01", "amount": "1.50"}, "after": null, "op": "d"}',
    ]
    config = job(tmp_path, kafka, send(values))
    options = {"merge-engine": "aggregation", "fields.amount.aggregate-function": "sum"}
    sums = config.tables["shop.orders"].model_copy(
        update={"options": {**config.tables["shop.orders"].options, **options}}
    )
    config = config.model_copy(update={"tables": {"shop.orders": sums}})
    run_job(config, spark=spark)
    assert [
        str(row["amount"]) for row in Catalog(config.warehouse).table("shop.orders").read().to_arrow().to_pylist()
    ] == ["5.00"]


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize(
    ("pipeline", "fact"),
    [
        ({"transform": "SELECT id FROM source"}, "loses the row kinds"),
        ({"transform": "SELEC 1"}, "pipeline cannot start: pipeline=p"),
        ({"transform": {"python": "no.such.module:f"}}, "module=no.such.module"),
        ({"transform": {"python": f"{__name__}:missing"}}, "function=missing"),
        ({"transform": {"python": f"{__name__}:nothing"}}, "returned=NoneType"),
        ({"target": "shop.nothing"}, "shop.nothing"),
        ({"source": {"subscrbe": "x"}}, "did_you_mean=subscribe"),
    ],
)
def test_a_pipeline_that_cannot_work_is_refused_before_it_starts(
    spark: SparkSession, kafka: KafkaProperties, send: Send, tmp_path: Path, pipeline: dict[str, object], fact: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        run_job(job(tmp_path, kafka, send([]), **pipeline), spark=spark)
    assert fact in str(caught.value)
    assert spark.streams.active == []


@pytest.mark.broker
@pytest.mark.spark
def test_an_error_of_a_task_ends_the_job_with_its_own_words(
    spark: SparkSession, kafka: KafkaProperties, send: Send, tmp_path: Path
) -> None:
    config = job(tmp_path, kafka, send([ENVELOPES[0], "garbage"]))
    with pytest.raises(CorruptDataError, match=r"record cannot be decoded: .* offset=1 "):
        run_job(config, spark=spark)
    assert spark.streams.active == []
    assert Catalog(config.warehouse).table("shop.orders").latest_snapshot() is None


@pytest.mark.spark
def test_a_compaction_that_fails_is_in_the_summary_and_the_rows_are_in_the_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(store: object, tasks: object, *, most_threads: int) -> object:
        raise RuntimeError("no room\nfor the output")

    monkeypatch.setattr("engine.write.driver.driver_runner.compact_in_threads", fails)
    (tmp_path / "input").mkdir()
    for number in range(4):
        rows = pa.table({"id": pa.array([number], pa.int64()), "amount": pa.array([number], pa.int32())})
        pq.write_table(rows, tmp_path / "input" / f"part-{number}.parquet")
    columns = {"id": "BIGINT", "amount": "INT"}
    table = {
        "columns": columns,
        "primary_key": ["id"],
        "options": {"bucket": "1", "log.system": "none", "num-sorted-run.compaction-trigger": "2"},
    }
    options = {"path": str(tmp_path / "input"), "maxFilesPerTrigger": "1"}
    pipeline = {
        "name": "orders",
        "target": "shop.orders",
        "checkpoint": str(tmp_path / "checkpoint"),
        "source": {"format": "parquet", "options": options, "columns": columns},
    }
    job = {
        "name": "job",
        "warehouse": str(tmp_path / "warehouse"),
        "tables": {"shop.orders": table},
        "pipelines": [pipeline],
    }
    [result] = run_job(JobConfig.model_validate(job), spark=spark)
    assert result.row_count == 4
    assert Catalog(str(tmp_path / "warehouse")).table("shop.orders").read().to_arrow().num_rows == 4
    assert result.targets[0].compaction_failure_count >= 1
    assert result.targets[0].last_compaction_failure == "RuntimeError: no room for the output"
    print_results([result])
    assert "last=RuntimeError: no room for the output" in capsys.readouterr().out


def with_schema_part(row: dict[str, Any], **types: str) -> str:
    after = [{"field": name, "type": kind, "optional": True} for name, kind in types.items()]
    part = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": after}]}
    return json.dumps({"schema": part, "payload": {"before": None, "after": row, "op": "c"}}, separators=(",", ":"))


@pytest.mark.broker
@pytest.mark.spark
def test_a_table_grows_with_the_columns_of_its_source(
    spark: SparkSession, kafka: KafkaProperties, send: Send, tmp_path: Path
) -> None:
    """A running micro-batch with a column that was not known fails; started again, the job knows it."""
    topic = send([with_schema_part({"id": 1, "amount": "1.00"}, id="int64", amount="string")])
    config = job(tmp_path, kafka, topic, options={"write.merge-schema": "true"})
    run_job(config, spark=spark)
    assert Catalog(config.warehouse).table("shop.orders").schema.column_names == ("id", "day", "amount")
    news = with_schema_part({"id": 2, "amount": "2.00", "note": "n"}, id="int64", amount="string", note="string")
    producer = kafka.producer(ErrorNotes(), transactional_id=None)
    producer.produce(topic, news.encode())
    producer.flush(30)
    options = KafkaSourceOptions.parse(
        {"subscribe": topic, "value.format": "debezium-json", "new-fields": "fail", "kafka.bootstrap.servers": "b:1"}
    )
    known = decoder(options, pa.schema([("id", pa.int64()), ("amount", pa.string())]))
    with pytest.raises(ConflictError, match=r"new columns: columns=\['note'\] new-fields=fail fix=restart the query"):
        known(pa.nulls(1, pa.binary()), pa.array([news.encode()]))
    run_job(config, spark=spark)
    rows = Catalog(config.warehouse).table("shop.orders").read().to_arrow().to_pylist()
    assert sorted((row["id"], str(row["amount"]), row["note"]) for row in rows) == [(1, "1.00", None), (2, "2.00", "n")]


def change(op: str, row: dict[str, Any], **columns: object) -> bytes:
    """A Debezium event with its schema part: columns as types, or as parts of their own."""
    described = [
        {"field": name, "optional": True, **(kind if isinstance(kind, dict) else {"type": kind})}
        for name, kind in columns.items()
    ]
    part = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": described}]}
    return json.dumps({"schema": part, "payload": {"before": None, "after": row, "op": op}}).encode()


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
def test_a_table_is_what_its_source_is_through_large_values_and_changed_columns(
    spark: SparkSession, kafka: KafkaProperties, send: Send, tmp_path: Path
) -> None:
    """Findings 1 to 5 in one run: values left out of updates, a time of day, a column with a default, a column that was
    dropped more than 200 records ago.
    """
    gone, left_out = "__debezium_unavailable_value", {"type": "array", "items": {"type": "string"}}
    time = {"type": "int64", "name": "io.debezium.time.MicroTime"}
    first: dict[str, Any] = {"id": "int64", "t": "string", "ta": left_out, "tm": time}
    row = {"t": "x" * 100, "ta": ["a", "b"], "tm": 45_296_123_456}
    config = job(tmp_path, kafka, topic := send([]), options={"write.merge-schema": "true"})
    producer = kafka.producer(ErrorNotes(), transactional_id=None)

    def run(*values: bytes) -> None:
        for value in values:
            producer.produce(topic, value)
        producer.flush(30)
        run_job(config, spark=spark)

    run(*[change("r", {"id": key, **row}, **first) for key in (1, 2, 3)])
    second = {**first, "e": {"type": "int32", "default": 7}}
    dropped = {name: kind for name, kind in second.items() if name != "tm"} | {"c": "string"}
    last = {name: kind for name, kind in dropped.items() if name != "c"}
    run(
        change("u", {"id": 1, "t": gone, "ta": [gone], "tm": 1, "e": 8}, **second),
        change("u", {"id": 2, "t": "short", "ta": [gone], "e": 9, "c": "was here"}, **dropped),
        *[change("u", {"id": 2, "t": gone, "ta": [gone], "e": at}, **last) for at in range(250)],
    )
    rows = Catalog(config.warehouse).table("shop.orders").read().to_arrow(["id", "t", "ta", "tm", "e", "c"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [
        (1, "x" * 100, ["a", "b"], "00:00:00.000001", 8, None),
        (2, "short", ["a", "b"], None, 249, None),
        (3, "x" * 100, ["a", "b"], "12:34:56.123456", 7, None),
    ]
