"""Rows of some keys in some files, and the recorder of changes that asks for them.

Of each file that may hold one of the keys, first the key columns are read, then the row groups that do hold one. So a
lookup costs the key columns in the span of the keys, and whole rows where the keys are. Rows that are deleted by marks
are not found.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa

from filestore.datafile.row_positions import positions_of_keys, rows_at
from filestore.index.deletion_vectors import NO_POSITIONS
from filestore.manifest.entries import DataFileMeta
from filestore.read.split_read import BucketFiles
from filestore.schema.merge_engine import merge_function
from filestore.table_store import TableStore
from lsm.keys.key_groups import one_chunk
from lsm.keys.keys import key_at
from lsm.merge.change_recorder import ChangeRecorder


class RowLookup:
    """Finds rows by key in files of one bucket."""

    def __init__(self, files: BucketFiles) -> None:
        """Nothing is read yet."""
        self._files = files
        self._ranges = [files.table.sorted_file(file) for file in files.files]

    def find(self, keys: pa.Table) -> pa.Table | None:
        """Every row of some keys, as often as files have it, with the two system columns; None when there is none.

        Args:
            keys: (k,) key columns in key order, each key once; at least one.
        """
        columns = [one_chunk(column) for column in keys.columns]
        first, last = key_at(columns, 0), key_at(columns, len(keys) - 1)
        found: list[pa.RecordBatch] = []
        for file, keyed in zip(self._files.files, self._ranges, strict=True):
            if keyed.overlaps(first, last):
                found += self._rows_of(file, keys)
        return pa.Table.from_batches(found) if found else None

    def _rows_of(self, file: DataFileMeta, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        """Rows of some keys in one file. Its keys are read first, since often it has none of them."""
        files = self._files
        table, deleted = files.table, files.deleted.get(file.file_name, NO_POSITIONS)
        place = (table, files.partition, files.bucket, file)
        positions, _ = positions_of_keys(*place, keys, deleted=deleted)
        if len(positions):
            yield from rows_at(*place, positions, table.schema.column_names, with_system=True)


def change_recorder(store: TableStore, *, emit: Callable[[pa.Table], None], below: BucketFiles) -> ChangeRecorder:
    """What tells the changes that a merge of a table's files makes.

    Args:
        store: at the schema of the newest file.
        emit: takes the changes, see ``ChangeRecorder``.
        below: files that the merge does not read, and whose rows readers know.
    """
    options = store.options
    return ChangeRecorder(
        inner=merge_function(store.schema, options, store.schema.column_names),
        key_names=store.schema.trimmed_primary_keys,
        sequence_names=options.sequence_fields,
        sequence_descending=options.sequence_descending,
        # a row that first-row refuses is no update
        drops_equal=options.merge_engine == "first-row" or options.changelog_producer_row_deduplicate,
        emit=emit,
        look_up=RowLookup(below).find if below.files else None,
    )
