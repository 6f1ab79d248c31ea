"""Small new files that are made in memory by one thread and written by another."""

from typing import Final, Protocol

import pyarrow as pa


class NewFiles(Protocol):
    """The part of ``FileIO`` that a writer of new files uses."""

    def write_new(self, path: str, body: bytes) -> None:
        """Implements ``FileIO.write_new``."""

    def open_output(self, path: str) -> pa.NativeFile:
        """Implements ``FileIO.open_output``."""

    def sync(self, path: str) -> None:
        """Implements ``FileIO.sync``."""

    def open_input(self, path: str) -> pa.NativeFile:
        """Implements ``FileIO.open_input``."""

    def delete(self, path: str) -> None:
        """Implements ``FileIO.delete``."""


class HeldFiles:
    """Files in memory until ``write_to``. A writer that is given it does not touch the disk."""

    def __init__(self) -> None:
        """Without files."""
        self._open: Final[dict[str, pa.BufferOutputStream]] = {}
        self._files: Final[dict[str, pa.Buffer]] = {}

    def write_to(self, io: NewFiles) -> None:
        """Write all held files, and release them. Raises: as ``FileIO.write_new``."""
        while self._files:
            path, body = self._files.popitem()
            io.write_new(path, body.to_pybytes())

    def write_new(self, path: str, body: bytes) -> None:
        """Hold a file."""
        self._files[path] = pa.py_buffer(body)

    def open_output(self, path: str) -> pa.NativeFile:
        """Writer of a file, which is held from ``sync`` on."""
        sink = self._open[path] = pa.BufferOutputStream()
        return sink

    def sync(self, path: str) -> None:
        """Take over a file that was written."""
        self._files[path] = self._open.pop(path).getvalue()

    def open_input(self, path: str) -> pa.NativeFile:
        """Random-access reader of a file that is held."""
        return pa.BufferReader(self._files[path])

    def delete(self, path: str) -> None:
        """Forget a file, if it is held."""
        self._open.pop(path, None)
        self._files.pop(path, None)
