"""Sorting more rows than fit into memory: a sample, sorted runs in local files, then one range of places at a time.

Of the memory a third is for the rows of a run or a range, the rest for their sorted copy and what reads and writes
them. Runs are mapped into memory, from files without a name: nothing is left of a process that is killed.
"""

import mmap
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from filestore.cluster.row_order import MOST_SAMPLED_ROWS, RowOrder, RowPlaces
from lsm.byte_sizes import pieces_within
from lsm.keys.key_groups import one_chunk
from lsm.keys.words import WordArray

ReadRows = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
"""All rows with these columns; called twice, and both times in the same order."""

_BATCH_BYTES: Final = 4 << 20  # of a run: what the smallest step in it is
_SPLITTERS: Final = 256  # places of each run that are kept to divide all runs into ranges
_PLACE: Final = "_PLACE"  # the last column: of places


def rows_in_order(
    read: ReadRows, columns: Sequence[str], order: RowOrder, *, row_count: int, budget_bytes: int
) -> Iterator[pa.Table]:
    """The same rows in another order.

    Args:
        read: gives them.
        columns: of the rows.
        order: that they get.
        row_count: about how many there are.
        budget_bytes: memory. More rows of one place than fit are sorted in pieces.
    """
    sample = _sampled(read(order.columns), row_count)
    if sample is None:
        return
    places = RowPlaces(order, sample)
    share = max(budget_bytes // 3, 1)
    runs: list[_Run] = []
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in read(columns):
        waiting.append(batch)
        waiting_bytes += batch.nbytes
        if waiting_bytes >= share:
            runs.append(_Run(_placed(waiting, places)))
            waiting, waiting_bytes = [], 0
    last = _placed(waiting, places) if waiting else None
    if not runs:
        assert last is not None
        yield _in_exact_order(last, places)
        return
    if last is not None:
        runs.append(_Run(last))
    bounds = _bounds(runs, max(sum(run.size_bytes for run in runs) // share, 1))
    for low, high in zip([None, *bounds], [*bounds, None], strict=True):
        for piece in pieces_within(pa.concat_tables([run.between(low, high) for run in runs]), 2 * share):
            yield _in_exact_order(piece, places)
        for run in runs:
            run.release()


class _Run:
    """Rows in the order of their places, in a local file without a name."""

    def __init__(self, placed: pa.Table) -> None:
        unordered = _places_of(placed)
        order = np.argsort(unordered, kind="stable")
        places, rows = unordered[order], _without_places(placed).take(pa.array(order)).combine_chunks()
        self.size_bytes = rows.nbytes
        self.splitters = places[:: max(len(places) // _SPLITTERS, 1)].copy()
        with tempfile.TemporaryFile(prefix="fluvial-cluster-") as file:
            with pa.ipc.new_file(pa.PythonFile(file, mode="w"), rows.schema) as writer:
                for piece in pieces_within(rows, _BATCH_BYTES):
                    writer.write_table(piece)
            end = file.tell()
            start = -(-end // 8) * 8
            file.write(b"\0" * (start - end))
            file.write(places.tobytes())
            file.flush()
            mapped = self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._rows = pa.ipc.open_file(pa.py_buffer(memoryview(mapped)[:end])).read_all()
        self._places = np.frombuffer(mapped, np.uint64, offset=start)

    def between(self, low: np.uint64 | None, high: np.uint64 | None) -> pa.Table:
        """The rows from a place on, before another one; None is no bound. They stay in the file."""
        first = 0 if low is None else int(np.searchsorted(self._places, low))
        last = len(self._places) if high is None else int(np.searchsorted(self._places, high))
        return self._rows.slice(first, last - first).append_column(_PLACE, pa.array(self._places[first:last]))

    def release(self) -> None:
        """Free the memory of what was read; it stays in the file."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)


def _sampled(batches: Iterator[pa.RecordBatch], row_count: int) -> pa.Table | None:
    """Every so many-th row; None when there is none."""
    step = max(row_count // MOST_SAMPLED_ROWS, 1)
    found, seen = [], 0
    for batch in batches:
        rows = np.arange(-seen % step, batch.num_rows, step)
        seen += batch.num_rows
        if len(rows):
            found.append(batch.take(pa.array(rows)))
    return pa.Table.from_batches(found) if found else None


def _placed(batches: Sequence[pa.RecordBatch], places: RowPlaces) -> pa.Table:
    """Rows with their places."""
    rows = pa.Table.from_batches(batches).combine_chunks()
    return rows.append_column(_PLACE, pa.array(places.places(rows)))


def _places_of(placed: pa.Table) -> WordArray:
    found: WordArray = one_chunk(placed.column(placed.num_columns - 1)).to_numpy()
    return found


def _without_places(placed: pa.Table) -> pa.Table:
    return placed.remove_column(placed.num_columns - 1)


def _in_exact_order(placed: pa.Table, places: RowPlaces) -> pa.Table:
    rows = _without_places(placed)
    return rows.take(pa.array(places.exact_order(rows, _places_of(placed))))


def _bounds(runs: Sequence[_Run], range_count: int) -> list[np.uint64]:
    """Places that divide the rows of all runs into ranges of about one size."""
    every = np.sort(np.concatenate([run.splitters for run in runs]))
    cuts = np.arange(1, range_count) * len(every) // range_count
    return [*np.unique(every[cuts])]
