"""Options that name columns: which of them use a column, and what they say when it gets another name."""

from collections.abc import Mapping
from typing import Final

from filestore.option_rules import FIELD_SUFFIXES

# Their value is a column, or columns with commas between them.
_COLUMN_LISTS: Final = frozenset(
    {"bucket-key", "sequence.field", "rowkind.field", "record-level.time-field", "watermark.column",
     "row-counts.index-key", "partial-update.remove-record-on-sequence-group"}
)  # fmt: skip
_INDEX_COLUMNS: Final = ".columns"


def uses_of(options: Mapping[str, str], column: str) -> list[str]:
    """Keys of the options that name a column, in their key or in their value."""
    return [key for key, text in options.items() if _renamed(key, text, column, "") != (key, text)]


def renamed_in_options(options: Mapping[str, str], column: str, name: str) -> dict[str, str]:
    """The options with another name for a column."""
    return dict(_renamed(key, text, column, name) for key, text in options.items())


def _renamed(key: str, text: str, column: str, name: str) -> tuple[str, str]:
    if key in _COLUMN_LISTS or (key.startswith("file-index.") and key.endswith(_INDEX_COLUMNS)):
        return key, _in_list(text, column, name)
    if key.startswith("file-index."):
        start, _, word = key.rpartition(".")
        kind, _, indexed = start.removeprefix("file-index.").partition(".")
        return (f"file-index.{kind}.{name}.{word}", text) if indexed == column else (key, text)
    for suffix in FIELD_SUFFIXES if key.startswith("fields.") else ():
        if key.endswith(f".{suffix}"):
            columns = key.removeprefix("fields.").removesuffix(f".{suffix}")
            value = _in_list(text, column, name) if suffix == "sequence-group" else text
            return f"fields.{_in_list(columns, column, name)}.{suffix}", value
    return key, text


def _in_list(text: str, column: str, name: str) -> str:
    parts = text.split(",")
    if column not in [part.strip() for part in parts]:
        return text
    return ",".join(name if part.strip() == column else part for part in parts)
