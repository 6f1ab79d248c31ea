"""Merging a branch by key: few changed keys in a large bucket that main has changed too, against writing it again.

Both sides change other keys of one bucket. ``few`` merges them where the commits of both say what changed; ``states``
where they have expired, so that the three states are compared; ``rewrite`` is what the same costs without a merge by
key: the branch's rows are read, joined with main's and written as the new table.

usage: python -m benchmarks key_merge [--quick | --tiny]
"""

import json
import statistics
import tempfile
import time

import numpy as np
import pyarrow as pa

from benchmarks.harness import commit, machine, peak_memory_bytes, sized
from engine import Catalog, Table
from engine.versions.branches import create_branch, delete_branch
from filestore.branch.merge import merge_branch
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.snapshot.retention import Retention

SHARE_BUDGET = 0.2
"""The most that a merge of few keys may cost, of what writing the table again costs."""
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("a", pa.int64()), ("b", pa.float64()), ("note", pa.string())]
)


def main() -> None:
    count = sized(5_000_000, quick=500_000, tiny=2_000)
    changed = sized(1_000, quick=1_000, tiny=50)
    rounds = sized(3, quick=2, tiny=1)
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        for number in range(rounds):
            for name, expires in {"few": False, "states": True}.items():
                catalog = Catalog(f"{root}/{name}{number}")
                table = filled(catalog, count)
                merged(catalog, table, count, changed, expires=expires, seconds=seconds.setdefault(name, []))
            rewritten(table, count, changed, seconds.setdefault("rewrite", []))
    spent = {name: round(statistics.median(each), 3) for name, each in seconds.items()}
    share = spent["few"] / spent["rewrite"]
    line = {
        "benchmark": "key_merge",
        "commit": commit(),
        "machine": machine(),
        "rows": count,
        "changed_keys": changed,
        "peer": "rewrite",
        "cpu_s": spent,
        "few_of_rewrite": {"ratio": round(share, 3), "budget": SHARE_BUDGET, "met": share <= SHARE_BUDGET},
        "states_of_rewrite": round(spent["states"] / spent["rewrite"], 3),
        "peak_memory_bytes": peak_memory_bytes(),
    }
    print(json.dumps(line))


def filled(catalog: Catalog, count: int) -> Table:
    """A compacted table of one bucket."""
    table = catalog.create_table("bench.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(rows_of_ids(np.arange(count), 0))
    table.compact(full=True)
    return table


def rows_of_ids(ids: np.ndarray, value: int) -> pa.Table:
    values = ids * 7 + value
    columns = {"id": ids, "a": values, "b": values / 3, "note": [f"note {each % 1000}" for each in ids]}
    return pa.table(columns, SCHEMA)


def merged(catalog: Catalog, table: Table, count: int, changed: int, *, expires: bool, seconds: list[float]) -> None:
    """Main and a branch change other keys, spread over the bucket; the branch is merged."""
    random = np.random.default_rng(1)
    ids = random.choice(count, size=changed * 2, replace=False) if count >= changed * 2 else np.arange(count)
    create_branch(table.store, "b", snapshot_id=table.store.snapshots.latest_id())
    catalog.table(f"{table.name}$branch_b").write(rows_of_ids(ids[::2], 1))
    table.write(rows_of_ids(ids[1::2], 2))
    table.write(rows_of_ids(ids[1::2], 3))
    if expires:
        expire_snapshots(table.store, Retention(min_count=1, max_count=1, age_ms=0, limit=100))
    began = time.process_time()
    done = merge_branch(table.store, "b")
    seconds.append(time.process_time() - began)
    assert done.snapshot is not None
    assert done.conflict_count == 0
    delete_branch(table.store, "b")


def rewritten(table: Table, count: int, changed: int, seconds: list[float]) -> None:
    """The same rows reach main by reading everything and writing it again."""
    ids = np.arange(0, count, max(count // changed, 1))
    new = rows_of_ids(ids, 5)
    began = time.process_time()
    old = table.read().to_arrow()
    kept = old.filter(pa.array(~np.isin(old["id"].to_numpy(), ids)))
    table.overwrite(pa.concat_tables([kept, new.cast(kept.schema)]))
    seconds.append(time.process_time() - began)


if __name__ == "__main__":
    main()
