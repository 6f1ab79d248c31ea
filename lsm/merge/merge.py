"""The merge of sorted runs, section by section, shared by reads and compactions.

Every open run buffers a few batches. The smallest of their last keys is the *cut*: all rows up to it are buffered, so
they can be ordered and merged as columns, and freed. Memory is bounded by the size of a section, in rows and in bytes,
and one batch of each run that is being read.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from lsm.byte_sizes import release_after
from lsm.keys.key_groups import one_chunk
from lsm.keys.keys import KeyTuple, key_at, key_order, newest_last, rows_before
from lsm.merge.merge_function import MergeFunction

SECTION_ROWS: Final = 131_072
SECTION_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """A sorted run to read: batches in key order, every key once."""

    min_key: KeyTuple | None  # the run is opened only when the merge reaches this key; None: at once
    open: Callable[[], Iterator[pa.RecordBatch]]


def merge_runs(
    runs: Sequence[RunSource],
    *,
    key_names: Sequence[str],
    merge: MergeFunction,
    sequence_names: Sequence[str] = (),
    sequence_descending: bool = False,
    drop_deletes: bool,
    section_rows: int = SECTION_ROWS,
    section_bytes: int = SECTION_BYTES,
) -> Iterator[pa.Table]:
    """Merge runs into one sequence of tables in key order, every key at most once.

    Args:
        runs: oldest first, for speed only: the rows decide recency. Batches hold the requested value columns
            (including keys and sequence fields), ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND``; one schema for
            all.
        key_names: the key columns, most significant first.
        merge: folds rows of one key.
        sequence_names: columns that decide which row is newer, before the sequence number.
        sequence_descending: smaller values of these columns are newer.
        drop_deletes: drop keys that merge to a retract.
        section_rows: approximate number of rows to order at a time.
        section_bytes: approximate size of these rows; a merge needs some times as much.

    Yields:
        Non-empty tables with the schema of the batches.
    """
    for section in _sections(runs, key_names, _Amount(section_rows, section_bytes)):
        if len(section) == 1:
            for batch in section[0]:
                table = merge.single(pa.Table.from_batches([batch]), drop_deletes=drop_deletes)
                if table.num_rows:
                    yield table
            continue
        rows = pa.Table.from_batches([batch for batches in section for batch in batches])
        del section  # nor are its rows kept while those of the next one are read
        row_bytes = rows.nbytes / rows.num_rows
        order, starts = key_order([one_chunk(rows.column(name)) for name in key_names], presorted=True)
        order = newest_last(rows, order, starts, sequence_names, descending=sequence_descending)
        table = merge.merge(rows, order, starts, drop_deletes=drop_deletes)
        del rows
        if table.num_rows:
            yield table
        del table
        release_after(row_bytes)


class _Amount(NamedTuple):
    """A number of rows, and their size in memory."""

    rows: int
    size_bytes: int

    def part_of(self, whole: "_Amount") -> float:
        """How much of the whole this is, by what there is more of."""
        return max(self.rows / whole.rows, self.size_bytes / whole.size_bytes)


class _Pending(NamedTuple):
    """A batch that was read and not yet taken."""

    batch: pa.RecordBatch
    last_key: KeyTuple
    amount: _Amount


class _Run:
    """An open run with its pending batches: those read and not yet taken."""

    def __init__(self, index: int, source: RunSource, key_names: Sequence[str]) -> None:
        self.index = index
        self._batches = source.open()
        self._key_names = key_names
        self._pending: deque[_Pending] = deque()
        self.row_count = 0
        self.is_exhausted = False
        self.feed()

    @property
    def last_key(self) -> KeyTuple:
        """The greatest pending key."""
        return self._pending[-1].last_key

    def feed(self) -> None:
        """Read one more batch, or set `is_exhausted`."""
        for batch in self._batches:
            if batch.num_rows:
                last_key = key_at(self._key_columns(batch), batch.num_rows - 1)
                self._pending.append(_Pending(batch, last_key, _Amount(batch.num_rows, batch.nbytes)))
                self.row_count += batch.num_rows
                return
        self.is_exhausted = True

    def _key_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(name) for name in self._key_names]

    def count_before(self, key: KeyTuple, *, inclusive: bool) -> int:
        """Number of pending rows before a key; with `inclusive`, also those equal to it."""
        count = 0
        for batch, last_key, _ in self._pending:
            if last_key < key or (inclusive and last_key == key):
                count += batch.num_rows
                continue
            return count + rows_before(self._key_columns(batch), key, inclusive=inclusive)
        return count

    def estimate_until(self, key: KeyTuple) -> _Amount:
        """Approximate amount of pending rows up to a key, counting half of the batch that contains it."""
        rows, size_bytes = 0, 0
        for _, last_key, amount in self._pending:
            if last_key > key:
                return _Amount(rows + amount.rows // 2, size_bytes + amount.size_bytes // 2)
            rows, size_bytes = rows + amount.rows, size_bytes + amount.size_bytes
        return _Amount(rows, size_bytes)

    def first(self, count: int) -> _Amount:
        """The first `count` pending rows; of the batch that holds the last one, by its average row."""
        left, size_bytes = count, 0
        for _, _, amount in self._pending:
            if amount.rows >= left:
                return _Amount(count, size_bytes + amount.size_bytes * left // amount.rows)
            left, size_bytes = left - amount.rows, size_bytes + amount.size_bytes
        return _Amount(count, size_bytes)

    def key_of(self, row_index: int) -> KeyTuple:
        """The key of a pending row."""
        batches = (each.batch for each in self._pending)
        batch = next(batches)
        while row_index >= batch.num_rows:
            row_index -= batch.num_rows
            batch = next(batches)
        return key_at(self._key_columns(batch), row_index)

    def take(self, count: int) -> list[pa.RecordBatch]:
        """Remove and return the first `count` pending rows."""
        taken: list[pa.RecordBatch] = []
        self.row_count -= count
        while count:
            batch, last_key, amount = self._pending.popleft()
            if batch.num_rows > count:
                left = batch.num_rows - count  # by its average row: to measure a slice costs as much as to search it
                rest = _Amount(left, amount.size_bytes * left // batch.num_rows)
                self._pending.appendleft(_Pending(batch.slice(count), last_key, rest))
                batch = batch.slice(0, count)
            taken.append(batch)
            count -= batch.num_rows
        return taken


def _sections(
    runs: Sequence[RunSource], key_names: Sequence[str], most: _Amount
) -> Iterator[list[list[pa.RecordBatch]]]:
    """Batches of the runs, cut at the same keys: one list per run with rows in the section, oldest run first."""
    waiting = deque(
        sorted(
            ((index, run) for index, run in enumerate(runs) if run.min_key is not None),
            key=lambda item: (item[1].min_key, item[0]),
        )
    )
    active = [_Run(index, run, key_names) for index, run in enumerate(runs) if run.min_key is None]
    while waiting or active:
        active = [run for run in active if run.row_count]
        if not active:
            if waiting:
                active.append(_Run(*waiting.popleft(), key_names))
            continue
        if len(active) == 1:
            # No other run has these keys, up to where the next run begins: pass them on as read.
            run = active[0]
            until = waiting[0][1].min_key if waiting else None
            count = run.row_count if until is None else run.count_before(until, inclusive=False)
            if count:
                yield [run.take(count)]
                if run.row_count == 0:
                    run.feed()
                continue
        cut = _cut(active, waiting, key_names, most)
        counts = {run.index: run.count_before(cut, inclusive=True) for run in active}
        share = _total(run.first(counts[run.index]) for run in active).part_of(most)
        if share > 2:
            # Batches are larger than a section: cut where the largest contributor has reached its share.
            largest = max(active, key=lambda run: counts[run.index])
            cut = largest.key_of(max(int(counts[largest.index] / share) - 1, 0))
            counts = {run.index: run.count_before(cut, inclusive=True) for run in active}
        yield [run.take(counts[run.index]) for run in active if counts[run.index]]
        for run in active:
            if run.row_count == 0 and not run.is_exhausted:
                run.feed()


def _cut(
    active: list[_Run], waiting: "deque[tuple[int, RunSource]]", key_names: Sequence[str], most: _Amount
) -> KeyTuple:
    """The greatest key up to which every run has been read, after reading a section's worth of rows."""
    while True:
        growing = [run for run in active if not run.is_exhausted]
        limit = min(growing, key=lambda run: run.last_key) if growing else None
        cut = limit.last_key if limit else max(run.last_key for run in active)
        next_min_key = waiting[0][1].min_key if waiting else None
        if next_min_key is not None and next_min_key <= cut:
            opened = _Run(*waiting.popleft(), key_names)
            if opened.row_count:
                insort(active, opened, key=lambda run: run.index)
        elif limit is not None and _total(run.estimate_until(cut) for run in active).part_of(most) < 1:
            limit.feed()
        else:
            return cut


def _total(amounts: Iterable[_Amount]) -> _Amount:
    rows, size_bytes = (sum(each) for each in zip(*amounts, strict=True))
    return _Amount(rows, size_bytes)
