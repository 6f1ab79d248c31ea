"""The tail of a bucket's log merged over the bucket's files: the task side of a union read.

The records become level-0 files in a temporary directory, written as a writer of the table would: with higher sequence
numbers than the rows of the files, each key once per file, in at most ``write-buffer-size`` of memory. Then the table's
and the temporary files are read together as one split, so merge engines, row kinds and ``sequence.field`` apply.

The records of an exact log were merged by the table's merge engine before they were written. So the rows of the files
are merged among themselves, and the tail's last record of a key replaces or deletes the merged row of that key.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from engine.log.log_rows import log_rows
from engine.log.table_log import TableLog
from engine.runtime.scratch import scratch_directory
from filestore.io.file_io import FileIO, LocalFileIO
from filestore.layout.paths import TablePaths
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.predicate.evaluation import filter_mask
from filestore.predicate.predicate import Predicate, columns_of, on_columns_only
from filestore.read.split_read import BucketFiles, read_split, time_field
from filestore.scan.data_split import DataSplit
from filestore.scan.live_files import NO_SEQUENCE_NUMBER, BucketKey
from filestore.scan.row_expiry import not_expired
from filestore.schema.merge_engine import check_retracts, columns_to_merge, sequence_groups
from filestore.snapshot.snapshot import EMPTY_TABLE
from filestore.table_store import TableStore
from filestore.table_view import TableView
from filestore.write.table_write import TableWrite
from logstore.offsets import LogRange
from lsm.errors import CorruptDataError, InvalidInputError
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
            *(field.with_nullable(True) for field in store.schema.arrow_schema_of(ordered)),
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
    wanted = store.schema.arrow_schema_of(names)
    for merged in merged_all:
        for batch in merged.to_batches():
            live = not_expired(store, batch, split.expiry_moment_ms)
            rows = live if filter is None else live.filter(filter_mask(filter, live))
            if rows.num_rows:
                yield rows.select(names).cast(wanted) if names else rows.select([])


_SCRATCH_OPTIONS: Final = {
    "changelog-producer": "none",
    "file.format": "parquet",
    "file.format.per.level": "0:parquet",
    "file.compression": "lz4",
    "file.compression.per.level": "0:lz4",
    "metadata.stats-mode": "none",
    "metadata.stats-mode.per.level": "0:none",
    "file-index.bloom-filter.columns": "",
    "data-file.external-paths.strategy": "none",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TailSplit:
    """A range of a bucket's log, and the bucket's files in all partitions. Picklable."""

    log: TableLog
    log_range: LogRange
    splits: tuple[DataSplit, ...]  # pruned by key at most: a file without a matching row may hide one of the log
    expiry_moment_ms: int | None = None  # rows that are too old then are left out; None: none are


def refusal(table: TableView, log: TableLog | None) -> str | None:
    """Why the log of a table cannot be merged over its files; None when it can."""
    if log is None:
        return "reason='the table has no log'"
    options = table.options
    if not table.schema.primary_keys or log.is_exact or options.merge_engine == "first-row":
        return None
    is_folded = options.merge_engine != "deduplicate"
    if log.codec.deletes_have_key_only and (is_folded or options.sequence_fields):
        return (
            f"log.format={log.codec.log_format} "
            "reason='its deletes have no values, which the table needs to order or merge them'"
        )
    if is_folded and not log.keeps_update_before and _takes_old_values(table):
        return (
            f"merge-engine={options.merge_engine} log.changelog-mode=upsert "
            "reason='the old values of updates (-U) are not in the log'"
        )
    return None


def read_tail_split(
    table: TableView, split: TailSplit, *, columns: Sequence[str] | None, filter: Predicate | None
) -> Iterator[pa.RecordBatch]:
    """The rows of a bucket, in all partitions, at the end of the range.

    Args:
        table: opened with the schema of the rows.
        split: of a plan of this table; of a filtered plan only together with that filter.
        columns: to return, in this order; None is all.
        filter: rows for which it is not true are left out.

    Raises:
        CorruptDataError: records are lost or cannot be decoded.
        UnavailableError: the brokers do not answer.
    """
    places: defaultdict[BucketKey, list[DataSplit]] = defaultdict(list)
    for each in split.splits:
        places[BucketKey(each.partition, each.bucket)].append(each)
    with scratch_directory() as directory:
        both = replace(table, store=replace(table.store, io=cast(FileIO, _TailIO(table.store.io, directory))))
        for message in _spooled(table, split, directory, places, filter):
            files = places.pop(BucketKey(message.partition, message.bucket), [])
            merged = _with_tail(table.store, files, message, directory, split.expiry_moment_ms)
            if split.log.is_exact:
                tail = {file.file_name for file in message.new_files}
                yield from replaced_rows(both.store, merged, tail, columns=columns, filter=filter)
            else:
                yield from read_split(both, merged, columns=columns, filter=filter)
        for untouched in places.values():
            for each in untouched:
                yield from read_split(table, each, columns=columns, filter=filter)


class _ScratchIO(LocalFileIO):
    """Files that need not survive a crash."""

    def sync(self, path: str) -> None:
        """Skipped."""


class _TailIO:
    """The files of a table, wherever they are, and those of a directory of this machine. Only for reading."""

    def __init__(self, files: FileIO, directory: str) -> None:
        self._files = files
        self._scratch = _ScratchIO()
        self._prefix = f"{directory}/"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(path: str, *arguments: Any) -> Any:
            files = self._scratch if path.startswith(self._prefix) else self._files
            return getattr(files, name)(path, *arguments)

        return call


def _spooled(
    table: TableView,
    split: TailSplit,
    directory: str,
    places: "defaultdict[BucketKey, list[DataSplit]]",
    filter: Predicate | None,
) -> list[CommitMessage]:
    """Writes the records of the range to files in a directory."""

    def highest(partition: bytes, bucket: int) -> int:
        splits = places.get(BucketKey(partition, bucket), [])
        return max((file.max_sequence_number for each in splits for file in each.files), default=NO_SEQUENCE_NUMBER)

    scratch = _scratch(table.store, directory, is_exact=split.log.is_exact)
    writer = TableWrite(TableView(scratch), max_sequence_numbers=highest, takes_old_rows=True)
    wanted_keys = on_columns_only(filter, table.schema.primary_keys)
    options, columns = table.options, table.schema.column_names
    needed = columns if options.merge_engine != "deduplicate" else options.sequence_fields
    for changes in log_rows(table, split.log, split.log_range, columns=columns, needed_of_deletes=needed):
        wanted = changes if wanted_keys is None else changes.taken(filter_mask(wanted_keys, changes.rows))
        if wanted.rows.num_rows:
            writer.write(wanted.rows, wanted.kinds)
    messages = writer.prepare_commit()
    for message in messages:
        if message.bucket != split.log_range.bucket:
            raise CorruptDataError(
                f"a log record lies in the wrong bucket: table={table.name} topic={split.log.topic} "
                f"bucket={split.log_range.bucket} wanted_bucket={message.bucket} "
                "cause=another program writes the log"
            )
    return messages


def _scratch(store: TableStore, directory: str, *, is_exact: bool) -> TableStore:
    """The table for a writer of temporary files."""
    stored = store.schema
    given = without_merging(stored.options) if is_exact else stored.options
    fields = tuple(
        field
        if field.name in stored.primary_keys
        else replace(field, type=replace(field.type, nullable=True))  # a delete may have its key only
        for field in stored.fields
    )
    schema = replace(stored, fields=fields, options={**given, **_SCRATCH_OPTIONS})
    options = schema.table_options
    paths = TablePaths(directory).with_layout(stored.partition_fields, options)
    return replace(store, schema=schema, options=options, paths=paths, opened=None, io=_ScratchIO())


def _with_tail(
    store: TableStore, splits: Sequence[DataSplit], message: CommitMessage, directory: str, expiry_moment_ms: int | None
) -> DataSplit:
    """The files of a bucket with the tail's files above them."""
    counts = {each.total_buckets for each in splits} - {message.total_buckets}
    if counts:
        raise InvalidInputError(
            f"a partition was written with another number of buckets: table={store.name} "
            f"partition={store.partition_values(message.partition)} live={min(counts)} now={message.total_buckets} "
            "fix=read without scan.log.union, or overwrite the partition"
        )
    paths = TablePaths(directory).with_layout(store.schema.partition_fields, store.options)
    bucket_dir = paths.bucket_dir(store.partition_values(message.partition), message.bucket)
    tail = [replace(file, external_path=f"{bucket_dir}/{file.file_name}") for file in message.new_files]
    return DataSplit(
        snapshot=splits[0].snapshot if splits else EMPTY_TABLE,
        partition=message.partition,
        bucket=message.bucket,
        total_buckets=message.total_buckets,
        files=(*(file for each in splits for file in each.files), *tail),
        raw_convertible=not store.has_key,
        needs_merge=store.has_key,
        deletion_vectors=tuple(vector for each in splits for vector in each.deletion_vectors),
        expiry_moment_ms=expiry_moment_ms,
    )


def _takes_old_values(table: TableView) -> bool:
    """Whether the files may contain rows of kind -U."""
    options = table.options
    if options.ignore_delete or options.ignore_update_before:
        return False
    try:
        check_retracts(table.schema, options, deletes_only=False)
    except InvalidInputError:
        return False
    return options.merge_engine == "aggregation" or bool(sequence_groups(table.schema, options))
