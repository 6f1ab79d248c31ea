"""Batch writers that die, each at another step of its batch, as by kill -9.

usage: python dying_writer.py WAREHOUSE STEP=TABLE...
"""

import os
import sys

import pyarrow as pa

from engine import Catalog
from engine.request.writer_options import NO_OPTIONS
from engine.runtime.steps import Step, StepEvent
from engine.write.session import LocalRunner, Upkeep, WriteSession

STEPS = (
    Step.BATCH_STARTED, Step.LOG_RECOVERED, Step.BUCKET_FENCED, Step.FILES_FLUSHED, Step.LOG_COMMITTED,
    Step.PART_DONE, Step.TASKS_DONE, Step.TABLE_COMMITTED,
)  # fmt: skip
IDS = tuple(f"dead-{each}" for each in range(8))  # of both buckets
_KILLED = 9


def die_at(step: Step, catalog: Catalog, name: str) -> None:
    """Write a batch and end the process in the middle of it."""

    def kill(event: StepEvent) -> None:
        if event.step is step:
            os._exit(_KILLED)

    table = catalog.table(name).files
    session: WriteSession[list[pa.RecordBatch]] = WriteSession(
        table,
        LocalRunner(),
        commit_user=table.store.new_commit_user(),
        options=NO_OPTIONS,
        upkeep=Upkeep.BATCH,
        origin=lambda batch_id, rows: None,
        observe=kill,
    )
    session.write(pa.table({"p": ["w"] * len(IDS), "id": list(IDS)}).to_batches())
    os._exit(1)


def main() -> None:
    warehouse, *pairs = sys.argv[1:]
    children = []
    for pair in pairs:
        step, name = pair.split("=")
        child = os.fork()  # one import of everything for all of them; nothing has a thread yet
        if child == 0:
            die_at(Step(step), Catalog(warehouse), name)
        children.append(child)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert ends == [_KILLED] * len(pairs), ends


if __name__ == "__main__":
    main()
