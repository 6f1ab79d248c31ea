"""A branch that batch reads fall back to: partitions that the table's own branch lacks come from there.

So a branch of corrected or of preliminary partitions is read with the rest of the table around it. A partition counts
as there when the read snapshot has a file in it, whatever the filter of the read leaves out. Streams and the rows that
``UPDATE``, ``DELETE`` and ``MERGE`` change are of the table's own branch alone. Source: Paimon
``FallbackReadFileStoreTable``.
"""

from dataclasses import dataclass, replace
from typing import Final

from filestore.predicate.predicate import Predicate
from filestore.scan.data_split import DataSplit
from filestore.scan.pruning import Pruner
from filestore.scan.snapshot_files import live_files
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore
from filestore.table_view import TableView
from lsm.errors import InvalidInputError

FALLBACK_KEY: Final = "scan.fallback-branch"


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackSplit:
    """A split of the branch that is fallen back to."""

    table: TableView  # with the schema of that branch
    split: DataSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """The state of the branch that is fallen back to."""

    table: FileTable
    snapshot: Snapshot

    def __str__(self) -> str:
        return f"fallback_branch={self.table.store.paths.branch} fallback_snapshot={self.snapshot.id}"

    def splits(self, store: TableStore, snapshot: Snapshot | None, filter: Predicate | None) -> list[FallbackSplit]:
        """What is read instead of partitions that a snapshot lacks.

        Args:
            store: whose snapshot.
            snapshot: None is the empty table.
            filter: leaves out what surely does not match.
        """
        keep = Pruner(store, filter).keep_partition
        entries = [] if snapshot is None else live_files(store, snapshot, keep_partition=keep)
        there = {entry.partition for entry in entries}
        found = self.table.new_scan().plan(snapshot=self.snapshot, filter=filter)
        return [FallbackSplit(table=self.table, split=split) for split in found.splits if split.partition not in there]


def find_fallback(table: FileTable, *, as_of_ms: int | None, reads_log: bool) -> Fallback | None:
    """The branch that a read of a table falls back to; None: it has none, or that branch is empty.

    Args:
        table: with the reader's options in force.
        as_of_ms: the time of a travel, epoch milliseconds: the branch is read as it was then. None: as it is.
        reads_log: whether the table's log is read behind its files.

    Raises:
        InvalidInputError: there is no such branch, or it has other columns, partitions or keys; the log is read.
    """
    name = table.options.scan_fallback_branch
    if not name or name == table.store.paths.branch:
        return None
    if reads_log:
        raise InvalidInputError(
            f"partitions that only the log has cannot be told from missing ones: table={table.name} "
            f"{FALLBACK_KEY}={name} fix=read without scan.log.union and scan.max-staleness"
        )
    there = table.on_branch(name)
    _check_fits(table, there)
    snapshot = there.store.snapshots.latest() if as_of_ms is None else there.store.snapshots.as_of(as_of_ms)
    return None if snapshot is None else Fallback(table=there, snapshot=snapshot)


def _check_fits(table: FileTable, there: FileTable) -> None:
    ours, theirs = table.schema, there.schema
    facts = {
        "columns": tuple(
            [(each.name, str(replace(each.type, nullable=True))) for each in schema.fields] for schema in (ours, theirs)
        ),
        "partition columns": (ours.partition_keys, theirs.partition_keys),
        "primary key": (ours.primary_keys, theirs.primary_keys if ours.primary_keys else ()),
    }
    for what, (own, other) in facts.items():
        if own != other:
            raise InvalidInputError(
                f"a branch to fall back to has the table's {what}: table={table.name} "
                f"branch={there.store.paths.branch} own={[str(each) for each in own]} "
                f"fallback={[str(each) for each in other]} "
                "fix=alter the branch, or fall back to another one"
            )
