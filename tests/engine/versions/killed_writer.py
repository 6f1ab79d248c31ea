"""Writes batches to a table and kills itself once a batch is in the log but not in the table.

usage: python killed_writer.py WAREHOUSE TABLE MARK
"""

import os
import signal
import sys
from pathlib import Path

import pyarrow as pa

from engine import Catalog
from engine.log.table_log import TableLog
from engine.runtime.steps import Step, StepEvent
from engine.write.batch_part import write_part
from engine.write.batch_writer import BatchWriter

BATCHES = 3
KILLED_AT = (Step.TASKS_DONE, 1)


def main() -> None:
    warehouse, name, mark = sys.argv[1:]
    table = Catalog(warehouse).table(name).files

    def kill(event: StepEvent) -> None:
        if (event.step, event.batch_id) == KILLED_AT and not Path(mark).exists():
            Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    writer = BatchWriter(table, TableLog.of(table), commit_user="job", observe=kill)
    for batch in range(BATCHES):
        ids = pa.array([10 * batch + each for each in range(5)], pa.int64())
        rows = pa.RecordBatch.from_pydict({"id": ids, "v": pa.array([f"{os.getpid()}"] * 5)})
        writer.write(batch, lambda spec, rows=rows: write_part(spec, [rows]))  # type: ignore[misc]


if __name__ == "__main__":
    main()
