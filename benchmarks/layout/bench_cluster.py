"""What `cluster` gives a filter by ranges of two columns, and what it costs.

    python -m benchmarks.layout.bench_cluster [--quick | --tiny]

Readings with a place in two columns, in the order of a third (the time), as they arrive. The box is a tenth of one
column by a tenth of the other: one row of a hundred. Files and row groups are those whose statistics do not exclude it;
the processor time is of the whole read. The order by the first column alone is what a sort without a curve gives.
"""

import sys
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import measure, run_in_child, sized
from filestore.catalog.catalog import FileCatalog
from filestore.compact.compactor import compact_buckets
from filestore.compact.row_order import RowOrder
from filestore.table import FileTable

WRITTEN = "as written"
STRATEGIES = ("zorder", "hilbert", "order")
BOX = {"lat": (2_000, 3_000), "lon": (5_000, 6_000)}
FILTER = " and ".join(f"{name} >= {low} and {name} < {high}" for name, (low, high) in BOX.items())
BUDGET = 0.1
"""Of all row groups, those that the box may be in."""


def filled(root: str, name: str, rows: int) -> FileTable:
    """The table of a variant, not yet in its order."""
    random = np.random.default_rng(20)
    options = {"target-file-size": "4 mb"}
    schema = pa.schema([(each, pa.int64()) for each in ("at", "lat", "lon", "value")] + [("sensor", pa.string())])
    table = FileCatalog(root).create_table(f"bench.t_{name}", schema, options=options)
    step = max(rows // 10, 1)
    for start in range(0, rows, step):
        place = random.integers(0, 10_000, (2, step))
        columns = [np.arange(start, start + step), *place, random.integers(0, 1 << 40, step)]
        texts = pa.array([f"sensor-{number:05}" for number in range(1_000)]).take(pa.array(place[0] % 1_000))
        table.write(pa.table([*map(pa.array, columns), texts], schema=schema))
    return table


def ordered(root: str, strategy: str) -> int:
    """Put the rows of a table into an order, in a process of its own; gives their number."""
    table = FileCatalog(root).table(f"bench.t_{strategy}")
    compact_buckets(table.store, full=True, order=RowOrder.of(table.store.schema, list(BOX), strategy))
    return sum(split.row_count for split in table.read().plan().splits)


def touched(table: FileTable) -> dict[str, Any]:
    """How many of its files and row groups a table has to read for the box, and for a range of the second column."""
    splits = table.read().plan(FILTER).splits
    groups = by_second = every = 0
    for split in table.read().plan().splits:
        for file in split.files:
            metadata = pq.read_metadata(table.store.file_path(split.partition, split.bucket, file))
            for index in range(metadata.num_row_groups):
                every += 1
                found = [metadata.row_group(index).column(at) for at in range(metadata.num_columns)]
                ranges = {each.path_in_schema: each.statistics for each in found if each.path_in_schema in BOX}
                inside = [ranges[name].max >= low and ranges[name].min < high for name, (low, high) in BOX.items()]
                groups += all(inside)
                by_second += inside[1]
    files = sum(len(split.files) for split in splits)
    return {"files": files, "row_groups": groups, "row_groups_by_second": by_second, "of_row_groups": every}


def main() -> None:
    rows, repeats = sized((4_000_000, 3), quick=(2_000_000, 2), tiny=(20_000, 1))
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        tables = {name: filled(root, name.replace(" ", "_"), rows) for name in (*STRATEGIES, WRITTEN)}
        costs = {}
        for strategy in STRATEGIES:
            child = run_in_child(ordered, root, strategy)
            memory = child.peak_memory_bytes - child.idle_memory_bytes
            costs[strategy] = {"rows_per_s": round(rows / child.seconds), "memory_bytes": memory}
        found = measure(
            "cluster",
            {name: lambda table=table: table.read().to_arrow(filter=FILTER) for name, table in tables.items()},  # type: ignore[misc]
            rows=rows,
            repeats=repeats,
        )
        facts = {name: {**touched(table), **costs.get(name, {})} for name, table in tables.items()}
        part = round(facts["zorder"]["row_groups"] / facts["zorder"]["of_row_groups"], 3)
        is_small = "--tiny" in sys.argv[1:]
        print(
            found.line(
                peer=WRITTEN,
                variant="zorder",
                cpu_ratio_to_order=round(found.cpu_ratio("zorder", "order"), 2),
                touched=facts,
                part_of_row_groups=part,
                budget=BUDGET,
                met=is_small or part <= BUDGET,
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
