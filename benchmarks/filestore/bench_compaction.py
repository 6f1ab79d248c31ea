"""Full compaction of 10 overlapping runs, beside reading all the input and rewriting all of it without merging.

Budget: 1.3 times that. usage: python -m benchmarks compaction [--quick | --tiny]
"""

import shutil
import tempfile
from pathlib import Path

from benchmarks.harness import measure, sized
from benchmarks.lsm_tables import KEYS, table_of_runs
from filestore.commit.committable import discard
from filestore.compact.compactor import pick_tasks, run_task
from filestore.datafile.rolling_writer import RollingWriter
from filestore.manifest.new_file_paths import NewFilePaths
from filestore.read.split_read import BucketFiles
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable

BUDGET = 1.3
RUNS = 10
FLOOR = "read all and write all"


def compact(table: FileTable) -> None:
    [task] = pick_tasks(table.store, LiveFiles.latest(table.store), full=True)
    discard(table.store, [run_task(table.store, task)])


def rewrite(table: FileTable) -> None:
    [split] = table.read().plan().splits
    files = BucketFiles(table=table.store, partition=split.partition, bucket=split.bucket, files=split.files)
    for number, file in enumerate(split.files):
        directory = f"{table.store.paths.root}/floor-{number}"
        writer = RollingWriter(
            io=table.store.io,
            names=table.store.names,
            clock=table.store.clock,
            place=NewFilePaths(directory),
            schema=table.schema,
            options=table.options,
            level=1,
            file_source=1,
        )
        for batch in files.read(file, table.schema.column_names, with_system=True):
            writer.write(batch)
        writer.close()
        shutil.rmtree(directory)


def main() -> None:
    rows, repeats = sized((5_000_000, 3), quick=(400_000, 2), tiny=(2_000, 1))
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        for kind in KEYS:
            table = table_of_runs(Path(root), kind=kind, runs=RUNS, rows=rows)
            variants = {"fluvial": lambda table=table: compact(table), FLOOR: lambda table=table: rewrite(table)}
            found = measure("full_compaction", variants, rows=rows, repeats=repeats)
            cost = round(1 / found.cpu_ratio("fluvial", FLOOR), 2)
            print(
                found.line(peer=FLOOR, keys=kind, runs=RUNS, cost_to_floor=cost, budget=BUDGET, met=cost <= BUDGET),
                flush=True,
            )


if __name__ == "__main__":
    main()
