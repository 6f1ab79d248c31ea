"""Sums, products and boolean aggregates. No operand is null, every key has at least one.

Integer overflow is an error, never wrapped; decimals that exceed their precision become null; floats are
added in arrival order, in double precision. Source: Paimon FieldSumAgg, FieldProductAgg, FieldBoolAndAgg.
"""

import operator
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm.aggregate.operands import Operands
from lsm.errors import InvalidInputError

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
