"""The tail of an exact log over a bucket's files: its records are final rows, so the last one of a key wins.

Records were merged by the table's merge engine before they were written. So the rows of the files are merged among
themselves, and each result is replaced or deleted by the tail's record of the same key.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from filestore.manifest.entries import DataFileMeta
from filestore.predicate.evaluation import filter_mask
from filestore.predicate.predicate import Predicate, columns_of, on_columns_only
from filestore.read.split_read import BucketFiles, time_field
from filestore.scan.data_split import DataSplit
from filestore.scan.row_expiry import not_expired
from filestore.schema.merge_engine import columns_to_merge
from filestore.table_store import TableStore
from lsm.levels import SortedRun
from lsm.merge.merge import RunSource, merge_runs
from lsm.merge.merge_function import Deduplicate
from lsm.row_kind import SEQUENCE_NUMBER, SEQUENCE_NUMBER_FIELD, VALUE_KIND_FIELD

_BEFORE_THE_TAIL: Final = -1  # the tail's numbers begin at 0
_MERGING: Final = ("sequence.field", "merge-engine", "ignore-delete", "ignore-update-before", "rowkind.field")
_MERGING_PREFIXES: Final = ("fields.", "aggregation.", "partial-update.", "first-row.")


def without_merging(options: Mapping[str, str]) -> dict[str, str]:
    """Options of a table in which the newest row of a key wins, and a retract deletes it."""
    return {
        key: text
        for key, text in options.items()
        if not key.startswith((*_MERGING_PREFIXES, "sequence.field.")) and key not in _MERGING
    }


def replaced_rows(
    store: TableStore,
    split: DataSplit,
    tail: Collection[str],
    *,
    columns: Sequence[str] | None,
    filter: Predicate | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a bucket, with its tail applied.

    Args:
        store: a table with a key.
        split: files of the table and of the tail.
        tail: names of the tail's files; of level 0, as ``TableWrite`` writes them.
        columns: the columns to return, in this order; None is all.
        filter: rows for which it is not true are dropped.

    Yields:
        Non-empty batches in key order.
    """
    names = list(store.schema.column_names if columns is None else columns)
    keys = store.schema.trimmed_primary_keys
    needed = {*names, *keys, *(columns_of(filter) if filter else ()), *time_field(store, split)}
    ordered = [name for name in store.schema.column_names if name in needed]
    by_key = on_columns_only(filter, keys)
    own = [file for file in split.files if file.file_name not in tail]
    schema = pa.schema(
        [
            *(store.schema.arrow_field(name).with_nullable(True) for name in ordered),
            SEQUENCE_NUMBER_FIELD,
            VALUE_KIND_FIELD,
        ]
    )

    def files_of(files: Sequence[DataFileMeta]) -> BucketFiles:
        return BucketFiles(table=store, partition=split.partition, bucket=split.bucket, files=files)

    def before() -> Iterator[pa.RecordBatch]:
        files = files_of(own)
        to_merge = columns_to_merge(store.schema, store.options, ordered)
        in_order = [name for name in store.schema.column_names if name in to_merge]
        for runs in files.sections():
            for merged in files.merged(runs, in_order, drop_deletes=True, filter=by_key):
                numbers = pa.array(np.full(merged.num_rows, _BEFORE_THE_TAIL, np.int64))
                place = merged.schema.get_field_index(SEQUENCE_NUMBER)
                known = merged.set_column(place, SEQUENCE_NUMBER_FIELD, numbers).select(schema.names)
                yield from known.cast(schema).to_batches()

    def records(run: SortedRun) -> Iterator[pa.RecordBatch]:
        for each in run.files:
            for batch in files.read(by_name[each.file_name], ordered, with_system=True, filter=by_key):
                yield batch.cast(schema)

    by_name = {file.file_name: file for file in split.files if file.file_name in tail}
    files = files_of(list(by_name.values()))
    runs = [RunSource(min_key=run.min_key, open=partial(records, run)) for each in files.sections() for run in each]
    before_them = [RunSource(min_key=None, open=before)] if own else []
    merged_all = merge_runs([*before_them, *runs], key_names=keys, merge=Deduplicate(), drop_deletes=True)
    wanted = pa.schema([store.schema.arrow_field(name) for name in names])
    for merged in merged_all:
        for batch in merged.to_batches():
            live = not_expired(store, batch, split.expiry_moment_ms)
            rows = live if filter is None else live.filter(filter_mask(filter, live))
            if rows.num_rows:
                yield rows.select(names).cast(wanted) if names else rows.select([])
