"""Random histories of tables of every merge engine, and a consumer that takes a changelog at its word."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

SCHEMA: Final = pa.schema(
    [("p", pa.string()), ("id", pa.int32()), ("v", pa.int64()), ("s", pa.string()), ("g", pa.int32())]
)
KEY: Final = ("p", "id")
Change = tuple[Any, ...]
"""Kind and values of a row."""
State = dict[tuple[Any, ...], tuple[Any, ...]]
"""Rows by key."""

_SUM: Final = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
ENGINES: Final[Mapping[str, tuple[Mapping[str, str], bool]]] = {  # options, and whether deletes are taken
    "deduplicate": ({}, True),
    "row-deduplicate": ({"changelog-producer.row-deduplicate": "true"}, True),
    "sequence-field": ({"sequence.field": "g"}, True),
    "ignore-delete": ({"ignore-delete": "true"}, True),
    "leveled": ({"compaction.style": "leveled", "level0_file_num_compaction_trigger": "2"}, True),
    "partial-update": ({"merge-engine": "partial-update"}, False),
    "partial-update-deletes": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        True,
    ),
    "sequence-group": ({"merge-engine": "partial-update", "fields.g.sequence-group": "v,s"}, True),
    "aggregation": (_SUM, False),
    "aggregation-retracts": (_SUM | {"fields.s.ignore-retract": "true", "fields.g.ignore-retract": "true"}, True),
    "aggregation-deletes": (_SUM | {"aggregation.remove-record-on-delete": "true"}, True),
    "first-row": ({"merge-engine": "first-row"}, False),
}

row_values = st.fixed_dictionaries(
    {
        "p": st.sampled_from(["a", "b"]),
        "id": st.integers(0, 12),
        "v": st.none() | st.integers(-3, 30),
        "s": st.none() | st.sampled_from(["x", "yy"]),
        "g": st.none() | st.integers(0, 3),
    }
)


def drops_equal(engine: str) -> bool:
    """Whether updates that change nothing are not told."""
    return engine in ("row-deduplicate", "first-row")


def apply(state: State, found: Iterable[Change], *, drops_equal: bool) -> None:
    """Row by row: each says what there was, in exactly the words in which it was told."""
    held: Change | None = None
    for kind, *values in found:
        row = tuple(values)
        key = row[: len(KEY)]
        assert (key in state) == (kind in ("-U", "-D")), (kind, row)
        if kind in ("-U", "-D"):
            assert state.pop(key) == row
        else:
            assert (kind == "+U") == (held is not None)
            assert held is None or held[: len(KEY)] == key
            assert not (drops_equal and held == row)
            state[key] = row
        held = row if kind == "-U" else None
    assert held is None
