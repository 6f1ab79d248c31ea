"""Object stores as a file system: S3 and what is compatible with it, Google Cloud Storage, Azure's Blob service.

There are no directories, only keys: a directory exists as long as there are objects below it. Exclusive creation is a
PUT under a condition: ``If-None-Match: *`` in S3 and Azure, ``x-goog-if-generation-match: 0`` in GCS. Some stores
ignore such a header and overwrite; so before the first creation of a process, two requests for one key test whether
the second is refused. If not, snapshots can only be published under a lock, and are refused without one. Each creation
stores a unique claim in the object's metadata: after a lost response, it shows whether this request created the object.
Source: conditional writes of Amazon S3, request preconditions of GCS, conditional headers of Azure's Blob service.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pyarrow as pa

from filestore.io.commit_lock import CatalogLockFactory, LocksDirectories
from filestore.io.file_io import Clock, FileIO, NameSource, RandomNames, SystemClock
from filestore.io.object_clients import AZURE_SCHEMES, GCS_SCHEMES, MISSING_BUCKET, SCHEMES, StoreSettings, client_of
from filestore.io.object_streams import ObjectReader, ObjectWriter
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError, UnavailableError
from lsm.secret_names import shown_line

if TYPE_CHECKING:
    from filestore.io.object_clients import Client

DIRECTORY_MARKER: Final = ".directory"  # represents an empty database; other readers skip names with a dot
ATTEMPTS: Final = 4
_DELETE_BATCH: Final = 1000
_MESSAGE_CHARS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStorageIO:
    """A bucket as a ``FileIO``; paths are ``scheme://bucket/key``. Picklable: connections are opened on use."""

    settings: StoreSettings
    guarded: bool = False  # every creation happens under a lock, so conditional writes are not required
    clock: Clock = field(default_factory=SystemClock, repr=False)
    names: NameSource = field(default_factory=RandomNames, repr=False)

    def read_bytes(self, path: str) -> bytes:
        """The contents of an object. Raises: FileNotFoundError."""
        with _errors("read", path):
            return bytes(self._store.get(self._key(path)).bytes())

    def exists(self, path: str) -> bool:
        """Whether an object or a directory of this name exists."""
        return self.is_file(path) or self.is_directory(path)

    def is_file(self, path: str) -> bool:
        """Whether an object of this name exists."""
        try:
            self.size_bytes(path)
        except FileNotFoundError:
            return False
        return True

    def is_directory(self, path: str) -> bool:
        """Whether there are objects below the path."""
        with _errors("list", path):
            return any(chunk for chunk in self._store.list(self._key(path), chunk_size=1))

    def is_link(self, path: str) -> bool:
        """Always False: there are none."""
        return False

    def size_bytes(self, path: str) -> int:
        """Size of an object. Raises: FileNotFoundError."""
        with _errors("stat", path):
            return int(self._store.head(self._key(path))["size"])

    def modified_ms(self, path: str) -> int:
        """Epoch milliseconds of the last change, with a resolution of seconds. Raises: FileNotFoundError."""
        with _errors("stat", path):
            return int(self._store.head(self._key(path))["last_modified"].timestamp() * 1000)

    def stamp(self, path: str) -> tuple[int, ...] | None:
        """None: a HEAD request costs as much as reading a small object."""
        return None

    def list_names(self, directory: str) -> list[str]:
        """Names of the objects and directories in a directory, sorted; empty when there is none."""
        with _errors("list", directory):
            found = self._store.list_with_delimiter(self._key(directory))
        keys = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        names = {key.rstrip("/").rpartition("/")[2] for key in keys}
        return sorted(names - {DIRECTORY_MARKER, ""})

    def make_directory(self, path: str) -> None:
        """Create a marker object, which represents the directory while it is empty."""
        self.replace(f"{path}/{DIRECTORY_MARKER}", b"")

    def write_new(self, path: str, body: bytes) -> None:
        """Write an object with an unused name. Raises: ConflictError when the name is taken."""
        try:
            # The name is unique, so a store that ignores the header does no harm.
            written = self._put_new(path, body, conditional=_PROBED.get(self.settings, True))
        except OutcomeUnknownError as error:  # nothing refers to it, so it does not matter whether it exists
            raise UnavailableError(str(error)) from error
        if not written:
            raise ConflictError(f"file exists already, nothing was written: path={path}")

    def create_exclusive(self, path: str, body: bytes) -> bool:
        """Create an object under an unused name; False when the name is taken.

        Raises:
            InvalidInputError: the store has no conditional writes, and there is no lock. Nothing was written.
            UnavailableError: it was definitely not created.
            OutcomeUnknownError: it may have been created.
        """
        conditional = self.has_conditional_put(path)
        if not self.guarded and not conditional:
            raise InvalidInputError(
                f"object store ignores {self.settings.condition}: one commit could overwrite another, nothing was "
                f"written: path={path} endpoint={self.settings.endpoint} "
                "fix='use a catalog with a lock (metastore=jdbc with lock.enabled=true), or another store'"
            )
        return self._put_new(path, body, conditional=conditional)

    def replace(self, path: str, body: bytes) -> None:
        """Overwrite a small object atomically: a reader sees the old or the new body."""
        with _write_errors("replace", path, self.settings):
            self._store.put(self._key(path), body, use_multipart=False)

    def sync(self, path: str) -> None:
        """No effect: visible objects are durable."""

    def delete(self, path: str) -> None:
        """Delete an object, if it exists."""
        with suppress(FileNotFoundError), _errors("delete", path):
            self._store.delete(self._key(path))

    def delete_tree(self, path: str) -> None:
        """Delete all objects below a path."""
        with suppress(FileNotFoundError), _errors("delete", path):
            for chunk in self._store.list(self._key(path), chunk_size=_DELETE_BATCH):
                self._store.delete([each["path"] for each in chunk])

    def delete_empty_directory(self, path: str) -> bool:
        """False: key prefixes do not exist without objects."""
        return False

    def open_input(self, path: str) -> pa.NativeFile:
        """Random-access reader. Raises: FileNotFoundError."""
        reader = ObjectReader(self._store, self._key(path), partial(_errors, "read", path))
        return pa.PythonFile(reader, mode="r")

    def open_output(self, path: str) -> pa.NativeFile:
        """Writer of a new object, which becomes visible on close."""
        guard = partial(_write_errors, "write", path, self.settings)
        return pa.PythonFile(ObjectWriter(self._store, self._key(path), guard), mode="w")

    @property
    def _store(self) -> "Client":
        return client_of(self.settings)

    def _key(self, path: str) -> str:
        parts = path.split("/", 3)  # scheme, nothing, bucket, key
        key = parts[3] if len(parts) > 3 else ""
        if "/".join(parts[:3]) not in self.settings.addresses:
            raise InvalidInputError(f"path is not in this bucket: path={path} bucket={self.settings.bucket}")
        return key.rstrip("/")

    def has_conditional_put(self, path: str) -> bool:
        """Whether the store supports conditional writes; tested once per process and bucket."""
        with _PROBE_LOCK:
            if self.settings not in _PROBED:
                probe = f"{path.rpartition('/')[0]}/.probe-{self.names.uuid()}"
                _PROBED[self.settings] = self._probe(self._key(probe), probe)
            return _PROBED[self.settings]

    def _probe(self, key: str, path: str) -> bool:
        try:
            with _write_errors("probe", path, self.settings):
                self._store.put(key, b"1", mode="create")
                self._store.put(key, b"2", mode="create")
        except UnavailableError as error:
            if _says_taken(error):
                return True
            if _says_unsupported(error):
                return False
            raise
        finally:
            self.delete(path)
        return False

    def _put_new(self, path: str, body: bytes, *, conditional: bool) -> bool:
        """Whether this call created the object; False when it existed before."""
        key, claim, may_exist = self._key(path), self.names.uuid(), False
        for attempt in range(ATTEMPTS):
            if attempt:
                self.clock.sleep(0.1 * 2**attempt)
            try:
                if not conditional and not may_exist and self.is_file(path):
                    return False
                with _write_errors("create", path, self.settings):
                    self._store.put(
                        key,
                        body,
                        mode="create" if conditional else "overwrite",
                        use_multipart=False,
                        attributes={self.settings.claim: claim},
                    )
            except UnavailableError as error:
                if conditional and _says_unsupported(error):
                    conditional = _PROBED[self.settings] = False
                    continue
                is_created = self._resolve(error, key, claim, body)
                if is_created is not None:
                    return is_created
                may_exist, failure = True, error
            else:
                return True
        raise OutcomeUnknownError(f"object may or may not have been created: path={path} error={failure}") from failure

    def _resolve(self, error: UnavailableError, key: str, claim: str, body: bytes) -> bool | None:
        """Whether a failed creation did create the object; None: unknown, retry.

        Raises: UnavailableError when the creation definitely had no effect.
        """
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        cause = error.__cause__
        if isinstance(cause, (FileNotFoundError, PermissionDeniedError, UnauthenticatedError)):
            raise error
        try:
            with _errors("stat", key):
                found = self._store.get(key)
                claims = found.attributes.get(self.settings.claim)
                return claims == claim if claims is not None else bytes(found.bytes()) == body
        except FileNotFoundError:
            return False if _says_taken(error) else None
        except UnavailableError:
            return None


_PROBED: Final[dict[StoreSettings, bool]] = {}
_PROBE_LOCK: Final = threading.Lock()


def is_object_path(path: str) -> bool:
    """Whether a path or URL refers to an object store."""
    return urlsplit(path).scheme in SCHEMES


def is_remote_path(path: str) -> bool:
    """Whether a path or URL refers to anything but the file system of this machine."""
    return "://" in path and urlsplit(path).scheme != "file"


def under_lock(io: FileIO) -> FileIO:
    """The file system for use under the table's lock, where exclusive creation needs no conditional writes."""
    return replace(io, guarded=True) if isinstance(io, ObjectStorageIO) else io


def check_renaming(io: FileIO, path: str, lock: CatalogLockFactory | None = None) -> None:
    """Refuse another name for a directory where a lock of the name alone keeps writers apart.

    Raises: InvalidInputError: writers that opened it under the old name would hold another lock.
    """
    if isinstance(io, ObjectStorageIO) and not isinstance(lock, LocksDirectories) and not io.has_conditional_put(path):
        raise InvalidInputError(
            f"object store ignores {io.settings.condition}, so writers of the old and of the new name would not "
            f"exclude each other: path={path} endpoint={io.settings.endpoint} "
            "fix='CALL sys.copy to the new name, and DROP TABLE'"
        )


def check_library(scheme: str = "s3") -> None:
    """Raises: InvalidInputError with the install command if the object storage library is missing."""
    try:
        import obstore  # noqa: F401
    except ImportError as error:
        extra = "gcs" if scheme in GCS_SCHEMES else "azure" if scheme in AZURE_SCHEMES else "s3"
        raise InvalidInputError(f"object storage needs a library: fix=pip install 'fluvial[{extra}]'") from error


def _says_taken(error: UnavailableError) -> bool:
    from obstore.exceptions import AlreadyExistsError

    return isinstance(error.__cause__, AlreadyExistsError)


def _says_unsupported(error: UnavailableError) -> bool:
    from obstore.exceptions import NotSupportedError

    return isinstance(error.__cause__, NotSupportedError) or " 501 " in str(error)


@contextmanager
def _errors(action: str, path: str) -> Iterator[None]:
    """Maps a missing object to FileNotFoundError, and all other errors of the store to UnavailableError."""
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError as error:
        _refuse_missing_bucket(error, action, path)
        raise FileNotFoundError(f"no such object: path={path}") from error
    except (BaseError, OSError, ValueError) as error:
        _refuse_missing_bucket(error, action, path)
        said = shown_line(str(error).splitlines()[0])[:_MESSAGE_CHARS] if str(error) else type(error).__name__
        raise UnavailableError(f"object store error: action={action} path={path} error={said}") from error


def _refuse_missing_bucket(error: Exception, action: str, path: str) -> None:
    if any(code in str(error) for code in MISSING_BUCKET):
        raise InvalidInputError(
            f"no such bucket: action={action} path={path} bucket={urlsplit(path).netloc} "
            "fix='create it, or correct the address of the warehouse'"
        ) from error


@contextmanager
def _write_errors(action: str, path: str, settings: StoreSettings) -> Iterator[None]:
    """Like ``_errors``; for writes, not found means that the bucket is missing."""
    try:
        with _errors(action, path):
            yield
    except FileNotFoundError as error:
        raise InvalidInputError(
            f"no such bucket: action={action} path={path} bucket={settings.bucket} endpoint={settings.endpoint} "
            "fix='create it, or correct the address of the warehouse'"
        ) from error
