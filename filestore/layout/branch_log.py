"""The log of a branch: its own, or none.

The topic of a table holds main's changes. A branch never writes there and is never read from there, so on a branch the
options of the log, which its schemas share with main's, are not in force. A branch that was made with a log of its own
has a file ``LOG`` in its directory, which names the topic. The file moves with the branch when it is renamed, goes when
it is deleted, and is no part of a schema: merging a branch into main does not bring its topic along.
"""

from collections.abc import Mapping
from typing import Final

import orjson

from filestore.io.file_io import FileIO
from filestore.layout.paths import MAIN_BRANCH, TablePaths
from lsm.errors import CorruptDataError

LOG_FILE: Final = "LOG"
"""In the directory of a branch: a JSON object of the options that say where its log is."""
_PREFIX: Final = "log."
_NO_LOG: Final = {"log.system": "none"}


def branch_options(io: FileIO, paths: TablePaths, options: Mapping[str, str]) -> Mapping[str, str]:
    """The options that are in force on a branch.

    Args:
        io: where the table is.
        paths: of the table, on the branch.
        options: of the branch's schema: those of main when the branch was made, and what was changed on the branch.

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
    """Whether an option is about a table's log."""
    return key.startswith(_PREFIX)


def read_branch_log(io: FileIO, paths: TablePaths) -> Mapping[str, str] | None:
    """What the file of a branch's log says; None when the branch has no log. Raises: CorruptDataError."""
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
    """Say where the log of a branch is; before the branch is visible. Raises: UnavailableError."""
    io.replace(_path(paths), orjson.dumps(dict(options), option=orjson.OPT_INDENT_2))


def _path(paths: TablePaths) -> str:
    return f"{paths.branch_root}/{LOG_FILE}"
