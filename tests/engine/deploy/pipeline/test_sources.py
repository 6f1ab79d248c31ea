"""What Spark is asked to read for each kind of source."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.deploy.checks import check_job
from engine.deploy.config.job_config import JobConfig
from engine.deploy.pipeline.sources import SourceSpec, check_whole_changes, source_spec
from engine.deploy.pipeline.table_changes import job_fields
from filestore.catalog.catalog import FileCatalog
from filestore.schema.row_counts import seen_schema
from filestore.schema.schema_store import new_schema
from lsm.errors import InvalidInputError

BROKERS = {"kafka.bootstrap.servers": "b:1"}


def spec(
    source: dict[str, Any],
    limits: dict[str, str] | None = None,
    key: tuple[str, ...] = ("id",),
    table: dict[str, str] | None = None,
    login: dict[str, str] | None = None,
    transform: dict[str, str] | None = None,
    twice: bool = False,
) -> SourceSpec:
    """Of a pipeline into a table (id BIGINT, v INT) whose log has brokers b:1."""
    pipeline = {"name": "p", "source": source, "limits": limits or {}, "target": "db.t", "checkpoint": "/c"}
    pipeline |= {} if transform is None else {"transform": transform}
    config = JobConfig.model_validate(
        {
            "name": "j",
            "warehouse": "/w",
            "catalog": {"metastore": "jdbc", "uri": "sqlite:///names.db"},
            "log": BROKERS | (login or {}),
            "tables": {"db.t": {"columns": {"id": "BIGINT", "v": "INT"}, "primary_key": key, "options": table or {}}},
            "pipelines": [pipeline, *([pipeline | {"name": "q", "checkpoint": "/d"}] if twice else [])],
        }
    )
    check_job(config)
    wanted = config.tables["db.t"]
    schema = new_schema(job_fields(wanted), primary_key=key, options=wanted.options, time_ms=0)
    return source_spec(config, config.pipelines[0], [seen_schema(schema)])


def columns(found: SourceSpec) -> str | None:
    return None if found.schema is None else found.schema.simpleString()


def test_topics_have_the_brokers_of_the_log_and_the_columns_of_the_target_and_row_kinds() -> None:
    found = spec({"options": {"subscribe": "t", "value.format": "debezium-json"}}, {"records": "5"})
    assert found.format == "fluvial-kafka"
    given = {"subscribe": "t", "value.format": "debezium-json", "maxOffsetsPerTrigger": "5", **BROKERS}
    assert found.options == {**given, "truncates": "emit"}
    assert columns(found) == "struct<id:bigint,v:int,_row_kind:string,_unavailable:array<string>>"
    assert found.schema is not None
    assert all(field.nullable for field in found.schema.fields)


@pytest.mark.parametrize(
    ("value_format", "given", "expected"),
    [("debezium-json", {}, "true"), ("debezium-json", {"update-before": "false"}, "false"), ("json", {}, None)],
)
def test_a_table_that_counts_rows_is_told_what_an_update_replaces(
    value_format: str, given: dict[str, str], expected: str | None
) -> None:
    """FL-05, FL-184: a row without a key goes by its values only."""
    options = {"subscribe": "t", "value.format": value_format, **given}
    found = spec({"options": options}, key=(), table={"row-counts": "true"})
    assert found.options.get("update-before") == expected


SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}


@pytest.mark.parametrize(
    ("table", "given", "before", "deletes"),
    [
        ({}, {}, None, None),
        ({"sequence.field": "v"}, {}, None, "fail"),
        ({"sequence.field": "v"}, {"partial-deletes": "keep"}, None, "keep"),
        ({"sequence.field": "v", "ignore-delete": "true"}, {}, None, None),
        (SUM, {}, "true", "fail"),
        (SUM, {"update-before": "false"}, "false", "fail"),
        (SUM | {"aggregation.remove-record-on-delete": "true"}, {}, "true", None),
        (SUM | {"ignore-delete": "true"}, {}, None, None),
        (SUM | {"ignore-update-before": "true"}, {}, None, "fail"),
        (SUM | {"fields.v.aggregate-function": "max"}, {}, None, "fail"),
        ({"merge-engine": "first-row", "ignore-delete": "true"}, {}, None, None),
    ],
)
def test_a_table_that_takes_values_back_gets_the_old_row_of_each_change(
    table: dict[str, str], given: dict[str, str], before: str | None, deletes: str | None
) -> None:
    """A sum counted an update twice, and a delete that has only its key removed nothing, both in silence."""
    plain = spec({"options": {"subscribe": "t", "value.format": "json", **given}}, table=table).options
    assert (plain.get("update-before"), plain.get("partial-deletes")) == (given.get("update-before"), deletes)
    found = spec({"options": {"subscribe": "t", "value.format": "debezium-json", **given}}, table=table).options
    assert (found.get("update-before"), found.get("partial-deletes")) == (before, deletes)


def test_a_query_that_sums_changes_of_debezium_says_what_becomes_of_old_rows() -> None:
    options = {"subscribe": "t", "value.format": "debezium-json"}
    found = spec({"options": options})
    with pytest.raises(InvalidInputError, match="set update-before=true among the options of the source"):
        check_whole_changes(found, [SUMS], [])
    for word in ("true", "false"):
        check_whole_changes(spec({"options": {**options, "update-before": word}}), [SUMS], [])
    check_whole_changes(found, [BY_KEY, WINDOW], [])
    check_whole_changes(spec({"options": {**options, "value.format": "json"}}), [SUMS], [])


@pytest.mark.parametrize(
    ("key", "given", "expected"),
    [(("id",), {}, "id"), ((), {}, None), (("id",), {"key.columns": "v"}, "v")],
)
def test_plain_json_is_an_upsert_by_primary_key_and_append_into_a_table_without_one(
    key: tuple[str, ...], given: dict[str, str], expected: str | None
) -> None:
    found = spec({"options": {"subscribe": "t", "value.format": "json", **given}}, key=key)
    assert found.options.get("key.columns") == expected


@pytest.mark.parametrize(
    ("value_format", "given", "expected"),
    [
        ("debezium-json", {}, "a=ms?,b=s?,d=ns?"),
        ("debezium-json", {"epoch-units": "b=D, c=ms"}, "a=ms?,b=D,d=ns?,c=ms"),
        ("json", {}, None),
    ],
)
def test_numbers_of_times_count_the_unit_of_the_column_that_spark_does_not_know(
    value_format: str, given: dict[str, str], expected: str | None
) -> None:
    types = {"a": "TIMESTAMP_LTZ(3)", "b": "TIMESTAMP(0)", "c": "TIMESTAMP", "d": "TIMESTAMP(9)", "id": "BIGINT"}
    options = {"subscribe": "t", "value.format": value_format, **given}
    assert spec({"options": options, "columns": types}).options.get("epoch-units") == expected


def test_records_as_they_are_have_the_columns_of_the_connector() -> None:
    assert columns(spec({"options": {"subscribe": "t"}})) is None


def test_a_table_is_read_with_its_changes_from_the_jobs_warehouse() -> None:
    found = spec({"format": "fluvial", "options": {"table": "db.s"}}, {"files": "3", "bytes": "2 mb"})
    assert (found.format, columns(found)) == ("fluvial", None)
    assert found.options == {
        "table": "db.s",
        "warehouse": "/w",
        "metastore": "jdbc",  # and what else the job's catalog is opened with
        "uri": "sqlite:///names.db",
        "read.changelog": "true",
        "read.stream.maxFilesPerTrigger": "3",
        "read.stream.maxBytesPerTrigger": str(2 << 20),
    }


def test_files_have_the_columns_of_the_target_or_their_own_and_other_sources_know_theirs() -> None:
    assert columns(spec({"format": "csv", "options": {"path": "/in"}})) == "struct<id:bigint,v:int>"
    own = spec({"format": "json", "options": {"path": "/in"}, "columns": {"a": "STRING NOT NULL"}}, {"files": "1"})
    assert (columns(own), own.options["maxFilesPerTrigger"]) == ("struct<a:string>", "1")
    assert columns(spec({"format": "rate", "options": {"rowsPerSecond": "5"}})) is None


@pytest.mark.parametrize(
    ("source", "fact"),
    [
        ({"format": "fluvial"}, "option=table"),
        ({"format": "fluvial", "options": {"table": "db.s"}, "columns": {"a": "INT"}}, "remove columns"),
        ({"format": "parquet"}, "option=path"),
        ({"options": {"value.format": "json"}}, "option=subscribe"),
        ({"options": {"subscribe": "t", "vlue.format": "json"}}, "did_you_mean=value.format"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_by_its_options_alone(source: dict[str, Any], fact: str) -> None:
    with pytest.raises(InvalidInputError, match=fact):
        spec(source)


@pytest.mark.parametrize(("warehouse", "has_login"), [({}, True), ({"warehouse": "/elsewhere"}, False)])
def test_a_table_of_this_warehouse_is_read_with_the_jobs_login(warehouse: dict[str, str], has_login: bool) -> None:
    """Tables do not store it; one of another warehouse may have other brokers."""
    login = {"kafka.sasl.username": "ann", "kafka.sasl.password": "s"}
    found = spec({"format": "fluvial", "options": {"table": "db.s", **warehouse}}, login=login).options
    given = {key: value for key, value in found.items() if key.startswith("log.kafka.")}
    assert given == ({f"log.{key}": value for key, value in login.items()} if has_login else {})


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.username": "ann", "kafka.sasl.password": "s"}),
        ({"kafka.bootstrap.servers": "b:1"}, {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.password": "s"}),
        ({"kafka.bootstrap.servers": "c:1"}, {"kafka.sasl.password": None, "kafka.bootstrap.servers": "c:1"}),
        ({"kafka.sasl.username": "bob", "kafka.sasl.password": "t"}, {"kafka.security.protocol": None}),
    ],
    ids=["none", "same brokers", "other brokers", "own login"],
)
def test_a_topic_is_read_with_the_login_that_belongs_to_the_address(
    own: dict[str, str], expected: dict[str, str | None]
) -> None:
    """Finding 6: the address came without the login, and plain text was spoken to a listener with TLS.

    A source with a login of its own takes no part of the log's, and other brokers get no password.
    """
    login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.username": "ann", "kafka.sasl.password": "s"}
    found = spec({"options": {"subscribe": "t", **own}}, login={**login, "kafka.client.id": "log"}).options
    assert {key: found.get(key) for key in expected} == expected
    assert "kafka.client.id" not in found
    assert found["kafka.bootstrap.servers"] == own.get("kafka.bootstrap.servers", "b:1")


@pytest.mark.parametrize(
    ("source", "table", "is_filled"),
    [
        ({}, {}, True),
        ({"unavailable-values": "fail"}, {}, False),
        ({}, {"merge-engine": "first-row"}, False),
        ({}, {"merge-engine": "partial-update"}, True),
        ({}, {"bucket": "-2", "log.system": "none"}, False),
        ({"value.format": "json"}, {}, False),
    ],
)
def test_values_that_updates_left_out_are_taken_from_a_table_that_can_give_them(
    source: dict[str, str], table: dict[str, str], is_filled: bool
) -> None:
    """Scalar TOAST columns had no way but REPLICA IDENTITY FULL (finding 2)."""
    options = {"subscribe": "t", "value.format": "debezium-json", **source}
    assert ("_unavailable" in str(columns(spec({"options": options}, table=table)))) == is_filled


@pytest.mark.parametrize(
    ("source", "table", "more", "expected"),
    [
        ({}, {}, {}, "emit"),
        ({"value.format": "debezium-avro", "schema.registry.url": "http://r"}, {}, {}, "emit"),
        ({"truncates": "fail"}, {}, {}, "fail"),
        ({"value.format": "json"}, {}, {}, None),
        ({}, {"merge-engine": "aggregation"}, {}, None),  # older rows are in its values
        ({}, {}, {"transform": {"sql": "SELECT * FROM source WHERE v > 0"}}, None),  # a truncate has no values
        ({}, {}, {"twice": True}, None),  # the other one's rows would be gone as well
    ],
)
def test_a_truncate_empties_the_table_of_one_topic_and_no_other(
    source: dict[str, str], table: dict[str, str], more: dict[str, Any], expected: str | None
) -> None:
    """INSERT 1,2; TRUNCATE; INSERT 3 kept 1 and 2, or stopped the job (finding 11)."""
    options = {"subscribe": "t", "value.format": "debezium-json", **source}
    found = spec({"options": options}, table=table, **more)
    assert found.options.get("truncates") == expected


@pytest.mark.parametrize("kind", ["TIME", "ARRAY<TIME(3)>"])
def test_a_time_is_refused_before_spark_starts_and_the_way_out_is_named(kind: str) -> None:
    """`validate --online` and `plan` said create, start; the run failed after minutes, for all tables (finding 5)."""
    job = {
        "name": "j",
        "warehouse": "/w",
        "log": BROKERS,
        "tables": {"db.t": {"columns": {"id": "BIGINT", "tm": kind}, "primary_key": ["id"]}},
        "pipelines": [
            {
                "name": "p",
                "source": {"options": {"subscribe": "t", "value.format": "debezium-json"}},
                "target": "db.t",
                "checkpoint": "/c",
            }
        ],
    }
    with pytest.raises(InvalidInputError, match=r"columns=\['tm'\] type=TIME .*declare them STRING"):
        check_job(JobConfig.model_validate(job))
    check_job(JobConfig.model_validate(job | {"spark": {"conf": {"spark.sql.timeType.enabled": "true"}}}))


SUMS = "SELECT id, sum(v) AS v, '+I' AS _row_kind FROM source GROUP BY id"
BY_KEY = "SELECT id, max(v) AS v, '+I' AS _row_kind FROM source GROUP BY id"
WINDOW = "SELECT id, sum(v) OVER (PARTITION BY id) AS v, _row_kind FROM source"
UPSERTS = {"log.kafka.bootstrap.servers": "b:1", "log.kafka.topic": "t", "bucket": "1"}
GIVEN = {"bucket": "1", "changelog-producer": "input"}
EXACT = UPSERTS | {"log.changelog-mode": "all", "changelog-producer": "lookup"}


@pytest.mark.parametrize(
    ("table", "given", "query", "summing", "is_refused"),
    [
        (UPSERTS, {}, SUMS, {}, True),
        (UPSERTS, {"log.scan.normalize": "true"}, SUMS, {}, False),
        (UPSERTS, {"log.scan.remove-normalize": "true"}, SUMS, {}, False),
        (UPSERTS, {"filter": "v > 0"}, SUMS, {}, False),  # a filter on values completes them
        (UPSERTS, {}, BY_KEY, {}, False),
        (UPSERTS, {}, WINDOW, {}, False),
        (UPSERTS, {}, None, {"fields.v.aggregate-function": "sum"}, True),
        (UPSERTS, {}, None, {"fields.default-aggregate-function": "count"}, True),
        (UPSERTS, {}, None, {"fields.v.aggregate-function": "last_value"}, False),
        (EXACT, {}, SUMS, {}, False),
        ({"bucket": "1"}, {}, SUMS, {}, False),  # without a log changes are those of files
        ({"bucket": "1", "changelog-producer": "lookup"}, {}, SUMS, {}, False),
        (GIVEN, {}, SUMS, {}, True),
        (GIVEN, {}, None, {"fields.v.aggregate-function": "sum"}, True),
        (GIVEN, {}, BY_KEY, {}, False),
        (GIVEN, {"log.scan.remove-normalize": "true"}, SUMS, {}, False),
    ],
)
def test_sums_of_changes_without_what_they_replace_are_refused(
    tmp_path: Path,
    table: dict[str, str],
    given: dict[str, str],
    query: str | None,
    summing: dict[str, str],
    is_refused: bool,
) -> None:
    """FL-61, FL-129, FL-131: the consumer that needs whole changes is told which option gives them."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
    FileCatalog(str(tmp_path)).create_table("d.s", schema, primary_key=["id"], options=table)
    engine = {"merge-engine": "aggregation"} if summing else {}
    target = new_schema(schema, primary_key=["id"], options={**engine, **summing}, time_ms=0)
    place = {"warehouse": str(tmp_path), "table": "d.s", "read.changelog": "true"}
    source = SourceSpec(format="fluvial", options=place | given, schema=None)
    queries = [] if query is None else [query]
    if is_refused:
        fix = "set changelog-producer=lookup" if table is GIVEN else "set log.scan.normalize=true among the options of"
        with pytest.raises(InvalidInputError, match=fix):
            check_whole_changes(source, queries, [target])
    else:
        check_whole_changes(source, queries, [target])


@pytest.mark.parametrize(
    ("table", "given", "target", "is_refused"),
    [
        (UPSERTS | {"log.format": "json"}, {}, {"sequence.field": "v"}, True),
        (UPSERTS | {"log.format": "avro"}, {}, {"sequence.field": "v"}, True),
        (UPSERTS | {"log.format": "json"}, {"log.scan.normalize": "true"}, {"sequence.field": "v"}, False),
        (UPSERTS | {"log.format": "json"}, {"log.scan.remove-normalize": "true"}, {"sequence.field": "v"}, False),
        (UPSERTS | {"log.format": "json"}, {}, {}, False),
        (UPSERTS, {}, {"sequence.field": "v"}, False),  # deletes have the row that was written
        (EXACT | {"log.format": "debezium-avro"}, {}, {"sequence.field": "v"}, False),
    ],
)
def test_deletes_of_a_log_without_values_do_not_go_where_values_order_rows(
    tmp_path: Path, table: dict[str, str], given: dict[str, str], target: dict[str, str], is_refused: bool
) -> None:
    """Null is the oldest of a sequence: the row stayed, in silence."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
    registry = {"log.schema-registry.url": "http://r:1"} if "avro" in table.get("log.format", "") else {}
    FileCatalog(str(tmp_path)).create_table("d.s", schema, primary_key=["id"], options=table | registry)
    place = {"warehouse": str(tmp_path), "table": "d.s", "read.changelog": "true"}
    source = SourceSpec(format="fluvial", options=place | given, schema=None)
    into = new_schema(schema, primary_key=["id"], options=target, time_ms=0)
    if is_refused:
        with pytest.raises(InvalidInputError, match=r"a delete comes with its key only.*log\.scan\.normalize=true"):
            check_whole_changes(source, [], [into])
    else:
        check_whole_changes(source, [], [into])
