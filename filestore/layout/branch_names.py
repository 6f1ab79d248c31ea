"""Names of tables on branches: ``db.t$branch_b`` is the table ``db.t`` on its branch ``b``.

Source: Paimon ``Identifier``. Main has no such name.
"""

from typing import Final

from filestore.layout.paths import MAIN_BRANCH
from lsm.errors import InvalidInputError

SEPARATOR: Final = "$"
"""Separates the name of a table from a branch, a system table, or both."""
BRANCH_NAME_PREFIX: Final = "branch_"
"""Prefix of a branch name after the separator."""


MERGE_TAG_PREFIX: Final = "merged-"
"""Prefix of the tag by which a branch keeps the state that was merged last; its snapshot's number follows."""


def merge_tag(snapshot_id: int) -> str:
    """Name of the tag that keeps a merged state of a branch."""
    return f"{MERGE_TAG_PREFIX}{snapshot_id}"


def is_merge_tag(name: str) -> bool:
    """Whether a tag of a branch keeps its merged state."""
    return name.startswith(MERGE_TAG_PREFIX) and name.removeprefix(MERGE_TAG_PREFIX).isdecimal()


def split_branch(name: str) -> tuple[str, str | None]:
    """The table and the branch of a name; None for a name without a branch.

    ``db.t$files`` has no branch; ``db.t$branch_b$files`` is not a table name either, and is returned unchanged.
    """
    base, *suffixes = name.split(SEPARATOR)
    if len(suffixes) != 1 or not suffixes[0].startswith(BRANCH_NAME_PREFIX):
        return name, None
    return base, suffixes[0].removeprefix(BRANCH_NAME_PREFIX)


def on_branch_name(name: str, branch: str) -> str:
    """The name of a table on a branch, from its name on any branch."""
    base, _ = split_branch(name)
    return base if branch == MAIN_BRANCH else f"{base}{SEPARATOR}{BRANCH_NAME_PREFIX}{branch}"


def agreed_branch(name: str, *given: str | None) -> tuple[str, str | None]:
    """The table of a name, and the branch given by the name or by options; None when none is given.

    Args:
        name: ``db.t`` or ``db.t$branch_b``.
        given: branches from options; None is ignored.

    Raises:
        InvalidInputError: two different branches are given.
    """
    base, named = split_branch(name)
    wanted = list(dict.fromkeys(each for each in (named, *given) if each is not None))
    if len(wanted) > 1:
        raise InvalidInputError(f"two branches are named: table={name} branches={wanted} fix=name one of them")
    return base, wanted[0] if wanted else None
