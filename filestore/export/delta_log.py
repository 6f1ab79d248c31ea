"""The log of a Delta Lake table: which files it has, read and written as the protocol says.

Each commit is one file with the next number, created exclusively: of two writers, one wins.
Source: Delta protocol, "Delta Log Entries" and "Actions".
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from filestore.io.file_io import FileIO
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError

LOG_DIRECTORY: Final = "_delta_log"
_SUFFIX: Final = ".json"
_DIGITS: Final = 20

Action = Mapping[str, Any]


@dataclass(slots=True)
class DeltaState:
    """What a table has after its last commit."""

    version: int = -1  # of the last commit; -1: there is no table
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Action] = field(default_factory=dict)  # add actions by path
    removed_ms: dict[str, int] = field(default_factory=dict)  # epoch milliseconds by path, of what it had once


def read_log(io: FileIO, root: str) -> DeltaState:
    """Replay all commits.

    Raises:
        InvalidInputError: another engine has removed commits behind a checkpoint.
        CorruptDataError: a commit is not JSON.
    """
    state = DeltaState()
    for version in _versions(io, root):
        if version != state.version + 1:
            raise InvalidInputError(
                f"commits of the copy are missing, another engine has cleaned its log: path={root} "
                f"missing={state.version + 1} fix='export to a new directory'"
            )
        _apply(state, io, _path(root, version))
        state.version = version
    return state


def commit(io: FileIO, root: str, version: int, actions: Iterable[Action]) -> None:
    """Publish a commit. Raises: ConflictError: another writer has this version; OutcomeUnknownError."""
    body = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    if not io.create_exclusive(_path(root, version), body.encode()):
        raise ConflictError(
            f"another export or engine has written to the copy meanwhile: path={root} version={version} fix='repeat it'"
        )


def _versions(io: FileIO, root: str) -> list[int]:
    names = (name.removesuffix(_SUFFIX) for name in io.list_names(f"{root}/{LOG_DIRECTORY}") if name.endswith(_SUFFIX))
    return sorted(int(name) for name in names if name.isdigit() and len(name) == _DIGITS)


def _path(root: str, version: int) -> str:
    return f"{root}/{LOG_DIRECTORY}/{version:0{_DIGITS}d}{_SUFFIX}"


def _apply(state: DeltaState, io: FileIO, path: str) -> None:
    for line in io.read_bytes(path).splitlines():
        try:
            action = json.loads(line)
        except ValueError as error:
            raise CorruptDataError(f"a commit of the copy is not JSON: path={path} error={error}") from error
        if found := action.get("add"):
            state.files[found["path"]] = found
            state.removed_ms.pop(found["path"], None)
        elif found := action.get("remove"):
            state.files.pop(found["path"], None)
            state.removed_ms[found["path"]] = found.get("deletionTimestamp") or 0
        elif found := action.get("metaData"):
            state.metadata = found
        elif found := action.get("protocol"):
            state.protocol = found
