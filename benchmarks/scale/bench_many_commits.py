"""Commits of one file to a table with many snapshots: what the last ones cost beside the first.

Snapshots are kept, manifests are merged as usual, and each commit is a batch write's: a user of its own on the newest
snapshot. Budget: the last tenth at most 1.3 times the processor time of the second.

usage: python -m benchmarks many_commits [--quick | --tiny]
"""

import statistics
import tempfile
import time
from itertools import pairwise
from typing import Final

import pyarrow as pa

from benchmarks.harness import Measurement, sized
from benchmarks.scale.bench_many_files import BUCKETS, TYPES, data_file
from filestore.catalog.catalog import FileCatalog
from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.manifest.commit_message import CommitMessage
from filestore.types.binary_row import encode_row

BUDGET: Final = 1.3
TENTHS: Final = 10


def commit_seconds(root: str, count: int) -> list[float]:
    """Processor time of each commit."""
    options = {"bucket": str(BUCKETS), "write-only": "true", "snapshot.num-retained.min": str(count + 1)}
    options |= {"snapshot.num-retained.max": str(count + 1)}
    table = FileCatalog(root).create_table(
        "bench.t", pa.schema(list(TYPES.items())), primary_key=["dt", "id"], partition_by=["dt"], options=options
    )
    partition = encode_row(("p000000",), table.store.partition_types)
    times = [time.process_time()]
    for number in range(count):
        bucket = number % BUCKETS
        file = data_file(table, 0, bucket, number)
        message = CommitMessage(partition=partition, bucket=bucket, total_buckets=BUCKETS, new_files=(file,))
        base = table.store.snapshots.latest_ref()
        commit = table.new_commit(table.store.new_commit_user(), history_start=base.id)
        commit.commit(Committable(identifier=BATCH_IDENTIFIER, messages=(message,), base=base))
        times.append(time.process_time())
    return [after - before for before, after in pairwise(times)]


def main() -> None:
    count = sized(10_000, quick=1_000, tiny=20)
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        seconds = commit_seconds(root, count)
    tenth = count // TENTHS
    by_tenth = [seconds[first : first + tenth] for first in range(0, count, tenth)]
    found = Measurement(
        name="many_commits",
        rows=tenth,
        seconds={name: (sum(part),) for name, part in (("last", by_tenth[-1]), ("second", by_tenth[1]))},
        cpu_seconds={name: (sum(part),) for name, part in (("last", by_tenth[-1]), ("second", by_tenth[1]))},
    )
    growth = round(statistics.mean(by_tenth[-1]) / statistics.mean(by_tenth[1]), 2)
    medians = [round(1000 * statistics.median(part), 2) for part in by_tenth]
    facts = {"snapshots": count, "growth": growth, "median_ms_by_tenth": medians}
    print(found.line(peer="second", budget=BUDGET, met=growth <= BUDGET, **facts), flush=True)


if __name__ == "__main__":
    main()
