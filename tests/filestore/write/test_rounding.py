"""Values that their column cannot hold exactly: refused, or rounded with ``write.round-values``. (FL-14)"""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField, data_type_of
from filestore.write.row_checks import conform_batch
from lsm.errors import InvalidInputError

US = pa.timestamp("us")
MS = pa.timestamp("ms")


def moment(micros: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)


def decimal(text: str) -> Decimal:
    return Decimal(text)


INEXACT = [
    (US, MS, moment(123_999), moment(123_000)),
    (US, MS, moment(-1), moment(-1000)),  # towards the past, not towards 1970
    (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), moment(1), moment(0)),
    (pa.time64("us"), pa.time32("ms"), dt.time(1, 2, 3, 4), dt.time(1, 2, 3)),
    (pa.time64("ns"), pa.time32("ms"), dt.time(1, 2, 3, 999), dt.time(1, 2, 3)),
    (pa.float64(), pa.float32(), 0.1, 0.10000000149011612),
    (pa.decimal128(5, 3), pa.decimal128(5, 2), decimal("1.235"), decimal("1.24")),
    (pa.decimal128(5, 3), pa.decimal128(5, 2), decimal("-1.235"), decimal("-1.24")),
]
EXACT = [
    (US, MS, moment(123_000)),
    (pa.time64("us"), pa.time32("ms"), dt.time(1, 2, 3, 4000)),
    (pa.float64(), pa.float32(), 0.5),
    (pa.float64(), pa.float32(), float("inf")),
    (pa.decimal128(5, 3), pa.decimal128(5, 2), decimal("1.230")),
]
Wrap = tuple[Callable[[pa.DataType], pa.DataType], Callable[[Any], Any], Callable[[Any], Any]]
WRAPS: dict[str, Wrap] = {
    "plain": (lambda t: t, lambda v: v, lambda v: v),
    "row": (lambda t: pa.struct([("x", t), ("y", pa.int32())]), lambda v: {"x": v, "y": 1}, lambda v: v["x"]),
    "array": (pa.list_, lambda v: [None, v], lambda v: v[1]),
    "large_list": (pa.large_list, lambda v: [None, v], lambda v: v[1]),
    "fixed_list": (lambda t: pa.list_(t, 2), lambda v: [None, v], lambda v: v[1]),
    "map value": (lambda t: pa.map_(pa.int32(), t), lambda v: [(1, v)], lambda v: v[0][1]),
    "map key": (lambda t: pa.map_(t, pa.int32()), lambda v: [(v, 1)], lambda v: v[0][0]),
    "deep": (
        lambda t: pa.list_(pa.struct([("m", pa.map_(pa.string(), t))])),
        lambda v: [None, {"m": [("k", v)]}],
        lambda v: v[1]["m"][0][1],
    ),
}


def conformed(given: pa.DataType, wanted: pa.DataType, values: list[Any], *, rounds: bool = False) -> list[Any]:
    """Through a column of the wanted type, in a slice with a null before and behind."""
    column = DataField(id=0, name="v", type=data_type_of(wanted))
    schema = TableSchema(
        id=0, fields=(column,), highest_field_id=0, partition_keys=(), primary_keys=(), options={}, time_ms=0
    )
    rows = pa.table({"v": pa.array([None, *values, None], given)}).slice(1, len(values) + 1)
    found = conform_batch(rows, schema, rounds=rounds)
    found.validate(full=True)
    return list(found.column(0).to_pylist())


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS.keys())
@pytest.mark.parametrize(("given", "wanted", "value", "near"), INEXACT)
def test_what_a_column_cannot_hold_is_refused_or_rounded_when_asked(
    given: pa.DataType, wanted: pa.DataType, value: Any, near: Any, wrap: Wrap
) -> None:
    wrapped, packed, unpacked = wrap
    with pytest.raises(InvalidInputError, match=r"column=v .*fix='round or cast .* write.round-values=true'"):
        conformed(wrapped(given), wrapped(wanted), [packed(value)])
    found, end = conformed(wrapped(given), wrapped(wanted), [packed(value)], rounds=True)
    got = unpacked(found)
    assert (got.replace(tzinfo=None) if isinstance(got, dt.datetime) else got, end) == (near, None)


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS.keys())
@pytest.mark.parametrize(("given", "wanted", "value"), EXACT)
def test_what_a_column_holds_exactly_is_taken_either_way(
    given: pa.DataType, wanted: pa.DataType, value: Any, wrap: Wrap
) -> None:
    wrapped, packed, unpacked = wrap
    for rounds in (False, True):
        found, end = conformed(wrapped(given), wrapped(wanted), [packed(value)], rounds=rounds)
        assert (unpacked(found), end) == (value, None)


@pytest.mark.parametrize(
    ("given", "wanted", "value"),
    [
        (pa.float64(), pa.float32(), 1e300),
        (pa.float64(), pa.int32(), 1.5),
        (pa.int64(), pa.int32(), 1 << 40),
        (pa.decimal128(5, 3), pa.decimal128(3, 2), decimal("99.995")),
        (pa.decimal128(5, 3), pa.decimal128(4, 2), decimal("99.995")),
    ],
)
def test_rounding_never_hides_a_value_out_of_range(given: pa.DataType, wanted: pa.DataType, value: Any) -> None:
    with pytest.raises(InvalidInputError, match="column=v"):
        conformed(given, wanted, [value], rounds=True)


def test_nan_is_a_float() -> None:
    found, _ = conformed(pa.float64(), pa.float32(), [float("nan")])
    assert found != found
