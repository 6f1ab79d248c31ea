"""Options that are known and not built, here or in Paimon: what holds instead, and who refuses a table that has one.

A table that is made or altered here cannot have them. A table of another engine that has one is closed to those readers
and writers that would get other rows than there; to others it is open, and the doctor names the option.
Source: Paimon 2.0.0 CoreOptions.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from filestore.options.option import At
from filestore.options.rules import FREE_PREFIXES
from filestore.options.table.groups import TableValues, split_field_key
from lsm.errors import InvalidInputError
from lsm.secret_names import shown_text

# ---- Options of Paimon that Fluvial does not declare: why a table of others is read and written alike without them
#
# Those that would make a difference are in ``not_built``, with the readers and writers to which they close a table.
# Source: CoreOptions of Paimon 1.4.2 and 2.0.0 for Java, with their older names, and of pypaimon 2.1.0.


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
        " write-max-writers-to-spill write.batch-memory write.batch-size orc.write.batch-size delete-file.thread-num"
        " commit.native.enabled local-cache.block-size local-cache.dir local-cache.enabled local-cache.max-size"
        " local-cache.whitelist read.native.enabled read.parallelism scan.native-plan.enabled write.native.enabled"
    ),
    "it is about which files are compacted when, and what another engine keeps beside them": (
        "compaction.file-num-limit compaction.skip-expired-partitions lookup-compact lookup-compact.max-interval"
        " lookup.remote-file.enabled lookup.remote-file.level-threshold"
    ),
    "it is about the sizes and the order of entries in metadata files, which any reader takes": (
        "deletion-vector.index-file.target-size manifest-sort.enabled manifest-sort.max-rewrite-size"
        " manifest-sort.partition-field manifest.delete-file-drop-stats metadata.stats-dense-store"
        " metadata.stats-keep-first-n-columns parquet.enable.dictionary manifest.sidecar.enabled"
        " parquet.filter.columnindex.enabled parquet.write-page-index.enabled"
    ),
    "files are put in order by CALL sys.compact and fluvial cluster": (
        "clustering.columns clustering.history-partition.idle-to-full-sort clustering.history-partition.limit"
        " clustering.incremental clustering.incremental.mode clustering.incremental.optimize-write clustering.strategy"
        " sink.clustering.by-columns sink.clustering.strategy sort-compaction.local-sample.magnification"
        " sort-compaction.range-strategy zorder.var-length-contribution"
    ),
    "a VARIANT is read however it is shredded": (
        "variant.inferShreddingSchema variant.shredding.adaptive.maxInferBufferRow"
        " variant.shredding.adaptive.retentionRatio variant.shredding.inferenceMode"
        " variant.shredding.maxInferBufferRow variant.shredding.maxSchemaDepth variant.shredding.maxSchemaWidth"
        " variant.shredding.minFieldCardinalityRatio variant.shreddingSchema parquet.variant.shreddingSchema"
    ),
    "maps are written as maps, which all readers take: each file says how it stores them": (
        "fields.#.map.storage-layout fields.#.map.shared-shredding.max-columns"
        " fields.#.map.shared-shredding.column-placement-policy"
    ),
    "it is about columns of type BLOB, and a table that has one is refused": (
        "blob-as-descriptor blob-compaction.enabled blob-descriptor-field blob-field blob-view-field"
        " blob-view.resolve.enabled blob-write-null-on-fetch-failure blob-write-null-on-missing-file"
        " blob-external-storage-field blob-external-storage-path blob.stored-descriptor-fields video-frame-field"
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
        " row-tracking.partition-group-on-commit data-evolution.write-cols-optimization.enabled"
    ),
    "reads use no index of whole tables, which only changes how fast they are": (
        "full-text-index.search-mode global-index.build.max-parallelism global-index.build.max-shard"
        " global-index.column-update-action global-index.enabled global-index.external-path"
        " global-index.row-count-per-shard global-index.search-mode global-index.thread-num scalar-index.search-mode"
        " bitmap-index.compression bitmap-index.compression-level bitmap-index.dictionary-block-size"
        " bitmap-index.fallback-scan-max-size btree-index.block-size btree-index.bloom-filter.enabled"
        " btree-index.fallback-scan-max-size btree-index.records-per-range global-index.build.parallelism"
        " global-index.filter.refine-from-data sorted-index.records-per-file"
    ),
    "it is about a file format that is refused": "mosaic.num-buckets mosaic.stats-columns",
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


# ---- Options that are known and not built, here or in Paimon: what holds instead, and who refuses a table that has
# one


@dataclass(frozen=True, slots=True, kw_only=True)
class NotBuilt:
    """An option that has no effect here."""

    instead: str  # what holds instead, or why it matters
    closed: At = At.NOWHERE  # readers and writers to which a table of others is closed
    harmless: tuple[str, ...] = ()  # values without effect, in lower case, beside the default


ALL: Final = At.READ | At.WRITE
_FLUSHES: Final = "a full write buffer becomes sorted files of level 0, which compaction merges: nothing is spilled"
_TRIGGERS: Final = "each trigger of a stream takes what there is"
_LOST: Final = "a file that is damaged or gone fails the read"
_INDEX: Final = "its index would not follow what is written"
_CHAINED: Final = "its rows are spread over branches"
_PARTLY: Final = "a part of its rows is wanted"

NOT_BUILT: Final[Mapping[str, NotBuilt]] = {
    "write-buffer-spillable": NotBuilt(instead=_FLUSHES),
    "write-buffer-spill.max-disk-size": NotBuilt(instead=_FLUSHES),
    "sort-spill-threshold": NotBuilt(
        instead="merges read a batch of every run at once: nothing is spilled for their number"
    ),
    "tag.callbacks": NotBuilt(
        instead="nothing is called after a tag; tag.create-success-file leaves a file for jobs that wait"
    ),
    "sink.savepoint.auto-tag": NotBuilt(instead="savepoints are made by savepoint.create-interval and by CALL"),
    "partition.idle-time-to-done": NotBuilt(instead="partitions are marked as done by CALL"),
    "log.system.auto-register": NotBuilt(instead="a topic is made with its table, or was there before and stays"),
    "log.ignore-delete": NotBuilt(
        instead="the log has every change of the table; ignore-delete leaves deletes out of both", closed=At.WRITE
    ),
    "log.commit-token.topic": NotBuilt(instead="commits are in the last record of each batch of the log"),
    "read.stream.minRowsPerTrigger": NotBuilt(instead=_TRIGGERS),
    "read.stream.maxTriggerDelayMs": NotBuilt(instead=_TRIGGERS),
    "streaming.read.snapshot.delay": NotBuilt(instead=_TRIGGERS),
    "consumer.changelog-only": NotBuilt(instead="the place of a consumer keeps snapshots"),
    "scan.plan-auto-tag-for-read.time-retained": NotBuilt(
        instead="a read keeps no files; a tag does, or snapshot.time-retained"
    ),
    "scan.ignore-corrupt-files": NotBuilt(instead=_LOST),
    "scan.ignore-lost-files": NotBuilt(instead=_LOST),
    "scan.bounded.watermark": NotBuilt(instead="a stream does not end at a watermark", closed=At.STREAM_READ),
    "data-evolution.enabled": NotBuilt(
        instead="its files hold parts of rows, and only batches read them", closed=At.STREAM_READ | At.WRITE
    ),
    "pk-clustering-override": NotBuilt(instead="its files are not sorted by the key", closed=ALL),
    "chain-table.enabled": NotBuilt(instead=_CHAINED, closed=ALL),
    "sequence.snapshot-ordering": NotBuilt(instead="its rows are ordered by snapshot", closed=ALL),
    "primary-key.nullable": NotBuilt(instead="key columns are never null", closed=At.WRITE),
    "write.sequence-number-init-mode": NotBuilt(
        instead="sequence numbers follow those of the files", closed=At.WRITE, harmless=("scan",)
    ),
    # not declared: options of Paimon that Fluvial has not
    "scan.creation-time-millis": NotBuilt(instead=_PARTLY, closed=At.READ),
    "scan.file-creation-time-millis": NotBuilt(instead=_PARTLY, closed=At.READ),
    "scan.bucket": NotBuilt(instead=_PARTLY, closed=At.READ),
    "scan.fallback-snapshot-branch": NotBuilt(instead=_CHAINED, closed=At.READ),
    "scan.fallback-delta-branch": NotBuilt(instead=_CHAINED, closed=At.READ),
    "batch-scan-mode": NotBuilt(instead=_PARTLY, closed=At.BATCH_READ, harmless=("none",)),
    "stream-scan-mode": NotBuilt(instead=_PARTLY, closed=At.STREAM_READ, harmless=("none",)),
    "incremental-between-tag-to-snapshot": NotBuilt(instead="a difference is wanted", closed=At.READ),
    "postpone.merge-on-read": NotBuilt(
        instead="rows that wait for buckets are not read", closed=At.BATCH_READ, harmless=("false",)
    ),
    "query-auth.enabled": NotBuilt(
        instead="its server says which rows a user may see", closed=At.READ, harmless=("false",)
    ),
    "upsert-key": NotBuilt(instead="rows that are written replace others", closed=At.WRITE),
    "changelog-producer.row-deduplicate-ignore-fields": NotBuilt(
        instead="its changelog leaves out some updates", closed=At.WRITE
    ),
    "pk-btree.index.columns": NotBuilt(instead=_INDEX, closed=At.WRITE),
    "pk-bitmap.index.columns": NotBuilt(instead=_INDEX, closed=At.WRITE),
    "pk-vector.index.columns": NotBuilt(instead=_INDEX, closed=At.WRITE),
    "pk-full-text.index.columns": NotBuilt(instead=_INDEX, closed=At.WRITE),
    "partition.timestamp-format.strict": NotBuilt(
        instead="partitions that are no times do not expire", closed=At.WRITE, harmless=("true",)
    ),
    **{key: NotBuilt(instead=why) for key, why in WITHOUT_EFFECT.items()},
}
"""By key."""
_NAMED: Final = (
    (re.compile(r"(commit|tag)\.callback\..+\.param"), r"\1.callback.#.param"),
    (re.compile(r"fields\..+\.(map\.[a-z.-]+)"), r"fields.#.\1"),
)
_UNKNOWN: Final = "the option is not known, and by its name it decides about rows"
_UNKNOWN_BEGINNINGS: Final[Mapping[At, tuple[str, ...]]] = {
    ALL: (
        *("fields.", "merge-", "merge.", "sequence.", "data-", "manifest.", "primary-key", "bucket", "deletion-vector"),
        *("row-", "rowkind.", "partial-update.", "aggregation.", "chain-table.", "pk-", "ignore-", "record-level."),
        *("key-value.", "blob-", "type."),
    ),
    At.READ: ("scan.", "incremental-", "batch-scan", "query-auth", "table-read."),
    At.STREAM_READ: ("stream-scan", "streaming-read"),
    At.STREAM_READ | At.WRITE: ("changelog",),
    At.BATCH_READ | At.WRITE: ("postpone.",),
    At.WRITE: ("upsert", "partition.", "dynamic-"),
}
"""An option that no one knows yet closes a table, if its name begins like those that decide about rows."""
_VERBS: Final = ((ALL, "read"), (At.WRITE, "written"), (At.BATCH_READ, "read"), (At.STREAM_READ, "streamed"))
_FIX: Final = "reset it (ALTER TABLE), or use the table with the engine that set it"
_FIX_OF_ALL: Final = "use the table with the engine that made it, and leave this out of a table that is made here"


def _declared_as(key: str) -> str:
    """The key with ``#`` for the name of a class or of columns, as it is declared."""
    for pattern, declared in _NAMED:
        key = pattern.sub(declared, key)
    return key


def not_built(key: str, text: str) -> NotBuilt | None:
    """The known facts of an undeclared option, with a value that matters; None: none."""
    found = NOT_BUILT.get(_declared_as(key))
    return None if found is None or text.strip().lower() in found.harmless else found


def not_built_of(options: TableValues) -> Iterator[tuple[str, NotBuilt]]:
    """The options in force that have no effect, by key, in their order.

    Raises: InvalidInputError: the value of one cannot be read.
    """
    for key, text in options.texts_by_key().items():
        option, found = options.declared.get(key), not_built(key, text)
        if found is not None and (option is None or options[option] != option.default):
            yield key, found
        elif option is None and _declared_as(key) not in NOT_BUILT and (unknown := _unknown(key)) is not None:
            yield key, unknown


def _unknown(key: str) -> NotBuilt | None:
    """What an undeclared option is taken for by its name; None: it is left alone."""
    if key.startswith(FREE_PREFIXES) or split_field_key(key) is not None:
        return None
    closed = (at for at, beginnings in _UNKNOWN_BEGINNINGS.items() if key.startswith(beginnings))
    return next((NotBuilt(instead=_UNKNOWN, closed=at) for at in closed), None)


def seems_to_decide(key: str) -> bool:
    """Whether an option that no one knows would close a table, by its name."""
    return _unknown(key) is not None


def check_closed(options: TableValues, at: At) -> None:
    """Refuse a table that has an option for which it is closed. Raises: InvalidInputError naming it.

    Args:
        options: of the table.
        at: the readers or writers that want to use it; several: only what is closed to all of them counts.
    """
    for key, found in not_built_of(options):
        if found.closed & at == at:
            verb = next(verb for places, verb in _VERBS if at == places)
            raise InvalidInputError(
                f"table cannot be {verb}, {found.instead}: option={key} "
                f"value={shown_text(key, options.texts_by_key()[key], is_declared=True)} "
                f"fix='{_FIX_OF_ALL if at == ALL else _FIX}'"
            )


def check_built(options: TableValues, keys: Collection[str]) -> None:
    """Refuse values of these keys that would have no effect. Raises: InvalidInputError with what happens instead."""
    for key, found in not_built_of(options):
        if key in keys:
            raise no_effect(key, options.texts_by_key()[key], found)


def no_effect(key: str, text: str, found: NotBuilt) -> InvalidInputError:
    """The error for an option that is set and would have no effect."""
    return InvalidInputError(
        f"option has no effect here, {found.instead}: option={key} value={shown_text(key, text, is_declared=True)} "
        "fix='leave it out'"
    )
