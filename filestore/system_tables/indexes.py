"""The system table of file indexes: the column, file, location and size of each."""

from typing import Any, Final

import pyarrow as pa

from filestore.index.container import FIXED_BYTES, head_size, index_places
from filestore.index.file_index import index_file_of
from filestore.manifest.entries import DataFileMeta
from filestore.snapshot.snapshot import Snapshot
from filestore.system_tables.files import FileColumns
from filestore.system_tables.system_table import SystemTable
from filestore.table_store import TableStore
from filestore.types.data_types import parse_columns

_FILE_INDEXES: Final = parse_columns(
    "partition string?, bucket int32, file_path string, file_size_in_bytes int64, record_count int64, "
    "schema_id int64, column_name string, index_type string, storage_type string, "  # EMBEDDED: in the manifest; FILE
    "index_file_path string?, index_size_in_bytes int64, index_container_size_in_bytes int64, is_empty bool"
)


def _file_indexes(store: TableStore, snapshot: Snapshot | None) -> pa.Table:
    found = FileColumns.of(store, snapshot)
    places = zip(found.partitions.to_pylist(), found.buckets.to_pylist(), found.paths.to_pylist(), strict=True)
    rows: list[dict[str, Any]] = []
    for file, (partition, bucket, path) in zip(found.files, places, strict=True):
        head, size, index_path = _head(store, path, file)
        if head is None:
            continue
        for place in sorted(index_places(head, source=index_path or path), key=lambda each: (each.column, each.kind)):
            rows.append(
                {
                    "partition": partition,
                    "bucket": bucket,
                    "file_path": path,
                    "file_size_in_bytes": file.size_bytes,
                    "record_count": file.row_count,
                    "schema_id": file.schema_id,
                    "column_name": place.column,
                    "index_type": place.kind,
                    "storage_type": "EMBEDDED" if index_path is None else "FILE",
                    "index_file_path": index_path,
                    "index_size_in_bytes": place.size_bytes,
                    "index_container_size_in_bytes": size,
                    "is_empty": place.start is None,
                }
            )
    return pa.Table.from_pylist(rows, schema=_FILE_INDEXES)


def _head(store: TableStore, path: str, file: DataFileMeta) -> tuple[bytes | None, int, str | None]:
    """Header and size of a file's container, and the path of an index file, of which only the header is read."""
    if file.embedded_index is not None:
        return file.embedded_index, len(file.embedded_index), None
    name = index_file_of(file)
    if name is None:
        return None, 0, None
    index_path = f"{path.rpartition('/')[0]}/{name}"
    try:
        with store.io.open_input(index_path) as source:
            start = source.read(FIXED_BYTES)
            head = start + source.read(max(head_size(start, source=index_path) - FIXED_BYTES, 0))
            return head, int(source.size()), index_path
    except FileNotFoundError:
        return None, 0, None  # readers ignore a missing index, too


FILE_INDEXES: Final = SystemTable(
    name="file_indexes",
    doc="Every index of a live data file.",
    schema=_FILE_INDEXES,
    rows=_file_indexes,
    is_of_snapshot=True,
)
