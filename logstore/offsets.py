"""Positions in a table's log. An offset is always the *next* one to read or write: the last record's plus one.

A bucket without an entry has no records of the table yet.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lsm.errors import CorruptDataError


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """The records of one bucket in ``[start_offset, end_offset)``; control records leave gaps."""

    bucket: int
    start_offset: int
    end_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.start_offset <= self.end_offset:
            raise CorruptDataError(
                f"range of a log is reversed: bucket={self.bucket} start_offset={self.start_offset}"
                f" end_offset={self.end_offset}"
            )

    @property
    def is_empty(self) -> bool:
        """True when the range contains no offsets."""
        return self.start_offset == self.end_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """The records that one batch wrote into one bucket."""

    start_offset: int  # offset of the first record
    end_offset: int  # offset of the last record, plus one
    row_count: int  # less than end - start when a slice took several transactions


class LogOffsets(Mapping[int, int]):
    """The next offset of every bucket with records: an immutable mapping ordered by bucket.

    Partially ordered like vector clocks: see `is_at_or_after`.
    """

    __slots__ = ("_next_offset_by_bucket",)

    def __init__(self, next_offset_by_bucket: Mapping[int, int] | None = None) -> None:
        checked = dict(sorted((next_offset_by_bucket or {}).items()))
        for bucket, offset in checked.items():
            if bucket < 0 or offset < 0:
                raise CorruptDataError(f"log offset is negative: bucket={bucket} offset={offset}")
        self._next_offset_by_bucket = checked

    def __getitem__(self, bucket: int) -> int:
        return self._next_offset_by_bucket[bucket]

    def __iter__(self) -> Iterator[int]:
        return iter(self._next_offset_by_bucket)

    def __len__(self) -> int:
        return len(self._next_offset_by_bucket)

    def __hash__(self) -> int:
        return hash(tuple(self._next_offset_by_bucket.items()))

    def __repr__(self) -> str:
        return f"LogOffsets({self._next_offset_by_bucket})"

    def is_at_or_after(self, other: Mapping[int, int]) -> bool:
        """True when no bucket of `other` is ahead or missing here."""
        return all(self.get(bucket, -1) >= offset for bucket, offset in other.items())

    def is_at(self, other: Mapping[int, int]) -> bool:
        """True when both are the same place; a bucket without an entry is at 0."""
        return all(self.get(bucket, 0) == other.get(bucket, 0) for bucket in {*self, *other})

    def advanced(self, newer: Mapping[int, int]) -> "LogOffsets":
        """These offsets updated with those of `newer`; other buckets do not change.

        Raises:
            CorruptDataError: a bucket would move backwards: the two states belong to different logs.
        """
        for bucket, offset in newer.items():
            if offset < self.get(bucket, 0):
                raise CorruptDataError(
                    f"log offset moves backwards: bucket={bucket} from={self[bucket]} to={offset}"
                    " cause=the topic was recreated, or two writers disagree"
                )
        return LogOffsets({**self, **newer})

    def joined(self, other: Mapping[int, int]) -> "LogOffsets":
        """The least upper bound: for every bucket of either the higher offset."""
        return LogOffsets({each: max(self.get(each, 0), other.get(each, 0)) for each in {*self, *other}})

    def ranges_until(self, end: Mapping[int, int]) -> tuple[LogRange, ...]:
        """The ranges written from here to `end`: one non-empty range per advanced bucket, by bucket.

        A bucket only in `end` starts at 0.

        Raises:
            CorruptDataError: a bucket of `end` is before this position.
        """
        advanced = self.advanced(end)
        starts = ((bucket, self.get(bucket, 0), offset) for bucket, offset in advanced.items())
        return tuple(
            LogRange(bucket=bucket, start_offset=start, end_offset=offset)
            for bucket, start, offset in starts
            if start < offset
        )
