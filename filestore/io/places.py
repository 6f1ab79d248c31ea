"""Paths and the directories that they lie in, by their text."""

import re
from collections.abc import Sequence
from typing import Final

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")
_LOCAL: Final = re.compile(r"^file:/*(?=/)")


def local_path(path: str) -> str:
    """A path as this program opens it: Java names local files by ``file:`` and one or three slashes."""
    return _LOCAL.sub("", path)


def is_inside(path: str, roots: Sequence[str]) -> bool:
    """Whether a path is one of these directories, or below one; see ``is_below``."""
    return is_below(f"{path.rstrip('/')}/", roots)


def allowed_roots(text: str | None) -> list[str]:
    """The directories of an option, which has commas between them; none where it is not given."""
    return [root.strip() for root in (text or "").split(",") if root.strip()]


def is_below(path: str, roots: Sequence[str]) -> bool:
    """Whether a path lies in one of these directories, by its text: without ``.`` and ``..``."""
    parts = local_path(path).split("/")
    if not path or any(part in {".", ".."} or _CONTROLS.search(part) is not None for part in parts):
        return False
    places = (local_path(root).rstrip("/") for root in roots)
    return any(local_path(path).startswith(f"{place}/") for place in places if place)
