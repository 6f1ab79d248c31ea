"""Aggregate functions: each reduces one column's values of a key, oldest first, to a single value.

A function sees the operands of all keys at once. A *retract* operand undoes an earlier one; functions that do not
support retraction raise. Source: Paimon FieldAggregator and its subclasses.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lsm.aggregate.nested_aggregates import merge_map_with_keytime, nested_partial_update, nested_update
from lsm.aggregate.operand_types import check_type, is_stored_as_integer
from lsm.aggregate.operands import OperandKeys, Operands
from lsm.aggregate.sketch_aggregates import bitmaps32, bitmaps64, hll_sketches, theta_sketches
from lsm.errors import InvalidInputError
from lsm.keys.words import BoolArray, IndexArray, NumberPart, Part, number_parts_of, stable_order

# ---- Sums, products and boolean aggregates. No operand is null, every key has at least one
#
# Integer overflow is an error, never wrapped; decimals that exceed their precision become null; floats are added in
# arrival order, in double precision. Source: Paimon FieldSumAgg, FieldProductAgg, FieldBoolAndAgg.


_SAFE_SUM: Final = 2**62  # sums that cannot exceed this are added in int64
_EXACT: Final = Context(prec=200)  # digits; a product of two DECIMAL(76) has 152


def total(operands: Operands) -> pa.Array:
    """(k,) operands added, retracts subtracted."""
    kind = operands.values.type
    if pa.types.is_floating(kind):
        doubles = operands.values.cast(pa.float64()).to_numpy()
        signed = np.where(operands.retracts, -doubles, doubles)
        return pa.array(np.bincount(operands.keys.numbers, weights=signed, minlength=operands.key_count)).cast(kind)
    numbers = _whole_numbers(operands.values)
    if numbers.dtype != object:
        most = int((operands.keys.lasts - operands.keys.firsts).max()) + 1
        if max(-int(numbers.min()), int(numbers.max())) * most >= _SAFE_SUM:
            numbers = numbers.astype(object)
    if operands.retracts.any():
        numbers = np.where(operands.retracts, -numbers, numbers)
    return _from_numbers(kind, np.add.reduceat(numbers, operands.keys.firsts))


def product(operands: Operands) -> pa.Array:
    """(k,) operands multiplied, retracts divided out. Key by key, since rounding and truncation depend on the order.

    Floats before the first insert are divided out as well; of other types they are dropped, which cannot hold that.
    """
    kind = operands.values.type
    multiply, divide = _arithmetic(kind)
    holds_fractions = pa.types.is_floating(kind)
    values = operands.values.to_pylist()
    results: list[Any] = [None] * operands.key_count
    started = np.zeros(operands.key_count, np.bool_)
    for key, value, is_retract in zip(operands.keys.numbers.tolist(), values, operands.retracts.tolist(), strict=True):
        if not started[key]:
            if is_retract and not holds_fractions:
                continue
            results[key], started[key] = (divide(1.0, value) if is_retract else value), True
        elif results[key] is not None:
            results[key] = divide(results[key], value) if is_retract else multiply(results[key], value)
    if pa.types.is_integer(kind) and started.any():
        found = _from_numbers(kind, np.array([0 if each is None else each for each in results], dtype=object))
        return found.take(pa.array(np.arange(len(found)), mask=~started)) if not started.all() else found
    return pa.array(results, kind)


def truth_of_all(operands: Operands) -> pa.Array:
    """(k,) whether all operands are true."""
    return pa.array(np.logical_and.reduceat(_truths(operands), operands.keys.firsts))


def truth_of_any(operands: Operands) -> pa.Array:
    """(k,) whether some operand is true."""
    return pa.array(np.logical_or.reduceat(_truths(operands), operands.keys.firsts))


def _truths(operands: Operands) -> NDArray[np.bool_]:
    truths: NDArray[np.bool_] = operands.values.to_numpy(zero_copy_only=False)
    return truths


def _whole_numbers(values: pa.Array) -> NDArray[Any]:
    """Integers, or the unscaled values of decimals: int64 if all fit, else Python integers."""
    kind = values.type
    if pa.types.is_integer(kind):
        return np.asarray(values.cast(pa.int64()).to_numpy())
    if not pa.types.is_decimal128(kind):
        raise InvalidInputError("decimals of more than 38 digits cannot be added")
    limbs = np.frombuffer(values.buffers()[1], np.int64).reshape(-1, 2)[values.offset : values.offset + len(values)]
    low, high = limbs[:, 0], limbs[:, 1]
    if bool((high == low >> 63).all()):
        return np.ascontiguousarray(low)
    whole: NDArray[Any] = high.astype(object) * (1 << 64) + low.view(np.uint64).astype(object)
    return whole


def _from_numbers(kind: pa.DataType, numbers: NDArray[Any]) -> pa.Array:
    if pa.types.is_decimal(kind):
        return _decimals(kind, numbers)
    bits = kind.bit_width
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    outside = [int(number) for number in (numbers.min(), numbers.max()) if not low <= number <= high]
    if outside:
        raise InvalidInputError(
            f"the result overflows its type: result={outside[0]} min={low} max={high} fix=a wider type"
        )
    return pa.array(numbers.astype(np.int64)).cast(kind)


def _decimals(kind: pa.DataType, numbers: NDArray[Any]) -> pa.Array:
    limit = 10**kind.precision
    fits = (numbers < limit) & (numbers > -limit)
    if numbers.dtype == object:
        scaled = [
            Decimal(number).scaleb(-kind.scale, _EXACT) if ok else None
            for number, ok in zip(numbers, fits, strict=True)
        ]
        return pa.array(scaled, kind)
    limbs = np.stack([numbers, numbers >> 63], axis=1)
    decimals = pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(limbs)])
    return decimals if fits.all() else decimals.take(pa.array(np.arange(len(numbers)), mask=~fits))


def _arithmetic(kind: pa.DataType) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    if pa.types.is_floating(kind):
        return operator.mul, _divide_floats
    if pa.types.is_integer(kind):
        return operator.mul, _divide_integers
    limit = Decimal(10) ** (kind.precision - kind.scale)

    def rounded(value: Decimal) -> Decimal | None:
        value = value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, _EXACT)
        return value if abs(value) < limit else None

    return (
        lambda left, right: rounded(_EXACT.multiply(left, right)),
        lambda left, right: rounded(_EXACT.divide(left, _not_zero(right))),
    )


def _divide_integers(left: int, right: int) -> int:
    """Rounds towards zero, like Java."""
    quotient: int = abs(left) // abs(_not_zero(right))
    return quotient if (left < 0) == (right < 0) else -quotient


def _divide_floats(left: float, right: float) -> float:
    """IEEE 754 division: division by zero gives an infinity or NaN."""
    with np.errstate(all="ignore"):
        return float(np.float64(left) / np.float64(right))


def _not_zero(value: Any) -> Any:
    if not value:
        raise InvalidInputError("a zero factor of a product cannot be retracted")
    return value


# ---- Aggregates of strings, arrays and maps. No operand is null, every key has at least one
#
# Source: Paimon FieldListaggAgg, FieldCollectAgg, FieldMergeMapAgg.


def listagg(operands: Operands, *, delimiter: str, distinct: bool) -> pa.Array:
    """(k,) the strings joined, without empty ones; with `distinct` also without parts that occurred before."""
    kind = operands.values.type
    filled = operands.where(pc.greater(pc.binary_length(operands.values), 0).to_numpy(zero_copy_only=False))
    if not len(filled.rows):
        return pa.array([""] * operands.key_count, kind)
    lists = _lists(filled.dense(), filled.values)
    if distinct:
        joined = pa.array([_join_distinct(texts, delimiter) for texts in lists.to_pylist()], kind)
    else:
        joined = pc.binary_join(lists, delimiter).cast(kind)
    return filled.spread(joined).fill_null("")


def _join_distinct(texts: Sequence[str], delimiter: str) -> str:
    # The first string is kept unchanged, even with duplicate parts.
    joined = texts[0]
    seen = set(joined.split(delimiter or " "))
    for text in texts[1:]:
        for part in text.split(delimiter or " "):
            if part and part not in seen:
                seen.add(part)
                joined += delimiter + part
    return joined


def collect(operands: Operands, *, distinct: bool) -> pa.Array:
    """(k,) the arrays concatenated; a retract removes the first occurrence of each of its elements."""
    kind = operands.values.type
    if operands.retracts.any() or (distinct and pa.types.is_nested(kind.value_type)):
        return _collect_one_by_one(operands, distinct=distinct)
    elements = operands.values.flatten()
    sizes = pc.list_value_length(operands.values).to_numpy(zero_copy_only=False)
    flat = Operands(
        column=elements,
        rows=np.arange(len(elements)),
        keys=OperandKeys(np.repeat(operands.keys.numbers, sizes), operands.key_count),
        retracts=np.zeros(len(elements), np.bool_),
    )
    if distinct and len(elements):
        parts: list[Part] = [NumberPart(flat.keys.numbers.view(np.uint64)), *number_parts_of(elements)]
        order, starts = stable_order(parts, len(elements), presorted=False)
        is_first = np.zeros(len(elements), np.bool_)
        is_first[order[starts]] = True
        flat = flat.where(is_first)
    return _lists(flat, flat.values).cast(kind)


def _collect_one_by_one(operands: Operands, *, distinct: bool) -> pa.Array:
    """`collect` for any element type, by equality of Python values."""
    results: list[list[Any] | None] = [None] * operands.key_count
    steps = zip(operands.keys.numbers.tolist(), operands.values.to_pylist(), operands.retracts.tolist(), strict=True)
    for key, elements, is_retract in steps:
        result = results[key]
        if is_retract:
            # A retract before the first insert is dropped; it does not cancel later inserts.
            results[key] = None if result is None else _without(result, elements)
        else:
            result = result or []
            results[key] = _unique([*result, *elements]) if distinct else [*result, *elements]
    return pa.array(results, operands.values.type)


def _without(elements: list[Any], removed: list[Any]) -> list[Any]:
    left = list(removed)
    kept = []
    for element in elements:
        if element in left:
            left.remove(element)
        else:
            kept.append(element)
    return kept


def _unique(elements: list[Any]) -> list[Any]:
    unique: list[Any] = []
    for element in elements:
        if element not in unique:
            unique.append(element)
    return unique


def merge_map(operands: Operands) -> pa.Array:
    """(k,) the union of the maps, later values win; a retract removes the keys of its map."""
    kind = operands.values.type
    maps = operands.values
    sizes = np.diff(maps.offsets.to_numpy())
    low, high = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    map_keys, items = maps.keys[low:high], maps.items[low:high]
    keys = np.repeat(operands.keys.numbers, sizes)
    entries = np.empty(0, np.int64)
    if len(map_keys):
        parts: list[Part] = [NumberPart(keys.view(np.uint64)), *number_parts_of(map_keys)]
        order, starts = stable_order(parts, len(keys), presorted=False)
        latest = order[_ends(starts)]
        entries = latest[~np.repeat(operands.retracts, sizes)[latest]]
    offsets = np.searchsorted(keys[entries], np.arange(operands.key_count + 1))
    merged = pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), map_keys.take(pa.array(entries)), items.take(pa.array(entries)), type=kind
    )
    # A key with only retracts gets null, not an empty map.
    gives = np.logical_or.reduceat(~operands.retracts, operands.keys.firsts)
    return merged if gives.all() else merged.take(pa.array(np.arange(len(gives)), mask=~gives))


def _ends(starts: BoolArray) -> BoolArray:
    return np.append(starts[1:], True)


def _lists(operands: Operands, elements: pa.Array) -> pa.ListArray:
    """(k,) the elements as one list per key."""
    offsets: IndexArray = np.searchsorted(operands.keys.numbers, np.arange(operands.key_count + 1))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements)


# ---- Aggregate functions: each reduces one column's values of a key, oldest first, to a single value


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldAggregate:
    """How one column is aggregated."""

    function: str = "last_non_null_value"  # a name of AGGREGATE_FUNCTIONS
    ignore_retract: bool = False  # drop retract operands before aggregating
    distinct: bool = False  # collect, listagg: drop duplicates
    delimiter: str = ","  # listagg
    nested_key: tuple[str, ...] = ()  # nested_update, nested_partial_update: columns that identify a nested row
    count_limit: int | None = None  # nested_update: maximum array length; further rows are dropped
    time_field: str | None = None  # merge_map_with_keytime: STRING column of the nested rows; None: their last column

    def __post_init__(self) -> None:
        if self.function not in AGGREGATE_FUNCTIONS:
            raise InvalidInputError(
                f"unknown aggregate function: function={self.function} allowed={sorted(AGGREGATE_FUNCTIONS)}"
            )

    @property
    def supports_retracts(self) -> bool:
        """Whether retract operands are either undone or ignored, rather than refused."""
        return self.ignore_retract or AGGREGATE_FUNCTIONS[self.function].supports_retracts

    @property
    def prepends_older(self) -> bool:
        """Whether a row older by its group's sequence is folded in before the current value (else after it)."""
        return AGGREGATE_FUNCTIONS[self.function].prepends_older

    @property
    def depends_on_step_order(self) -> bool:
        """Whether a retract between two prepended values changes the result, so that they cannot be folded at once."""
        function = AGGREGATE_FUNCTIONS[self.function]
        return function.supports_retracts and function.prepends_older and not (function.is_sum or self.ignore_retract)

    def check_type(self, name: str, kind: pa.DataType) -> None:
        """Raises: InvalidInputError naming the column and the types that the function accepts."""
        try:
            check_type(self.function, kind, nested_key=self.nested_key, time_field=self.time_field)
        except InvalidInputError as error:
            raise self._refusal(name, kind, error) from error

    def fold(self, name: str, operands: Operands) -> pa.Array | IndexArray:
        """(k,) the aggregate of every key, null for keys without operands.

        The result is either values of the operands' type or row indices into the operands' column, -1 for null.

        Args:
            name: the column, for messages.
            operands: the column's values by key.

        Raises:
            InvalidInputError: the function does not support the type or a retract, or a sum overflows its
                type.
        """
        function = AGGREGATE_FUNCTIONS[self.function]
        if self.ignore_retract:
            operands = operands.where(~operands.retracts)
        elif not function.supports_retracts and operands.retracts.any():
            raise InvalidInputError(
                f"aggregate function does not support retracts: column={name} aggregate_function={self.function} "
                f"retract_count={int(operands.retracts.sum())} fix=set fields.{name}.ignore-retract=true"
            )
        if function.skips_nulls:
            operands = operands.valid()
        if not len(operands.rows):
            return np.full(operands.key_count, -1)
        self.check_type(name, operands.column.type)
        try:
            folded = function.apply(operands.dense(), self)
        except (InvalidInputError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._refusal(name, operands.column.type, error) from error
        return operands.spread_rows(folded) if isinstance(folded, np.ndarray) else operands.spread(folded)

    def _refusal(self, name: str, kind: pa.DataType, error: Exception) -> InvalidInputError:
        return InvalidInputError(
            f"cannot aggregate: column={name} type={kind} aggregate_function={self.function}: {error}"
        )


@dataclass(frozen=True, slots=True)
class _Function:
    apply: Callable[[Operands, FieldAggregate], pa.Array | IndexArray]
    """(k,) values, or operand indices with -1 for null; every key has at least one operand."""
    supports_retracts: bool = False
    skips_nulls: bool = True
    is_sum: bool = False  # commutative: retracts and inserts may come in any order
    prepends_older: bool = True  # rows older than the current value of their sequence group


def _last(operands: Operands, _: FieldAggregate) -> IndexArray:
    """The newest operand; null when it is a retract."""
    lasts = operands.keys.lasts
    return np.where(operands.retracts[lasts], -1, lasts)


def _first(operands: Operands, _: FieldAggregate) -> IndexArray:
    return operands.keys.firsts


def _greatest(operands: Operands, _: FieldAggregate) -> pa.Array | IndexArray:
    if is_stored_as_integer(operands.column.type):
        return _integer_extremes(operands, np.maximum)
    return _greatest_at(operands, descending=False)


def _smallest(operands: Operands, _: FieldAggregate) -> pa.Array | IndexArray:
    if is_stored_as_integer(operands.column.type):
        return _integer_extremes(operands, np.minimum)
    return _greatest_at(operands, descending=True)


def _integer_extremes(operands: Operands, function: np.ufunc) -> pa.Array:
    kind = operands.column.type
    numbers = operands.values.view(f"int{kind.bit_width}").to_numpy()
    return pa.array(function.reduceat(numbers, operands.keys.firsts)).view(kind)


def _greatest_at(operands: Operands, *, descending: bool) -> IndexArray:
    """(k,) operand index of each key's greatest operand; the smallest with `descending`."""
    keys = operands.keys
    parts = number_parts_of(operands.values, descending=descending)
    if len(parts) > 1:
        order, _ = stable_order([NumberPart(keys.numbers.view(np.uint64)), *parts], len(keys.numbers), presorted=False)
        return order[keys.lasts]
    words = parts[0].values
    greatest = np.maximum.reduceat(words, keys.firsts)
    at = np.flatnonzero(words == greatest[keys.numbers])
    return at[OperandKeys(keys.numbers[at], keys.key_count).firsts]


AGGREGATE_FUNCTIONS: Final = {
    "last_value": _Function(_last, supports_retracts=True, skips_nulls=False),
    "last_non_null_value": _Function(_last, supports_retracts=True),
    "first_value": _Function(_first, skips_nulls=False),
    "first_non_null_value": _Function(_first),
    "first_not_null_value": _Function(_first),
    "max": _Function(_greatest),
    "min": _Function(_smallest),
    "sum": _Function(lambda operands, _: total(operands), supports_retracts=True, is_sum=True),
    "count": _Function(lambda operands, _: total(operands), supports_retracts=True, is_sum=True),
    "product": _Function(lambda operands, _: product(operands), supports_retracts=True),
    "bool_and": _Function(lambda operands, _: truth_of_all(operands)),
    "bool_or": _Function(lambda operands, _: truth_of_any(operands)),
    "listagg": _Function(lambda operands, spec: listagg(operands, delimiter=spec.delimiter, distinct=spec.distinct)),
    "collect": _Function(
        lambda operands, spec: collect(operands, distinct=spec.distinct), supports_retracts=True, prepends_older=False
    ),
    "merge_map": _Function(lambda operands, _: merge_map(operands), supports_retracts=True),
    "merge_map_with_keytime": _Function(
        lambda operands, spec: merge_map_with_keytime(operands, time_field=spec.time_field)
    ),
    "nested_update": _Function(
        lambda operands, spec: nested_update(operands, nested_key=spec.nested_key, count_limit=spec.count_limit),
        supports_retracts=True,
    ),
    "nested_partial_update": _Function(
        lambda operands, spec: nested_partial_update(operands, nested_key=spec.nested_key)
    ),
    "rbm32": _Function(lambda operands, _: bitmaps32(operands)),
    "rbm64": _Function(lambda operands, _: bitmaps64(operands)),
    "theta_sketch": _Function(lambda operands, _: theta_sketches(operands)),
    "hll_sketch": _Function(lambda operands, _: hll_sketches(operands)),
}
