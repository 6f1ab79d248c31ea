"""Lookup of rows by key in files, and the change recorder that uses it.

In each file that may hold one of the keys, the key columns are read first, then the row groups that do hold one. So a
lookup costs the key columns in the range of the keys, and whole rows only where keys are. Rows deleted by deletion
vectors are not found.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa

from filestore.datafile.row_positions import positions_of_keys, rows_at
from filestore.index.deletion_vectors import NO_POSITIONS
from filestore.manifest.entries import DataFileMeta
from filestore.read.split_read import BucketFiles, levels_count
from filestore.schema.merge_engine import merge_function
from filestore.table_store import TableStore
from lsm.keys.key_groups import one_chunk
from lsm.keys.keys import key_at, key_order
from lsm.merge.change_recorder import ChangeRecorder
from lsm.merge.merge_function import of_lowest_levels, with_level


class RowLookup:
    """Finds rows by key in files of one bucket."""

    def __init__(self, files: BucketFiles) -> None:
        self._files = files
        self._ranges = [files.table.sorted_file(file) for file in files.files]
        self._counts_levels = levels_count(files.table, (file.level for file in files.files))

    def find(self, keys: pa.Table) -> pa.Table | None:
        """The rows that count for the given keys, with the two system columns; None when there are none.

        Args:
            keys: (k,) unique key columns in key order; at least one.
        """
        columns = [one_chunk(column) for column in keys.columns]
        first, last = key_at(columns, 0), key_at(columns, len(keys) - 1)
        found: list[pa.RecordBatch] = []
        for file, keyed in zip(self._files.files, self._ranges, strict=True):
            if keyed.overlaps(first, last):
                rows_of_file = self._rows_of(file, keys)
                found += (
                    (with_level(each, file.level) for each in rows_of_file) if self._counts_levels else rows_of_file
                )
        if not found:
            return None
        rows = pa.Table.from_batches(found)
        if not self._counts_levels:
            return rows
        order, starts = key_order([one_chunk(rows.column(name)) for name in keys.column_names], presorted=False)
        return of_lowest_levels(rows, order, starts)[0]

    def _rows_of(self, file: DataFileMeta, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        """Rows with the given keys in one file. Its keys are read first, since often it has none of them."""
        files = self._files
        table, deleted = files.table, files.deleted.get(file.file_name, NO_POSITIONS)
        place = (table, files.partition, files.bucket, file)
        positions, _ = positions_of_keys(*place, keys, deleted=deleted)
        if len(positions):
            yield from rows_at(*place, positions, table.schema.column_names, with_system=True)


def change_recorder(store: TableStore, *, emit: Callable[[pa.Table], None], below: BucketFiles) -> ChangeRecorder:
    """The recorder of the changes that a merge of a table's files makes.

    Args:
        store: the table at the schema of the newest file.
        emit: called with the changes, see ``ChangeRecorder``.
        below: files with old rows that the merge does not read.
    """
    options = store.options
    return ChangeRecorder(
        inner=merge_function(store.schema, options, store.schema.column_names),
        key_names=store.schema.trimmed_primary_keys,
        sequence_names=options.sequence_fields,
        sequence_descending=options.sequence_descending,
        # a row that first-row ignores is not an update
        drops_equal=options.merge_engine == "first-row" or options.changelog_producer_row_deduplicate,
        emit=emit,
        look_up=RowLookup(below).find if below.files else None,
    )
