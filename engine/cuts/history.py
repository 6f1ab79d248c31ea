"""Batch histories and query positions for ``choose_cut``, read from snapshots and checkpoints."""

from collections.abc import Mapping
from dataclasses import dataclass

from engine.checkpoint.checkpoint_files import checkpoint_root, offsets_of, query_id_of
from engine.cuts.choice import QueryLink
from engine.stream.position.position import Phase, Position
from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.commit.expired_commits import DATA_KINDS
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError, InvalidInputError


class TableBatches:
    """The batches in a table's snapshots; each snapshot is read at most once, and none older than needed."""

    def __init__(self, store: TableStore) -> None:
        self._table = store
        self._known: dict[int, Snapshot | None] = {}

    def newest_user(self, snapshot_id: int) -> str | None:
        """The query of the newest batch up to a snapshot; None when no batch can be found."""
        while (snapshot := self._find(snapshot_id)) is not None:
            if _is_batch(snapshot):
                return snapshot.commit_user
            snapshot_id -= 1
        return None

    def newest_batch(self, user: str, snapshot_id: int) -> int | None:
        """The newest batch of a query in a snapshot."""
        while (snapshot := self._find(snapshot_id)) is not None:
            if _is_batch(snapshot) and snapshot.commit_user == user:
                return snapshot.commit_identifier
            snapshot_id -= 1
        return None

    def last_before(self, user: str, batch_id: int, snapshot_id: int) -> int | None:
        """The newest snapshot, up to the given one, without a later batch of the query."""
        last = snapshot_id
        while (snapshot := self._find(snapshot_id)) is not None:
            if _is_batch(snapshot) and snapshot.commit_user == user:
                if snapshot.commit_identifier <= batch_id:
                    return last
                last = snapshot_id - 1
            snapshot_id -= 1
        return last if last > snapshot_id else None

    def _find(self, snapshot_id: int) -> Snapshot | None:
        if snapshot_id not in self._known:
            self._known[snapshot_id] = self._table.snapshots.find(snapshot_id)
        return self._known[snapshot_id]


class SourcePlaces:
    """A query's positions in Fluvial tables, from its checkpoint."""

    def __init__(self, location: str, sources: Mapping[str, TableStore]) -> None:
        """``sources`` in the query's order."""
        self._location = location
        self._sources = dict(sources)

    def snapshots_at(self, batch_id: int) -> Mapping[str, int] | None:
        """The snapshot of each source at the end of a batch; None when one was between two snapshots."""
        try:
            found = positions_of(self._location, batch_id)
        except CorruptDataError as error:
            raise InvalidInputError(f"the checkpoint does not go back far enough: {error}") from error
        if len(found) != len(self._sources):
            raise InvalidInputError(
                f"the query reads a different number of tables: checkpoint={self._location} "
                f"reads={len(found)} named={','.join(self._sources)} "
                "fix=name its tables in the order of the query, as TABLE+TABLE=DIRECTORY"
            )
        snapshots: dict[str, int] = {}
        for (name, table), position in zip(self._sources.items(), found, strict=True):
            snapshot_id = aligned_snapshot(table, position)
            if snapshot_id is None:
                return None
            snapshots[name] = snapshot_id
        return snapshots


def positions_of(location: str, batch_id: int) -> list[Position]:
    """A query's positions in its Fluvial sources. Raises: CorruptDataError when the batch is no longer stored."""
    sources = offsets_of(checkpoint_root(location), location, batch_id).sources
    return [Position.from_json(each).place for each in sources if Position.is_in(each)]


def aligned_snapshot(store: TableStore, position: Position) -> int | None:
    """The snapshot that a stream has delivered exactly; None when the position is between two snapshots."""
    is_whole = position.phase is Phase.LOG or position.done == (position.of if position.phase is Phase.SNAPSHOT else 0)
    snapshot = store.snapshots.find(position.snapshot_id)
    if not is_whole or snapshot is None:
        return None
    then = (store.log_offsets_at(snapshot) or {}) if store.has_log else {}
    return snapshot.id if position.offsets.is_at(then) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCheckpoint:
    """A checkpoint, and the tables that its query reads, if given."""

    location: str
    sources: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "NamedCheckpoint":
        """``DIRECTORY``, or ``TABLE+TABLE=DIRECTORY``."""
        names, mark, location = text.strip().partition("=")
        if not mark or "/" in names:
            return cls(location=text.strip())
        return cls(location=location, sources=tuple(each.strip() for each in names.split("+")))


def links_of(
    tables: Mapping[str, TableStore],
    newest: Mapping[str, int],
    histories: Mapping[str, TableBatches],
    checkpoints: list[NamedCheckpoint],
) -> list[QueryLink]:
    """The queries that connect tables: those of the newest batches, and those of the given checkpoints.

    Raises: InvalidInputError when a checkpoint's query wrote none of the tables, or its source tables are ambiguous.
    """
    places = {query_id_of(each.location): each for each in checkpoints}
    last = {histories[name].newest_user(newest[name]) for name in tables}
    links = []
    for user in sorted({each for each in last if each is not None} | places.keys()):
        targets = tuple(name for name in tables if histories[name].newest_batch(user, newest[name]) is not None)
        checkpoint = places.get(user)
        if checkpoint is None:
            if len(targets) > 1:
                links.append(QueryLink(user=user, targets=targets))
            continue
        if not targets:
            raise InvalidInputError(
                f"the query has written none of the tables: checkpoint={checkpoint.location} "
                f"commit_user={user} tables={','.join(tables)} fix=name another checkpoint"
            )
        sources = _sources(checkpoint, tables, targets, histories, newest)
        links.append(
            QueryLink(
                user=user,
                targets=targets,
                places=SourcePlaces(checkpoint.location, {name: tables[name] for name in sources}),
                sources=sources,
            )
        )
    return links


def _sources(
    checkpoint: NamedCheckpoint,
    tables: Mapping[str, TableStore],
    targets: tuple[str, ...],
    histories: Mapping[str, TableBatches],
    newest: Mapping[str, int],
) -> tuple[str, ...]:
    """The tables of the cut that a query reads, in the query's order."""
    if checkpoint.sources:
        unknown = [name for name in checkpoint.sources if name not in tables]
        if unknown:
            raise InvalidInputError(
                f"a table that a query reads is not one of the cut: table={unknown[0]} tables={','.join(tables)} "
                "fix=add it to the tables"
            )
        return checkpoint.sources
    user = query_id_of(checkpoint.location)
    batch_id = min(histories[name].newest_batch(user, newest[name]) or 0 for name in targets)
    count = len(positions_of(checkpoint.location, batch_id))
    others = tuple(name for name in tables if name not in targets)
    if count == 0:
        return ()
    if count == 1 and len(others) == 1:
        return others
    raise InvalidInputError(
        f"it is not clear which tables the query reads: checkpoint={checkpoint.location} reads={count} "
        f"candidates={','.join(others)} fix=name them in the order of the query, as TABLE+TABLE=DIRECTORY"
    )


def _is_batch(snapshot: Snapshot) -> bool:
    return snapshot.commit_kind in DATA_KINDS and snapshot.commit_identifier != BATCH_IDENTIFIER
