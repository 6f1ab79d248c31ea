"""HDFS as a file system, by WebHDFS. Commits are renames, of which the name node lets one win.

Files are written under a hidden name and renamed, so that no reader sees a part of one. When the answer to a rename is
lost, the rename is repeated: no other writer uses the hidden name, so if it is missing, the rename was done.
"""

import io as streams
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from filestore.io.file_io import NameSource, RandomNames
from filestore.io.hdfs_client import IS_TAKEN, HdfsRefusalError, Upload, WebHdfs
from filestore.io.object_clients import HDFS_SCHEME
from filestore.io.object_streams import ObjectReader
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError, UnavailableError

_NEVER: Final = "NONE"  # a rename never replaces what is there
_OVER: Final = "OVERWRITE"  # a rename replaces a file, or an empty directory
_NOT_EMPTY: Final = "PathIsNotEmptyDirectoryException"


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsIO:
    """A ``FileIO`` with directories that move; paths are ``hdfs://authority/path``. It can be pickled."""

    client: WebHdfs
    root: str  # the warehouse, for directories that are made before they are moved
    names: NameSource = field(default_factory=RandomNames, repr=False)

    def read_bytes(self, path: str) -> bytes:
        """The contents of a file. Raises: FileNotFoundError."""
        return self.client.read(self._inner(path))

    def exists(self, path: str) -> bool:
        """Whether a file or directory of this name exists."""
        try:
            self._status(path)
        except FileNotFoundError:
            return False
        return True

    def is_directory(self, path: str) -> bool:
        """Whether the path exists and is a directory."""
        try:
            return bool(self._status(path)["type"] == "DIRECTORY")
        except FileNotFoundError:
            return False

    def is_link(self, path: str) -> bool:
        """Always False: name nodes follow their links themselves."""
        return False

    def size_bytes(self, path: str) -> int:
        """Size of a file. Raises: FileNotFoundError."""
        return int(self._status(path)["length"])

    def modified_ms(self, path: str) -> int:
        """Epoch milliseconds of the last change, by the name node. Raises: FileNotFoundError."""
        return int(self._status(path)["modificationTime"])

    def stamp(self, path: str) -> tuple[int, ...] | None:
        """None: a request for the status costs half of reading a small file."""
        return None

    def list_names(self, directory: str) -> list[str]:
        """Names of the entries, sorted; empty when there is no such directory."""
        try:
            found = self.client.ask("GET", "LISTSTATUS", self._inner(directory))
        except FileNotFoundError:
            return []
        return sorted(each["pathSuffix"] for each in found["FileStatuses"]["FileStatus"] if each["pathSuffix"])

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, if missing."""
        self.client.ask("PUT", "MKDIRS", self._inner(path))

    def write_new(self, path: str, body: bytes) -> None:
        """Write a file with an unused name. Raises: ConflictError when the name is taken."""
        try:
            written = self.create_exclusive(path, body)
        except OutcomeUnknownError as error:  # nothing refers to it, so it does not matter whether it exists
            raise UnavailableError(str(error)) from error
        if not written:
            raise ConflictError(f"file exists already, nothing was written: path={path}")

    def create_exclusive(self, path: str, body: bytes) -> bool:
        """Create a file under an unused name, by a rename; False when the name is taken."""
        hidden = self._hidden(path)
        self.client.write(self._inner(hidden), body)
        try:
            created = self._rename(hidden, path, _NEVER)
        except FileNotFoundError:
            return self._is_done(path, body)
        except HdfsRefusalError:
            self._discard(hidden)
            raise
        except UnavailableError as error:
            raise OutcomeUnknownError(f"file may or may not have been created: path={path} error={error}") from error
        if not created:
            self._discard(hidden)
        return created

    def replace(self, path: str, body: bytes) -> None:
        """Overwrite a small file atomically: a reader sees the old or the new body."""
        hidden = self._hidden(path)
        self.client.write(self._inner(hidden), body)
        try:
            self._rename(hidden, path, _OVER)
        except FileNotFoundError:
            self._is_done(path, body)

    def sync(self, path: str) -> None:
        """No effect: a file that is closed is on all its data nodes."""

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        self.client.ask("DELETE", "DELETE", self._inner(path))

    def delete_tree(self, path: str) -> None:
        """Delete a directory tree, if it exists."""
        self.client.ask("DELETE", "DELETE", self._inner(path), recursive="true")

    def delete_empty_directory(self, path: str) -> bool:
        """Delete an empty directory; False when it is missing or not empty."""
        try:
            return bool(self.client.ask("DELETE", "DELETE", self._inner(path))["boolean"])
        except HdfsRefusalError as error:
            if error.reason != _NOT_EMPTY:
                raise
            return False

    def move_directory(self, source: str, target: str) -> None:
        """Rename a directory. Raises: ConflictError when the target exists, FileNotFoundError."""
        self.make_directory(target.rpartition("/")[0])
        if not self._rename(source, target, _OVER):
            raise ConflictError(f"directory exists already: path={target}")

    def make_inside(self, path: str) -> bool:
        """Create a directory; False when its parent is missing, which is not created.

        Name nodes make missing parents, too, but they do not move anything into them.
        """
        made = f"{self.root}/.made-{self.names.uuid()}"
        self.make_directory(made)
        try:
            if not self._rename(made, path, _NEVER):
                self.delete_empty_directory(made)
        except FileNotFoundError:
            self.delete_empty_directory(made)
            return self.is_directory(path)
        return True

    def move_into(self, source: str, directory: str) -> bool:
        """Rename a file or directory into an empty one, under its own name; False when one of the two is missing."""
        target = f"{directory}/{source.rpartition('/')[2]}"
        try:
            self._rename(source, target, _OVER)
        except FileNotFoundError:
            return False
        return True

    def open_input(self, path: str) -> pa.NativeFile:
        """Random-access reader. Raises: FileNotFoundError."""
        return pa.PythonFile(HdfsReader(self.client, self._inner(path), self.size_bytes(path)), mode="r")

    def open_output(self, path: str) -> pa.NativeFile:
        """Writer of a new file, which is complete when it is closed; creates parents."""
        return pa.PythonFile(HdfsWriter(self.client.begin(self._inner(path))), mode="w")

    def _status(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.ask("GET", "GETFILESTATUS", self._inner(path))["FileStatus"]
        return found

    def _rename(self, source: str, target: str, option: str) -> bool:
        """False when the target is there and may not be replaced. Raises: FileNotFoundError."""
        inner = self._inner(target)
        try:
            self.client.ask("PUT", "RENAME", self._inner(source), destination=inner, renameoptions=option)
        except HdfsRefusalError as error:
            if error.reason == IS_TAKEN or "is not empty" in str(error):
                return False
            raise
        return True

    def _is_done(self, path: str, body: bytes) -> bool:
        """The hidden file is missing: it was renamed and the answer was lost, or the directory was deleted."""
        try:
            if self.read_bytes(path) == body:
                return True
        except FileNotFoundError:
            pass
        raise OutcomeUnknownError(f"directory changed while a file was created in it: path={path}")

    def _discard(self, hidden: str) -> None:
        """Delete a file that has no other name; one that stays is an orphan."""
        try:
            self.delete(hidden)
        except UnavailableError:
            return

    def _hidden(self, path: str) -> str:
        directory, _, name = path.rpartition("/")
        return f"{directory}/.{name}.{self.names.uuid()}.tmp"

    def _inner(self, path: str) -> str:
        """The path inside the file system."""
        scheme, _, rest = path.partition("://")
        if scheme != HDFS_SCHEME or rest.partition("/")[0] != self.root.split("/")[2]:
            raise InvalidInputError(f"path is not in this HDFS: path={path} warehouse={self.root}")
        return f"/{rest.partition('/')[2]}"


class HdfsReader(ObjectReader):
    """Random access to one file with a small block cache."""

    def __init__(self, client: WebHdfs, path: str, size: int) -> None:
        """Nothing is read yet."""
        streams.RawIOBase.__init__(self)
        self._client, self._path = client, path
        self._size, self._position = size, 0
        self._blocks = OrderedDict()

    def _fetched(self, bounds: list[tuple[int, int]]) -> list[memoryview]:
        return [memoryview(self._client.read(self._path, start, end - start)) for start, end in bounds]


class HdfsWriter(streams.RawIOBase):
    """A new file, sent to a data node while it is written."""

    def __init__(self, upload: Upload) -> None:
        """See ``WebHdfs.begin``."""
        super().__init__()
        self._upload = upload
        self._position = 0

    def writable(self) -> bool:
        """Always true."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def write(self, body: Any, /) -> int:
        """Append bytes. Raises: UnavailableError."""
        view = memoryview(body).cast("B")
        self._upload.send(view)
        self._position += len(view)
        return len(view)

    def close(self) -> None:
        """Complete the file. Raises: UnavailableError."""
        if not self.closed:
            try:
                self._upload.close()
            finally:
                super().close()
