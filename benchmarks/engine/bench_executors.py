"""Two executors of one core each against one: the same ingest of upserts, by the sink and by ``format("fluvial")``.

Micro-batches of four files of 100,000 upserts over 1,000,000 keys into 4 buckets, on clusters that Spark starts for the
job (``local-cluster``), taking turns; the better run of each counts. Budget: with two 1.7 times as fast as with one.
``one_place`` is the share of processor time that is not spent in executors: driver and committing process. It says
what more executors cannot make faster, also where the machine has no core for each of them. The format writer runs
also with all files written by the committing process (``write.files-by=commit``), to compare.

Beside them, what Spark itself reaches on this machine: plain PySpark that spreads the same rows by key, takes them as
Arrow in tasks and writes sorted Parquet files there, without a table. ``ratio_to_bare`` is how near a writer comes.

usage: python -m benchmarks executors [--quick | --tiny]; tiny starts no cluster, and compares a run with itself
"""

import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.engine.bench_ingest import run
from benchmarks.engine.ingest_input import write_input
from benchmarks.harness import commit, machine, sized

BUDGET = 1.7
MASTER = sized("local-cluster[{},1,1536]", quick="local-cluster[{},1,1536]", tiny="local[{}]")
BUCKETS = 4
WRITERS = {
    "sink": ["--writer", "sink"],
    "format": ["--writer", "format"],
    "format, files by the commit": ["--writer", "format", "--files-by", "commit"],
    "bare PySpark": ["--writer", "bare-tasks"],
}
PEER = "bare PySpark"


def main() -> None:
    batches, rows, keys, turns = sized((8, 100_000, 1_000_000, 2), quick=(3, 50_000, 100_000, 1), tiny=(1, 100, 50, 1))
    writers = sized(tuple(WRITERS), quick=tuple(WRITERS), tiny=("format",))
    counts = sized((1, 2), quick=(1, 2), tiny=(2,))
    best: dict[tuple[str, int], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="fluvial-executors-") as work:
        source = Path(work) / "input"
        write_input(source, batches=batches * 4, rows=rows, keys=keys)
        for turn, writer, count in itertools.product(range(turns), writers, counts):
            job = [sys.executable, str(Path(__file__).with_name("ingest_job.py"))]
            job += ["--master", MASTER.format(count), "--files", "4", *WRITERS[writer]]
            home = Path(work) / f"{writer.replace(', ', '-').replace(' ', '-')}-{count}-{turn}"
            found = run(job, source, home, f"bench.t{turn}", buckets=BUCKETS)
            before = best.get((writer, count), found)
            best[writer, count] = min(before, found, key=lambda each: each["seconds"])
    held = {found["rows_in_table"] for (writer, _), found in best.items() if writer != PEER}
    assert len(held) == 1, held
    figures = {writer: figure(best[writer, counts[0]], best[writer, 2]) for writer in writers}
    bare = figures.get(PEER)
    for writer, found in figures.items():
        if bare is not None:
            found["ratio_to_bare"] = round(found["ratio"] / bare["ratio"], 2)
        if writer != PEER:
            found |= {"budget": BUDGET, "met": found["ratio"] >= BUDGET}
    line = {"benchmark": "executors", "commit": commit(), "machine": machine(), "rows": batches * 4 * rows}
    print(json.dumps({**line, "peer": "one executor", **figures}))


def figure(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    """How much faster two are: by the median batch, so that the start of the executors does not count."""
    seconds = [sorted(found["batch_seconds"])[len(found["batch_seconds"]) // 2] for found in (one, two)]
    spent = two["cpu_seconds"]
    ratio = seconds[0] / seconds[1]
    return {
        "median_batch_s": seconds,
        "ratio": round(ratio, 2),
        "one_place": round(spent["others"] / (spent["others"] + spent["executors"]), 2),
        "cpu_seconds": spent,
        "cpu_seconds_of_one": one["cpu_seconds"],
    }


if __name__ == "__main__":
    main()
