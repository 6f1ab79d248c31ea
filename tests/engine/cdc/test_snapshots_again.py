"""A connector publishes all rows again, because it was killed before it had noted a position: they are counted once."""

import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.cdc.rules.names import NameRule, Naming
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Record, SourceTable, int32

LOG = SourceTable("log", [int32("n")], key=())
ORDERS = SourceTable("orders", [int32("id")])


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    with memory_job(tmp_path) as made:
        yield made


def snapshot(numbers: Sequence[int], *, at: int, table: SourceTable = LOG, column: str = "n") -> list[Record]:
    """The rows as Debezium marks them; a single one is the last."""
    inner = ["first_in_data_collection", *(["true"] * len(numbers))]
    marks = [*inner[: len(numbers) - 1], "last_in_data_collection"]
    return [table.read({column: each}, snapshot=mark, lsn=at) for each, mark in zip(numbers, marks, strict=True)]


def change(number: int, transaction: int, kind: str = "insert") -> Record:
    lsn = 100 * transaction + 1
    place: dict[str, Any] = {"lsn": lsn, "commit": 100 * transaction, "tx": (f"{transaction}:{lsn}", 1, 1)}
    place["ts_ms"] = 1_763_859_600_000 + transaction
    return LOG.insert({"n": number}, **place) if kind == "insert" else LOG.delete({"n": number}, **place)


def numbers_in(job: MemoryJob) -> list[int]:
    return sorted(row["n"] for row in job.rows("log"))


def test_a_snapshot_that_begins_again_replaces_the_rows_of_a_table_without_a_key(job: MemoryJob) -> None:
    job.batch(*snapshot([1, 2], at=100), change(3, 1))
    assert numbers_in(job) == [1, 2, 3]
    job.batch(*snapshot([1, 2, 3, 4], at=250), change(5, 3))
    assert numbers_in(job) == [1, 2, 3, 4, 5]
    job.restarted()
    job.again()
    assert numbers_in(job) == [1, 2, 3, 4, 5]


@pytest.mark.sweep
@pytest.mark.parametrize("cuts", [(), (1,), (2,), (3,), (1, 2, 3), (2, 5), (4,), (5,), (1, 2, 3, 4, 5)])
def test_wherever_batches_end(job: MemoryJob, cuts: tuple[int, ...]) -> None:
    """Nothing was changed between the snapshot that was broken off and the next one: their places are equal."""
    records = [*snapshot([1, 2, 3], at=100)[:2], *snapshot([1, 2, 3], at=100), change(4, 2)]
    for start, end in zip((0, *cuts), (*cuts, len(records)), strict=True):
        job.batch(*records[start:end])
        job.restarted()
    assert numbers_in(job) == [1, 2, 3, 4]
    job.batch(*snapshot([4], at=300))
    assert numbers_in(job) == [4]


def test_rows_of_a_table_with_a_key_stay_and_a_warning_names_the_way_out(
    job: MemoryJob, caplog: pytest.LogCaptureFixture
) -> None:
    """An ad-hoc snapshot of some rows has the same marks: it may not remove the others."""
    job.batch(*snapshot([1, 2], at=100, table=ORDERS, column="id"))
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        job.batch(*snapshot([2, 3], at=200, table=ORDERS, column="id"))
    assert [row["id"] for row in job.rows("orders")] == [1, 2, 3]
    (said,) = (each.getMessage() for each in caplog.records)
    assert "publishes all rows again: table=orders" in said
    assert "fluvial cdc resnapshot orders" in said


def test_a_table_of_several_sources_is_parked(tmp_path: Path) -> None:
    """Which rows the snapshot replaces is not known."""
    shards = [SourceTable(f"log_{each}", [int32("n")], key=()) for each in "ab"]
    naming = Naming(rules=(NameRule(source=r"public\.log_(a|b)", to="log", add={"shard": "{1}"}),))
    with memory_job(tmp_path, naming=naming) as job:
        job.batch(*(row for each in shards for row in snapshot([1, 2], at=100, table=each)))
        report = job.batch(*snapshot([1, 2], at=200, table=shards[0]))
        reason = str(report.tables["log"].parked)
        assert "has begun again, its rows would be counted twice: source=public.log_a" in reason
        assert "fluvial cdc resnapshot log --writers-stopped'" in reason
        assert numbers_in(job) == [1, 1, 2, 2]


@dataclass
class KilledSource:
    """A table without a key, and its connector, which is killed at random and then goes on where it has noted."""

    chance: random.Random
    rows: list[int] = field(default_factory=lambda: [1])
    log: list[tuple[int, str]] = field(default_factory=list)  # changes; their transactions are 1, 2, ...
    noted: int | None = None  # changes before it are published
    records: list[Record] = field(default_factory=list)

    def work(self) -> None:
        for _ in range(self.chance.randint(0, 3)):
            if len(self.rows) > 1 and self.chance.random() < 0.3:
                number = self.rows.pop(self.chance.randrange(len(self.rows)))
                self.log.append((number, "delete"))
            else:
                number = len(self.log) + 2
                self.rows.append(number)
                self.log.append((number, "insert"))

    def publish(self, *, is_last: bool) -> None:
        """One life of the connector; the last one comes to the end."""
        at = self.noted
        if at is None:
            rows, at = snapshot(self.rows, at=100 * len(self.log) + 50), len(self.log)
            if not is_last and self.chance.random() < 0.3:
                self.records += rows[: self.chance.randint(0, len(rows))]
                return
            self.records += rows
        for _ in range(self.chance.randint(1, 4)):
            self.work()
        end = len(self.log) if is_last else self.chance.randint(at, len(self.log))
        self.records += [change(number, index + 1, kind) for index, (number, kind) in enumerate(self.log[at:end], at)]
        if self.chance.random() < 0.4:
            self.noted = self.chance.randint(at, end)


@pytest.mark.sweep
@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(12))
def test_a_table_without_a_key_is_equal_whenever_its_connector_is_killed(job: MemoryJob, seed: int) -> None:
    """Notes, kills, and ends of batches at random; drivers that begin again, or repeat a batch."""
    chance = random.Random(seed)
    source = KilledSource(chance)
    lives = chance.randint(1, 4)
    for life in range(lives):
        source.publish(is_last=life == lives - 1)
        source.work() if life < lives - 1 else None
    records = source.records
    while records:
        count = chance.randint(1, 6)
        job.batch(*records[:count])
        records = records[count:]
        if chance.random() < 0.3:
            job.restarted()
            if chance.random() < 0.5:
                job.again()
    assert numbers_in(job) == sorted(source.rows)
