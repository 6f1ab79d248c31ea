"""What holds for options besides their declarations: other names, free and per-column keys, owners, what cannot change.

Source: as ``option_keys``.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from filestore.options.option import boolean, names, stats_mode, text
from filestore.options.table_keys import COUNT

ALIASES: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "log.kafka.bootstrap.servers",
    "log.properties.bootstrap.servers": "log.kafka.bootstrap.servers",
    "kafka.topic": "log.kafka.topic",
    "scan.timestamp-millis": "log.scan.timestamp-mills",
    "log.scan.timestamp-millis": "log.scan.timestamp-mills",
    "scan.remove-normalize": "log.scan.remove-normalize",
    "on-data-loss": "log.on-offset-lost",
    "file.root-path": "file.path",
    "universal_sort_run_num_compaction_trigger": "num-sorted-run.compaction-trigger",
    "universal_max_size_amplification_percent": "compaction.max-size-amplification-percent",
    "universal_size_ratio": "compaction.size-ratio",
    "write.type-widening": "write.merge-schema.type-widening",
    "write.explicit-cast": "write.merge-schema.explicit-cast",
}

# fields.<column>.<suffix>: the rest of the key, and how its value is understood.
FIELD_SUFFIXES: Final[Mapping[str, Callable[[str], Any]]] = {
    "aggregate-function": text,
    "ignore-retract": boolean,
    "sequence-group": names,
    "distinct": boolean,
    "list-agg-delimiter": str,
    "nested-key": names,
    "count-limit": COUNT,
    "ts-field": text,
    "stats-mode": stats_mode,
}
# Keys of which everything behind the prefix is handed on.
FREE_PREFIXES: Final = ("log.kafka.", "file-index.", "computed-column.", "computed-column-comment.")

# Of options.md, but not of a table: said so instead of "unknown".
ELSEWHERE: Final[Mapping[str, str]] = {
    key: owner
    for owner, keys in {
        "the catalog": (
            "warehouse metastore uri catalog-key jdbc.user s3.endpoint s3.region s3.access-key s3.secret-key"
            " s3.session-token s3.path.style.access lock.enabled lock.type lock-acquire-timeout lock-check-max-sleep"
            " catalog-options-table.enabled cache-enabled cache.expire-after-write"
            " table-lineage data-lineage lineage-meta jdbc.driver jdbc.url jdbc.username jdbc.password jdbc.database"
        ),
        "the query": "txnAppId txnVersion pipeline.name",
        "the ingest job": (
            "value.format including_tables excluding_tables including_dbs excluding_dbs table_prefix table_suffix"
            " table_mapping type_mapping computed_column metadata_column metadata_column_prefix primary_keys"
            " partition_keys sync_primary_keys_from_source_schema ignore_incompatible eager_init"
            " ingest.dead-letter.table ingest.keep-deletes ingest.nested-as-variant"
        ),
    }.items()
    for key in keys.split()
}

# What cannot change once rows were written, because files already on disk depend on it.
IMMUTABLE_KEYS: Final = frozenset(
    {
        "aggregation.remove-record-on-delete",
        "bucket",
        "bucket-function.type",
        "bucket-key",
        "data-evolution.enabled",
        "data-file.path-directory",
        "force-lookup",
        "index-file-in-data-file-dir",
        "log.changelog-mode",
        "merge-engine",
        "partial-update.remove-record-on-delete",
        "partial-update.remove-record-on-sequence-group",
        "partition",
        "pk-clustering-override",
        "primary-key",
        "row-counts",
        "row-counts.index-key",
        "row-tracking.enabled",
        "rowkind.field",
        "sequence.snapshot-ordering",
        "type",
    }
)
