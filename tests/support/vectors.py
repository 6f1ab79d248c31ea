"""What tests of the format share: where the golden files are, the BinaryRow vectors, and values of every type."""

import re
from dataclasses import dataclass
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from filestore.types.binary_row import decode_row
from filestore.types.data_types import DataType, parse_data_type

GOLDEN = Path(__file__).parents[1] / "golden"
PROPERTY = settings(max_examples=100, deadline=None, derandomize=True)


@dataclass(frozen=True)
class RowVector:
    """One line of binaryrow.tsv: what Java 1.4.2 makes of a row."""

    name: str
    types: tuple[DataType, ...]
    row: bytes  # with the arity in front
    hash: int
    buckets: dict[int, int]  # bucket by bucket count

    @property
    def values(self) -> tuple[Any, ...]:
        return decode_row(self.row, self.types)


def row_vectors() -> list[RowVector]:
    """The rows of the golden file."""
    vectors = []
    for line in (GOLDEN / "binaryrow.tsv").read_text(encoding="utf-8").splitlines():
        name, types, row, results = line.split(" | ")
        numbers = dict(result.split("=") for result in results.split())
        vectors.append(
            RowVector(
                name=name,
                types=tuple(
                    parse_data_type(text) for text in re.findall(r"`f\d+` ([^,()>]+(?:\([^)]*\)[^,>]*)?)", types)
                ),
                row=bytes.fromhex(row),
                hash=int(numbers["hash"]),
                buckets={int(key[1:]): int(text) for key, text in numbers.items() if key != "hash"},
            )
        )
    return vectors


def golden_tables() -> list[Path]:
    """Every table of every writer."""
    return [path.parent for path in sorted(GOLDEN.glob("*/db.db/*/schema"))]


KEY_TYPES = tuple(
    parse_data_type(text)
    for text in (
        "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIME(3)",
        "STRING", "CHAR(3)", "BYTES", "BINARY(4)", "DECIMAL(5, 2)", "DECIMAL(18, 0)",
        "DECIMAL(19, 19)", "DECIMAL(38, 10)",
        "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)",
        "TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    )
)  # fmt: skip

_NUMBER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
# Around the borders of what fits a slot.
_LENGTHS = st.sampled_from([0, 1, 6, 7, 8, 9, 15, 16, 17, 40])


def values_of(data_type: DataType) -> st.SearchStrategy[Any]:
    """Internal values of a type, without null."""
    root = data_type.root
    if root in _NUMBER_BITS:
        limit = 1 << (_NUMBER_BITS[root] - 1)
        return st.integers(-limit, limit - 1)
    if root == "DECIMAL":
        largest, scale = 10 ** (data_type.precision or 0) - 1, data_type.scale or 0
        edges = [
            edge
            for bits in range(7, 127, 8)
            for edge in (1 << bits, -(1 << bits), ~(1 << bits))
            if abs(edge) <= largest
        ]
        unscaled = st.integers(-largest, largest) | st.sampled_from([0, -1, *edges])
        return unscaled.map(lambda number: Decimal(number).scaleb(-scale, Context(prec=60)))
    if root.startswith("TIMESTAMP"):
        return st.integers(-(10**15), 4 * 10**15)
    other: dict[str, st.SearchStrategy[Any]] = {
        "BOOLEAN": st.booleans(),
        "FLOAT": st.floats(width=32, allow_nan=False),
        "DOUBLE": st.floats(allow_nan=False),
        "DATE": st.integers(-700_000, 2_900_000),
        "TIME": st.integers(0, 86_399_999),
        "VARCHAR": _LENGTHS.flatmap(lambda length: st.text(st.characters(exclude_categories=["Cs"]), max_size=length)),
        "CHAR": st.text("abc", min_size=3, max_size=3),
        "VARBINARY": _LENGTHS.flatmap(lambda length: st.binary(min_size=length, max_size=length)),
        "BINARY": st.binary(min_size=4, max_size=4),
    }
    return other[root]


@st.composite
def typed_rows(draw: st.DrawFn, *, max_fields: int = 6) -> tuple[tuple[Any, ...], tuple[DataType, ...]]:
    """A row of nullable values and its types."""
    types = tuple(draw(st.lists(st.sampled_from(KEY_TYPES), max_size=max_fields)))
    return tuple(draw(st.none() | values_of(data_type)) for data_type in types), types
