"""Union read: files and a log tail of 1 % of their rows, beside reading the snapshot alone.

    python -m benchmarks union_read [--quick | --tiny]

The peer reads the same files: 3 overlapping runs that have to be merged anyway, or one compacted run that does not.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness import measure, sized
from benchmarks.lsm_tables import SEED, rows_of
from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.read.batch_read import BatchRead
from engine.runtime.steps import Step, StepEvent
from engine.write.batch_part import write_part
from engine.write.batch_writer import BatchWriter

PEER = "snapshot alone"
RUNS = 3
UNION = {"scan.log.union": "true"}


class StoppedError(Exception):
    """Ends a writer between log and snapshot."""


def stop(event: StepEvent) -> None:
    if event.step is Step.TASKS_DONE:
        raise StoppedError


def table_of(root: str, broker: Broker, rows: int) -> Table:
    random = np.random.default_rng(SEED)
    options = {
        "bucket": "1",
        "log.kafka.bootstrap.servers": broker.bootstrap_servers,
        "num-sorted-run.compaction-trigger": "1000",
    }
    schema = rows_of("int", np.arange(1), random).schema
    table = Catalog(root).create_table("bench.union", schema, primary_key=["k"], options=options)
    for run in range(RUNS):
        table.write(rows_of("int", np.arange(run, rows, RUNS), random), options={"change-tracking": "false"})
    return table


def write_tail(table: Table, rows: int) -> int:
    """Updates, inserts and deletes in the log that no snapshot has."""
    random = np.random.default_rng(SEED + 1)
    count = max(1, rows // 100)
    tail = rows_of("int", np.sort(random.choice(rows + count, count, replace=False)), random)
    kinds = pa.array(np.where(random.random(count) < 0.1, "-D", "+U"))
    writer = BatchWriter(table.files, table.log, commit_user="bench", observe=stop)
    batches = tail.append_column("_row_kind", kinds).to_batches()
    try:
        writer.write(0, lambda spec: write_part(spec, batches))
    except StoppedError:
        return count
    raise AssertionError("the writer should have stopped")


def count_rows(read: BatchRead) -> int:
    return sum(batch.num_rows for batch in read.to_batches())


def main() -> None:
    rows, repeats = sized((3_000_000, 5), quick=(600_000, 3), tiny=(3_000, 1))
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root, Broker(Path(root) / "broker") as broker:
        table = table_of(root, broker, rows)
        tail_rows = 0
        for state in (f"{RUNS} runs", "compacted"):
            if state == "compacted":
                table.compact(full=True)
            else:
                tail_rows = write_tail(table, rows)
            found = measure(
                "union_read",
                {"union": lambda: count_rows(table.read(options=UNION)), PEER: lambda: count_rows(table.read())},
                rows=rows,
                repeats=repeats,
            )
            cost = round(1 / found.ratio("union", PEER), 2)
            print(found.line(peer=PEER, state=state, tail_rows=tail_rows, cost_to_snapshot=cost), flush=True)


if __name__ == "__main__":
    main()
