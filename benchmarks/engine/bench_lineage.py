"""What lineage costs a micro-batch: the same batches into a table of a catalog that keeps it, and of one that does not.

    python -m benchmarks lineage [--quick | --tiny]

Batches are small, so that the share is at its highest: a batch of many rows takes longer, and records the same.
They are written by the code that ``foreachBatch(sink(table))`` runs on the driver, without Spark; each records the
source that a checkpoint names. Budget: 10 ms, or 3 %, of a batch, whichever is more.
"""

import json
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness import measure, sized
from engine import Catalog, Table
from engine.lineage.origins import SourceRead
from engine.lineage.stream_job import StreamJob
from engine.request.writer_options import NO_OPTIONS
from engine.write.session import LocalRunner, Upkeep, WriteSession

BUDGET_MS = 10.0
BUDGET_RATIO = 0.03
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.int64()), ("note", pa.string())])


def new_table(root: str, *, keeps: bool) -> Table:
    """A table in a catalog of its own."""
    fixed = str(keeps).lower()
    catalog = Catalog(root, options={"table-lineage": fixed, "data-lineage": fixed})
    return catalog.create_table("bench.t", SCHEMA, primary_key=["id"], options={"bucket": "1", "write-only": "true"})


def checkpoint(root: str, batches: int, table: Table) -> str:
    """As Spark leaves it: one source, which is a table of the same catalog."""
    assert table.store.catalog is not None
    offsets = Path(root) / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for batch_id in range(batches):
        read = SourceRead(warehouse=table.store.catalog.warehouse, table="bench.source", snapshot_id=batch_id + 1)
        body = {"version": 1, "phase": "log", "snapshot": batch_id + 1, "schema": 0, "offsets": {}}
        (offsets / str(batch_id)).write_text(f"v1\n{{}}\n{json.dumps({**body, 'read': read.to_json()})}\n")
    return str(offsets.parent)


class Writes:
    """Batches of one stream, some at each call."""

    def __init__(self, table: Table, checkpoint: str, batches: int, rows: int) -> None:
        job = StreamJob(name="bench", checkpoint=checkpoint)
        self._session = WriteSession(
            table.files,
            LocalRunner(),
            commit_user="bench",
            options=NO_OPTIONS,
            upkeep=Upkeep.BATCH,  # without compaction beside it
            origin=lambda batch_id, rows: job.origin(batch_id),
        )
        self._batches, self._next = batches, 0
        chance = np.random.default_rng(7)
        columns = {"id": chance.integers(0, 10**9, rows), "amount": chance.integers(0, 10**6, rows)}
        self._rows = pa.table({**columns, "note": [f"{number:032x}" for number in range(rows)]}, schema=SCHEMA)

    def __call__(self) -> None:
        for batch_id in range(self._next, self._next + self._batches):
            self._session.write(self._rows.to_batches(), batch_id=batch_id)
        self._next += self._batches


def main() -> None:
    batches, rows = sized((50, 10_000), quick=(20, 10_000), tiny=(2, 100))
    rounds, warm_ups = sized((9, 2), quick=(5, 1), tiny=(1, 1))
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        kept, plain = new_table(f"{root}/kept", keeps=True), new_table(f"{root}/plain", keeps=False)
        location = checkpoint(root, (rounds + warm_ups) * batches, kept)
        variants = {
            name: Writes(table, location, batches, rows) for name, table in (("lineage", kept), ("none", plain))
        }
        result = measure("lineage", variants, rows=batches * rows, repeats=rounds, warm_ups=warm_ups)
    pairs = zip(result.seconds["lineage"], result.seconds["none"], strict=True)
    added = statistics.median((fluvial - peer) * 1000 / batches for fluvial, peer in pairs)
    batch_ms = statistics.median(result.seconds["none"]) * 1000 / batches
    facts = {
        "added_ms_per_batch": round(added, 2),
        "batch_ms": round(batch_ms, 2),
        "budget_ms": round(max(BUDGET_MS, BUDGET_RATIO * batch_ms), 2),
    }
    print(result.line(peer="none", **facts))


if __name__ == "__main__":
    main()
