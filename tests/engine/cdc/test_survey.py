"""A survey of records as Debezium published them: what it says of an unknown database, and the file it writes."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pytest

from engine.cdc.records.scan import declared_parts
from engine.cdc.rules.names import NameRule, Naming
from engine.cdc.samples import TopicSample
from engine.cdc.settings import CdcSettings, TableSettings
from engine.cdc.survey import Survey, SurveyedTable, survey
from engine.cli.commands.survey import job_text
from engine.deploy.cdc_job import cdc_of, cdc_settings
from engine.deploy.config.job_config import parse_job
from filestore.types.data_types import DataType
from logstore.format.connect_types import TypeRules
from logstore.format.schema_parts import split_payloads
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from tests.stores import change_samples
from tests.stores.debezium import ChangeRecord
from tests.support.change_events import Field, SourceTable, decimal, int32, send, text

SETTINGS = CdcSettings(
    name="shop", database="shop", pattern=r"shop_.*", properties=KafkaProperties.parse({"bootstrap.servers": "x:1"})
)


def topic_samples(records: list[ChangeRecord]) -> Iterator[TopicSample]:
    for topic, group in groupby(records, key=lambda each: each.topic):
        listed = list(group)
        columns = {
            "offset": pa.array([each.offset for each in listed], pa.int64()),
            "key": pa.array([each.key for each in listed], pa.binary()),
            "value": pa.array([each.value for each in listed], pa.binary()),
        }
        batch = pa.RecordBatch.from_pydict(columns)
        yield TopicSample(topic=topic, partition=0, size=len(listed), records=(batch,), is_whole=True)


def surveyed(*names: str, settings: CdcSettings = SETTINGS) -> Survey:
    records = [each for name in names for each in change_samples.read(name)]
    return survey(topic_samples(records), settings, split_payloads)


def table(found: Survey, name: str) -> SurveyedTable:
    (only,) = [each for each in found.tables if each.source.name == name]
    return only


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"op": "c", "before": None, "after": {"id": 1}}, "changes of rows without `source`, .* --from-topic shop_x"),
        ({"op": "c", "before": None, "after": {"id": 1}, "source": None}, "without `source`"),
        ({"id": 1}, "no changes of rows: another topic"),
    ],
)
def test_a_topic_that_is_no_table_says_why(body: object, why: str) -> None:
    columns = {"offset": [0], "key": [b"1"], "value": [json.dumps(body).encode()]}
    batch = pa.RecordBatch.from_pydict(columns)
    sample = TopicSample(topic="shop_x", partition=0, size=1, records=(batch,), is_whole=True)
    assert re.search(why, survey(iter([sample]), SETTINGS, split_payloads).others["shop_x"])


def test_every_type_of_postgres_is_listed_with_what_it_loses() -> None:
    found = table(surveyed("types", "contrib"), "types")
    types = {each.name: (each.type, each.note) for each in found.columns}
    expected = {
        "i8": "BIGINT", "f8": "DOUBLE", "n": "DECIMAL(10, 2)", "n38": "DECIMAL(38, 10)", "nbig": "STRING",
        "nfree": "STRING", "t": "STRING", "by": "BYTES", "d": "DATE", "tm": "STRING", "ts": "TIMESTAMP(6)",
        "ts3": "TIMESTAMP(3)", "tstz": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "ia": "ARRAY<INT>",
        "na": "ARRAY<DECIMAL(10, 2)>", "uu": "STRING",
    }  # fmt: skip
    assert {name: types[name][0] for name in expected} == expected
    assert "interval" in types["iv"][1]
    assert "bits" in types["b8"][1]
    assert types["i8"][1] == types["tm"][1] == ""
    assert (found.key, found.key_from, found.table) == (("id",), "the record's key", "types")


def test_changes_between_the_first_and_the_last_records_are_listed_with_what_a_job_does() -> None:
    found = surveyed("changes")
    changes = table(found, "orders").changes
    assert "column a changes from INT to BIGINT: schema-changes.widen=evolve" in changes
    assert "column c is dropped: schema-changes.drop=keep" in changes
    assert any(each.startswith("column f INT default 7 is added") for each in changes)
    keyless = table(found, "nokey")
    assert (keyless.key, keyless.problems) == ((), ())
    assert "REPLICA IDENTITY FULL" in keyless.key_from
    kinds = {topic.rpartition(".")[2]: kind for topic, kind in found.others.items()}
    assert kinds["transaction"] == "transactions"
    assert kinds["shop_changes"] == "heartbeats"
    reserved = [each for each in found.tables if any(column.source.name == "_row_kind" for column in each.columns)]
    assert {column.name for each in reserved for column in each.columns} >= {"src__row_kind"}


def test_schema_changes_of_mariadb_are_no_table() -> None:
    found = surveyed("mariadb-types")
    assert found.others["shop_mariadb_types"] == "schema changes"
    types = {each.name: each.type for each in table(found, "types").columns}
    assert (types["bu"], types["n65"], types["b1"], types["tm6"]) == ("DECIMAL(20, 0)", "STRING", "BOOLEAN", "STRING")


def test_two_tables_with_one_name_are_a_problem_until_a_rule_parts_or_joins_them() -> None:
    found = surveyed("types", "mariadb-types")
    assert not found.is_possible
    assert all("is also that of" in each.problems[0] for each in found.tables if each.source.name == "types")
    text = job_text(found, SETTINGS, brokers="localhost:9092")
    assert "names:" in text
    parted = Naming(rules=(NameRule(source=r"(.*)\.(.*)", to="{1}_{2}"),))
    assert surveyed("types", "mariadb-types", settings=_with(parted)).is_possible
    joined = Naming(rules=(NameRule(source=r".*\.types", to="types", add={"shard": "{schema}"}, key=("shard", "id")),))
    assert surveyed("types", "mariadb-types", settings=_with(joined)).is_possible


def test_records_without_schema_parts_are_refused_with_the_two_ways_out() -> None:
    bare = [
        ChangeRecord(topic=each.topic, partition=0, offset=each.offset, key=each.key, value=_payload(each.value))
        for each in change_samples.read("types")
        if each.topic.endswith(".types")
    ]
    found = survey(topic_samples(bare), SETTINGS, split_payloads)
    (problem,) = found.problems.values()
    assert "schemas.enable=true" in problem
    assert "Avro" in problem
    assert not found.is_possible


def test_what_rules_of_types_lose_is_listed_as_well() -> None:
    """G: numbers as doubles, moments beyond the calendar; and columns that a job declares for records without parts."""
    rules = TypeRules(numeric="double", out_of_range="null")
    found = table(surveyed("types", settings=replace(SETTINGS, types=rules)), "types")
    notes = {each.name: each.note for each in found.columns}
    assert "rounded" in notes["nfree"]
    assert "becomes null" in notes["tstz"]
    bare = [replace(each, value=_payload(each.value)) for each in change_samples.read("types")]
    columns = (("id", DataType(root="INT")), ("t", DataType(root="VARCHAR", length=2**31 - 1)))
    settings = replace(SETTINGS, tables={"types": TableSettings(columns=columns, key=("id",))})
    samples = topic_samples([each for each in bare if each.topic.endswith(".types")])
    declared = survey(samples, settings, split_payloads, declared_parts(settings))
    assert declared.is_possible
    (only,) = declared.tables
    assert ([each.name for each in only.columns], only.key) == (["id", "t"], ("id",))


def test_what_a_connector_leaves_out_of_changes_is_listed() -> None:
    """Large arrays without a placeholder become null; a generated column is in the snapshot only."""
    arrays: dict[str, Field] = {
        "numbers": decimal("x", 10, 2), "doubles": {"type": "double"}, "flags": {"type": "boolean"},
        "moments": {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        "times": {"type": "int64", "name": "io.debezium.time.MicroTime"},
        "kinds": {"type": "string", "name": "io.debezium.data.Enum"},
    }  # fmt: skip
    kept: dict[str, Field] = {
        "texts": {"type": "string"}, "ids": {"type": "string", "name": "io.debezium.data.Uuid"},
        "ints": {"type": "int32"}, "longs": {"type": "int64"},
        "days": {"type": "int32", "name": "io.debezium.time.Date"},
    }  # fmt: skip

    def bits(name: str, length: int) -> Field:
        parameters = {"length": str(length)}
        return {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": parameters, "field": name}

    columns = [int32("id", optional=False), int32("twice")]
    columns += [
        {"type": "array", "items": items, "optional": True, "field": name} for name, items in (arrays | kept).items()
    ]
    columns += [{**text("named"), "parameters": {"__debezium.source.column.type": "NAME"}}]
    columns += [bits("few", 8), bits("many", 2**31 - 1)]
    row: dict[str, object] = {each["field"]: None for each in columns}
    first = SourceTable("t", columns)
    later = first.with_columns(*(each for each in columns if each["field"] != "twice"))
    streamed = {name: value for name, value in row.items() if name != "twice"}
    records = [first.read(row | {"id": 1}), later.update(streamed | {"id": 1})]
    published = [
        ChangeRecord(topic="shop.t", partition=0, offset=at, key=each[1], value=each[2])
        for at, each in enumerate(records)
    ]
    found = table(survey(topic_samples(published), SETTINGS, split_payloads), "t")
    notes = {each.name: each.note for each in found.columns}
    assert {name for name, note in notes.items() if "REPLICA IDENTITY FULL needed" in note} == {*arrays, "many"}
    assert "cut to milliseconds" in notes["times"]
    assert "null in it" in notes["kinds"]
    assert "in changes after the snapshot" in notes["named"]
    assert [each for each in found.changes if "generated" in each] == [
        "column twice may be a generated one, not in changes: the table waits until it is excluded"
    ]


@pytest.mark.long
def test_the_commands_read_topics_and_write_a_job_file(
    kafka: KafkaProperties,
    topics: LogTopics,
    tmp_path: Path,
    fluvial: Callable[..., tuple[int, str, str]],
) -> None:
    records = change_samples.read("changes")
    for name in {each.topic for each in records}:
        topics.create_topic(name, bucket_count=1)
    send(kafka, *((each.topic, each.key, each.value) for each in records))
    flags = (
        "--from-topics",
        r"shop_changes\..*",
        "--database",
        "shop",
        "--brokers",
        kafka.by_name["bootstrap.servers"],
    )
    file = tmp_path / "shop.yaml"
    code, out, _ = fluvial("plan", *flags, "--write", str(file), "--json")
    found = json.loads(out)
    assert code == 0
    assert {each["table"] for each in found["tables"]} >= {"orders", "pairs", "nokey", "late"}
    job = parse_job(file.read_text(encoding="utf-8"), name="shop.yaml", environment={})
    settings = cdc_settings(job, cdc_of(job, None))
    assert (settings.pattern, settings.transactions, settings.cut) == (
        r"shop_changes\..*", "shop_changes.transaction", "transaction",
    )  # fmt: skip
    code, out, _ = fluvial("plan", *flags)
    assert code == 0
    assert "REPLICA IDENTITY FULL" in out
    chosen = {"include": [r"public\.(orders|nokey)"], "exclude": [r"public\.nokey"]}
    with (tmp_path / "own.yaml").open("w", encoding="utf-8") as own:
        own.write(file.read_text(encoding="utf-8"))
        own.write(f"  types: {{out-of-range: clamp}}\n  tables: {json.dumps(chosen)}\n")
    code, out, _ = fluvial("plan", str(tmp_path / "own.yaml"), "--json")
    assert code == 0
    by_rules = json.loads(out)["databases"]["shop"]["tables"]
    assert [each["table"] for each in by_rules if each["table"] is not None] == ["orders"]
    code, out, _ = fluvial("plan", str(tmp_path / "own.yaml"))
    assert (code, out.startswith("database shop\n")) == (0, True)
    code, _, err = fluvial("init", str(tmp_path / "made"), *flags)
    assert (code, (tmp_path / "made" / "shop.yaml").exists()) == (0, True)
    assert "fluvial cdc run" in err
    assert fluvial("init", str(tmp_path / "made"), *flags)[0] == 2  # nothing is overwritten
    assert fluvial("plan", "--from-topics", "nothing", *flags[2:])[0] == 2


def _with(naming: Naming) -> CdcSettings:
    return CdcSettings(
        name="shop", database="shop", pattern=SETTINGS.pattern, properties=SETTINGS.properties, naming=naming
    )


def _payload(value: bytes | None) -> bytes | None:
    return None if value is None else json.dumps(json.loads(value)["payload"]).encode()
