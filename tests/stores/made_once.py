"""Directories of the user's cache that one process makes and every other one finds whole."""

import tempfile
from collections.abc import Callable
from pathlib import Path


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """The target; if it is not there, what ``make`` puts at the path that it gets, where nothing is yet."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as work:
        made = Path(work) / "made"
        make(made)
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():  # another process was first
                raise
    return target
