"""Many live files: planning all of them, and writing and reading one row, each in a table opened for it.

The files are entries of manifests only, but those of one bucket. Beside it: reading the same manifests entry by entry
with fastavro. Budget: a plan of 20,000 files in 0.2 s of processor time, of 200,000 in 2 s and 500 MB, also when
every file is looked at; a row written or read in as much at most.

usage: python -m benchmarks many_files [--quick | --tiny]
"""

import tempfile
import time
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from benchmarks.harness import measure, run_in_child, sized
from filestore.catalog.catalog import FileCatalog
from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.format.simple_stats import SimpleStats
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta, ManifestEntry, live_entries
from filestore.manifest.record_files import decoded_records
from filestore.scan.snapshot_files import manifests_of
from filestore.table import FileTable
from filestore.types.binary_row import encode_row

PEER: Final = "entry by entry"
BUCKETS: Final = 20
FILES_OF_A_BUCKET: Final = 4
SECONDS_OF_A_FILE: Final = 1e-5
MOST_BYTES: Final = 500_000_000
TYPES: Final = {"dt": pa.string(), "id": pa.int64(), "v": pa.float64(), "text": pa.string()}


def opened(root: str) -> FileTable:
    return FileCatalog(root).table("bench.t")


def make_table(root: str, files: int) -> None:
    """A partition with rows, then others with ``files`` files on the top level, 20,000 a commit."""
    catalog = FileCatalog(root)
    options = {"bucket": str(BUCKETS), "write-only": "true"}
    table = catalog.create_table(
        "bench.t", pa.schema(list(TYPES.items())), primary_key=["dt", "id"], partition_by=["dt"], options=options
    )
    table.write(rows(range(1000)))
    messages: list[CommitMessage] = []
    for partition in range(max(1, files // (BUCKETS * FILES_OF_A_BUCKET))):
        encoded = encode_row((f"p{partition:06d}",), table.store.partition_types)
        for bucket in range(BUCKETS):
            made = tuple(data_file(table, partition, bucket, number) for number in range(FILES_OF_A_BUCKET))
            messages.append(CommitMessage(partition=encoded, bucket=bucket, total_buckets=BUCKETS, compact_after=made))
        if len(messages) * FILES_OF_A_BUCKET >= 20_000:
            commit(table, messages)
            messages = []
    commit(table, messages)


def commit(table: FileTable, messages: list[CommitMessage]) -> None:
    if messages:
        committable = Committable(identifier=BATCH_IDENTIFIER, messages=messages)
        latest = table.store.snapshots.latest_ref()
        table.new_commit(table.store.new_commit_user()).replace_files(committable, only_after=latest.id)


def data_file(table: FileTable, partition: int, bucket: int, number: int) -> DataFileMeta:
    first, types = number * 1000, [field.type for field in table.schema.fields]
    low, high = (encode_row((key,), table.store.key_types) for key in (first, first + 999))
    values = [
        encode_row((f"p{partition:06d}", key, float(key), text), types)
        for key, text in ((first, "a short text"), (first + 999, "z longer text, cut"))
    ]
    return DataFileMeta(
        file_name=f"data-00000000-0000-4000-{bucket:04d}-{partition:012d}-{number}.parquet",
        size_bytes=100 << 20,
        row_count=1_000_000,
        min_key=low,
        max_key=high,
        key_stats=SimpleStats(min_values=low, max_values=high, null_counts=(0,)),
        value_stats=SimpleStats(min_values=values[0], max_values=values[1], null_counts=(0, 0, partition, 4)),
        min_sequence_number=first,
        max_sequence_number=first + 999,
        schema_id=0,
        level=5,
        creation_time_ms=table.store.clock.local_ms(),
        delete_row_count=0,
        file_source=1,
    )


def rows(ids: range) -> pa.Table:
    return pa.table({"dt": ["live"] * len(ids), "id": ids, "v": [1.5] * len(ids), "text": ["x"] * len(ids)})


def plan(root: str) -> int:
    return sum(len(split.files) for split in opened(root).read().plan().splits)


def plan_and_look(root: str) -> int:
    """As Spark's frames do: the name of every file, one split after the other."""
    return len([file.file_name for split in opened(root).read().plan().splits for file in split.files])


def entry_by_entry(root: str) -> int:
    store = opened(root).store
    latest = store.snapshots.latest()
    assert latest is not None
    bodies = (
        (each.file_name, store.io.read_bytes(store.paths.manifest(each.file_name)))
        for each in manifests_of(store, latest)
    )
    return len(
        live_entries(
            entry
            for name, body in bodies
            for entry in decoded_records(body, source=name, decode=ManifestEntry.from_avro)
        )
    )


def write_one(root: str) -> None:
    opened(root).write(rows(range(1)))


def read_one(root: str) -> int:
    return opened(root).read().to_arrow(filter="dt = 'live' AND id = 7").num_rows


def cpu_seconds(work: Callable[[], object]) -> float:
    """The least of three."""
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    files, repeats = sized((200_000, 3), quick=(20_000, 3), tiny=(800, 1))
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        make_table(root, files)
        assert plan(root) == entry_by_entry(root)
        fresh, looked = run_in_child(plan, root), run_in_child(plan_and_look, root)
        actions = {"write_one_row": lambda: write_one(root), "read_one_row": lambda: read_one(root)}
        facts = {f"{name}_cpu_seconds": round(cpu_seconds(action), 4) for name, action in actions.items()}
        variants = {"plan": lambda: plan(root), PEER: lambda: entry_by_entry(root)}
        found = measure("many_files", variants, rows=files, repeats=repeats)
        budget = max(0.2, files * SECONDS_OF_A_FILE)
        slowest = max(min(found.cpu_seconds["plan"]), *facts.values())
        print(
            found.line(
                peer=PEER,
                budget=budget,
                met=slowest <= budget and looked.peak_memory_bytes <= MOST_BYTES,
                looked_peak_memory_bytes=looked.peak_memory_bytes,
                looked_cpu_seconds=round(cpu_seconds(lambda: plan_and_look(root)), 4),
                plan_peak_memory_bytes=fresh.peak_memory_bytes,
                plan_cpu_seconds=[round(value, 4) for value in found.cpu_seconds["plan"]],
                **facts,
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
