"""Snapshots: the state of a table at one commit.

A snapshot file is created once under its id and never changes. Ids are used again after a rollback, so a snapshot that
is referred to later is named by its id and its identity, and each names the one that it follows.
Source: Paimon Snapshot; ``logOffsets`` holds the next log offset of every bucket.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson

from filestore.layout.file_names import checked_name
from filestore.layout.file_version import refuse_newer
from lsm.errors import CorruptDataError

FIRST_SNAPSHOT_ID: Final = 1
SNAPSHOT_VERSION: Final = 3
# Written by old writers for "no watermark".
_NO_WATERMARK: Final = -(2**63)
PARENT_KEY: Final = "fluvial.parent"
"""Snapshot property: identity of the snapshot that this one follows. Snapshots of other engines have none."""
TABLE_KEY: Final = "fluvial.table"
"""Snapshot property: id of the table that its writer had opened; absent: another engine made that table."""
CHANGES_KEY: Final = "fluvial.changes"
"""Snapshot property: where streams get its changes, log, files or none. Snapshots of other engines have none."""
LOG_GENERATION_KEY: Final = "fluvial.log-generation"
"""Snapshot property: which of the table's logs its offsets are of; absent for the first one."""


class CommitKind(StrEnum):
    """The kind of a commit."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"

    @property
    def changes_rows(self) -> bool:
        """Whether rows may be others after such a commit."""
        return self in (CommitKind.APPEND, CommitKind.OVERWRITE)


class SnapshotRef(NamedTuple):
    """Names one snapshot, also after its id has been given to another one."""

    id: int
    identity: str  # empty: not known


EMPTY_TABLE: Final = SnapshotRef(0, "")
"""The state before the first snapshot."""


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
    unknown: str | None = field(default=None, compare=False)  # JSON object of other keys in its file

    @property
    def identity(self) -> str:
        """Differs between any two snapshots: its uuid, or the name of its delta list if the writer gave it none."""
        return self.uuid or self.delta_manifest_list

    @property
    def ref(self) -> SnapshotRef:
        """The reference by which other snapshots name this one."""
        return SnapshotRef(self.id, self.identity)

    @property
    def log_generation(self) -> int:
        """Which of the table's logs the offsets are of: the id of the schema version that gave it; 0: the first."""
        return int(self.properties.get(LOG_GENERATION_KEY, 0))

    @property
    def is_external(self) -> bool:
        """Whether another engine committed it, or a version of Fluvial before ``CHANGES_KEY``."""
        return CHANGES_KEY not in self.properties

    def has_written_log(self, before: "Snapshot | None") -> bool:
        """Whether another engine wrote the log with this commit, as Flink's sink does: its offsets have moved on.

        Args:
            before: the snapshot before it, whose offsets it would carry otherwise; None: it is the first, or not known.
        """
        if not self.is_external or self.commit_kind is not CommitKind.APPEND or not self.log_offsets:
            return False
        return self.log_offsets != before.log_offsets if before is not None else self.id == FIRST_SNAPSHOT_ID

    def is_of_log(self, generation: int, before: "Snapshot | None") -> bool:
        """Whether the offsets are of one of the table's logs: by the snapshot, or by the schema of another engine.

        Args:
            generation: of the log.
            before: see ``has_written_log``.
        """
        if self.log_generation == generation:
            return True
        return self.schema_id >= generation and self.has_written_log(before)

    @property
    def parent(self) -> str | None:
        """Identity of the snapshot that it follows; None: its writer did not name it, or it is the first."""
        return self.properties.get(PARENT_KEY)

    @property
    def table_uuid(self) -> str | None:
        """Id of the table that its writer had opened; None: not known."""
        return self.properties.get(TABLE_KEY)

    def to_json(self) -> str:
        """Contents of the snapshot file, without absent values; with the keys of its writer that are not known here."""
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
        body |= orjson.loads(self.unknown or "{}")
        return orjson.dumps(body, option=orjson.OPT_INDENT_2).decode()

    @classmethod
    def from_json(cls, text: str | bytes, *, source: str = "text") -> "Snapshot":
        """Parse a snapshot or tag file of any writer; null means absent, unknown keys are kept for copies of the file.

        Raises: CorruptDataError naming the source when it is not a complete snapshot, or of a newer version.
        """
        try:
            body = orjson.loads(text)
            given = _given(body)
            refuse_newer(given.get("version", SNAPSHOT_VERSION), SNAPSHOT_VERSION, what="snapshot", source=source)
            given["commit_kind"] = CommitKind(given["commit_kind"])
            given["log_offsets"] = {int(bucket): int(at) for bucket, at in given.get("log_offsets", {}).items()}
            if given.get("watermark") == _NO_WATERMARK:
                del given["watermark"]
            others = {key: value for key, value in body.items() if key not in _ATTRIBUTE_OF_KEY and key not in _OF_TAGS}
            return cls(**given, unknown=orjson.dumps(others).decode() if others else None)
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
_OF_TAGS: Final = frozenset({"tagCreateTime", "tagTimeRetained", "fluvialCut"})  # of the tag, not of its snapshot
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


_FILES: Final = frozenset(
    {"uuid", "base_manifest_list", "delta_manifest_list", "changelog_manifest_list", "index_manifest", "statistics"}
)  # the uuid names the note of its removal


def _given(body: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes set by the JSON. Raises: TypeError for a value of the wrong type; ValueError for such a name."""
    given = {attribute: body[key] for key, attribute in _ATTRIBUTE_OF_KEY.items() if body.get(key) is not None}
    for attribute, value in given.items():
        expected = str if attribute in _TEXTS else dict if attribute in _OBJECTS else int
        if type(value) is not expected:
            raise TypeError(f"{attribute} is not of type {expected.__name__}: {value!r}")
        if attribute in _FILES:
            checked_name(value)
    return given


def names_parent(snapshot: Snapshot, before: Snapshot) -> bool:
    """Whether a snapshot names another one as the one that it follows, or none."""
    return snapshot.parent in (None, before.identity)


def back_from(
    snapshot: Snapshot | None,
    find: Callable[[int], Snapshot | None],
    *,
    follows: Callable[[Snapshot, Snapshot], bool] = names_parent,
) -> Iterator[Snapshot]:
    """A snapshot and those before it, newest first, until one has expired; looked up lazily.

    What has the number before a snapshot may be a fork, which its writer did not take back: it is not of this history.
    """
    while snapshot is not None:
        yield snapshot
        before = find(snapshot.id - 1) if snapshot.id > FIRST_SNAPSHOT_ID else None
        snapshot = before if before is not None and follows(snapshot, before) else None


def with_befores(history: Iterable[Snapshot]) -> Iterator[tuple[Snapshot, Callable[[], Snapshot | None]]]:
    """Each snapshot, newest first, with what looks up the one before it; the one before the last is not known."""
    rest = iter(history)
    ahead: list[Snapshot] = []

    def before() -> Snapshot | None:
        if not ahead:
            ahead.extend(islice(rest, 1))
        return ahead[0] if ahead else None

    while (snapshot := ahead.pop() if ahead else next(rest, None)) is not None:
        yield snapshot, before


def carried_offsets(history: Iterable[Snapshot], generation: int = 0) -> Mapping[int, int] | None:
    """The log offsets of the newest snapshot that has any: other engines do not propagate them.

    Args:
        history: from ``back_from``; consumed lazily.
        generation: of the log, see ``Snapshot.log_generation``. Offsets of former logs are passed over: those that a
            writer committed late, which had opened the table before it was given this log, too.

    Returns:
        Offsets by bucket; {} when no snapshot ever had any, None when those that may have had some have expired.
    """
    oldest_id = FIRST_SNAPSHOT_ID
    for snapshot, before in with_befores(history):
        if snapshot.log_offsets and (
            snapshot.log_generation == generation or (snapshot.is_external and snapshot.is_of_log(generation, before()))
        ):
            return snapshot.log_offsets
        if snapshot.schema_id < generation and not snapshot.is_external:  # other engines may commit late
            return {}  # committed before there was this log
        oldest_id = snapshot.id
    return {} if oldest_id == FIRST_SNAPSHOT_ID else None
