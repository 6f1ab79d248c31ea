"""Batches of a table with exact changes in its log, compared with the same batches and upserts in the log.

    python -m benchmarks log_changes [--quick | --tiny] [--profile]

A compacted table of one bucket; each batch updates keys spread over all of it, or keys side by side. With exact changes
the writer looks up what the rows were and sends two records for each. ``--profile`` shows where the time of one batch
goes instead.
"""

import cProfile
import pstats
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness import measure, sized
from benchmarks.lsm_tables import SEED, rows_of
from engine import Catalog, Table
from engine.broker.broker import Broker

PEER = "upsert"
EXACT = {"log.changelog-mode": "all", "changelog-producer": "lookup"}


def table_of(root: str, broker: Broker, name: str, rows: int, options: dict[str, str]) -> Table:
    random = np.random.default_rng(SEED)
    settings = {
        "bucket": "1",
        "log.kafka.bootstrap.servers": broker.bootstrap_servers,
        "num-sorted-run.compaction-trigger": "1000",
        "write-only": "true",
        **options,
    }
    schema = rows_of("int", np.arange(1), random).schema
    table = Catalog(root).create_table(f"bench.{name}", schema, primary_key=["k"], options=settings)
    for first in range(0, rows, 1_000_000):
        keys = np.arange(first, min(first + 1_000_000, rows))
        table.write(rows_of("int", keys, random), options={"change-tracking": "false"})
    table.compact(full=True)
    return table


def writes(table: Table, keys_of: Callable[[np.random.Generator], np.ndarray]) -> Callable[[], object]:
    """Writes a batch at every call; every table gets the same ones."""
    random = np.random.default_rng(SEED + 1)

    def write() -> None:
        rows: pa.Table = rows_of("int", keys_of(random), random)
        table.write(rows)

    return write


def main() -> None:
    (rows, batch), repeats = sized(((5_000_000, 100_000), 5), quick=((1_000_000, 20_000), 3), tiny=((5_000, 100), 1))

    def spread(random: np.random.Generator) -> np.ndarray:
        return random.choice(rows, batch, replace=False)

    def clustered(random: np.random.Generator) -> np.ndarray:
        first = int(random.integers(0, rows - batch))
        return random.permutation(np.arange(first, first + batch))

    def few(random: np.random.Generator) -> np.ndarray:
        return random.choice(rows, max(batch // 1000, 1), replace=False)

    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root, Broker(Path(root) / "broker") as broker:
        for name, keys_of in {"spread": spread, "clustered": clustered, "few": few}.items():
            exact = writes(table_of(root, broker, f"exact_{name}", rows, EXACT), keys_of)
            if "--profile" in sys.argv[1:]:
                exact()
                with cProfile.Profile() as profile:
                    exact()
                pstats.Stats(profile).sort_stats("tottime").print_stats(25)
                continue
            upsert = writes(table_of(root, broker, f"upsert_{name}", rows, {}), keys_of)
            count = len(keys_of(np.random.default_rng(SEED)))
            found = measure("log_changes", {"exact": exact, PEER: upsert}, rows=count, repeats=repeats)
            cost = round(1 / found.ratio("exact", PEER), 2)
            cpu = round(1 / found.cpu_ratio("exact", PEER), 2)
            facts = {"keys": name, "table_rows": rows, "cost_to_upsert": cost, "cpu_cost_to_upsert": cpu}
            print(found.line(peer=PEER, **facts), flush=True)


if __name__ == "__main__":
    main()
