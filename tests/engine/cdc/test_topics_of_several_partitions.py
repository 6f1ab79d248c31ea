"""Changes of columns in a topic of several partitions, which have no common order of offsets: that of the source is."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine.cdc.signals import request_snapshots
from engine.cdc.status import latest_offsets
from logstore.kafka.topics import LogTopics
from tests.engine.cdc.test_ways_on import reason_of
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Field, Record, SourceTable, int32, text

Row = dict[str, Any]
ID = int32("id", optional=False)


class PartitionedSource:
    """A table under ALTER TABLE, and the changes that a connector makes of it, each later than the one before."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.columns: dict[str, Field] = {}
        self.rows: dict[int, Row] = {}
        self._moment = 0
        self._number = 0

    @property
    def table(self) -> SourceTable:
        return SourceTable("t", [ID, *self.columns.values()])

    def add(self, name: str, kind: str = "int") -> None:
        self.columns[name] = int32(name) if kind == "int" else text(name)
        for row in self.rows.values():
            row[name] = None

    def drop(self, name: str) -> None:
        del self.columns[name]
        for row in self.rows.values():
            del row[name]

    def value(self, name: str) -> Any:
        return self._moment if self.columns[name]["type"] == "int32" else f"text {self._moment}"

    def insert(self, partition: int) -> Record:
        """A row whose key lies in a partition."""
        while True:
            self._number += 1
            row = {"id": self._number, **{name: self.value(name) for name in self.columns}}
            found = self._event("c", row)
            if zlib.crc32(found[1] or b"") % self.partitions == partition:
                self.rows[self._number] = row
                return found

    def update(self, number: int) -> Record:
        self.rows[number] = {"id": number, **{name: self.value(name) for name in self.columns}}
        return self._event("u", self.rows[number])

    def _event(self, op: str, row: Row) -> Record:
        self._moment += 1
        return self.table.event(op, None, dict(row), lsn=self._moment, ts_ms=1_763_859_600_000 + self._moment // 5)


def with_partitions(job: MemoryJob, partitions: int) -> PartitionedSource:
    LogTopics(job.settings.properties).create_topic("shop.public.t", bucket_count=partitions)
    return PartitionedSource(partitions)


def check_equal(job: MemoryJob, source: PartitionedSource) -> None:
    """The newest columns have the rows of the source, at once or behind the command that the message names."""
    if job.state.table("t").parked is not None:
        assert "fluvial cdc resnapshot t --drop" in reason_of(job)
        latest = latest_offsets(job.settings.properties, job.settings.pattern)
        request_snapshots(job.state, job.settings, ["t"], latest, topic=None, at_ms=1, drops=True)
        job.restarted()
        job.batch()
        moment = {"lsn": 10**6, "ts_ms": 1_763_859_700_000}
        job.batch(*(source.table.read(row, snapshot="true", **moment) for row in source.rows.values()))
        assert job.state.table("t").parked is None
    live = {column: name for name, column in job.live("t").items()}
    assert set(live.values()) == {"id", *source.columns}
    found = {row["id"]: {live[name]: row[name] for name in live} for row in job.rows("t")}
    assert found == source.rows


def take_in(job: MemoryJob, batches: Sequence[Sequence[Record]]) -> None:
    for records in batches:
        job.restarted()
        job.batch(*records)


@pytest.mark.parametrize("together", [True, False])
def test_a_part_that_another_partition_has_left_behind(tmp_path: Path, together: bool) -> None:
    """Its columns are no dropped ones that come back: ``b`` of the next part stayed ``b``, and became ``b_2`` here."""
    with memory_job(tmp_path) as job:
        source = with_partitions(job, 2)
        records = [source.insert(0), source.insert(1)]
        source.add("a")
        records.append(source.insert(1))
        source.add("b")
        records += [source.insert(0), source.insert(1)]
        source.add("c")
        take_in(job, [records] if together else [[each] for each in records])
        take_in(job, [[source.insert(0)]])
        assert job.state.table("t").parked is None
        assert dict(job.live("t")) == {name: name for name in ("id", "a", "b", "c")}
        check_equal(job, source)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("has_late_row", [True, False])
def test_a_column_that_was_dropped_and_comes_back(tmp_path: Path, together: bool, has_late_row: bool) -> None:
    """The other partition has no record of the part between: its rows had the values in the dropped column."""
    with memory_job(tmp_path) as job:
        source = with_partitions(job, 2)
        source.add("a")
        records = [source.insert(0), source.insert(1)] if has_late_row else [source.insert(0)]
        source.drop("a")
        records.append(source.insert(0))
        source.add("a")
        records += [source.insert(0), source.insert(1)]
        take_in(job, [records] if together else [[each] for each in records])
        check_equal(job, source)
        take_in(job, [[source.update(number)] for number in list(source.rows)])
        check_equal(job, source)


def drawn_changes(random: Random, source: PartitionedSource) -> list[Record]:
    """Changes of columns and rows."""
    records = [source.insert(random.randrange(source.partitions)) for _ in range(3)]
    for _ in range(random.randint(3, 14)):
        names = list(source.columns)
        if names and random.random() < 0.4:
            source.drop(random.choice(names))
        elif len(names) < 3:
            source.add(random.choice([each for each in "abc" if each not in names]), random.choice(["int", "text"]))
        for _ in range(random.randint(1, 3)):
            is_new = random.random() < 0.6
            place = random.randrange(source.partitions)
            records.append(source.insert(place) if is_new else source.update(random.choice(list(source.rows))))
    return records


def behind_each_other(random: Random, records: Sequence[Record], partitions: int) -> list[Record]:
    """The records in an order in which one partition is read before another."""
    queues = [[each for each in records if zlib.crc32(each[1] or b"") % partitions == at] for at in range(partitions)]
    found: list[Record] = []
    while any(queues):
        queue = random.choice([each for each in queues if each])
        count = random.randint(1, 6)
        found += queue[:count]
        del queue[:count]
    return found


@pytest.mark.sweep
@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(24))
def test_any_changes_in_any_batches(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with memory_job(tmp_path) as job:
        source = with_partitions(job, 1 + seed % 3)
        records = drawn_changes(random, source)
        if seed % 2:
            records = behind_each_other(random, records, source.partitions)
        ends = sorted(random.sample(range(1, len(records)), random.choice([0, 2, 5])))
        take_in(job, [records[a:b] for a, b in zip([0, *ends], [*ends, len(records)], strict=True)])
        check_equal(job, source)
