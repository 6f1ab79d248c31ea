"""Results of commands, as small Arrow tables."""

import fnmatch
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

DONE: Final = pa.table({})
"""Nothing to show."""


def texts_table(names: Sequence[str], rows: Iterable[Sequence[str | None]]) -> pa.Table:
    """Rows of texts as a table; None is null."""
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table([pa.array(column, pa.string()) for column in columns], names=list(names))


def like(names: Iterable[str], pattern: str | None) -> list[str]:
    """Names that match a pattern: ``*`` and ``%`` for any text, ``|`` between alternatives, ignoring case."""
    if pattern is None:
        return list(names)
    choices = [each.strip().lower().replace("%", "*") for each in pattern.split("|")]
    return [name for name in names if any(fnmatch.fnmatchcase(name.lower(), each) for each in choices)]
