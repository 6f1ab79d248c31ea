"""A split: the files that one task reads, sent between processes as JSON."""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from filestore.manifest.entries import DataFileMeta
from filestore.manifest.lists import IndexManifestEntry
from filestore.scan.key_span import KeySpan
from filestore.snapshot.snapshot import SnapshotRef

_SPLIT_BYTES: Final = 500
_FILE_BYTES: Final = 3000


class HasFiles(Protocol):
    """A split of any kind."""

    @property
    def files(self) -> Sequence[DataFileMeta]:
        """The files that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSplit:
    """Files of one bucket that are read together; needs only the table to be read."""

    snapshot: SnapshotRef
    partition: bytes  # BinaryRow with arity prefix
    bucket: int
    total_buckets: int
    files: Sequence[DataFileMeta]
    raw_convertible: bool  # the files' rows are table rows: none to merge, deleted or expired
    needs_merge: bool
    deletion_vectors: tuple[IndexManifestEntry, ...] = ()  # of these files only
    expiry_moment_ms: int | None = None  # hide rows expired at this time; None: no rows are expired
    span: KeySpan | None = None  # only these keys, of files that other splits read too; None: all rows of the files

    @property
    def size_bytes(self) -> int:
        """Total size of the files; about that of the rows inside a span."""
        return self._part(sum(file.size_bytes for file in self.files))

    @property
    def row_count(self) -> int:
        """Number of physical rows of the files; about that of the rows inside a span."""
        return self._part(sum(file.row_count for file in self.files))

    def _part(self, of_files: int) -> int:
        return of_files if self.span is None else round(of_files * self.span.share)

    def to_json(self) -> str:
        """One line of JSON; bytes are base64."""
        body = {
            "snapshot": self.snapshot,
            "partition": base64.b64encode(self.partition).decode("ascii"),
            "bucket": self.bucket,
            "totalBuckets": self.total_buckets,
            "files": [file.to_json() for file in self.files],
            "rawConvertible": self.raw_convertible,
            "needsMerge": self.needs_merge,
            "deletionVectors": [entry.to_json() for entry in self.deletion_vectors],
            "expiryMomentMs": self.expiry_moment_ms,
            "span": None if self.span is None else self.span.to_json(),
        }
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "DataSplit":
        """Parse the result of ``to_json``."""
        body: dict[str, Any] = json.loads(text)
        return cls(
            snapshot=SnapshotRef(*body["snapshot"]),
            partition=base64.b64decode(body["partition"]),
            bucket=body["bucket"],
            total_buckets=body["totalBuckets"],
            files=tuple(DataFileMeta.from_json(file) for file in body["files"]),
            raw_convertible=body["rawConvertible"],
            needs_merge=body["needsMerge"],
            deletion_vectors=tuple(IndexManifestEntry.from_json(each) for each in body["deletionVectors"]),
            expiry_moment_ms=body["expiryMomentMs"],
            span=None if body["span"] is None else KeySpan.from_json(body["span"]),
        )


def split_bytes(splits: Iterable[HasFiles]) -> int:
    """An estimate of the memory that splits take, by their files."""
    return sum(_SPLIT_BYTES + _FILE_BYTES * len(split.files) for split in splits)
