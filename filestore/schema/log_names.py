"""Names of columns in the records of a log, which stay as they were written.

A record names its columns. So a column keeps all names that it ever had, no other column ever gets one of them, and a
record is read by whichever of them it has.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import TEXT_ROOTS, DataField, DataType, walk
from lsm.errors import InvalidInputError

_AVRO_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def other_names(fields: Sequence[DataField], versions: Sequence[TableSchema]) -> Mapping[str, tuple[str, ...]]:
    """Former names of columns in versions of the schema, by present name; only of renamed columns."""
    called = {field.id: {field.name} for field in fields}
    for each in chain.from_iterable(version.fields for version in versions):
        if each.id in called:
            called[each.id].add(each.name)
    now = {field.name for field in fields}
    return {field.name: tuple(sorted(others)) for field in fields if (others := called[field.id] - now)}


def check_log_names(before: TableSchema, after: TableSchema, history: Sequence[TableSchema]) -> None:
    """Refuse names that would give old values to another column, or that records would not be found by.

    Args:
        before: the current version.
        after: the wanted one.
        history: those before the current one.

    Raises:
        InvalidInputError: names the column.
    """
    owners: dict[tuple[tuple[object, ...], str], int] = {}
    for version in (*history, before):
        owners.update({(parent, field.name): field.id for parent, field in _with_parents(version.fields)})
    names = {field.id: (parent, field.name) for parent, field in _with_parents(before.fields)}
    for parent, field in _with_parents(after.fields):
        if owners.get((parent, field.name), field.id) != field.id:
            raise InvalidInputError(
                f"the name was another column's, renamed or dropped: column={field.name} "
                "reason='records in the log name their columns: old ones would give their values to the new column' "
                "fix='choose a name that was never used, or create a new table and copy'"
            )
        _, was = names.get(field.id, (parent, field.name))
        if was != field.name and (parent or was in before.primary_keys):
            raise InvalidInputError(
                f"records in the log would not be understood: column={was} wanted={field.name} "
                "reason='key columns and fields inside a column keep their names while the table has a log'"
            )


def check_avro_types(fields: Sequence[DataField]) -> None:
    """Refuse columns that records in Avro cannot have, at any depth. Raises: InvalidInputError naming the column."""
    for _, field in _with_parents(fields):
        if _AVRO_NAME.fullmatch(field.name) is None:
            raise InvalidInputError(
                f"Avro allows no such name: column={field.name} log.format=avro "
                "fix='use letters, digits and underscores, no digit first; or log.format=debezium-json'"
            )
        for part in walk(field.type):
            key = part.element if part.root == "MULTISET" else part.key
            if key is not None and key.root not in TEXT_ROOTS:
                raise InvalidInputError(
                    f"keys of a map in Avro are texts: column={field.name} type={part} "
                    "fix='use MAP<STRING, ...>, or log.format=debezium-json'"
                )


def _with_parents(
    fields: Sequence[DataField], parent: tuple[object, ...] = ()
) -> Iterator[tuple[tuple[object, ...], DataField]]:
    """Every field at any depth, with what it is inside of: ids of fields, and the parts of arrays and maps."""
    for field in fields:
        yield parent, field
        yield from _inside(field.type, (*parent, field.id))


def _inside(data_type: DataType, parent: tuple[object, ...]) -> Iterator[tuple[tuple[object, ...], DataField]]:
    yield from _with_parents(data_type.fields, parent)
    for part, inner in (("element", data_type.element), ("key", data_type.key), ("value", data_type.value)):
        if inner is not None:
            yield from _inside(inner, (*parent, part))
