"""Branches: what making, opening, publishing and deleting one costs, on a table of few files and on one of many.

The files of the table are entries of manifests without bytes; what is written on the branch, and published, is real:
rows of one bucket. The peer of a publication is the same write to main.

usage: python -m benchmarks branches [--quick | --tiny]
"""

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from benchmarks.harness import commit, machine, peak_memory_bytes, sized
from engine import Catalog, Table
from engine.versions.branches import create_branch, delete_branch
from filestore.branch.merge import merge_branch
from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.commit.table_commit import TableCommit
from filestore.format.simple_stats import EMPTY_STATS
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.types.binary_row import encode_row

OPEN_BUDGET = 2.0
"""The most that opening a table on a branch may cost, of what opening it on main does: it has more small files."""
GROWTH_BUDGET = 3.0
"""The most that making a branch, or publishing a bucket, may cost on the large table, of what it costs on the small."""
FILES_PER_BUCKET = 10
SCHEMA = pa.schema([pa.field("day", pa.int32(), nullable=False), pa.field("id", pa.int64(), nullable=False)])


def main() -> None:
    small, large = sized((1_000, 30_000), quick=(1_000, 10_000), tiny=(20, 100))
    rounds = sized(5, quick=3, tiny=1)
    ms: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        catalog = Catalog(root)
        tables = {size: filled(catalog, size, files) for size, files in {"small": small, "large": large}.items()}
        for number in range(rounds + 1):  # the first warms up
            found: dict[str, list[float]] = {}
            for size, table in tables.items():
                one_round(catalog, table, number, size, found)
            if number:
                for name, each in found.items():
                    ms.setdefault(name, []).extend(each)
    spent = {name: round(statistics.median(each), 2) for name, each in ms.items()}
    line = {
        "benchmark": "branches",
        "commit": commit(),
        "machine": machine(),
        "rows": large,
        "files": {"small": small, "large": large},
        "peer": "main",
        "cpu_ms": spent,
        "open": facts(spent["open_branch_large"] / spent["open_main_large"], OPEN_BUDGET),
        "create_growth": facts(spent["create_large"] / spent["create_small"], GROWTH_BUDGET),
        "publish_growth": facts(spent["publish_large"] / spent["publish_small"], GROWTH_BUDGET),
        "publish_to_write": round(spent["publish_large"] / spent["write_main_large"], 2),
        "peak_memory_bytes": peak_memory_bytes(),
    }
    print(json.dumps(line))


def facts(ratio: float, budget: float) -> dict[str, object]:
    return {"ratio": round(ratio, 2), "budget": budget, "met": ratio <= budget}


def one_round(catalog: Catalog, table: Table, number: int, size: str, ms: dict[str, list[float]]) -> None:
    """A branch's life."""

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        began = time.process_time()
        yield
        ms.setdefault(f"{name}_{size}", []).append((time.process_time() - began) * 1000)

    with timed("create"):
        create_branch(table.store, "b", snapshot_id=table.store.snapshots.latest_id())
    catalog.table(table.name)  # so that both find warm directories
    for name, what in {"main": table.name, "branch": f"{table.name}$branch_b"}.items():
        with timed(f"open_{name}"):
            catalog.table(what)
    rows = pa.table({"day": pa.array([0] * 1000, pa.int32()), "id": list(range(1000))}, schema=SCHEMA)
    branch = catalog.table(f"{table.name}$branch_b")
    with timed("write_branch"):
        branch.write(rows)
    with timed("publish"):
        assert merge_branch(table.store, "b").bucket_count == 1
    with timed("delete"):
        delete_branch(table.store, "b")
    with timed("write_main"):
        table.write(rows)
    table.overwrite(rows, {"day": 0})


def filled(catalog: Catalog, size: str, files: int) -> Table:
    """A table of so many files in its manifests, FILES_PER_BUCKET in each partition."""
    table = catalog.create_table(
        f"bench.{size}", SCHEMA, primary_key=["day", "id"], partition_by=["day"], options={"bucket": "1"}
    )
    store = table.store
    messages = [
        CommitMessage(
            partition=encode_row((day,), store.partition_types),
            bucket=0,
            total_buckets=1,
            new_files=tuple(entry(table, day, number) for number in range(FILES_PER_BUCKET)),
        )
        for day in range(1, files // FILES_PER_BUCKET + 1)
    ]
    TableCommit(store, store.names.uuid()).commit(Committable(identifier=BATCH_IDENTIFIER, messages=messages))
    return table


def entry(table: Table, day: int, number: int) -> DataFileMeta:
    key = encode_row((number,), table.store.key_types)
    return DataFileMeta(
        file_name=f"data-{day}-{number}.parquet",
        size_bytes=0,
        row_count=1,
        min_key=key,
        max_key=key,
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        value_stats_cols=(),
        min_sequence_number=number,
        max_sequence_number=number,
        schema_id=0,
        level=0,
        delete_row_count=0,
        creation_time_ms=None,
        file_source=0,
    )


if __name__ == "__main__":
    main()
