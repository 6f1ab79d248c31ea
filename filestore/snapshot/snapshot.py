"""Snapshots: the state of a table at one commit, and the files that publish it.

A snapshot file is created once under its id and never changes. The hints LATEST and EARLIEST only avoid listings.
Source: Paimon Snapshot, SnapshotManager, HintFileUtils; ``logOffsets`` holds the next log offset of every bucket.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import orjson

from filestore.io.commit_lock import TableLock
from filestore.io.file_io import FileIO
from filestore.layout.paths import SNAPSHOT_PREFIX, TAG_PREFIX, TAG_SUCCESS_DIRECTORY, TablePaths
from lsm.errors import CorruptDataError, InvalidInputError, OutcomeUnknownError, UnavailableError

logger = logging.getLogger("fluvial.snapshots")

FIRST_SNAPSHOT_ID: Final = 1
SNAPSHOT_VERSION: Final = 3
# Written by old writers for "no watermark".
_NO_WATERMARK: Final = -(2**63)
_ID_DIGITS: Final = 19  # of a BIGINT


class CommitKind(StrEnum):
    """The kind of a commit."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One published state. Its files are those of the base list with the changes of the delta list."""

    id: int
    schema_id: int
    base_manifest_list: str
    base_manifest_list_size: int | None = None  # exact bytes; None from old writers
    delta_manifest_list: str
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    commit_user: str
    commit_identifier: int
    commit_kind: CommitKind
    time_ms: int
    log_offsets: Mapping[int, int] = field(default_factory=dict)  # next offset by bucket
    total_record_count: int | None = None  # physical rows, deletes included; None from very old writers
    delta_record_count: int | None = None
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    next_row_id: int | None = None
    operation: str | None = None
    uuid: str | None = None
    writer_version: str | None = None
    version: int = SNAPSHOT_VERSION

    def to_json(self) -> str:
        """Contents of the snapshot file, without absent values."""
        body: dict[str, Any] = {}
        for key, attribute in _ATTRIBUTE_OF_KEY.items():
            value = getattr(self, attribute)
            if value is not None:
                body[key] = value
        body["commitKind"] = self.commit_kind.value
        body["logOffsets"] = {str(bucket): offset for bucket, offset in self.log_offsets.items()}
        body["properties"] = dict(self.properties)
        for key in ("logOffsets", "properties"):
            if not body[key]:
                del body[key]
        return orjson.dumps(body, option=orjson.OPT_INDENT_2).decode()

    @classmethod
    def from_json(cls, text: str | bytes, *, source: str = "text") -> "Snapshot":
        """Parse a snapshot or tag file of any writer; null means absent, unknown keys are ignored.

        Raises: CorruptDataError naming the source when it is not a complete snapshot.
        """
        try:
            body = orjson.loads(text)
            given = _given(body)
            given["commit_kind"] = CommitKind(given["commit_kind"])
            given["log_offsets"] = {int(bucket): int(at) for bucket, at in given.get("log_offsets", {}).items()}
            if given.get("watermark") == _NO_WATERMARK:
                del given["watermark"]
            return cls(**given)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptDataError(
                f"snapshot cannot be decoded: file={source} size_bytes={len(text)} error={error}"
            ) from error


# In the order of Java's files.
_ATTRIBUTE_OF_KEY: Final[Mapping[str, str]] = {
    "version": "version",
    "uuid": "uuid",
    "id": "id",
    "schemaId": "schema_id",
    "baseManifestList": "base_manifest_list",
    "baseManifestListSize": "base_manifest_list_size",
    "deltaManifestList": "delta_manifest_list",
    "deltaManifestListSize": "delta_manifest_list_size",
    "changelogManifestList": "changelog_manifest_list",
    "changelogManifestListSize": "changelog_manifest_list_size",
    "indexManifest": "index_manifest",
    "commitUser": "commit_user",
    "writerVersion": "writer_version",
    "commitIdentifier": "commit_identifier",
    "commitKind": "commit_kind",
    "timeMillis": "time_ms",
    "logOffsets": "log_offsets",
    "totalRecordCount": "total_record_count",
    "deltaRecordCount": "delta_record_count",
    "changelogRecordCount": "changelog_record_count",
    "watermark": "watermark",
    "statistics": "statistics",
    "properties": "properties",
    "nextRowId": "next_row_id",
    "operation": "operation",
}
_OBJECTS: Final = frozenset({"log_offsets", "properties"})
_TEXTS: Final = frozenset(
    {
        "uuid",
        "base_manifest_list",
        "delta_manifest_list",
        "changelog_manifest_list",
        "index_manifest",
        "commit_user",
        "writer_version",
        "commit_kind",
        "statistics",
        "operation",
    }
)


def _given(body: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes set by the JSON. Raises: TypeError for a value of the wrong type."""
    given = {attribute: body[key] for key, attribute in _ATTRIBUTE_OF_KEY.items() if body.get(key) is not None}
    for attribute, value in given.items():
        expected = str if attribute in _TEXTS else dict if attribute in _OBJECTS else int
        if type(value) is not expected:
            raise TypeError(f"{attribute} is not of type {expected.__name__}: {value!r}")
    return given


def back_from(snapshot: Snapshot | None, find: Callable[[int], Snapshot | None]) -> Iterator[Snapshot]:
    """A snapshot and those before it, newest first, until one is missing; looked up lazily."""
    while snapshot is not None:
        yield snapshot
        snapshot = find(snapshot.id - 1) if snapshot.id > FIRST_SNAPSHOT_ID else None


def carried_offsets(history: Iterable[Snapshot]) -> Mapping[int, int] | None:
    """The log offsets of the newest snapshot that has any: other engines do not propagate them.

    Args:
        history: from ``back_from``; consumed lazily.

    Returns:
        Offsets by bucket; {} when no snapshot ever had any, None when those that may have had some have expired.
    """
    oldest_id = FIRST_SNAPSHOT_ID
    for snapshot in history:
        if snapshot.log_offsets:
            return snapshot.log_offsets
        oldest_id = snapshot.id
    return {} if oldest_id == FIRST_SNAPSHOT_ID else None


class SnapshotStore:
    """The snapshot files of one branch of a table.

    A missing file is ``FileNotFoundError``, as in ``FileIO``: a snapshot may expire between two reads.
    """

    def __init__(self, io: FileIO, paths: TablePaths, *, lock: TableLock | None = None) -> None:
        """``lock`` makes publishing safe where ``io`` cannot create a file exclusively; see ``commit.lock``."""
        self._io = io
        self._paths = paths
        self._lock = lock
        self._tags: dict[str, tuple[tuple[int, ...], Snapshot]] = {}  # cached tags with the stamps of their files

    def exists(self, snapshot_id: int) -> bool:
        """Whether a snapshot is published and not expired."""
        return self._io.exists(self._paths.snapshot(snapshot_id))

    def ids(self) -> list[int]:
        """Ids of all snapshots, ascending, by listing the directory."""
        names = self._io.list_names(self._paths.snapshot_dir)
        numbers = (name.removeprefix(SNAPSHOT_PREFIX) for name in names if name.startswith(SNAPSHOT_PREFIX))
        return sorted(int(number) for number in numbers if number.isascii() and number.isdigit())

    def latest_id(self) -> int | None:
        """Id of the newest snapshot; None when nothing was committed."""
        hinted = self._hint(self._paths.latest_hint)
        # A hint may be stale or wrong: it is valid only if its snapshot exists and the next does not.
        if hinted is not None and not self.exists(hinted + 1) and self.exists(hinted):
            return hinted
        ids = self.ids()
        return ids[-1] if ids else None

    def earliest_id(self) -> int | None:
        """Id of the oldest snapshot that has not expired; None when nothing was committed."""
        hinted = self._hint(self._paths.earliest_hint)
        if hinted is not None and self.exists(hinted):
            return hinted
        ids = self.ids()
        return ids[0] if ids else None

    def latest(self) -> Snapshot | None:
        """The newest snapshot; None when nothing was committed. Raises: CorruptDataError."""
        latest_id = self.latest_id()
        if latest_id is None:
            return None
        # A rollback may remove it in between.
        return self.find(latest_id) or self._newest_listed()

    def read(self, snapshot_id: int) -> Snapshot:
        """One snapshot.

        Raises:
            FileNotFoundError: it expired, or was never published.
            CorruptDataError: the file is truncated, corrupt or holds another snapshot.
        """
        path = self._paths.snapshot(snapshot_id)
        snapshot = Snapshot.from_json(self._io.read_bytes(path), source=path)
        if snapshot.id != snapshot_id:
            raise CorruptDataError(f"snapshot file holds another snapshot: file={path} id={snapshot.id}")
        return snapshot

    def find(self, snapshot_id: int) -> Snapshot | None:
        """One snapshot, or None when it expired or was never published."""
        try:
            return self.read(snapshot_id)
        except FileNotFoundError:
            return None

    def back_from(self, snapshot: Snapshot | None) -> Iterator[Snapshot]:
        """A snapshot and those before it, newest first, until one has expired; read lazily."""
        return back_from(snapshot, self.find)

    def publish(self, snapshot: Snapshot) -> bool:
        """Make a snapshot visible: the atomic step of a commit.

        Returns:
            True when its file exists with these contents, even from an earlier attempt. False when the id is taken by
            another writer: nothing is visible, plan again.

        Raises:
            UnavailableError: nothing is visible.
            OutcomeUnknownError: it may or may not be visible: delete nothing, check for it, retry.
        """
        path, body = self._paths.snapshot(snapshot.id), snapshot.to_json().encode()
        if self._lock is None:
            return self._claim(path, body)
        return self._lock.run(lambda: self._claim(path, body, check_first=True))

    def write_latest_hint(self, snapshot_id: int) -> None:
        """Update the newest id's hint. Failures are logged, not raised: the commit is done, and readers can list."""
        self._write_hint(self._paths.latest_hint, snapshot_id)

    def write_earliest_hint(self, snapshot_id: int) -> None:
        """Update the hint of the oldest id; pypaimon assumes 1 without it. Failures are logged, not raised."""
        self._write_hint(self._paths.earliest_hint, snapshot_id)

    def claim_up_to(self, snapshot_id: int) -> None:
        """Claim the snapshots before this one for deletion: from now on they cannot be tagged.

        Raises: UnavailableError; then none of them may be deleted.
        """
        if self.claimed_up_to() < snapshot_id:
            self._io.replace(self._paths.earliest_hint, str(snapshot_id).encode())

    def claimed_up_to(self) -> int:
        """Snapshots before this id are deleted, or claimed for deletion."""
        return self._hint(self._paths.earliest_hint) or FIRST_SNAPSHOT_ID

    def oldest_left(self) -> int | None:
        """Id of the oldest snapshot file, including those left by an interrupted expiry; None: there is none."""
        oldest = self.earliest_id()
        while oldest is not None and oldest > FIRST_SNAPSHOT_ID and self.exists(oldest - 1):
            oldest -= 1
        return oldest

    def newest_of(self, commit_user: str) -> Snapshot | None:
        """The newest snapshot of a commit user, walking back from the latest; None when all of them expired."""
        latest_id, earliest_id = self.latest_id(), self.earliest_id()
        if latest_id is None or earliest_id is None:
            return None
        for snapshot_id in range(latest_id, earliest_id - 1, -1):
            snapshot = self.find(snapshot_id)
            if snapshot is not None and snapshot.commit_user == commit_user:
                return snapshot
        return None

    def as_of(self, time_ms: int) -> Snapshot | None:
        """The last snapshot committed at or before this time; None when there is none or all have expired."""
        ids = self.ids()
        found: Snapshot | None = None
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            snapshot = self.find(ids[middle])
            # One that expired since the listing is older than all remaining ones.
            if snapshot is None or snapshot.time_ms <= time_ms:
                found, low = snapshot or found, middle + 1
            else:
                high = middle
        return found

    def tag(self, name: str) -> Snapshot:
        """The tagged snapshot. Raises: InvalidInputError naming the existing tags; CorruptDataError."""
        found = self.find_tag(name)
        if found is None:
            raise InvalidInputError(f"no such tag: tag={name} tags={self.tag_names()}")
        return found

    def find_tag(self, name: str) -> Snapshot | None:
        """The tagged snapshot; None when there is no such tag. Raises: CorruptDataError."""
        path = self._paths.tag(name)
        try:
            stamp = self._io.stamp(path)
            known = self._tags.get(name)
            if known is not None and known[0] == stamp:
                return known[1]
            found = Snapshot.from_json(self._io.read_bytes(path), source=path)
        except FileNotFoundError:
            self._tags.pop(name, None)
            return None
        if stamp is not None:
            self._tags[name] = stamp, found
        return found

    def tag_names(self) -> list[str]:
        """Names of all tags, sorted."""
        names = self._io.list_names(self._paths.tag_dir)
        found = (name for name in names if name.startswith(TAG_PREFIX) and name != TAG_SUCCESS_DIRECTORY)
        return [name.removeprefix(TAG_PREFIX) for name in found]

    def _claim(self, path: str, body: bytes, *, check_first: bool = False) -> bool:
        try:
            if not (check_first and self._io.exists(path)):
                self._io.create_exclusive(path, body)
        except OSError as error:
            raise OutcomeUnknownError(f"snapshot may or may not be visible: file={path} error={error}") from error
        # Java publishes by rename under a process-local lock and may have replaced this file; and an existing file
        # may be from an earlier attempt of this writer with a lost response. Only the contents show.
        try:
            return self._io.read_bytes(path) == body
        except (OSError, UnavailableError) as error:
            raise OutcomeUnknownError(f"snapshot cannot be verified: file={path} error={error}") from error

    def _newest_listed(self) -> Snapshot | None:
        ids = self.ids()
        return self.read(ids[-1]) if ids else None

    def _hint(self, path: str) -> int | None:
        try:
            text = self._io.read_bytes(path).strip()
        except (FileNotFoundError, UnavailableError):
            return None
        is_id = text.isascii() and text.isdigit() and len(text) <= _ID_DIGITS
        return int(text) if is_id else None

    def _write_hint(self, path: str, snapshot_id: int) -> None:
        try:
            self._io.replace(path, str(snapshot_id).encode())
        except (OSError, UnavailableError) as error:
            logger.warning("hint not written: file=%s snapshot=%d error=%s", path, snapshot_id, error)
