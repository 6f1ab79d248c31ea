"""Following a table without Spark: the log, a snapshot, latency, a copy in memory; beside pypaimon's streaming read.

    python -m benchmarks follow [--quick | --tiny]

Lines: ``table.stream()`` over a log, against a bare ``consume()`` of the same records that decodes them (budget: 0.8 of
its rate); the start from a snapshot, against ``read()`` (0.9); from the return of a commit to a callback of ``live()``
(p50 20 ms, p99 60 ms); a copy in memory (400 MB, 3 s, 200,000 ``get`` a second, for a million rows); forty commits
without a log, against pypaimon.
"""

import json
import random
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, TopicPartition

from benchmarks.harness import REPOSITORY, commit, machine, measure, sized
from benchmarks.logstore.bench_log_read import filled
from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.log.log_rows import LogColumns
from logstore.kafka.clients import ErrorNotes

LOG_BUDGET, SNAPSHOT_BUDGET = 0.8, 0.9
P50_MS, P99_MS = 20, 60
LIVE_S, LIVE_MB, LIVE_GETS = 3.0, 400, 200_000
COMMITS = 40
PEER_PYTHON = REPOSITORY / ".venv-peers" / "bin" / "python"
WIDE = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.float64()),
        ("kind", pa.int32()),
        ("state", pa.string()),
        ("changed", pa.timestamp("us")),
        ("count", pa.int64()),
    ]
)


def wide_rows(first: int, count: int) -> pa.Table:
    chance = np.random.default_rng(first)
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "name": [f"user-{number}" for number in range(first, first + count)],
            "amount": chance.random(count),
            "kind": chance.integers(0, 1000, count).astype(np.int32),
            "state": np.array(["paid", "new", "sent"])[chance.integers(0, 3, count)],
            "changed": pa.array(chance.integers(0, 1 << 50, count), pa.timestamp("us")),
            "count": chance.integers(0, 1 << 40, count),
        },
        schema=WIDE,
    )


def decoded(table: Table) -> int:
    """A bare loop: consume, make Arrow of the values, decode."""
    log = table.log
    assert log is not None
    columns = LogColumns.of(table.files, table.schema.column_names)
    consumer = log.properties.consumer(ErrorNotes())
    consumer.assign([TopicPartition(log.topic, 0, 0)])
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    end, reached, count = snapshot.log_offsets[0], 0, 0
    values: list[Any] = []
    while reached < end:
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                reached = message.offset() + 1
                values.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                reached = message.offset()
        if len(values) >= 32_768 or reached >= end:
            changes = log.codec.decode(None, pa.array(values, pa.binary()), columns.schema)
            count += columns.apply(changes.rows, changes.kinds).num_rows
            values = []
    consumer.close()
    return count


def streamed(table: Table, start: Any) -> int:
    with table.stream(start, follow=False) as stream:
        return sum(changes.rows.num_rows for changes in stream)


def bench_log(root: str, broker: Broker) -> None:
    rows = sized(1_000_000, quick=200_000, tiny=2_000)
    table = filled(root, broker, rows)
    start = '{"version":1,"phase":"log","snapshot":0,"schema":0,"offsets":{},"topic":%s}'
    log = table.log
    assert log is not None
    place = start % json.dumps(log.topic_id)
    work = {"table.stream()": lambda: streamed(table, place), "consume() and decode": lambda: decoded(table)}
    found = measure("follow_log", work, rows=rows, repeats=3)
    ratio = found.ratio("table.stream()", "consume() and decode")
    print(found.line(peer="consume() and decode", budget=LOG_BUDGET, met=ratio >= LOG_BUDGET), flush=True)


def bench_snapshot(root: str) -> None:
    rows = sized(5_000_000, quick=1_000_000, tiny=2_000)
    table = Catalog(root).create_table("bench.wide", WIDE, primary_key=["id"], options={"bucket": "4"})
    for first in range(0, rows, 1_000_000):
        table.write(wide_rows(first, min(1_000_000, rows - first)))
    table.compact(full=True)
    read = lambda: sum(batch.num_rows for batch in table.read().to_batches())  # noqa: E731
    found = measure("follow_snapshot", {"table.stream()": lambda: streamed(table, None), "read()": read}, rows=rows)
    ratio = found.ratio("table.stream()", "read()")
    print(found.line(peer="read()", budget=SNAPSHOT_BUDGET, met=ratio >= SNAPSHOT_BUDGET), flush=True)


def bench_latency(root: str, broker: Broker) -> None:
    commits = sized(200, quick=50, tiny=3)
    options = {"bucket": "2", "log.kafka.bootstrap.servers": broker.bootstrap_servers}
    table = Catalog(root).create_table("bench.live", WIDE, primary_key=["id"], options=options)
    table.write(wide_rows(0, 1000))
    seen: dict[int, float] = {}
    took = []
    with table.live() as live:
        live.on_change(lambda changes: seen.update(dict.fromkeys(changes.rows["id"].to_pylist(), time.monotonic())))
        for number in range(commits):
            first = 1000 + 10 * number
            handle = table.handle_of(table.write(wide_rows(first, 10)))
            done = time.monotonic()
            live.wait_for(handle)
            while first + 9 not in seen or first not in seen:
                time.sleep(0.001)
            took.append(max(0.0, max(seen[each] for each in range(first, first + 10)) - done) * 1000)
            time.sleep(random.uniform(0.05, 0.3))
    took.sort()
    p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
    facts = {
        "rows": len(took),
        "p50_ms": max(0.0, round(p50, 1)),
        "p99_ms": round(p99, 1),
        "budget": P50_MS,
        "peer": "the commit",
    }
    show("follow_latency", **facts, budget_p99_ms=P99_MS, met=p50 <= P50_MS and p99 <= P99_MS)


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def bench_live(root: str) -> None:
    rows = sized(1_000_000, quick=1_000_000, tiny=2_000)
    table = Catalog(root).create_table("bench.copy", WIDE, primary_key=["id"], options={"bucket": "4"})
    table.write(wide_rows(0, rows))
    pa.default_memory_pool().release_unused()
    before, began = resident_mb(), time.perf_counter()
    with table.live() as live:
        seconds, size = time.perf_counter() - began, resident_mb() - before
        keys = [random.randrange(rows) for _ in range(200_000)]
        cpu = time.thread_time()
        for key in keys:
            live.get(key)
        gets = len(keys) / (time.thread_time() - cpu)
    facts = {"rows": rows, "fill_s": round(seconds, 2), "size_mb": round(size), "gets_per_s": round(gets)}
    show(
        "follow_live",
        **facts,
        peer="a dictionary",
        budget=LIVE_GETS,
        met=seconds <= LIVE_S and size <= LIVE_MB and gets >= LIVE_GETS,
    )


def bench_files(root: str) -> None:
    commits, each = sized((COMMITS, 25_000), quick=(COMMITS, 5_000), tiny=(2, 100))
    options = {"bucket": "2", "write-only": "true"}
    table = Catalog(root).create_table("bench.files", WIDE, primary_key=["id"], options=options)
    for number in range(commits):
        table.write(wide_rows(number * each, each))
    began = time.perf_counter()
    assert streamed(table, '{"version":1,"phase":"log","snapshot":0,"schema":0,"offsets":{}}') == commits * each
    seconds = time.perf_counter() - began
    facts: dict[str, Any] = {"rows": commits * each, "stream_seconds": round(seconds, 3)}
    if PEER_PYTHON.exists():
        script = Path(__file__).parent / "peers" / "pypaimon_follow.py"
        command = [str(PEER_PYTHON), str(script), root, "bench.files", str(commits)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr[-2000:])
        peer = json.loads(done.stdout.splitlines()[-1])
        facts |= {"peer": "pypaimon", "peer_seconds": round(peer["seconds"], 3), "peer_rows": peer["rows"]}
        facts["ratio"] = round(peer["seconds"] / seconds, 2)
    show("follow_files", **facts)


def show(name: str, **facts: Any) -> None:
    print(json.dumps({"benchmark": name, "commit": commit(), "machine": machine(), **facts}), flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root, Broker(Path(root) / "broker") as broker:
        bench_log(root, broker)
        bench_latency(root, broker)
        bench_files(root)
        bench_live(root)
        bench_snapshot(root)


if __name__ == "__main__":
    main()
