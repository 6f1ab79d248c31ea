"""Results of commands, as small Arrow tables."""

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

DONE: Final = pa.table({})
"""Nothing to show."""


def texts_table(names: Sequence[str], rows: Iterable[Sequence[str | None]]) -> pa.Table:
    """Rows of texts as a table; None is null."""
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table([pa.array(column, pa.string()) for column in columns], names=list(names))
