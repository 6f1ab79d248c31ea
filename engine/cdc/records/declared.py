"""Schema parts for records that have none, from the columns that the job's owner declares.

A declared type decides how values are written: ``TIMESTAMP(3)`` counts milliseconds, ``TIMESTAMP(6)`` microseconds, as
Debezium does by default. What a wrong declaration would misread without a trace is refused: moments near 1970, and
decimals and bytes unless it is said how the connector writes them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.cdc.records.routing import RowPart, part_digest
from filestore.types.data_types import BYTES_ROOTS, TEXT_ROOTS, DataType
from logstore.format.source.column_values import CONNECT_DECIMAL, UNIT_OF_TIMESTAMP
from lsm.errors import InvalidInputError

DECIMALS: Final = "decimal.handling.mode"
BINARIES: Final = "binary.handling.mode"
_PLAIN: Final[Mapping[str, str]] = {
    "BOOLEAN": "boolean",
    "TINYINT": "int8",
    "SMALLINT": "int16",
    "INT": "int32",
    "BIGINT": "int64",
    "FLOAT": "float",
    "DOUBLE": "double",
    **dict.fromkeys(TEXT_ROOTS, "string"),
}
_NAMED: Final[Mapping[str, tuple[str, str]]] = {
    "DATE": ("int32", "io.debezium.time.Date"),
    "TIMESTAMP_LTZ": ("string", "io.debezium.time.ZonedTimestamp"),
}


def declared_part(
    table: str, columns: Sequence[tuple[str, DataType]], key: Sequence[str], connector: Mapping[str, str]
) -> RowPart:
    """The part of a table's records.

    Args:
        table: its name, for messages.
        columns: name and type, in the table's order.
        key: names of the key's columns; () without a key.
        connector: settings of the connector that decide how values are written.

    Raises:
        InvalidInputError: a key column is not declared, or a type cannot be known without a schema part.
    """
    fields = [_field(table, name, kind, connector) for name, kind in columns]
    named = {str(each["field"]): each for each in fields}
    missing = [name for name in key if name not in named]
    if missing:
        raise InvalidInputError(
            f"a key column is not declared: table={table} column={missing[0]} columns={','.join(named)} "
            "fix='write it into columns'"
        )
    row = {"type": "struct", "fields": fields, "optional": True, "field": "after"}
    key_part = {"type": "struct", "fields": [named[name] for name in key]} if key else None
    return RowPart(digest=part_digest(row, key_part), row=row, key=key_part, is_declared=True)


def without_guesses(part: Mapping[str, Any]) -> dict[str, Any]:
    """A declared part without the columns whose unit is a guess, so that the reader refuses what it makes wrong."""
    return {**part, "fields": [each for each in part["fields"] if each.get("name") not in UNIT_OF_TIMESTAMP]}


def _field(table: str, name: str, kind: DataType, connector: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"optional": True, "field": name}
    if kind.root in _PLAIN:
        return {"type": _PLAIN[kind.root], **found}
    if kind.root in _NAMED:
        plain, meaning = _NAMED[kind.root]
        return {"type": plain, "name": meaning, **found}
    if kind.root == "TIMESTAMP":
        is_fine = (kind.precision or 0) > 3
        return {"type": "int64", "name": f"io.debezium.time.{'Micro' if is_fine else ''}Timestamp", **found}
    where = f"table={table} column={name} type={kind}"
    if kind.root == "DECIMAL":
        _check_mode(where, connector, DECIMALS, "precise", "declare STRING or DOUBLE")
        digits = {"scale": str(kind.scale or 0), "connect.decimal.precision": str(kind.precision)}
        return {"type": "bytes", "name": CONNECT_DECIMAL, "parameters": digits, **found}
    if kind.root in BYTES_ROOTS:
        given = connector.get(BINARIES)
        _check_mode(where, connector, BINARIES, "base64" if given == "base64" else "bytes", "declare STRING")
        return {"type": "bytes", **found}
    raise InvalidInputError(
        f"no such column without schema parts: {where} fix='set schemas.enable=true at the connector, or use Avro'"
    )


def _check_mode(where: str, connector: Mapping[str, str], setting: str, wanted: str, other: str) -> None:
    given = connector.get(setting)
    if given != wanted:
        raise InvalidInputError(
            f"how the connector writes the values must be said: {where} source.connector.{setting}={given} "
            f"fix='write {setting}: {wanted} into source.connector, if the connector has that, else {other}'"
        )
