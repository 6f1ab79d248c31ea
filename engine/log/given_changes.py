"""Changes that go to the log as the writer gives them, without a lookup.

With ``log.changelog-mode=all`` such a log has every change complete only if the input has: each row with its kind, each
``+U`` with the ``-U`` that it replaces before it (`GivenChanges`). What is given as ``+I`` is taken for an insert. With
``upsert`` the log leaves out the ``-U`` that a later row of the key makes superfluous (`upserts`).
"""

import numpy as np
import pyarrow as pa

from engine.log.table_log import TableLog
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError
from lsm.keys.key_groups import one_chunk
from lsm.keys.keys import key_order
from lsm.row_kind import RowKind


class GivenChanges:
    """Checks the rows of one task of a batch, in order. Keeps the keys whose last row was a ``-U``: mostly none."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._key_names = list(store.schema.primary_keys)
        self._replaced: pa.Table | None = None  # keys that wait for their +U

    @classmethod
    def of(cls, store: TableStore, log: TableLog | None) -> "GivenChanges | None":
        """None where nothing is to check: the log is completed by a lookup, or has no old rows.

        Merge engines that combine rows log what they combine, which no consumer takes for whole rows.
        """
        is_wanted = log is not None and store.has_key and store.options.log_takes_old_rows
        return cls(store) if is_wanted and store.options.merge_engine == "deduplicate" else None

    def check(self, rows: pa.RecordBatch, kinds: pa.Array | None) -> None:
        """Check the next rows.

        Args:
            rows: (n,) the table's columns.
            kinds: (n,) int8; None: the rows have no kinds.

        Raises:
            InvalidInputError: the rows have no kinds, a row of kind ``+U`` does not follow the ``-U`` of its key, or a
                key is null.
        """
        if kinds is None:
            raise InvalidInputError(
                f"the log has every change with its kind, and the rows have none: {self._place} fix='give the rows a "
                "column _row_kind (+I for new rows), or create the table with changelog-producer=lookup'"
            )
        numbers = np.asarray(kinds)
        if self._replaced is None and not np.isin(numbers, (RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER)).any():
            return
        keys = pa.Table.from_batches([rows.select(self._key_names)])
        if self._replaced is not None:
            keys = pa.concat_tables([self._replaced, keys])
            waiting = np.full(self._replaced.num_rows, RowKind.UPDATE_BEFORE, np.int8)
            numbers = np.concatenate([waiting, numbers])
        order, starts = key_order([one_chunk(keys.column(name)) for name in self._key_names], presorted=False)
        sorted_kinds = numbers[order]
        follows = ~starts & np.r_[False, sorted_kinds[:-1] == RowKind.UPDATE_BEFORE]
        alone = order[(sorted_kinds == RowKind.UPDATE_AFTER) & ~follows]
        if len(alone):
            key = keys.slice(int(alone.min()), 1).to_pylist()[0]
            raise InvalidInputError(
                f"an update comes without the row that it replaces, which the log must have: {self._place} "
                f"updates={len(alone)} first_key={key} fix='send -U before +U, as fluvial-kafka does with "
                "update-before=true, or create the table with changelog-producer=lookup'"
            )
        is_last = np.append(starts[1:], True)
        waiting_keys = order[is_last & (sorted_kinds == RowKind.UPDATE_BEFORE)]
        self._replaced = keys.take(pa.array(np.sort(waiting_keys))) if len(waiting_keys) else None

    @property
    def _place(self) -> str:
        producer = self._store.options.changelog_producer
        return f"table={self._store.name} log.changelog-mode=all changelog-producer={producer}"


def upserts(rows: pa.RecordBatch, kinds: pa.Array, store: TableStore) -> tuple[pa.RecordBatch, pa.Array]:
    """Changes of a table with a key without ``-U``, for readers that apply them one after the other.

    The ``-U`` of a key with a later row in the batch is left out: that row decides. The last row of its key deletes the
    row, as it does in the table, so it becomes ``-D``. A table with sequence fields keeps each one as ``-D``: there the
    later row need not be the one that decides. Merge engines that combine rows log what they combine, without ``-U``.

    Args:
        rows: (n,) in arrival order; the table's columns.
        kinds: (n,) int8 RowKind.
        store: the table.

    Returns:
        (m <= n,) rows in the same order, and their kinds.
    """
    numbers = np.asarray(kinds)
    is_old = numbers == RowKind.UPDATE_BEFORE
    if not is_old.any():
        return rows, kinds
    options = store.options
    if options.merge_engine != "deduplicate" or options.ignore_delete or options.ignore_update_before:
        is_left_out = is_old
    else:
        is_left_out = np.zeros(len(is_old), np.bool_)
        if not options.sequence_fields:
            order, starts = key_order([rows.column(name) for name in store.schema.primary_keys], presorted=False)
            is_left_out[order[:-1][~starts[1:]]] = True
            is_left_out &= is_old
    kept = pa.array(~is_left_out)
    return rows.filter(kept), pa.array(np.where(is_old, RowKind.DELETE, numbers).astype(np.int8)).filter(kept)
