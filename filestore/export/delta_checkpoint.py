"""Checkpoints of a Delta Lake table's log: what it has after a commit in one file; cleaning of what is before them.

They are a shorter way to what commits say: a copy is right without them, and an export that dies before one leaves it
to the next. Source: Delta protocol, "Checkpoints", "Checkpoint Schema", "Last Checkpoint File", "Metadata Cleanup".
"""

import json
from bisect import bisect_right
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from filestore.export.delta_log import LOG_DIRECTORY, DeltaState, LogFiles
from filestore.io.file_io import FileIO, write_hint

CHECKPOINT_EVERY: Final = 10
"""Commits, as Delta's default."""
LAST_CHECKPOINT: Final = "_last_checkpoint"
_DAY_MS: Final = 86_400_000
_LOG_DAYS: Final = 30  # Delta's default
_REMOVED_DAYS: Final = 7  # Delta's default
_OWN_CLEANING: Final = ("delta.enableExpiredLogCleanup", "delta.logRetentionDuration")

_WORDS: Final = pa.list_(pa.string())
_MAP: Final = pa.map_(pa.string(), pa.string())
_SCHEMA: Final = pa.schema(
    {
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": _WORDS,
                "writerFeatures": _WORDS,
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _MAP}),
                "schemaString": pa.string(),
                "partitionColumns": _WORDS,
                "configuration": _MAP,
                "createdTime": pa.int64(),
            }
        ),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _MAP,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "tags": _MAP,
            }
        ),
        "remove": pa.struct(
            {
                "path": pa.string(),
                "deletionTimestamp": pa.int64(),
                "dataChange": pa.bool_(),
                "extendedFileMetadata": pa.bool_(),
            }
        ),
    }
)


def is_due(state: DeltaState) -> bool:
    """Whether a state gets a checkpoint: so many commits have none, and all that they say has a place in it."""
    return state.is_plain and state.version - max(state.checkpoint, 0) >= CHECKPOINT_EVERY


def write_checkpoint(io: FileIO, root: str, state: DeltaState, *, now_ms: int, retain_ms: int) -> None:
    """Write the checkpoint of a state, note it as the last one, and clean the log.

    Args:
        io: knows the place of the copy.
        root: of the copy.
        state: after its last commit.
        now_ms: epoch milliseconds.
        retain_ms: how long removed files stay: until then the copy has to know of them.
    """
    since = now_ms - max(retain_ms, _REMOVED_DAYS * _DAY_MS)
    gone = {"dataChange": False, "extendedFileMetadata": False}
    rows: list[dict[str, Any]] = [
        {"protocol": state.protocol},
        {"metaData": state.metadata},
        *({"add": {**file, "dataChange": False}} for file in state.files.values()),
        *(
            {"remove": {"path": path, "deletionTimestamp": at, **gone}}
            for path, at in state.removed_ms.items()
            if at >= since
        ),
    ]
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), buffer, compression="zstd")
    body = buffer.getvalue().to_pybytes()
    io.create_exclusive(LogFiles.checkpoint_path(root, state.version), body)  # taken: by one who wrote the same
    about = {"version": state.version, "size": len(rows), "sizeInBytes": len(body), "numOfAddFiles": len(state.files)}
    write_hint(io, f"{root}/{LOG_DIRECTORY}/{LAST_CHECKPOINT}", json.dumps(about).encode())
    configuration = state.metadata.get("configuration") or {}
    if not any(name in configuration for name in _OWN_CLEANING):  # else by the engine that was asked for it
        _clean(io, root, now_ms)


def _clean(io: FileIO, root: str, now_ms: int) -> None:
    """Delete what is before the checkpoint that the oldest retained state needs."""
    log = LogFiles.list(io, root)
    latest = now_ms - _LOG_DAYS * _DAY_MS
    latest -= latest % _DAY_MS
    with suppress(FileNotFoundError):  # another export cleans too
        old = bisect_right(log.commits, latest, key=lambda each: io.modified_ms(log.commit_path(root, each)))
        needed = max((each for each in log.checkpoints if old and each <= log.commits[old - 1]), default=0)
        for version in sorted({*log.commits, *log.checkpoints}):
            if version < needed:
                io.delete(log.commit_path(root, version))
                io.delete(log.checkpoint_path(root, version))
