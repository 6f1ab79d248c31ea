"""The request and the result of an export."""

from collections.abc import Callable
from dataclasses import dataclass

from filestore.io.file_io import Clock, FileIO

Progress = Callable[[int, int | None], None]
"""Called with the number of parts that are there, and of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlace:
    """The target path of a copy."""

    io: FileIO
    root: str  # path or address, without a slash at its end
    clock: Clock
    retain_ms: int  # how long readers may read a state that is not the copy's any more
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The written files, or with ``dry_run`` the files that would be written."""

    path: str  # what readers open
    written: int  # parts
    kept: int
    removed: int
    deleted: int  # files that no reader of the last ``retain_ms`` needs
    rows: int | None = None  # of the copy; None: not known before it is written
    size_bytes: int | None = None
