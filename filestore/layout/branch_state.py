"""What a branch's directory says about the branch: where it began, and which operation is at work on it.

Two small files beside the directories of the layout, which other readers do not look at. ``ORIGIN`` never changes; a
branch of another engine has none. ``OPERATION`` is created exclusively, so that one operation at a time works on a
branch. It stays when its process dies: whoever runs the same operation again completes it. While a branch is being
made, deleted or renamed, it is not there.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import orjson

from filestore.io.file_io import FileIO
from filestore.layout.paths import MAIN_BRANCH, TablePaths
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError

ORIGIN_FILE: Final = "ORIGIN"
OPERATION_FILE: Final = "OPERATION"


class Operation(StrEnum):
    """What is done to a branch as a whole."""

    CREATE = "create"
    DELETE = "delete"
    RENAME = "rename"
    MERGE = "merge"
    FAST_FORWARD = "fast-forward"
    REPLACE_MAIN = "replace-main"
    REWRITE = "rewrite"  # of a main branch: its newest snapshots are taken back, or all of it moves


_HIDING: Final = frozenset({Operation.CREATE, Operation.DELETE, Operation.RENAME})
_SEALING: Final = _HIDING | {Operation.REWRITE}
_READING: Final = frozenset({Operation.RENAME, Operation.FAST_FORWARD, Operation.REPLACE_MAIN, Operation.REWRITE})


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchOrigin:
    """Where a branch began."""

    tag: str | None = None  # of main; None: made empty
    snapshot_id: int | None = None
    owns_tag: bool = False  # the tag was made for the branch, and goes with it
    schema_id: int  # the newest schema version that was copied from main
    first_schema_id: int  # the branch's schema when it was made: one more when options were given
    options: Mapping[str, str] = field(default_factory=dict)  # those of that one more
    created_ms: int  # epoch


def read_origin(io: FileIO, paths: TablePaths) -> BranchOrigin | None:
    """Where the branch of these paths began; None: another engine made it. Raises: CorruptDataError."""
    path = f"{paths.branch_root}/{ORIGIN_FILE}"
    body = _read(io, path)
    if body is None:
        return None
    try:
        return BranchOrigin(
            tag=body["tag"],
            snapshot_id=body["snapshotId"],
            owns_tag=bool(body["ownsTag"]),
            schema_id=int(body["schemaId"]),
            first_schema_id=int(body["firstSchemaId"]),
            options=dict(body["options"]),
            created_ms=int(body["createdMs"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"origin of a branch cannot be decoded: file={path} error={error!r}") from error


def write_origin(io: FileIO, paths: TablePaths, origin: BranchOrigin) -> None:
    """Note where a branch began."""
    body = {
        "tag": origin.tag,
        "snapshotId": origin.snapshot_id,
        "ownsTag": origin.owns_tag,
        "schemaId": origin.schema_id,
        "firstSchemaId": origin.first_schema_id,
        "options": dict(origin.options),
        "createdMs": origin.created_ms,
    }
    io.replace(f"{paths.branch_root}/{ORIGIN_FILE}", orjson.dumps(body, option=orjson.OPT_INDENT_2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An operation on a branch, and what it was asked for."""

    operation: Operation
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.operation.value, *(f"{name}={value}" for name, value in self.arguments.items())])


def read_work(io: FileIO, paths: TablePaths) -> Work | None:
    """The operation that is at work on a branch, or was when its process died. Raises: CorruptDataError."""
    path = f"{paths.branch_root}/{OPERATION_FILE}"
    body = _read(io, path)
    if body is None:
        return None
    try:
        return Work(operation=Operation(body["operation"]), arguments=dict(body["arguments"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"operation on a branch cannot be decoded: file={path} error={error!r}") from error


def is_hidden(io: FileIO, paths: TablePaths) -> bool:
    """Whether the branch of these paths is just being made, deleted or renamed. Raises: CorruptDataError."""
    return _is_at(io, paths, _HIDING)


def keeps_snapshots(io: FileIO, paths: TablePaths) -> bool:
    """Whether an operation is at work that needs the branch's snapshots, so that none may expire."""
    return _is_at(io, paths, _READING)


def is_gone(io: FileIO, paths: TablePaths, *, schema_id: int) -> bool:
    """Whether a commit to the branch of these paths may be lost: deleted, renamed, no longer main, or rewritten.

    Args:
        io: file system.
        paths: of a branch that somebody opened a while ago.
        schema_id: of a schema version that it had.
    """
    if paths.branch == MAIN_BRANCH:
        return not is_open_main(io, paths.root)
    return _is_at(io, paths, _SEALING) or not io.exists(paths.schema(schema_id))


def begin_work(io: FileIO, paths: TablePaths, work: Work) -> bool:
    """Be the only operation on a branch.

    Returns:
        True: newly begun. False: the same operation was begun before, and is to be completed.

    Raises:
        ConflictError: another operation is at work on the branch, or died at it; names it.
    """
    path = f"{paths.branch_root}/{OPERATION_FILE}"
    if io.create_exclusive(path, _body(work)):
        return True
    there = read_work(io, paths)
    if there is None or there == work:
        return there is None and begin_work(io, paths, work)
    raise ConflictError(
        f"another operation is at work on the branch: branch={paths.branch} operation={there} wanted={work} "
        "fix=wait for it; when it died, run it again first"
    )


def replace_work(io: FileIO, paths: TablePaths, work: Work) -> None:
    """Be the only operation on a branch, instead of one that died."""
    io.replace(f"{paths.branch_root}/{OPERATION_FILE}", _body(work))


def end_work(io: FileIO, paths: TablePaths) -> None:
    """Let others at the branch; the operation is complete."""
    io.delete(f"{paths.branch_root}/{OPERATION_FILE}")
    io.delete_empty_directory(paths.branch_root)


@contextmanager
def working(io: FileIO, paths: TablePaths, work: Work) -> Iterator[None]:
    """Be the only operation on a branch until the block ends.

    A refusal ends the operation too: InvalidInputError and ConflictError leave nothing half done. After any other error
    it has to be run again.
    """
    begin_work(io, paths, work)
    try:
        yield
    except (InvalidInputError, ConflictError):
        end_work(io, paths)
        raise
    end_work(io, paths)


def _is_at(io: FileIO, paths: TablePaths, operations: Collection[Operation]) -> bool:
    if paths.branch == MAIN_BRANCH:
        return False
    work = read_work(io, paths)
    return work is not None and work.operation in operations


def _body(work: Work) -> bytes:
    return orjson.dumps({"operation": work.operation.value, "arguments": dict(work.arguments)})


def _read(io: FileIO, path: str) -> dict[str, Any] | None:
    try:
        text = io.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        body = orjson.loads(text)
    except ValueError as error:
        raise CorruptDataError(f"file of a branch cannot be decoded: file={path} error={error}") from error
    if not isinstance(body, dict):
        raise CorruptDataError(f"file of a branch cannot be decoded: file={path}")
    return body


MAIN_BRANCH_FILE: Final = "MAIN-BRANCH"


_SEALED: Final = "sealed"


def main_branch(io: FileIO, root: str) -> str:
    """Name of the main branch; ``main`` when it lies in the table's directory. Raises: CorruptDataError."""
    return _lines(io, root)[0]


def is_open_main(io: FileIO, root: str) -> bool:
    """Whether what is committed in the table's directory itself is a commit to main, and stays.

    Raises: CorruptDataError.
    """
    return _lines(io, root) == [MAIN_BRANCH]


def is_sealed_main(io: FileIO, root: str) -> bool:
    """Whether main lies in the table's directory itself and is sealed. Raises: CorruptDataError."""
    return _lines(io, root) == [MAIN_BRANCH, _SEALED]


def set_main_branch(io: FileIO, root: str, name: str) -> None:
    """Make a branch the main one, in one step."""
    path = f"{root}/{MAIN_BRANCH_FILE}"
    if name == MAIN_BRANCH:
        io.delete(path)
    else:
        io.replace(path, name.encode())


def seal_main(io: FileIO, root: str) -> None:
    """Main stays in the table's directory; whoever commits to it is told that it may not stay, until it is opened."""
    io.replace(f"{root}/{MAIN_BRANCH_FILE}", f"{MAIN_BRANCH}\n{_SEALED}".encode())


def _lines(io: FileIO, root: str) -> list[str]:
    path = f"{root}/{MAIN_BRANCH_FILE}"
    try:
        lines = io.read_bytes(path).decode(errors="replace").strip().split("\n")
    except FileNotFoundError:
        return [MAIN_BRANCH]
    if not lines[0] or "/" in lines[0]:
        raise CorruptDataError(f"name of the main branch cannot be read: file={path} name={lines[0]!r}")
    return lines
