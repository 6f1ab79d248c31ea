"""Another branch of which batch reads take whole partitions: those that the table's own lacks, or all that it has.

So a branch of preliminary or of corrected partitions is read with the rest of the table around it. A partition is
present when the snapshot that is read has a file in it, whatever the filter of the read leaves out. Streams and the
rows that ``UPDATE``, ``DELETE`` and ``MERGE`` change are of the table's own branch alone. Source: Paimon
``FallbackReadFileStoreTable``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.read.pieces import FallbackPiece, FilePiece, Piece
from engine.read.read_state import ReadState, StateSource
from engine.request.read_request import AtTime, AtVersion, AtWord, ReadRequest
from filestore.options.table_options import TableOptions
from filestore.predicate.predicate import Predicate
from filestore.scan.pruning import Pruner
from filestore.scan.snapshot_files import live_files
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """The state of the other branch."""

    table: FileTable
    snapshot: Snapshot
    comes_first: bool = False  # ``scan.primary-branch``: the table's own partitions are those that it lacks

    def __str__(self) -> str:
        word = "primary" if self.comes_first else "fallback"
        return f"{word}_branch={self.table.store.paths.branch} {word}_snapshot={self.snapshot.id}"

    def beside(
        self, own: Sequence[FilePiece], store: TableStore, snapshot: Snapshot | None, filter: Predicate | None
    ) -> list[Piece]:
        """The pieces of both branches, of each partition those of one.

        Args:
            own: the pieces of the table that is read.
            store: that table.
            snapshot: of it; None is the empty table.
            filter: by which its pieces were planned; files that certainly do not match are left out.
        """
        found = self.table.new_scan().plan(snapshot=self.snapshot, filter=filter).splits
        other = [FallbackPiece(table=self.table, split=split) for split in found]
        first, at = (self.table.store, self.snapshot) if self.comes_first else (store, snapshot)
        entries = [] if at is None else live_files(first, at, keep_partition=Pruner(first, filter).keep_partition)
        present = {entry.partition for entry in entries}
        if self.comes_first:
            return [*(piece for piece in own if piece.split.partition not in present), *other]
        return [*own, *(piece for piece in other if piece.split.partition not in present)]


def find_fallback(table: FileTable, state: ReadState, request: ReadRequest) -> Fallback | None:
    """The other branch of a read, at the time of the state; None: it has none, or that branch is empty.

    A state of another branch is read with the branch that its own options name.

    Args:
        table: that was opened, with the reader's options in force.
        state: that was found.
        request: what the reader asks for.

    Raises:
        InvalidInputError: there is no such branch, or it has other columns, partitions or keys; two are named; the log
            is read.
    """
    read = state.table
    is_own = read.store.paths.branch == table.store.paths.branch
    named = request.read_branches if is_own else read.options.read_branches
    named = {key: name for key, name in named.items() if name != read.store.paths.branch}
    if not named:
        return None
    if len(named) > 1:
        raise InvalidInputError(
            f"partitions come from one other branch: table={read.name} "
            f"{' '.join(f'{key}={name}' for key, name in named.items())} fix=remove one of them"
        )
    [(key, name)] = named.items()
    if state.served.source is not StateSource.SNAPSHOT:
        raise InvalidInputError(
            f"a partition that only the log has looks like a missing one: table={read.name} "
            f"{key}={name} fix=read without scan.log.union and scan.max-staleness"
        )
    other = read.on_branch(name)
    _check_fits(read, other)
    _check_unplaced(read, other, request.place_of_table, key)
    as_of_ms = _travel_ms(state, request)
    snapshots, now_ms = other.store.snapshots, other.store.clock.now_ms()
    snapshot = snapshots.latest() if as_of_ms is None else snapshots.as_of(as_of_ms, now_ms=now_ms)
    comes_first = key == TableOptions.scan_primary_branch.key
    return None if snapshot is None else Fallback(table=other, snapshot=snapshot, comes_first=comes_first)


def _travel_ms(state: ReadState, request: ReadRequest) -> int | None:
    """The time of the state, epoch milliseconds; None: it is the newest."""
    match request.place:
        case AtTime(time_ms):
            return time_ms
        case AtVersion() | AtWord():
            return None if state.snapshot is None else state.snapshot.time_ms
        case _:
            return None


def _check_unplaced(table: FileTable, other: FileTable, of_table: str | None, key: str) -> None:
    """Refuse a stored state of either branch: Paimon reads each of both by its own, at different times.

    Raises: InvalidInputError naming the option; the other branch is closed to batch reads.
    """
    of_other = ReadRequest.parse(other.options, {}).place_of_table
    for stored, opened in ((of_table, table), (of_other, other)):
        if stored is not None:
            raise InvalidInputError(
                f"a state that a table has for its reads is of one of two branches: table={opened.name} "
                f"option={stored} value={opened.options.texts_by_key()[stored]} {key}={other.store.paths.branch} "
                f"fix='reset it (ALTER TABLE {opened.name} RESET), and give each read its state'"
            )


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
