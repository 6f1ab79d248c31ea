"""Records of other programs among a table's: ``verify --rows`` counts them, exactly."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Catalog
from engine.broker.broker import Broker
from engine.log.log_faults import strange_runs
from engine.procedures import verify
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.log import log_writer
from logstore.log.control_record import encode_genesis
from logstore.log.log_writer import BucketLogWriter
from logstore.log.marker import encode_marker
from logstore.log.marker_key import MarkerKey
from tests.support.rows import id_rows
from tests.support.warehouses import new_table

KEY = MarkerKey(secret=b"k" * 32, place="here")
SCHEMA = pa.schema(
    {"offset": pa.int64(), "key": pa.binary(), "value": pa.binary(), "marker": pa.binary()}  # as the reader gives them
)


@dataclass
class WholeLog:
    """A bucket's log as it is written, and the offsets that are no row of a batch."""

    records: list[dict[str, Any]] = field(default_factory=list)
    strange: list[int] = field(default_factory=list)
    next_offset: int = 0
    batch_end: int = 0  # what a writer finds

    def put(self, header: bytes | None = None, *, strange: bool = False, value: bytes | None = b"v") -> None:
        self.records.append({"offset": self.next_offset, "key": None, "value": value, "marker": header})
        if strange:
            self.strange.append(self.next_offset)
        self.next_offset += 1

    def batch(self, number: int, chunks: list[int], *, key: MarkerKey | None, is_final: bool = True) -> None:
        """One transaction for each chunk, and Kafka's own record behind it."""
        start, rows, after = None, 0, self.batch_end
        for place, count in enumerate(chunks):
            first = self.next_offset
            for _ in range(count - 1):
                self.put()
            rows += count
            self.put(
                encode_marker(
                    query="q", batch=number, row_count=rows, start_offset=start, payload=b"", is_pointer=False,
                    is_final=is_final and place == len(chunks) - 1, table_id="t", end_offset=self.next_offset + 1,
                    after=after, key=key, bucket=0,
                )
            )  # fmt: skip
            start = first if start is None else start
            self.batch_end = self.next_offset
            self.next_offset += 1


DEEDS = st.one_of(
    st.tuples(st.just("batch"), st.lists(st.integers(1, 4), min_size=1, max_size=3)),
    st.tuples(st.just("dies"), st.lists(st.integers(1, 4), min_size=1, max_size=2)),
    st.tuples(st.just("stranger"), st.integers(1, 3)),
    st.tuples(st.just("forged"), st.integers(1, 3)),
    st.tuples(st.just("copied"), st.just(0)),
    st.tuples(st.just("note"), st.just(0)),
    st.tuples(st.just("aborted"), st.integers(1, 3)),
)


@given(deeds=st.lists(DEEDS, max_size=8), step=st.integers(1, 9), cut=st.integers(0, 9))
def test_exactly_the_records_outside_of_batches_are_found(deeds: list[Any], step: int, cut: int) -> None:
    log = WholeLog()
    log.batch(0, [1], key=KEY)
    newest = log.records[-1]["marker"]
    for number, (deed, given_) in enumerate(deeds):
        match deed:
            case "batch" | "dies":
                log.batch(number, given_, key=KEY, is_final=deed == "batch")
                newest = log.records[-1]["marker"]
            case "stranger":
                for _ in range(given_):
                    log.put(strange=True)
            case "forged":
                header = encode_marker(
                    query="q", batch=number, row_count=given_, start_offset=None, is_final=True, payload=b"",
                    is_pointer=False, table_id="t", end_offset=log.next_offset + 1,
                )  # fmt: skip
                log.put(header, strange=True)
            case "copied":
                log.put(newest, strange=True)
            case "note":
                log.put(encode_genesis("t", {"snapshot": 1}), value=None)
            case _:
                log.next_offset += given_
    kept = [each for each in log.records if each["offset"] >= cut]  # retention may begin within a batch
    batches = [pa.RecordBatch.from_pylist(kept[at : at + step], schema=SCHEMA) for at in range(0, len(kept), step)]
    runs = strange_runs(batches, SimpleNamespace(key=KEY, table_id="t"), 0, known_end=0)  # type: ignore[arg-type]
    found = [offset for start, stop in runs for offset in range(start, stop)]
    assert [each for each in found if each in {record["offset"] for record in kept}] == [
        each for each in log.strange if each >= cut
    ]


def test_batches_of_before_the_key_are_the_tables() -> None:
    log = WholeLog()
    log.batch(1, [3], key=None)
    log.batch(2, [2], key=KEY)
    log.put(strange=True)
    log.batch(3, [2], key=None)  # a stranger's: the table has a key by now
    (records,) = [pa.RecordBatch.from_pylist(log.records, schema=SCHEMA)]
    runs = strange_runs([records], SimpleNamespace(key=KEY, table_id="t"), 0, known_end=0)  # type: ignore[arg-type]
    assert runs == [(7, 10)]


@pytest.fixture
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer of a version that did not look whether its rows come where its last look left off."""
    encode = log_writer.encode_marker
    monkeypatch.setattr(log_writer, "encode_marker", lambda **given: encode(**{**given, "end_offset": None}))
    monkeypatch.setattr(BucketLogWriter, "_check_unbroken", lambda self, transaction: None)


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch, kafka: KafkaProperties) -> Callable[[], None]:
    """Sends a stranger's row when the next batch begins, behind the fence."""
    begin = BucketLogWriter.begin

    def sends_next() -> None:
        def intrude(self: BucketLogWriter, **given: Any) -> None:
            monkeypatch.setattr(BucketLogWriter, "begin", begin)
            producer = kafka.producer(ErrorNotes(), transactional_id=None)
            producer.produce(self.target.topic, b'{"before":null,"after":{"id":9,"v":"evil"},"op":"c"}', partition=0)
            assert producer.flush(20) == 0
            begin(self, **given)

        monkeypatch.setattr(BucketLogWriter, "begin", intrude)

    return sends_next


@pytest.mark.broker
def test_verify_counts_the_records_of_strangers(
    tmp_path: Path, broker: Broker, as_before: None, between: Callable[[], None]
) -> None:
    """A stranger's row came between a fence and the batch behind it, and nobody was told."""
    warehouse = Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})
    table = new_table(warehouse)
    table.write(id_rows([1, 2]))
    assert verify(table, rows=True).num_rows == 0
    between()
    table.write(id_rows([3]))
    table.write(id_rows([4, 5]))
    assert verify(table).num_rows == 0
    (found,) = verify(table, rows=True).to_pylist()
    assert found["check"] == "log"
    assert "records=1 first_offset=3 last_offset=3 cause=a stranger" in found["problem"]
