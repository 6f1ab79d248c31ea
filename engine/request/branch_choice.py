"""The branch that options of a reader or writer name: ``branch`` for both, ``scan.branch`` for reads.

A branch in the table's name, ``db.t$branch_b``, does the same. Where several are named, they must agree.
"""

from collections.abc import Mapping
from typing import Final

from filestore.layout.branch_names import agreed_branch
from filestore.table import FileTable

BRANCH_KEY: Final = "branch"
SCAN_BRANCH_KEY: Final = "scan.branch"
READ_BRANCH_KEYS: Final = (BRANCH_KEY, SCAN_BRANCH_KEY)


def branch_named(name: str, given: Mapping[str, str]) -> tuple[str, str | None]:
    """The table, and the branch that its name and options name; None when none does: then it is main.

    Raises:
        InvalidInputError: two branches are named.
    """
    return agreed_branch(name, *(given.get(key) for key in READ_BRANCH_KEYS))


def on_named_branch(table: FileTable, given: Mapping[str, str]) -> FileTable:
    """The table on the branch that options name; the same table when they name none.

    Raises:
        InvalidInputError: it was opened on another branch, two are named, or there is no such branch.
    """
    return at_branch(table, *(given.get(key) for key in READ_BRANCH_KEYS))


def at_branch(table: FileTable, *named: str | None) -> FileTable:
    """The table on the branch that is named; the same table when none is. Raises: as ``on_named_branch``."""
    _, branch = agreed_branch(table.name, *named)
    return table if branch in (None, table.store.paths.branch) else table.on_branch(branch)


def of_session(settings: Mapping[str, str], *, named: str | None, reads: bool) -> dict[str, str]:
    """The settings of a session, with a branch only where it applies to a table of a statement.

    Args:
        settings: may name a branch for every table.
        named: the branch that the statement names, which comes before that of the session; None: none.
        reads: False for a table that is written.
    """
    kept = {key: value for key, value in settings.items() if key not in READ_BRANCH_KEYS}
    keys = (SCAN_BRANCH_KEY, BRANCH_KEY) if reads else (BRANCH_KEY,)
    key = next((each for each in keys if each in settings), None)
    return kept if named is not None or key is None else {**kept, key: settings[key]}
