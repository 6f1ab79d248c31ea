"""The key of a table's log: what says, to those who may read it, that a marker is the table's.

A topic may have more writers than the directory has. So what a marker of the log names becomes part of the table only
if it is signed with a secret that is never in the log: a file ``log-key/<32 hex digits>``, which the option
``log.marker-key`` names. Who has it can write for the table, so where files have owners only its maker may read it.
Each topic has a key of its own. The file is created once and stays as long as the table.

Beside it, ``<key>.place`` says where the directory lies, because a copy of the directory has the same id, topic and
key: its writers would take the log from the table's own. On a local disk it also has the number of the key's file,
which a directory keeps when it is moved or seen under another path, and a copy has not.
"""

import json
import os
import secrets
from dataclasses import dataclass
from typing import Any, Final

from filestore.io.file_io import FileIO, LocalFileIO, MovesDirectories
from filestore.layout.file_names import checked_name
from lsm.errors import CorruptDataError, UnavailableError

LOG_KEY_DIRECTORY: Final = "log-key"
_NAME_BYTES: Final = 16
_SECRET_BYTES: Final = 32
_PLACE: Final = ".place"
_SAME_SCHEMES: Final = ("s3a://", "s3n://")  # other words for s3://


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
    LogKeyPlace(io=io, root=root, name=name).note()
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class LogKeyPlace:
    """The path of a log's key. Picklable."""

    io: FileIO
    root: str  # the table's directory
    name: str  # of the key

    def note(self) -> None:
        """Say that the log belongs to the directory as it lies here. Raises: UnavailableError."""
        body = {"version": 1, "place": _absolute(self.io, self.root)} | self._file()
        self.io.replace(self._path, json.dumps(body, separators=(",", ":")).encode())

    def original(self) -> str | None:
        """The directory of which this one is a copy, as far as can be known; None: this one is the log's own.

        A directory that nothing is noted of is taken for the log's own, as is one that lies where it is noted, or was
        moved; that is noted. Whether the original is still there, see ``original_is_there``.

        Raises: UnavailableError.
        """
        try:
            noted = json.loads(self.io.read_bytes(self._path))
            place = str(noted["place"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            if self.original_is_there(self.root):  # else the table is dropped: a note would bring its directory back
                self.note()
            return None
        if place == _absolute(self.io, self.root):
            return None
        is_moved = noted.get("file") is not None and noted.get("file") == self._file().get("file")
        if not self.original_is_there(place):
            if not is_moved:
                return place
            self.note()
            return None
        return None if self._is_same_file(place) else place

    def original_is_there(self, place: str) -> bool:
        """Whether the key, whose name is random, is at a place, as far as this process can see it."""
        try:
            return self.io.exists(_path(place, self.name))
        except (OSError, UnavailableError):
            return False

    @property
    def _path(self) -> str:
        return f"{_path(self.root, checked_name(self.name))}{_PLACE}"

    def _is_same_file(self, place: str) -> bool:
        """Whether another path leads to the same file, by a link or a mount."""
        if not isinstance(self.io, LocalFileIO):
            return False
        try:
            return os.path.samefile(_path(place, self.name), _path(self.root, self.name))
        except OSError:
            return False

    def _file(self) -> dict[str, Any]:
        if not isinstance(self.io, LocalFileIO):
            return {}
        try:
            return {"file": os.stat(_path(self.root, self.name)).st_ino}
        except OSError:
            return {}


def note_places(io: FileIO, root: str) -> None:
    """Note that all logs of a table belong to its directory as it lies here. Raises: UnavailableError."""
    for name in io.list_names(f"{root}/{LOG_KEY_DIRECTORY}"):
        if name.endswith(_PLACE):
            LogKeyPlace(io=io, root=root, name=name.removesuffix(_PLACE)).note()


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


def move_directory(io: FileIO, source: str, target: str) -> None:
    """Move a table's directory, and with it the place of its logs. Raises: as ``MovesDirectories.move_directory``."""
    assert isinstance(io, MovesDirectories)
    io.move_directory(source, target)
    note_places(io, target)


def remove_log_key(io: FileIO, root: str, name: str) -> None:
    """Undo ``make_log_key``, also where nothing else is in the table's directory yet."""
    io.delete(_path(root, name))
    io.delete(f"{_path(root, name)}{_PLACE}")
    if io.delete_empty_directory(f"{root}/{LOG_KEY_DIRECTORY}"):
        io.delete_empty_directory(root)


def _absolute(io: FileIO, root: str) -> str:
    """The directory by a name that does not depend on the process."""
    if isinstance(io, LocalFileIO):
        return os.path.realpath(root)
    for scheme in _SAME_SCHEMES:
        root = root.replace(scheme, "s3://", 1) if root.startswith(scheme) else root
    return root.rstrip("/")


def _path(root: str, name: str) -> str:
    return f"{root}/{LOG_KEY_DIRECTORY}/{name}"
