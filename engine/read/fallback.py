"""A branch that batch reads fall back to: partitions that the table's own branch lacks come from there.

So a branch of corrected or of preliminary partitions is read with the rest of the table around it. A partition is
present when the snapshot that is read has a file in it, whatever the filter of the read leaves out. Streams and the
rows that ``UPDATE``, ``DELETE`` and ``MERGE`` change are of the table's own branch alone. Source: Paimon
``FallbackReadFileStoreTable``.
"""

from dataclasses import dataclass, replace

from engine.read.pieces import FallbackPiece
from engine.read.read_state import ReadState, StateSource
from engine.request.read_keys import FALLBACK
from engine.request.read_request import AtTime, AtVersion, AtWord, ReadRequest
from filestore.predicate.predicate import Predicate
from filestore.scan.pruning import Pruner
from filestore.scan.snapshot_files import live_files
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """The state of the fallback branch."""

    table: FileTable
    snapshot: Snapshot

    def __str__(self) -> str:
        return f"fallback_branch={self.table.store.paths.branch} fallback_snapshot={self.snapshot.id}"

    def pieces(self, store: TableStore, snapshot: Snapshot | None, filter: Predicate | None) -> list[FallbackPiece]:
        """What is read instead of partitions that a snapshot lacks.

        Args:
            store: the table that is read.
            snapshot: of it; None is the empty table.
            filter: files that certainly do not match are left out.
        """
        keep = Pruner(store, filter).keep_partition
        entries = [] if snapshot is None else live_files(store, snapshot, keep_partition=keep)
        present = {entry.partition for entry in entries}
        found = self.table.new_scan().plan(snapshot=self.snapshot, filter=filter)
        splits = [split for split in found.splits if split.partition not in present]
        return [FallbackPiece(table=self.table, split=split) for split in splits]


def find_fallback(table: FileTable, state: ReadState, request: ReadRequest) -> Fallback | None:
    """The branch that a read falls back to, at the time of the state; None: it has none, or that branch is empty.

    A state of another branch falls back as that branch's own options say.

    Args:
        table: that was opened, with the reader's options in force.
        state: that was found.
        request: what the reader asks for.

    Raises:
        InvalidInputError: there is no such branch, or it has other columns, partitions or keys; the log is read.
    """
    read = state.table
    is_own = read.store.paths.branch == table.store.paths.branch
    name = request.fallback_branch if is_own else read.options.scan_fallback_branch
    if not name or name == read.store.paths.branch:
        return None
    if state.served.source is not StateSource.SNAPSHOT:
        raise InvalidInputError(
            f"a partition that only the log has looks like a missing one: table={read.name} "
            f"{FALLBACK}={name} fix=read without scan.log.union and scan.max-staleness"
        )
    other = read.on_branch(name)
    _check_fits(read, other)
    as_of_ms = _travel_ms(state, request)
    snapshots, now_ms = other.store.snapshots, other.store.clock.now_ms()
    snapshot = snapshots.latest() if as_of_ms is None else snapshots.as_of(as_of_ms, now_ms=now_ms)
    return None if snapshot is None else Fallback(table=other, snapshot=snapshot)


def _travel_ms(state: ReadState, request: ReadRequest) -> int | None:
    """The time of the state, epoch milliseconds; None: it is the newest."""
    match request.place:
        case AtTime(time_ms):
            return time_ms
        case AtVersion() | AtWord():
            return None if state.snapshot is None else state.snapshot.time_ms
        case _:
            return None


def _check_fits(table: FileTable, fallback: FileTable) -> None:
    own, other = table.schema, fallback.schema
    own_columns, other_columns = (
        tuple((each.name, str(replace(each.type, nullable=True))) for each in schema.fields) for schema in (own, other)
    )
    facts = {
        "columns": (own_columns, other_columns),
        "partition columns": (own.partition_keys, other.partition_keys),
        "primary key": (own.primary_keys, other.primary_keys if own.primary_keys else ()),
    }
    for what, (wanted, found) in facts.items():
        if wanted != found:
            raise InvalidInputError(
                f"a branch to fall back to has the table's {what}: table={table.name} "
                f"branch={fallback.store.paths.branch} own={[str(each) for each in wanted]} "
                f"fallback={[str(each) for each in found]} "
                "fix=alter the branch, or fall back to another one"
            )
