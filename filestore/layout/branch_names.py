"""Names of tables on branches: ``db.t$branch_b`` is the table ``db.t`` on its branch ``b``.

Source: Paimon ``Identifier``; main has no such name, and needs none.
"""

from typing import Final

from filestore.layout.paths import MAIN_BRANCH
from lsm.errors import InvalidInputError

MARK: Final = "$"
"""Between the name of a table and what is meant of it: a branch, a system table, or both."""
BRANCH_WORD: Final = "branch_"
"""Behind the mark it begins the name of a branch."""


def split_branch(name: str) -> tuple[str, str | None]:
    """The table and the branch that a name names; None when it names none.

    ``db.t$files`` names no branch; ``db.t$branch_b$files`` is no name of a table either, and comes back as it is.
    """
    base, *marked = name.split(MARK)
    if len(marked) != 1 or not marked[0].startswith(BRANCH_WORD):
        return name, None
    return base, marked[0].removeprefix(BRANCH_WORD)


def on_branch_name(name: str, branch: str) -> str:
    """The name of a table on a branch, from its name on any."""
    base, _ = split_branch(name)
    return base if branch == MAIN_BRANCH else f"{base}{MARK}{BRANCH_WORD}{branch}"


def agreed_branch(name: str, *given: str | None) -> tuple[str, str | None]:
    """The table that a name names, and the one branch that it and options name; None when nobody names one.

    Args:
        name: ``db.t`` or ``db.t$branch_b``.
        given: branches by other means; None is none.

    Raises:
        InvalidInputError: two branches are named.
    """
    base, named = split_branch(name)
    asked = list(dict.fromkeys(each for each in (named, *given) if each is not None))
    if len(asked) > 1:
        raise InvalidInputError(f"two branches are named: table={name} branches={asked} fix=name one of them")
    return base, asked[0] if asked else None
