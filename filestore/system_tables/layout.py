"""System tables of the physical layout: partitions, buckets, manifests."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from filestore.compact.strategy import compaction_strategy
from filestore.manifest.lists import ManifestFileMeta
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.scan.snapshot_files import manifests_of
from filestore.snapshot.snapshot import Snapshot
from filestore.system_tables.files import FileColumns, partition_texts
from filestore.system_tables.json_columns import json_objects
from filestore.system_tables.system_table import LOCAL_TIME, SystemTable
from filestore.table_store import TableStore
from filestore.types.binary_columns import decode_columns
from filestore.types.binary_row import ARITY_BYTES
from filestore.types.data_types import parse_columns
from lsm.compaction.universal import UniversalCompaction

_SUMS: Final = (
    pa.field("record_count", pa.int64(), nullable=False),
    pa.field("file_size_in_bytes", pa.int64(), nullable=False),
    pa.field("file_count", pa.int64(), nullable=False),
    pa.field("last_update_time", LOCAL_TIME),
)
_PARTITIONS: Final = pa.schema(
    [
        pa.field("partition", pa.string()),
        *_SUMS,
        *parse_columns("created_at timestamp[ms]?, total_buckets int32?, deleted_record_count int64"),
    ]
)
_BUCKETS: Final = pa.schema(
    [
        *parse_columns("partition string?, bucket int32"),
        *_SUMS,
        *parse_columns("deleted_record_count int64, l0_files int64, sorted_runs int64, compaction_debt int64"),
    ]
)


def _partitions(store: TableStore, snapshot: Snapshot | None) -> pa.Table:
    found = FileColumns.of(store, snapshot)
    sums = _summed(found, ["partition"])
    totals = {key.partition: found.live.total_buckets(key) for key in found.live.buckets()}
    texts = partition_texts(store, set(totals))
    by_text = {texts[partition]: total for partition, total in totals.items()}
    return sums.append_column(
        "total_buckets", pa.array([by_text[each] for each in sums.column("partition").to_pylist()], pa.int32())
    ).select(_PARTITIONS.names)


def _buckets(store: TableStore, snapshot: Snapshot | None) -> pa.Table:
    found = FileColumns.of(store, snapshot)
    sums = _summed(found, ["partition", "bucket"])
    # level 0 has one run per file, a higher level is one run
    runs = pc.add(sums.column("l0_files"), sums.column("higher_levels"))
    if not store.has_key:
        runs = pc.min_element_wise(sums.column("file_count"), 1)
    sums = sums.append_column("sorted_runs", runs.cast(pa.int64()))
    texts = partition_texts(store, {key.partition for key in found.live.buckets()})
    debts = {(texts[key.partition], key.bucket): debt for key, debt in compaction_debts(store, found.live).items()}
    places = zip(sums.column("partition").to_pylist(), sums.column("bucket").to_pylist(), strict=True)
    return sums.append_column(
        "compaction_debt", pa.array([debts.get(place, 0) for place in places], pa.int64())
    ).select(_BUCKETS.names)


def compaction_debts(
    store: TableStore, live: LiveFiles, keys: Iterable[BucketKey] | None = None
) -> Mapping[BucketKey, int]:
    """Input bytes of the next compaction of each bucket (of ``keys``, if given); omits buckets that need none."""
    if not store.has_key:
        return {}
    options = store.options
    strategy = compaction_strategy(options, local_ms=store.clock.local_ms())
    waits_for_runs = isinstance(strategy, UniversalCompaction) and not strategy.moves_level0_at_once
    least = options.run_count_trigger if waits_for_runs else 1
    debts = {}
    for key in live.buckets() if keys is None else keys:
        if live.file_count(key) >= least:  # runs <= files: avoids decoding keys of small buckets
            unit = strategy.pick(live.levels(key))
            if unit is not None:
                debts[key] = unit.size_bytes
    return debts


def _summed(found: FileColumns, by: list[str]) -> pa.Table:
    """Sums over files, ordered by partition and bucket as in ``found``."""
    column = found.column
    levels = column(lambda file: file.level, pa.int32())
    made = column(lambda file: file.creation_time_ms, LOCAL_TIME)
    files = pa.table(
        {
            "partition": found.partitions,
            "bucket": found.buckets,
            "record_count": column(lambda file: file.row_count, pa.int64()),
            "file_size_in_bytes": column(lambda file: file.size_bytes, pa.int64()),
            "deleted_record_count": column(lambda file: file.delete_row_count or 0, pa.int64()),
            "file_count": pa.repeat(pa.scalar(1, pa.int64()), len(found.files)),
            "l0_files": pc.equal(levels, 0).cast(pa.int64()),
            "higher_level": pc.if_else(pc.greater(levels, 0), levels, pa.scalar(None, pa.int32())),
            "last_update_time": made,
            "created_at": made,
        }
    )
    added = ["record_count", "file_size_in_bytes", "deleted_record_count", "file_count", "l0_files"]
    grouped = files.group_by(by, use_threads=False).aggregate(
        [
            *((name, "sum") for name in added),
            ("higher_level", "count_distinct"),
            ("last_update_time", "max"),
            ("created_at", "min"),
        ]
    )
    names = {
        **{f"{name}_sum": name for name in added},
        "higher_level_count_distinct": "higher_levels",
        "last_update_time_max": "last_update_time",
        "created_at_min": "created_at",
    }
    return grouped.rename_columns([names.get(name, name) for name in grouped.column_names])


_MANIFESTS: Final = parse_columns(
    "file_name string, file_size int64, num_added_files int64, num_deleted_files int64, schema_id int64, "
    "min_partition_stats string?, max_partition_stats string?, min_row_id int64?, max_row_id int64?, "
    "min_bucket int32?, max_bucket int32?, min_level int32?, max_level int32?"
)


def _manifests(store: TableStore, snapshot: Snapshot | None) -> pa.Table:
    found = [] if snapshot is None else manifests_of(store, snapshot)
    attributes = {
        "file_name": "file_name",
        "file_size": "size_bytes",
        "num_added_files": "added_count",
        "num_deleted_files": "deleted_count",
        **{name: name for name in _MANIFESTS.names if hasattr(ManifestFileMeta, name)},
    }
    columns: dict[str, Any] = {
        name: pa.array([getattr(each, attribute) for each in found], _MANIFESTS.field(name).type)
        for name, attribute in attributes.items()
    }
    columns["min_partition_stats"] = _bounds(store, [each.partition_stats.min_values for each in found])
    columns["max_partition_stats"] = _bounds(store, [each.partition_stats.max_values for each in found])
    return pa.table({name: columns[name] for name in _MANIFESTS.names})


def _bounds(store: TableStore, rows: list[bytes]) -> pa.Array:
    fields = store.schema.partition_fields
    if not fields or any(int.from_bytes(row[:ARITY_BYTES], "big") != len(fields) for row in rows):
        return pa.nulls(len(rows), pa.string())
    arrays = decode_columns(rows, store.partition_types)
    return json_objects({field.name: each for field, each in zip(fields, arrays, strict=True)})


PARTITIONS: Final = SystemTable(
    name="partitions", doc="Rows and bytes by partition.", schema=_PARTITIONS, rows=_partitions, is_of_snapshot=True
)
BUCKETS: Final = SystemTable(
    name="buckets",
    doc="Rows, bytes, runs and compaction debt by bucket.",
    schema=_BUCKETS,
    rows=_buckets,
    is_of_snapshot=True,
)
MANIFESTS: Final = SystemTable(
    name="manifests", doc="The manifests of a snapshot.", schema=_MANIFESTS, rows=_manifests, is_of_snapshot=True
)
