"""Names of files that come out of files: each is one name in a directory of the layout, never a path.

Manifests, lists, snapshots, savepoints and messages of the log name files, which readers open and housekeeping
deletes. A stranger who can write to one of them could name a file anywhere else. So names are checked where they are
decoded, and paths outside of the table only count below the places that who opens it allows.
"""

import posixpath
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from filestore.io.places import allowed_roots, is_inside, local_path
from lsm.errors import InvalidInputError

_NAME: Final = re.compile(r"[^/\x00-\x1f\x7f]+")
EXTERNAL_OPTIONS: Final = ("data-file.external-paths", "global-index.external-path")
_ALIKE: Final = frozenset({"LATIN", "CYRILLIC", "GREEK"})


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


def external_roots(allowed: str | None) -> tuple[str, ...]:
    """The directories outside of tables in which their files may lie: its opener's word, with commas between them.

    What a table names today (Paimon's ``data-file.external-paths``) decides where other engines put new files. Older
    ones stay where they are, and only manifests know where.
    """
    return tuple(allowed_roots(allowed))


def check_inner(directory: str, root: str, allowed: str | None) -> None:
    """Refuse a directory for a table's data that leads out of the table to where its opener does not allow it.

    Raises: InvalidInputError naming option and value.
    """
    place = posixpath.normpath(f"{local_path(root)}/{directory.strip('/')}")
    if not is_inside(place, [posixpath.normpath(local_path(each)) for each in (root, *allowed_roots(allowed))]):
        raise InvalidInputError(
            f"the data of a table is outside of its directory: option=data-file.path-directory value={directory!r} "
            f"path={place} fix='open it by a catalog with external-paths.allowed={place}, if you trust the table'"
        )


def check_spelling(kind: str, name: str) -> None:
    """Refuse a new name that looks like another one. Names of other engines are read however they are spelled.

    Raises: InvalidInputError for letters that are not composed (an e and an accent for é), and for a word with letters
        of two alphabets that look alike (a Cyrillic o in orders).
    """
    if name.isascii():
        return
    composed = unicodedata.normalize("NFC", name)
    if composed != name:
        raise InvalidInputError(
            f"the name has letters that look like others: {kind}={name!r} fix='write it with composed letters (NFC): "
            f"{composed}'"
        )
    for word in re.findall(r"[^\W\d_]+", name):
        found = {each: unicodedata.name(each, "").partition(" ")[0] for each in word}
        alphabets = sorted({*found.values()} & _ALIKE)
        if len(alphabets) > 1:
            fewest = min(alphabets, key=lambda alphabet: sum(found[each] == alphabet for each in word))
            odd = sorted(each for each, alphabet in found.items() if alphabet == fewest)
            raise InvalidInputError(
                f"a word of the name has letters of two alphabets that look alike: {kind}={name!r} word={word} "
                f"alphabets={', '.join(alphabets).lower()} odd={odd} fix='write it with letters of one'"
            )
