"""What a table and its log must hold, computed from the source alone; and what the log holds, read without Fluvial.

The source is a directory of Parquet files, one for each micro-batch, made from a seed: it can be replayed, and so can
the answer. The log is read by a plain consumer of committed records and Python's JSON.
"""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from tests.support.clients import quiet_consumer

DELETES = 0.15
_READ_S = 90.0


@dataclass(frozen=True)
class Change:
    """One row of the source, and one record of the log."""

    id: int
    v: int  # a number of its own
    batch: int
    is_delete: bool
    salt: str | None = None  # of the attempt that wrote it; None in the source


class Source:
    """The input of one lane."""

    def __init__(self, directory: Path, seed: int, *, rows: tuple[int, int] = (1, 40), keys: int = 60) -> None:
        """``rows``: least and most of a batch."""
        directory.mkdir(parents=True)
        self.directory = directory
        self.changes: list[Change] = []
        self.batches = 0
        self._chance, self._rows, self._keys = random.Random(seed), rows, keys

    def feed(self, batches: int) -> None:
        """More files, later ones with later times: Spark reads them in this order."""
        for batch in range(self.batches, self.batches + batches):
            rows = [self._change(batch) for _ in range(self._chance.randint(*self._rows))]
            file = self.directory / f"part-{batch:05d}.parquet"
            columns = {
                "id": pa.array([row.id for row in rows], pa.int64()),
                "v": pa.array([row.v for row in rows], pa.int64()),
                "batch": pa.array([batch] * len(rows), pa.int64()),
                "_row_kind": pa.array(["-D" if row.is_delete else "+U" for row in rows]),
            }
            growing = file.with_name(f".{file.name}")
            pq.write_table(pa.table(columns), growing)
            os.utime(growing, (1.7e9 + batch, 1.7e9 + batch))
            growing.rename(file)
        self.batches += batches

    def _change(self, batch: int) -> Change:
        change = Change(
            id=self._chance.randrange(self._keys),
            v=len(self.changes),
            batch=batch,
            is_delete=self._chance.random() < DELETES,
        )
        self.changes.append(change)
        return change

    def table(self) -> dict[int, Change]:
        """The newest change of each key that is not a delete."""
        return last_changes(self.changes)


def last_changes(changes: Sequence[Change]) -> dict[int, Change]:
    """What a consumer that keeps the newest row of each key has."""
    rows: dict[int, Change] = {}
    for change in changes:
        if change.is_delete:
            rows.pop(change.id, None)
        else:
            rows[change.id] = change
    return rows


def committed_records(servers: str, topic: str, ends: Mapping[int, int]) -> dict[int, list[Change]]:
    """Every committed record of a topic in ``debezium-json``, by partition.

    Args:
        servers: of the brokers.
        topic: the topic.
        ends: of each partition, the offset behind the last record that must be there.
    """
    consumer = quiet_consumer(servers, isolation__level="read_committed", enable__partition__eof=True)
    partitions = range(len(consumer.list_topics(topic, timeout=30).topics[topic].partitions))
    found: dict[int, list[Change]] = {each: [] for each in partitions}
    reached = dict.fromkeys(partitions, 0)
    ended: set[int] = set()
    deadline = time.monotonic() + _READ_S
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    try:
        while len(ended) < len(found):
            assert time.monotonic() < deadline, f"the log ends too early: reached={reached} wanted={dict(ends)}"
            record = consumer.poll(1.0)
            if record is None:
                continue
            if record.error() is None:
                found[record.partition()].append(_decoded(record))
                reached[record.partition()] = record.offset() + 1
            elif record.error().code() == KafkaError._PARTITION_EOF:
                if reached[record.partition()] >= ends.get(record.partition(), 0):
                    ended.add(record.partition())
            else:
                raise AssertionError(record.error())
    finally:
        consumer.close()
    assert {each: end for each, end in reached.items() if end} == dict(ends), "the table knows other ends of its log"
    return found


def _decoded(record: Any) -> Change:
    body = json.loads(record.value())
    is_delete = body["op"] == "d"
    assert is_delete or body["op"] == "c", body
    row = body["before"] if is_delete else body["after"]
    assert json.loads(record.key()) == {"id": row["id"]}
    return Change(id=row["id"], v=row["v"], batch=row["batch"], is_delete=is_delete, salt=row["salt"])


def check_log(source: Source, log: Mapping[int, Sequence[Change]]) -> None:
    """Each change once, those of a key in their order, batch after batch in each bucket, one attempt for each batch."""
    records = [change for changes in log.values() for change in changes]
    repeated = [v for v, count in Counter(change.v for change in records).items() if count > 1]
    assert not repeated, f"repeated in the log: v={repeated[:20]}"
    lost = {change.v for change in source.changes} - {change.v for change in records}
    assert not lost, f"lost in the log: v={sorted(lost)[:20]}"
    for bucket, changes in log.items():
        batches = [change.batch for change in changes]
        assert batches == sorted(batches), f"bucket {bucket}: batches out of order: {batches}"
    bucket_of = {change.id: bucket for bucket, changes in log.items() for change in changes}
    for bucket, changes in log.items():
        for key in {change.id for change in changes}:
            assert bucket_of[key] == bucket, f"key {key} is in two buckets"
            is_ = [(change.v, change.is_delete) for change in changes if change.id == key]
            wanted = [(change.v, change.is_delete) for change in source.changes if change.id == key]
            assert is_ == wanted, f"key {key}: is={is_} wanted={wanted}"


def check_table(source: Source, rows: Sequence[Mapping[str, Any]]) -> None:
    """Exactly the rows of the source, each key once."""
    found = {row["id"]: (row["v"], row["batch"]) for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    wanted = {key: (change.v, change.batch) for key, change in source.table().items()}
    assert found == wanted, f"id, (v, batch): is={_beside(found, wanted)} wanted={_beside(wanted, found)}"


def _beside(rows: Mapping[int, Any], others: Mapping[int, Any]) -> dict[int, Any]:
    """The rows that others do not have, by key."""
    return {key: rows[key] for key in sorted(rows) if others.get(key) != rows[key]}


def check_agreement(rows: Sequence[Mapping[str, Any]], log: Mapping[int, Sequence[Change]]) -> None:
    """The log's fold is the table, with the salts of the same attempts."""
    fold: dict[int, Change] = {}
    for changes in log.values():
        fold |= last_changes(changes)
    assert {row["id"]: (row["v"], row["salt"]) for row in rows} == {
        key: (change.v, change.salt) for key, change in fold.items()
    }
