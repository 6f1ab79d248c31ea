"""The log of a Delta Lake table: which files it has, read and written as the protocol says.

Each commit is one file with the next number, created exclusively: of two writers, one wins. Reading begins at the
newest checkpoint.
Source: Delta protocol, "Delta Log Entries", "Checkpoints" and "Actions".
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from filestore.io.file_io import FileIO
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError

LOG_DIRECTORY: Final = "_delta_log"
_COMMIT: Final = ".json"
_CHECKPOINT: Final = ".checkpoint.parquet"
_DIGITS: Final = 20
_NOTES: Final = frozenset({"commitInfo", "cdc", "checkpointMetadata"})  # say nothing about the state
_NTZ: Final = {"timestampNtz"}
_ADDED: Final = frozenset({"path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags"})
_DERIVED: Final = frozenset({"stats_parsed", "partitionValues_parsed"})

Action = Mapping[str, Any]


@dataclass(slots=True)
class DeltaState:
    """The state of a table after its last commit."""

    version: int = -1  # of the last commit; -1: there is no table
    checkpoint: int = -1  # version of the newest checkpoint; -1: there is none
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Action] = field(default_factory=dict)  # add actions by path
    removed_ms: dict[str, int] = field(default_factory=dict)  # epoch milliseconds by path, of what it had once
    is_plain: bool = True  # nothing was said that is not here

    def after(self, actions: Iterable[Action]) -> "DeltaState":
        """The state with one commit more."""
        found = replace(self, version=self.version + 1, files={**self.files}, removed_ms={**self.removed_ms})
        found.apply(actions)
        return found

    def apply(self, actions: Iterable[Action]) -> None:
        """Take over what a commit or a checkpoint says."""
        for action in actions:
            for kind, value in action.items():
                if value is not None and kind not in _NOTES:
                    self._apply(kind, {name: each for name, each in value.items() if each is not None})

    def _apply(self, kind: str, found: dict[str, Any]) -> None:
        if kind == "add":
            self.files[found["path"]] = {name: each for name, each in found.items() if name not in _DERIVED}
            self.removed_ms.pop(found["path"], None)
            self.is_plain &= found.keys() <= _ADDED | _DERIVED
        elif kind == "remove":
            self.files.pop(found["path"], None)
            self.removed_ms[found["path"]] = found.get("deletionTimestamp") or 0
        elif kind == "metaData":
            self.metadata = found
        elif kind == "protocol":
            self.protocol = found
            self.is_plain &= {*found.get("readerFeatures", ()), *found.get("writerFeatures", ())} <= _NTZ
        else:
            self.is_plain = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """Versions of the files of a log, oldest first."""

    commits: list[int]
    checkpoints: list[int]  # that are one file each

    @classmethod
    def list(cls, io: FileIO, root: str) -> "LogFiles":
        """What is there."""
        names = io.list_names(f"{root}/{LOG_DIRECTORY}")
        return cls(commits=_versions(names, _COMMIT), checkpoints=_versions(names, _CHECKPOINT))

    @staticmethod
    def commit_path(root: str, version: int) -> str:
        """The path of a commit."""
        return f"{root}/{LOG_DIRECTORY}/{version:0{_DIGITS}d}{_COMMIT}"

    @staticmethod
    def checkpoint_path(root: str, version: int) -> str:
        """The path of a checkpoint."""
        return f"{root}/{LOG_DIRECTORY}/{version:0{_DIGITS}d}{_CHECKPOINT}"


def read_log(io: FileIO, root: str) -> DeltaState:
    """The newest checkpoint, and all commits behind it.

    Raises:
        InvalidInputError: another engine has removed commits that no checkpoint of one file stands for.
        CorruptDataError: a commit is not JSON, or a checkpoint is not one.
    """
    state, log = DeltaState(), LogFiles.list(io, root)
    if log.checkpoints:
        state.version = state.checkpoint = log.checkpoints[-1]
        state.apply(_checkpoint(io, log.checkpoint_path(root, state.version)))
    for version in (each for each in log.commits if each > state.checkpoint):
        if version != state.version + 1:
            raise InvalidInputError(
                f"commits of the copy are missing, another engine has cleaned its log: path={root} "
                f"missing={state.version + 1} fix='export to a new directory'"
            )
        state.apply(_commit(io, log.commit_path(root, version)))
        state.version = version
    return state


def commit(io: FileIO, root: str, version: int, actions: Iterable[Action]) -> None:
    """Publish a commit. Raises: ConflictError: another writer has this version; OutcomeUnknownError."""
    body = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    if not io.create_exclusive(LogFiles.commit_path(root, version), body.encode()):
        raise ConflictError(
            f"another export or engine has written to the copy meanwhile: path={root} version={version} fix='repeat it'"
        )


def _versions(names: Iterable[str], suffix: str) -> list[int]:
    texts = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(text) for text in texts if text.isdecimal() and len(text) == _DIGITS)


def _commit(io: FileIO, path: str) -> Iterator[Action]:
    for line in io.read_bytes(path).splitlines():
        try:
            yield json.loads(line)
        except ValueError as error:
            raise CorruptDataError(f"a commit of the copy is not JSON: path={path} error={error}") from error


def _checkpoint(io: FileIO, path: str) -> Iterator[Action]:
    """What a checkpoint says, one kind of action after the other."""
    try:
        with io.open_input(path) as source:
            rows = pq.read_table(source)
        for kind, values in zip(rows.column_names, rows.columns, strict=True):
            yield from ({kind: each} for each in values.drop_null().to_pylist(maps_as_pydicts="strict"))
    except pa.ArrowException as error:
        raise CorruptDataError(
            f"a checkpoint of the copy cannot be read: path={path} error={error} fix='export to a new directory'"
        ) from error
