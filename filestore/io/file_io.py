"""The environment as arguments: files, clocks and unique names.

Whatever in ``filestore`` accesses a disk, reads a clock or generates a name takes one of these protocols, so that
tests can fail any single operation and control the time. Paths are plain absolute path strings.
"""

import errno
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Protocol, runtime_checkable

import pyarrow as pa

from filestore.io.disk import (
    check_kind,
    check_link,
    exchange,
    in_directory,
    link_new,
    make_directories,
    making,
    open_file,
    read_bounded,
    sync_directory,
    unavailable,
    write_synced,
    write_unsynced,
)
from lsm.errors import ConflictError, FluvialError
from lsm.undo import undoing


class FileIO(Protocol):
    """The file system operations that tables need. Every call either takes full effect or raises.

    A missing file is ``FileNotFoundError``, which callers handle; any other failure is ``UnavailableError``.
    """

    def read_bytes(self, path: str) -> bytes:
        """The contents of a file. Raises: FileNotFoundError."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory of this name exists."""

    def is_directory(self, path: str) -> bool:
        """Whether the path exists and is a directory."""

    def is_link(self, path: str) -> bool:
        """Whether the path is a symbolic link, which leads out of the table. Object stores have none."""

    def size_bytes(self, path: str) -> int:
        """Size of a file. Raises: FileNotFoundError."""

    def modified_ms(self, path: str) -> int:
        """Epoch milliseconds of the last change. Raises: FileNotFoundError."""

    def stamp(self, path: str) -> tuple[int, ...] | None:
        """Numbers that change when the file is rewritten, much cheaper to get than its contents.

        None: not supported, or not reliable yet. Raises: FileNotFoundError.
        """

    def list_names(self, directory: str) -> list[str]:
        """Names (not paths) of the entries of a directory, sorted; empty when there is no such directory."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, if missing."""

    def write_new(self, path: str, body: bytes) -> None:
        """Write and sync a file with a unique name; creates parents.

        Raises: ConflictError when the name is taken.
        """

    def create_exclusive(self, path: str, body: bytes) -> bool:
        """Create the file atomically with its whole body, synced, unless the name is taken (then False).

        Raises: UnavailableError when it was definitely not created; OutcomeUnknownError when it may have been.
        """

    def replace(self, path: str, body: bytes) -> None:
        """Atomically overwrite a small file: a reader sees the old or the new body."""

    def sync(self, path: str) -> None:
        """Sync a closed file and its directory entry to disk; for files written through ``open_output``."""

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""

    def delete_tree(self, path: str) -> None:
        """Delete a directory tree, if it exists."""

    def delete_empty_directory(self, path: str) -> bool:
        """Delete an empty directory; False when it is missing or not empty."""

    def open_input(self, path: str) -> pa.NativeFile:
        """Random-access reader. Raises: FileNotFoundError."""

    def open_output(self, path: str) -> pa.NativeFile:
        """Writer of a new file; creates parents. Close it, then ``sync`` the path."""


@runtime_checkable
class MovesDirectories(Protocol):
    """A file system that can rename directories atomically. Object stores cannot."""

    def move_directory(self, source: str, target: str) -> None:
        """Rename a directory. Raises: ConflictError when the target exists, FileNotFoundError."""

    def make_inside(self, path: str) -> bool:
        """Create a directory; False when its parent is missing, which is not created."""

    def move_into(self, source: str, directory: str) -> bool:
        """Rename a file or directory into an empty one, under its own name; False when one of the two is missing.

        Neither is created. So both are there at one moment: what is moved is in the same tree as the directory.
        """


@runtime_checkable
class ExchangesDirectories(Protocol):
    """A file system that can give two directories each other's names atomically, as Linux can for its own."""

    def exchange_directories(self, one: str, other: str) -> bool:
        """Exchange two names; False where this file system cannot. Raises: FileNotFoundError."""


_CHUNK_BYTES: Final = 8 << 20
_NO_LINKS: Final = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK)


@runtime_checkable
class LinksFiles(Protocol):
    """A file system with hard links. Object stores have none."""

    def link_file(self, source: str, target: str) -> bool:
        """Create a hard link; False where not supported, such as across disks. Creates parents."""


@runtime_checkable
class KnowsFiles(Protocol):
    """A file system where it costs a request more to know that a name is not that of a directory either."""

    def is_file(self, path: str) -> bool:
        """Whether a file of this name exists."""


@runtime_checkable
class KeepsHints(Protocol):
    """A file system where durable writes cost more than others."""

    def replace_hint(self, path: str, body: bytes) -> None:
        """As ``replace``, but after a power failure the file may be as before, or empty."""


def is_file(io: "FileIO", path: str) -> bool:
    """Whether a file exists, of a name that no directory has."""
    return io.is_file(path) if isinstance(io, KnowsFiles) else io.exists(path)


def write_hint(io: "FileIO", path: str, body: bytes) -> None:
    """Overwrite a small file that readers do not need to be right. Raises: as ``FileIO.replace``."""
    if isinstance(io, KeepsHints):
        io.replace_hint(path, body)
    else:
        io.replace(path, body)


def copy_file(io: "FileIO", source: str, target: str) -> None:
    """Copy a file to an unused name; the copy is deleted on failure."""
    with undoing(lambda: delete_leftover(io, target)):
        with io.open_input(source) as reader, io.open_output(target) as writer:
            while chunk := reader.read(_CHUNK_BYTES):
                writer.write(chunk)
        io.sync(target)


def delete_leftover(io: "FileIO", path: str) -> None:
    """Delete what no one refers to. When that fails it stays: an orphan costs space only."""
    with suppress(FluvialError, OSError):
        io.delete(path)


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""

    def local_ms(self) -> int:
        """The local wall clock read as if it were UTC: how Paimon stores file creation times."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class NameSource(Protocol):
    """A source of unique names."""

    def uuid(self) -> str:
        """36 characters, lower case, with dashes."""


_SETTLED_NS: Final = 2_000_000_000


class LocalFileIO:
    """POSIX files. Exclusive creation uses ``link(2)``, which never overwrites an existing file.

    A file that is a link is read where it leads to one below its own directory, or below those that its opener allows:
    else who may write in a table's directory could name any file of its readers. See ``check_link``.
    """

    _allowed: Sequence[str] = ()

    def __init__(self, *, allowed: Sequence[str] = ()) -> None:
        """Where links of files may lead to: real paths of directories."""
        self._allowed = allowed

    def read_bytes(self, path: str) -> bytes:
        """The contents of a file.

        Raises: FileNotFoundError; InvalidInputError for a link, see ``check_link``; CorruptDataError for what is no
            file, see ``check_kind`` and ``read_bounded``.
        """
        with unavailable("read", path), open(path, "rb", opener=self._opened) as file:
            return read_bounded(path, file)

    def _opened(self, path: str, flags: int) -> int:
        """Open a file: without a call for links, as the system refuses them."""
        try:
            return open_file(path, flags)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        return open_file(self._target(path), flags)

    def _target(self, path: str) -> str:
        """The real place of a link. Raises: InvalidInputError, see ``check_link``."""
        target, own = os.path.realpath(path), os.path.realpath(os.path.dirname(path))
        if not target.startswith(f"{own}/"):
            check_link(path, target, self._allowed)
        return target

    def exists(self, path: str) -> bool:
        """Whether a file or directory of this name exists."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether the path exists and is a directory."""
        return os.path.isdir(path)

    def is_link(self, path: str) -> bool:
        """Whether the path is a symbolic link, which leads out of the table. Raises: CorruptDataError."""
        try:
            mode = os.lstat(path).st_mode
        except (OSError, ValueError):  # ValueError: no file has such a name
            return False
        check_kind(path, mode)
        return stat.S_ISLNK(mode)

    def size_bytes(self, path: str) -> int:
        """Size of a file. Raises: FileNotFoundError."""
        with unavailable("stat", path):
            return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """Epoch milliseconds of the last change. Raises: FileNotFoundError."""
        with unavailable("stat", path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def stamp(self, path: str) -> tuple[int, ...] | None:
        """Inode, time and size; None for a file changed just now, since it may change again within one clock tick."""
        with unavailable("stat", path):
            found = os.stat(path)
        if time.time_ns() - found.st_mtime_ns < _SETTLED_NS:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def list_names(self, directory: str) -> list[str]:
        """Names of the entries, sorted; empty when there is no such directory."""
        with unavailable("list", directory):
            try:
                return sorted(os.listdir(directory))
            except FileNotFoundError:
                return []

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, if missing."""
        with making("make", path):
            make_directories(path)
            sync_directory(os.path.dirname(path))

    def write_new(self, path: str, body: bytes, *, mode: int = 0o666) -> None:
        """Write and sync a file with an unused name. Raises: ConflictError when the name is taken."""
        with making("write", path):
            try:
                in_directory(path, lambda: write_synced(path, body, mode=mode))
            except FileExistsError as error:
                raise ConflictError(f"file exists already, nothing was written: path={path}") from error
            sync_directory(os.path.dirname(path))

    def create_exclusive(self, path: str, body: bytes) -> bool:
        """Create a file atomically under an unused name; False when the name is taken."""
        directory, name = os.path.split(path)
        # A leading dot hides it from other Paimon readers, which parse every name in these directories.
        temporary = os.path.join(directory, f".{name}.{uuid.uuid4()}.tmp")
        try:
            with making("write", temporary):
                in_directory(temporary, lambda: write_synced(temporary, body))
            return link_new(temporary, path)
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def link_file(self, source: str, target: str) -> bool:
        """Create a hard link; False on another disk, or where not supported."""
        with unavailable("link", target):
            make_directories(os.path.dirname(target))
            try:
                os.link(source, target)
            except OSError as error:
                if error.errno in _NO_LINKS:
                    return False
                raise
            sync_directory(os.path.dirname(target))
        return True

    def replace(self, path: str, body: bytes) -> None:
        """Atomically overwrite a small file."""
        self._replace(path, body, write_synced)
        with making("replace", path):
            sync_directory(os.path.dirname(path))

    def replace_hint(self, path: str, body: bytes) -> None:
        """The same without waiting for the disk."""
        self._replace(path, body, write_unsynced)

    def _replace(self, path: str, body: bytes, write: Callable[[str, bytes], None]) -> None:
        directory, name = os.path.split(path)
        temporary = os.path.join(directory, f".{name}.{uuid.uuid4()}.tmp")
        try:
            with making("replace", path):
                in_directory(temporary, lambda: write(temporary, body))
                os.replace(temporary, path)
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def sync(self, path: str) -> None:
        """Sync a closed file and its directory entry to disk."""
        with making("sync", path):
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            sync_directory(os.path.dirname(path))

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        with unavailable("delete", path), suppress(FileNotFoundError):
            os.unlink(path)

    def delete_tree(self, path: str) -> None:
        """Delete a directory tree, if it exists."""
        with unavailable("delete", path), suppress(FileNotFoundError):
            shutil.rmtree(path)

    def move_directory(self, source: str, target: str) -> None:
        """Rename a directory. Raises: ConflictError when the target exists, FileNotFoundError."""
        with unavailable("move", source):
            try:
                make_directories(os.path.dirname(target))
                os.rename(source, target)  # can only replace an empty directory
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise ConflictError(f"directory exists already: path={target}") from error
                raise
            sync_directory(os.path.dirname(source))
            sync_directory(os.path.dirname(target))

    def exchange_directories(self, one: str, other: str) -> bool:
        """Exchange two names; False where this file system cannot. Raises: FileNotFoundError."""
        with unavailable("exchange", one):
            if not exchange(one, other):
                return False
            for path in {os.path.dirname(one), os.path.dirname(other)}:
                sync_directory(path)
        return True

    def make_inside(self, path: str) -> bool:
        """Create a directory; False when its parent is missing."""
        with unavailable("make", path), suppress(FileExistsError):
            try:
                os.mkdir(path)
            except FileNotFoundError:
                return False
        return True

    def move_into(self, source: str, directory: str) -> bool:
        """Rename a file or directory into an empty one, under its own name; False when one of the two is missing."""
        with unavailable("move", source):
            try:
                os.rename(source, os.path.join(directory, os.path.basename(source)))
            except FileNotFoundError:
                return False
        return True

    def delete_empty_directory(self, path: str) -> bool:
        """Delete an empty directory; False when it is missing or not empty."""
        try:
            os.rmdir(path)
        except (OSError, ValueError):  # ValueError: no directory has such a name
            return False
        return True

    def open_input(self, path: str) -> pa.NativeFile:
        """Random-access reader.

        Raises: FileNotFoundError; InvalidInputError for a link, see ``check_link``; CorruptDataError, see
            ``check_kind``.
        """
        with unavailable("open", path):
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                path = self._target(path)
                mode = os.lstat(path).st_mode
            check_kind(path, mode)
            return pa.OSFile(path, "rb")

    def open_output(self, path: str) -> pa.NativeFile:
        """Writer of a new file; creates parents."""
        with making("open", path):
            return in_directory(path, lambda: pa.OSFile(path, "wb"))


class SystemClock:
    """The system clock."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def local_ms(self) -> int:
        """The local wall clock read as if it were UTC."""
        now_ms = self.now_ms()
        offset = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().utcoffset()
        return now_ms + (round(offset.total_seconds() * 1000) if offset else 0)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class RandomNames:
    """Random UUIDs."""

    def uuid(self) -> str:
        """36 characters, lower case, with dashes."""
        return str(uuid.uuid4())
