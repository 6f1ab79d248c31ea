"""The key of a table's log: what says, to those who may read it, that a marker is the table's.

A topic may have more writers than the directory has. So what a marker of the log names becomes part of the table only
if it is signed with a secret that is never in the log: a file ``log-key/<32 hex digits>``, which the option
``log.marker-key`` names. Who has it can write for the table, so where files have owners only its maker may read it.
Each topic has a key of its own. The file is created once and stays as long as the table.
"""

import secrets
from typing import Final

from filestore.io.file_io import FileIO, LocalFileIO
from filestore.layout.file_names import checked_name
from lsm.errors import CorruptDataError, UnavailableError

LOG_KEY_DIRECTORY: Final = "log-key"
_NAME_BYTES: Final = 16
_SECRET_BYTES: Final = 32


def make_log_key(io: FileIO, root: str) -> str:
    """Create a key.

    Args:
        io: storage of the table.
        root: the table's directory; it may be missing yet.

    Returns:
        Its name, for ``log.marker-key``.

    Raises:
        UnavailableError: the storage does not answer.
    """
    name = secrets.token_hex(_NAME_BYTES)
    secret = secrets.token_hex(_SECRET_BYTES).encode()
    if isinstance(io, LocalFileIO):
        io.write_new(_path(root, name), secret, mode=0o600)
    else:
        io.write_new(_path(root, name), secret)
    return name


def read_log_key(io: FileIO, root: str, name: str) -> bytes | None:
    """The secret, 32 bytes; None when its file is missing, or closed to the user of this process.

    Raises:
        CorruptDataError: the file holds no key, or the option no name.
    """
    try:
        secret = bytes.fromhex(io.read_bytes(_path(root, checked_name(name))).decode())
    except FileNotFoundError:
        return None
    except UnavailableError as error:
        if isinstance(error.__cause__, PermissionError):
            return None
        raise
    except ValueError as error:
        raise CorruptDataError(f"key of a log cannot be read: directory={root} log.marker-key={name!r}") from error
    if len(secret) != _SECRET_BYTES:
        raise CorruptDataError(f"key of a log has the wrong size: file={_path(root, name)} bytes={len(secret)}")
    return secret


def remove_log_key(io: FileIO, root: str, name: str) -> None:
    """Undo ``make_log_key``, also where nothing else is in the table's directory yet."""
    io.delete(_path(root, name))
    if io.delete_empty_directory(f"{root}/{LOG_KEY_DIRECTORY}"):
        io.delete_empty_directory(root)


def _path(root: str, name: str) -> str:
    return f"{root}/{LOG_KEY_DIRECTORY}/{name}"
