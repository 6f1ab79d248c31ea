"""Options of the form of data files, and of their compaction."""

from collections.abc import Mapping
from typing import Any, Final

from filestore.options.option import NOTHING, ROWS, STORAGE, At, Option, OptionValues, derived
from filestore.options.parsing import (
    Parser,
    boolean,
    check_directory,
    check_prefix,
    choice,
    choice_per_level,
    duration_ms,
    fraction,
    integer,
    per_level,
    size_bytes,
    some_bytes,
    statistics,
    statistics_per_level,
    text,
    verbatim,
)
from filestore.options.table.common import COUNT, MIB, NUMBER

_FORMAT: Final = choice("parquet", "orc", "avro")
_FORMAT_PER_LEVEL: Final = choice_per_level("parquet", "orc", "avro")
_SIZE_OR_NONE: Final = Parser(lambda value: size_bytes(value) or None, size_bytes.kind)
_NONE_BY_LEVEL: Final[Mapping[int, str]] = {}
_FIRST_VERSION_WITH_PARQUET: Final = 3


def _format(options: Any) -> str:
    return "orc" if options.schema_version < _FIRST_VERSION_WITH_PARQUET else "parquet"


def _target_bytes(options: Any) -> int:
    return (128 if options.has_key else 256) * MIB


def _stop_trigger(options: Any) -> int:
    return int(options.run_count_trigger) + 3


class FileOptions(OptionValues):
    """Data files."""

    write_buffer_bytes = Option(
        "write-buffer-size", size_bytes, 64 * MIB, "Memory of a write task.", STORAGE, essential=True
    )
    write_buffer_spillable = Option("write-buffer-spillable", boolean, True, "Spill the write buffer to disk.", NOTHING)
    write_buffer_spill_max_disk_size_bytes = Option(
        "write-buffer-spill.max-disk-size", size_bytes, None, "Disk for spilled buffers.", NOTHING
    )
    sort_spill_buffer_size_bytes = Option(
        "sort-spill-buffer-size",
        size_bytes,
        64 * MIB,
        "Memory for the rows of a merge, in reads and compactions: all files of a bucket that are open share it.",
        NOTHING,
    )
    sort_spill_threshold = Option("sort-spill-threshold", integer(2), None, "Readers merged at once.", NOTHING)
    local_merge_buffer_size_bytes = Option(
        "local-merge-buffer-size", size_bytes, None, "Memory to merge rows before the shuffle.", STORAGE
    )
    write_only = Option(
        "write-only", boolean, False, "Neither compact nor expire.", STORAGE, at=At.STREAM_WRITE, essential=True
    )
    target_file_size_bytes = derived(
        "target-file-size",
        _SIZE_OR_NONE,
        None,
        "Size at which a new file begins; 128 mb, append tables 256 mb.",
        STORAGE,
        by=_target_bytes,
    )
    target_file_row_num = Option("target-file-row-num", COUNT, None, "Rows at which a new file begins.", STORAGE)
    file_format = derived("file.format", _FORMAT, "parquet", "Format of data files.", STORAGE, by=_format)
    file_format_per_level = Option(
        "file.format.per.level", _FORMAT_PER_LEVEL, _NONE_BY_LEVEL, "Format by level.", STORAGE, essential=True
    )
    compression = Option("file.compression", text, "zstd", "Compression of data files.", STORAGE, essential=True)
    zstd_level = Option("file.compression.zstd-level", integer(-7, 22), 1, "Effort of zstd.", STORAGE, essential=True)
    compression_per_level = Option(
        "file.compression.per.level", per_level, _NONE_BY_LEVEL, "Compression by level.", STORAGE, essential=True
    )
    file_block_size_bytes = Option(
        "file.block-size", size_bytes, None, "Row group or stripe size; row groups have at most this or 32 mb.", STORAGE
    )
    data_file_prefix = Option(
        "data-file.prefix",
        verbatim,
        "data-",
        "Start of the names of data files.",
        STORAGE,
        essential=True,
        check=check_prefix,
    )
    data_file_thin_mode = Option(
        "data-file.thin-mode", boolean, False, "Leave the key columns out of data files.", STORAGE
    )
    data_file_directory = Option(
        "data-file.path-directory",
        verbatim,
        None,
        "Directory in front of the partitions.",
        STORAGE,
        essential=True,
        immutable=True,
        check=check_directory,
    )
    data_file_external_paths = Option(
        "data-file.external-paths", text, None, "URIs of other places for data files, with commas.", STORAGE
    )
    data_file_external_strategy = Option(
        "data-file.external-paths.strategy",
        choice("none", "round-robin", "specific-fs", "entropy-inject", "weight-robin"),
        "none",
        "Which of these places a new file goes to; none: into the table's directory.",
        STORAGE,
    )
    data_file_external_file_system = Option(
        "data-file.external-paths.specific-fs",
        text,
        None,
        "With specific-fs: the scheme of the places that are used, as s3.",
        STORAGE,
    )
    data_file_external_weights = Option(
        "data-file.external-paths.weights",
        text,
        None,
        "With weight-robin: by place, what share of files it gets, as 1,3.",
        STORAGE,
    )
    file_suffix_include_compression = Option(
        "file.suffix.include.compression", boolean, False, "Compression in file names.", STORAGE
    )
    stats_mode = Option(
        "metadata.stats-mode",
        statistics,
        "truncate(16)",
        "Statistics of columns in manifests.",
        STORAGE,
        essential=True,
    )
    metadata_stats_mode_per_level = Option(
        "metadata.stats-mode.per.level", statistics_per_level, _NONE_BY_LEVEL, "Statistics by level.", STORAGE
    )
    file_index_in_manifest_threshold_bytes = Option(
        "file-index.in-manifest-threshold", size_bytes, 500, "Largest index inside a manifest.", STORAGE
    )
    file_index_read_enabled = Option("file-index.read.enabled", boolean, True, "Use file indexes.", STORAGE)
    deletion_vectors_enabled = Option(
        "deletion-vectors.enabled",
        boolean,
        False,
        "Deletion vectors: deleted rows are noted by their positions, files are not rewritten.",
        ROWS,
        essential=True,
    )
    deletion_vectors_bitmap64 = Option("deletion-vectors.bitmap64", boolean, False, "64-bit deletion vectors.", STORAGE)
    deletion_vectors_merge_on_read = Option(
        "deletion-vectors.merge-on-read",
        boolean,
        False,
        "Read level 0 of tables with deletion vectors.",
        ROWS,
        at=At.BATCH_READ,
    )
    index_file_in_data_file_dir = Option(
        "index-file-in-data-file-dir", boolean, False, "Index files beside the data.", STORAGE, immutable=True
    )


class CompactionOptions(OptionValues):
    """Compaction and back-pressure."""

    run_count_trigger = Option(
        "num-sorted-run.compaction-trigger", COUNT, 5, "Runs that start a compaction.", STORAGE, essential=True
    )
    run_count_stop_trigger = derived(
        "num-sorted-run.stop-trigger",
        COUNT,
        None,
        "Runs that stop writing; default trigger + 3.",
        NOTHING,
        by=_stop_trigger,
    )
    level_count = Option(
        "num-levels", integer(2), None, "Levels of the tree; default trigger + 1.", STORAGE, essential=True
    )
    max_size_amplification_percent = Option(
        "compaction.max-size-amplification-percent",
        NUMBER,
        200,
        "Waste that starts a full compaction.",
        STORAGE,
        essential=True,
    )
    size_ratio_percent = Option(
        "compaction.size-ratio",
        integer(0, 100),
        1,
        "Slack between the sizes of merged runs, percent.",
        STORAGE,
        essential=True,
    )
    compaction_optimization_interval_ms = Option(
        "compaction.optimization-interval", duration_ms, None, "Full compaction when the last one is so old.", STORAGE
    )
    compaction_total_size_threshold_bytes = Option(
        "compaction.total-size-threshold", size_bytes, None, "Full compaction of anything smaller.", STORAGE
    )
    compaction_incremental_size_threshold_bytes = Option(
        "compaction.incremental-size-threshold", size_bytes, None, "Full compaction after so much new data.", STORAGE
    )
    compaction_min_file_num = Option(
        "compaction.min.file-num", integer(2), 5, "Files of an append table that start a compaction.", STORAGE
    )
    compaction_small_file_ratio = Option(
        "compaction.small-file-ratio", fraction, 0.7, "A file below this part of the target is small.", STORAGE
    )
    compaction_delete_ratio_threshold = Option(
        "compaction.delete-ratio-threshold", fraction, 0.2, "Deleted part at which a file is rewritten.", STORAGE
    )
    compaction_force_up_level_0 = Option("compaction.force-up-level-0", boolean, False, "Always take level 0.", STORAGE)
    compaction_force_rewrite_all_files = Option(
        "compaction.force-rewrite-all-files", boolean, False, "Full compactions on request rewrite every file.", STORAGE
    )
    compaction_offpeak_start_hour = Option(
        "compaction.offpeak.start.hour", integer(-1, 23), -1, "First hour off the peak.", STORAGE
    )
    compaction_offpeak_end_hour = Option(
        "compaction.offpeak.end.hour", integer(-1, 23), -1, "End of the hours off the peak.", STORAGE
    )
    compaction_offpeak_ratio = Option(
        "compaction.offpeak-ratio", integer(0, 100), 0, "Slack off the peak, percent.", STORAGE
    )
    compaction_style = Option(
        "compaction.style", choice("universal", "leveled"), "universal", "Strategy.", STORAGE, essential=True
    )
    level0_trigger = Option(
        "level0_file_num_compaction_trigger",
        COUNT,
        4,
        "Level-0 files that start a leveled compaction.",
        STORAGE,
        essential=True,
    )
    level_base_bytes = Option(
        "max_bytes_for_level_base", some_bytes, 1024 * MIB, "Size of level 1.", STORAGE, essential=True
    )
    level_multiplier = Option(
        "max_bytes_for_level_multiplier", integer(2), 5, "Growth of the levels.", STORAGE, essential=True
    )
    compaction_lease_timeout_ms = Option(
        "compaction.lease-timeout",
        duration_ms,
        300_000,
        "Time after which an unfinished compaction of another machine counts as dead.",
        NOTHING,
    )
    write_backpressure = Option(
        "write.backpressure",
        choice("off", "soft", "hard", "soft+hard"),
        "soft+hard",
        "How writing waits for compaction.",
        NOTHING,
    )
    write_backpressure_timeout_ms = Option(
        "write.backpressure.timeout",
        duration_ms,
        30_000,
        "Longest wait of a write-only writer for a commit of the job that compacts.",
        NOTHING,
    )
