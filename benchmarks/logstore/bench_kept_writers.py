"""A task that keeps the log's writers beside one that opens them for each batch: micro-batches of 100 rows, 4 buckets.

    python -m benchmarks kept_writers [--quick | --tiny]

Each has a table of its own at one broker, and they take turns, batch by batch; of a batch only the task counts
(``write_part``: files and log), not the driver's commit. Prints one JSON line: ``ratio`` and ``cpu_ratio`` say how many
times as fast the keeping one is by the clock and in processor time of this process, which has no other work.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import Measurement, sized
from engine import Catalog
from engine.broker.broker import Broker
from engine.request.writer_options import NO_OPTIONS
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from engine.write.session import Upkeep, WriteSession, compact_here
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.table_store import TableStore
from logstore.log.kept_writers import KeptWriters

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
BUCKETS = 4
ROWS = 100
KEEPING, OPENING = "kept", "opened for each batch"


class Tasks:
    """One worker, in this process."""

    def __init__(self, *, keeps: bool) -> None:
        self._kept, self._keeps = KeptWriters(), keeps
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []

    def write(self, spec: BatchSpec, rows: Iterable[pa.RecordBatch]) -> list[BucketResult]:
        began, cpu_began = time.perf_counter(), time.process_time()
        done = write_part(replace(spec, kept=self._kept, keeps_writers=self._keeps), rows)
        self.seconds.append(time.perf_counter() - began)
        self.cpu_seconds.append(time.process_time() - cpu_began)
        return done

    def compact(self, store: TableStore, tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        return compact_here(store, tasks)

    def close(self) -> None:
        self._kept.close()


def query(home: str, servers: str, name: str, tasks: Tasks, until: ExitStack) -> Callable[[int], object]:
    """Writes a batch of one query into a table of its own."""
    options = {"bucket": str(BUCKETS), "log.kafka.bootstrap.servers": servers, "write-only": "true"}
    table = Catalog(home).create_table(f"bench.{name}", SCHEMA, primary_key=["id"], options=options)
    session: WriteSession[Iterable[pa.RecordBatch]] = until.enter_context(
        WriteSession(
            table.files, tasks, commit_user=name, options=NO_OPTIONS, upkeep=Upkeep.STREAM, origin=lambda *_: None
        )
    )
    until.callback(tasks.close)

    def write(batch: int) -> object:
        rows = pa.table({"id": pa.array(range(ROWS)), "v": pa.array([batch] * ROWS)}, schema=SCHEMA)
        return session.write(rows.to_batches(), batch_id=batch)

    return write


def main() -> None:
    batches = sized(60, quick=20, tiny=3)
    variants = {KEEPING: Tasks(keeps=True), OPENING: Tasks(keeps=False)}
    with tempfile.TemporaryDirectory() as home, Broker(Path(home) / "broker") as broker, ExitStack() as until:
        writes = [
            query(f"{home}/warehouse", broker.bootstrap_servers, f"t{number}", tasks, until)
            for number, tasks in enumerate(variants.values())
        ]
        for batch in range(batches + 1):
            for write in writes[:: -1 if batch % 2 else 1]:
                write(batch)
    found = Measurement(
        name="kept_writers",
        rows=ROWS,
        seconds={name: tuple(tasks.seconds[1:]) for name, tasks in variants.items()},  # the first opens them
        cpu_seconds={name: tuple(tasks.cpu_seconds[1:]) for name, tasks in variants.items()},
    )
    cpu_ms = {name: round(1000 * sum(each) / len(each), 1) for name, each in found.cpu_seconds.items()}
    print(found.line(peer=OPENING, buckets=BUCKETS, mean_cpu_ms=cpu_ms))


if __name__ == "__main__":
    main()
