"""The files of an Iceberg table as pyiceberg reads and writes them, on the file systems of Fluvial."""

from typing import Any

from pyiceberg.io import FileIO as IcebergIO
from pyiceberg.io import InputFile, OutputFile

from filestore.io.file_io import FileIO


class _File(InputFile, OutputFile):
    """One file."""

    def __init__(self, io: FileIO, location: str) -> None:
        super().__init__(location)
        self._io = io

    def __len__(self) -> int:
        return self._io.size_bytes(self.location)

    def exists(self) -> bool:
        return self._io.exists(self.location)

    def open(self, seekable: bool = True) -> Any:
        return self._io.open_input(self.location)

    def create(self, overwrite: bool = False) -> Any:
        return self._io.open_output(self.location)

    def to_input_file(self) -> InputFile:
        return self


class FilesOfIceberg(IcebergIO):
    """All of them; names of files are unique, so none is overwritten."""

    def __init__(self, io: FileIO) -> None:
        """``io`` knows the place of the table."""
        super().__init__()
        self._io = io

    def new_input(self, location: str) -> InputFile:
        """A file to read."""
        return _File(self._io, location)

    def new_output(self, location: str) -> OutputFile:
        """A file to write."""
        return _File(self._io, location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file; a missing one is fine."""
        self._io.delete(location if isinstance(location, str) else location.location)
