"""The content of a table's picture: files with their positions in key order, and the commits."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.drawing.key_axis import KeyAxis, Scale, Stretch
from filestore.manifest.entries import DataFileMeta
from filestore.scan.live_files import BucketKey
from filestore.snapshot.snapshot import Snapshot
from filestore.system_tables.files import FileColumns, partition_texts
from filestore.system_tables.history import log_record_count
from filestore.table_store import TableStore
from lsm.levels import SortedFile

_PAST: Final = 2  # snapshots read beyond the requested ones: the oldest one's differences need its predecessor


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBox:
    """One data file, and its range on the axis of its bucket: disjoint files never overlap."""

    name: str
    level: int
    size_bytes: int
    row_count: int  # deletes and older versions included
    delete_count: int
    first: float  # where its first key begins, 0 to 1
    last: float  # where its last key ends, >= first
    ranks: tuple[int, int]  # of both keys among all first and last keys of the bucket; without a key, by writing
    min_key: str | None  # JSON; None without a key
    max_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBoxes:
    """A sorted run: boxes from left to right, without overlaps."""

    level: int
    files: tuple[FileBox, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def row_count(self) -> int:
        """Rows of all files."""
        return sum(file.row_count for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketBoxes:
    """One LSM tree."""

    partition: str | None
    bucket: int
    runs: tuple[RunBoxes, ...]  # newest first
    scale: Scale | None = None  # of the axis; None without a key: files side by side
    overlap: tuple[Stretch, ...] = ()  # how many runs a read merges, along the axis

    @property
    def files(self) -> tuple[FileBox, ...]:
        """Files of all runs."""
        return tuple(file for run in self.runs for file in run.files)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(run.size_bytes for run in self.runs)

    @property
    def mean_overlap(self) -> float:
        """How many runs a read at one key merges, on average along the axis."""
        whole = sum(each.end - each.start for each in self.overlap)
        return sum(each.runs * (each.end - each.start) for each in self.overlap) / whole if whole else 0.0

    @property
    def title(self) -> str:
        """The bucket's name in pictures."""
        return f"bucket {self.bucket}" if self.partition is None else f"{self.partition} · bucket {self.bucket}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCommit:
    """One snapshot of the history."""

    snapshot: Snapshot
    log_rows: int | None  # log records that the snapshot added; None: unknown
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePicture:
    """A table at its newest snapshot, and its history."""

    table: str
    has_key: bool
    buckets: tuple[BucketBoxes, ...]  # by partition, then bucket
    bucket_count: int  # of the table; may exceed len(buckets) because of the limit
    commits: tuple[DrawnCommit, ...]  # oldest first
    snapshot_count: int
    compaction_trigger: int  # sorted runs at which a bucket is compacted
    stop_trigger: int  # sorted runs at which writers wait
    size_bytes: int
    file_count: int
    row_count: int

    @property
    def top_level(self) -> int:
        """The highest level that holds files."""
        return max((run.level for bucket in self.buckets for run in bucket.runs), default=0)


def picture_of(
    store: TableStore, *, snapshot_limit: int = 200, bucket_limit: int = 400, until: Snapshot | None = None
) -> TablePicture:
    """The picture of a table.

    Args:
        store: the table.
        snapshot_limit: number of newest snapshots.
        bucket_limit: number of buckets, those with the most sorted runs.
        until: the newest snapshot that counts, which may have expired and be kept by a tag; None: the newest there is.
    """
    ids = store.snapshots.line().ids
    if until is not None:
        ids = [*(each for each in ids if each < until.id), until.id]
    read = [
        until if until is not None and each == until.id else store.snapshots.find(each)
        for each in ids[-snapshot_limit - _PAST :]
    ]
    found = [each for each in read if each is not None]
    columns = FileColumns.of(store, found[-1] if found else None)
    boxes = _buckets(columns)
    shown = sorted(boxes, key=lambda each: (-len(each.runs), -each.size_bytes))[:bucket_limit]
    wanted = {id(each) for each in shown}
    return TablePicture(
        table=store.name,
        has_key=store.has_key,
        buckets=tuple(each for each in boxes if id(each) in wanted),
        bucket_count=len(boxes),
        commits=_commits(store, found, ids[-snapshot_limit:]),
        snapshot_count=len(ids),
        compaction_trigger=store.options.run_count_trigger,
        stop_trigger=store.options.run_count_stop_trigger,
        size_bytes=sum(file.size_bytes for file in columns.files),
        file_count=len(columns.files),
        row_count=sum(file.row_count for file in columns.files),
    )


def _commits(store: TableStore, found: Sequence[Snapshot], wanted: Sequence[int]) -> tuple[DrawnCommit, ...]:
    tags: defaultdict[int, list[str]] = defaultdict(list)
    for name in store.snapshots.tag_names():
        tags[store.snapshots.tag(name).id].append(name)
    oldest = wanted[0] if wanted else 0
    before: Snapshot | None = None
    commits = []
    for each in found:
        if each.id >= oldest:
            commits.append(
                DrawnCommit(snapshot=each, log_rows=log_record_count(before, each), tags=tuple(tags[each.id]))
            )
        before = each
    return tuple(commits)


def _buckets(columns: FileColumns) -> list[BucketBoxes]:
    store = columns.store
    firsts = columns.key_texts(lambda file: file.min_key).to_pylist()
    lasts = columns.key_texts(lambda file: file.max_key).to_pylist()
    texts = {file.file_name: pair for file, *pair in zip(columns.files, firsts, lasts, strict=True)}
    partitions = partition_texts(store, {key.partition for key in columns.keys})
    buckets = [
        _keyed(columns, key, partitions[key.partition], texts)
        if store.has_key
        else _appended(columns, key, partitions[key.partition])
        for key in columns.live.buckets()
    ]
    return sorted(buckets, key=lambda each: (each.partition or "", each.bucket))


def _keyed(
    columns: FileColumns, key: BucketKey, partition: str | None, texts: Mapping[str, Sequence[str | None]]
) -> BucketBoxes:
    levels = columns.live.levels(key)
    axis = KeyAxis.of(levels.runs, columns.store.schema.key_fields)
    runs = tuple(
        RunBoxes(level=run.level, files=tuple(_key_box(file, axis, texts[file.file_name]) for file in run.files))
        for run in levels.runs
    )
    return BucketBoxes(
        partition=partition, bucket=key.bucket, runs=runs, scale=axis.scale, overlap=axis.overlap(levels.runs)
    )


def _key_box(file: SortedFile, axis: KeyAxis, keys: Sequence[str | None]) -> FileBox:
    first, last = axis.span(file.min_key, file.max_key)
    return FileBox(
        name=file.file_name,
        level=file.level,
        size_bytes=file.size_bytes,
        row_count=file.row_count,
        delete_count=file.delete_count,
        first=first,
        last=last,
        ranks=(axis.ranks[file.min_key], axis.ranks[file.max_key]),
        min_key=keys[0],
        max_key=keys[1],
    )


def _appended(columns: FileColumns, key: BucketKey, partition: str | None) -> BucketBoxes:
    """Without a key, the only order is the order of writing: files side by side."""
    files = sorted(columns.live.files(key), key=lambda file: (file.min_sequence_number, file.file_name))
    run = RunBoxes(level=0, files=tuple(_box(file, at, len(files)) for at, file in enumerate(files)))
    return BucketBoxes(partition=partition, bucket=key.bucket, runs=(run,))


def _box(file: DataFileMeta, at: int, count: int) -> FileBox:
    return FileBox(
        name=file.file_name,
        level=file.level,
        size_bytes=file.size_bytes,
        row_count=file.row_count,
        delete_count=file.delete_row_count or 0,
        first=at / count,
        last=(at + 1) / count,
        ranks=(at, at),
        min_key=None,
        max_key=None,
    )
