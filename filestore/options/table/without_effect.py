"""Options of Paimon that Fluvial does not declare: why a table of others is read and written alike without them.

Those that would make a difference are in ``not_built``, with the readers and writers to which they close a table.
Source: Paimon 2.0.0 CoreOptions.
"""

from collections.abc import Mapping
from typing import Final

_GROUPS: Final[Mapping[str, str]] = {
    "it is about the threads, memory and caches of another engine": (
        "async-file-write cache-page-size page-size cross-partition-upsert.bootstrap-parallelism"
        " cross-partition-upsert.index-ttl dynamic-bucket.assigner-parallelism file-operation.thread-num"
        " file-reader-async-threshold local-kv-db.block-size local-sort.max-num-file-handles"
        " lookup.cache-file-retention lookup.cache-max-disk-size lookup.cache-max-memory-size"
        " lookup.cache-rows lookup.cache-spill-compression"
        " lookup.cache.bloom.filter.enabled lookup.cache.bloom.filter.fpp lookup.cache.high-priority-pool-ratio"
        " lookup.continuous.discovery-interval lookup.hash-load-factor lookup.merge-buffer-size"
        " lookup.merge-records-threshold read.batch-size scan.manifest.parallelism scan.max-splits-per-task"
        " scan.plan-sort-partition sort-engine spill-compression spill-compression.zstd-level write-buffer-for-append"
        " write-max-writers-to-spill write.batch-memory write.batch-size"
    ),
    "it is about which files are compacted when, and what another engine keeps beside them": (
        "compaction.file-num-limit compaction.skip-expired-partitions lookup-compact lookup-compact.max-interval"
        " lookup.remote-file.enabled lookup.remote-file.level-threshold"
    ),
    "it is about the sizes and the order of entries in metadata files, which any reader takes": (
        "deletion-vector.index-file.target-size manifest-sort.enabled manifest-sort.max-rewrite-size"
        " manifest-sort.partition-field manifest.delete-file-drop-stats metadata.stats-dense-store"
        " metadata.stats-keep-first-n-columns parquet.enable.dictionary"
    ),
    "files are put in order by CALL sys.compact and fluvial cluster": (
        "clustering.columns clustering.history-partition.idle-to-full-sort clustering.history-partition.limit"
        " clustering.incremental clustering.incremental.mode clustering.incremental.optimize-write clustering.strategy"
        " sort-compaction.local-sample.magnification sort-compaction.range-strategy zorder.var-length-contribution"
    ),
    "a VARIANT is read however it is shredded": (
        "variant.inferShreddingSchema variant.shredding.adaptive.maxInferBufferRow"
        " variant.shredding.adaptive.retentionRatio variant.shredding.inferenceMode"
        " variant.shredding.maxInferBufferRow variant.shredding.maxSchemaDepth variant.shredding.maxSchemaWidth"
        " variant.shredding.minFieldCardinalityRatio variant.shreddingSchema"
    ),
    "maps are written as maps, which all readers take: each file says how it stores them": (
        "fields.#.map.storage-layout fields.#.map.shared-shredding.max-columns"
        " fields.#.map.shared-shredding.column-placement-policy"
    ),
    "it is about columns of type BLOB, and a table that has one is refused": (
        "blob-as-descriptor blob-compaction.enabled blob-descriptor-field blob-field blob-view-field"
        " blob-view.resolve.enabled blob-write-null-on-fetch-failure blob-write-null-on-missing-file"
        " blob.copy-buffer-size blob.split-by-file-size blob.target-file-size lookup.blob-as-descriptor"
    ),
    "it is about columns of type VECTOR, and a table that has one is refused": (
        "vector-field vector-index.search-mode vector-search.distribute.enabled vector-search.lateral-join.batch-size"
        " vector.file.format vector.target-file-size"
    ),
    "it is about chain tables, which chain-table.enabled closes": (
        "chain-table.chain-partition-keys chain-table.split.key-range-enabled chain-table.streaming.merge-snapshot"
    ),
    "it is about writing tables with data-evolution.enabled, or about which partition is first to get row ids": (
        "data-evolution.compaction.rewrite-row-ids data-evolution.merge-into.file-pruning"
        " data-evolution.merge-into.source-persist data-evolution.reassign.skip-contiguous-row-count"
        " data-evolution.row-id-conflict-rewrite.max-size data-evolution.row-sidecar.enabled"
        " data-evolution.row-sidecar.max-selected-rows data-evolution.row-sidecar.max-selection-ratio"
        " row-tracking.partition-group-on-commit"
    ),
    "reads use no index of whole tables, which only changes how fast they are": (
        "full-text-index.search-mode global-index.build.max-parallelism global-index.build.max-shard"
        " global-index.column-update-action global-index.enabled global-index.external-path"
        " global-index.row-count-per-shard global-index.search-mode global-index.thread-num scalar-index.search-mode"
    ),
    "it is about tables of another type, which are refused": (
        "format-table.commit-hive-sync-url format-table.file.compression format-table.implementation"
        " format-table.partition-path-only-value format-table.scan.list-parallelism"
    ),
    "it is about who fills a materialized table, and when": (
        "materialized-table.definition-query materialized-table.interval-freshness"
        " materialized-table.interval-freshness.time-unit materialized-table.logical-refresh-mode"
        " materialized-table.refresh-handler-bytes materialized-table.refresh-handler-description"
        " materialized-table.refresh-mode materialized-table.refresh-status"
    ),
    "it is about what another engine calls, reports or waits for after a commit": (
        "commit.callback.#.param tag.callback.#.param metastore.tag-to-partition metastore.tag-to-partition.preview"
        " partition.idle-time-to-report-statistic partition.mark-done-action.custom.class"
        " partition.mark-done-action.http.params partition.mark-done-action.http.url partition.end-input-to-done"
        " visibility-callback.check-interval visibility-callback.enabled visibility-callback.timeout"
    ),
    "a batch is committed once, whatever its files are called": "commit.discard-duplicate-files",
    "deletion vectors are chosen when a table is made": "deletion-vectors.modifiable",
    "partitions expire by partition.expiration-check-interval, and up to partition.expiration-max-num": (
        "end-input.check-partition-expire partition.expiration-batch-size"
    ),
    "rows are spread by their buckets": "partition.sink-strategy",
    "rows that are written wait for CALL sys.compact, which chooses the buckets": (
        "postpone.batch-write-fixed-bucket postpone.batch-write-fixed-bucket.max-parallelism"
        " postpone.target-row-num-per-bucket postpone.target-size-per-bucket"
    ),
    "a branch that cannot be read fails the read": "scan.fallback-branch.read-fail-fast",
    "it is about columns of system tables": ("key-value.sequence_number.enabled table-read.sequence-number.enabled"),
    "ALTER TABLE says where a new column is": "add-column-before-partition",
    "automatic tags by watermark have periods in UTC": "sink.watermark-time-zone",
    "a stream that is idle makes no snapshot": "snapshot.watermark-idle-timeout",
}

WITHOUT_EFFECT: Final[Mapping[str, str]] = {key: why for why, keys in _GROUPS.items() for key in keys.split()}
"""By key: why it has no effect here. ``#`` stands for the name of a class or of columns."""
