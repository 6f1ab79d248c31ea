"""Key and column ranges of data files, decoded from their statistics."""

from collections.abc import Mapping, Sequence

from filestore.format.simple_stats import EMPTY_STATS, SimpleStats
from filestore.format.statistics import FLOAT_ROOTS, ColumnRange
from filestore.manifest.entries import DataFileMeta
from filestore.schema.file_fields import TRACKING_COLUMNS
from filestore.schema.table_schema import TableSchema
from filestore.types.binary_row import decode_row
from filestore.types.data_types import DataField
from lsm.errors import CorruptDataError


def ranges_of(meta: DataFileMeta, schema: TableSchema) -> Mapping[str, ColumnRange]:
    """Value ranges of a data file by column name of ``schema``, which must be the schema of the file.

    Columns without statistics are omitted, and the ids of rows: a file may have them for some of its rows only. Floats
    may hold NaN beyond their maximum: some writers ignore NaN.
    """
    ids = {field.name: field for field in TRACKING_COLUMNS}
    names = meta.write_cols if meta.value_stats_cols is None else meta.value_stats_cols
    if names is None:
        return _decode(meta.value_stats, [field for field in schema.fields if field.name not in ids], meta)
    found = _decode(meta.value_stats, [ids.get(name) or schema.field(name) for name in names], meta)
    return {name: each for name, each in found.items() if name not in ids}


def key_ranges_of(meta: DataFileMeta, schema: TableSchema) -> Mapping[str, ColumnRange]:
    """Ranges of the primary key columns of a data file, by column name; empty without statistics."""
    return _decode(meta.key_stats, list(schema.key_fields), meta)


def _decode(stats: SimpleStats, fields: Sequence[DataField], meta: DataFileMeta) -> Mapping[str, ColumnRange]:
    if not fields or stats.min_values == EMPTY_STATS.min_values:
        return {}
    types = [field.type for field in fields]
    minima, maxima = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    counts = stats.null_counts or (None,) * len(fields)
    if len(counts) != len(fields):
        raise CorruptDataError(
            f"statistics have a wrong number of null counts: file={meta.file_name} counts={len(counts)} "
            f"columns={len(fields)}"
        )
    return {
        field.name: ColumnRange(min=low, max=high, null_count=nulls, may_hold_nan=field.type.root in FLOAT_ROOTS)
        for field, low, high, nulls in zip(fields, minima, maxima, counts, strict=True)
    }
