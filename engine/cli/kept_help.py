"""The help of single commands, kept in the user's cache: for its first help only a command's modules are imported.

They import what the command does, which costs 1 to 2 s of processor time; a text from the cache costs 0.1 s. It is of
one width of the terminal and one state of the code: whatever file of Fluvial changes, it is created again.
"""

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

_WORDS: Final = ("--help", "-h")
_CACHE: Final = "FLUVIAL_CACHE"
_ROOM: Final = "help"
_PACKAGES: Final = ("engine", "filestore", "logstore", "lsm")


def shown_help(arguments: Sequence[str], make: Callable[[], int]) -> int | None:
    """Print the help that is asked for.

    Args:
        arguments: of the command line.
        make: prints it and returns the exit code; called if the cache lacks it.

    Returns:
        The exit code; None: these arguments ask for something else.
    """
    *path, last = arguments or ("",)
    if last not in _WORDS or not path or not all(word.replace("-", "").isalnum() and word[0] != "-" for word in path):
        return None
    file, stamp = _file(path), _stamp()
    found = _read(file, stamp)
    if found is not None:
        sys.stdout.write(found)
        return 0
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = make()
    sys.stdout.write(printed.getvalue())
    if code == 0:
        _keep(file, stamp, printed.getvalue())
    return code


def _file(path: Sequence[str]) -> Path:
    cache = os.path.expanduser(os.environ.get(_CACHE) or "~/.cache/fluvial")
    return Path(cache) / _ROOM / f"{'.'.join(path)}.{shutil.get_terminal_size().columns}.json"


def _stamp() -> str:
    """What is another one after every change: where the packages are, their files, the newest of them, Python."""
    root = Path(__file__).resolve().parents[2]
    times = [time for package in _PACKAGES for time in _times(root / package)]
    return f"{root} {len(times)} {max(times)} {sys.version}"


def _times(directory: Path) -> Iterator[int]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.stat().st_mtime_ns
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _times(Path(entry.path))


def _read(file: Path, stamp: str) -> str | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["stamp"] == stamp:
            return str(found["text"])
    return None


def _keep(file: Path, stamp: str, text: str) -> None:
    """Write it whole or not at all; a cache that cannot be written is none."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as made:
            json.dump({"stamp": stamp, "text": text}, made)
        os.replace(made.name, file)
