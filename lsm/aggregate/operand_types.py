"""The column types that aggregate functions accept: checked at table creation, before any rows are merged."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from lsm.errors import InvalidInputError

_TYPES: Final[Mapping[str, tuple[Callable[[pa.DataType], bool], str]]] = {
    name: (test, text)
    for names, test, text in (
        ("max min", lambda kind: not pa.types.is_nested(kind), "only orderable types can be compared"),
        ("sum product", lambda kind: is_number(kind), "only numbers can be added and multiplied"),
        ("count", pa.types.is_integer, "only integer columns can hold a count"),
        ("bool_and bool_or", pa.types.is_boolean, "only BOOLEAN columns have truth values"),
        ("listagg", lambda kind: is_text(kind), "only strings can be joined"),
        ("collect", pa.types.is_list, "only arrays can be collected"),
        ("merge_map", pa.types.is_map, "only maps can be merged"),
        ("merge_map_with_keytime", lambda kind: is_map_of_rows(kind), "only maps of rows with a time can be merged"),
        (
            "nested_update nested_partial_update",
            lambda kind: is_nested_table(kind),
            "only ARRAY<ROW> is a nested table",
        ),
        ("rbm32 rbm64 theta_sketch hll_sketch", lambda kind: is_bytes(kind), "only VARBINARY holds sets and sketches"),
    )
    for name in names.split()
}


def check_type(
    function: str, kind: pa.DataType, *, nested_key: Sequence[str] = (), time_field: str | None = None
) -> None:
    """Check that a function accepts a column.

    Args:
        function: name of the aggregate function.
        kind: type of the column.
        nested_key: columns that identify the rows of a nested table.
        time_field: time column of the rows of a map; None: their last column.

    Raises:
        InvalidInputError: states the types that the function accepts.
    """
    test, text = _TYPES.get(function, (None, ""))
    if test is not None and not test(kind):
        raise InvalidInputError(text)
    if function == "nested_partial_update" and not nested_key:
        raise InvalidInputError("a nested key is required: fix=set fields.<column>.nested-key")
    if is_nested_table(kind) and function.startswith("nested"):
        missing = [name for name in nested_key if kind.value_type.get_field_index(name) < 0]
        if missing:
            raise InvalidInputError(f"nested rows lack a column: nested-key={','.join(nested_key)} missing={missing}")
    if function == "merge_map_with_keytime" and not is_text(kind.item_type.field(time_index(kind, time_field)).type):
        raise InvalidInputError(f"the time column of nested rows must be STRING: ts-field={time_field}")


def time_index(kind: pa.MapType, time_field: str | None) -> int:
    """Index of the time column in the rows of a map. Raises: InvalidInputError when there is no such column."""
    index: int = kind.item_type.num_fields - 1 if time_field is None else kind.item_type.get_field_index(time_field)
    if index < 0:
        raise InvalidInputError(f"nested rows lack a column: ts-field={time_field}")
    return index


def is_number(kind: pa.DataType) -> bool:
    """Whether the type is an integer, a float or a decimal."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_stored_as_integer(kind: pa.DataType) -> bool:
    """Whether values are stored as signed integers that compare like the values."""
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_temporal(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether the type is a string."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether the type is variable-length binary."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_nested_table(kind: pa.DataType) -> bool:
    """Whether the type is ARRAY<ROW>."""
    return bool(pa.types.is_list(kind) and pa.types.is_struct(kind.value_type))


def is_map_of_rows(kind: pa.DataType) -> bool:
    """Whether the type is a MAP with values of ROW type of at least two columns."""
    return bool(pa.types.is_map(kind) and pa.types.is_struct(kind.item_type) and kind.item_type.num_fields > 1)
