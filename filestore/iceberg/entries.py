"""Data files and deletion vectors as entries of Iceberg's manifests: plain records, as Avro has them.

Source: Iceberg spec "Manifests"; Paimon IcebergDataFileMeta.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pyiceberg.conversions import to_bytes
from pyiceberg.types import PrimitiveType

from filestore.iceberg.schema import IcebergColumns, iceberg_columns, timestamp_scale
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.lists import DeletionVectorRange
from filestore.schema.table_schema import TableSchema
from filestore.types.binary_row import decode_row
from filestore.types.data_types import UNORDERED_ROOTS
from lsm.errors import InvalidInputError

IcebergRecord = dict[str, Any]
STATUS_EXISTING: Final = 0
STATUS_ADDED: Final = 1
STATUS_DELETED: Final = 2
DATA: Final = 0
DELETES: Final = 1
_PARQUET: Final = ".parquet"
_BUCKET: Final = re.compile(r"/bucket-(-?\d+)/[^/]*$")
_NO_BUCKET: Final = -1


class FileKey(NamedTuple):
    """Names one data file, or one deletion vector in an index file."""

    path: str
    offset: int | None = None
    data_path: str | None = None


class CommitId(NamedTuple):
    """Names one of Iceberg's snapshots, and where it is in the order of changes."""

    snapshot_id: int
    sequence_number: int


def key_of(file: Mapping[str, Any]) -> FileKey:
    """The name of the file of an entry."""
    return FileKey(file["file_path"], file.get("content_offset"), file.get("referenced_data_file"))


def bucket_of(file: Mapping[str, Any]) -> int:
    """The bucket of a data file, or of the data file of a vector, by its path; -1 when that says none."""
    found = _BUCKET.search(file.get("referenced_data_file") or file["file_path"])
    return int(found[1]) if found else _NO_BUCKET


def data_file(
    path: str, file: DataFileMeta, partition: Mapping[str, Any], schema: TableSchema, version: int
) -> IcebergRecord:
    """The record of a data file.

    Args:
        path: its location.
        file: its description.
        partition: Iceberg's values by the names that the Avro schema has.
        schema: the stored schema that it was written with.
        version: of Iceberg's format.

    Raises:
        InvalidInputError: Iceberg readers would not find its columns, or would see its deleted rows.
    """
    if not file.file_name.endswith(_PARQUET):
        raise InvalidInputError(f"only Parquet files have ids of columns: file={path} fix='compact the table'")
    if file.delete_row_count:
        raise InvalidInputError(f"a file holds deleted rows: file={path} rows={file.delete_row_count}")
    columns = iceberg_columns(schema, version)
    low, high, nulls = _bounds(file, schema, columns)
    record = _record(DATA, path, "parquet", partition, file.row_count, file.size_bytes)
    record |= {"lower_bounds": _pairs(low), "upper_bounds": _pairs(high), "null_value_counts": _pairs(nulls)}
    return record | {"sort_order_id": columns.order_json["order-id"] or None}


def vector_file(
    path: str, size_bytes: int, vector: DeletionVectorRange, data: str, partition: IcebergRecord
) -> IcebergRecord:
    """The record of the deletion vector of one data file, which is a range of an index file."""
    if vector.cardinality is None:
        raise InvalidInputError(f"a deletion vector does not say how many rows it has: file={path}")
    record = _record(DELETES, path, "puffin", partition, vector.cardinality, size_bytes)
    return record | {
        "referenced_data_file": data,
        "content_offset": vector.offset,
        "content_size_in_bytes": vector.length,
    }


def added(file: IcebergRecord, at: CommitId) -> IcebergRecord:
    """The entry of a new file."""
    return {
        "status": STATUS_ADDED,
        "snapshot_id": at.snapshot_id,
        "sequence_number": at.sequence_number,
        "file_sequence_number": at.sequence_number,
        "data_file": file,
    }


def kept(entry: IcebergRecord) -> IcebergRecord:
    """The entry of a file that was there before."""
    return {**entry, "status": STATUS_EXISTING}


def removed(entry: IcebergRecord, snapshot_id: int) -> IcebergRecord:
    """The entry of a file that a snapshot removed."""
    return {**entry, "status": STATUS_DELETED, "snapshot_id": snapshot_id}


def _record(
    content: int, path: str, kind: str, partition: Mapping[str, Any], rows: int, size_bytes: int
) -> IcebergRecord:
    return {
        "content": content,
        "file_path": path,
        "file_format": kind,
        "partition": dict(partition),
        "record_count": rows,
        "file_size_in_bytes": size_bytes,
    }


def _bounds(
    file: DataFileMeta, schema: TableSchema, columns: IcebergColumns
) -> tuple[dict[int, bytes], dict[int, bytes], dict[int, int]]:
    """Lower and upper bounds and null counts by column id, of the columns whose statistics were kept."""
    stats = file.value_stats
    by_name = {field.name: field for field in schema.fields}
    names = [*by_name] if file.value_stats_cols is None else file.value_stats_cols
    fields = [by_name[name] for name in names if name in by_name]
    low: dict[int, bytes] = {}
    high: dict[int, bytes] = {}
    if len(fields) != len(names) or not fields or stats.min_values[:4] == b"\0\0\0\0":
        return low, high, {}
    types = [field.type for field in fields]
    nulls = {
        field.id: count for field, count in zip(fields, stats.null_counts or (), strict=False) if count is not None
    }
    lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    for field, least, most in zip(fields, lows, highs, strict=True):
        if least is None or most is None or field.type.root in UNORDERED_ROOTS or least != least or most != most:
            continue  # unknown, or not a number
        kind = columns.schema.find_type(field.id)
        assert isinstance(kind, PrimitiveType)
        low[field.id] = to_bytes(kind, iceberg_value(least, field.type))
        high[field.id] = to_bytes(kind, iceberg_value(most, field.type))
    return low, high, nulls


def iceberg_value(value: Any, data_type: Any) -> Any:
    """An internal value in Iceberg's unit."""
    scale = timestamp_scale(data_type)
    return value if scale == 1 or value is None else value * scale


def _pairs(values: Mapping[int, Any]) -> list[IcebergRecord] | None:
    return [{"key": key, "value": value} for key, value in sorted(values.items())] or None
