"""A split: the files that one task reads, as a value that crosses process borders as JSON."""

import base64
import json
from dataclasses import dataclass
from typing import Any

from filestore.manifest.entries import DataFileMeta
from filestore.manifest.lists import IndexManifestEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSplit:
    """Files of one bucket that are read together; it needs nothing but the table to be read."""

    snapshot_id: int
    partition: bytes  # BinaryRow with arity prefix
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    raw_convertible: bool  # the rows of the files are the rows of the table: none to merge, deleted or too old
    needs_merge: bool
    deletion_vectors: tuple[IndexManifestEntry, ...] = ()  # only those of these files
    expiry_moment_ms: int | None = None  # rows that are too old then are no rows of the table; None: all of them are

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def row_count(self) -> int:
        """Physical rows of all files."""
        return sum(file.row_count for file in self.files)

    def to_json(self) -> str:
        """Return one line of JSON; bytes are base64."""
        body = {
            "snapshotId": self.snapshot_id,
            "partition": base64.b64encode(self.partition).decode("ascii"),
            "bucket": self.bucket,
            "totalBuckets": self.total_buckets,
            "files": [file.to_json() for file in self.files],
            "rawConvertible": self.raw_convertible,
            "needsMerge": self.needs_merge,
            "deletionVectors": [entry.to_json() for entry in self.deletion_vectors],
            "expiryMomentMs": self.expiry_moment_ms,
        }
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "DataSplit":
        """Return the split that ``to_json`` wrote."""
        body: dict[str, Any] = json.loads(text)
        return cls(
            snapshot_id=body["snapshotId"],
            partition=base64.b64decode(body["partition"]),
            bucket=body["bucket"],
            total_buckets=body["totalBuckets"],
            files=tuple(DataFileMeta.from_json(file) for file in body["files"]),
            raw_convertible=body["rawConvertible"],
            needs_merge=body["needsMerge"],
            deletion_vectors=tuple(IndexManifestEntry.from_json(each) for each in body["deletionVectors"]),
            expiry_moment_ms=body["expiryMomentMs"],
        )
