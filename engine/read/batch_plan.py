"""The plan of a batch read: the pieces of a state that a filter may want."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from engine.read.fallback import Fallback
from engine.read.pieces import DiffPiece, FilePiece, Piece, PieceReader, TailPiece
from engine.read.read_state import ReadState, StateSource
from filestore.predicate.predicate import Predicate, on_columns_only
from filestore.scan.data_split import DataSplit
from filestore.scan.pruning import Pruner
from filestore.scan.row_expiry import RowExpiry
from filestore.scan.table_scan import TableScan
from filestore.snapshot.snapshot import Snapshot
from filestore.table_view import TableView

if TYPE_CHECKING:
    from engine.lineage.origins import SourceRead
    from filestore.changelog.snapshot_changes import ChangeSplit

_MOST_NAMED: Final = 5  # files


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The pieces of a state that a filter may want."""

    table: TableView  # with the schema of the rows
    snapshot: Snapshot | None  # None: the table has no snapshot
    pieces: tuple[Piece, ...]
    filter: Predicate | None = None  # to be applied to the rows of every piece
    constants: Mapping[str, pa.Scalar] = field(default_factory=dict)  # columns beside the table's
    has_changes: bool = False  # each row has its own kind
    is_newest: bool = False  # the state was asked for as the newest, by no name, number or time
    is_whole: bool = True  # it has the rows that wait for a compaction

    @property
    def source_read(self) -> "SourceRead | None":
        """The state for lineage, and for who writes the table from its own rows; None: there is no snapshot."""
        from engine.lineage.origins import SourceRead

        return SourceRead.of(self.table.store, self.snapshot, is_newest=self.is_newest, is_whole=self.is_whole)

    @property
    def splits(self) -> "list[DataSplit | ChangeSplit]":
        """The files of all pieces."""
        return [split for piece in self.pieces for split in piece.splits]

    def summary(self, pieces: Sequence[Piece] | None = None) -> str:
        """The state and the files, of many the first ones: for people who look at a plan of Spark's.

        Args:
            pieces: of the plan; None: all.
        """
        splits = [split for piece in (self.pieces if pieces is None else pieces) for split in piece.splits]
        names = list(dict.fromkeys(file.file_name for split in splits for file in split.files))
        state = "without a snapshot" if self.snapshot is None else f"at snapshot {self.snapshot.id}"
        more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"fluvial {self.table.name} {state}, files: [{', '.join(names[:_MOST_NAMED])}{more}]"

    def reader(self, names: Sequence[str]) -> PieceReader:
        """What reads the pieces.

        Args:
            names: columns of the table and of the constants, to return in this order; ``_row_kind`` of a difference.
        """
        return PieceReader(table=self.table, names=tuple(names), filter=self.filter, constants=self.constants)


def plan_state(
    state: ReadState,
    fallback: Fallback | None,
    filter: Predicate | None,
    constants: Mapping[str, pa.Scalar],
    *,
    is_newest: bool,
) -> BatchPlan:
    """The pieces of a state.

    Args:
        state: that was found.
        fallback: another branch of which partitions are taken; None: none.
        filter: pieces that certainly do not match are left out.
        constants: columns beside the table's.
        is_newest: the newest state was asked for.
    """
    from engine.types.rows import ROW_KIND_COLUMN

    pieces: Sequence[Piece]
    if state.diff is not None:
        pieces = [DiffPiece(diff=state.diff, split=split) for split in state.diff.plan()]
        constants = {name: value for name, value in constants.items() if name != ROW_KIND_COLUMN}
    elif state.ranges:
        pieces = _with_tails(state, filter)
    else:
        own = _of_files(state, filter)
        pieces = own if fallback is None else fallback.beside(own, state.table.store, state.snapshot, filter)
    return BatchPlan(
        table=state.table,
        snapshot=state.snapshot,
        pieces=tuple(pieces),
        filter=filter,
        constants=constants,
        has_changes=state.diff is not None,
        is_newest=is_newest,
        is_whole=not _scan(state, cuts_keys=False).skips_level0,
    )


def _scan(state: ReadState, *, cuts_keys: bool) -> TableScan:
    # with the log a read is as new as the newest write, also where files alone wait for a compaction
    all_levels = state.served.source is StateSource.SNAPSHOT_AND_LOG
    return TableScan(state.table.store, all_levels=all_levels, cuts_keys=cuts_keys)


def _of_files(state: ReadState, filter: Predicate | None) -> list[FilePiece]:
    if state.snapshot is None:
        return []
    splits = _scan(state, cuts_keys=True).plan(snapshot=state.snapshot, filter=filter).splits
    return [FilePiece(split) for split in splits]


def _with_tails(state: ReadState, filter: Predicate | None) -> list[Piece]:
    """The buckets with a tail, each with its files, then the others."""
    from engine.log.log_tail import TailSplit

    assert state.log is not None, "ranges are of a log"
    table, pruner = state.table, Pruner(state.table.store, filter)
    ranges = [each for each in state.ranges if pruner.keep_bucket(each.bucket, table.options.bucket)]
    buckets = {each.bucket for each in ranges}
    under: Sequence[DataSplit] = ()
    if state.snapshot is not None and ranges:
        by_key = on_columns_only(filter, table.schema.primary_keys)
        under = _scan(state, cuts_keys=False).plan(snapshot=state.snapshot, filter=by_key, buckets=buckets).splits
    expires = RowExpiry.of(table.schema, table.options) is not None
    moment_ms = table.store.clock.now_ms() if state.served.as_of_ms is None else state.served.as_of_ms
    tails = [
        TailSplit(
            log=state.log,
            log_range=each,
            splits=tuple(split for split in under if split.bucket == each.bucket),
            expiry_moment_ms=moment_ms if expires else None,
        )
        for each in ranges
    ]
    others = [piece for piece in _of_files(state, filter) if all(each.bucket not in buckets for each in piece.splits)]
    return [*map(TailPiece, tails), *others]
