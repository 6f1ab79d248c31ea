"""A compaction task: values that go to another machine as JSON, and the files that it writes there."""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from filestore.compact.row_order import RowOrder
from filestore.datafile.rolling_writer import COMPACT_SOURCE, RollingWriter
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.lists import IndexManifestEntry
from filestore.options.table_options import TableOptions
from filestore.scan.live_files import BucketKey
from filestore.table_store import TableStore
from filestore.write.bucket_writer import write_files
from lsm.compaction.compaction import CompactionReason


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """Files of one bucket to replace by fewer."""

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    output_level: int
    drops_deletes: bool  # no older row is left that a delete would have to hide
    cleans_deletes: bool  # the output level is the last one: even a large file is rewritten to lose its deletes
    reason: CompactionReason
    known_level: int | None = None  # a changelog is written for readers that know the rows from this level on
    lookup_files: tuple[DataFileMeta, ...] = ()  # not replaced: known rows of the same keys
    rewrites_all: bool = False  # no file only moves
    read_cost: int = 0  # what readers pay for the bucket as it is; to compare tasks of one table
    indexes: tuple[IndexManifestEntry, ...] = ()  # deletion vectors of the whole bucket
    merges_old_rows: bool = False  # rows of the looked-up files with keys of level 0 are merged with what is there
    deletes_old_rows: bool = False  # and go to deletion vectors
    expiry_moment_ms: int | None = None  # rows that are too old then are dropped; None: none are
    deaths: int = 0  # attempts on these files that killed their process
    order: RowOrder | None = None  # that the rows get; None: their order stays

    @property
    def key(self) -> BucketKey:
        """The bucket."""
        return BucketKey(self.partition, self.bucket)

    @property
    def size_bytes(self) -> int:
        """Bytes to read."""
        return sum(file.size_bytes for file in self.files)

    def to_json(self) -> str:
        """Return one line of JSON; bytes are base64."""
        body = {
            "partition": base64.b64encode(self.partition).decode("ascii"),
            "bucket": self.bucket,
            "totalBuckets": self.total_buckets,
            "files": [file.to_json() for file in self.files],
            "outputLevel": self.output_level,
            "dropsDeletes": self.drops_deletes,
            "cleansDeletes": self.cleans_deletes,
            "reason": self.reason.value,
            "knownLevel": self.known_level,
            "lookupFiles": [file.to_json() for file in self.lookup_files],
            "rewritesAll": self.rewrites_all,
            "readCost": self.read_cost,
            "indexes": [entry.to_json() for entry in self.indexes],
            "mergesOldRows": self.merges_old_rows,
            "marksOldRows": self.deletes_old_rows,
            "expiryMomentMs": self.expiry_moment_ms,
            "deaths": self.deaths,
            "order": None if self.order is None else self.order.to_json(),
        }
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "CompactionTask":
        """Return the task that ``to_json`` wrote."""
        body: dict[str, Any] = json.loads(text)
        return cls(
            partition=base64.b64decode(body["partition"]),
            bucket=body["bucket"],
            total_buckets=body["totalBuckets"],
            files=tuple(DataFileMeta.from_json(file) for file in body["files"]),
            output_level=body["outputLevel"],
            drops_deletes=body["dropsDeletes"],
            cleans_deletes=body["cleansDeletes"],
            reason=CompactionReason(body["reason"]),
            known_level=body["knownLevel"],
            lookup_files=tuple(DataFileMeta.from_json(file) for file in body["lookupFiles"]),
            rewrites_all=body["rewritesAll"],
            read_cost=body["readCost"],
            indexes=tuple(IndexManifestEntry.from_json(entry) for entry in body["indexes"]),
            merges_old_rows=body["mergesOldRows"],
            deletes_old_rows=body["marksOldRows"],
            expiry_moment_ms=body["expiryMomentMs"],
            deaths=body["deaths"],
            order=None if body["order"] is None else RowOrder.from_json(body["order"]),
        )


def is_small(file: DataFileMeta, options: TableOptions) -> bool:
    """Whether a file is too small to stay separate."""
    return bool(file.size_bytes < options.target_file_size_bytes * options.compaction_small_file_ratio)


class TaskFiles:
    """The files that a task replaces, and those that it puts in their place."""

    def __init__(self, store: TableStore, task: CompactionTask) -> None:
        """The view for one task, at the schema of the newest of its files."""
        self.store = store
        self.task = task
        self.before: list[DataFileMeta] = []  # removed by the commit
        self.after: list[DataFileMeta] = []  # added by it
        self.written: list[DataFileMeta] = []  # new on disk: to be deleted if the task fails

    def write(self, rows: Iterable[pa.Table | pa.RecordBatch]) -> list[DataFileMeta]:
        """New files with these rows, on the task's output level."""
        store, task = self.store, self.task
        writer = RollingWriter(
            io=store.io,
            names=store.names,
            clock=store.clock,
            place=store.new_files(task.partition, task.bucket),
            schema=store.schema,
            options=store.options,
            level=task.output_level,
            file_source=COMPACT_SOURCE,
            key_values=store.has_key,
            tracked=store.options.row_tracking_enabled,
        )
        files = write_files(writer, rows)
        self.written += files
        return files
