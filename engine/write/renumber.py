"""Rows of a bucket numbered again, when another writer committed to the bucket first.

Two records of one key may not share a sequence number. The later commit's rows must win, so they move above what the
earlier one wrote; their order among themselves stays. The old files are ``superseded``; where the log's marker may name
them, they are left for orphan cleaning.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from filestore.commit.committable import Committable
from filestore.datafile.data_file import read_data_file
from filestore.datafile.rolling_writer import RollingWriter
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.snapshot.change_tracking import ChangeSource, skipped_log_property
from filestore.table_store import TableStore
from lsm.errors import ConflictError, OutcomeUnknownError
from lsm.row_kind import SEQUENCE_NUMBER
from lsm.undo import undoing

logger = logging.getLogger("fluvial.batch")

_FIRST_ROOM: Final = 1000


def headrooms() -> Iterator[int]:
    """How many numbers are left to others at each try: soon more than they use until the batch is committed."""
    yield 0
    for tries in count():
        yield _FIRST_ROOM * 4**tries


def renumbered(
    store: TableStore,
    live: LiveFiles,
    lost: Committable,
    starts: Mapping[int, int],
    conflict: ConflictError,
    *,
    headroom: int = 0,
) -> Committable:
    """The same rows, numbered to follow the newest snapshot, to which the live files are advanced.

    Changes that were looked up in an older snapshot are stale: streams skip them in the log, and read them from files.

    Args:
        store: the table.
        live: its files as the batch knew them.
        lost: what could not be committed.
        starts: offsets of the first records of the batch in the log, by bucket.
        conflict: the reason.
        headroom: numbers that are left free, for rows that others commit meanwhile.

    Raises: the conflict, when other numbers do not resolve it; OutcomeUnknownError: files of the batch were deleted.
    """
    live.advance()
    moved = []
    for message in lost.messages:
        highest = live.max_sequence_number(BucketKey(message.partition, message.bucket))
        moved.append(rewrite_with_higher_numbers(store, message, above=highest, headroom=headroom))
    if moved == lost.messages and not lost.changelog_base_snapshot:
        raise conflict
    following = replace(lost, messages=moved, base=live.ref)
    if not lost.changelog_base_snapshot:
        return following
    logger.warning(
        "streams get a batch from files, its changes in the log are stale: table=%s batch=%d",
        store.name, lost.identifier,
    )  # fmt: skip
    return replace(
        following,
        changelog_base_snapshot={},
        changes=ChangeSource.FILES,
        properties={**lost.properties, **skipped_log_property(starts)},
    )


def rewrite_with_higher_numbers(
    store: TableStore, message: CommitMessage, *, above: int, headroom: int = 0
) -> CommitMessage:
    """The message with every sequence number greater than ``above``; the same message when they are already.

    A message that is renumbered leaves ``headroom`` numbers free.

    Raises: OutcomeUnknownError: its files were deleted.
    """
    if not message.new_files:
        return message
    first = min(file.min_sequence_number for file in message.new_files)
    if first > above:
        return message
    shift = above + 1 + headroom - first
    for file in message.new_files:
        path = store.file_path(message.partition, message.bucket, file)
        if not store.io.exists(path):
            raise OutcomeUnknownError(
                "a file of the batch was deleted before its commit: another writer published it from the log and it "
                f"expired since, or it was taken for an orphan: table={store.name} file={path} "
                "fix='look whether its rows are there before you write them again'"
            )
    files = [each for file in message.new_files for each in _shifted(store, message, file, shift)]
    return replace(message, new_files=tuple(files))


def superseded(lost: Sequence[CommitMessage], moved: Sequence[CommitMessage]) -> list[CommitMessage]:
    """The files to discard after messages were rewritten, one for one; both versions share the changelog files."""
    found = []
    for before, after in zip(lost, moved, strict=True):
        kept = {file.file_name for file in after.new_files}
        gone = tuple(file for file in before.new_files if file.file_name not in kept)
        found.append(
            CommitMessage(
                partition=before.partition, bucket=before.bucket, total_buckets=before.total_buckets, new_files=gone
            )
        )
    return found


def _shifted(store: TableStore, message: CommitMessage, file: DataFileMeta, shift: int) -> list[DataFileMeta]:
    schema = store.schema_of(file.schema_id)
    if not store.has_key:  # files of an append table carry no numbers: only their metadata does
        return [
            replace(
                file,
                min_sequence_number=file.min_sequence_number + shift,
                max_sequence_number=file.max_sequence_number + shift,
            )
        ]
    writer = RollingWriter(
        io=store.io,
        names=store.names,
        clock=store.clock,
        place=store.new_files(message.partition, message.bucket),
        schema=schema,
        options=store.options,
        level=file.level,
        file_source=file.file_source or 0,
    )
    with undoing(writer.abort):
        for rows in read_data_file(
            store.io,
            store.file_path(message.partition, message.bucket, file),
            file,
            file_schema=schema,
            read_schema=schema,
            columns=[field.name for field in schema.fields],
            with_system=True,
        ):
            writer.write(_with_shift(rows, shift))
        return writer.close()


def _with_shift(rows: pa.RecordBatch, shift: int) -> pa.RecordBatch:
    index = rows.schema.get_field_index(SEQUENCE_NUMBER)
    return rows.set_column(index, rows.schema.field(index), pc.add(rows.column(index), shift))
