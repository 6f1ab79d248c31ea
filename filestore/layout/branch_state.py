"""The state of a branch in its directory: its origin, and the operation in progress.

Two small files beside the directories of the layout, which other readers ignore. ``ORIGIN`` never changes; a
branch of another engine has none. ``OPERATION`` is created exclusively, so that only one operation at a time runs on a
branch. It remains when its process dies: rerunning the same operation completes it. While a branch is being
created, deleted or renamed, it is hidden.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import orjson

from filestore.io.file_io import FileIO
from filestore.layout.file_names import optional_name
from filestore.layout.paths import MAIN_BRANCH, TablePaths
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError, OutcomeUnknownError

ORIGIN_FILE: Final = "ORIGIN"
OPERATION_FILE: Final = "OPERATION"


class Operation(StrEnum):
    """An operation on a whole branch."""

    CREATE = "create"
    DELETE = "delete"
    RENAME = "rename"
    MERGE = "merge"
    FAST_FORWARD = "fast-forward"
    REPLACE_MAIN = "replace-main"
    REWRITE = "rewrite"  # of a main branch: its newest snapshots are removed, or it is moved


NEEDING_A_BRANCH: Final = frozenset({Operation.FAST_FORWARD, Operation.MERGE, Operation.REPLACE_MAIN})
"""Operations that begin on a branch that exists."""

_HIDING: Final = frozenset({Operation.CREATE, Operation.DELETE, Operation.RENAME})
_SEALING: Final = _HIDING | {Operation.REWRITE}
_OF_BRANCHES: Final = _HIDING | {Operation.FAST_FORWARD, Operation.MERGE}  # never on the main one
_READING: Final = frozenset({Operation.RENAME, Operation.FAST_FORWARD, Operation.REPLACE_MAIN, Operation.REWRITE})


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchOrigin:
    """The origin of a branch."""

    parent: str | None = None  # the branch that it was created from; None: main
    parent_id: str = ""  # the id of that one's creation, whose name may be used again; "": it has none
    tag: str | None = None  # tag of the parent; None: created empty
    snapshot_id: int | None = None
    owns_tag: bool = False  # the tag was created for the branch, and is deleted with it
    schema_id: int  # the newest schema id copied from the parent
    first_schema_id: int  # the branch's schema id at creation: one higher if options were given
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # these options
    created_ms: int  # epoch milliseconds
    id: str = ""  # of this creation: another branch of the same name has another one; "": of an earlier version


def read_origin(io: FileIO, paths: TablePaths) -> BranchOrigin | None:
    """The origin of a branch; None: another engine created it. Raises: CorruptDataError."""
    path = f"{paths.branch_root}/{ORIGIN_FILE}"
    body = _read(io, path)
    if body is None:
        return None
    try:
        return BranchOrigin(
            parent=optional_name(body.get("parent")),
            parent_id=str(body.get("parentId", "")),
            tag=optional_name(body["tag"]),
            snapshot_id=None if body["snapshotId"] is None else int(body["snapshotId"]),
            owns_tag=bool(body["ownsTag"]),
            schema_id=int(body["schemaId"]),
            first_schema_id=int(body["firstSchemaId"]),
            options=dict(body["options"]),
            created_ms=int(body["createdMs"]),
            id=str(body.get("id", "")),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorruptDataError(f"origin of a branch cannot be decoded: file={path} error={error!r}") from error


def creation_id(io: FileIO, paths: TablePaths) -> str:
    """The id of a branch's creation; "" when nothing that can be read says it."""
    try:
        origin = read_origin(io, paths)
    except CorruptDataError:
        return ""
    return "" if origin is None else origin.id


def write_origin(io: FileIO, paths: TablePaths, origin: BranchOrigin) -> None:
    """Store the origin of a branch."""
    body = {
        **({} if origin.parent is None else {"parent": origin.parent}),
        **({"parentId": origin.parent_id} if origin.parent_id else {}),
        "tag": origin.tag,
        "snapshotId": origin.snapshot_id,
        "ownsTag": origin.owns_tag,
        "schemaId": origin.schema_id,
        "firstSchemaId": origin.first_schema_id,
        "options": dict(origin.options),
        "createdMs": origin.created_ms,
        **({"id": origin.id} if origin.id else {}),
    }
    io.replace(f"{paths.branch_root}/{ORIGIN_FILE}", orjson.dumps(body, option=orjson.OPT_INDENT_2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An operation on a branch with its arguments."""

    operation: Operation
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.operation.value, *(f"{name}={value}" for name, value in self.arguments.items())])


def read_work(io: FileIO, paths: TablePaths) -> Work | None:
    """The operation in progress on a branch, possibly of a dead process. Raises: CorruptDataError."""
    path = f"{paths.branch_root}/{OPERATION_FILE}"
    body = _read(io, path)
    if body is None:
        return None
    try:
        return Work(operation=Operation(body["operation"]), arguments=dict(body["arguments"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"operation on a branch cannot be decoded: file={path} error={error!r}") from error


def is_hidden(io: FileIO, paths: TablePaths) -> bool:
    """Whether the branch is being created, deleted or renamed. Raises: CorruptDataError."""
    return _is_at(io, paths, _HIDING)


def keeps_snapshots(io: FileIO, paths: TablePaths) -> bool:
    """Whether an operation in progress needs the branch's snapshots, so that none may expire."""
    return _is_at(io, paths, _READING)


def is_gone(io: FileIO, paths: TablePaths, *, schema_id: int) -> bool:
    """Whether a commit, tag or savepoint of the branch may be lost: it is deleted, renamed, no longer main, or sealed.

    Args:
        io: file system.
        paths: paths of a branch that was opened earlier.
        schema_id: id of a schema version that it had.
    """
    if paths.branch == MAIN_BRANCH:
        return not is_open_main(io, paths.root)
    return _is_at(io, paths, _SEALING) or not io.exists(paths.schema(schema_id))


def begin_work(io: FileIO, paths: TablePaths, work: Work) -> bool:
    """Start an operation as the only one on a branch.

    Returns:
        True: newly started. False: the same operation was started before, and must be completed.

    Raises:
        ConflictError: another operation is in progress or was interrupted; names it.
    """
    path = f"{paths.branch_root}/{OPERATION_FILE}"
    if io.create_exclusive(path, _body(work)):
        return True
    known = read_work(io, paths)
    if known is None or known == work:
        return known is None and begin_work(io, paths, work)
    raise ConflictError(
        f"another operation on the branch is in progress: branch={paths.branch} operation={known} wanted={work} "
        "fix=wait for it; if it was interrupted, run it again first"
    )


def replace_work(io: FileIO, paths: TablePaths, work: Work) -> None:
    """Start an operation in place of an interrupted one."""
    io.replace(f"{paths.branch_root}/{OPERATION_FILE}", _body(work))


def end_work(io: FileIO, paths: TablePaths) -> None:
    """Mark the operation as ended, so that others can start."""
    io.delete(f"{paths.branch_root}/{OPERATION_FILE}")
    io.delete_empty_directory(paths.branch_root)


def end_leftover_work(io: FileIO, operation: Operation, *branches: TablePaths) -> None:
    """End an operation that began after its branch was deleted or became main, and whose process died.

    Called by the same operation when it is refused for this reason: there is nothing to complete.
    """
    for paths in branches:
        known = read_work(io, paths)
        if known is None or known.operation is not operation:
            continue
        names = [each for each in io.list_names(paths.branch_root) if not each.startswith(".")]
        if names == [OPERATION_FILE] or _is_stray(io, paths, known):
            end_work(io, paths)


def complete_work(io: FileIO, paths: TablePaths) -> None:
    """Mark an operation as complete that has done everything, and look behind it whether it was in this table.

    Raises: OutcomeUnknownError when the table was renamed or dropped meanwhile, with the operation half done.
    """
    was_there = io.exists(f"{paths.branch_root}/{OPERATION_FILE}")
    end_work(io, paths)
    is_table_there = io.exists(f"{paths.root}/schema") or io.exists(f"{paths.root}/{MAIN_BRANCH_FILE}")
    if was_there and is_table_there:
        return
    if not is_table_there:
        io.delete_tree(paths.branch_dir)  # what was made under the former name
        for directory in (paths.tag_dir, paths.root):
            io.delete_empty_directory(directory)
    raise OutcomeUnknownError(
        f"table was dropped or renamed during an operation on a branch: path={paths.root} branch={paths.branch} "
        "fix='open it again under its new name and run the operation again'"
    )


@contextmanager
def working(io: FileIO, paths: TablePaths, work: Work) -> Iterator[bool]:
    """Run a block as the only operation on a branch; see ``begin_work`` for what the block gets.

    A refusal ends the operation too: InvalidInputError and ConflictError leave nothing half done. After any other error
    it must be run again.
    """
    is_new = begin_work(io, paths, work)
    try:
        yield is_new
    except (InvalidInputError, ConflictError):
        end_work(io, paths)
        raise
    complete_work(io, paths)


def _is_at(io: FileIO, paths: TablePaths, operations: Collection[Operation]) -> bool:
    if paths.branch == MAIN_BRANCH:
        return False
    work = read_work(io, paths)
    return work is not None and work.operation in operations and not _is_stray(io, paths, work)


def _is_stray(io: FileIO, paths: TablePaths, work: Work) -> bool:
    """Whether an operation began when its branch had become main: its process finds that out next, or has died."""
    return work.operation in _OF_BRANCHES and main_branch(io, paths.root) == paths.branch


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
_FIRST_SEALER: Final = "fast-forward with force"  # the only one that seals without its name
FAST_FORWARD_SEAL: Final = Work(operation=Operation.REWRITE)
"""Of a fast-forward with force, whatever its branch."""


def main_branch(io: FileIO, root: str) -> str:
    """Name of the main branch; ``main`` when it is in the table's directory. Raises: CorruptDataError."""
    return _lines(io, root)[0]


def is_open_main(io: FileIO, root: str) -> bool:
    """Whether commits in the table's directory itself are commits to main, and main is not sealed.

    A fast-forward without force only announces itself there: see ``publication``.

    Raises: CorruptDataError.
    """
    lines = _lines(io, root)
    return lines == [MAIN_BRANCH] or (
        lines[:2] == [MAIN_BRANCH, _SEALED] and "".join(lines[2:]).startswith(f"{Operation.FAST_FORWARD} to=")
    )


def seal_of_main(io: FileIO, root: str) -> str | None:
    """The operation that sealed main in the table's directory itself; None: it is not. Raises: CorruptDataError."""
    lines = _lines(io, root)
    return "\n".join(lines[2:]) or _FIRST_SEALER if lines[:2] == [MAIN_BRANCH, _SEALED] else None


def set_main_branch(io: FileIO, root: str, name: str) -> None:
    """Make a branch the main one, atomically."""
    path = f"{root}/{MAIN_BRANCH_FILE}"
    if name == MAIN_BRANCH:
        io.delete(path)
    else:
        io.replace(path, name.encode())


def seal(io: FileIO, paths: TablePaths, work: Work) -> None:
    """Seal a main branch for an operation: until it is unsealed, what is committed or tagged takes itself back.

    Commits, tags and savepoints look for a seal after they are visible. So what the operation finds after it sealed
    the branch is all that will be acknowledged. Idempotent: an operation that is run again finds its own seal.

    Raises: ConflictError: another operation has sealed it, or is in progress on it.
    """
    if paths.branch != MAIN_BRANCH:
        begin_work(io, paths, work)
        return
    body = _seal_body(work)
    if io.create_exclusive(f"{paths.root}/{MAIN_BRANCH_FILE}", body.encode()) or _lines(io, paths.root) == _split(body):
        return
    raise ConflictError(
        f"another operation on the branch is in progress: branch={paths.branch} main={_lines(io, paths.root)} "
        f"wanted={work} fix=wait for it; if it was interrupted, run it again first"
    )


def replace_seal(io: FileIO, paths: TablePaths, work: Work) -> None:
    """Seal a main branch in place of another seal."""
    if paths.branch != MAIN_BRANCH:
        replace_work(io, paths, work)
    else:
        io.replace(f"{paths.root}/{MAIN_BRANCH_FILE}", _seal_body(work).encode())


def is_sealed(io: FileIO, paths: TablePaths, work: Work) -> bool:
    """Whether this operation has sealed a main branch. Raises: CorruptDataError."""
    if paths.branch != MAIN_BRANCH:
        return read_work(io, paths) == work
    return _lines(io, paths.root) == _split(_seal_body(work))


def unseal(io: FileIO, paths: TablePaths, work: Work) -> None:
    """Take back the seal of this operation, if there is one."""
    if not is_sealed(io, paths, work):
        return
    if paths.branch != MAIN_BRANCH:
        end_work(io, paths)
    else:
        set_main_branch(io, paths.root, MAIN_BRANCH)


def _seal_body(work: Work) -> str:
    return "\n".join([MAIN_BRANCH, _SEALED, *([] if work == FAST_FORWARD_SEAL else [str(work)])])


def _split(text: str) -> list[str]:
    return text.strip().split("\n")


def _lines(io: FileIO, root: str) -> list[str]:
    path = f"{root}/{MAIN_BRANCH_FILE}"
    try:
        lines = _split(io.read_bytes(path).decode(errors="replace"))
    except FileNotFoundError:
        return [MAIN_BRANCH]
    if not lines[0] or "/" in lines[0]:
        raise CorruptDataError(f"name of the main branch cannot be read: file={path} name={lines[0]!r}")
    return lines
