"""What an export is asked for and what it did."""

from collections.abc import Callable
from dataclasses import dataclass

from filestore.io.file_io import Clock, FileIO

Progress = Callable[[int, int | None], None]
"""Called with the number of parts that are there, and of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlace:
    """Where a copy goes."""

    io: FileIO
    root: str  # path or address, without a slash at its end
    clock: Clock
    retain_ms: int  # how long readers may read a state that is not the copy's any more
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written, or with ``dry_run`` would be."""

    path: str  # what readers open
    written: int  # parts
    kept: int
    removed: int
    deleted: int  # files that no reader of the last ``retain_ms`` needs
    rows: int | None = None  # of the copy; None: not known before it is written
    size_bytes: int | None = None
