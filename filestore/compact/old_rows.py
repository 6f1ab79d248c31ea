"""The older rows of keys that a compaction brings up from level 0, in files that it leaves as they are.

Readers do not merge rows above level 0 (``has_whole_rows``). With deletion vectors all rows of a key there but one are
in a deletion vector: the rows found here get there when the compaction is committed. Where the older row counts for
the newer one (merge engines that fold rows, a row that is newer in spite of its file, a changelog with the old values),
it takes part in the merge, which writes the row that results. Only keys are read, of the row groups in their span.
Source: Paimon ``LookupLevels`` and ``BucketedDvMaintainer``.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from filestore.compact.task import CompactionTask
from filestore.datafile.row_positions import positions_of_keys
from filestore.index.deletion_vectors import NO_POSITIONS, Positions
from filestore.manifest.entries import DataFileMeta
from filestore.read.split_read import BucketFiles
from filestore.schema.merge_engine import newest_row_is_whole
from filestore.table_store import TableStore
from filestore.types.binary_row import encode_row
from lsm.keys.key_groups import one_chunk
from lsm.keys.keys import internal_value, key_at, key_order

_KEYS_AT_ONCE: Final = 4 << 20  # of new rows; more are looked up in several rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class OldRows:
    """Rows that are replaced by what a compaction writes elsewhere."""

    positions: Mapping[str, Positions] = field(default_factory=dict)  # by file name; none of them was deleted before
    merged: tuple[DataFileMeta, ...] = ()  # files of which only these rows take part in the merge, and their keys


def find_old_rows(
    store: TableStore, task: CompactionTask, deleted: Mapping[str, Positions], *, emits_changes: bool
) -> OldRows:
    """Look up the keys of level 0.

    Args:
        store: at the schema of the newest file.
        task: its level-0 files hold the new rows; ``lookup_files`` may hold older ones.
        deleted: rows that are in deletion vectors, by file name.
        emits_changes: the values of old rows are needed, whatever the merge engine.
    """
    new = [file for file in task.files if file.level == 0]
    if not new or not task.lookup_files:
        return OldRows()
    found: defaultdict[str, list[Positions]] = defaultdict(list)
    ends: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    ranges = [(file, store.sorted_file(file)) for file in task.lookup_files]
    for keys in _new_keys(store, task, new):
        columns = [one_chunk(column) for column in keys.columns]
        first, last = key_at(columns, 0), key_at(columns, len(keys) - 1)
        for file, keyed in ranges:
            if not keyed.overlaps(first, last):
                continue
            positions, there = positions_of_keys(
                store, task.partition, task.bucket, file, keys, deleted=deleted.get(file.file_name, NO_POSITIONS)
            )
            if len(positions):
                found[file.file_name].append(positions)
                ends[file.file_name] += [_values(there, 0), _values(there, len(there) - 1)]
    old = {name: np.unique(np.concatenate(parts)) for name, parts in found.items()}
    oldest_new = min(file.min_sequence_number for file in new)
    merged = [
        _narrowed(store, file, ends[file.file_name])
        for file in task.lookup_files
        if file.file_name in old and (emits_changes or not _is_just_older(store, file, oldest_new))
    ]
    return OldRows(positions=old, merged=tuple(merged))


def _is_just_older(store: TableStore, file: DataFileMeta, oldest_new: int) -> bool:
    """Whether new rows replace those of a file without a look at them."""
    return newest_row_is_whole(store.options) and file.max_sequence_number < oldest_new


def _new_keys(store: TableStore, task: CompactionTask, new: Sequence[DataFileMeta]) -> Iterator[pa.Table]:
    """The keys of files, each once and in order within a table; a table holds whole files."""
    files = BucketFiles(table=store, partition=task.partition, bucket=task.bucket, files=new)
    names = list(store.schema.trimmed_primary_keys)
    batches: list[pa.RecordBatch] = []
    count = 0
    for index, file in enumerate(new):
        batches += files.read(file, names, with_system=False)
        count += file.row_count
        is_last = index + 1 == len(new)
        if batches and (is_last or count + new[index + 1].row_count > _KEYS_AT_ONCE):
            rows = pa.Table.from_batches(batches).combine_chunks()
            order, starts = key_order([one_chunk(column) for column in rows.columns], presorted=True)
            yield rows.take(pa.array(order[starts]))
            batches, count = [], 0


def _values(keys: pa.Table, row: int) -> tuple[object, ...]:
    return tuple(internal_value(one_chunk(column)[row]) for column in keys.columns)


def _narrowed(store: TableStore, file: DataFileMeta, ends: Sequence[tuple[object, ...]]) -> DataFileMeta:
    """The file as if it had some keys only: it overlaps no more than it has to."""
    keys = sorted((encode_row(values, store.key_types) for values in ends), key=store.key_of)
    return replace(file, min_key=keys[0], max_key=keys[-1])
