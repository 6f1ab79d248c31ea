"""What a job file may say, and what it reports when it says something else."""

from pathlib import Path

import pytest

from engine.deploy.config.job_config import JobConfig, load_job, parse_job
from engine.dialect.grammar.type_grammar import parse_type
from lsm.errors import InvalidInputError

CONF = Path(__file__).resolve().parents[4] / "conf"
JOB = """\
name: orders
warehouse: ${WAREHOUSE:-/data/warehouse}
catalog:
  log.kafka.bootstrap.servers: localhost:9092
tables:
  shop.orders:
    columns:
      id: BIGINT
      amount: {type: "DECIMAL(10, 2)", comment: in euros}
    primary_key: [id]
    options:
      bucket: 4
pipelines:
- name: orders
  source:
    options: {subscribe: orders, failOnDataLoss: false}
  transform: SELECT * FROM source
  target: shop.orders
  trigger: {processing-time: 5 seconds}
  checkpoint: /data/checkpoints/orders
- name: payments
  source: {options: {subscribe: payments}}
  target: shop.payments
  checkpoint: /data/checkpoints/payments
spark:
"""


def parsed(text: str = JOB, *overrides: str, **environment: str) -> JobConfig:
    return parse_job(text, name="job.yaml", overrides=overrides, environment=environment)


def refusal(text: str = JOB, *overrides: str, **environment: str) -> str:
    with pytest.raises(InvalidInputError) as caught:
        parsed(text, *overrides, **environment)
    return str(caught.value)


def test_scalars_of_options_stay_the_text_that_was_written() -> None:
    job = parsed()
    assert job.tables["shop.orders"].options == {"bucket": "4"}
    assert job.pipelines[0].source.options["failOnDataLoss"] == "false"
    assert parsed(JOB.replace("bucket: 4", "mode: 0644")).tables["shop.orders"].options == {"mode": "0644"}


def test_short_forms_mean_the_same_as_long_ones() -> None:
    job = parsed()
    assert job.tables["shop.orders"].columns["id"].type == "BIGINT"
    assert job.tables["shop.orders"].columns["amount"].comment == "in euros"
    [transform] = job.pipelines[0].transform
    assert (transform.sql, transform.python) == ("SELECT * FROM source", None)
    assert job.pipelines[0].trigger.processing_time == "5 seconds"


def test_a_section_with_nothing_behind_it_is_as_good_as_absent() -> None:
    assert parsed().spark.master is None
    assert parsed().pipelines[1].trigger.processing_time is None


@pytest.mark.parametrize(
    ("given", "meant"),
    [("100 ms", "100 milliseconds"), ("5s", "5 seconds"), ("1 minute", "1 minute"), ("2h", "2 hours")],
)
def test_intervals_are_handed_on_as_spark_writes_them(given: str, meant: str) -> None:
    assert parsed(JOB.replace("5 seconds", given)).pipelines[0].trigger.processing_time == meant


def test_values_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        parsed().name = "other"


@pytest.mark.parametrize(
    ("value", "environment", "expected"),
    [
        ("${A:-default}", {}, "default"),
        ("${A:-default}", {"A": "set"}, "set"),
        ("${A:-default}", {"A": ""}, "default"),
        ("${A}", {"A": ""}, ""),
        ("${A:-}/x", {}, "/x"),
        ("a-${A}-${B}", {"A": "1", "B": "2"}, "a-1-2"),
        ("$${A}", {"A": "set"}, "${A}"),
        ("$A", {"A": "set"}, "$A"),
        ("${A}", {"A": "{not: yaml}"}, "{not: yaml}"),
    ],
)
def test_references_are_resolved_as_a_shell_does(value: str, environment: dict[str, str], expected: str) -> None:
    job = parsed(JOB.replace("localhost:9092", value), **environment)
    assert job.catalog["log.kafka.bootstrap.servers"] == expected


def test_a_reference_without_a_value_names_variable_file_and_line() -> None:
    message = refusal(JOB.replace("localhost:9092", "${BROKERS}"))
    assert "name=BROKERS file=job.yaml line=4" in message
    assert "${BROKERS:-default}" in message


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ("name=other", lambda job: job.name == "other"),
        ("tables.shop.orders.options.bucket=8", lambda job: job.tables["shop.orders"].options == {"bucket": "8"}),
        ("tables.shop.orders.options.log.system=kafka", lambda job: job.tables["shop.orders"].options["log.system"]),
        ("catalog.log.kafka.bootstrap.servers=b:1", lambda job: "b:1" in job.catalog.values()),
        ("pipelines.payments.trigger=available-now", lambda job: not job.pipelines[1].trigger.processing_time),
        ("pipelines.0.trigger=available-now", lambda job: not job.pipelines[0].trigger.processing_time),
        ("spark.conf.spark.driver.memory=2g", lambda job: job.spark.conf == {"spark.driver.memory": "2g"}),
        ("tables.shop.orders.primary_key=[id, amount]", lambda job: len(job.tables["shop.orders"].primary_key) == 2),
        ("name=a=b", lambda job: job.name == "a=b"),
    ],
)
def test_an_override_replaces_one_value(override: str, found: object) -> None:
    assert callable(found)
    assert found(parsed(JOB, override))


@pytest.mark.parametrize(
    ("broken", "facts"),
    [
        (
            JOB.replace("  target: shop.orders", "  tagret: shop.orders"),
            "key=pipelines[0].tagret file=job.yaml line=18 did_you_mean=target",
        ),
        (JOB.replace("primary_key: [id]", "primary_key: [ib]"), "line=10 column=ib known=amount, id"),
        (JOB.replace("5 seconds", "5 parsecs"), "given=5 parsecs example=5 seconds"),
        (JOB.replace("{processing-time: 5 seconds}", "hourly"), "known=available-now"),
        (
            JOB.replace("target: shop.orders", "target: orders"),
            "a table is named database.table: key=pipelines[0].target",
        ),
        (JOB.replace("name: payments", "name: orders"), "two pipelines share a name"),
        (JOB.replace("checkpoints/payments", "checkpoints/orders"), "two pipelines share a checkpoint"),
        (JOB.replace("SELECT * FROM source", "{sql: SELECT 1, python: m:f}"), "either sql or python"),
        (JOB.replace("SELECT * FROM source", "{python: nowhere}"), "module:function"),
        (
            JOB.replace("  checkpoint: /data/checkpoints/orders\n", ""),
            "a value is missing: key=pipelines[0].checkpoint",
        ),
        (
            JOB.replace("primary_key: [id]", "primary_key: id"),
            "a list belongs here: key=tables.shop.orders.primary_key",
        ),
        (JOB.replace("{subscribe: payments}", "payments"), "a mapping belongs here"),
        (JOB + "name: again\n", "the same key twice in one mapping: key=name"),
        (JOB.replace("${WAREHOUSE:-/data/warehouse}", '"/data/a\\0b"'), "key=warehouse file=job.yaml line=2"),
        ("name: [", "not a YAML file"),
        (
            JOB.replace("name: orders\n", "name:\torders\n\tx: y\n", 1),
            "found character a tab that cannot start any token fix='indent with blanks",
        ),
        ("- a\n- b\n", "a job file is a mapping"),
        ("", "a job file is a mapping"),
    ],
)
def test_a_wrong_job_is_told_what_and_where(broken: str, facts: str) -> None:
    assert facts in refusal(broken)


def test_all_problems_are_told_at_once() -> None:
    message = refusal(JOB.replace("5 seconds", "5 parsecs").replace("[id]", "[ib]"))
    assert "parsecs" in message
    assert "column=ib" in message


@pytest.mark.parametrize("override", ["name", "=x", "pipelines.nobody.target=a.b"])
def test_an_override_that_means_nothing_is_refused(override: str) -> None:
    refusal(JOB, override)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"nothing\.yaml"):
        load_job(str(tmp_path / "nothing.yaml"), environment={})


@pytest.mark.parametrize("name", ["orders.yaml", "flights.yaml"])
def test_the_examples_that_we_ship_are_valid(name: str) -> None:
    job = load_job(str(CONF / name), environment={})
    for table in job.tables.values():
        for column in table.columns.values():
            parse_type(column.type)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int not null", "INT NOT NULL"),
        ("STRING", "STRING"),
        ("array<int NOT NULL> NOT NULL", "ARRAY<INT NOT NULL> NOT NULL"),
        ("MAP<STRING, ARRAY<DECIMAL(3,1)>>", "MAP<STRING NOT NULL, ARRAY<DECIMAL(3, 1)>>"),
        ("ROW<a INT, `b c` STRUCT<x: BOOLEAN>>", "ROW<a INT, b c ROW<x BOOLEAN>>"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
    ],
)
def test_types_are_read_as_people_write_them(text: str, expected: str) -> None:
    assert str(parse_type(text)) == expected


@pytest.mark.parametrize("text", ["", "INTT", "ARRAY<INT", "ARRAY<>", "INT)", "MAP<INT>", "ROW<>", "INT INT"])
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_type(text)
