"""Locations of files for readers that do not share this process' working directory."""

from pathlib import Path
from urllib.parse import urlsplit


def absolute_path(path: str) -> str:
    """A path that holds in every process of this machine, the JVM too, wherever it was started; a URL as it is."""
    return path if urlsplit(path).scheme or path.startswith("/") else str(Path(path).absolute())
