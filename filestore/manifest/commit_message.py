"""The messages from writer tasks to the committer, sent between processes as JSON."""

import base64
import json
from dataclasses import dataclass
from typing import Any, Final

from filestore.manifest.entries import DataFileMeta
from filestore.manifest.lists import IndexManifestEntry

PURPOSE_KEY: Final = "fluvial.purpose"
"""Property of a snapshot that changed no files: its purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMessage:
    """The files that one task added to and removed from one bucket."""

    partition: bytes  # BinaryRow with arity prefix
    bucket: int
    total_buckets: int  # bucket count that the bucket was computed with; -1 for an unbucketed table
    new_files: tuple[DataFileMeta, ...] = ()
    compact_before: tuple[DataFileMeta, ...] = ()
    compact_after: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    index_before: tuple[IndexManifestEntry, ...] = ()  # removed index files
    index_after: tuple[IndexManifestEntry, ...] = ()  # added index files

    @property
    def is_empty(self) -> bool:
        """True when committing this message would change nothing."""
        return not any(getattr(self, name) for name in (*_FILE_LISTS, *_INDEX_LISTS))

    @property
    def files_after(self) -> tuple[DataFileMeta, ...]:
        """All added data files: compaction outputs and new files."""
        return (*self.compact_after, *self.new_files)

    @property
    def row_count(self) -> int:
        """Physical rows in the new files, deletes included."""
        return sum(file.row_count for file in self.new_files)

    def to_json(self) -> str:
        """Return one line of JSON; bytes are base64."""
        body = {
            "partition": base64.b64encode(self.partition).decode("ascii"),
            "bucket": self.bucket,
            "totalBuckets": self.total_buckets,
            **{
                name: [each.to_json() for each in getattr(self, name)]
                for name in (*_FILE_LISTS, *_INDEX_LISTS)
                if getattr(self, name)
            },
        }
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "CommitMessage":
        """Return the message that ``to_json`` wrote."""
        body: dict[str, Any] = json.loads(text)
        lists: dict[str, Any] = {
            **{name: tuple(map(DataFileMeta.from_json, body.get(name, ()))) for name in _FILE_LISTS},
            **{name: tuple(map(IndexManifestEntry.from_json, body.get(name, ()))) for name in _INDEX_LISTS},
        }
        return cls(
            partition=base64.b64decode(body["partition"]),
            bucket=body["bucket"],
            total_buckets=body["totalBuckets"],
            **lists,
        )


_FILE_LISTS: Final = ("new_files", "compact_before", "compact_after", "changelog_files")
_INDEX_LISTS: Final = ("index_before", "index_after")
