"""The log of a branch: its own log, or none.

The topic of a table holds main's changes. A branch never writes there and is never read from there, so on a branch the
log options, which its schemas share with main's, have no effect. A branch created with its own log
has a file ``LOG`` in its directory, which names the topic. The file is moved when the branch is renamed, deleted when
it is deleted, and is not part of a schema: merging a branch into main does not affect main's topic.
"""

from collections.abc import Mapping
from typing import Final

import orjson

from filestore.io.file_io import FileIO
from filestore.layout.paths import MAIN_BRANCH, TablePaths
from lsm.errors import CorruptDataError

LOG_FILE: Final = "LOG"
"""File in the directory of a branch: a JSON object with the options of its log."""
_PREFIX: Final = "log."
_NO_LOG: Final = {"log.system": "none"}


def branch_options(io: FileIO, paths: TablePaths, options: Mapping[str, str]) -> Mapping[str, str]:
    """The effective options on a branch.

    Args:
        io: storage of the table.
        paths: paths of the table, on the branch.
        options: options of the branch's schema: main's at its creation, and changes on the branch.

    Raises:
        CorruptDataError: the file of the branch's log cannot be read.
    """
    if paths.branch == MAIN_BRANCH or not any(map(is_log_option, options)):
        return options
    log = read_branch_log(io, paths)
    if log is not None:
        return {**options, **log}
    return {key: value for key, value in options.items() if not is_log_option(key)} | _NO_LOG


def is_log_option(key: str) -> bool:
    """Whether an option belongs to a table's log."""
    return key.startswith(_PREFIX)


def read_branch_log(io: FileIO, paths: TablePaths) -> Mapping[str, str] | None:
    """The log options of a branch; None when it has no log. Raises: CorruptDataError."""
    path = _path(paths)
    try:
        body = io.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        return {str(key): str(value) for key, value in orjson.loads(body).items()}
    except (ValueError, AttributeError) as error:
        raise CorruptDataError(f"file of a branch's log cannot be decoded: file={path} error={error}") from error


def write_branch_log(io: FileIO, paths: TablePaths, options: Mapping[str, str]) -> None:
    """Store the log options of a branch, before the branch is visible. Raises: UnavailableError."""
    io.replace(_path(paths), orjson.dumps(dict(options), option=orjson.OPT_INDENT_2))


def _path(paths: TablePaths) -> str:
    return f"{paths.branch_root}/{LOG_FILE}"
