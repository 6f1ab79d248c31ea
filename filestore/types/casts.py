"""Casts of stored values after a change of the column type, as in Paimon.

Narrowed integers wrap and floats saturate, as in Java; digits beyond a DECIMAL's scale are rounded half
up and values beyond its precision become null; finer time units are truncated. Session time zones are UTC.
Source: Paimon CastExecutors and the rules in its ``casting`` package.
"""

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.options.table_options import TableOptions
from filestore.types.data_types import (
    BYTES_ROOTS,
    INTEGER_ROOTS,
    MAX_LENGTH,
    STRING,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    UNORDERED_ROOTS,
    DataField,
    DataType,
    arrow_type,
    timestamp_unit,
)
from filestore.types.partition_text import partition_text
from filestore.types.text_values import NANOS_PER_DAY, NANOS_PER_UNIT, LiteralMismatchError, parse_moment, parse_time
from lsm.errors import InvalidInputError
from lsm.keys.keys import internal_value

_FLOAT_ROOTS: Final = frozenset({"FLOAT", "DOUBLE"})
_NUMBER_ROOTS: Final = INTEGER_ROOTS | _FLOAT_ROOTS | {"DECIMAL"}
_TRUE_WORDS: Final = pa.array(["t", "true", "y", "yes", "1"])
_FALSE_WORDS: Final = pa.array(["f", "false", "n", "no", "0"])
_DECIMAL_DIGITS: Final = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
_EXACT: Final = Context(prec=400, rounding=ROUND_HALF_UP)
_READABLE: Final = TableOptions.parse({"partition.legacy-name": "false"})
_DIGITS_OF_UNIT: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_FLOOR_UNIT: Final = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}


def cast_array(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Cast values of an atomic type to another one, preserving nulls.

    Args:
        array: (n,) of ``arrow_type(source)``.
        source: type declared by the file.
        target: current type of the column.

    Raises:
        InvalidInputError: the cast is not supported, or a string cannot be parsed as the target type.
    """
    cast = _find(source, target)
    if cast is None:
        raise InvalidInputError(f"a column cannot be read as its new type: old_type={source} new_type={target}")
    try:
        return cast(array, source, target)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"a stored value cannot be read as the column's new type: old_type={source} new_type={target} error={error}"
        ) from error


def can_cast(source: DataType, target: DataType) -> bool:
    """Whether one atomic type can be cast to the other."""
    return _find(source, target) is not None


def widens(source: DataType, target: DataType) -> bool:
    """Whether an atomic type can represent every value of another unchanged."""
    if source.root in INTEGER_ROOTS and target.root == "DECIMAL":
        digits = _DECIMAL_DIGITS[source.root]
        return digits <= (target.precision or 0) - (target.scale or 0)
    if source.root == target.root == "DECIMAL":
        whole = (source.precision or 0) - (source.scale or 0)
        return (source.scale or 0) <= (target.scale or 0) and whole <= (target.precision or 0) - (target.scale or 0)
    if source.root in TIMESTAMP_ROOTS and source.root == target.root:
        return (source.precision or 0) <= (target.precision or 0)
    if source.root in ("TINYINT", "SMALLINT") and target.root in ("FLOAT", "DOUBLE"):
        return True
    return (source.root == "INT" and target.root == "DOUBLE") or keeps_order(source, target)


def cast_loss(source: DataType, target: DataType) -> str | None:
    """What a cast of stored values may change, in words; None: nothing. For a pair that ``can_cast`` allows."""
    if not can_cast(source, target) or widens(source, target):
        return None
    if source.root in TEXT_ROOTS and target.root not in TEXT_ROOTS | BYTES_ROOTS:
        return "a text that is none fails the read"
    if target.root == "DECIMAL":
        return "digits beyond its scale are rounded, numbers beyond its precision are null"
    if target.root in INTEGER_ROOTS:
        return "fractions are cut, numbers beyond it are others"
    if target.root in _FLOAT_ROOTS:
        return "digits beyond its precision are rounded"
    if target.root in TEXT_ROOTS | BYTES_ROOTS:
        is_cut = (target.length or 0) < MAX_LENGTH
        return "as text, cut to its length" if is_cut else "as text"
    return "true unless 0" if target.root == "BOOLEAN" else "finer units of time are cut"


def narrowed(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Cast to a narrower atomic type, where ``widens(target, source)``, without changing values.

    Strings and timestamps with the same representation are not truncated.

    Raises:
        ArrowInvalid: a value does not fit the target.
    """
    wanted = arrow_type(target)
    if array.type == wanted:
        return array
    found = pc.cast(array, wanted, safe=True)
    if pa.types.is_floating(wanted) and pa.types.is_floating(array.type):  # Arrow rounds these silently
        same = pc.or_kleene(pc.equal(found.cast(array.type), array), pc.is_nan(array))
        if not pc.all(same, min_count=0).as_py():
            value = array[pc.index(same, pa.scalar(False)).as_py()]
            raise pa.ArrowInvalid(f"{value} is not a value of {wanted}")
    return found


def floor_clock(array: pa.Array, unit: str) -> pa.Array:
    """Timestamps rounded down to ``unit``, where a plain cast would round towards 1970."""
    if _DIGITS_OF_UNIT[array.type.unit] <= _DIGITS_OF_UNIT[unit]:
        return array
    return pc.floor_temporal(array, unit=_FLOOR_UNIT[unit])


def reads_same_json(source: DataType, target: DataType) -> bool:
    """Whether the JSON text of a value means the same in the new type; a FLOAT's shortest text is another DOUBLE."""
    same = (INTEGER_ROOTS, TEXT_ROOTS, TIMESTAMP_ROOTS)
    if source.root == target.root == "DECIMAL" or any(source.root in roots and target.root in roots for roots in same):
        return widens(source, target) and "CHAR" not in (source.root, target.root) and source.root[:5] != "BYTES"
    return False


def keeps_order(source: DataType, target: DataType) -> bool:
    """Whether a cast preserves internal values, so that bounds remain valid."""
    if source.root in INTEGER_ROOTS and target.root in INTEGER_ROOTS:
        return _width(source) <= _width(target)
    if source.root == "FLOAT" and target.root == "DOUBLE":
        return True
    if source.root in TEXT_ROOTS or source.root in BYTES_ROOTS:
        open_ended = "VARCHAR" if source.root in TEXT_ROOTS else "VARBINARY"  # CHAR and BINARY are padded
        return target.root == open_ended and (target.length or 0) >= (source.length or 0)
    if source.root == target.root == "DECIMAL":
        return source.scale == target.scale and (source.precision or 0) <= (target.precision or 0)
    if source.root == target.root and source.root in TIMESTAMP_ROOTS:
        same_unit = timestamp_unit(source) == timestamp_unit(target)
        return same_unit and (source.precision or 0) <= (target.precision or 0)
    return source.root == target.root and source.root in ("BOOLEAN", "DATE", "TIME")


_Cast = Callable[[pa.Array, DataType, DataType], pa.Array]


def _find(source: DataType, target: DataType) -> _Cast | None:
    for sources, targets, cast in _RULES:
        if source.root in sources and target.root in targets:
            return cast
    return None


def _width(data_type: DataType) -> int:
    return int(arrow_type(data_type).bit_width)


def _by_arrow(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Arrow's unchecked cast, which matches Java: integers wrap, time zones change without changing the instant."""
    return pc.cast(array, arrow_type(target), safe=False)


def _float_to_integer(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Rounds towards zero, NaN is 0, saturates to INT or BIGINT; narrower types take the low bits of INT."""
    wide = pa.int64() if target.root == "BIGINT" else pa.int32()
    limits = np.iinfo(wide.to_pandas_dtype())
    values = array.cast(pa.float64()).fill_null(0).to_numpy()
    values = np.where(np.isnan(values), 0, np.trunc(values))
    too_low, too_high = values <= float(limits.min), values >= float(limits.max)
    whole = np.where(too_low | too_high, 0, values).astype(limits.dtype)
    whole = np.where(too_low, limits.min, np.where(too_high, limits.max, whole)).astype(limits.dtype)
    mask = array.is_null().to_numpy(zero_copy_only=False)
    return pc.cast(pa.array(whole, mask=mask), arrow_type(target), safe=False)


def _to_decimal(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Rounds half up to the scale; null where the precision is exceeded."""
    scale, precision = target.scale or 0, target.precision or 0
    digits = _DECIMAL_DIGITS.get(source.root, (source.precision or 0) - (source.scale or 0))
    is_exact = source.root in INTEGER_ROOTS or source.root == "DECIMAL"
    if is_exact and (source.scale or 0) <= scale and digits <= precision - scale:
        return pc.cast(array, arrow_type(target))
    unit = Decimal(1).scaleb(-scale)

    def convert(value: Any) -> Decimal | None:
        # Use the shortest decimal text of a float, not its exact binary value.
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(str(value).strip())
        if not number.is_finite():
            return None
        rounded = _EXACT.quantize(number, unit)
        return rounded if abs(rounded) < 10 ** (precision - scale) else None

    return _by_value(array, convert, target)


def _decimal_to_number(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    if target.root in _FLOAT_ROOTS:
        return pc.cast(array, arrow_type(target))
    # Java takes the low bits of values that do not fit.
    bits = _width(target)

    def convert(value: Decimal) -> int:
        return (int(value) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))

    return _by_value(array, convert, target)


def _number_to_boolean(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    return pc.not_equal(array, pa.scalar(0, array.type))


def unquoted_default(text: str) -> str:
    """The value of a column's default as text, without the quotes that another engine may store it with.

    Source: Paimon DefaultValueUtils.
    """
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text


def default_scalar(field: DataField) -> pa.Scalar:
    """The value of a column's default. Raises: InvalidInputError naming the column, where it is none of its type."""
    try:
        return literal_value(unquoted_default(field.default_value or ""), field.type)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{error} column={field.name} fix='give the column a value, or change DEFAULT'"
        ) from error


def literal_value(text: str, data_type: DataType) -> pa.Scalar:
    """The value of a default, which schemas keep as text.

    Raises: InvalidInputError for a text that is not a value of the type.
    """
    if data_type.root in UNORDERED_ROOTS:
        raise InvalidInputError(f"columns of this type have no default: type={data_type} default={text!r}")
    try:
        value = cast_array(pa.array([text], arrow_type(STRING)), STRING, data_type)
    except InvalidInputError as error:
        raise InvalidInputError(f"default is not a value of the column: type={data_type} default={text!r}") from error
    if value.null_count:
        raise InvalidInputError(f"default is not a value of the column: type={data_type} default={text!r}")
    return value[0]


def _text_to_boolean(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    word = pc.utf8_lower(pc.utf8_trim_whitespace(array))
    known = pc.or_(pc.is_in(word, value_set=_TRUE_WORDS), pc.is_in(word, value_set=_FALSE_WORDS))
    if not pc.all(pc.or_(known, pc.is_null(word))).as_py():
        raise pa.ArrowInvalid("text is not a boolean")
    return pc.if_else(pc.is_valid(word), pc.is_in(word, value_set=_TRUE_WORDS), pa.scalar(None, pa.bool_()))


def _text_to_number(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    return pc.cast(pc.utf8_trim_whitespace(array), arrow_type(target))


def _text_to_moment(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    def convert(value: str) -> int:
        try:
            if target.root == "TIME":
                return parse_time(value) // NANOS_PER_UNIT["ms"]
            nanos = parse_moment(value)
        except LiteralMismatchError as error:
            raise pa.ArrowInvalid(str(error)) from error
        if target.root == "DATE":
            return nanos // NANOS_PER_DAY
        return nanos // NANOS_PER_UNIT[timestamp_unit(target)]

    moments = _by_value(array, convert, target)
    return _truncated(moments, target) if target.root in TIMESTAMP_ROOTS else moments


def _to_text(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    if source.root in INTEGER_ROOTS or source.root in BYTES_ROOTS or source.root in TEXT_ROOTS:
        text = pc.cast(array, pa.string())
    else:
        text = _by_value(array, lambda value: partition_text(value, source, _READABLE), STRING)
    length = target.length or 0
    if length >= MAX_LENGTH:
        return text
    text = pc.utf8_slice_codeunits(text, 0, length)
    return pc.utf8_rpad(text, length) if target.root == "CHAR" else text


def _to_bytes(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    body = pc.cast(array, pa.binary())
    length = target.length or 0
    if length >= MAX_LENGTH or (target.root == "VARBINARY" and (source.length or 0) <= length):
        return body
    filler = b"\0" if target.root == "BINARY" else b""
    return _by_value(body, lambda value: value[:length].ljust(length if filler else 0, filler or b"\0"), target)


def _moment_to_moment(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    if target.root == "DATE" or source.root == "DATE":
        return pc.cast(array, arrow_type(target), safe=False)
    if target.root == "TIME":
        return pc.cast(floor_clock(array, "ms"), arrow_type(target), safe=False)
    if source.root == "TIME":
        return array
    return _truncated(pc.cast(floor_clock(array, timestamp_unit(target)), arrow_type(target), safe=False), target)


def _truncated(array: pa.Array, target: DataType) -> pa.Array:
    """Truncate digits beyond the declared precision."""
    unit = timestamp_unit(target)
    extra = _DIGITS_OF_UNIT[unit] - (6 if target.precision is None else target.precision)
    return pc.floor_temporal(array, multiple=10**extra, unit=_FLOOR_UNIT[unit]) if extra > 0 else array


def _by_value(array: pa.Array, convert: Callable[[Any], Any], target: DataType) -> pa.Array:
    """Convert each distinct value once in Python, for casts where Arrow differs from Java."""
    encoded = pc.dictionary_encode(array)
    try:
        values = [convert(internal_value(value)) for value in encoded.dictionary]
    except ArithmeticError as error:
        raise pa.ArrowInvalid(f"value cannot be converted: {error!r}") from error
    return pa.array(values, arrow_type(target)).take(encoded.indices)


_MOMENT_ROOTS: Final = TIMESTAMP_ROOTS | {"DATE", "TIME"}
# First match wins.
_RULES: Final[tuple[tuple[frozenset[str], frozenset[str], _Cast], ...]] = (
    (TEXT_ROOTS | BYTES_ROOTS | _NUMBER_ROOTS | _MOMENT_ROOTS | {"BOOLEAN"}, TEXT_ROOTS, _to_text),
    (TEXT_ROOTS | BYTES_ROOTS, BYTES_ROOTS, _to_bytes),
    (TEXT_ROOTS, frozenset({"BOOLEAN"}), _text_to_boolean),
    (TEXT_ROOTS | _NUMBER_ROOTS, frozenset({"DECIMAL"}), _to_decimal),
    (TEXT_ROOTS, INTEGER_ROOTS | _FLOAT_ROOTS, _text_to_number),
    (TEXT_ROOTS, _MOMENT_ROOTS, _text_to_moment),
    (frozenset({"DECIMAL"}), INTEGER_ROOTS | _FLOAT_ROOTS, _decimal_to_number),
    (_FLOAT_ROOTS, INTEGER_ROOTS, _float_to_integer),
    (INTEGER_ROOTS | _FLOAT_ROOTS | {"BOOLEAN"}, INTEGER_ROOTS | _FLOAT_ROOTS, _by_arrow),
    (frozenset({"BOOLEAN"}), frozenset({"BOOLEAN"}), _by_arrow),
    (_NUMBER_ROOTS, frozenset({"BOOLEAN"}), _number_to_boolean),
    (TIMESTAMP_ROOTS, _MOMENT_ROOTS, _moment_to_moment),
    (frozenset({"DATE"}), TIMESTAMP_ROOTS | {"DATE"}, _moment_to_moment),
    (frozenset({"TIME"}), frozenset({"TIME"}), _moment_to_moment),
)
