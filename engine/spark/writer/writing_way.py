"""Who writes the data files of a task's rows in ``format("fluvial")``: the task itself, or the committing process.

A task has its own rows, and knows neither the rows nor the number of other tasks. Files that it writes pass through no
other process, and add one sorted run to each bucket. So a task writes files when its rows fill them (1 MiB a bucket).
The committing process writes the small rest, and all rows that need one order or one process.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

from filestore.options.table.common import MIB
from filestore.options.table.groups import POSTPONE_BUCKET
from filestore.table_view import TableView

_SMALL_FILE_BYTES: Final = MIB  # of rows in memory


class FilesBy(Enum):
    """Who writes data files; the value is what users write."""

    TASKS = "tasks"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTable:
    """What the choice needs to know of the table."""

    has_log: bool
    has_key: bool
    assigns_buckets: bool  # to keys or files, later than a task: dynamic and postponed buckets
    keeps_changes: bool  # as given, in changelog files that are read in one order
    most_runs: int  # of a bucket, at which the next batch waits for compaction

    @classmethod
    def of(cls, table: TableView, *, has_log: bool) -> Self:
        """The facts of a table.

        Args:
            table: the table.
            has_log: whether these rows are written to the table's log.
        """
        store = table.store
        return cls(
            has_log=has_log,
            has_key=store.has_key,
            assigns_buckets=store.has_dynamic_buckets or store.options.bucket == POSTPONE_BUCKET,
            keeps_changes=store.options.changelog_producer == "input",
            most_runs=store.options.run_count_stop_trigger,
        )

    @property
    def obstacle(self) -> str | None:
        """Why no task can write files of this table; None: it can."""
        if self.has_log:
            return "the log has one order"
        if self.assigns_buckets:
            return "buckets are assigned in one place"
        if self.keeps_changes:
            return "changelog files have one order"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskShare:
    """The rows of a task, as far as it has looked ahead."""

    partition: int  # number of the task among those of the frame
    size_bytes: int
    bucket_count: int  # pairs of partition and bucket that occur
    is_whole: bool  # False: more rows follow


@dataclass(frozen=True, slots=True)
class FilesChoice:
    """Who writes, and why, for the log."""

    by: FilesBy
    reason: str


def chosen(wanted: FilesBy | None, table: WrittenTable, share: TaskShare) -> FilesChoice:
    """Who writes the files of a task's rows.

    Args:
        wanted: by the user; None: what suits the rows. Where tasks cannot write, the committing process does.
        table: to write to.
        share: of the task.
    """
    if table.obstacle is not None:
        return FilesChoice(FilesBy.COMMIT, table.obstacle)
    if wanted is not None:
        return FilesChoice(wanted, "as the option says")
    if share.size_bytes < share.bucket_count * _SMALL_FILE_BYTES or not share.size_bytes:
        return FilesChoice(FilesBy.COMMIT, "files of a task would be small")
    if table.has_key and share.is_whole and share.partition >= table.most_runs:
        return FilesChoice(FilesBy.COMMIT, "tasks would make too many sorted runs")
    return FilesChoice(FilesBy.TASKS, "files of a task are large enough")
