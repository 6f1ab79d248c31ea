"""A copy of a table as a Delta Lake table, one commit for each state that is exported.

Files are written before the commit that names them, under names that say their content: a run after a kill finds those
that are complete. What the copy has is read from its log, so nothing else has to be remembered. Every tenth commit is
followed by a checkpoint.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from filestore.export.delta_checkpoint import is_due, write_checkpoint
from filestore.export.delta_log import Action, DeltaState, commit, read_log
from filestore.export.delta_types import delta_schema, needs_ntz
from filestore.export.parts import CopiedPart, ExportState, leftovers
from filestore.export.result import Exported, ExportPlace, Progress
from filestore.table import TableRead
from lsm.errors import InvalidInputError

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
