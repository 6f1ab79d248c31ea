"""Small writes that wait to be committed together, with their numbers: no clock, no thread, no table."""

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa

from engine.request.commit_handle import CommitHandle
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SmallWrite:
    """Rows of one call."""

    number: int
    rows: pa.RecordBatch  # (n,) the table's columns and _row_kind
    done: Future[CommitHandle]
    since_s: float  # when it came


@dataclass(slots=True, kw_only=True)
class WriteQueue:
    """The writes of one writer in the order of their numbers. Not thread-safe."""

    last_number: int  # newest committed
    half_done: int = 0  # of an earlier run, see ``half_done_number``
    waiting: deque[SmallWrite] = field(default_factory=deque)
    row_count: int = 0
    size_bytes: int = 0
    _open: dict[int, SmallWrite] = field(default_factory=dict)  # not answered
    _refused: set[int] = field(default_factory=set)
    _highest: int = 0

    @property
    def next_number(self) -> int:
        """The number for a write that was given none."""
        return max(self._highest, self.last_number, self.half_done) + 1

    def known(self, number: int) -> SmallWrite | int | None:
        """What became of a number: its write if it is not answered yet, the number itself when it is committed.

        Raises: InvalidInputError: it was refused, or a later one came first.
        """
        if number in self._open:
            return self._open[number]
        if number in self._refused:
            raise InvalidInputError(
                f"the number was refused, and is used up: number={number} fix=give corrected rows the next number"
            )
        if number <= self.last_number:
            return number
        if number < self._highest:
            raise InvalidInputError(
                f"numbers of a writer rise: number={number} newest={self._highest} "
                "fix='write in the order of the numbers, from one place for each name'"
            )
        return None

    def add(self, write: SmallWrite) -> None:
        """Take a write whose number is not known. Raises: InvalidInputError: an earlier run's commit comes first."""
        if self.half_done and write.number > self.half_done and self.half_done not in self._open:
            raise InvalidInputError(
                f"an earlier run's commit is half done: number={write.number} half_done={self.half_done} "
                f"last_number={self.last_number} fix='write again what was not acknowledged, up to that number, first'"
            )
        self.waiting.append(write)
        self._open[write.number] = write
        self._highest = write.number
        self.row_count += write.rows.num_rows
        self.size_bytes += write.rows.nbytes

    def due_s(self, *, max_rows: int, max_bytes: int, max_delay_s: float, is_flush: bool) -> float | None:
        """When the next commit is due, by the clock of the writes; None: not before another write comes."""
        if not self.waiting:
            return None
        if self.half_done:
            return 0.0 if self.half_done in self._open else None
        if is_flush or self.row_count >= max_rows or self.size_bytes >= max_bytes:
            return 0.0
        return self.waiting[0].since_s + max_delay_s

    def take(self, *, max_rows: int, max_bytes: int) -> list[SmallWrite]:
        """The writes of the next commit: one at least, within the limits; a half done one exactly."""
        taken: list[SmallWrite] = []
        rows = size = 0
        while self.waiting:
            first = self.waiting[0]
            rows, size = rows + first.rows.num_rows, size + first.rows.nbytes
            is_full = first.number > self.half_done if self.half_done else rows > max_rows or size > max_bytes
            if taken and is_full:
                break
            taken.append(self.waiting.popleft())
            self.row_count -= first.rows.num_rows
            self.size_bytes -= first.rows.nbytes
        return taken

    def put_back(self, writes: list[SmallWrite]) -> None:
        """Writes that were taken are to be committed in another grouping."""
        self.waiting.extendleft(reversed(writes))
        self.row_count += sum(each.rows.num_rows for each in writes)
        self.size_bytes += sum(each.rows.nbytes for each in writes)

    def committed(self, writes: list[SmallWrite]) -> None:
        """Taken writes are in the table."""
        self.last_number = max(self.last_number, writes[-1].number)
        self.half_done = 0
        for each in writes:
            self._open.pop(each.number, None)

    def refused(self, write: SmallWrite) -> None:
        """A taken write cannot be committed, and nothing of it is visible."""
        self._open.pop(write.number, None)
        self._refused.add(write.number)

    def unanswered(self) -> Mapping[int, SmallWrite]:
        """All that is not answered, taken or not."""
        return dict(self._open)
