"""The steps of a local disk, and what their errors mean."""

import ctypes
import errno
import os
import pwd
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO, Final, TypeVar

from filestore.io.places import is_inside
from lsm.errors import CorruptDataError, InvalidInputError, OutcomeUnknownError, UnavailableError
from lsm.undo import undoing

T = TypeVar("T")

_HERE: Final = -100  # AT_FDCWD: paths are not below an open directory
_EXCHANGE: Final = 2  # RENAME_EXCHANGE
_NOT_KNOWN: Final = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EXDEV)
_ANY_MODE: Final = 0o666  # as the process masks it
NAME_BYTES: Final = 255  # of one name, on the usual file systems
MOST_BYTES: Final = 2 << 30  # of a file that is read whole: manifests have 8 MiB, the index of a bucket 4 bytes a key
_KINDS: Final = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


class DirectoryGoneError(UnavailableError, FileNotFoundError):
    """A directory was renamed or deleted while a file was made in it."""

    def __str__(self) -> str:
        """The message; an ``OSError`` would make its own."""
        return str(self.args[0])


def exchange(one: str, other: str) -> bool:
    """Give two files or directories each other's names, atomically.

    Returns: False: the system or this file system has no such step, and nothing was done.

    Raises: OSError: as ``os.rename``.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:  # not Linux, or an old C library
        return False
    if call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_KNOWN:
        return False
    raise OSError(number, os.strerror(number), one)


@contextmanager
def making(action: str, path: str) -> Iterator[None]:
    """As ``unavailable``, for what makes a file: nothing is missing but its directory."""
    try:
        with unavailable(action, path):
            yield
    except FileNotFoundError as error:
        raise DirectoryGoneError(
            f"a directory was renamed or deleted meanwhile: action={action} path={path} "
            "fix='open the table again, by its new name if it was renamed'"
        ) from error


@contextmanager
def unavailable(action: str, path: str) -> Iterator[None]:
    """Other errors than of a missing file become UnavailableError, or InvalidInputError for a long name."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise InvalidInputError(
                f"a name is too long for the file system: action={action} path={path} most_bytes={NAME_BYTES} "
                "fix='use a shorter name, or partition by shorter values'"
            ) from error
        if isinstance(error, PermissionError):
            raise UnavailableError(
                f"this user has no right to a file: action={action} path={path} user={_user()} "
                "fix='give it the right, or run this as the user who owns the table'"
            ) from error
        raise UnavailableError(f"file system error: action={action} path={path} error={error}") from error


def _user() -> str:
    """The name of the process's user, as file systems see it; its number where it has no name, as in containers."""
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def check_link(path: str, target: str, allowed: Sequence[str]) -> None:
    """Refuse a link that leads out of the table to where its opener allows no files.

    Args:
        path: the link.
        target: its real place.
        allowed: real paths of the directories that the opener allows; the root directory is none.

    Raises: InvalidInputError naming the option that allows it.
    """
    if is_inside(target, allowed):
        return
    raise InvalidInputError(
        f"a link leads out of the table to where who opens it allows no files: path={path} target={target} "
        f"option=external-paths.allowed value={','.join(allowed) or None} "
        f"fix='set the catalog option external-paths.allowed={target} if you trust the table'"
    )


def check_kind(path: str, mode: int) -> None:
    """Refuse what no writer makes in a table's directory, and what may let a reader wait permanently.

    Args:
        path: of a file, a link, or a directory.
        mode: its ``st_mode``.

    Raises: CorruptDataError.
    """
    kind = _KINDS.get(stat.S_IFMT(mode))
    if kind is not None:
        raise CorruptDataError(
            f"what lies in a table's directory is no file, and nothing is read of it: path={path} kind={kind} "
            "fix='look who made it, delete it, and restore the file of this name'"
        )


def open_file(path: str, flags: int) -> int:
    """Open a file or directory that is no link, without waiting for who writes to a pipe: a descriptor.

    Raises: OSError: as ``os.open``, ELOOP for a link; CorruptDataError, see ``check_kind``.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # of a socket
            check_kind(path, os.lstat(path).st_mode)
        raise
    with undoing(lambda: os.close(descriptor)):
        check_kind(path, os.fstat(descriptor).st_mode)
    return descriptor


def read_bounded(path: str, file: BinaryIO) -> bytes:
    """The contents of an opened file. Raises: CorruptDataError for one that is larger than any that is read whole."""
    size = os.fstat(file.fileno()).st_size
    if size > MOST_BYTES:
        raise CorruptDataError(
            f"a file is too large to be one of a table's metadata: path={path} bytes={size} most={MOST_BYTES} "
            "fix='look who made it, and restore the file of this name'"
        )
    return file.read()


def make_directories(path: str) -> None:
    """Create a directory and its parents, if missing. Raises: InvalidInputError."""
    for last in (False, True):
        try:
            os.makedirs(path, exist_ok=True)
        except FileNotFoundError as error:  # a parent was deleted meanwhile, or can never be made
            if last:
                raise InvalidInputError(f"directory cannot be made: path={path} fix='use another warehouse'") from error
        else:
            return


def in_directory(path: str, do: Callable[[], T]) -> T:
    """Create a file; its directory and parents are made when they are missing. Raises: InvalidInputError."""
    try:
        return do()
    except FileNotFoundError:
        make_directories(os.path.dirname(path))
        return do()


def write_synced(path: str, body: bytes, *, mode: int = _ANY_MODE) -> None:
    """Write and sync a new file, whose mode is never wider. Raises: FileExistsError."""
    with open(path, "xb", opener=None if mode == _ANY_MODE else partial(os.open, mode=mode)) as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


def write_unsynced(path: str, body: bytes) -> None:
    """Write a new file, which may be empty after a power failure. Raises: FileExistsError."""
    with open(path, "xb") as file:
        file.write(body)


def link_new(temporary: str, path: str) -> bool:
    """Give a file a second name; False when it is taken. Raises: OutcomeUnknownError."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        # On a network file system the reply may be lost after the link was created.
        raise OutcomeUnknownError(f"file may or may not have been created: path={path} error={error}") from error
    try:
        sync_directory(os.path.dirname(path))
    except OSError as error:
        raise OutcomeUnknownError(f"file was created but may not survive a crash: path={path} error={error}") from error
    return True


def sync_directory(directory: str) -> None:
    """Sync the entries of a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
