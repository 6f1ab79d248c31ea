"""Manifest entries: the metadata of data files, and which of them are live.

Source: Paimon DataFileMeta, ManifestEntry, SimpleStats.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Final, NamedTuple

from filestore.format.simple_stats import SimpleStats
from filestore.io.places import local_path
from filestore.layout.file_names import checked_name, checked_names
from filestore.manifest.record_files import UNKNOWN_FIELDS, UnknownField, values_of
from lsm.errors import CorruptDataError

MANIFEST_VERSION: Final = 2


class EntryKind(IntEnum):
    """Whether a commit adds or deletes a file."""

    ADD = 0
    DELETE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFileMeta:
    """One data or changelog file. Names are never reused."""

    file_name: str  # without directory; see TablePaths
    size_bytes: int
    row_count: int  # deletes included
    min_key: bytes  # BinaryRow of the trimmed primary key of the first row; empty row for append tables
    max_key: bytes
    key_stats: SimpleStats
    value_stats: SimpleStats
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int
    extra_files: tuple[str, ...] = ()
    creation_time_ms: int | None = None  # local wall clock as if it were UTC
    delete_row_count: int | None = None  # rows of kind -U and -D; None counts as 0
    embedded_index: bytes | None = None
    file_source: int | None = None  # 0 new input, 1 compaction
    value_stats_cols: tuple[str, ...] | None = None  # None: value_stats are of all columns of schema_id
    external_path: str | None = None
    first_row_id: int | None = None
    write_cols: tuple[str, ...] | None = None
    unknown: tuple[UnknownField, ...] = field(default=(), compare=False)  # of its record, by a later version of Paimon

    def to_json(self) -> dict[str, Any]:
        """A plain dict for messages between processes: bytes as base64, without None values."""
        body: dict[str, Any] = {}
        for name in _FIELD_NAMES:
            value = getattr(self, name)
            if isinstance(value, SimpleStats):
                body[name] = [_base64(value.min_values), _base64(value.max_values), value.null_counts]
            elif value is not None:
                body[name] = _base64(value) if isinstance(value, bytes) else value
        if self.unknown:
            body["unknown"] = [each.to_json() for each in self.unknown]
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "DataFileMeta":
        """Parse the result of ``to_json``. Raises: CorruptDataError."""
        try:
            given = dict(body)
            for name in ("min_key", "max_key", "embedded_index"):
                if given.get(name) is not None:
                    given[name] = base64.b64decode(given[name], validate=True)
            for name in ("key_stats", "value_stats"):
                low, high, counts = given[name]
                given[name] = SimpleStats(
                    min_values=base64.b64decode(low, validate=True),
                    max_values=base64.b64decode(high, validate=True),
                    null_counts=None if counts is None else tuple(counts),
                )
            for name in ("value_stats_cols", "write_cols"):
                if given.get(name) is not None:
                    given[name] = tuple(given[name])
            checked_name(given["file_name"])
            given["extra_files"] = checked_names(given.get("extra_files") or ())
            given["unknown"] = tuple(map(UnknownField.from_json, given.get("unknown", ())))
            return cls(**given)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(f"data file description cannot be decoded: error={error!r}") from error

    def path(self, bucket_dir: str) -> str:
        """Path of the file; ``bucket_dir``: directory of its bucket in the table."""
        return f"{bucket_dir}/{self.file_name}" if self.external_path is None else local_path(self.external_path)

    def paths(self, bucket_dir: str) -> list[str]:
        """Paths of the file and of the extra files beside it; see ``path``."""
        path = self.path(bucket_dir)
        return [path, *(f"{path.rpartition('/')[0]}/{name}" for name in self.extra_files)]

    def to_avro(self) -> dict[str, Any]:
        """The ``_FILE`` record of a manifest."""
        return {
            "_FILE_NAME": self.file_name,
            "_FILE_SIZE": self.size_bytes,
            "_ROW_COUNT": self.row_count,
            "_MIN_KEY": self.min_key,
            "_MAX_KEY": self.max_key,
            "_KEY_STATS": self.key_stats.to_avro(),
            "_VALUE_STATS": self.value_stats.to_avro(),
            "_MIN_SEQUENCE_NUMBER": self.min_sequence_number,
            "_MAX_SEQUENCE_NUMBER": self.max_sequence_number,
            "_SCHEMA_ID": self.schema_id,
            "_LEVEL": self.level,
            "_EXTRA_FILES": list(self.extra_files),
            "_CREATION_TIME": self.creation_time_ms,
            "_DELETE_ROW_COUNT": self.delete_row_count,
            "_EMBEDDED_FILE_INDEX": self.embedded_index,
            "_FILE_SOURCE": self.file_source,
            "_VALUE_STATS_COLS": None if self.value_stats_cols is None else list(self.value_stats_cols),
            "_EXTERNAL_PATH": self.external_path,
            "_FIRST_ROW_ID": self.first_row_id,
            "_WRITE_COLS": None if self.write_cols is None else list(self.write_cols),
            **values_of(self.unknown),
        }

    @classmethod
    def from_avro(cls, record: Mapping[str, Any]) -> "DataFileMeta":
        """Parse a record of any writer; missing fields are None.

        Raises: KeyError for fields that all versions have; ValueError for a name that is none.
        """
        get = record.get
        return cls(
            file_name=checked_name(record["_FILE_NAME"]),
            size_bytes=record["_FILE_SIZE"],
            row_count=record["_ROW_COUNT"],
            min_key=record["_MIN_KEY"],
            max_key=record["_MAX_KEY"],
            key_stats=SimpleStats.from_avro(record["_KEY_STATS"]),
            value_stats=SimpleStats.from_avro(record["_VALUE_STATS"]),
            min_sequence_number=record["_MIN_SEQUENCE_NUMBER"],
            max_sequence_number=record["_MAX_SEQUENCE_NUMBER"],
            schema_id=record["_SCHEMA_ID"],
            level=record["_LEVEL"],
            extra_files=checked_names(get("_EXTRA_FILES") or ()),
            creation_time_ms=get("_CREATION_TIME"),
            delete_row_count=get("_DELETE_ROW_COUNT"),
            embedded_index=get("_EMBEDDED_FILE_INDEX"),
            file_source=get("_FILE_SOURCE"),
            value_stats_cols=_tuple(get("_VALUE_STATS_COLS")),
            external_path=get("_EXTERNAL_PATH"),
            first_row_id=get("_FIRST_ROW_ID"),
            write_cols=_tuple(get("_WRITE_COLS")),
            unknown=get(UNKNOWN_FIELDS, ()),
        )


class FileIdentity(NamedTuple):
    """Identity of a file among entries; after an upgrade to another level it has a different identity."""

    partition: bytes
    bucket: int
    level: int
    file_name: str
    extra_files: tuple[str, ...]
    embedded_index: bytes | None
    external_path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """A file added to or deleted from one bucket. A DELETE repeats its ADD byte for byte."""

    kind: EntryKind
    partition: bytes  # BinaryRow of the partition columns
    bucket: int
    total_buckets: int  # bucket count that the bucket was computed with; -1 for an unbucketed table
    file: DataFileMeta
    unknown: tuple[UnknownField, ...] = field(default=(), compare=False)  # beside the file, likewise

    @property
    def identity(self) -> FileIdentity:
        """The key that matches a DELETE with its ADD."""
        file = self.file
        return FileIdentity(
            self.partition,
            self.bucket,
            file.level,
            file.file_name,
            file.extra_files,
            file.embedded_index,
            file.external_path,
        )

    def to_avro(self) -> dict[str, Any]:
        """The Avro record in a manifest."""
        return {
            "_VERSION": MANIFEST_VERSION,
            "_KIND": int(self.kind),
            "_PARTITION": self.partition,
            "_BUCKET": self.bucket,
            "_TOTAL_BUCKETS": self.total_buckets,
            "_FILE": self.file.to_avro(),
            **values_of(self.unknown),
        }

    @classmethod
    def from_avro(cls, record: Mapping[str, Any]) -> "ManifestEntry":
        """Parse a record of any writer. Raises: KeyError or ValueError for an invalid one."""
        check_version(record, MANIFEST_VERSION)
        return cls(
            kind=_KINDS[record["_KIND"]],
            partition=record["_PARTITION"],
            bucket=record["_BUCKET"],
            total_buckets=record["_TOTAL_BUCKETS"],
            file=DataFileMeta.from_avro(record["_FILE"]),
            unknown=record.get(UNKNOWN_FIELDS, ()),
        )


def live_entries(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """The ADDs without a matching DELETE, in order.

    Raises: CorruptDataError when a live file was added twice: its rows would be read twice.
    """
    added: dict[FileIdentity, ManifestEntry] = {}
    deleted: set[FileIdentity] = set()
    twice: set[FileIdentity] = set()
    for entry in entries:
        identity = entry.identity
        if entry.kind is EntryKind.DELETE:
            deleted.add(identity)
        elif added.setdefault(identity, entry) is not entry:
            twice.add(identity)
    if not twice <= deleted:
        name = min(identity.file_name for identity in twice - deleted)
        raise CorruptDataError(f"data file was added twice: file={name}")
    return [entry for identity, entry in added.items() if identity not in deleted]


def check_version(record: Mapping[str, Any], expected: int) -> None:
    """Raises: ValueError for a record of another version, since its fields may mean something else."""
    if record["_VERSION"] != expected:
        advice = ", fix=upgrade Fluvial" if record["_VERSION"] > expected else ""
        raise ValueError(f"version is {record['_VERSION']} instead of {expected}{advice}")


_FIELD_NAMES: Final = tuple(each.name for each in fields(DataFileMeta) if each.name != "unknown")
_KINDS: Final[Mapping[int, EntryKind]] = {int(kind): kind for kind in EntryKind}


def _tuple(values: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
