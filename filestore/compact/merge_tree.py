"""Compacting tables with a key: sorted files are merged, and what nothing overlaps only moves to its new level.

Source: paimon-format.md section 6.7.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from filestore.compact.changelog import CompactionChangelog
from filestore.compact.old_rows import OldRows
from filestore.compact.task import CompactionTask, is_small, rolling_writer
from filestore.index.deletion_vectors import Positions
from filestore.manifest.entries import DataFileMeta
from filestore.read.split_read import BucketFiles
from filestore.scan.row_expiry import may_expire, not_expired
from filestore.table_store import TableStore
from filestore.write.bucket_writer import write_files
from lsm.compaction.compaction import CompactionReason
from lsm.levels import SortedRun


def merge_files(
    store: TableStore,
    task: CompactionTask,
    written: list[DataFileMeta],
    changelog: CompactionChangelog | None,
    *,
    deleted: Mapping[str, Positions],
    old: OldRows,
) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
    """Merge sorted files; what went and what came.

    A file that nothing overlaps only moves to its new level, if it is worth a file of its own.

    Args:
        store: whose.
        task: to carry out.
        written: learns of files as they are made.
        changelog: told what changes.
        deleted: rows of the task's files that are marked as deleted.
        old: rows of other files that are merged with them.
    """
    files = BucketFiles(
        table=store,
        partition=task.partition,
        bucket=task.bucket,
        files=(*task.files, *old.merged),
        deleted=deleted,
        chosen={file.file_name: old.marks[file.file_name] for file in old.merged},
    )
    by_name = {file.file_name: file for file in files.files}
    before: list[DataFileMeta] = []
    after: list[DataFileMeta] = []
    pending: list[list[SortedRun]] = []

    def merged(runs: list[SortedRun]) -> Iterator[pa.Table]:
        recording = changelog.recording if changelog else None
        rows = files.merged(runs, store.schema.column_names, drop_deletes=task.drops_deletes, recording=recording)
        # readers of a changelog are not told of rows that are too old
        return (not_expired(store, each, task.expiry_moment_ms) for each in rows)

    def must_rewrite(file: DataFileMeta) -> bool:
        marks = deleted.get(file.file_name)
        return _must_rewrite(file, task, 0 if marks is None else len(marks), store)

    def settle() -> None:
        inputs = [by_name[each.file_name] for runs in pending for run in runs for each in run.files]
        if len(inputs) == 1 and not must_rewrite(inputs[0]):
            upgrade(pending[0])
        elif inputs:
            outputs = write_files(rolling_writer(store, task), chain.from_iterable(map(merged, pending)))
            written.extend(outputs)
            before.extend(file for file in inputs if file.file_name not in files.chosen)
            after.extend(outputs)
        pending.clear()

    def upgrade(runs: list[SortedRun]) -> None:
        file = by_name[runs[0].files[0].file_name]
        if changelog and changelog.covers(file):
            changelog.read_through(merged(runs))
        if file.level != task.output_level:
            before.append(file)
            after.append(replace(file, level=task.output_level))

    for runs in files.sections():
        file = by_name[runs[0].files[0].file_name]
        if len(runs) == 1 and not is_small(file, store.options) and not must_rewrite(file):
            settle()
            upgrade(runs)
        else:
            pending.append(runs)
    settle()
    return before, after


def _must_rewrite(file: DataFileMeta, task: CompactionTask, marked_count: int, store: TableStore) -> bool:
    """Whether all is written anew, or the file has deletes or rows too old that must not stay, or too many deleted."""
    if task.rewrites_all or (task.cleans_deletes and file.delete_row_count != 0):
        return True
    if may_expire(store, [file], task.expiry_moment_ms):
        return True
    threshold = store.options.compaction_delete_ratio_threshold
    if task.reason in (CompactionReason.FORCED, CompactionReason.DELETE_RATIO):
        threshold = 0.0
    return bool(marked_count > threshold * file.row_count)
