"""The watermark of the rows that a table holds: how far in event time it is complete. FL-45."""

import datetime

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from engine.sql.context import SqlContext
from engine.sql.cursor import Cursor
from engine.sql.dialect import parse_expression, tokens_of
from engine.sql.places import Source
from engine.sql.statements import Watermark
from engine.table import Table
from filestore.datatypes import DataField, arrow_scalar
from filestore.schema_mapping import map_ranges
from filestore.snapshot_files import live_files
from filestore.statistics import ColumnRange, ranges_of

_UNITS = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "weeks")


def latest_watermark(context: SqlContext, table: Table, watermark: Watermark) -> str | None:
    """The expression of the watermark for the newest event time; None before the first row.

    Watermarks never go back, so the newest event time gives the highest. Forms like ``ts - INTERVAL '5' SECOND`` are
    worked out here; Spark does the others.
    """
    newest = _newest(table, watermark.column)
    if newest is None:
        return None
    source = Source.of(watermark.expression)
    tree = parse_expression(Cursor(source, tokens_of(source)))
    shifted = _shifted(tree, watermark.column, newest)
    if shifted is None:
        shifted = _by_spark(context, table.schema.field(watermark.column), watermark, newest)
    return None if shifted is None else shifted.isoformat(sep=" ", timespec="milliseconds")


def _newest(table: Table, column: str) -> datetime.datetime | None:
    """From the statistics of the files; only where these do not know are the rows read."""
    store, field = table.store, table.schema.field(column)
    newest = []
    for entry in live_files(store, table.latest_snapshot()):
        file, written = entry.file, store.schema_of(entry.file.schema_id)
        known = map_ranges(ranges_of(file, written), written, table.schema, file.row_count).get(column, ColumnRange())
        if known.max is not None:
            newest.append(known.max)
        elif known.null_count != file.row_count:
            return _newest_of_rows(table, column)
    return _moment(arrow_scalar(max(newest), field.type)) if newest else None


def _newest_of_rows(table: Table, column: str) -> datetime.datetime | None:
    found = [_moment(pc.max(rows.column(0))) for rows in table.read().to_batches(columns=[column])]
    return max((each for each in found if each is not None), default=None)


def _moment(value: pa.Scalar) -> datetime.datetime | None:
    moment: datetime.datetime | None = pc.cast(value, pa.timestamp("us"), safe=False).as_py()
    return moment


def _shifted(tree: exp.Expr, column: str, newest: datetime.datetime) -> datetime.datetime | None:
    """``column``, ``column - INTERVAL 'n' UNIT``; None for any other form."""
    if isinstance(tree, exp.Paren):
        return _shifted(tree.this, column, newest)
    if isinstance(tree, exp.Column):
        return newest if tree.name.lower() == column.lower() else None
    if not isinstance(tree, (exp.Sub, exp.Add)) or not isinstance(tree.expression, exp.Interval):
        return None
    base = _shifted(tree.this, column, newest)
    interval = tree.expression
    unit = f"{interval.unit.name.lower().rstrip('s')}s" if interval.unit is not None else ""
    amount = interval.this.name if interval.this is not None else ""
    if base is None or unit not in _UNITS or not amount.lstrip("-").isdecimal():
        return None
    step = datetime.timedelta(**{unit: int(amount)})
    return base - step if isinstance(tree, exp.Sub) else base + step


def _by_spark(
    context: SqlContext, field: DataField, watermark: Watermark, newest: datetime.datetime
) -> datetime.datetime | None:
    word = "TIMESTAMP_NTZ"
    name = "`" + field.name.replace("`", "``") + "`"
    text = f"SELECT CAST({watermark.expression} AS {word}) FROM (SELECT {word}'{newest.isoformat(sep=' ')}' AS {name})"
    found: datetime.datetime | None = context.spark.sql(text).collect()[0][0]
    return found
