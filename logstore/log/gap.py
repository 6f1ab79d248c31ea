"""Decides whether a gap in a bucket's offsets, whose records were removed, contained rows of the table. Pure.

Commit markers, aborted rows, their abort markers, and records of other programs take offsets too. So a reader whose
next record was removed has lost data only if the gap contained a committed row:

* The end of a batch, which snapshots record, has the batch's last row directly before it, and its commit marker at it.
* A writer begins a batch when every earlier one is in a snapshot. So in transactional mode the first batch behind a
  position ends at the next snapshot's offset; or it is the only one that no snapshot has yet, and the last of the log.
  Its marker has its start. A batch that retention removed before its commit counts as aborted: it is written again.
* In eventual mode there are visible rows of batches that no snapshot has, any number of them: only the commit marker
  behind a snapshot's offset is known to be no row.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class GapContent(Enum):
    """The content of a gap."""

    NOTHING = "nothing"
    ROWS = "rows"
    NOT_WHOLE_HISTORY = "not-whole-history"  # not known: the snapshots that would show it have expired
    NOT_IN_SNAPSHOTS = "not-in-snapshots"  # not known: rows are visible before a snapshot has them
    NOT_IN_LOG = "not-in-log"  # not known: the batch behind the gap is gone as well, with its start


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnds:
    """The ends of batches around a position, by the table's snapshots."""

    before: int | None  # the last one at or before the position; 0: none; None: its snapshots have expired
    behind: int | None  # the first one behind the position; None: none

    @classmethod
    def around(cls, position: int, newest_first: Iterable[int]) -> "BatchEnds":
        """The ends around a position.

        Args:
            position: next offset of a reader.
            newest_first: a bucket's offsets in the snapshots; 0 at last if no snapshot has expired. Consumed lazily.
        """
        behind = None
        for end in newest_first:
            if end <= position:
                return cls(before=end, behind=behind)
            behind = end
        return cls(before=None, behind=behind)


def gap_content(
    position: int, until: int, *, ends: BatchEnds, batch_start: int | None, is_eventual: bool
) -> GapContent:
    """The content of ``[position, until)`` of a bucket's log.

    Args:
        position: next offset of a reader.
        until: end of the gap, exclusive.
        ends: of the batches around the position.
        batch_start: the first offset of the first batch behind the position, by its marker: the batch that ends at
            ``ends.behind``, or else the last one of the log. None: its marker was removed, or there is no batch.
        is_eventual: rows are visible before a snapshot has them.
    """
    if until <= position:
        return GapContent.NOTHING
    if ends.behind is not None and ends.behind <= until:
        return GapContent.ROWS
    if 0 < position == ends.before == until - 1:
        return GapContent.NOTHING  # the commit marker
    if is_eventual:
        return GapContent.NOT_IN_SNAPSHOTS
    if batch_start is not None and batch_start < until:
        return GapContent.ROWS
    if ends.before is None:
        return GapContent.NOT_WHOLE_HISTORY
    if ends.behind is not None and batch_start is None:
        return GapContent.NOT_IN_LOG
    return GapContent.NOTHING
