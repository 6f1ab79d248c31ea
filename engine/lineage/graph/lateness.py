"""How far a job is behind the tables that it reads: from what it had read at its newest barrier. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from engine.lineage.store.entities import DataLineage

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommits:
    """Commits of rows into a table; compactions are left out, because they bring no rows."""

    times_ms: Mapping[int, int]  # by snapshot id
    is_whole: bool  # False: some of the oldest are missing


class CatalogTables(Protocol):
    """What lateness needs to know of the tables of a catalog."""

    now_ms: int

    def newest_id(self, table: str) -> int | None:
        """The newest snapshot of ``database.table``; None for one that is empty, gone or elsewhere."""

    def commits_after(self, table: str, snapshot_id: int) -> TableCommits:
        """The commits after a snapshot of a table that is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """Commits of a table that a job has not read."""

    snapshots: int  # 0: the job has read everything
    is_at_least: bool  # there are more than could be counted
    age_ms: int  # since the oldest of them that is known

    @property
    def words(self) -> str:
        """``3 snapshots, 40 s behind``; empty when the job is not."""
        if not self.snapshots:
            return ""
        count = f"{self.snapshots:,}{'+' if self.is_at_least else ''}"
        return f"{count} snapshot{'' if self.snapshots == 1 else 's'}, {duration_text(self.age_ms)} behind"


def lateness(read_id: int, commits: TableCommits, now_ms: int) -> Lateness:
    """The lateness of a job that has read a table up to a snapshot.

    Args:
        read_id: 0: nothing.
        commits: of the table.
        now_ms: the time.
    """
    missing = sorted(each for each in commits.times_ms if each > read_id)
    oldest = min(commits.times_ms, default=0)
    return Lateness(
        snapshots=len(missing),
        is_at_least=bool(missing) and not commits.is_whole and missing[0] == oldest and read_id < oldest - 1,
        age_ms=max(0, now_ms - commits.times_ms[missing[0]]) if missing else 0,
    )


def newest_reads_by_job(rows: Iterable[DataLineage]) -> dict[str, int]:
    """What each job has read at its newest barrier: its name to the snapshot; all rows are of one table."""
    newest: dict[str, DataLineage] = {}
    for each in rows:
        if each.job not in newest or _order(newest[each.job]) < _order(each):
            newest[each.job] = each
    return {job: each.snapshot_id for job, each in newest.items()}


def duration_text(time_ms: int) -> str:
    """``40 s``, ``12 min``, ``5 h``: in the largest unit of which there are two."""
    seconds = time_ms // 1000
    size, unit = next((each for each in _UNITS if seconds >= 2 * each[0]), _UNITS[-1])
    return f"{seconds // size} {unit}"


def _order(row: DataLineage) -> tuple[int, int]:
    return (row.moment_ms, row.barrier_id)
