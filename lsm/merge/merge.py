"""The merge of sorted runs, section by section: what reading and compacting have in common.

Every open run keeps a few batches. The smallest of their last keys is the *cut*: all rows up to it are there, so they
can be ordered and merged as columns, and forgotten. Memory is bounded by the size of a section and one batch of each
run whose range is being read.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lsm.keys.key_groups import one_chunk
from lsm.keys.keys import KeyTuple, key_at, key_order, newest_last, rows_before
from lsm.merge.merge_function import MergeFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """A sorted run to read: batches in key order, every key once."""

    min_key: KeyTuple | None  # the run is not opened before its turn; None: it is opened at once
    open: Callable[[], Iterator[pa.RecordBatch]]


def merge_runs(
    runs: Sequence[RunSource],
    *,
    key_names: Sequence[str],
    merge: MergeFunction,
    sequence_names: Sequence[str] = (),
    sequence_descending: bool = False,
    drop_deletes: bool,
    section_rows: int = 131072,
) -> Iterator[pa.Table]:
    """Merge runs into one sequence of tables in key order, every key at most once.

    Args:
        runs: oldest first, which only makes it faster: recency is decided by the rows. Batches hold the value columns
            asked for (keys and sequence fields among them), ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND``; one schema for
            all.
        key_names: the key columns, most significant first.
        merge: folds rows of one key.
        sequence_names: columns that decide which row is newer, before the sequence number does.
        sequence_descending: of these columns the smaller value is newer.
        drop_deletes: leave out keys whose newest state is a retract.
        section_rows: how many rows to order at a time, about.

    Yields:
        Tables of the schema of the batches, none of them empty.
    """
    for section in _sections(runs, key_names, section_rows):
        if len(section) == 1:
            for batch in section[0]:
                table = merge.single(pa.Table.from_batches([batch]), drop_deletes=drop_deletes)
                if table.num_rows:
                    yield table
            continue
        rows = pa.Table.from_batches([batch for batches in section for batch in batches])
        order, starts = key_order([one_chunk(rows.column(name)) for name in key_names], presorted=True)
        order = newest_last(rows, order, starts, sequence_names, descending=sequence_descending)
        table = merge.merge(rows, order, starts, drop_deletes=drop_deletes)
        if table.num_rows:
            yield table


class _Run:
    """An open run: batches that were read and not yet handed out."""

    def __init__(self, index: int, source: RunSource, key_names: Sequence[str]) -> None:
        self.index = index
        self._batches = source.open()
        self._key_names = key_names
        self._pending: deque[tuple[pa.RecordBatch, KeyTuple]] = deque()  # each with its last key
        self.row_count = 0
        self.is_exhausted = False
        self.feed()

    @property
    def last_key(self) -> KeyTuple:
        """The greatest key that was read and not handed out."""
        return self._pending[-1][1]

    def feed(self) -> None:
        """Read one more batch, or find that there is none."""
        for batch in self._batches:
            if batch.num_rows:
                self._append(batch)
                return
        self.is_exhausted = True

    def _append(self, batch: pa.RecordBatch) -> None:
        self._pending.append((batch, key_at(self._key_columns(batch), batch.num_rows - 1)))
        self.row_count += batch.num_rows

    def _key_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(name) for name in self._key_names]

    def count_before(self, key: KeyTuple, *, inclusive: bool) -> int:
        """How many pending rows come before a key."""
        count = 0
        for batch, last_key in self._pending:
            if last_key < key or (inclusive and last_key == key):
                count += batch.num_rows
                continue
            return count + rows_before(self._key_columns(batch), key, inclusive=inclusive)
        return count

    def guess_until(self, key: KeyTuple) -> int:
        """About how many pending rows come up to a key: of the batch that it falls into, half."""
        count: int = 0
        for batch, last_key in self._pending:
            if last_key > key:
                return count + int(batch.num_rows) // 2
            count += int(batch.num_rows)
        return count

    def key_of(self, row_index: int) -> KeyTuple:
        """The key of a pending row."""
        batches = (batch for batch, _ in self._pending)
        batch = next(batches)
        while row_index >= batch.num_rows:
            row_index -= batch.num_rows
            batch = next(batches)
        return key_at(self._key_columns(batch), row_index)

    def hand_out(self, count: int) -> list[pa.RecordBatch]:
        """Give away the first `count` pending rows."""
        taken: list[pa.RecordBatch] = []
        self.row_count -= count
        while count:
            batch, last_key = self._pending.popleft()
            if batch.num_rows > count:
                self._pending.appendleft((batch.slice(count), last_key))
                batch = batch.slice(0, count)
            taken.append(batch)
            count -= batch.num_rows
        return taken


def _sections(
    runs: Sequence[RunSource], key_names: Sequence[str], section_rows: int
) -> Iterator[list[list[pa.RecordBatch]]]:
    """Batches of the runs, cut at the same keys: a list per run that has rows in the section, oldest run first."""
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
            # Nobody else has these keys, up to where the next run begins: hand them out as they were read.
            run = active[0]
            until = waiting[0][1].min_key if waiting else None
            count = run.row_count if until is None else run.count_before(until, inclusive=False)
            if count:
                yield [run.hand_out(count)]
                if run.row_count == 0:
                    run.feed()
                continue
        cut = _cut(active, waiting, key_names, section_rows)
        counts = {run.index: run.count_before(cut, inclusive=True) for run in active}
        total = sum(counts.values())
        if total > 2 * section_rows:
            # Batches are larger than a section: cut where the largest contributor has given its share.
            largest = max(active, key=lambda run: counts[run.index])
            cut = largest.key_of(max(counts[largest.index] * section_rows // total - 1, 0))
            counts = {run.index: run.count_before(cut, inclusive=True) for run in active}
        yield [run.hand_out(counts[run.index]) for run in active if counts[run.index]]
        for run in active:
            if run.row_count == 0 and not run.is_exhausted:
                run.feed()


def _cut(
    active: list[_Run], waiting: "deque[tuple[int, RunSource]]", key_names: Sequence[str], section_rows: int
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
        elif limit is not None and sum(run.guess_until(cut) for run in active) < section_rows:
            limit.feed()
        else:
            return cut
