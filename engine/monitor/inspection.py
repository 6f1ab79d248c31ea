"""The structure of a table as values, for ``fluvial inspect`` and for programs."""

import re
from dataclasses import asdict, dataclass
from typing import Any

from filestore.layout.paths import partition_path
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.levels import SortedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A sorted run: files of disjoint key ranges. Without a key, all files of a bucket."""

    level: int
    file_count: int
    row_count: int  # deletes and older versions included
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTree:
    """One bucket of one partition."""

    partition: str  # as in the path of its directory: "dt=2020-08-08/hour=7"; empty without partitions
    bucket: int
    runs: tuple[RunState, ...]  # newest first

    @property
    def file_count(self) -> int:
        """Data files of all runs."""
        return sum(run.file_count for run in self.runs)

    @property
    def row_count(self) -> int:
        """Rows in files, deletes and older versions included."""
        return sum(run.row_count for run in self.runs)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(run.size_bytes for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table at one snapshot."""

    table: str
    snapshots: tuple[Snapshot, ...]  # the requested ones, newest first
    snapshot_count: int
    buckets: tuple[BucketTree, ...]  # by partition, then bucket

    @property
    def size_bytes(self) -> int:
        """Bytes of all live data files."""
        return sum(bucket.size_bytes for bucket in self.buckets)

    @property
    def max_run_count(self) -> int:
        """Runs of the bucket with the most: the maximum that a read of one key has to merge."""
        return max((len(bucket.runs) for bucket in self.buckets), default=0)

    def as_json(self) -> dict[str, Any]:
        """JSON values for scripts."""
        return {
            "table": self.table,
            "snapshot_count": self.snapshot_count,
            "snapshots": [snapshot_json(each) for each in self.snapshots],
            "size_bytes": self.size_bytes,
            "max_run_count": self.max_run_count,
            "buckets": [
                {
                    "partition": each.partition,
                    "bucket": each.bucket,
                    "file_count": each.file_count,
                    "row_count": each.row_count,
                    "size_bytes": each.size_bytes,
                    "runs": [asdict(run) for run in each.runs],
                }
                for each in self.buckets
            ],
        }


def inspect_table(store: TableStore, *, snapshot_limit: int = 10, until: Snapshot | None = None) -> TableState:
    """The state of a table.

    Args:
        store: the opened table.
        snapshot_limit: number of newest snapshots to read.
        until: the newest one that counts, which may have expired and be kept by a tag; None: the newest there is.
    """
    ids = sorted((each for each in store.snapshots.line().ids if until is None or each < until.id), reverse=True)
    known = [] if until is None else [until]
    found = [*known, *(store.snapshots.find(each) for each in ids[: snapshot_limit - len(known)])]
    live = LiveFiles.latest(store) if until is None else LiveFiles(store, until)
    states = [_bucket_state(store, live, key) for key in live.buckets()]
    return TableState(
        table=store.name,
        snapshots=tuple(each for each in found if each is not None),
        snapshot_count=len(ids) + len(known),
        buckets=tuple(sorted(states, key=lambda each: (_natural(each.partition), each.bucket))),
    )


def snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    """The main fields of a snapshot."""
    return {
        "id": snapshot.id,
        "commit_kind": snapshot.commit_kind.value,
        "commit_user": snapshot.commit_user,
        "commit_identifier": snapshot.commit_identifier,
        "time_ms": snapshot.time_ms,
        "total_record_count": snapshot.total_record_count,
        "delta_record_count": snapshot.delta_record_count,
        "log_offsets": {str(bucket): offset for bucket, offset in sorted((snapshot.log_offsets or {}).items())},
    }


def _bucket_state(store: TableStore, live: LiveFiles, key: BucketKey) -> BucketTree:
    values = store.partition_values(key.partition)
    return BucketTree(
        partition=partition_path(values, store.schema.partition_fields, store.options),
        bucket=key.bucket,
        runs=_runs(store, live, key),
    )


def _runs(store: TableStore, live: LiveFiles, key: BucketKey) -> tuple[RunState, ...]:
    if store.has_key:
        return tuple(_run_state(run) for run in live.levels(key).runs)
    files = live.files(key)
    state = RunState(
        level=0,
        file_count=len(files),
        row_count=sum(file.row_count for file in files),
        size_bytes=sum(file.size_bytes for file in files),
    )
    return (state,)


def _run_state(run: SortedRun) -> RunState:
    return RunState(level=run.level, file_count=len(run.files), row_count=run.row_count, size_bytes=run.size_bytes)


def _natural(partition: str) -> list[tuple[int, str]]:
    """Sorts ``month=2`` before ``month=10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", partition)]
