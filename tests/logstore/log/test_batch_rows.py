"""Exactly a table's rows are kept of any log: by markers, by snapshots where those are gone, in bounded memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from logstore.log.batch_rows import BatchRows, Decided, decided_ahead, own_marker
from logstore.log.control_record import HEADER
from logstore.log.log_reader import _of_table
from logstore.log.marker import CommitMarker, encode_marker
from logstore.log.marker_key import MarkerKey

KEY = MarkerKey(secret=b"k" * 32, place="here")


@dataclass
class Topic:
    """A bucket as it is written; what is in it is known from who wrote it."""

    headers: dict[int, bytes | None] = field(default_factory=dict)  # of records, by offset
    strangers: set[int] = field(default_factory=set)
    ends: list[int] = field(default_factory=list)  # of snapshots
    known_end: int = 0  # what a writer finds at its fence
    next_offset: int = 0
    batches: int = 0
    newest: bytes = b""

    def put(self, header: bytes | None = None, *, is_strange: bool = False) -> None:
        self.headers[self.next_offset] = header
        if is_strange:
            self.strangers.add(self.next_offset)
        self.next_offset += 1

    def intrude(self, how: str) -> None:
        forged = partial(
            encode_marker, query="q", batch=9, row_count=1, start_offset=None, is_final=True, payload=b"",
            is_pointer=False, table_id="t", after=self.known_end, bucket=0,
        )  # fmt: skip
        other = MarkerKey(secret=b"o" * 32, place="a stranger's")
        header = {
            "unsigned": lambda: forged(end_offset=self.next_offset + 1),
            "signed by another": lambda: forged(end_offset=self.next_offset + 1, key=other),
            "a copy": lambda: self.newest,
        }.get(how, lambda: None)()
        self.put(header, is_strange=True)

    def batch(self, chunks: list[int], intruders: list[str], *, is_final: bool = True) -> None:
        """With what strangers put behind the fence of its writer."""
        for how in intruders:
            self.intrude(how)
        start, rows, after = None, 0, self.known_end
        self.batches += 1
        for place, count in enumerate(chunks):
            first = self.next_offset
            for _ in range(count - 1):
                self.put()
            rows += count
            self.newest = encode_marker(
                query="q", batch=self.batches, row_count=rows, start_offset=start, payload=b"", is_pointer=False,
                is_final=is_final and place == len(chunks) - 1, table_id="t", end_offset=self.next_offset + 1,
                after=after, key=KEY, bucket=0,
            )  # fmt: skip
            self.put(self.newest)
            start = first if start is None else start
            self.known_end = self.next_offset
            self.next_offset += 1
        if is_final:
            self.ends.append(self.known_end)

    def other_engine(self, rows: int) -> None:
        for _ in range(rows):
            self.put()
        self.known_end = self.next_offset
        self.ends.append(self.known_end)
        self.next_offset += 1

    def compact(self, gone: set[int]) -> None:
        self.headers = {offset: header for offset, header in self.headers.items() if offset not in gone}


def kept(topic: Topic, start: int, end: int, step: int) -> list[int]:
    marker_at = partial(own_marker, bucket=0, table_id="t", key=KEY)

    def markers(first: int, until: int) -> Iterator[CommitMarker | None]:
        for offset, header in topic.headers.items():
            if first <= offset < until and header is not None:
                yield marker_at(header, offset)

    def look_ahead(offset: int) -> Decided:
        behind = next((each for each in topic.ends if each > offset), None)
        return decided_ahead(offset, end=behind, markers=markers, log_end=lambda: topic.next_offset)

    messages = [
        Message(topic="t", partition=0, offset=offset, value=b"v", headers=None if not header else [(HEADER, header)])
        for offset, header in topic.headers.items()
        if start <= offset < end
    ]
    lists = (messages[at : at + step] for at in range(0, len(messages), step))
    rows = BatchRows(marker_at=marker_at, look_ahead=look_ahead)
    found = [each for batch in _of_table(lists, ("offset",), 3, 1 << 20, rows) for each in batch["offset"].to_pylist()]
    assert rows.left_out == len(messages) - len(found)
    return found


COUNTS = st.integers(1, 6)
INTRUDERS = st.lists(st.sampled_from(["plain", "unsigned", "signed by another", "a copy"]), max_size=2)
DEEDS = st.one_of(
    st.tuples(st.just("batch"), st.tuples(st.lists(COUNTS, min_size=1, max_size=3), INTRUDERS)),
    st.tuples(st.just("dies"), st.tuples(st.lists(COUNTS, min_size=1, max_size=2), INTRUDERS)),
    st.tuples(st.just("aborted"), COUNTS),
    st.tuples(st.just("other engine"), COUNTS),
)


def topic_after(deeds: list[tuple[str, object]]) -> Topic:
    topic = Topic()
    topic.batch([1], [])
    for deed, how in deeds:
        match deed, how:
            case "batch" | "dies", (chunks, intruders):
                topic.batch(chunks, intruders, is_final=deed == "batch")
            case "other engine", int(rows):
                topic.other_engine(rows)
            case _, int(count):
                topic.next_offset += count
    return topic


@given(
    deeds=st.lists(DEEDS, max_size=7),
    intruders=INTRUDERS,
    step=st.integers(1, 9),
    share=st.tuples(*[st.floats(0, 1)] * 2),
)
def test_a_range_has_the_tables_rows_and_no_others(
    deeds: list[tuple[str, object]], intruders: list[str], step: int, share: tuple[float, float]
) -> None:
    topic = topic_after(deeds)
    for how in intruders:
        topic.intrude(how)  # no batch is behind them
    start, end = (round(each * topic.next_offset) for each in sorted(share))
    expected = [each for each in topic.headers if start <= each < end and each not in topic.strangers]
    assert kept(topic, start, end, step) == expected


@given(deeds=st.lists(DEEDS, max_size=7), step=st.integers(1, 9), expired=st.integers(0, 5), gone=st.sets(COUNTS))
def test_no_row_of_the_table_is_lost_where_snapshots_expired_or_the_topic_is_compacted(
    deeds: list[tuple[str, object]], step: int, expired: int, gone: set[int]
) -> None:
    topic = topic_after(deeds)
    topic.ends = topic.ends[expired:] or topic.ends[-1:]  # the newest never expires
    topic.compact({each * 3 for each in gone if each * 3 < topic.known_end - 1})  # nor is the last record removed
    found = kept(topic, 0, topic.known_end, step)
    assert set(found) >= topic.headers.keys() - topic.strangers
    if not gone:
        assert not topic.strangers.intersection(found)
