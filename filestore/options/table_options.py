"""The options of a table, parsed once: past this module there are no option texts and no second defaults.

Sizes are in bytes, durations in milliseconds. ``parse`` in its strict form is for tables that are being created or
altered; opening a table that somebody else made uses ``strict=False``, which only insists on what reading and writing
depend on.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from filestore.options.option import Option
from filestore.options.rules import ALIASES, ELSEWHERE, FIELD_SUFFIXES, FREE_PREFIXES
from filestore.options.table_keys import MIB, OPTIONS
from lsm.errors import InvalidInputError

SESSION_PREFIX: Final = "table-storage."
SCHEMA_VERSION: Final = 3
# Small enough that a section of the merge holds few of them, large enough for the encodings.
ROW_GROUP_ROWS: Final = 32_768
_COMPACTED_GROUPS: Final = 8  # of level 0 in one of a compacted file: merges of many runs want small ones, scans large
DYNAMIC_BUCKET: Final = -1
POSTPONE_BUCKET: Final = -2

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """What is in force for a table. ``raw`` holds the texts under their canonical keys."""

    # shape
    bucket: int  # -1: unbucketed append table, or dynamic buckets of a key table; -2: postponed
    bucket_function: str
    partition_default_name: str
    partition_legacy_name: bool
    change_tracking: bool
    # merging
    merge_engine: str
    sequence_fields: tuple[str, ...]
    sequence_descending: bool
    rowkind_field: str | None
    ignore_delete: bool
    ignore_update_before: bool
    changelog_producer: str
    deletion_vectors_enabled: bool
    # files
    file_format: str
    file_format_per_level: Mapping[int, str]
    compression: str
    compression_per_level: Mapping[int, str]
    zstd_level: int
    target_file_size_bytes: int
    row_group_rows: int
    stats_mode: str
    data_file_prefix: str
    changelog_file_prefix: str
    data_file_directory: str | None
    # writing and compaction
    write_buffer_bytes: int
    write_only: bool
    compaction_style: str
    run_count_trigger: int
    run_count_stop_trigger: int
    level_count: int | None
    max_size_amplification_percent: int
    size_ratio_percent: int
    level0_trigger: int
    level_base_bytes: int
    level_multiplier: int
    # manifests and commits
    manifest_target_bytes: int
    manifest_merge_min_count: int
    manifest_full_threshold_bytes: int
    manifest_compression: str
    commit_max_retries: int
    commit_min_retry_wait_ms: int
    commit_max_retry_wait_ms: int
    # log
    log_system: str  # 'none' | 'kafka'
    log_format: Literal["debezium-json", "json"]
    log_key_format: str
    log_consistency: str  # 'transactional' | 'eventual'
    log_changelog_mode: str  # 'upsert' | 'all'; auto is resolved
    log_retention_ms: int | None
    log_topic: str | None
    log_replication: int
    # Client properties: the keys behind log.kafka. but the topic. They and raw hold passwords: never shown.
    log_kafka: Mapping[str, str] = field(repr=False)
    raw: Mapping[str, str] = field(repr=False)

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        *,
        strict: bool = True,
        primary_key: Sequence[str] = (),
        schema_version: int = SCHEMA_VERSION,
    ) -> "TableOptions":
        """Understand the options of a table.

        Args:
            options: texts as the user or a schema file gives them; session prefix and old spellings are fine.
            strict: refuse unknown keys, values that no one uses, and combinations that make no sense.
            primary_key: the key columns of the table; defaults and checks depend on there being any.
            schema_version: of the schema file; before 3 missing keys meant something else.

        Raises:
            InvalidInputError: names the option, its value and the fix.
        """
        raw = canonical_options(options)
        if strict:
            for key, text in raw.items():
                check_option(key, text)
        parsed = cls(**_values(raw, primary_key=bool(primary_key), schema_version=schema_version))
        if strict:
            parsed.check_together(has_key=bool(primary_key))
        return parsed

    def get(self, option: Option[T]) -> T:
        """The value of an option without an attribute. Raises: InvalidInputError when its text is not valid."""
        return option.read(self.raw)

    def value(self, key: str) -> Any:
        """The value in force of any declared key: parsed, or its default."""
        return OPTIONS[key].read(self.raw)

    def field_options(self, column: str) -> Mapping[str, str]:
        """The ``fields.<column>.*`` texts of a column, or of comma-separated columns, by the rest of their key."""
        prefix = f"fields.{column}."
        return {key.removeprefix(prefix): text for key, text in self.raw.items() if key.startswith(prefix)}

    def columns_with_options(self) -> Mapping[str, tuple[str, ...]]:
        """Columns that ``fields.*`` keys name, by key."""
        return {key: split[0] for key in self.raw if (split := _split_field_key(key)) is not None}

    @property
    def log_is_exact(self) -> bool:
        """Whether the log of a key table gets what the table makes of the rows, looked up by the writer."""
        return self.log_changelog_mode == "all" and self.changelog_producer == "lookup"

    @property
    def log_takes_old_rows(self) -> bool:
        """Whether who writes an update must also say what was before."""
        return self.log_changelog_mode == "all" and not self.log_is_exact

    def row_group_rows_at(self, level: int) -> int:
        """Rows of a row group in a new file of a level."""
        is_small = level == 0 or self.log_is_exact  # rows are looked up there with every batch, often few of them
        return self.row_group_rows if is_small else self.row_group_rows * _COMPACTED_GROUPS

    def check_together(self, *, has_key: bool) -> None:
        """Refuse combinations that make no sense. Raises: InvalidInputError."""
        for condition, message in (*self._merge_rules(has_key), *self._log_rules(has_key), *self._limit_rules()):
            if condition:
                raise InvalidInputError(message)

    def _merge_rules(self, has_key: bool) -> Iterable[tuple[bool, str]]:
        engine, producer = self.merge_engine, self.changelog_producer
        ordered = f"sequence.field={','.join(self.sequence_fields)}"
        groups = [key for key in self.raw if key.endswith(".sequence-group")]
        yield (
            not has_key and "merge-engine" in self.raw,
            f"merge-engine needs a primary key: merge-engine={engine} fix='declare a primary key or remove the option'",
        )
        yield (
            not has_key and producer != "none",
            f"changelog-producer needs a primary key: changelog-producer={producer} fix='declare a primary key'",
        )
        yield (
            not has_key and bool(self.sequence_fields),
            f"sequence.field needs a primary key: {ordered} fix='declare a primary key'",
        )
        yield (
            engine == "first-row" and bool(self.sequence_fields),
            f"first-row keeps the first arrival and has no sequence.field: {ordered} fix='remove sequence.field'",
        )
        yield (
            engine == "first-row" and producer not in ("none", "lookup"),
            f"first-row allows changelog-producer none or lookup: changelog-producer={producer}",
        )
        yield (
            bool(groups) and bool(self.sequence_fields),
            f"sequence groups and sequence.field exclude each other: {ordered} groups={groups} fix='remove one'",
        )
        yield (
            bool(groups) and engine != "partial-update",
            f"sequence groups need merge-engine=partial-update: merge-engine={engine} groups={groups}",
        )
        yield (
            has_key and self.raw.get("bucket") == str(DYNAMIC_BUCKET) and "bucket-key" in self.raw,
            f"keys choose no bucket where buckets are dynamic: bucket=-1 bucket-key={self.raw.get('bucket-key')} "
            "fix='remove bucket-key, or set bucket to a number from 1'",
        )
        yield (
            self.bucket == 0,
            "bucket must be at least 1, or -1 or -2 to leave the buckets to us: bucket=0 fix='set bucket to 1 or more'",
        )
        yield (
            self.bucket == POSTPONE_BUCKET and not has_key,
            "only rows with a key wait for buckets: bucket=-2 fix='declare a primary key, or set bucket=-1'",
        )
        yield (
            self.bucket == POSTPONE_BUCKET and producer == "input",
            "rows that wait for buckets are not told as they come: bucket=-2 changelog-producer=input "
            "fix='set changelog-producer to none, lookup or full-compaction'",
        )

    def _log_rules(self, has_key: bool) -> Iterable[tuple[bool, str]]:
        mode, raw_mode = self.log_changelog_mode, self.raw.get("log.changelog-mode", "auto")
        producer = self.changelog_producer
        yield (
            self.log_system == "kafka" and not self.log_kafka.get("bootstrap.servers"),
            "log.system=kafka needs brokers: fix='set log.kafka.bootstrap.servers'",
        )
        yield (
            self.log_system == "kafka" and self.bucket < 1 and "bucket" in self.raw,
            f"a log has one partition for every bucket: bucket={self.bucket} fix='set bucket to 1 or more'",
        )
        yield (
            self.log_system == "kafka" and self.raw.get("log.system.partitions", str(self.bucket)) != str(self.bucket),
            f"log partitions are buckets: log.system.partitions={self.raw.get('log.system.partitions')} "
            f"bucket={self.bucket} fix='remove log.system.partitions'",
        )
        yield (
            self.log_consistency == "eventual" and not has_key,
            "log.consistency=eventual needs a primary key, by which readers drop repeated rows: "
            "fix='declare a primary key or use transactional'",
        )
        yield (
            self.log_consistency == "eventual" and has_key and mode != "upsert",
            f"log.consistency=eventual needs upsert changes: log.changelog-mode={raw_mode} "
            "fix='use log.changelog-mode=upsert or log.consistency=transactional'",
        )
        yield (
            self.log_system == "kafka" and mode == "all" and producer == "full-compaction",
            f"changes in the log are told with every batch, not by compactions: log.changelog-mode=all "
            f"changelog-producer={producer} fix='use changelog-producer=lookup, or log.changelog-mode=upsert'",
        )
        yield (
            mode == "upsert" and not has_key,
            "log.changelog-mode=upsert needs a primary key: fix='declare a primary key or use all'",
        )

    def _limit_rules(self) -> Iterable[tuple[bool, str]]:
        stop, trigger = self.run_count_stop_trigger, self.run_count_trigger
        least, most = self.value("snapshot.num-retained.min"), self.value("snapshot.num-retained.max")
        yield (
            stop < trigger,
            "writing would stop before compaction starts: "
            f"num-sorted-run.stop-trigger={stop} num-sorted-run.compaction-trigger={trigger} "
            "fix='set stop-trigger to the trigger or more'",
        )
        yield (
            most < least,
            "snapshots cannot be kept: "
            f"snapshot.num-retained.max={most} snapshot.num-retained.min={least} fix='set max to min or more'",
        )
        yield (
            self.commit_max_retry_wait_ms < self.commit_min_retry_wait_ms,
            f"longest wait is below the first: commit.max-retry-wait={self.commit_max_retry_wait_ms} ms "
            f"commit.min-retry-wait={self.commit_min_retry_wait_ms} ms",
        )
        yield (
            self.raw.get("log.scan") == "from-timestamp" and self.value("log.scan.timestamp-mills") is None,
            "log.scan=from-timestamp needs a time: fix='set log.scan.timestamp-mills'",
        )
        yield (
            self.manifest_compression == "snappy",
            "Paimon in Java cannot read this: manifest.compression=snappy fix='use zstd, deflate or none'",
        )


def canonical_options(options: Mapping[str, str]) -> dict[str, str]:
    """Session prefix stripped, old spellings replaced by today's, values as text.

    Raises: InvalidInputError when two spellings of one option say different things.
    """
    canonical: dict[str, str] = {}
    for given, value in options.items():
        key = given.removeprefix(SESSION_PREFIX)
        key = ALIASES.get(key, key)
        text = value if isinstance(value, str) else _text_of(value)
        if key == "log.scan.startup.mode":
            key, text = "log.scan", {"initial": "full", "latest-offset": "latest"}.get(text, text)
        if canonical.setdefault(key, text) != text:
            raise InvalidInputError(f"option is given twice: option={key} values={[canonical[key], text]}")
    return canonical


def _text_of(value: object) -> str:
    # Schema files by careless writers hold numbers and booleans.
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(raw: Mapping[str, str], *, primary_key: bool, schema_version: int) -> dict[str, Any]:
    def read(key: str) -> Any:
        return OPTIONS[key].read(raw)

    kafka = {key.removeprefix("log.kafka."): text for key, text in raw.items() if key.startswith("log.kafka.")}
    topic = kafka.pop("topic", None)
    mode, trigger = read("log.changelog-mode"), read("num-sorted-run.compaction-trigger")
    values: dict[str, Any] = {attribute: read(key) for attribute, key in _KEY_OF_ATTRIBUTE.items()}
    values |= {
        "raw": raw,
        "bucket": 1 if "bucket" not in raw and schema_version <= 1 else read("bucket"),
        "file_format": "orc" if "file.format" not in raw and schema_version < SCHEMA_VERSION else read("file.format"),
        "sequence_descending": read("sequence.field.sort-order") == "descending",
        "target_file_size_bytes": read("target-file-size") or (128 if primary_key else 256) * MIB,
        "row_group_rows": ROW_GROUP_ROWS,
        "run_count_stop_trigger": read("num-sorted-run.stop-trigger") or trigger + 3,
        "log_system": read("log.system") or ("kafka" if kafka.get("bootstrap.servers") else "none"),
        "log_changelog_mode": ("upsert" if primary_key else "all") if mode == "auto" else mode,
        "log_topic": topic,
        "log_kafka": kafka,
    }
    return values


_KEY_OF_ATTRIBUTE: Final[Mapping[str, str]] = {
    "bucket_function": "bucket-function.type",
    "partition_default_name": "partition.default-name",
    "partition_legacy_name": "partition.legacy-name",
    "change_tracking": "change-tracking",
    "merge_engine": "merge-engine",
    "sequence_fields": "sequence.field",
    "rowkind_field": "rowkind.field",
    "ignore_delete": "ignore-delete",
    "ignore_update_before": "ignore-update-before",
    "changelog_producer": "changelog-producer",
    "deletion_vectors_enabled": "deletion-vectors.enabled",
    "file_format_per_level": "file.format.per.level",
    "compression": "file.compression",
    "compression_per_level": "file.compression.per.level",
    "zstd_level": "file.compression.zstd-level",
    "stats_mode": "metadata.stats-mode",
    "data_file_prefix": "data-file.prefix",
    "changelog_file_prefix": "changelog-file.prefix",
    "data_file_directory": "data-file.path-directory",
    "write_buffer_bytes": "write-buffer-size",
    "write_only": "write-only",
    "compaction_style": "compaction.style",
    "run_count_trigger": "num-sorted-run.compaction-trigger",
    "level_count": "num-levels",
    "max_size_amplification_percent": "compaction.max-size-amplification-percent",
    "size_ratio_percent": "compaction.size-ratio",
    "level0_trigger": "level0_file_num_compaction_trigger",
    "level_base_bytes": "max_bytes_for_level_base",
    "level_multiplier": "max_bytes_for_level_multiplier",
    "manifest_target_bytes": "manifest.target-file-size",
    "manifest_merge_min_count": "manifest.merge-min-count",
    "manifest_full_threshold_bytes": "manifest.full-compaction-threshold-size",
    "manifest_compression": "manifest.compression",
    "commit_max_retries": "commit.max-retries",
    "commit_min_retry_wait_ms": "commit.min-retry-wait",
    "commit_max_retry_wait_ms": "commit.max-retry-wait",
    "log_format": "log.format",
    "log_key_format": "log.key.format",
    "log_consistency": "log.consistency",
    "log_retention_ms": "log.retention",
    "log_replication": "log.system.replication",
}


def _split_field_key(key: str) -> tuple[tuple[str, ...], str] | None:
    """Columns and suffix of ``fields.<columns>.<suffix>``; a column name may itself hold dots."""
    if not key.startswith("fields.") or key in OPTIONS:
        return None
    for suffix in FIELD_SUFFIXES:
        if key.endswith(f".{suffix}") and len(key) > len(f"fields..{suffix}"):
            columns = key.removeprefix("fields.").removesuffix(f".{suffix}")
            return tuple(column.strip() for column in columns.split(",")), suffix
    return None


def check_option(key: str, text: str) -> None:
    """Refuse what is no option of a table, or no value of one. Raises: InvalidInputError with similar keys."""
    if key in OPTIONS:
        OPTIONS[key].read({key: text})
        return
    if key.startswith(FREE_PREFIXES) and key not in FREE_PREFIXES:
        return
    split = _split_field_key(key)
    if split is not None:
        Option(key=key, parse=FIELD_SUFFIXES[split[1]], default=None, doc="").read({key: text})
        return
    if key in ELSEWHERE:
        raise InvalidInputError(f"option is not a table's: option={key} belongs_to='{ELSEWHERE[key]}'")
    raise InvalidInputError(f"unknown option: option={key} did_you_mean={_near(key)}")


def _near(key: str) -> list[str]:
    if key.startswith("fields."):
        column = key.removeprefix("fields.").split(".")[0]
        return difflib.get_close_matches(key, [f"fields.{column}.{suffix}" for suffix in FIELD_SUFFIXES], n=3)
    return difflib.get_close_matches(key, [*OPTIONS, *ALIASES], n=3, cutoff=0.6)
