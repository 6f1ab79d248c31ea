"""A copy of a table as a Delta Lake table, one commit for each state that is exported.

Files are written before the commit that names them, under names that say their content: a run after a kill finds those
that are complete. What the copy has is read from its log, so nothing else has to be remembered. Every tenth commit is
followed by a checkpoint.
"""

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa
import pyarrow.parquet as pq

from filestore.export.delta_log import (
    LOG_DIRECTORY,
    Action,
    DeltaState,
    LogFiles,
    commit,
    delta_schema,
    needs_ntz,
    read_log,
)
from filestore.export.parts import CopiedPart, ExportState, leftovers
from filestore.export.result import Exported, ExportPlace, Progress
from filestore.io.file_io import FileIO, write_hint
from filestore.table import TableRead
from lsm.errors import InvalidInputError

# ---- Checkpoints of a Delta Lake table's log: what it has after a commit in one file; cleaning of what is before them
# They are a shorter way to what commits say: a copy is right without them, and an export that dies before one leaves it
# to the next. Source: Delta protocol, "Checkpoints", "Checkpoint Schema", "Last Checkpoint File", "Metadata Cleanup".


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


# ---- A copy of a table as a Delta Lake table, one commit for each state that is exported


_TABLE: Final = "fluvial.table"
_PLAIN: Final[Mapping[str, Any]] = {"minReaderVersion": 1, "minWriterVersion": 2}
_NTZ: Final = ["timestampNtz"]
_FEATURES: Final[Mapping[str, Any]] = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": _NTZ,
    "writerFeatures": _NTZ,
}


def export_delta(read: TableRead, place: ExportPlace, progress: Progress) -> Exported:
    """Make the copy equal to a snapshot.

    Raises:
        InvalidInputError: a type that Delta Lake does not have; the copy is of another table.
        ConflictError: another export was faster; nothing is visible.
    """
    schema_text, stored = delta_schema(read.schema)
    state = ExportState(read, stored)
    before = read_log(place.io, place.root)
    name = state.table_name
    was = before.metadata.get("configuration", {}).get(_TABLE)
    if before.version >= 0 and was != name:
        raise InvalidInputError(
            f"there is a copy of another table: path={place.root} its_table={was} table={name} fix='use another path'"
        )
    wanted = state.splits
    new = [each for each in wanted if each not in before.files]
    gone = [path for path in before.files if path not in wanted]
    old = [path for path in _outlived(before, place) if path not in wanted]
    done = Exported(path=place.root, written=len(new), kept=len(wanted) - len(new), removed=len(gone), deleted=len(old))
    if place.dry_run:
        return done
    parts: list[CopiedPart] = []
    for each in new:
        progress(done.kept + len(parts), len(wanted))
        parts.append(state.write(place.io, place.root, each))
    head = list(_head(before, name, schema_text))
    after = before
    if new or gone or head:
        now = place.clock.now_ms()
        about = {"timestamp": now, "operation": "WRITE", "operationParameters": {}, "engineInfo": "Fluvial"}
        actions = [
            {
                "commitInfo": {
                    **about,
                    "fluvialSnapshot": state.snapshot_id,
                    "fluvialBranch": read.table.store.paths.branch,
                }
            },
            *head,
            *({"remove": {"path": path, "deletionTimestamp": now, "dataChange": True}} for path in gone),
            *({"add": _added(part, now)} for part in parts),
        ]
        commit(place.io, place.root, before.version + 1, actions)
        after = before.after(actions)
    progress(len(wanted), len(wanted))
    for path in old:
        place.io.delete(f"{place.root}/{path}")
    for path in leftovers(place.io, place.root, place.clock.now_ms() - place.retain_ms):
        place.io.delete(path)
    if is_due(after):
        now = place.clock.now_ms()
        write_checkpoint(place.io, place.root, after, now_ms=now, retain_ms=place.retain_ms)
    kept = [before.files[each] for each in wanted if each in before.files]
    counts = (json.loads(each.get("stats") or "{}").get("numRecords", 0) for each in kept)
    return replace(
        done,
        rows=sum(part.rows for part in parts) + sum(counts),
        size_bytes=sum(part.size_bytes for part in parts) + sum(each["size"] for each in kept),
    )


def _head(before: DeltaState, name: str, schema_text: str) -> Iterator[Action]:
    """Protocol and columns, where they are not those of the copy."""
    protocol = _FEATURES if needs_ntz(schema_text) else _PLAIN
    if before.version < 0 or protocol["minReaderVersion"] > before.protocol.get("minReaderVersion", 0):
        yield {"protocol": protocol}
    if before.metadata.get("schemaString") != schema_text:
        kept = {key: before.metadata[key] for key in ("id", "createdTime") if key in before.metadata}
        yield {
            "metaData": {
                "id": str(uuid5(NAMESPACE_URL, f"fluvial:{name}")),
                "name": name,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema_text,
                "partitionColumns": [],
                "configuration": {_TABLE: name},
                **kept,
            }
        }


def _added(part: CopiedPart, now_ms: int) -> dict[str, Any]:
    stats = json.dumps({"numRecords": part.rows})
    return {
        "path": part.name,
        "partitionValues": {},
        "size": part.size_bytes,
        "modificationTime": now_ms,
        "dataChange": True,
        "stats": stats,
    }


def _outlived(before: DeltaState, place: ExportPlace) -> list[str]:
    """Parts that were removed so long ago that no reader has them open."""
    latest, there = place.clock.now_ms() - place.retain_ms, {*place.io.list_names(place.root)}
    return [path for path, at in before.removed_ms.items() if at < latest and path in there]
