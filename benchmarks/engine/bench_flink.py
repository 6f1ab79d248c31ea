"""From a write to the row in a real Flink job: over the log, and over Paimon's stream of the same files.

Rows are written one after the other by ``Table.write``, at a steady pace; the job is ``SELECT *`` with Paimon's stock
connector. The latency of a row is the time from the call of its write to the row in the job's client, which gets rows
as they come, not with the next checkpoint, and asks for them every tenth of a second. The stream of the files looks
for snapshots every 10 s by default, or as often as ``continuous.discovery-interval`` says, at the least every
millisecond. Budget: the median over the log is under a second.

On a quiet machine with 2 cores ``--quick`` takes about two minutes.

usage: python -m benchmarks flink [--quick | --tiny]
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import commit, machine, sized
from engine import Catalog
from engine.broker.broker import Broker
from tests.peers.flink import Flink

BUDGET_S = 1.0
WARM_UP_ROWS = 5
PAUSE_S = 0.05
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def latencies(catalog: Catalog, flink: Flink, name: str, count: int, **options: str) -> list[float]:
    """Seconds of each row; ``options``: of the job."""
    table = catalog.create_table(f"bench.{name}", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [-1], "text": ["x" * 50]}))
    hint = ", ".join(f"'{key}'='{text}'" for key, text in options.items())
    query = f"SELECT id FROM {flink.catalog(Path(catalog.warehouse))}.bench.{name}"
    began: dict[int, float] = {}
    with flink.stream(f"{query} /*+ OPTIONS({hint}) */" if hint else query) as job:
        job.wait(lambda changes: len(changes) == 1)
        for number in range(count + WARM_UP_ROWS):
            rows = pa.table({"id": [number], "text": ["x" * 50]})
            began[number] = time.perf_counter()
            table.write(rows)
            time.sleep(PAUSE_S)
        job.wait(lambda changes: len(changes) == len(began) + 1)
        arrived = {change[1]: at_s for change, at_s in job.arrivals}
    return sorted(arrived[number] - began[number] for number in range(WARM_UP_ROWS, len(began)))


def percentiles(found: list[float]) -> dict[str, int]:
    """In milliseconds."""
    return {
        "rows": len(found),
        "p50_ms": round(statistics.median(found) * 1000),
        "p99_ms": round(found[int(len(found) * 0.99)] * 1000),
    }


def main() -> None:
    count, slow_count = sized(300, quick=100, tiny=2), sized(300, quick=100, tiny=0)
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root, Broker(Path(root) / "broker") as broker:
        (Path(root) / "flink").mkdir()
        flink = Flink(Path(root) / "flink")
        catalog = Catalog(f"{root}/warehouse", options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})
        log = percentiles(latencies(catalog, flink, "log", count))
        files = {"log.system": "none"}
        often = latencies(catalog, flink, "often", count, **files, **{"continuous.discovery-interval": "1 ms"})
        by_default = latencies(catalog, flink, "by_default", slow_count, **files) if slow_count else []
        flink.close()
    line = {
        "benchmark": "flink",
        "commit": commit(),
        "machine": machine(),
        "peer": "Paimon's stream of the files",
        **log,
        "files_every_1_ms": percentiles(often),
        **({"files_every_10_s": percentiles(by_default)} if by_default else {}),
        "budget": BUDGET_S,
        "met": log["p50_ms"] < BUDGET_S * 1000,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
