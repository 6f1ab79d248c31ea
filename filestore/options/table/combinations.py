"""Options of a table that make no sense together."""

from collections.abc import Iterable
from typing import Any, Final

from filestore.options.option import Option
from filestore.options.table.groups import DYNAMIC_BUCKET, POSTPONE_BUCKET, TableValues
from filestore.options.table.iceberg import BUILT_STORAGE, DISABLED, REST_CATALOG, TABLE_LOCATION
from filestore.options.table.places import places_rules
from lsm.errors import InvalidInputError
from lsm.nearest_names import close_names

_SERVERS: Final = "bootstrap.servers"
_STARTS_WITHOUT_PLACE: Final = ("latest", "latest-full", "full", "compacted-full")


def check_together(options: TableValues) -> None:
    """Refuse combinations that make no sense. Raises: InvalidInputError."""
    for condition, message in (
        *_merge_rules(options),
        *_log_rules(options),
        *_limit_rules(options),
        *_scan_rules(options),
        *_iceberg_rules(options),
        *places_rules(options),
    ):
        if condition:
            raise InvalidInputError(message)


def _merge_rules(options: TableValues) -> Iterable[tuple[bool, str]]:
    engine, producer = options.merge_engine, options.changelog_producer
    ordered = f"sequence.field={','.join(options.sequence_fields)}"
    groups = [key for key in options.columns_with_options() if key.endswith(".sequence-group")]
    yield (
        not options.has_key and options.gives(TableValues.merge_engine),
        f"merge-engine needs a primary key: merge-engine={engine} fix='declare a primary key or remove the option'",
    )
    yield (
        not options.has_key and producer != "none",
        f"changelog-producer needs a primary key: changelog-producer={producer} fix='declare a primary key'",
    )
    yield (
        not options.has_key and bool(options.sequence_fields),
        f"sequence.field needs a primary key: {ordered} fix='declare a primary key'",
    )
    yield (
        engine == "first-row" and bool(options.sequence_fields),
        f"first-row keeps the first arrival and has no sequence.field: {ordered} fix='remove sequence.field'",
    )
    yield (
        engine == "first-row" and producer not in ("none", "lookup"),
        f"first-row allows changelog-producer none or lookup: changelog-producer={producer}",
    )
    yield (
        bool(groups) and bool(options.sequence_fields),
        f"sequence groups and sequence.field exclude each other: {ordered} groups={groups} fix='remove one'",
    )
    yield (
        bool(groups) and engine != "partial-update",
        f"sequence groups need merge-engine=partial-update: merge-engine={engine} groups={groups}",
    )
    yield (
        options.has_key
        and options.gives(TableValues.bucket)
        and options.bucket == DYNAMIC_BUCKET
        and options.bucket_key is not None,
        f"keys choose no bucket where buckets are dynamic: bucket=-1 bucket-key={options.bucket_key} "
        "fix='remove bucket-key, or set bucket to a number from 1'",
    )
    yield (
        options.bucket == 0,
        "bucket must be at least 1, or -1 or -2 to leave the buckets to the engine: bucket=0 "
        "fix='set bucket to 1 or more'",
    )
    yield (
        options.bucket == POSTPONE_BUCKET and not options.has_key,
        "only rows with a key wait for buckets: bucket=-2 fix='declare a primary key, or set bucket=-1'",
    )
    yield (
        options.bucket == POSTPONE_BUCKET and producer == "input",
        "rows that wait for buckets have no changelog as they come: bucket=-2 changelog-producer=input "
        "fix='set changelog-producer to none, lookup or full-compaction'",
    )


def _scan_rules(options: TableValues) -> Iterable[tuple[bool, str]]:
    """A start that names no place, and a place beside it: batch reads and streams would take one of them each."""
    places: tuple[Option[Any], ...] = (
        TableValues.scan_snapshot_id,
        TableValues.scan_tag_name,
        TableValues.scan_timestamp,
        TableValues.scan_watermark,
    )
    given = [f"{each.key}={options[each]}" for each in places if options[each] is not None]
    yield (
        bool(given) and options.scan_mode in _STARTS_WITHOUT_PLACE,
        f"an option has no meaning in this mode: scan.mode={options.scan_mode} {' '.join(given)} fix='remove one'",
    )


def _iceberg_rules(options: TableValues) -> Iterable[tuple[bool, str]]:
    is_on = options.iceberg_storage != DISABLED
    version, is_wide = options.iceberg_format_version, options.deletion_vectors_bitmap64
    yield (
        options.iceberg_storage not in BUILT_STORAGE,
        f"no Hive metastore hears of new Iceberg metadata: metadata.iceberg.storage={options.iceberg_storage} "
        f"expected='{' | '.join(BUILT_STORAGE)}' fix='set metadata.iceberg.storage={TABLE_LOCATION}'",
    )
    yield (
        options.iceberg_storage == REST_CATALOG and not options.iceberg_rest_uri,
        f"a REST catalog has an address: metadata.iceberg.storage={REST_CATALOG} "
        "fix='set metadata.iceberg.rest.uri, such as http://catalog:8181'",
    )
    yield (
        is_on and options.file_format != "parquet",
        f"Iceberg readers find columns by ids, which only Parquet files have: file.format={options.file_format} "
        f"metadata.iceberg.storage={options.iceberg_storage} fix='set file.format=parquet'",
    )
    yield (
        is_on and options.deletion_vectors_enabled and not options.has_key and not (version == "3" and is_wide),
        "rows are deleted by vectors that Iceberg readers would not see: "
        f"metadata.iceberg.format-version={version} deletion-vectors.bitmap64={str(is_wide).lower()} "
        "fix='set metadata.iceberg.format-version=3 and deletion-vectors.bitmap64=true'",
    )


def _misspelt_servers(options: TableValues) -> str | None:
    """What looks like the brokers' option where there is none: the table would silently have no log."""
    if options.log_kafka.get(_SERVERS):
        return None
    near = close_names(_SERVERS, [key.replace("_", ".").lower() for key in options.log_kafka], likeness=0.75)
    return next((key for key in options.log_kafka if near and key.replace("_", ".").lower() == near[0]), None)


def _log_rules(options: TableValues) -> Iterable[tuple[bool, str]]:
    misspelt = _misspelt_servers(options)
    yield (misspelt is not None, f"unknown option: option=log.kafka.{misspelt} did_you_mean=log.kafka.{_SERVERS}")
    mode = options.log_changelog_mode
    given_mode = mode if options.gives(TableValues.log_changelog_mode) else "auto"
    producer = options.changelog_producer
    yield (
        options.log_system == "kafka" and not options.log_kafka.get("bootstrap.servers"),
        "log.system=kafka needs brokers: fix='set log.kafka.bootstrap.servers'",
    )
    yield (
        options.log_system == "kafka" and options.bucket < 1 and options.gives(TableValues.bucket),
        f"a log has one partition for every bucket: bucket={options.bucket} reason='their number is fixed, and these "
        "buckets are made as rows come' fix='set bucket to 1 or more, or log.system=none for a table without a log'",
    )
    yield (
        options.log_system == "kafka" and options.log_system_partitions not in (None, options.bucket),
        f"log partitions are buckets: log.system.partitions={options.log_system_partitions} "
        f"bucket={options.bucket} fix='remove log.system.partitions'",
    )
    has_log, format = options.log_system == "kafka", options.log_format
    yield (
        has_log and options.log_is_avro and options.log_registry_url is None,
        f"log.format={format} needs a schema registry: fix='set log.schema-registry.url'",
    )
    yield (
        has_log and (options.log_key_format == "avro") != options.log_is_avro,
        f"keys and values of a log have one format: log.key.format={options.log_key_format} log.format={format} "
        "fix='remove log.key.format'",
    )
    yield (
        has_log and options.log_deletes_have_key_only and not options.has_key,
        f"log.format={format} needs a primary key, as its deletes are known by their keys: "
        f"fix='use log.format=debezium-{format}'",
    )
    yield (
        has_log and format == "avro" and mode == "all",
        "log.format=avro has no -U: log.changelog-mode=all fix='use log.format=debezium-avro'",
    )
    yield (
        has_log and format == "json" and mode == "all" and options.has_key,
        "log.format=json has no -U: log.changelog-mode=all fix='use log.format=debezium-json'",
    )
    yield (
        options.log_consistency == "eventual" and not options.has_key,
        "log.consistency=eventual needs a primary key, by which readers drop repeated rows: "
        "fix='declare a primary key or use transactional'",
    )
    yield (
        options.log_consistency == "eventual" and options.has_key and mode != "upsert",
        f"log.consistency=eventual needs upsert changes: log.changelog-mode={given_mode} "
        "fix='use log.changelog-mode=upsert or log.consistency=transactional'",
    )
    yield (
        has_log and options.log_consistency == "eventual" and options.merge_engine != "deduplicate",
        "log.consistency=eventual needs records that replace those before them, as what a dead writer left is followed "
        f"by the table's rows: merge-engine={options.merge_engine} fix='use log.consistency=transactional'",
    )
    yield (
        options.log_system == "kafka" and mode == "all" and producer == "full-compaction",
        f"changes go to the log with every batch, not with compactions: log.changelog-mode=all "
        f"changelog-producer={producer} fix='use changelog-producer=lookup, or log.changelog-mode=upsert'",
    )
    yield (
        mode == "upsert" and not options.has_key,
        "log.changelog-mode=upsert needs a primary key: fix='declare a primary key or use all'",
    )
    reason = _no_changes_of_overwrites(options) if options.log_overwrite == "changes" else None
    yield (reason is not None, f"the log cannot get what overwrites change: log.overwrite=changes {reason}")


def _no_changes_of_overwrites(options: TableValues) -> str | None:
    """Why a log has not the table's rows, so that no difference of two states belongs into it; None: it has them."""
    if options.log_consistency == "eventual":
        return (
            "log.consistency=eventual reason='streams read it before snapshots say what to skip' "
            "fix='use log.consistency=transactional'"
        )
    engine = options.merge_engine
    if options.has_key and not (options.log_is_exact or options.row_counts):
        orders = options.sequence_fields or options.ignore_delete
        if engine != "deduplicate" or orders:
            given = f"merge-engine={engine}" if engine != "deduplicate" else "sequence.field or ignore-delete"
            return (
                f"{given} reason='its log has rows as written, which the table merges: the newest record of a key is "
                "not the row of the table' fix='use log.changelog-mode=all with changelog-producer=lookup'"
            )
    return None


def _limit_rules(options: TableValues) -> Iterable[tuple[bool, str]]:
    stop, trigger = options.run_count_stop_trigger, options.run_count_trigger
    least, most = options.snapshot_num_retained_min, options.snapshot_num_retained_max
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
        options.commit_max_retry_wait_ms < options.commit_min_retry_wait_ms,
        f"longest wait is below the first: commit.max-retry-wait={options.commit_max_retry_wait_ms} ms "
        f"commit.min-retry-wait={options.commit_min_retry_wait_ms} ms",
    )
    yield (
        options.log_scan == "from-timestamp" and options.log_scan_timestamp_ms is None,
        "log.scan=from-timestamp needs a time: fix='set log.scan.timestamp-mills'",
    )
    yield (
        options.log_scan in ("full", "latest") and options.log_scan_timestamp_ms is not None,
        f"a time has no meaning here: log.scan={options.log_scan} "
        f"log.scan.timestamp-mills={options.log_scan_timestamp_ms} fix='set log.scan=from-timestamp, or leave the "
        "time out; ALTER TABLE ... RESET takes it from a table'",
    )
    yield (
        options.manifest_compression == "snappy",
        "Paimon in Java cannot read this: manifest.compression=snappy fix='use zstd, deflate or none'",
    )
