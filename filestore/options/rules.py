"""Rules for options besides their declarations: other names, free keys, keys of other owners."""

from collections.abc import Mapping
from typing import Final

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
    "first-row.ignore-delete": "ignore-delete",
    "deduplicate.ignore-delete": "ignore-delete",
    "partial-update.ignore-delete": "ignore-delete",
    "write.compaction-skip": "write-only",
    "changelog-producer.lookup-wait": "lookup-wait",
    "snapshot.expire.clean-empty-directories": "snapshot.clean-empty-directories",
    "write.type-widening": "write.merge-schema.type-widening",
    "write.explicit-cast": "write.merge-schema.explicit-cast",
}

# Keys of which everything behind the prefix is handed on; ``pipelines.``: what Spark's pipelines note of a table.
CHECK_PREFIX: Final = "check."
"""Of the CHECK constraints of a table: ``check.<name>`` is the condition."""
COMPUTED_PREFIX: Final = "computed-column."
"""Begins the keys of columns that SQL computes, whose values are ``name AS expression``."""
FREE_PREFIXES: Final = (
    "log.kafka.", "file-index.", COMPUTED_PREFIX, "computed-column-comment.", CHECK_PREFIX, "pipelines.",
)  # fmt: skip

# Of options.md, but not of a table: said so instead of "unknown".
ELSEWHERE: Final[Mapping[str, str]] = {
    key: owner
    for owner, keys in {
        "the catalog": (
            "warehouse metastore uri catalog-key jdbc.user s3.endpoint s3.region s3.access-key s3.secret-key"
            " s3.session-token s3.path.style.access"
            " gs.endpoint gs.credentials-file gs.service-account-key gs.token azure.account azure.endpoint"
            " azure.account-key azure.sas-token azure.tenant-id azure.client-id azure.client-secret"
            " lock.enabled lock.type lock-acquire-timeout lock-check-max-sleep"
            " hdfs.webhdfs-address hdfs.user"
            " catalog-options-table.enabled cache-enabled cache.expire-after-write"
            " table-lineage data-lineage lineage-meta jdbc.driver jdbc.url jdbc.username jdbc.password jdbc.database"
        ),
        "the query": "txnAppId txnVersion pipeline.name",
        "the writer: Table.write(options=…), sink(table, options)": "log.on-orphan-batch",
        "the ingest job": (
            "value.format including_tables excluding_tables including_dbs excluding_dbs table_prefix table_suffix"
            " table_mapping type_mapping computed_column metadata_column metadata_column_prefix primary_keys"
            " partition_keys sync_primary_keys_from_source_schema ignore_incompatible eager_init"
            " ingest.dead-letter.table ingest.keep-deletes ingest.nested-as-variant"
        ),
    }.items()
    for key in keys.split()
}
