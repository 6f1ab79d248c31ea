"""A job that is started again: ``fluvial run`` until its end, one micro-batch of files, beside bare PySpark.

What a scheduler does every few minutes. The archive of Spark's classes is made behind a first run, so the second start
of a job has it. Measured is the whole process on the clock; starts take turns. The peer is a script that reads the same
files in a stream and takes each batch with ``toArrow``, without a table. Budget: its time. Beside them the same job
without an archive.

usage: python -m benchmarks job_start [--quick | --tiny]; tiny makes no archive, and compares a start with itself
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.harness import commit, machine, sized
from engine.spark.class_archive import SUBMIT_OPTIONS, SWITCH, spark_archive

BUDGET = 1.0
PEER = "bare PySpark"
ROWS = 10_000
BARE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
files = spark.readStream.schema("id long, v double").parquet(sys.argv[1])
query = files.writeStream.option("checkpointLocation", sys.argv[2]).trigger(availableNow=True)
query.foreachBatch(lambda frame, _: frame.toArrow() and None).start().awaitTermination()
spark.stop()
"""


def write_job(root: Path) -> Path:
    """A job of one pipeline from a folder of Parquet files into a table."""
    columns = {"id": "bigint", "v": "double"}
    job = {
        "name": "bench-job-start",
        "warehouse": str(root / "warehouse"),
        "spark": {"master": "local[2]", "conf": {"spark.ui.enabled": "false", "spark.log.level": "OFF"}},
        "tables": {"bench.t": {"columns": columns, "primary_key": ["id"], "options": {"bucket": "2"}}},
        "pipelines": [
            {
                "name": "files",
                "source": {"format": "parquet", "options": {"path": str(root / "files")}},
                "target": "bench.t",
                "trigger": "available-now",
                "checkpoint": str(root / "checkpoint"),
            }
        ],
    }
    path = root / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    return path


def seconds_of(command: list[str], environment: dict[str, str]) -> float:
    """How long a process takes, on the clock."""
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return time.perf_counter() - started


def main() -> None:
    repeats, warm_ups, least = sized((5, 1, False), quick=(3, 1, False), tiny=(1, 0, True))
    archive = spark_archive()
    if not least:
        subprocess.run([sys.executable, "-m", "engine.spark.class_training"], check=True, capture_output=True)
        assert archive is not None
        assert archive.exists(), archive
    outside = {name: value for name, value in os.environ.items() if name != SUBMIT_OPTIONS}
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as work:
        root, numbers = Path(work), count()
        job = write_job(root)
        fluvial = [sys.executable, "-m", "engine.cli", "run", str(job)]
        bare = [sys.executable, "-c", BARE, str(root / "files"), str(root / "bare")]
        starts = {
            "again": (fluvial, outside | {SWITCH: "true"}),
            "no archive": (fluvial, outside | {SWITCH: "false"}),
            PEER: (bare, outside),
        }
        (root / "files").mkdir()
        for turn in range(warm_ups + repeats):
            for name, (command, environment) in starts.items():
                if least and name != "no archive":
                    continue
                number = next(numbers)
                ids = np.arange(number * ROWS // 2, number * ROWS // 2 + ROWS)
                rows = pa.table({"id": ids, "v": np.random.default_rng(number).random(ROWS)})
                pq.write_table(rows, root / "files" / f"{number:05}.parquet")
                seconds = seconds_of(command, environment)
                if turn >= warm_ups:
                    found.setdefault(name, []).append(seconds)
    medians = {name: round(statistics.median(found.get(name, found["no archive"])), 2) for name in starts}
    ratio = medians["again"] / medians[PEER]
    line = {
        "benchmark": "job_start",
        "commit": commit(),
        "machine": machine(),
        "rows": ROWS,
        "peer": PEER,
        "ratio_to_peer": round(ratio, 2),
        "ratio_to_no_archive": round(medians["again"] / medians["no archive"], 2),
        "median_seconds": medians,
        "budget": BUDGET,
        "met": ratio <= BUDGET,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
