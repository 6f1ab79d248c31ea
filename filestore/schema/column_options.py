"""Options that name columns, in their keys or values: which do, and what they are when columns have other names."""

from collections.abc import Mapping, Sequence
from typing import Final

from filestore.options.table.columns import FieldOptions
from filestore.types.data_types import DataField

Names = Mapping[str, str | None]
"""Other names by name; None: there is no such column. Other columns keep their names."""

COLUMN_LISTS: Final = frozenset(
    {"bucket-key", "sequence.field", "rowkind.field", "record-level.time-field", "watermark.column",
     "row-counts.index-key", "partial-update.remove-record-on-sequence-group"}
)  # fmt: skip
"""Options with a column or a comma-separated list of columns as value."""
_INDEX_COLUMNS: Final = ".columns"


def uses_of(options: Mapping[str, str], column: str) -> list[str]:
    """Keys of the options that refer to a column in their key or value."""
    return [key for key, text in options.items() if _renamed(key, text, {column: ""}) != (key, text)]


def renamed_in_options(options: Mapping[str, str], names: Names) -> dict[str, str]:
    """The options with other names of columns; without those that are only about columns that there are not."""
    found = (_renamed(key, text, names) for key, text in options.items())
    return dict(each for each in found if each is not None)


def options_at(options: Mapping[str, str], now: Sequence[DataField], then: Sequence[DataField]) -> Mapping[str, str]:
    """Options about the columns of today as options about the same columns of another version of the schema.

    Args:
        options: of a table.
        now: its columns.
        then: columns of the other version, known by their ids.

    Returns:
        the very same options where that changes none.
    """
    known = {field.id: field.name for field in then}
    names: Names = {field.name: known.get(field.id) for field in now if known.get(field.id) != field.name}
    found = renamed_in_options(options, names) if names else options
    return options if found == options else found


def _renamed(key: str, text: str, names: Names) -> tuple[str, str] | None:
    if key in COLUMN_LISTS or (key.startswith("file-index.") and key.endswith(_INDEX_COLUMNS)):
        value = _in_list(text, names)
        return None if value is None else (key, value)
    if key.startswith("file-index."):
        start, _, word = key.rpartition(".")
        kind, _, column = start.removeprefix("file-index.").partition(".")
        if column not in names:
            return key, text
        name = names[column]
        return None if name is None else (f"file-index.{kind}.{name}.{word}", text)
    for suffix in FieldOptions.declared if key.startswith("fields.") else ():
        if key.endswith(f".{suffix}"):
            columns = _in_list(key.removeprefix("fields.").removesuffix(f".{suffix}"), names)
            value = _in_list(text, names) if suffix == "sequence-group" else text
            return None if columns is None or value is None else (f"fields.{columns}.{suffix}", value)
    return key, text


def _in_list(text: str, names: Names) -> str | None:
    parts = text.split(",")
    if names.keys().isdisjoint(part.strip() for part in parts):
        return text
    renamed = (names.get(part.strip(), part) for part in parts)
    return ",".join(part for part in renamed if part is not None) or None
