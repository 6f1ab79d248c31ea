"""A table of many columns: two rows written, read and compacted, beside the same rows in Parquet files of PyArrow.

Budget: at most five times the processor time of the Parquet files alone, and a column costs at most twice what it does
in a table with a quarter of the columns. What are rows elsewhere are values here.

usage: python -m benchmarks wide_table [--quick | --tiny]
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import measure, sized
from engine import Catalog

BUDGET: Final = 5.0
MOST_GROWTH: Final = 2.0
SHARE: Final = 4  # of the columns that the narrow table has
TYPES: Final = (pa.int32(), pa.string(), pa.float64())
VALUES: Final = ([1, 2], ["a", "b"], [0.5, 1.5])


def wide_rows(width: int) -> pa.Table:
    """Two rows with so many columns; the first is the key."""
    kinds = [index % len(TYPES) for index in range(width)]
    fields = [pa.field(f"c{index}", TYPES[kind], nullable=index > 0) for index, kind in enumerate(kinds)]
    return pa.table([pa.array(VALUES[kind], TYPES[kind]) for kind in kinds], schema=pa.schema(fields))


def through_table(rows: pa.Table, root: Path, number: int) -> None:
    """Create, write twice, read, compact."""
    catalog = Catalog(str(root))
    table = catalog.create_table(f"bench.t{number}", rows.schema, primary_key=["c0"], options={"bucket": "1"})
    for _ in range(2):
        table.write(rows)
    assert table.read().to_arrow().num_columns == rows.num_columns
    table.compact(full=True)


def through_parquet(rows: pa.Table, root: Path, number: int) -> None:
    """The same number of files written and read."""
    paths = [root / f"{number}-{each}.parquet" for each in range(3)]
    for path in paths:
        pq.write_table(rows, path)
    for path in [*paths[:2], *paths[:2]]:
        pq.read_table(path)


def main() -> None:
    width = sized(16_000, quick=4_000, tiny=40)
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as folder:
        number = iter(range(1_000_000))

        def way(through: Callable[[pa.Table, Path, int], None], columns: int) -> Callable[[], object]:
            rows = wide_rows(columns)
            return lambda: through(rows, Path(folder), next(number))

        variants: Mapping[str, Callable[[], object]] = {
            "fluvial": way(through_table, width),
            "narrow": way(through_table, width // SHARE),
            "parquet": way(through_parquet, width),
        }
        found = measure("wide_table", variants, rows=2 * width, repeats=3)
    growth = round(1 / found.cpu_ratio("fluvial", "narrow") / SHARE, 2)
    to_parquet = round(1 / found.cpu_ratio("fluvial", "parquet"), 2)
    facts: dict[str, Any] = {"columns": width, "growth": growth, "cost_to_parquet": to_parquet}
    print(
        found.line(peer="parquet", budget=BUDGET, met=to_parquet <= BUDGET and growth <= MOST_GROWTH, **facts),
        flush=True,
    )


if __name__ == "__main__":
    main()
