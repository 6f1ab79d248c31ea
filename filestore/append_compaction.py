"""Compacting tables without a key: small files become larger ones, rows keep their order.

Source: paimon-format.md section 6.8.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from filestore.bucket_writer import write_files
from filestore.compaction_output import is_small, rolling_writer
from filestore.compaction_task import CompactionTask
from filestore.deletion_vectors import Positions
from filestore.live_files import BucketKey, LiveFiles
from filestore.manifests import DataFileMeta
from filestore.marks import marked_counts
from filestore.options import TableOptions
from filestore.split_read import BucketFiles
from filestore.table_store import TableStore
from lsm.compaction import CompactionReason


def pick_appended(
    table: TableStore, live: LiveFiles, key: BucketKey, *, full: bool, rewrites_all: bool = False
) -> CompactionTask | None:
    """Small files of an append table, and those with too many deleted rows; with ``rewrites_all`` every file.

    In a bucket only neighbours in sequence order, so that rows keep their order.
    """
    options = table.options
    indexes = live.indexes(key)
    threshold = 0.0 if full else options.value("compaction.delete-ratio-threshold")
    counts = marked_counts(indexes)
    marked = {f.file_name for f in live.files(key) if counts.get(f.file_name, 0) > threshold * f.row_count}
    is_ordered = options.bucket > 0
    files = sorted(live.files(key), key=lambda file: (file.min_sequence_number, file.file_name))
    least = 2 if full else max(2, options.value("compaction.min.file-num"))
    chosen: list[DataFileMeta] = []
    groups = [files] if rewrites_all else _groups(files, options, marked, is_ordered=is_ordered)
    for group in groups:
        if (
            rewrites_all
            or len(group) >= least
            or (len(group) > 1 and sum(f.size_bytes for f in group) >= options.target_file_size_bytes)
            or any(f.file_name in marked for f in group)
        ):
            chosen.extend(group)
            if is_ordered:
                break  # one group at a time keeps the numbers of a task contiguous
    if not chosen:
        return None
    return CompactionTask(
        partition=key.partition,
        bucket=key.bucket,
        total_buckets=live.total_buckets(key) or options.bucket,
        files=tuple(chosen),
        output_level=0,
        drops_deletes=False,
        cleans_deletes=False,
        reason=CompactionReason.FORCED if full else CompactionReason.RUN_COUNT,
        rewrites_all=rewrites_all,
        read_cost=len(chosen) - 1,
        indexes=indexes,
    )


def _groups(
    files: Sequence[DataFileMeta], options: TableOptions, marked: Collection[str], *, is_ordered: bool
) -> Iterator[list[DataFileMeta]]:
    group: list[DataFileMeta] = []
    for file in files:
        if is_small(file, options) or file.file_name in marked:
            group.append(file)
        elif is_ordered and group:
            yield group
            group = []
    if group:
        yield group


def concatenate(
    table: TableStore,
    task: CompactionTask,
    written: list[DataFileMeta],
    *,
    deleted: Mapping[str, Positions],
) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
    """Write the rows of files into few; what went and what came. `written` learns of files as they are made.

    Rows that are ``deleted``, by file name, are left out.
    """
    files = BucketFiles(table=table, partition=task.partition, bucket=task.bucket, files=task.files, deleted=deleted)

    def rows() -> Iterator[pa.RecordBatch]:
        for file in task.files:
            yield from files.read(file, table.schema.column_names, with_system=False)

    outputs = write_files(rolling_writer(table, task), rows())
    written.extend(outputs)
    numbered = []
    first = task.files[0].min_sequence_number
    for file in outputs:
        first = first if task.total_buckets > 0 else 0
        last = first + file.row_count - 1
        numbered.append(replace(file, min_sequence_number=first, max_sequence_number=last))
        first = last + 1
    return list(task.files), numbered
