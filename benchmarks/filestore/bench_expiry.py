"""Expiry: what a snapshot costs that goes, with and without tags, beside deleting the same number of files.

A history of commits and compactions is made through the real commit, with empty data files. ``procedure`` is
``expire_snapshots`` down to the newest snapshot, ``stream`` is what a stream does after its commits: runs of
``snapshot.expire.limit``, each preceded by a look for tags that are over.

usage: python -m benchmarks expiry [--quick | --tiny]
"""

import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import commit, machine, peak_memory_bytes, sized
from engine import Table as EngineTable
from engine.procedures import expire_snapshots
from engine.write.housekeeping import Housekeeping
from filestore.catalog.catalog import FileCatalog
from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.format.simple_stats import EMPTY_STATS
from filestore.io.file_io import LocalFileIO
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.snapshot.snapshot import SnapshotRef
from filestore.table import FileTable
from filestore.types.binary_row import encode_row

BUDGET = 1.5
"""The most that a snapshot may cost with a thousand tags, of what it costs without any."""
_PARTITION = bytes(12)


def main() -> None:
    snapshots, tags = sized((10_000, 1_000), quick=(2_000, 200), tiny=(20, 2))
    rounds = sized(3, quick=2, tiny=1)
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        table = history(root, snapshots)
        every = snapshots // tags
        ms: dict[str, list[float]] = {}
        files = 0
        for _ in range(rounds):
            for kind, run in {"procedure": by_procedure, "stream": by_stream}.items():
                for name, marked in {"no_tags": 0, "tags": every}.items():
                    spent_ms, files = timed(root, table, run, marked)
                    ms.setdefault(f"{kind}_{name}", []).append(spent_ms / snapshots)
            ms.setdefault("floor", []).append(floor_ms(root, files) / snapshots)
    per_snapshot = {name: round(statistics.median(each), 3) for name, each in ms.items()}
    ratio = {
        kind: round(statistics.median(a / b for a, b in zip(ms[f"{kind}_tags"], ms[f"{kind}_no_tags"], strict=True)), 2)
        for kind in ("procedure", "stream")
    }
    line = {
        "benchmark": "expiry",
        "commit": commit(),
        "machine": machine(),
        "rows": snapshots,
        "tags": tags,
        "peer": "deleting as many files",
        "files": files,
        "cpu_ms_per_snapshot": per_snapshot,
        "cost_to_floor": {
            name: round(value / per_snapshot["floor"], 2) for name, value in per_snapshot.items() if name != "floor"
        },
        "tags_to_none": {"ratio": ratio, "budget": BUDGET, "met": max(ratio.values()) <= BUDGET},
        "peak_memory_bytes": peak_memory_bytes(),
    }
    print(json.dumps(line))


def history(root: str, snapshots: int) -> FileTable:
    """A table of so many snapshots: each second one adds a file, the next merges it into the only other one."""
    schema = pa.schema([("id", pa.int64())])
    options = {"bucket": "1", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    table = FileCatalog(root).create_table("bench.original", schema, primary_key=["id"], options=options)
    top: DataFileMeta | None = None
    new: DataFileMeta | None = None
    for number in range(1, snapshots + 1):
        file = new_file(table, number, level=0 if new is None else 5)
        parts = {"partition": _PARTITION, "bucket": 0, "total_buckets": 1}
        done = table.new_commit(table.store.names.uuid(), history_start=number)
        if new is None:
            message = CommitMessage(**parts, new_files=(file,))  # type: ignore[arg-type]
            done.commit(Committable(identifier=BATCH_IDENTIFIER, messages=[message], base=SnapshotRef(number - 1, "")))
            new = file
        else:
            before = (new,) if top is None else (new, top)
            message = CommitMessage(**parts, compact_before=before, compact_after=(file,))  # type: ignore[arg-type]
            done.commit_compaction([message], base=SnapshotRef(number - 1, ""))
            new, top = None, file
    return table


def new_file(table: FileTable, number: int, *, level: int) -> DataFileMeta:
    name = f"data-{number}.parquet"
    path = table.store.paths.data_file((), 0, name)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).touch()
    key = encode_row((number,), table.store.key_types)
    return DataFileMeta(
        file_name=name,
        size_bytes=0,
        row_count=1,
        min_key=encode_row((0,), table.store.key_types) if level else key,
        max_key=key,
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        value_stats_cols=(),
        min_sequence_number=number,
        max_sequence_number=number,
        schema_id=0,
        level=level,
        delete_row_count=0,
        creation_time_ms=None,
        file_source=0,
    )


def timed(root: str, original: FileTable, run: Callable[[FileTable], None], tag_every: int) -> tuple[float, int]:
    """Milliseconds of processor time of an expiry down to one snapshot, and the files that it deleted.

    It works on a copy by hard links.
    """
    path = f"{root}/copy"
    shutil.copytree(original.store.paths.root, path, copy_function=os.link)
    table = FileTable.open("bench.copy", path)
    if tag_every:
        Path(table.store.paths.tag_dir).mkdir()
        for number in range(tag_every, table.store.snapshots.latest_id() or 0, tag_every):
            shutil.copyfile(table.store.paths.snapshot(number), table.store.paths.tag(f"t{number}"))
    before = count_files(path)
    began = time.process_time()
    run(table)
    spent_ms = (time.process_time() - began) * 1000
    assert len(table.store.snapshots.ids()) == 1
    deleted = before - count_files(path)
    shutil.rmtree(path)
    return spent_ms, deleted


def by_procedure(table: FileTable) -> None:
    expire_snapshots(EngineTable(table), retain_min=1, retain_max=1)


def by_stream(table: FileTable) -> None:
    keeper = Housekeeping(table.store)
    while len(table.store.snapshots.ids()) > 1:
        keeper.after_commit()


def floor_ms(root: str, count: int) -> float:
    """Milliseconds of processor time to delete so many files, by the same file system object, in one directory."""
    directory = Path(root) / "floor"
    directory.mkdir()
    paths = [str(directory / f"{number}") for number in range(count)]
    for path in paths:
        Path(path).touch()
    io = LocalFileIO()
    began = time.process_time()
    for path in paths:
        io.delete(path)
    spent_ms = (time.process_time() - began) * 1000
    directory.rmdir()
    return spent_ms


def count_files(path: str) -> int:
    return sum(len(files) for _, _, files in os.walk(path))


if __name__ == "__main__":
    main()
