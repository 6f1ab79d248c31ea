"""Writer and reader die and come back while both run: every change comes once, and in the end none is missing.

Deaths are exceptions in one process here, 120 of them in some seconds; `test_spark_stream.py` kills real processes.
FLUVIAL_KILL_SEEDS=7,8,9 runs other ones.
"""

import os
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.log.table_log import TableLog
from engine.runtime.steps import Step, StepEvent
from engine.write.batch_part import write_part
from engine.write.batch_writer import BatchWriter
from tests.support.streams import Query, content, fold

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
SEEDS = [int(each) for each in os.environ.get("FLUVIAL_KILL_SEEDS", "0,1,4,5,6,7").split(",")]  # two for each limit
KILLS = 20


class Died(Exception):
    """What stands for kill -9 in one process."""


class Writer:
    """A streaming writer: batch after batch under one commit user, a dead batch again until it is committed."""

    def __init__(self, table: Table, chance: random.Random) -> None:
        self.table = table
        self.chance = chance
        self.batch = 0
        self.serial = 0
        self.kills = 0
        self.pending: pa.Table | None = None

    def write(self) -> None:
        """One attempt at the next batch."""
        if self.pending is None:
            self.pending = self._rows()
        rows, deadly = self.pending, self.chance.choice([*Step, None, None])

        def observe(event: StepEvent) -> None:
            if event.step is deadly:
                raise Died

        log = TableLog.of(self.table.files)
        writer = BatchWriter(self.table.files, log, commit_user="writer", observe=observe)
        try:
            writer.write(self.batch, lambda spec: write_part(spec, rows.to_batches()))
        except Died:
            self.kills += 1
            return
        self.batch += 1
        self.pending = None

    def _rows(self) -> pa.Table:
        rows = []
        for _ in range(self.chance.randint(1, 6)):
            self.serial += 1
            gone = self.chance.random() < 0.2
            rows.append({"id": self.chance.randint(0, 9), "v": self.serial, "_row_kind": "-D" if gone else "+I"})
        return pa.Table.from_pylist(rows, schema=SCHEMA.append(pa.field("_row_kind", pa.string())))


class Consumer:
    """A sink that is idempotent by batch, as a foreachBatch function is to be."""

    def __init__(self, query: Query, chance: random.Random) -> None:
        self.query = query
        self.chance = chance
        self.batches: dict[int, list[dict[str, Any]]] = {}
        self.kills = 0

    def run(self) -> bool:
        """One micro-batch, or its death at any point of it; False when there is nothing to read."""
        deadly = self.chance.choice(["planned", "read", "processed", None, None])
        if not self.query.plan():
            return False
        if deadly == "planned":
            return self._die()
        rows = self.query.read()
        if deadly == "read":
            return self._die()
        before = self.batches.setdefault(len(self.query.planned), rows)
        assert _multiset(before) == _multiset(rows)  # a batch that is run again has the same rows
        if deadly == "processed":
            return self._die()
        self.query.commit()
        return True

    def _die(self) -> bool:
        self.kills += 1
        self.query.start()
        return True

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All that was delivered, batch by batch."""
        return [row for _, rows in sorted(self.batches.items()) for row in rows]


def _multiset(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)


@pytest.mark.sampled(1)
@pytest.mark.broker
@pytest.mark.parametrize("seed", SEEDS)
def test_no_change_is_lost_or_repeated(seed: int, broker: Broker) -> None:
    """FL-26, FL-71, FL-72: transactional; every change has a number of its own, so a repeat would be seen."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as root:
        options = {"bucket": "2", "log.kafka.bootstrap.servers": broker.bootstrap_servers}
        name = f"kills.t{seed}_{Path(root).name}"
        table = Catalog(root).create_table(name, SCHEMA, primary_key=["id"], options=options)
        limit = str(chance.choice([1, 3, 100]))
        writer = Writer(table, chance)
        consumer = Consumer(Query(root, name, read_stream_maxRowsPerTrigger=limit), chance)
        while writer.kills + consumer.kills < KILLS:
            match chance.randrange(5):
                case 0 | 1:
                    writer.write()
                case 2:
                    if chance.random() < 0.2:
                        table.compact(full=chance.random() < 0.5)
                case _:
                    consumer.run()
        while writer.pending is not None:
            writer.write()
        while consumer.run():
            pass
        delivered = consumer.rows
        assert fold(delivered) == content(table)
        values = Counter(row["v"] for row in delivered)
        assert max(values.values()) == 1
        Catalog(root).drop_table(name)
