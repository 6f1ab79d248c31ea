"""Deleting files that were written for a commit that surely never became visible."""

from collections.abc import Sequence
from contextlib import suppress

from filestore.commit_message import CommitMessage
from filestore.table_store import TableStore
from lsm.errors import FluvialError


def discard(table: TableStore, messages: Sequence[CommitMessage]) -> None:
    """Delete the files that these messages made. Only for messages that are surely not visible and never will be.

    Files that a compaction moved to another level keep their name: they are inputs, and stay.
    """
    for message in messages:
        known = {entry.file_name for entry in message.index_before}
        for entry in message.index_after:
            if entry.file_name not in known:
                with suppress(FluvialError, OSError):
                    table.io.delete(table.index_path(entry))
        inputs = {name for file in message.compact_before for name in (file.file_name, *file.extra_files)}
        for file in (*message.new_files, *message.compact_after, *message.changelog_files):
            for name in {file.file_name, *file.extra_files} - inputs:
                with suppress(FluvialError, OSError):  # an orphan costs space only
                    table.io.delete(f"{table.bucket_dir(message.partition, message.bucket)}/{name}")
