"""New files moved to the top level as they are, or compacted to it where readers need that."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from filestore.commit.committable import discard
from filestore.compact.compactor import run_task
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.table_store import TableStore
from lsm.compaction.compaction import CompactionReason
from lsm.undo import undoing


def upgrade_levels(store: TableStore, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
    """The messages of an overwrite with their new files on the top level, in the buckets where that is possible.

    Nothing older stays in a bucket that is overwritten, so its files may lie there as soon as their keys do not overlap
    and none of them holds a delete.
    """
    if not store.has_key or not store.options.overwrite_upgrade:
        return list(messages)
    by_bucket: dict[tuple[bytes, int], list[CommitMessage]] = {}
    for message in messages:
        by_bucket.setdefault((message.partition, message.bucket), []).append(message)
    return [each for group in by_bucket.values() for each in _upgraded(store, group)]


def _upgraded(store: TableStore, messages: Sequence[CommitMessage]) -> Sequence[CommitMessage]:
    files = [file for message in messages for file in message.new_files]
    ordered = sorted(map(store.sorted_file, files), key=lambda file: (file.min_key, file.max_key))
    overlap = any(right.min_key <= left.max_key for left, right in pairwise(ordered))
    held = any(message.compact_before or message.compact_after or message.bucket < 0 for message in messages)
    if overlap or held or any(file.level or file.delete_row_count for file in files):
        return messages
    top = store.level_count - 1
    return [
        replace(message, new_files=tuple(replace(file, level=top) for file in message.new_files))
        for message in messages
    ]


def compact_to_top(store: TableStore, written: Sequence[CommitMessage]) -> list[CommitMessage]:
    """Merge new files to the top level, so that no compaction emits their rows again; their buckets hold nothing older.

    When it fails, all of them are deleted.
    """
    merged: list[CommitMessage] = []
    with undoing(lambda: discard(store, [*written, *merged])):
        for message in written:
            task = CompactionTask(
                partition=message.partition,
                bucket=message.bucket,
                total_buckets=message.total_buckets,
                files=message.new_files,
                output_level=store.level_count - 1,
                drops_deletes=True,
                cleans_deletes=True,
                reason=CompactionReason.FORCED,
            )
            merged.append(replace(message, new_files=run_task(store, task).compact_after))
    kept = {file.file_name for message in merged for file in message.new_files}
    for message in written:
        gone = tuple(file for file in message.new_files if file.file_name not in kept)
        nothing_else = CommitMessage(
            partition=message.partition, bucket=message.bucket, total_buckets=message.total_buckets, new_files=gone
        )
        discard(store, [nothing_else])
    return merged
