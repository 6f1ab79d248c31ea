"""The files of a catalog that can only be read: every write is refused before it begins."""

from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from filestore.io.file_io import FileIO
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class ReadOnlyFiles:
    """A file system without its writes. It can be pickled."""

    inner: FileIO
    reason: str  # of the refusal, with the fix

    def read_bytes(self, path: str) -> bytes:
        """The contents of a file. Raises: FileNotFoundError."""
        return self.inner.read_bytes(path)

    def exists(self, path: str) -> bool:
        """Whether a file or directory of this name exists."""
        return self.inner.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory."""
        return self.inner.is_directory(path)

    def is_link(self, path: str) -> bool:
        """Whether the path is a symbolic link."""
        return self.inner.is_link(path)

    def size_bytes(self, path: str) -> int:
        """Size of a file. Raises: FileNotFoundError."""
        return self.inner.size_bytes(path)

    def modified_ms(self, path: str) -> int:
        """Epoch milliseconds of the last change. Raises: FileNotFoundError."""
        return self.inner.modified_ms(path)

    def stamp(self, path: str) -> tuple[int, ...] | None:
        """See ``FileIO.stamp``. Raises: FileNotFoundError."""
        return self.inner.stamp(path)

    def list_names(self, directory: str) -> list[str]:
        """Names of the entries of a directory, sorted."""
        return self.inner.list_names(directory)

    def open_input(self, path: str) -> pa.NativeFile:
        """Random-access reader. Raises: FileNotFoundError."""
        return self.inner.open_input(path)

    def make_directory(self, path: str) -> None:
        """Refused."""
        self._refuse(path)

    def write_new(self, path: str, body: bytes) -> None:
        """Refused."""
        self._refuse(path)

    def create_exclusive(self, path: str, body: bytes) -> bool:
        """Refused."""
        self._refuse(path)

    def replace(self, path: str, body: bytes) -> None:
        """Refused."""
        self._refuse(path)

    def sync(self, path: str) -> None:
        """Refused."""
        self._refuse(path)

    def delete(self, path: str) -> None:
        """Refused."""
        self._refuse(path)

    def delete_tree(self, path: str) -> None:
        """Refused."""
        self._refuse(path)

    def delete_empty_directory(self, path: str) -> bool:
        """Refused."""
        self._refuse(path)

    def open_output(self, path: str) -> pa.NativeFile:
        """Refused."""
        self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        raise InvalidInputError(f"{self.reason} path={path}")
