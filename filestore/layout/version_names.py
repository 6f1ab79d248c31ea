"""Names of tags and branches: one rule for both, checked where a name is given to something new.

A name becomes part of a file name, a word of a version (``dev.eod``) and an element of lists with commas; other engines
must be able to list it. What exists under another name stays readable, and can be renamed and deleted.
Source: Paimon TagManager, BranchManager.
"""

import re
from typing import Final

from filestore.layout.branch_names import MERGE_TAG_PREFIX
from filestore.layout.file_names import check_spelling
from filestore.layout.paths import BRANCH_PREFIX, MAIN_BRANCH, SAVEPOINT_PREFIX, TAG_PREFIX, TAG_SUCCESS_DIRECTORY
from lsm.errors import InvalidInputError

LONGEST_TAG: Final = 160
"""Bytes; the file of a tag that is being created has a random name around it, and 255 bytes at most."""
LONGEST_BRANCH: Final = LONGEST_TAG - len(BRANCH_PREFIX)
"""Bytes; a tag may be named after the branch."""

_KINDS: Final = ("snapshot", "savepoint", "timestamp", "watermark")
_WORDS: Final = frozenset({"latest", "earliest", MAIN_BRANCH, *_KINDS})
_POSITION: Final = re.compile(rf"({'|'.join(_KINDS)}|{MAIN_BRANCH})\..*", re.IGNORECASE | re.DOTALL)
_OF_MERGE: Final = re.compile(rf"{MERGE_TAG_PREFIX}\d+", re.IGNORECASE)
_OF_SAVEPOINT: Final = re.compile(rf"{SAVEPOINT_PREFIX}\d+", re.IGNORECASE)
# A colon ends Java's listing of the directory; commas separate names.
_NOT_IN_TAGS: Final = frozenset("/\\:,")
_NOT_IN_BRANCHES: Final = _NOT_IN_TAGS | frozenset(".$*?")


def check_tag_name(name: str) -> None:
    """Refuse a name for a new tag. Raises: InvalidInputError with the reason."""
    _check("tag", name, _NOT_IN_TAGS, LONGEST_TAG)
    if _POSITION.fullmatch(name):
        raise InvalidInputError(
            f"the name is a version already, so the tag could not be reached: tag={name} fix=choose another name"
        )
    if _OF_SAVEPOINT.fullmatch(name):
        raise InvalidInputError(
            f"the name is reserved for a savepoint's tag: tag={name} fix=choose another name, or create a savepoint"
        )
    if _OF_MERGE.fullmatch(name):
        raise InvalidInputError(
            f"the name is reserved for the merged state of a branch: tag={name} fix=choose another name"
        )
    if name.startswith(".") or f"{TAG_PREFIX}{name}" == TAG_SUCCESS_DIRECTORY:
        raise InvalidInputError(f"invalid tag name: tag={name!r} fix=use letters, digits, _ and -")


def check_branch_name(name: str) -> None:
    """Refuse a name for a new branch. Raises: InvalidInputError with the reason."""
    _check("branch", name, _NOT_IN_BRANCHES, LONGEST_BRANCH)


def _check(kind: str, name: object, forbidden: frozenset[str], longest: int) -> None:
    if not isinstance(name, str):
        raise InvalidInputError(f"a {kind} name is a text: {kind}={name!r} fix=name the {kind}")
    if name.strip().isdigit():
        raise InvalidInputError(f"a {kind} name cannot be a number, which is a snapshot id: {kind}={name!r} "
                                "fix=add a word")  # fmt: skip
    if name.lower() in _WORDS:
        raise InvalidInputError(f"the name is reserved, it is a word for versions: {kind}={name!r} "
                                "fix=choose another name")  # fmt: skip
    bad = sorted({char for char in name if char in forbidden or not char.isprintable()})
    if not name.strip() or name != name.strip() or bad:
        raise InvalidInputError(
            f"invalid {kind} name: {kind}={name!r} forbidden={bad} fix=use letters, digits, _ and -"
        )
    check_spelling(kind, name)
    size = len(name.encode())
    if size > longest:
        raise InvalidInputError(
            f"the name is too long for a file name: {kind}={name[:40]}... bytes={size} longest={longest} "
            "fix=choose a shorter one"
        )
