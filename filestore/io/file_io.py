"""The outside world as arguments: files, clocks and fresh names.

Everything in ``filestore`` that touches a disk, reads a clock or invents a name takes one of these protocols, so that a
test can fail any single operation and replay any moment. Paths are plain absolute path strings.
"""

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Final, Protocol, runtime_checkable

import pyarrow as pa

from lsm.errors import ConflictError, FluvialError, OutcomeUnknownError, UnavailableError
from lsm.undo import undoing


class FileIO(Protocol):
    """What a table needs of a file system. Every call either has its whole effect or raises.

    A missing file is ``FileNotFoundError``, because callers decide by it; any other failure is ``UnavailableError``.
    """

    def read_bytes(self, path: str) -> bytes:
        """Whole content. Raises: FileNotFoundError."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory of this name is there."""

    def is_directory(self, path: str) -> bool:
        """Whether the path is there and is a directory."""

    def size_bytes(self, path: str) -> int:
        """Length of a file. Raises: FileNotFoundError."""

    def modified_ms(self, path: str) -> int:
        """Epoch milliseconds of the last change. Raises: FileNotFoundError."""

    def stamp(self, path: str) -> tuple[int, ...] | None:
        """Numbers that are others once the file is written again, got for much less than reading it.

        None: there are none like that, or none yet that can be relied on. Raises: FileNotFoundError.
        """

    def list_names(self, directory: str) -> list[str]:
        """Names (not paths) of the entries of a directory, sorted; empty when there is no such directory."""

    def make_directory(self, path: str) -> None:
        """Make a directory, and its parents; one that is there is fine."""

    def write_new(self, path: str, body: bytes) -> None:
        """Write and sync a file of a name that nobody else uses; parents are made.

        Raises: ConflictError when the name is taken.
        """

    def create_exclusive(self, path: str, body: bytes) -> bool:
        """Make the file appear with its whole body, synced, unless the name is taken (then False).

        Raises: UnavailableError when it surely did not appear; OutcomeUnknownError when it may have.
        """

    def replace(self, path: str, body: bytes) -> None:
        """Atomically overwrite a small file: a reader sees the old or the new body."""

    def sync(self, path: str) -> None:
        """Force a closed file and its directory entry to the disk; for files written through ``open_output``."""

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is fine."""

    def delete_tree(self, path: str) -> None:
        """Remove a directory with all below it; a missing one is fine."""

    def delete_empty_directory(self, path: str) -> bool:
        """Remove a directory that nothing is in; False when it is not there or something is in it."""

    def open_input(self, path: str) -> pa.NativeFile:
        """Random-access reader. Raises: FileNotFoundError."""

    def open_output(self, path: str) -> pa.NativeFile:
        """Writer of a new file; parents are made. Close it, then ``sync`` the path."""


@runtime_checkable
class MovesDirectories(Protocol):
    """A file system that can rename a directory in one step. Object stores cannot."""

    def move_directory(self, source: str, target: str) -> None:
        """Give a directory another path. Raises: ConflictError when the target is there, FileNotFoundError."""


_CHUNK_BYTES: Final = 8 << 20
_NO_LINKS: Final = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK)


@runtime_checkable
class LinksFiles(Protocol):
    """A file system in which a file can have two names. Object stores cannot."""

    def link_file(self, source: str, target: str) -> bool:
        """Give a file a second name; False where that cannot be, as on another disk. Parents are made."""


def copy_file(io: "FileIO", source: str, target: str) -> None:
    """Copy a file to a free name; when it fails nothing is left there."""
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
    """Time, as far as the table cares."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""

    def local_ms(self) -> int:
        """The local wall clock read as if it were UTC: how Paimon stores file creation times."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class NameSource(Protocol):
    """Names that nobody has used before."""

    def uuid(self) -> str:
        """36 characters, lower case, with dashes."""


_SETTLED_NS: Final = 2_000_000_000


class LocalFileIO:
    """POSIX files. Exclusive creation is ``link(2)``, which no other process can lose to or overwrite."""

    def read_bytes(self, path: str) -> bytes:
        """Whole content. Raises: FileNotFoundError."""
        with _unavailable("read", path), open(path, "rb") as file:
            return file.read()

    def exists(self, path: str) -> bool:
        """Whether a file or directory of this name is there."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether the path is there and is a directory."""
        return os.path.isdir(path)

    def size_bytes(self, path: str) -> int:
        """Length of a file. Raises: FileNotFoundError."""
        with _unavailable("stat", path):
            return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """Epoch milliseconds of the last change. Raises: FileNotFoundError."""
        with _unavailable("stat", path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def stamp(self, path: str) -> tuple[int, ...] | None:
        """Inode, time and size; of a file that has just changed None, for it may change again within one tick."""
        with _unavailable("stat", path):
            found = os.stat(path)
        if time.time_ns() - found.st_mtime_ns < _SETTLED_NS:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def list_names(self, directory: str) -> list[str]:
        """Names of the entries, sorted; empty when there is no such directory."""
        with _unavailable("list", directory):
            try:
                return sorted(os.listdir(directory))
            except FileNotFoundError:
                return []

    def make_directory(self, path: str) -> None:
        """Make a directory, and its parents; one that is there is fine."""
        with _unavailable("make", path):
            os.makedirs(path, exist_ok=True)
            _sync_directory(os.path.dirname(path))

    def write_new(self, path: str, body: bytes) -> None:
        """Write and sync a file of an unused name. Raises: ConflictError when the name is taken."""
        with _unavailable("write", path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            try:
                _write_synced(path, body)
            except FileExistsError as error:
                raise ConflictError(f"file exists already, nothing was written: path={path}") from error
            _sync_directory(os.path.dirname(path))

    def create_exclusive(self, path: str, body: bytes) -> bool:
        """Publish a whole file under a free name; False when the name is taken."""
        directory, name = os.path.split(path)
        # A leading dot keeps other Paimon readers, which parse every name in these directories, from seeing it.
        temporary = os.path.join(directory, f".{name}.{uuid.uuid4()}.tmp")
        try:
            with _unavailable("write", temporary):
                os.makedirs(directory, exist_ok=True)
                _write_synced(temporary, body)
            return _link(temporary, path)
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def link_file(self, source: str, target: str) -> bool:
        """A hard link; False on another disk, or where there are none."""
        with _unavailable("link", target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            try:
                os.link(source, target)
            except OSError as error:
                if error.errno in _NO_LINKS:
                    return False
                raise
            _sync_directory(os.path.dirname(target))
        return True

    def replace(self, path: str, body: bytes) -> None:
        """Atomically overwrite a small file."""
        directory, name = os.path.split(path)
        temporary = os.path.join(directory, f".{name}.{uuid.uuid4()}.tmp")
        try:
            with _unavailable("replace", path):
                os.makedirs(directory, exist_ok=True)
                _write_synced(temporary, body)
                os.replace(temporary, path)
                _sync_directory(directory)
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def sync(self, path: str) -> None:
        """Force a closed file and its directory entry to the disk."""
        with _unavailable("sync", path):
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            _sync_directory(os.path.dirname(path))

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        with _unavailable("delete", path), suppress(FileNotFoundError):
            os.unlink(path)

    def delete_tree(self, path: str) -> None:
        """Remove a directory with all below it; a missing one is fine."""
        with _unavailable("delete", path), suppress(FileNotFoundError):
            shutil.rmtree(path)

    def move_directory(self, source: str, target: str) -> None:
        """Give a directory another path. Raises: ConflictError when the target is there, FileNotFoundError."""
        with _unavailable("move", source):
            try:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                os.rename(source, target)  # replaces an empty directory, and nothing else
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise ConflictError(f"directory exists already: path={target}") from error
                raise
            _sync_directory(os.path.dirname(source))
            _sync_directory(os.path.dirname(target))

    def delete_empty_directory(self, path: str) -> bool:
        """Remove a directory that nothing is in; False when it is not there or something is in it."""
        try:
            os.rmdir(path)
        except OSError:
            return False
        return True

    def open_input(self, path: str) -> pa.NativeFile:
        """Random-access reader. Raises: FileNotFoundError."""
        with _unavailable("open", path):
            return pa.OSFile(path, "rb")

    def open_output(self, path: str) -> pa.NativeFile:
        """Writer of a new file; parents are made."""
        with _unavailable("open", path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return pa.OSFile(path, "wb")


class SystemClock:
    """The machine's clock."""

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


@contextmanager
def _unavailable(action: str, path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnavailableError(f"file system refused: action={action} path={path} error={error}") from error


def _write_synced(path: str, body: bytes) -> None:
    with open(path, "xb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


def _link(temporary: str, path: str) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        # Over a network file system the reply may be lost after the link was made.
        raise OutcomeUnknownError(f"file may or may not have appeared: path={path} error={error}") from error
    try:
        _sync_directory(os.path.dirname(path))
    except OSError as error:
        raise OutcomeUnknownError(f"file appeared but may not survive a crash: path={path} error={error}") from error
    return True


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
