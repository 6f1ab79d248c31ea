import pickle
import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.options.parsing import duration_ms, size_bytes
from filestore.options.rules import ALIASES, ELSEWHERE
from filestore.options.table_options import TableOptions, canonical_options, check_option
from filestore.schema.table_schema import TableSchema
from lsm.errors import InvalidInputError
from tests.support.option_keys import dotted
from tests.support.vectors import PROPERTY, golden_tables

KEY = ["id"]
MIB = 1024 * 1024


def parse(primary_key: list[str] | None = None, **options: str) -> TableOptions:
    """Options with ``_`` for ``.`` and ``__`` for ``-``."""
    texts = dotted(options)
    return TableOptions.parse(texts, primary_key=primary_key or [])


def test_defaults_of_a_table_with_a_key() -> None:
    """FL-56, FL-60, FL-63, FL-64, FL-66, FL-75, FL-177: compaction is universal."""
    options = TableOptions.parse({}, primary_key=KEY)
    assert (options.file_format, options.compression, options.zstd_level) == ("parquet", "zstd", 1)
    assert (options.merge_engine, options.changelog_producer, options.change_tracking) == ("deduplicate", "none", True)
    assert (options.run_count_trigger, options.run_count_stop_trigger, options.level_count) == (5, 8, None)
    assert options.compaction_style == "universal"
    assert (options.target_file_size_bytes, options.write_buffer_bytes) == (128 * MIB, 64 * MIB)
    assert (options.log_system, options.log_consistency, options.log_changelog_mode) == (
        "none",
        "transactional",
        "upsert",
    )
    assert (options.log_format, options.log_key_format, options.log_retention_ms) == ("debezium-json", "json", None)
    assert (options.manifest_target_bytes, options.manifest_merge_min_count) == (8 * MIB, 30)
    assert (options.stats_mode, options.partition_default_name) == ("truncate(16)", "__DEFAULT_PARTITION__")


def test_defaults_that_a_key_changes() -> None:
    """FL-60: changes are upserts with a key, all changes without."""
    options = TableOptions.parse({})
    assert (options.target_file_size_bytes, options.log_changelog_mode) == (256 * MIB, "all")


def test_the_session_prefix_is_stripped() -> None:
    """FL-68, FL-83."""
    assert TableOptions.parse({"table-storage.bucket": "10"}).bucket == 10
    assert TableOptions.parse({"table-storage.log.retention": "7 d"}).log_retention_ms == 7 * 86_400_000


def test_servers_make_the_log_kafka() -> None:
    """FL-53, FL-54."""
    options = TableOptions.parse(
        {
            "kafka.bootstrap.servers": "a:1,b:2",
            "log.kafka.acks": "all",
            "log.kafka.topic": "orders",
            "bucket": "2",
            "bucket-key": "id",
        }
    )
    assert (options.log_system, options.log_topic) == ("kafka", "orders")
    assert options.log_kafka == {"bootstrap.servers": "a:1,b:2", "acks": "all"}
    assert TableOptions.parse({"log.kafka.bootstrap.servers": "a:1", "log.system": "none"}).log_system == "none"


def test_secrets_are_not_shown() -> None:
    options = TableOptions.parse({"log.kafka.sasl.password": "secret"})
    assert "secret" not in repr(options)


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("log.properties.bootstrap.servers", "log.kafka.bootstrap.servers", "a:1"),
        ("scan.timestamp-millis", "log.scan.timestamp-mills", "5"),
        ("log.scan.timestamp-millis", "log.scan.timestamp-mills", "5"),
        ("universal_sort_run_num_compaction_trigger", "num-sorted-run.compaction-trigger", "7"),
        ("universal_max_size_amplification_percent", "compaction.max-size-amplification-percent", "100"),
        ("universal_size_ratio", "compaction.size-ratio", "2"),
        ("file.root-path", "file.path", "/data"),
    ],
)
def test_old_spellings_are_todays_options(old: str, new: str, value: str) -> None:
    """FL-54, FL-65, FL-74, FL-171, FL-172, FL-173."""
    assert canonical_options({old: value}) == {new: value}
    assert canonical_options({old: value, new: value}) == {new: value}
    with pytest.raises(InvalidInputError, match="given twice"):
        canonical_options({old: value, new: "other"})


def test_the_old_startup_mode_is_a_scan() -> None:
    """FL-69, FL-70, FL-73."""
    assert canonical_options({"log.scan.startup.mode": "latest-offset"}) == {"log.scan": "latest"}
    assert canonical_options({"log.scan.startup.mode": "initial"}) == {"log.scan": "full"}


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("bukcet", "bucket"),
        ("merge_engine", "merge-engine"),
        ("snapshot.time-retain", "snapshot.time-retained"),
        ("fields.a.agregate-function", "fields.a.aggregate-function"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
    ],
)
def test_unknown_keys_name_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(f"option={wrong} did_you_mean=['{near}'")):
        TableOptions.parse({wrong: "1"})


def test_keys_of_others_say_whose_they_are() -> None:
    with pytest.raises(InvalidInputError, match="belongs_to='the catalog'"):
        TableOptions.parse({"jdbc.url": "sqlite://"})


def test_tables_of_others_may_hold_unknown_keys() -> None:
    options = TableOptions.parse({"new.in-paimon-9": "x", "bucket": "4", "scan.mode": "from-moon"}, strict=False)
    assert options.bucket == 4
    assert options.free("new.in-paimon-9") == "x"


def test_every_golden_table_opens() -> None:
    """Options by Java and pypaimon are all known, and go together."""
    for table in golden_tables():
        schema = TableSchema.from_json((table / "schema" / "schema-0").read_bytes())
        assert schema.table_options.texts_by_key() == schema.options
        TableOptions.parse(schema.options, primary_key=schema.primary_keys)


@pytest.mark.parametrize(
    ("version", "bucket", "file_format"), [(1, 1, "orc"), (2, -1, "orc"), (3, -1, "parquet"), (4, -1, "parquet")]
)
def test_what_a_missing_option_means_depends_on_the_schema_version(version: int, bucket: int, file_format: str) -> None:
    options = TableOptions.parse({}, schema_version=version)
    assert (options.bucket, options.file_format) == (bucket, file_format)


WRONG_VALUES = {
    "bucket": ["", "four", "1.5", "-3"],
    "write-only": ["yes", "1"],
    "merge-engine": ["upsert"],
    "target-file-size": ["12 potatoes", "mb", "-1 mb"],
    "log.retention": ["1 fortnight", ""],
    "metadata.stats-mode": ["truncate(0)", "truncate", "all"],
    "file.format.per.level": ["avro", "0:avro,parquet", "x:avro"],
    "sequence.field": ["a,,b", "a,a"],
    "compaction.small-file-ratio": ["1.5", "half"],
    "log.system.replication": ["0", "40000"],
    "max_bytes_for_level_base": ["0", "0 mb", "big"],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in WRONG_VALUES.items() for value in values])
def test_wrong_values_name_option_value_and_what_is_expected(key: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match=f"option={key} value={re.escape(repr(value))} expected="):
        TableOptions.parse({key: value}, primary_key=KEY)


TOGETHER: list[tuple[list[str], dict[str, str], str]] = [
    ([], {"log.consistency": "eventual"}, "needs a primary key"),
    (KEY, {"log.consistency": "eventual", "log.changelog-mode": "all"}, "needs upsert changes"),
    ([], {"log.changelog-mode": "upsert"}, "needs a primary key"),
    ([], {"merge-engine": "aggregation"}, "merge-engine needs a primary key"),
    ([], {"changelog-producer": "input"}, "changelog-producer needs a primary key"),
    ([], {"sequence.field": "a"}, "sequence.field needs a primary key"),
    (KEY, {"merge-engine": "first-row", "sequence.field": "a"}, "has no sequence.field"),
    (KEY, {"merge-engine": "first-row", "changelog-producer": "input"}, "none or lookup"),
    (
        KEY,
        {"merge-engine": "partial-update", "sequence.field": "a", "fields.b.sequence-group": "c"},
        "exclude each other",
    ),
    (KEY, {"fields.b.sequence-group": "c"}, "need merge-engine=partial-update"),
    (KEY, {"bucket": "-1", "bucket-key": "id"}, "choose no bucket"),
    (KEY, {"bucket": "0"}, "at least 1"),
    ([], {"bucket": "-2"}, "bucket=-2 fix='declare a primary key"),
    (KEY, {"bucket": "-2", "changelog-producer": "input"}, "bucket=-2 changelog-producer=input"),
    ([], {"bucket": "0"}, "at least 1"),
    (KEY, {"log.system": "kafka", "bucket": "1"}, "needs brokers"),
    ([], {"log.kafka.bootstrap.servers": "a:1", "bucket": "-1"}, "one partition for every bucket"),
    (
        KEY,
        {"log.kafka.bootstrap.servers": "a:1", "bucket": "2", "log.system.partitions": "3"},
        "partitions are buckets",
    ),
    (KEY, {"num-sorted-run.stop-trigger": "4"}, "before compaction starts"),
    (KEY, {"snapshot.num-retained.min": "5", "snapshot.num-retained.max": "4"}, "snapshots cannot be kept"),
    (KEY, {"commit.max-retry-wait": "1 ms"}, "longest wait"),
    (
        KEY,
        {"log.kafka.bootstrap.servers": "a:1", "log.changelog-mode": "all", "changelog-producer": "full-compaction"},
        r"go to the log with every batch, not with compactions: .* fix='use changelog-producer=lookup, or log.ch",
    ),
    (KEY, {"log.scan": "from-timestamp"}, "needs a time"),
    (KEY, {"log.scan": "latest", "log.scan.timestamp-mills": "1"}, "a time has no meaning here: log.scan=latest"),
    (KEY, {"log.scan": "full", "log.scan.timestamp-mills": "1"}, "a time has no meaning here: log.scan=full"),
    (KEY, {"manifest.compression": "snappy"}, "cannot read this"),
]


@pytest.mark.parametrize(("primary_key", "options", "says"), TOGETHER)
def test_options_that_make_no_sense_together_are_refused(
    primary_key: list[str], options: dict[str, str], says: str
) -> None:
    """FL-58, FL-128, FL-133, FL-189."""
    with pytest.raises(InvalidInputError, match=says):
        TableOptions.parse(options, primary_key=primary_key)
    TableOptions.parse(options, primary_key=primary_key, strict=False)  # an older writer's table can still read it


@pytest.mark.parametrize(
    ("mode", "producer", "is_exact", "takes_old_rows"),
    [
        ("all", "lookup", True, False),
        ("all", "input", False, True),
        ("all", "none", False, True),
        ("upsert", "lookup", False, False),
        ("auto", "lookup", False, False),
    ],
)
def test_the_producer_says_who_knows_the_old_rows(
    mode: str, producer: str, is_exact: bool, takes_old_rows: bool
) -> None:
    """FL-132, FL-134, FL-135: the input with -U, or the writer by looking them up."""
    options = parse(KEY, log_changelog__mode=mode, changelog__producer=producer, log_kafka_bootstrap_servers="a:1")
    assert (options.log_is_exact, options.log_takes_old_rows) == (is_exact, takes_old_rows)
    assert options.row_group_rows_at(5) == options.row_group_rows * (1 if is_exact else 8)


@pytest.mark.parametrize("primary_key", [KEY, []])
def test_a_log_is_in_json_unless_avro_is_asked_for(primary_key: list[str]) -> None:
    """FL-125, FL-126, Traps 11: keys follow the format of the values."""
    assert TableOptions.parse({}, primary_key=primary_key).log_format == "debezium-json"
    assert parse(primary_key, log_format="debezium-json", **AVRO_LOG).log_key_format == "json", "a catalog's registry"
    options = parse(primary_key, log_format="debezium-avro", **AVRO_LOG)
    assert (options.log_key_format, options.log_is_avro, options.log_deletes_have_key_only) == ("avro", True, False)


AVRO_LOG = {"log_kafka_bootstrap_servers": "a:1", "log_schema__registry_url": "http://a:1"}


@pytest.mark.parametrize(
    ("primary_key", "given", "fact"),
    [
        (KEY, {"log_format": "avro", "log_kafka_bootstrap_servers": "a:1"}, "needs a schema registry"),
        (KEY, {"log_format": "avro", "log_key_format": "json", **AVRO_LOG}, r"fix='remove log\.key\.format'"),
        (KEY, {"log_key_format": "avro", "log_kafka_bootstrap_servers": "a:1"}, r"fix='remove log\.key\.format'"),
        ([], {"log_format": "avro", **AVRO_LOG}, r"needs a primary key.*use log\.format=debezium-avro"),
        (
            [],
            {"log_format": "json", "log_kafka_bootstrap_servers": "a:1"},
            r"needs a primary key.*use log\.format=debezium-json",
        ),
        (KEY, {"log_format": "avro", "log_changelog__mode": "all", **AVRO_LOG}, "has no -U"),
        (KEY, {"log_format": "json", "log_changelog__mode": "all", "log_kafka_bootstrap_servers": "a:1"}, "has no -U"),
    ],
)
def test_options_of_a_log_in_avro_that_do_not_go_together(
    primary_key: list[str], given: dict[str, str], fact: str
) -> None:
    with pytest.raises(InvalidInputError, match=fact):
        parse(primary_key, **given)


def test_the_login_to_a_registry_is_never_shown() -> None:
    login = {
        "log_schema__registry_basic__auth_user__info": "me:hush",
        "log_schema__registry_bearer__auth_token": "hush",
    }
    assert "hush" not in repr(parse(KEY, log_format="avro", **AVRO_LOG, **login))


def test_stop_trigger_follows_the_trigger() -> None:
    assert parse(KEY, num__sorted__run_compaction__trigger="7").run_count_stop_trigger == 10
    assert (
        parse(KEY, num__sorted__run_compaction__trigger="9", num__sorted__run_stop__trigger="9").run_count_stop_trigger
        == 9
    )


def test_leveled_compaction_has_the_seeds_options() -> None:
    """FL-169."""
    options = parse(KEY, compaction_style="leveled")
    assert (options.level0_trigger, options.level_base_bytes, options.level_multiplier) == (4, 1024 * MIB, 5)
    for text in ("1 gb", "1g", str(1024 * MIB)):
        assert TableOptions.parse({"max_bytes_for_level_base": text}, primary_key=KEY).level_base_bytes == 1024 * MIB


def test_options_per_column_are_found_by_column() -> None:
    options = TableOptions.parse(
        {"fields.a.aggregate-function": "sum", "fields.b,c.sequence-group": "d,e", "fields.x.y.ignore-retract": "true",
         "merge-engine": "partial-update"},
        primary_key=KEY,
    )  # fmt: skip
    assert options.field_options("a").aggregate_function == "sum"
    assert options.field_options("x.y").ignore_retract
    assert options.columns_with_options() == {
        "fields.a.aggregate-function": ("a",),
        "fields.b,c.sequence-group": ("b", "c"),
        "fields.x.y.ignore-retract": ("x.y",),
    }


def test_every_option_is_reachable_and_documented() -> None:
    options = TableOptions.parse({})
    for key, option in TableOptions.declared.items():
        assert option.key == key
        assert option.doc.endswith(".") or option.doc.endswith(")")
        assert getattr(TableOptions, option.attribute) is option
        assert options[option] == (option.default if option.derive is None else option.derive(options))
    assert not set(ALIASES) & set(TableOptions.declared)
    assert not set(ELSEWHERE) & set(TableOptions.declared)
    assert set(ALIASES.values()) <= set(TableOptions.declared)


def test_options_cross_processes() -> None:
    options = TableOptions.parse({"bucket": "3"}, primary_key=KEY)
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("text", "size"),
    [("128 mb", 128 * MIB), ("1g", 1024 * MIB), ("500 b", 500), ("4096", 4096), ("2 KB", 2048), ("1 kibibytes", 1024)],
)
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("10 ms", 10),
        ("1h", 3_600_000),
        ("5 min", 300_000),
        ("7 d", 604_800_000),
        ("250", 250),
        ("2 seconds", 2000),
        ("999us", 0),
    ],
)
def test_durations_are_milliseconds(text: str, millis: int) -> None:
    assert duration_ms(text) == millis


@pytest.mark.sweep
@PROPERTY
@given(st.text(max_size=12))
def test_any_text_is_understood_or_refused(text: str) -> None:
    for key, option in TableOptions.declared.items():
        with suppress(InvalidInputError):
            option.read({key: text})


def test_options_of_writers_are_named_as_such() -> None:
    """Not "unknown": the error of an orphaned batch asks for it."""
    with pytest.raises(InvalidInputError, match=r"not a table's: option=log\.on-orphan-batch belongs_to='the writer"):
        check_option("log.on-orphan-batch", "adopt")
