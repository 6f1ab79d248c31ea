"""Laws of what lies in a gap of the log, against an oracle that knows what every offset is."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.log.retention import BatchEnds, GapContent, gap_content

law = settings(max_examples=600, deadline=None, derandomize=True)
UNKNOWN = {GapContent.NOT_WHOLE_HISTORY, GapContent.NOT_IN_SNAPSHOTS, GapContent.NOT_IN_LOG}


@dataclass
class Log:
    """A bucket's log, offset by offset, with what retention may remove."""

    kinds: list[str] = field(default_factory=list)
    batches: list[tuple[int, int]] = field(default_factory=list)  # in the log: first offset, and last plus one
    markers: list[tuple[int, int]] = field(default_factory=list)  # end of what has it, and start that it names
    ends: list[int] = field(default_factory=list)  # in snapshots, oldest first

    def add(self, kind: str, count: int) -> int:
        """Append a transaction; gives its first offset."""
        start = len(self.kinds)
        self.kinds += [kind] * count + ["end of a transaction"]
        return start

    def batch(self, rows: int, *, chunks: int = 1) -> None:
        start = len(self.kinds)
        for _ in range(chunks):
            self.add("row", rows)
            self.markers.append((len(self.kinds) - 1, start))
        self.batches.append((start, len(self.kinds) - 1))

    def commit(self) -> None:
        self.ends.append(self.batches[-1][1])

    def content(self, position: int, earliest: int, end: int, *, expired: int = 0, is_eventual: bool) -> GapContent:
        """As a reader finds it: the last marker, the snapshots, and the marker of the batch behind the position."""
        kept = self.ends[expired:]
        ends = BatchEnds.around(position, [*reversed(kept), *([] if expired else [0])])
        left = [each for each in self.markers if each[0] > earliest]
        found = left[-1] if left else None
        if ends.behind is not None and (found is None or found[0] != ends.behind):
            found = next((each for each in left if each[0] == ends.behind), None)
        start = None if found is None else found[1]
        return gap_content(position, min(earliest, end), ends=ends, batch_start=start, is_eventual=is_eventual)


others = st.tuples(st.sampled_from(["aborted", "claim"]), st.integers(1, 3))


@st.composite
def transactional_logs(draw: st.DrawFn) -> tuple[Log, int]:
    """A log whose last batch may be in no snapshot, and how many of the oldest snapshots have expired."""
    log = Log()
    for _ in range(draw(st.integers(0, 4))):
        for kind, count in draw(st.lists(others, max_size=2)):
            log.add(kind, count)
        log.batch(draw(st.integers(1, 4)))
        log.commit()
    if draw(st.booleans()):
        log.batch(draw(st.integers(1, 4)))
    for kind, count in draw(st.lists(others, max_size=2)):
        log.add(kind, count)
    return log, draw(st.integers(0, max(0, len(log.ends) - 1)))


@pytest.mark.sweep
@law
@given(transactional_logs(), st.data())
def test_records_are_lost_if_and_only_if_a_row_is_in_the_gap(made: tuple[Log, int], data: st.DataObject) -> None:
    """FL-98 to FL-100."""
    log, expired = made
    offsets = st.integers(0, len(log.kinds))
    position, earliest, end = (data.draw(offsets) for _ in range(3))
    if data.draw(st.booleans()):
        end = len(log.kinds)
    until = min(earliest, end)
    found = log.content(position, earliest, end, expired=expired, is_eventual=False)
    # a batch of no snapshot that is gone with its marker will be written again, as one that was aborted
    is_void = len(log.batches) > len(log.ends) and log.batches[-1][1] <= earliest
    void = range(*log.batches[-1]) if is_void else range(0)
    rows = [offset for offset in range(position, until) if log.kinds[offset] == "row"]
    if found is GapContent.ROWS:
        assert rows
    elif found is GapContent.NOTHING:
        assert all(offset in void for offset in rows)
    elif found is GapContent.NOT_WHOLE_HISTORY:
        assert expired
        assert position < log.ends[expired]
    else:
        assert found is GapContent.NOT_IN_LOG
        assert end < earliest
        assert not until == position + 1 == position + (position in log.ends)
    if not expired and until == earliest:
        assert found not in UNKNOWN


@st.composite
def eventual_logs(draw: st.DrawFn) -> Log:
    """Batches in chunks, with attempts that died after some of them."""
    log = Log()
    for _ in range(draw(st.integers(0, 4))):
        for kind, count in draw(st.lists(others, max_size=1)):
            log.add(kind, count)
        for _ in range(draw(st.integers(0, 2))):
            log.batch(draw(st.integers(1, 2)), chunks=draw(st.integers(1, 2)))
        if log.batches and draw(st.booleans()):
            log.commit()
    return log


@pytest.mark.sweep
@law
@given(eventual_logs(), st.data())
def test_what_is_visible_before_its_snapshot_is_kept_only_for_certain(log: Log, data: st.DataObject) -> None:
    """FL-58: no silent gap; a stream that has a snapshot exactly needs no commit marker."""
    offsets = st.sampled_from(log.ends) | st.integers(0, len(log.kinds)) if log.ends else st.integers(0, len(log.kinds))
    position, end = data.draw(offsets), len(log.kinds)
    earliest = min(end, position + data.draw(st.integers(1, 4)))
    found = log.content(position, earliest, end, is_eventual=True)
    rows = [offset for offset in range(position, earliest) if log.kinds[offset] == "row"]
    assert not (found is GapContent.NOTHING and rows)
    assert not (found is GapContent.ROWS and not rows)
    if position in log.ends and earliest == position + 1 and not rows:
        assert found is GapContent.NOTHING


@pytest.mark.parametrize("is_eventual", [False, True])
def test_a_reader_behind_the_first_offset_has_lost_nothing(is_eventual: bool) -> None:
    for position in (4, 5):
        assert Log().content(position, 4, 9, is_eventual=is_eventual) is GapContent.NOTHING


@pytest.mark.parametrize(
    ("earliest", "end", "wanted"),
    [
        (5, 99, GapContent.NOTHING),  # the commit marker of the batch before
        (8, 99, GapContent.NOTHING),  # and all aborted rows
        (9, 99, GapContent.ROWS),
        (11, 99, GapContent.ROWS),
        (14, 99, GapContent.ROWS),
        (14, 9, GapContent.NOT_IN_LOG),
        (14, 5, GapContent.NOTHING),
    ],
)
def test_a_batch_begins_where_its_marker_says(earliest: int, end: int, wanted: GapContent) -> None:
    log = Log()
    log.batch(4)  # 0..4, marker at 4
    log.commit()
    log.add("aborted", 2)  # 5, 6, marker at 7
    log.batch(3)  # 8..11, marker at 11
    log.commit()
    log.batch(1)
    assert log.ends == [4, 11]
    assert log.content(4, earliest, end, is_eventual=False) is wanted


def test_snapshots_that_have_expired_are_missed() -> None:
    log = Log()
    for _ in range(3):
        log.batch(1)
        log.commit()
    assert log.ends == [1, 3, 5]
    assert log.content(1, 4, 6, expired=1, is_eventual=False) is GapContent.ROWS  # all the same
    assert log.content(1, 2, 6, is_eventual=False) is GapContent.NOTHING
    assert log.content(1, 2, 6, expired=1, is_eventual=False) is GapContent.NOT_WHOLE_HISTORY


def test_the_ends_around_a_position_are_looked_for_no_further_than_needed() -> None:
    def newest_first() -> object:
        yield from (9, 9, 7, 4)
        raise AssertionError("one too many")

    assert BatchEnds.around(4, newest_first()) == BatchEnds(before=4, behind=7)  # type: ignore[arg-type]
    assert BatchEnds.around(9, [9, 3]) == BatchEnds(before=9, behind=None)
    assert BatchEnds.around(2, [9, 3]) == BatchEnds(before=None, behind=3)
