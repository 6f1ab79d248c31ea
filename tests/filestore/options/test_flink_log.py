"""What a schema file says to Flink, and that it says the same to us."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.options.flink_log import options_for_file, options_of_file
from filestore.options.table_options import TableOptions

OURS = {
    "bucket": "2",
    "log.system": "kafka",
    "log.kafka.bootstrap.servers": "a:1",
    "log.kafka.topic": "db.t",
    "log.kafka.topic-id": "id",
    "log.kafka.sasl.password": "hidden",
}


def in_file(**options: str) -> dict[str, str]:
    given = {**OURS, **{key.replace("__", "-").replace("_", "."): text for key, text in options.items()}}
    return options_for_file(given, TableOptions.parse(given, strict=False, primary_key=["id"]))


def test_a_file_names_brokers_and_topic_once_as_the_connector_reads_them() -> None:
    assert in_file() == {
        "bucket": "2",
        "log.system": "kafka",
        "kafka.bootstrap.servers": "a:1",
        "kafka.topic": "db.t",
        "kafka.transaction.timeout.ms": "900000",
        "log.kafka.topic-id": "id",
        "log.kafka.sasl.password": "hidden",  # never where the connector would look
    }


@pytest.mark.parametrize(
    ("options", "log_system"),
    [
        ({}, "kafka"),
        ({"changelog__producer": "input"}, "kafka"),
        ({"log_changelog__mode": "all"}, "kafka"),
        ({"changelog__producer": "lookup"}, None),
        ({"changelog__producer": "lookup", "log_changelog__mode": "all"}, None),
        ({"changelog__producer": "full-compaction"}, None),
        ({"deletion__vectors_enabled": "true"}, None),
        ({"merge__engine": "first-row"}, None),
        ({"force__lookup": "true"}, None),
        ({"log_format": "json"}, None),
        ({"log_format": "avro"}, None),
        ({"log_format": "debezium-avro"}, None),
        ({"log_system": "none"}, "none"),
        ({"log_system": "Kafka"}, "kafka"),
    ],
)
def test_flink_reads_a_log_only_where_it_can_and_begins_with_every_row(
    options: dict[str, str], log_system: str | None
) -> None:
    assert in_file(**options).get("log.system") == log_system


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["log.consistency", "fluvial.log.changelog-mode", "fluvial.streaming-read-mode"]),
        (
            {"log_format": "json"},
            ["fluvial.log.consistency", "fluvial.log.changelog-mode", "fluvial.streaming-read-mode"],
        ),
        (
            {"log_system": "none"},
            ["fluvial.log.consistency", "fluvial.log.changelog-mode", "fluvial.streaming-read-mode"],
        ),
    ],
)
def test_the_connector_does_not_see_what_it_refuses(options: dict[str, str], names: list[str]) -> None:
    """Without `log.system`, in batch too; the last two are what holds anyway, so a job's hint may leave out the log."""
    given = {"log_consistency": "eventual", "log_changelog__mode": "UPSERT", "streaming__read__mode": "log", **options}
    stored = in_file(**given)
    assert [name for name in stored if name.endswith(("consistency", "changelog-mode", "read-mode"))] == names
    assert options_of_file(stored)["log.changelog-mode"] == "UPSERT"
    assert in_file(log_consistency="transactional", log_changelog__mode="all").keys() >= {
        "log.consistency",
        "log.changelog-mode",
    }


@given(
    st.dictionaries(
        st.sampled_from([*OURS, "log.format", "changelog-producer", "merge-engine", "x", "log.consistency"]),
        st.sampled_from(["kafka", "json", "lookup", "first-row", "a:1", "eventual"]),
    ).map(lambda some: {"log.system": "kafka", **some, "log.kafka.topic-id": "id"}),
    st.booleans(),
)
def test_a_table_has_the_same_options_after_its_file_was_read(options: dict[str, str], on_branch: bool) -> None:
    parsed = TableOptions.parse({"bucket": "2"}, primary_key=["id"])
    assert options_of_file(options_for_file(options, parsed, on_branch=on_branch)) == options


def test_files_of_earlier_versions_and_of_other_engines_are_read() -> None:
    assert options_of_file(OURS) == OURS
    assert options_of_file({**OURS, "kafka.topic": "other"}) == OURS
    java = {"log.system": "kafka", "kafka.bootstrap.servers": "b:1", "kafka.topic": "made"}
    assert options_of_file(java) == {
        "log.system": "kafka",
        "log.kafka.bootstrap.servers": "b:1",
        "log.kafka.topic": "made",
    }


def test_a_branch_does_not_name_mains_log() -> None:
    parsed = TableOptions.parse(OURS, primary_key=["id"])
    assert "log.system" not in options_for_file(OURS, parsed, on_branch=True)
    assert orjson.dumps(options_for_file(OURS, parsed)).count(b"a:1") == 1
