"""The order that rows get, and sorting them: which columns decide, how, and the place of each row by a sample of all.

The values of a column are replaced by their ranks in the sample, so that a space-filling curve divides rows evenly,
however values are distributed. Positions on the curve may be approximate: they decide where a row is stored, never
whether it is. Coordinates are (n,) arrays of unsigned 64-bit integers below ``2**bits``, one for each of d columns, and
``d * bits <= 64``.
"""

import mmap
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import NESTED_ROOTS
from lsm.byte_sizes import pieces_within
from lsm.errors import InvalidInputError
from lsm.keys.key_groups import one_chunk
from lsm.keys.words import BoolArray, IndexArray, WordArray, leading_words, number_parts_of, stable_order

WORD_BITS: Final = 64
_ONE: Final = np.uint64(1)
_BYTE: Final = np.uint64(0xFF)


def z_places(coordinates: Sequence[WordArray], bits: int) -> WordArray:
    """(n,) places on the z-order curve: the bits of all coordinates in turns, those of the first leading."""
    count = len(coordinates)
    spread = _spread(count)
    found = np.zeros(len(coordinates[0]), np.uint64)
    for index, values in enumerate(coordinates):
        for byte in range((bits + 7) // 8):
            part = spread[((values >> np.uint64(8 * byte)) & _BYTE).astype(np.intp)]
            found |= part << np.uint64(8 * byte * count + count - 1 - index)
    return found


def hilbert_places(coordinates: Sequence[WordArray], bits: int) -> WordArray:
    """(n,) places on the Hilbert curve, on which neighbours are neighbours in the grid as well.

    Source: Skilling, Programming the Hilbert curve (2004).
    """
    axes = [values.copy() for values in coordinates]
    for level in reversed(range(1, bits)):
        bit, below = np.uint64(level), np.uint64((1 << level) - 1)
        for axis in axes:
            is_set = (axis >> bit) & _ONE != 0
            swapped = np.where(is_set, np.uint64(0), (axes[0] ^ axis) & below)
            axes[0] ^= np.where(is_set, below, swapped)
            if axis is not axes[0]:
                axis ^= swapped
    for before, axis in pairwise(axes):
        axis ^= before
    turned = np.zeros_like(axes[0])
    for level in range(1, bits):
        is_set = (axes[-1] >> np.uint64(level)) & _ONE != 0
        turned ^= np.where(is_set, np.uint64((1 << level) - 1), np.uint64(0))
    return z_places([axis ^ turned for axis in axes], bits)


@cache
def _spread(count: int) -> WordArray:
    """(256,) each byte with ``count - 1`` zero bits after each of its bits."""
    values = np.arange(256, dtype=np.uint64)
    found = np.zeros(256, np.uint64)
    for bit in range(8):
        if bit * count < WORD_BITS:
            found |= ((values >> np.uint64(bit)) & _ONE) << np.uint64(bit * count)
    return found


_MOST_SAMPLED_ROWS: Final = 1 << 16
_MOST_COLUMNS: Final = 8
_RANK_BITS: Final = 16
_LEXICAL_BITS: Final = 18  # of a rank that says whether the value is in the sample


class OrderStrategy(Enum):
    """How several columns decide together."""

    ORDER = "order"
    ZORDER = "zorder"
    HILBERT = "hilbert"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrder:
    """The order that a user asks for."""

    columns: tuple[str, ...]
    strategy: OrderStrategy

    def to_json(self) -> dict[str, Any]:
        """As plain values, for another machine."""
        return {"columns": list(self.columns), "strategy": self.strategy.value}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "RowOrder":
        """The order that ``to_json`` gave."""
        return cls(columns=tuple(body["columns"]), strategy=OrderStrategy(body["strategy"]))

    @classmethod
    def of(cls, schema: TableSchema, columns: Sequence[str], strategy: str) -> "RowOrder":
        """The order of the rows of a table.

        Raises: InvalidInputError for no, unknown, repeated, nested or too many columns, and unknown strategies.
        """
        names = {each.value for each in OrderStrategy}
        if strategy not in names:
            raise InvalidInputError(f"no such order: order_strategy={strategy} known={' | '.join(sorted(names))}")
        if not columns or len(set(columns)) < len(columns) or len(columns) > _MOST_COLUMNS:
            raise InvalidInputError(
                f"rows are ordered by 1 to {_MOST_COLUMNS} different columns: order_by={','.join(columns)!r} "
                "fix='write order_by => a,b'"
            )
        for name in columns:
            if name not in schema.column_names:
                raise InvalidInputError(
                    f"no such column: order_by={','.join(columns)} column={name} columns={list(schema.column_names)}"
                )
            if name in schema.partition_keys or schema.field(name).type.root in NESTED_ROOTS:
                raise InvalidInputError(
                    f"rows of a partition have no order by this column: order_by={','.join(columns)} column={name} "
                    f"type={schema.field(name).type} partition_columns={list(schema.partition_keys)} "
                    "fix='name other columns'"
                )
        return cls(columns=tuple(columns), strategy=OrderStrategy(strategy))


class RowPlaces:
    """Places of rows, by a sample of them."""

    def __init__(self, order: RowOrder, sample: pa.Table) -> None:
        """``sample`` has the columns of the order, and at least one row."""
        self._order = order
        self._ranks = [_Ranks(one_chunk(sample.column(name))) for name in order.columns]
        self._is_lexical = order.strategy is OrderStrategy.ORDER or len(order.columns) == 1

    def places(self, rows: pa.Table | pa.RecordBatch) -> WordArray:
        """(n,) the place of each row; rows of one place are neighbours unless ``exact_order`` says more."""
        columns = [one_chunk(rows.column(name)) for name in self._order.columns]
        if self._is_lexical:
            return self._lexical(columns)
        bits = min(_RANK_BITS, WORD_BITS // len(columns))
        scaled = [ranks.of(column) for ranks, column in zip(self._ranks, columns, strict=True)]
        coordinates = [
            (values << np.uint64(bits)) // np.uint64(ranks.count)
            for ranks, values in zip(self._ranks, scaled, strict=True)
        ]
        curve = hilbert_places if self._order.strategy is OrderStrategy.HILBERT else z_places
        return curve(coordinates, bits)

    def exact_order(self, rows: pa.Table, places: WordArray) -> IndexArray:
        """(n,) the order of rows that have these places: by the columns themselves where their order is asked for."""
        if not self._is_lexical:
            return np.argsort(places, kind="stable")
        columns = [one_chunk(rows.column(name)) for name in self._order.columns]
        parts = [part for column in columns for part in number_parts_of(column)]
        return stable_order(parts, rows.num_rows, presorted=False)[0]

    def _lexical(self, columns: Sequence[pa.Array]) -> WordArray:
        """A later column counts where the values of all earlier ones are in the sample: else it would mix them."""
        found = np.zeros(len(columns[0]), np.uint64)
        counts = np.ones(len(columns[0]), np.bool_)
        for ranks, column in list(zip(self._ranks, columns, strict=True))[: WORD_BITS // _LEXICAL_BITS]:
            values = ranks.of(column)
            is_known = ranks.is_sampled(column, values)
            found <<= np.uint64(_LEXICAL_BITS)
            found |= np.where(counts, values * np.uint64(2) + is_known.astype(np.uint64), np.uint64(0))
            counts &= is_known
        return found


class _Ranks:
    """How many values of a sample are smaller; null is smaller than every value."""

    def __init__(self, sample: pa.Array) -> None:
        values = sample.drop_null()
        self._is_text = pa.types.is_string(sample.type) or pa.types.is_binary(sample.type)
        self._depth, longest = _common_bytes(values) if self._is_text else (0, 0)
        self._is_exact = longest <= self._depth + 8 and not pa.types.is_decimal(sample.type)
        self._ends: tuple[pa.Scalar, pa.Scalar] | None = None
        if self._is_text and len(values):
            ordered = values.sort()
            self._ends = (ordered[0], ordered[-1])
        self._sorted = np.sort(leading_words(values, self._depth))
        self.count = len(self._sorted) + 2  # ranks are below it

    def of(self, column: pa.Array) -> WordArray:
        """(n,) the rank of each value, below ``count``."""
        words = self._words(column)
        found: WordArray = np.searchsorted(self._sorted, words).astype(np.uint64) + np.uint64(1)
        if self._ends is not None:  # beyond them values do not begin with what the sample has in common
            low, high = self._ends
            found[_mask(pc.less(column, low))] = 1
            found[_mask(pc.greater(column, high))] = self.count - 1
        found[_mask(column.is_null())] = 0
        return found

    def is_sampled(self, column: pa.Array, ranks: WordArray) -> BoolArray:
        """(n,) whether a value is one of the sample; False where that is not known."""
        found = np.zeros(len(column), np.bool_)
        if self._is_exact and len(self._sorted):
            at = np.clip(ranks.astype(np.int64) - 1, 0, len(self._sorted) - 1)
            found = self._sorted[at] == self._words(column)
        found[_mask(column.is_null())] = True
        return found

    def _words(self, column: pa.Array) -> WordArray:
        words = np.zeros(len(column), np.uint64)
        valid = ~_mask(column.is_null())
        words[valid] = leading_words(column.drop_null(), self._depth)
        return words


def _common_bytes(values: pa.Array) -> tuple[int, int]:
    """How many bytes all values begin with, and the length of the longest."""
    if not len(values):
        return 0, 0
    plain = values.cast(pa.binary()).sort()
    low, high = plain[0].as_py(), plain[-1].as_py()
    differing = (at for at, (one, two) in enumerate(zip(low, high, strict=False)) if one != two)
    common = next(differing, min(len(low), len(high)))
    return common, pc.max(pc.binary_length(plain)).as_py()


def _mask(values: pa.Array) -> BoolArray:
    found: BoolArray = values.fill_null(False).to_numpy(zero_copy_only=False)
    return found


# ---- Sorting more rows than fit into memory: a sample, sorted runs in local files, then one range of places at a time
# Of the memory a third is for the rows of a run or a range, the rest for their sorted copy and what reads and writes
# them. Runs are mapped into memory, from files without a name: nothing is left of a process that is killed.


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
    step = max(row_count // _MOST_SAMPLED_ROWS, 1)
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
