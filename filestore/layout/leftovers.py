"""Leftovers of an interrupted drop in the directory of a table: files of Fluvial or Paimon, but no schema."""

import re
from collections.abc import Sequence
from typing import Final

from filestore.io.commit_lock import LOCK_FILE_NAME
from filestore.io.file_io import FileIO
from filestore.layout.branch_state import MAIN_BRANCH_FILE
from filestore.layout.former_mains import FORMER_MAIN_FILE
from filestore.layout.log_key import LOG_KEY_DIRECTORY
from filestore.layout.own_files import GONE_PREFIX

_NAMES: Final = frozenset(
    {"snapshot", "manifest", "schema", "branch", "index", "statistics", "tag", "changelog", "consumer", "savepoint"}
    | {"expired-commits", "expiry", "removed", "rollback", "query-runs", "automatic-tags", "compaction-attempts"}
    | {"log-payload", LOG_KEY_DIRECTORY, "log-turns", "staging", MAIN_BRANCH_FILE, FORMER_MAIN_FILE}
    | {LOCK_FILE_NAME}
)
_DIRECTORY: Final = re.compile(rf"bucket-(\d+|postpone)|[^=]+=.*|{re.escape(GONE_PREFIX)}.*")  # or of one file


def is_what_a_drop_leaves(names: Sequence[str]) -> bool:
    """Whether all that is in a directory without a schema is of a table; an empty directory is not one's."""
    return bool(names) and all(name in _NAMES or _DIRECTORY.fullmatch(name) for name in names)


def clear_dropped(io: FileIO, parent: str, prefix: str) -> None:
    """Delete the directories of a table that is dropped, also what an interrupted drop left: those with a prefix."""
    for each in io.list_names(parent):
        if each.startswith(prefix):
            io.delete_tree(f"{parent}/{each}/schema")
            io.delete_tree(f"{parent}/{each}")
