"""Rows from outside as rows of the table: columns by name, cast without loss, and checked.

Readers do not check anything again, so a null key or a text that is too long would stay in the table permanently.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from filestore.datafile.schema_mapping import conform, holds_variant
from filestore.hashing.buckets import one_nan
from filestore.options.table_options import TableOptions
from filestore.schema.file_fields import map_parts
from filestore.schema.table_schema import TableSchema
from filestore.types.casts import default_scalar
from filestore.types.data_types import BYTES_ROOTS, MAX_LENGTH, TEXT_ROOTS, DataField, DataType, arrow_type, is_any_list
from filestore.types.nested_arrays import (
    check_present,
    list_of,
    list_parts,
    map_of,
    map_parts_of,
    struct_of,
    with_slots,
)
from lsm.errors import CorruptDataError, InvalidInputError
from lsm.nearest_names import did_you_mean
from lsm.row_kind import ROW_KIND_SYMBOLS, RowKind

# ---- ``write.round-values``: values brought to the precision of their column before they are checked
# Times are rounded towards the past, decimals half up to the column's scale, DOUBLE to the nearest FLOAT. Values
# outside the column's range stay as they are and are refused by the check that follows.


_UNIT_NAMES: Final = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}
_NANOS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def rounded(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The values, still in their own type, such that a checked cast to ``wanted`` changes none of them.

    Args:
        array: (n,) of any type that is not nested.
        wanted: type of the column.
    """
    given = array.type
    types = pa.types
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        return pc.floor_temporal(array, unit=_UNIT_NAMES[wanted.unit]) if _is_finer(given, wanted) else array
    if types.is_time(given) and types.is_time(wanted):
        return array.cast(wanted, safe=False).cast(given) if _is_finer(given, wanted) else array
    if types.is_float64(given) and types.is_float32(wanted):
        near = array.cast(wanted)
        overflows = pc.and_(pc.is_inf(near), pc.is_finite(array))
        return pc.if_else(overflows, array, near.cast(given))
    if types.is_decimal(given) and types.is_decimal(wanted) and given.scale > wanted.scale:
        wide = array.cast(pa.decimal256(76, given.scale))  # rounding up may need one digit more
        return pc.round(wide, ndigits=wanted.scale, round_mode="half_towards_infinity")
    return array


def inexact_floats(given: pa.Array, found: pa.Array) -> pa.Array | None:
    """DOUBLE values that their cast to FLOAT changed; None: there are none, or the types are others.

    Args:
        given: the values.
        found: the same values after the cast to the column's type.
    """
    if not (pa.types.is_float64(given.type) and pa.types.is_float32(found.type)):
        return None
    changed = pc.and_not(pc.not_equal(found.cast(pa.float64()), given), pc.is_nan(given))
    return given.filter(changed) if pc.any(changed).as_py() else None


def _is_finer(given: pa.DataType, wanted: pa.DataType) -> bool:
    return _NANOS[given.unit] < _NANOS[wanted.unit]


# ---- Rows from outside as rows of the table: columns by name, cast without loss, and checked


_SHOWN_LENGTH: Final = 60  # of a value in a message
_MOST_DIGITS: Final = 38
ROUND_KEY: Final = TableOptions.write_round_values.key


def conform_batch(
    rows: pa.Table | pa.RecordBatch,
    schema: TableSchema,
    *,
    rounds: bool = False,
    left_out: Mapping[str, pa.Array] | None = None,
) -> pa.RecordBatch:
    """The rows as the table's columns, in the table's order and types; NaNs in keys have the same bits.

    Args:
        rows: columns by name in any order; nullable ones and those with a default may be missing, dictionaries and
            views are decoded.
        schema: of the table.
        rounds: ``write.round-values``: finer times, decimals and floats are rounded instead of refused.
        left_out: (n,) bool by column: the rows whose value comes from elsewhere later. In all others a null becomes
            the default of its column, as Java stores it (TableWriteImpl, DefaultValueRow). None: nulls stay.

    Raises:
        InvalidInputError: names the column, the value and what to change.
    """
    unknown = [name for name in rows.schema.names if name not in schema.column_names]
    if unknown:
        near = did_you_mean(unknown[0], schema.column_names)
        raise InvalidInputError(
            f"the table has no such column: column={unknown[0]}{near} columns={list(schema.column_names)} "
            "fix='drop the column, add it to the table, or set write.merge-schema=true'"
        )
    counts = Counter(rows.schema.names)
    doubled = [name for name in schema.column_names if counts[name] > 1]
    if doubled:
        raise InvalidInputError(f"a column is given twice: column={doubled[0]} fix='drop one of them'")
    columns = [_conform_column(rows, field, rounds) for field in schema.fields]
    if left_out is not None and not schema.table_options.row_counts:
        columns = [
            column if field.default_value is None or not column.null_count
            else _with_default(column, field, left_out.get(field.name))
            for column, field in zip(columns, schema.fields, strict=True)
        ]  # fmt: skip
    keys = {*schema.primary_keys, *schema.bucket_keys, *schema.partition_keys}
    columns = [
        one_nan(column) if field.name in keys else column for column, field in zip(columns, schema.fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)


def row_kinds_of_column(column: pa.Array, name: str) -> pa.Array:
    """The kinds (int8) that a ``rowkind.field`` column spells as ``+I -U +U -D``.

    Raises: InvalidInputError for null or another text.
    """
    found = pc.index_in(column, value_set=ROW_KIND_SYMBOLS).cast(pa.int8())
    if found.null_count:
        row = _first(pc.is_null(found))
        raise InvalidInputError(
            f"not a row kind: column={name} row={row} value={_shown(column[row])} "
            f"fix='use one of {ROW_KIND_SYMBOLS.to_pylist()}'"
        )
    return found


def check_kinds(kinds: pa.Array, row_count: int) -> pa.Array:
    """Given kinds as int8, one per row. Raises: InvalidInputError."""
    kinds = kinds.combine_chunks() if isinstance(kinds, pa.ChunkedArray) else kinds
    if len(kinds) != row_count:
        raise InvalidInputError(f"one row kind per row is needed: rows={row_count} kinds={len(kinds)}")
    if not pa.types.is_integer(kinds.type):
        return row_kinds_of_column(kinds, "kinds")
    bad = pc.fill_null(pc.or_(pc.less(kinds, 0), pc.greater(kinds, max(RowKind))), True)
    if pc.any(bad).as_py():
        row = _first(bad)
        raise InvalidInputError(
            f"not a row kind: row={row} value={_shown(kinds[row])} fix='use 0 (+I), 1 (-U), 2 (+U) or 3 (-D)'"
        )
    return kinds.cast(pa.int8())


def _conform_column(rows: pa.Table | pa.RecordBatch, field: DataField, rounds: bool) -> pa.Array:
    index = rows.schema.get_field_index(field.name)
    wanted = arrow_type(field.type)
    if index < 0:
        if not field.type.nullable and rows.num_rows:
            if field.default_value is not None:
                return pa.repeat(default_scalar(field), rows.num_rows)
            raise InvalidInputError(_missing(field.name, field.type))
        return with_slots(pa.nulls(rows.num_rows, wanted), field.type, field.name)
    column = rows.column(index)
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(column, pa.ChunkedArray):  # combine_chunks keeps two chunks when offsets would overflow
        raise InvalidInputError(f"too many bytes in one write: column={field.name} fix='write smaller batches'")
    if column.type != wanted or holds_variant(field.type):
        column = _cast(column, field, rounds)
    check_present(column, field.type, field.name)
    _check_values(column, field.type, field.name)
    return with_slots(column, field.type, field.name)


def _with_default(column: pa.Array, field: DataField, left_out: pa.Array | None) -> pa.Array:
    """The default in place of nulls, but where the value is left out."""
    is_filled = pc.is_null(column) if left_out is None else pc.and_not(pc.is_null(column), left_out)
    return pc.if_else(is_filled, default_scalar(field), column)


def _cast(column: pa.Array, field: DataField, rounds: bool) -> pa.Array:
    given = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    try:
        return _stored(column, field.type, field.name, rounds)
    except (pa.ArrowInvalid, CorruptDataError) as error:
        raise InvalidInputError(_inexact(field, given, str(error))) from error


def _stored(array: pa.Array, data_type: DataType, name: str, rounds: bool) -> pa.Array:
    """Values of any Arrow type as those of a column, part by part: nested types differ in more than Arrow casts.

    Raises:
        InvalidInputError: another type, or fields that the column does not have.
        pa.ArrowInvalid, CorruptDataError: a value does not fit.
    """
    types = pa.types
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    elif types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    given, wanted, root = array.type, arrow_type(data_type), data_type.root
    if root == "VARIANT":
        return conform(array, data_type, name)
    if types.is_null(given):
        return pa.nulls(len(array), wanted)
    if root == "ROW" and types.is_struct(given):
        return struct_of(array, _stored_fields(array, data_type, name, rounds), wanted)
    if data_type.element is not None and root == "ARRAY" and is_any_list(given):
        offsets, elements = list_parts(array)
        return list_of(array, offsets, _stored(elements, data_type.element, f"{name}.element", rounds), wanted)
    if root in ("MAP", "MULTISET") and types.is_map(given):
        offsets, keys, values = map_parts_of(array)
        key, value = map_parts(data_type)
        keys, values = _stored(keys, key, f"{name}.key", rounds), _stored(values, value, f"{name}.value", rounds)
        check_present(keys, replace(key, nullable=False), f"{name}.key")
        return map_of(array, offsets, keys, values, wanted)
    if not _is_lossless_kind(given, wanted):
        raise InvalidInputError(_other_type(name, data_type, given, wanted))
    try:
        exact = rounded(array, wanted) if rounds else array
        found = exact.cast(wanted)
    except pa.ArrowNotImplementedError as error:
        raise InvalidInputError(_other_type(name, data_type, given, wanted)) from error
    changed = inexact_floats(exact, found)  # Arrow rounds these unchecked
    if changed is not None:
        raise pa.ArrowInvalid(f"{_shown(changed[0])} is no value of FLOAT")
    return found


def _stored_fields(array: pa.StructArray, data_type: DataType, name: str, rounds: bool) -> list[pa.Array]:
    parts = array.flatten()
    places = {field.name: place for place, field in enumerate(array.type)}
    names = {field.name for field in data_type.fields}
    other = next((each for each in places if each not in names), None)
    if other is not None:
        raise InvalidInputError(
            f"the column has no such field: column={name} field={other} "
            f"fields={[field.name for field in data_type.fields]} "
            "fix='leave it out, add it to the table, or set write.merge-schema=true'"
        )
    if len(places) < len(parts):
        twice = next(field.name for place, field in enumerate(array.type) if places[field.name] != place)
        raise InvalidInputError(f"a field is given twice: column={name} field={twice} fix='drop one of them'")
    found = []
    for field in data_type.fields:
        if field.name not in places:
            if not field.type.nullable and array.null_count < len(array):
                raise InvalidInputError(_missing(f"{name}.{field.name}", field.type))
            found.append(pa.nulls(len(array), arrow_type(field.type)))
        else:
            found.append(_stored(parts[places[field.name]], field.type, f"{name}.{field.name}", rounds))
    return found


def _missing(name: str, data_type: DataType) -> str:
    return f"a NOT NULL column is missing: column={name} type={data_type} fix='give it a value in every row'"


def _inexact(field: DataField, given: pa.DataType, error: str) -> str:
    return (
        f"a value does not fit the column: column={field.name} type={field.type} given={given} error={error} "
        f"fix='round or cast the values, or set {ROUND_KEY}=true'"
    )


def _other_type(name: str, data_type: DataType, given: pa.DataType, wanted: pa.DataType) -> str:
    return f"a column has another type: column={name} given={given} wanted={wanted} fix='cast it to {data_type}'"


def _is_lossless_kind(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a checked cast keeps the meaning; texts are never parsed, numbers never written out."""
    types = pa.types
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        return bool((given.tz is None) == (wanted.tz is None))  # local time and a moment are different things
    return any(_is_in(given, family) and _is_in(wanted, family) for family in _FAMILIES)


def _is_in(arrow: pa.DataType, family: Sequence[Callable[[pa.DataType], bool]]) -> bool:
    return any(test(arrow) for test in family)


_TEXTS: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    lambda arrow: pa.types.is_fixed_size_binary(arrow) and not pa.types.is_decimal(arrow),
)
_FAMILIES: Final = (
    _TEXTS,
    _BYTES,
    (pa.types.is_integer, pa.types.is_decimal),
    (pa.types.is_integer, pa.types.is_floating),
    (pa.types.is_date,),
    (pa.types.is_time,),
    (pa.types.is_boolean,),
)


_VARIANT_VERSIONS: Final = pa.array([bytes([high << 4 | 1]) for high in range(16)], pa.binary())


def _check_values(
    column: pa.Array, data_type: DataType, name: str, row_of: Callable[[int], int] = lambda index: index
) -> None:
    """Refuse values that a column cannot hold; ``row_of`` gives the row of a value."""
    limit = data_type.length
    if limit is not None and limit < MAX_LENGTH and (data_type.root in TEXT_ROOTS or data_type.root in BYTES_ROOTS):
        lengths = pc.utf8_length(column) if data_type.root in TEXT_ROOTS else pc.binary_length(column)
        _refuse(column, pc.greater(lengths, limit), data_type, name, "a value is too long", row_of)
    if data_type.root == "DECIMAL":
        _check_digits(column, data_type, name, row_of)
    if data_type.root == "VARIANT":
        _check_variant(column, name, row_of)
    if data_type.root == "ROW":
        for part, field in zip(column.flatten(), data_type.fields, strict=True):
            _check_values(part, field.type, f"{name}.{field.name}", row_of)
    if data_type.root == "ARRAY" and data_type.element is not None:
        offsets, elements = list_parts(column)
        _check_values(elements, data_type.element, f"{name}.element", partial(_row_within, offsets, row_of))
    if data_type.root == "MAP" and data_type.key is not None and data_type.value is not None:
        offsets, keys, values = map_parts_of(column)
        inner = partial(_row_within, offsets, row_of)
        _check_values(keys, data_type.key, f"{name}.key", inner)
        _check_values(values, data_type.value, f"{name}.value", inner)


def _row_within(offsets: pa.Array, row_of: Callable[[int], int], index: int) -> int:
    """The row of an element of a list."""
    return row_of(int(pc.sum(pc.less_equal(offsets, index)).as_py()) - 1)


def _check_variant(column: pa.Array, name: str, row_of: Callable[[int], int]) -> None:
    """Readers trust the first byte of the metadata, the version of the encoding, and that no part is null."""
    places = pc.indices_nonzero(pc.is_valid(column))
    valid = column.take(places) if column.null_count else column
    metadata, value = (pc.struct_field(valid, part) for part in ("metadata", "value"))
    version = pc.binary_slice(metadata, 0, 1)
    is_wrong = pc.or_(pc.is_null(value), pc.invert(pc.is_in(version, value_set=_VARIANT_VERSIONS)))
    if pc.any(is_wrong).as_py():
        raise InvalidInputError(
            f"not a VARIANT: column={name} row={row_of(places[_first(is_wrong)].as_py())} "
            "fix='give value and metadata in the encoding of Parquet, version 1, for example by parse_json in Spark'"
        )


def _check_digits(column: pa.Array, data_type: DataType, name: str, row_of: Callable[[int], int]) -> None:
    """Arrow does not look whether a decimal has more digits than its type says."""
    digits, scale = data_type.precision or 0, data_type.scale or 0
    if digits == _MOST_DIGITS:
        return
    widest = pa.decimal128(_MOST_DIGITS, scale)
    bound = pa.scalar(Decimal(10) ** (digits - scale), widest)
    is_over = pc.greater_equal(pc.abs(column.cast(widest)), bound)
    _refuse(column, is_over, data_type, name, "a value has too many digits", row_of)


def _refuse(
    column: pa.Array, bad: pa.Array, data_type: DataType, name: str, fact: str, row_of: Callable[[int], int]
) -> None:
    if pc.any(bad).as_py():
        index = _first(bad)
        raise InvalidInputError(
            f"{fact}: column={name} row={row_of(index)} value={_shown(column[index])} type={data_type} "
            "fix='shorten the value or widen the column'"
        )


def _first(flags: pa.Array) -> int:
    return int(pc.index(flags, pa.scalar(True)).as_py())


def _shown(value: pa.Scalar) -> str:
    text = repr(value.as_py())
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."
