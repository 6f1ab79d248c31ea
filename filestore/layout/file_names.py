"""Names of files that come out of files: each is one name in a directory of the layout, never a path.

Manifests, lists, snapshots, savepoints and messages of the log name files, which readers open and housekeeping
deletes. A stranger who can write to one of them could name a file anywhere else. So names are checked where they are
decoded, and paths outside of the table only count below the places that the table's options name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

_NAME: Final = re.compile(r"[^/\x00-\x1f\x7f]+")
_EXTERNAL_OPTIONS: Final = ("data-file.external-paths", "global-index.external-path")
_LOCAL: Final = re.compile(r"^file:/*(?=/)")


def checked_name(text: object) -> str:
    """The text, checked to be the name of a file.

    Raises: ValueError for anything else: with a separator, a control character, ``.`` or ``..``, or no text.
    """
    if type(text) is str and _NAME.fullmatch(text) is not None and text != "." and text != "..":
        return text
    raise ValueError(f"not the name of a file: {text!r}")


def optional_name(text: object) -> str | None:
    """``checked_name`` of a value that may be missing."""
    return None if text is None else checked_name(text)


def checked_names(texts: Iterable[object]) -> tuple[str, ...]:
    """``checked_name`` of each."""
    return tuple(map(checked_name, texts))


def relative_path(text: object) -> str:
    """The text, checked to be names below a directory, with ``/`` between them. Raises: ValueError."""
    if type(text) is not str:
        raise ValueError(f"not a path below a directory: {text!r}")
    return "/".join(map(checked_name, text.split("/")))


def local_path(path: str) -> str:
    """A path as this program opens it: Java names local files by ``file:`` and one or three slashes."""
    return _LOCAL.sub("", path)


def external_roots(options: Mapping[str, str]) -> tuple[str, ...]:
    """The directories outside of a table in which its files may lie. Source: Paimon CoreOptions."""
    texts = (options.get(key) or "" for key in _EXTERNAL_OPTIONS)
    return tuple(root.strip() for text in texts for root in text.split(",") if root.strip())


def is_below(path: str, roots: Sequence[str]) -> bool:
    """Whether a path lies in one of these directories, by its text: without ``.`` and ``..``."""
    parts = local_path(path).split("/")
    if not path or any(part in {".", ".."} or _has_controls(part) for part in parts):
        return False
    return any(local_path(path).startswith(f"{local_path(root).rstrip('/')}/") for root in roots if root.strip("/"))


def _has_controls(part: str) -> bool:
    return part != "" and _NAME.fullmatch(part) is None
