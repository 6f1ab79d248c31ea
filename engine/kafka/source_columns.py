"""Columns of a source beside those of a table: their names, and records whose columns the table does not hold."""

from typing import Final

import numpy as np
import pyarrow as pa

from engine.kafka.options import NewTypes
from filestore.schema.validation import STREAM_NAMES
from logstore.format.connect_types import columns_of_part, row_part
from logstore.format.schema_parts import Payloads, Split
from logstore.json.reading import BadRecord
from lsm.errors import NewColumnsError

_PREFIX: Final = "src_"
_INTEGER_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}


def column_name(source_name: str) -> str:
    """The name of a source's column in a table: names that changes need themselves get the prefix ``src_``."""
    return f"{_PREFIX}{source_name}" if source_name.lower() in STREAM_NAMES else source_name


def in_source(name: str) -> str:
    """The inverse of ``column_name``."""
    bare = name.removeprefix(_PREFIX)
    return bare if bare != name and bare.lower() in STREAM_NAMES else name


def with_known_columns(split: Split, columns: pa.Schema, new_types: NewTypes) -> Split:
    """Checks that every column in the schema parts of records is known, and holds its values.

    Args:
        split: what splits the records.
        columns: that are known.
        new_types: which other types are not left to the decoder, which refuses single values.

    Raises (when it is called): NewColumnsError, because the query must be restarted with the new columns.
    """

    def checked(records: pa.Array) -> tuple[list[Payloads], tuple[BadRecord, ...]]:
        groups, bad = split(records)
        for group in sorted(groups, key=lambda each: int(each.indices[0]) if len(each.indices) else 0):
            found = [each for each in columns_of_part(row_part(group.schema_part)) if not each.refused]
            names = {column_name(each.name): each.type for each in found}
            new = [name for name in names if name not in columns.names]
            wider = [
                f"{name} {names[name]}"
                for name in names
                if name in columns.names and _needs_restart(columns.field(name).type, names[name], new_types)
            ]
            if new or wider:
                facts = f"columns={new}" + (f" types={wider}" if wider else "")
                raise NewColumnsError(
                    f"rows of the source have new columns: {facts} new-fields=fail "
                    "fix=restart the query with them; a pipeline with write.merge-schema=true adds them automatically",
                    int(group.indices[0]),
                )
        return groups, bad

    return checked


def _needs_restart(known: pa.DataType, given: pa.DataType, new_types: NewTypes) -> bool:
    if new_types is NewTypes.IGNORE or known.equals(given):
        return False
    if pa.types.is_string(given):
        is_number = pa.types.is_integer(known) or pa.types.is_floating(known) or pa.types.is_boolean(known)
        return bool(new_types is NewTypes.OTHER and is_number)
    if pa.types.is_floating(known) and pa.types.is_floating(given):
        return bool(given.bit_width > known.bit_width)
    digits = _digits(known), _digits(given)
    if digits[0] is None or digits[1] is None:
        return False
    return bool(np.any(np.array(digits[1]) > np.array(digits[0])))


def _digits(kind: pa.DataType) -> tuple[int, int] | None:
    """Digits before and after the point; None: not an exact number."""
    if pa.types.is_integer(kind):
        return _INTEGER_DIGITS[kind.bit_width], 0
    return (kind.precision - kind.scale, kind.scale) if pa.types.is_decimal(kind) else None
