"""Logins that earlier versions and other writers stored with a table: where they are, and taking them out.

The options of a table are in its schema files, of every version and branch, and in the notes of branches. All who may
read the table's files see them.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from filestore.io.file_io import FileIO
from filestore.layout.branch_log import LOG_FILE
from filestore.layout.branch_state import ORIGIN_FILE
from filestore.layout.paths import MAIN_BRANCH, SCHEMA_PREFIX, TablePaths
from filestore.options.log_login import is_openers, openers_of
from filestore.options.secrets import secrets_of_log, shown_value
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError
from lsm.secret_names import STARS

_USER: Final = re.compile(r"(?<=//)[^/?#]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLogin:
    """A file of a table that holds a login, or other options that are only for those to give who open it."""

    path: str
    options: tuple[str, ...]  # their keys, sorted


def find_logins(store: TableStore, branches: Iterable[str]) -> list[StoredLogin]:
    """The files that hold logins, by path.

    Args:
        store: the table, on any branch.
        branches: all branches to look at, main among them.

    Raises:
        CorruptDataError: a file cannot be decoded.
    """
    found = []
    for branch in branches:
        for path in _files(store.io, store.paths.with_branch(branch)):
            body = _read(store.io, path)
            if body is not None and (keys := _not_for_files(_options(body))):
                found.append(StoredLogin(path=path, options=tuple(keys)))
    return sorted(found, key=lambda each: each.path)


def remove_logins(store: TableStore, branches: Callable[[], Iterable[str]]) -> list[StoredLogin]:
    """Take the logins out of all files, which keep everything else. Idempotent: run it again after a crash.

    A change of the schema beside it is published without the login, or refused: it looks at the version before its
    own again once its own is there, and here the versions are listed again after the last file was changed.

    Args:
        store: the table, on any branch.
        branches: lists the branches, for each pass again.

    Returns:
        The files that were changed, by path.
    """
    changed: dict[str, StoredLogin] = {}
    while found := find_logins(store, branches()):
        for each in found:
            _clean(store.io, each.path)
        changed |= {each.path: each for each in found}
    return [changed[path] for path in sorted(changed)]


def _files(io: FileIO, paths: TablePaths) -> Iterator[str]:
    for name in io.list_names(paths.schema_dir):
        if name.startswith(SCHEMA_PREFIX):
            yield f"{paths.schema_dir}/{name}"
    if paths.branch != MAIN_BRANCH:
        yield from (f"{paths.branch_root}/{name}" for name in (LOG_FILE, ORIGIN_FILE))


def _read(io: FileIO, path: str) -> dict[str, Any] | None:
    try:
        body = orjson.loads(io.read_bytes(path))
    except FileNotFoundError:  # most branches have no log, those of other engines no origin
        return None
    except ValueError as error:
        raise CorruptDataError(f"file of a table cannot be decoded: file={path} error={error}") from error
    if not isinstance(body, dict):
        raise CorruptDataError(f"file of a table holds no object: file={path}")
    return body


def _options(body: dict[str, Any]) -> dict[str, Any]:
    """The options in a file: those of a branch's log are all that is in it."""
    found = body.get("options", body)
    return found if isinstance(found, dict) else {}


def _not_for_files(options: dict[str, Any]) -> list[str]:
    """Options in a file that no file should have: secrets, and options that only openers may give; sorted."""
    return sorted({*secrets_of_log(options), *openers_of(options)})


def _clean(io: FileIO, path: str) -> None:
    body = _read(io, path)
    if body is None:
        return
    options = _options(body)
    for key in _not_for_files(options):
        address = _USER.sub("", str(options[key]))
        if (
            not is_openers(key) and shown_value(key, address) == address != STARS
        ):  # the password was in an address, whose rest stays
            options[key] = address
        else:
            del options[key]
    io.replace(path, orjson.dumps(body, option=orjson.OPT_INDENT_2))
