"""A table that counts its rows, as Apache Paimon for Java and pypaimon see it: a key table that sums counts."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.schema.row_counts import HIDDEN_NAMES
from filestore.table import FileTable
from tests.peers.java_peer import JavaPeer
from tests.peers.pypaimon_peer import PyPaimonPeer
from tests.support.tables import stored_rows

pytestmark = pytest.mark.interop

SCHEMA = pa.schema(
    [pa.field("pt", pa.string()), ("n", pa.int32()), ("x", pa.float64()), ("tags", pa.list_(pa.string()))]
)


def seen(table: FileTable) -> Counter[Any]:
    return Counter(str(row) for row in table.read().to_arrow().to_pylist())


def stored(rows: list[dict[str, Any]]) -> Counter[Any]:
    """What the counts of another engine's rows say."""
    found: Counter[Any] = Counter()
    for row in rows:
        names = {name: value for name, value in row.items() if name not in HIDDEN_NAMES}
        found[str({**names, "n": names["n"]})] += row["_row_count"]
    return +found


def test_java_and_pypaimon_read_counts_and_java_compacts_them(
    tmp_path: Path, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer
) -> None:
    """FL-121, FL-184, FL-17: others sum the counts; what Java compacted or wrote reads right."""
    catalog = FileCatalog(str(tmp_path))
    catalog.create_database("db")
    options = {"row-counts": "true", "bucket": "2", "num-sorted-run.compaction-trigger": "3"}
    table = catalog.create_table("db.t", SCHEMA, partition_by=["pt"], options=options)
    choice, counts = random.Random(7), Counter[Any]()
    for turn in range(6):
        rows, kinds = [], []
        for _ in range(20):
            rows.append(
                {
                    "pt": choice.choice("ab"),
                    "n": choice.choice([None, 1, 2]),
                    "x": choice.choice([None, 0.0, -0.0, float("nan")]),
                    "tags": choice.choice([None, [], ["a", None]]),
                }
            )
            kinds.append(choice.choice(["+I", "+I", "-D"]))
            counts[str(rows[-1])] += 1 if kinds[-1] == "+I" else -1
        table.write(pa.Table.from_pylist(rows, schema=table.schema.arrow_schema), pa.array(kinds))
        if turn == 3:
            java_peer.compact(tmp_path, "db.t")
        assert seen(table) == +counts
        if turn in (2, 5):
            by_java = java_peer.read_arrow(tmp_path, "db.t").select([*SCHEMA.names, *HIDDEN_NAMES]).to_pylist()
            assert stored(by_java) == +counts
    whole = stored_rows(table.store)
    java_peer.write(tmp_path, "db.t", whole)  # every count once more
    doubled = Counter({row: 2 * count for row, count in counts.items()})
    assert seen(table) == +doubled
    table.compact(full=True)
    assert seen(table) == +doubled
    assert pypaimon_peer.read(tmp_path, "db.t") == java_peer.read(tmp_path, "db.t")
