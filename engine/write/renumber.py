"""Rows of a bucket numbered again, when another writer committed to the bucket first.

Two records of one key may not share a sequence number. The later commit's rows must win, so they move above what the
earlier one wrote; their order among themselves stays. The old files are left for orphan cleaning: the log's marker may
name them.
"""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from filestore.datafile.data_file import read_data_file
from filestore.datafile.rolling_writer import RollingWriter
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.table_store import TableStore
from lsm.errors import OutcomeUnknownError
from lsm.row_kind import SEQUENCE_NUMBER
from lsm.undo import undoing


def rewrite_with_higher_numbers(store: TableStore, message: CommitMessage, *, above: int) -> CommitMessage:
    """The message with every sequence number greater than ``above``; the same message when they are already.

    Raises: OutcomeUnknownError: its files are gone.
    """
    if not message.new_files:
        return message
    first = min(file.min_sequence_number for file in message.new_files)
    if first > above:
        return message
    shift = above + 1 - first
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


def _shifted(store: TableStore, message: CommitMessage, file: DataFileMeta, shift: int) -> list[DataFileMeta]:
    directory = store.bucket_dir(message.partition, message.bucket)
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
        bucket_dir=directory,
        schema=schema,
        options=store.options,
        level=file.level,
        file_source=file.file_source or 0,
    )
    with undoing(writer.abort):
        for rows in read_data_file(
            store.io,
            f"{directory}/{file.file_name}",
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
