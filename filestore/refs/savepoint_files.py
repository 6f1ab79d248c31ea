"""Savepoint files: states of a table that are kept until deleted.

A savepoint refers to a single manifest list with all data of the state. That
list is the base list of the saved snapshot, which has an empty delta list; the snapshot is embedded in the
savepoint. It may also store the positions of the streaming queries that write the table, so that they can resume from
there. Source: ``Savepoint``, ``SavepointManager``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from filestore.io.file_io import FileIO
from filestore.layout.file_names import checked_name, relative_path
from filestore.layout.paths import SAVEPOINT_PREFIX, TablePaths
from filestore.manifest.lists import ManifestFileMeta
from filestore.manifest.manifest_store import ManifestStore
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError, InvalidInputError

FIRST_SAVEPOINT_ID: Final = 1
CHECKPOINT_PREFIX: Final = "checkpoint-"
"""Prefix of the directories with saved checkpoints beside the savepoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """The position of a streaming query at the saved snapshot: copies of its checkpoint files."""

    query_id: str
    commit_user: str  # commit user of the query; mostly the query's id
    batch_id: int  # the newest batch in the saved snapshot
    location: str  # location of the checkpoint, as configured
    directory: str  # name inside the savepoint directory
    files: tuple[str, ...]  # relative paths in both directories
    sources: tuple[Any, ...]  # end offset of the batch in each source, as in the checkpoint

    def to_json(self) -> dict[str, Any]:
        """The JSON object in the savepoint file."""
        return {
            "queryId": self.query_id,
            "commitUser": self.commit_user,
            "batchId": self.batch_id,
            "location": self.location,
            "directory": self.directory,
            "files": list(self.files),
            "sources": list(self.sources),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "SavedCheckpoint":
        """Parse the result of ``to_json``. Raises: KeyError, TypeError or ValueError."""
        return cls(
            query_id=body["queryId"],
            commit_user=body["commitUser"],
            batch_id=int(body["batchId"]),
            location=body["location"],
            directory=_checkpoint_directory(body["directory"]),
            files=tuple(map(relative_path, body["files"])),
            sources=tuple(body["sources"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Savepoint:
    """One saved state."""

    id: int
    saved_snapshot_id: int
    schema_id: int
    full_manifest_list: str  # lists all data of the state
    full_manifest_list_size: int | None
    record_count: int  # physical rows, deletes included
    save_time_ms: int  # epoch
    snapshot: Snapshot  # as written: still readable after its file has expired
    checkpoints: tuple[SavedCheckpoint, ...] = ()

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        *,
        savepoint_id: int,
        record_count: int,
        save_time_ms: int,
        checkpoints: tuple[SavedCheckpoint, ...] = (),
    ) -> "Savepoint":
        """The savepoint of a snapshot with all data in its base list."""
        return cls(
            id=savepoint_id,
            saved_snapshot_id=snapshot.id,
            schema_id=snapshot.schema_id,
            full_manifest_list=snapshot.base_manifest_list,
            full_manifest_list_size=snapshot.base_manifest_list_size,
            record_count=record_count,
            save_time_ms=save_time_ms,
            snapshot=snapshot,
            checkpoints=checkpoints,
        )

    @property
    def tag_name(self) -> str:
        """The tag of the same snapshot, so that other engines keep its files."""
        return f"{SAVEPOINT_PREFIX}{self.id}"

    def data_manifests(self, manifests: ManifestStore) -> list[ManifestFileMeta]:
        """All manifests of the saved data. Raises: FileNotFoundError, CorruptDataError."""
        return manifests.read_list(self.full_manifest_list, self.full_manifest_list_size)

    def own_paths(self, paths: TablePaths) -> Iterator[str]:
        """Paths of the savepoint's own files: copies of checkpoints."""
        for each in self.checkpoints:
            yield from (f"{paths.savepoint_dir}/{each.directory}/{name}" for name in each.files)

    def to_json(self) -> str:
        """The contents of the savepoint file."""
        body: dict[str, Any] = {
            "id": self.id,
            "savedSnapshotId": self.saved_snapshot_id,
            "schemaId": self.schema_id,
            "fullManifestList": self.full_manifest_list,
            "fullManifestListSize": self.full_manifest_list_size,
            "recordCount": self.record_count,
            "saveTimeMillis": self.save_time_ms,
            "snapshot": orjson.loads(self.snapshot.to_json()),
            "checkpoints": [each.to_json() for each in self.checkpoints],
        }
        return orjson.dumps(body, option=orjson.OPT_INDENT_2).decode()

    @classmethod
    def from_json(cls, text: str | bytes, *, source: str = "text") -> "Savepoint":
        """Parse the result of ``to_json``; unknown keys are ignored.

        Raises: CorruptDataError naming the source when it is not a complete savepoint.
        """
        try:
            body = orjson.loads(text)
            return cls(
                id=int(body["id"]),
                saved_snapshot_id=int(body["savedSnapshotId"]),
                schema_id=int(body["schemaId"]),
                full_manifest_list=checked_name(body["fullManifestList"]),
                full_manifest_list_size=body.get("fullManifestListSize"),
                record_count=int(body["recordCount"]),
                save_time_ms=int(body["saveTimeMillis"]),
                snapshot=Snapshot.from_json(orjson.dumps(body["snapshot"]), source=source),
                checkpoints=tuple(map(SavedCheckpoint.from_json, body.get("checkpoints") or ())),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptDataError(
                f"savepoint cannot be decoded: file={source} size_bytes={len(text)} error={error!r}"
            ) from error

    @classmethod
    def from_path(cls, io: FileIO, path: str) -> "Savepoint":
        """Read a savepoint file. Raises: FileNotFoundError, CorruptDataError."""
        return cls.from_json(io.read_bytes(path), source=path)


def savepoint_directory(store: TableStore) -> str:
    """Directory of the savepoints of the table's branch."""
    return store.paths.savepoint_dir


def savepoint_path(store: TableStore, savepoint_id: int) -> str:
    """Path of a savepoint, existing or not."""
    return store.paths.savepoint(savepoint_id)


def savepoint_ids(store: TableStore) -> list[int]:
    """Ids of the savepoints of the table's branch, ascending."""
    names = store.io.list_names(store.paths.savepoint_dir)
    numbers = (name.removeprefix(SAVEPOINT_PREFIX) for name in names if name.startswith(SAVEPOINT_PREFIX))
    return sorted(int(number) for number in numbers if number.isascii() and number.isdigit())


def find_savepoint(store: TableStore, savepoint_id: int) -> Savepoint | None:
    """One savepoint; None when it does not exist. Raises: CorruptDataError."""
    path = store.paths.savepoint(savepoint_id)
    try:
        found = Savepoint.from_path(store.io, path)
    except FileNotFoundError:
        return None
    if found.id != savepoint_id:
        raise CorruptDataError(f"savepoint file holds another savepoint: file={path} id={found.id}")
    return found


def read_savepoint(store: TableStore, savepoint_id: int) -> Savepoint:
    """One savepoint. Raises: InvalidInputError naming the existing ones; CorruptDataError."""
    found = find_savepoint(store, savepoint_id)
    if found is None:
        raise InvalidInputError(
            f"no such savepoint: table={store.name} savepoint={savepoint_id} savepoints={savepoint_ids(store)}"
        )
    return found


def savepoint_exists(store: TableStore, savepoint_id: int) -> bool:
    """Whether a savepoint exists."""
    return store.io.exists(store.paths.savepoint(savepoint_id))


def earliest_savepoint_id(store: TableStore) -> int | None:
    """The lowest savepoint id; None when there is none."""
    return next(iter(savepoint_ids(store)), None)


def latest_savepoint_id(store: TableStore) -> int | None:
    """The highest savepoint id; None when there is none."""
    return next(reversed(savepoint_ids(store)), None)


def list_savepoints(store: TableStore) -> list[Savepoint]:
    """The savepoints of the table's branch, oldest first. Raises: CorruptDataError for one that cannot be read."""
    ids = savepoint_ids(store)
    if not ids:
        store.check_is_there()
    found = (find_savepoint(store, each) for each in ids)
    return [each for each in found if each is not None]  # else it was deleted since the listing


def is_savepoint_tag(store: TableStore, tag_name: str) -> bool:
    """Whether a tag belongs to an existing savepoint, and so must be kept."""
    number = tag_name.removeprefix(SAVEPOINT_PREFIX)
    is_name = tag_name.startswith(SAVEPOINT_PREFIX) and number.isascii() and number.isdigit()
    return is_name and savepoint_exists(store, int(number))


def _checkpoint_directory(text: object) -> str:
    """Deleted with the savepoint, as a whole: so nothing else may be named. Raises: ValueError."""
    name = checked_name(text)
    if not name.startswith(CHECKPOINT_PREFIX):
        raise ValueError(f"not a directory of a checkpoint: {name!r}")
    return name
