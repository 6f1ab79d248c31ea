"""The watermark of a table's rows: how far it is complete in event time."""

import datetime

import pyarrow.compute as pc
from pyspark.sql import functions as F

from engine.dialect.ddl.table_parts import WATERMARK_EXPRESSION
from engine.dialect.grammar.statements import Watermark
from engine.dialect.scope.context import SqlContext
from engine.table import Table
from engine.write.event_time import fixed_delay, local_moment
from filestore.datafile.schema_mapping import map_ranges
from filestore.format.statistics import ColumnRange
from filestore.manifest.file_ranges import ranges_of
from filestore.options.parsing import not_valid
from filestore.options.stored_expressions import check_expression
from filestore.scan.snapshot_files import live_files
from filestore.types.data_types import DataField, arrow_scalar


def latest_watermark(context: SqlContext, table: Table, watermark: Watermark) -> str | None:
    """The value of the watermark expression for the newest event time; None before the first row.

    Watermarks never decrease, so the newest event time gives the highest. Forms like ``ts - INTERVAL '5' SECOND`` are
    computed here, others by Spark.
    """
    newest = _newest(table, watermark.column)
    if newest is None:
        return None
    delay = fixed_delay(watermark.expression, watermark.column)
    shifted = None if delay is None else newest - delay
    if shifted is None:
        shifted = _by_spark(context, table.schema.field(watermark.column), watermark, newest)
    return None if shifted is None else shifted.isoformat(sep=" ", timespec="milliseconds")


def _newest(table: Table, column: str) -> datetime.datetime | None:
    """From the statistics of files; rows are read only where statistics are missing."""
    store, field = table.store, table.schema.field(column)
    newest = []
    for entry in live_files(store, table.latest_snapshot()):
        file, written = entry.file, store.schema_of(entry.file.schema_id)
        known = map_ranges(ranges_of(file, written), written, table.schema, file.row_count).get(column, ColumnRange())
        if known.max is not None:
            newest.append(known.max)
        elif known.null_count != file.row_count:
            return _newest_of_rows(table, column)
    return local_moment(arrow_scalar(max(newest), field.type)) if newest else None


def _newest_of_rows(table: Table, column: str) -> datetime.datetime | None:
    found = [local_moment(pc.max(rows.column(0))) for rows in table.read().to_batches(columns=[column])]
    return max((each for each in found if each is not None), default=None)


def _by_spark(
    context: SqlContext, field: DataField, watermark: Watermark, newest: datetime.datetime
) -> datetime.datetime | None:
    try:
        check_expression(watermark.expression)
    except ValueError as error:
        raise not_valid(WATERMARK_EXPRESSION, watermark.expression, error) from error
    word = "TIMESTAMP_NTZ"
    row = context.spark.range(1).select(F.lit(newest.isoformat(sep=" ")).cast(word).alias(field.name))
    found: datetime.datetime | None = row.select(F.expr(watermark.expression).cast(word)).collect()[0][0]
    return found
