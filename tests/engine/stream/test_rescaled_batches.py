"""A batch that crosses a change of the number of buckets has the changes of each key in order."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.procedures import rescale

KEYS = range(12)
ENGINES = ("deduplicate", "partial-update")
Step = Callable[[Table], object]


def write(values: str) -> Step:
    return lambda table: table.write([{"id": key, "v": f"{values}{key}"} for key in KEYS])


def overwrite(table: Table) -> None:
    table.overwrite([{"id": key, "v": f"o{key}"} for key in KEYS if key % 3 == 0])


def more_buckets(table: Table) -> None:
    rescale(table, 5)


def fewer_buckets(table: Table) -> None:
    rescale(table, 1)


BETWEEN: dict[str, tuple[Step, ...]] = {
    "overwritten": (write("a"), more_buckets, overwrite),
    "written": (write("a"), more_buckets, write("b")),
    "to one": (write("a"), overwrite, fewer_buckets, write("b")),
    "twice": (write("a"), more_buckets, overwrite, fewer_buckets, write("b"), overwrite),
}


@pytest.mark.parametrize(("engine", "name"), [*itertools.product(ENGINES, BETWEEN)])
def test_who_follows_a_rescaled_table_ends_with_its_rows(engine: str, name: str, tmp_path: Path) -> None:
    """A key's row of the old bucket comes before its row, or its delete, of the new one."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    catalog.create_database("d")
    options = {"bucket": "3", "merge-engine": engine, "streaming-read-overwrite": "true"}
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    table = catalog.create_table("d.t", columns, primary_key=["id"], options=options)
    table.write([{"id": 100, "v": "first"}])
    with table.stream("latest", follow=False) as stream:
        *_, last = stream
    for step in BETWEEN[name]:
        step(catalog.table("d.t"))
    state: dict[int, str] = {}
    with catalog.table("d.t").stream(str(last.position), follow=False) as stream:
        for changes in stream:
            for row in changes.rows.to_pylist():
                if row["_row_kind"] in ("+I", "+U"):
                    state[row["id"]] = row["v"]
                else:
                    state.pop(row["id"], None)
    rows = catalog.table("d.t").read().to_arrow().to_pylist()
    assert state == {row["id"]: row["v"] for row in rows if row["id"] != 100}
