"""New files on the top level at once: of commits that leave no older row, and whose rows nobody shall wait for."""

from collections.abc import Sequence
from dataclasses import replace

from filestore.commit_message import CommitMessage
from filestore.compaction_task import CompactionTask
from filestore.compactor import run_task
from filestore.discarding import discard
from filestore.table_store import TableStore
from lsm.compaction import CompactionReason


def raised(table: TableStore, written: Sequence[CommitMessage]) -> list[CommitMessage]:
    """The files merged to the top level, where no compaction takes their rows for new ones; nothing older is there.

    When it fails, all of them are deleted.
    """
    merged: list[CommitMessage] = []
    try:
        for message in written:
            task = CompactionTask(
                partition=message.partition,
                bucket=message.bucket,
                total_buckets=message.total_buckets,
                files=message.new_files,
                output_level=table.level_count - 1,
                drops_deletes=True,
                cleans_deletes=True,
                reason=CompactionReason.FORCED,
            )
            merged.append(replace(message, new_files=run_task(table, task).compact_after))
    except BaseException:
        discard(table, [*written, *merged])
        raise
    kept = {file.file_name for message in merged for file in message.new_files}
    for message in written:
        gone = tuple(file for file in message.new_files if file.file_name not in kept)
        discard(table, [replace(message, new_files=gone)])
    return merged
