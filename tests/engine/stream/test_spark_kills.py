"""A reading query of Spark, killed -9 with all its processes while its table is written: no row lost or repeated.

While it is dead, every snapshot that it may have planned expires: a planned batch of the log is a range of offsets.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.procedures import expire_snapshots
from tests.support.streams import content, fold

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("kills of readers")]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
JOB = Path(__file__).with_name("reading_job.py")
END_S = 240.0


class Reader:
    """The job's processes, and what it has put out."""

    def __init__(self, root: Path, table: Table) -> None:
        self.output = root / "output"
        self.output.mkdir()
        self.command = [sys.executable, str(JOB), str(root / "w"), table.name, str(root / "cp"), str(self.output)]
        self.log = root / "job.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """The driver, its JVM and its Python workers, all at once."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def batches(self) -> int:
        return len(list(self.output.glob("*.json")))

    @property
    def rows(self) -> list[dict[str, Any]]:
        found = [json.loads(path.read_text()) for path in sorted(self.output.glob("*.json"))]
        return [row for rows in found for row in rows]

    def until_rows(self, condition: Callable[[list[dict[str, Any]]], bool]) -> None:
        """The rows are looked at when there are more of them."""
        seen = -1

        def is_true() -> bool:
            nonlocal seen
            before, seen = seen, self.batches
            return seen != before and condition(self.rows)

        self.until(is_true)

    def until(self, condition: Callable[[], bool]) -> None:
        assert self.process is not None
        deadline = time.monotonic() + END_S
        while not condition():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.05)


def write_until(table: Table, chance: random.Random, stop: threading.Event) -> None:
    serial = 0
    while not stop.is_set():
        rows = []
        for _ in range(chance.randint(1, 30)):
            serial += 1
            kind = "-D" if chance.random() < 0.2 else "+I"
            rows.append({"id": chance.randint(0, 50), "v": serial, "_row_kind": kind})
        table.write(pa.Table.from_pylist(rows, schema=SCHEMA.append(pa.field("_row_kind", pa.string()))))
        if chance.random() < 0.1:
            table.compact()
        stop.wait(0.2)  # at most five commits a second: the reader takes seconds to start


def expire_past(table: Table, newest: int) -> None:
    """Until no snapshot is left that was there when the reader died (soak 1)."""
    deadline = time.monotonic() + END_S
    while (table.store.snapshots.earliest_id() or 0) <= newest:
        assert time.monotonic() < deadline
        expire_snapshots(table, retain_max=1, retain_min=1)
        time.sleep(0.1)


def run(root: Path, broker: Broker, *, seed: int, kills: int) -> None:
    chance = random.Random(seed)
    options = {"bucket": "2", "log.kafka.bootstrap.servers": broker.bootstrap_servers}
    table = Catalog(str(root / "w")).create_table(f"kill.r{seed}", SCHEMA, primary_key=["id"], options=options)
    stop = threading.Event()
    writer = threading.Thread(target=write_until, args=(table, chance, stop))
    reader = Reader(root, table)
    writer.start()
    try:
        for _ in range(kills):
            reader.start()
            before, more = reader.batches, chance.randint(1, 6)
            reader.until(lambda before=before, more=more: reader.batches >= before + more)  # type: ignore[misc]
            time.sleep(chance.random() * 0.3)
            reader.kill()
            expire_past(table, table.store.snapshots.latest_id() or 0)
        stop.set()
        writer.join()
        reader.start()
        wanted = content(table)
        reader.until_rows(lambda rows: fold(rows) == wanted)
    finally:
        stop.set()
        if reader.process is not None and reader.process.poll() is None:
            reader.kill()
        Catalog(str(root / "w")).drop_table(table.name)
    repeated = Counter(row["v"] for row in reader.rows)
    assert max(repeated.values()) == 1


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_reader_killed_while_the_table_is_written(tmp_path: Path, broker: Broker) -> None:
    """FL-71, FL-72; soak 1: it never started again, though the log had all of it."""
    run(tmp_path, broker, seed=1, kills=2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_reader_killed_many_times(tmp_path: Path, broker: Broker) -> None:
    """FL-71, FL-72."""
    for seed in range(10, 14):
        (tmp_path / str(seed)).mkdir()
        run(tmp_path / str(seed), broker, seed=seed, kills=20)
