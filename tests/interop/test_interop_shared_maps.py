"""Maps with shared shredding by pypaimon 2.1: read by every way, beside maps that Fluvial writes, and compacted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.peers import TableDefinition
from tests.peers.agreement import FLUVIAL
from tests.peers.pypaimon_peer import PyPaimonPeer

pytestmark = pytest.mark.interop

VALUES: Final[Mapping[str, Any]] = {"BIGINT": [7, None, -1], "STRING": ["a", None, "é"], "DOUBLE": [1.5, None, 0.0]}
LAYOUT: Final = {"fields.m.map.storage-layout": "shared-shredding", "fields.m.map.shared-shredding.max-columns": "3"}


def maps_of(values: list[Any]) -> list[list[tuple[str, Any]] | None]:
    """Empty, null and overflowing maps, with null values, and keys that come and go."""
    wide = [(f"k{number}", values[number % 3]) for number in range(9)]
    some = [[("a", values[0])], [], None, wide, [("b", values[1]), ("a", values[2])], wide[3:7]]
    return some + [[(f"x{number % 13}", values[number % 3]), ("a", values[0])] for number in range(60)]


def rows_of(kind: pa.DataType, values: list[Any], first: int = 0) -> pa.Table:
    maps = maps_of(values)
    schema = pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), kind))])
    return pa.Table.from_pydict({"id": range(first, first + len(maps)), "m": maps}, schema=schema)


def as_dicts(rows: pa.Table) -> dict[int, dict[str, Any] | None]:
    pairs = zip(rows["id"].to_pylist(), rows["m"].to_pylist(), strict=True)
    return {key: None if value is None else dict(value) for key, value in pairs}


@pytest.mark.parametrize("key", [["id"], []], ids=["keyed", "append"])
@pytest.mark.parametrize("kind", VALUES)
def test_maps_are_those_that_pypaimon_wrote(
    tmp_path: Path, pypaimon_peer: PyPaimonPeer, kind: str, key: list[str]
) -> None:
    column = {"type": "MAP", "key": "STRING NOT NULL", "value": kind}
    columns = [("id", "BIGINT NOT NULL" if key else "BIGINT"), ("m", column)]
    options = {"bucket": "1" if key else "-1", **LAYOUT}
    pypaimon_peer.create(tmp_path, "db.t", TableDefinition(columns=columns, primary_key=key, options=options))
    table = FLUVIAL.table(tmp_path, "db.t")
    arrow = table.schema.arrow_schema.field("m").type.item_type
    first, second = rows_of(arrow, list(VALUES[kind])), rows_of(arrow, list(VALUES[kind]), first=1000)
    pypaimon_peer.write(tmp_path, "db.t", first)
    assert as_dicts(table.read().to_arrow()) == as_dicts(first)
    assert as_dicts(table.read().to_arrow(filter="id >= 3 AND id < 40")) == {
        key: value for key, value in as_dicts(first).items() if 3 <= key < 40
    }
    table.write(second)
    expected = as_dicts(first) | as_dicts(second)
    assert as_dicts(table.read().to_arrow()) == expected
    found = {row["id"]: row["m"] for row in pypaimon_peer.read(tmp_path, "db.t")}
    assert {key: None if each is None else dict(each) for key, each in found.items()} == expected
    table.compact(full=True)
    assert as_dicts(FLUVIAL.table(tmp_path, "db.t").read().to_arrow()) == expected
    pypaimon_peer.write(tmp_path, "db.t", rows_of(arrow, list(VALUES[kind]), first=2000))
    assert len(as_dicts(FLUVIAL.table(tmp_path, "db.t").read().to_arrow())) == 3 * first.num_rows
