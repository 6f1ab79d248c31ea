"""Compacting tables without a key: small files become larger ones, and where rows have an order, they keep it.

Rows of a bucket are in the order in which they were written; only neighbours are put together there, unless
``bucket-append-ordered=false``. Rows of a table without buckets have no order. Source: Paimon's
BucketedAppendCompactManager and AppendCompactCoordinator.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import pyarrow as pa

from filestore.compact.row_order import RowOrder, rows_in_order
from filestore.compact.task import CompactionTask, TaskFiles, is_small
from filestore.format.interface import BatchLimit
from filestore.index.deletion_vector_changes import deleted_row_counts
from filestore.index.deletion_vectors import Positions
from filestore.manifest.entries import DataFileMeta
from filestore.options.table_options import TableOptions
from filestore.read.split_read import BucketFiles
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.table_store import TableStore
from lsm.compaction.compaction import CompactionReason
from lsm.errors import InvalidInputError

Files = Sequence[DataFileMeta]


def pick_appended(
    store: TableStore,
    live: LiveFiles,
    key: BucketKey,
    *,
    full: bool,
    rewrites_all: bool = False,
    order: RowOrder | None = None,
) -> list[CompactionTask]:
    """The compactions that pay in one bucket, each task about one file of ``target-file-size``.

    Files with too many deleted rows count as small. In a bucket with deletion vectors there is one task at a time: its
    commit replaces them.

    Args:
        store: an append table.
        live: its files.
        key: the bucket.
        full: two small files are enough, and one that has deleted rows.
        rewrites_all: every file is rewritten.
        order: that all rows of the bucket get.
    """
    options = store.options
    indexes = live.indexes(key)
    threshold = 0.0 if full else options.compaction_delete_ratio_threshold
    counts = deleted_row_counts(indexes)
    urgent = {f.file_name for f in live.files(key) if counts.get(f.file_name, 0) > threshold * f.row_count}
    is_ordered = keeps_append_order(options)
    files = sorted(live.files(key), key=lambda file: (file.min_sequence_number, file.file_name))
    least = 2 if full else max(2, options.compaction_min_file_num)
    groups = (
        [files]
        if rewrites_all or order is not None
        else small_groups(files, options, least=least, is_ordered=is_ordered, full=full, urgent=urgent)
    )
    if indexes and len(groups) > 1:
        groups = groups[:1] if is_ordered else [[file for group in groups for file in group]]
    return [
        CompactionTask(
            partition=key.partition,
            bucket=key.bucket,
            total_buckets=live.total_buckets(key) or options.bucket,
            files=tuple(group),
            output_level=0,
            drops_deletes=False,
            cleans_deletes=False,
            reason=CompactionReason.FORCED if full else CompactionReason.RUN_COUNT,
            rewrites_all=rewrites_all,
            read_cost=len(group) - 1,
            indexes=indexes,
            order=order,
        )
        for group in groups
    ]


def keeps_append_order(options: TableOptions) -> bool:
    """Whether the rows of a bucket stay in the order in which they were written."""
    return options.bucket > 0 and bool(options.bucket_append_ordered)


def check_may_order(store: TableStore) -> None:
    """Refuse to give the rows of a table another order. Raises: InvalidInputError."""
    if store.has_key:
        raise InvalidInputError(
            f"rows are in the order of the table's key, or of its row counts: table={store.name} "
            f"primary_key={list(store.schema.primary_keys)} fix='order_by is for append tables'"
        )
    if keeps_append_order(store.options):
        raise InvalidInputError(
            f"rows of a bucket are in the order in which they were written: table={store.name} "
            f"bucket={store.options.bucket} bucket-append-ordered=true "
            "fix='set bucket-append-ordered=false if no reader relies on that order'"
        )


def small_groups(
    files: Files,
    options: TableOptions,
    *,
    least: int,
    is_ordered: bool,
    full: bool = False,
    urgent: Collection[str] = (),
) -> list[list[DataFileMeta]]:
    """Small files to be put together, group by group.

    A group that makes a whole file is always worth it. Of fewer bytes, it is when there are ``least`` files and none is
    larger than all others together: so a row is rewritten a few times until its file is large, not with every commit.

    Args:
        files: of one bucket, in sequence order.
        options: of the table.
        least: files of a group that does not make a whole file.
        is_ordered: only neighbours may come together.
        full: the sizes do not matter.
        urgent: names of files that are worth it even alone.
    """
    found: list[list[DataFileMeta]] = []
    for stretch in _stretches(files, options, urgent, is_ordered=is_ordered):
        group: list[DataFileMeta] = []
        for file in stretch:
            group.append(file)
            is_urgent = any(each.file_name in urgent for each in group)
            if (len(group) > 1 or is_urgent) and _size(group) >= options.target_file_size_bytes:
                found.append(group)
                group = []
        is_urgent = any(each.file_name in urgent for each in group)
        rest = group if full or is_urgent else _balanced(group, least=least, is_ordered=is_ordered)
        if is_urgent or len(rest) >= least:
            found.append(list(rest))
    return found


def _stretches(files: Files, options: TableOptions, urgent: Collection[str], *, is_ordered: bool) -> Iterator[Files]:
    """Files that may come together: neighbours; without an order all of them, the smallest first."""
    wanted = [file for file in files if is_small(file, options) or file.file_name in urgent]
    if not is_ordered:
        yield sorted(wanted, key=lambda file: file.size_bytes)
        return
    names = {file.file_name for file in wanted}
    for is_wanted, neighbours in groupby(files, key=lambda file: file.file_name in names):
        if is_wanted:
            yield list(neighbours)


def _balanced(group: Files, *, least: int, is_ordered: bool) -> Files:
    """Without files that are larger than all others together; of neighbours, the longer side of such a one."""
    while len(group) >= least:
        largest = max(range(len(group)), key=lambda index: group[index].size_bytes)
        if 2 * group[largest].size_bytes <= _size(group):
            return group
        before, behind = group[:largest], group[largest + 1 :]
        group = max(before, behind, key=len) if is_ordered else [*before, *behind]
    return ()


def _size(files: Files) -> int:
    return sum(file.size_bytes for file in files)


def concatenate(files: TaskFiles, *, deleted: Mapping[str, Positions]) -> None:
    """Write the rows of a task's files into few.

    Args:
        files: of the task.
        deleted: rows to leave out, by file name.
    """
    store, task = files.store, files.task
    tracked = store.options.row_tracking_enabled
    table = store.with_id_columns() if tracked else store
    inputs = BucketFiles(table=table, partition=task.partition, bucket=task.bucket, files=task.files, deleted=deleted)

    limit = BatchLimit(size_bytes=max(store.options.sort_spill_buffer_size_bytes // 2, 1))
    names = table.schema.column_names
    outputs = files.write(_rows(inputs, names, limit) if task.order is None else _ordered(inputs, task.order))
    files.before += task.files
    if tracked:  # the numbers are those of the rows, and say which snapshots wrote them
        files.after += outputs
        return
    # The highest number of a bucket never falls: other writers count from it.
    highest = max(file.max_sequence_number for file in task.files)
    following = max(highest + 1 - sum(file.row_count for file in outputs), 0)
    for file in outputs:
        first = following if task.total_buckets > 0 else 0
        last = first + file.row_count - 1
        files.after.append(replace(file, min_sequence_number=first, max_sequence_number=last))
        following = last + 1


def _rows(inputs: BucketFiles, columns: Sequence[str], limit: BatchLimit) -> Iterator[pa.RecordBatch]:
    for file in inputs.files:
        yield from inputs.read(file, columns, with_system=False, limit=limit)


def _ordered(inputs: BucketFiles, order: RowOrder) -> Iterator[pa.Table]:
    """All rows in another order; a batch of a file at a time is in memory beside what is sorted."""
    budget_bytes = inputs.table.options.sort_spill_buffer_size_bytes
    limit = BatchLimit(size_bytes=max(budget_bytes // 8, 1))
    return rows_in_order(
        lambda columns: _rows(inputs, columns, limit),
        inputs.table.schema.column_names,
        order,
        row_count=sum(file.row_count for file in inputs.files),
        budget_bytes=budget_bytes,
    )
