"""Paimon for Spark reads tables with a log, which carry the options by which Flink finds it, as if they had none."""

from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from tests.interop.test_interop_log import EXACT, KINDS, SCHEMA
from tests.peers.older_spark import Query, paimon_rows

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("older spark")]


def test_each_kind_of_log_is_read_in_batch_and_as_a_stream(catalog: Catalog, tmp_path: Path) -> None:
    """Issue 23, 2: rows of level 0 too, those of a delete not; and a stream of the files begins with the same rows."""
    queries: list[Query] = []
    for kind, options in {**KINDS, "compacted": EXACT}.items():
        name = kind.replace("-", "_")
        table = catalog.create_table(
            f"db.{name}", SCHEMA, primary_key=["id"], options={"bucket": "2", "file.format": "orc", **options}
        )
        table.write(pa.table({"id": range(6), "v": ["old"] * 6}, schema=SCHEMA))
        table.compact(full=True)
        table.write(pa.table({"id": [4, 9], "v": ["new", "new"]}, schema=SCHEMA))
        deleted = pa.table({"id": [2], "v": ["old"]}, schema=SCHEMA)
        table.write(deleted.append_column("_row_kind", pa.array(["-D"])))
        if kind == "compacted":  # only then a stream of the files has the changes of an exact log, as in Java's tables
            table.compact()
        queries.append(f"SELECT * FROM paimon.db.{name}")
        if kind != "exact":
            queries.append(["stream", "paimon", table.store.paths.root])
    wanted = [[0, "old"], [1, "old"], [3, "old"], [4, "new"], [5, "old"], [9, "new"]]
    found = paimon_rows(tmp_path, queries)
    assert [sorted(rows) for rows in found] == [wanted] * len(queries)
