"""The watermark of a batch: how far in event time its rows are, for the snapshot that makes them visible.

It comes from the statistics of the files that were written, so it costs nothing; and only for watermarks of the form
``ts`` or ``ts - INTERVAL 'n' UNIT``, which can be worked out without Spark.
"""

import datetime as dt
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.file_ranges import ranges_of
from filestore.table_store import TableStore
from filestore.types.data_types import arrow_scalar

if TYPE_CHECKING:
    from sqlglot import exp

_UNITS: Final = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "weeks")
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  (event times are local, as if they were UTC)


def watermark_of(store: TableStore, messages: Iterable[CommitMessage]) -> int | None:
    """The watermark after a batch; None: the table has none, or it is not known.

    Args:
        store: with ``watermark.column`` and ``watermark.expression``.
        messages: of the batch.

    Returns:
        Epoch milliseconds.
    """
    column, text = store.options.watermark_column, store.options.watermark_expression
    if column is None or text is None:
        return None
    delay = fixed_delay(text, column)
    known = [ranges_of(file, store.schema).get(column) for message in messages for file in message.new_files]
    highest = max((each.max for each in known if each is not None and each.max is not None), default=None)
    if delay is None or highest is None:
        return None
    moment = local_moment(arrow_scalar(highest, store.schema.field(column).type))
    return None if moment is None else round((moment - delay - _EPOCH) / dt.timedelta(milliseconds=1))


def local_moment(value: pa.Scalar) -> dt.datetime | None:
    """A timestamp to the microsecond, without a zone."""
    moment: dt.datetime | None = pc.cast(value, pa.timestamp("us"), safe=False).as_py()
    return moment


@lru_cache(64)
def fixed_delay(text: str, column: str) -> dt.timedelta | None:
    """How far a watermark is behind its column: of ``column - INTERVAL 'n' UNIT`` and the like; None: of others."""
    from sqlglot import ParseError, parse_one  # slow to import

    try:
        return _delay(parse_one(text, read="spark"), column)
    except ParseError:
        return None


def _delay(tree: "exp.Expr", column: str) -> dt.timedelta | None:
    from sqlglot import exp

    if isinstance(tree, exp.Paren):
        return _delay(tree.this, column)
    if isinstance(tree, exp.Column):
        return dt.timedelta() if tree.name.lower() == column.lower() else None
    if not isinstance(tree, (exp.Sub, exp.Add)) or not isinstance(tree.expression, exp.Interval):
        return None
    base = _delay(tree.this, column)
    interval = tree.expression
    unit = f"{interval.unit.name.lower().rstrip('s')}s" if interval.unit is not None else ""
    amount = interval.this.name if interval.this is not None else ""
    if base is None or unit not in _UNITS or not amount.lstrip("-").isdecimal():
        return None
    step = dt.timedelta(**{unit: int(amount)})
    return base + step if isinstance(tree, exp.Sub) else base - step
