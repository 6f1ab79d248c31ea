"""Columns with a default: Java and Fluvial store the same for null and for retracts, in one table by turns."""

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from engine import Catalog
from filestore.types.data_types import DataField, parse_data_type
from tests.peers import DELETE, INSERT
from tests.peers.java_peer import JavaPeer

pytestmark = pytest.mark.interop

TEXTS: Final = {
    "INT": "5",
    "STRING": "'it is'",
    "VARCHAR(9)": "plain",
    "DOUBLE": "1.5",
    "DECIMAL(10, 2)": "1.25",
    "BOOLEAN": "true",
    "DATE": "2024-02-29",
    "TIMESTAMP(3)": "2024-02-29 12:34:56.789",
}
FIELDS: Final = [
    DataField(id=0, name="k", type=parse_data_type("INT NOT NULL")),
    *(
        DataField(id=number, name=f"c{number}", type=parse_data_type(kind), default_value=text)
        for number, (kind, text) in enumerate(TEXTS.items(), start=1)
    ),
]


def nulls(schema: pa.Schema, *keys: int) -> pa.Table:
    return pa.Table.from_pylist([{"k": key} for key in keys], schema=schema)


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "first-row", "none"])
def test_java_and_fluvial_store_the_same_default(java_peer: JavaPeer, tmp_path: Path, engine: str) -> None:
    catalog = Catalog(str(tmp_path))
    options = {"bucket": "1", "merge-engine": engine} if engine != "none" else {"bucket": "-1"}
    made: dict[str, Any] = {}
    for name in ("db.ours", "db.theirs"):
        key = ["k"] if engine != "none" else []
        made[name] = catalog.create_table(name, FIELDS, primary_key=key, options=options)
    schema = made["db.ours"].schema.arrow_schema
    full = pa.Table.from_pylist([{"k": 2, "c1": 1, "c2": "x"}], schema=schema)
    for rows in (nulls(schema, 1, 2), full, nulls(schema, 2)):
        made["db.ours"].files.write(rows)
        java_peer.write(tmp_path, "db.theirs", rows, kinds=[INSERT] * rows.num_rows)
    if engine == "deduplicate":
        made["db.ours"].files.write(nulls(schema, 1), kinds=pa.array(["-D"]))
        java_peer.write(tmp_path, "db.theirs", nulls(schema, 1), kinds=[DELETE])
    if engine == "first-row":
        for table in made.values():
            table.files.compact(full=True)
    ours, theirs = (made[name].read().to_arrow().sort_by([("k", "ascending"), ("c1", "ascending")]) for name in made)
    assert ours.to_pylist() == theirs.to_pylist()
    assert ours.num_rows == {"deduplicate": 1, "none": 4}.get(engine, 2)
    assert ours.column("c1").null_count == 0
