"""Which snapshot of each table belongs to a consistent tag of many tables.

A micro-batch to several tables is not one transaction, and a query that reads one table and writes another always
lags. A choice of snapshots (a cut) is consistent when it splits no query: all tables that a query writes contain its
batches up to the same one, and all tables that it reads are at the query's position after that batch. ``choose_cut``
finds the newest: it starts at the newest snapshots and goes back as far as the queries require. Pure: it reads
histories through protocols.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lsm.errors import InvalidInputError


class BatchHistory(Protocol):
    """The micro-batches in the snapshots of one table."""

    def newest_batch(self, user: str, snapshot_id: int) -> int | None:
        """The newest batch of a query in a snapshot; None when none can be found."""

    def last_before(self, user: str, batch_id: int, snapshot_id: int) -> int | None:
        """The newest snapshot, up to the given one, without a later batch of the query; None when it has expired."""


class Places(Protocol):
    """A query's positions in the tables that it reads."""

    def snapshots_at(self, batch_id: int) -> Mapping[str, int] | None:
        """For each table, the snapshot of which the query had read exactly all changes at the end of a batch.

        None: the position in one of them was between two snapshots. Raises: InvalidInputError when the checkpoint no
        longer has the batch.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLink:
    """A query, and the tables of the cut that it connects."""

    user: str  # its commit user
    targets: tuple[str, ...]
    places: Places | None = None  # positions in the source tables, if the checkpoint is known
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A snapshot of each table, and the last batch of each query in it."""

    snapshots: Mapping[str, int]
    batches: Mapping[str, int] = field(default_factory=dict)  # by user


def choose_cut(newest: Mapping[str, int], histories: Mapping[str, BatchHistory], queries: Sequence[QueryLink]) -> Cut:
    """The newest consistent cut.

    Args:
        newest: the newest eligible snapshot of each table.
        histories: the batches of each table.
        queries: the queries that connect the tables.

    Raises:
        InvalidInputError: no consistent cut remains; the message says why.
    """
    bounds, batches = dict(newest), dict[str, int]()
    is_settled = False
    while not is_settled:
        is_settled = True
        for query in queries:
            batch_id, lower = _highest(query, bounds, histories, below=batches.get(query.user))
            if batches.get(query.user) != batch_id or any(bounds[name] != at for name, at in lower.items()):
                is_settled = False
            batches[query.user] = batch_id
            bounds.update(lower)
    return Cut(snapshots=bounds, batches=batches)


def check_tied(tables: Sequence[str], queries: Sequence[QueryLink]) -> None:
    """Refuse tables that no known query connects: their snapshots cannot be related.

    Raises: InvalidInputError with the groups of connected tables.
    """
    groups = [{name} for name in tables]
    for query in queries:
        tied = {*query.targets, *query.sources}
        touched = [group for group in groups if group & tied]
        groups = [group for group in groups if not group & tied] + [set().union(*touched)]
    if len(groups) > 1:
        shown = "; ".join(",".join(sorted(group)) for group in groups)
        raise InvalidInputError(
            f"no query is known to connect these tables: groups={shown} "
            "fix=name checkpoints of the queries between them, or a timestamp"
        )


def _highest(
    query: QueryLink, bounds: Mapping[str, int], histories: Mapping[str, BatchHistory], *, below: int | None
) -> tuple[int, dict[str, int]]:
    """The newest batch within the bounds, and the snapshots of the query's tables at that batch."""
    known = {name: histories[name].newest_batch(query.user, bounds[name]) for name in query.targets}
    missing = sorted(name for name, batch_id in known.items() if batch_id is None)
    if missing:
        raise InvalidInputError(
            f"a table has no batch of the query among its snapshots: table={missing[0]} "
            f"snapshot={bounds[missing[0]]} commit_user={query.user} fix=keep snapshots longer, or leave the table out"
        )
    start = min(batch_id for batch_id in known.values() if batch_id is not None)
    for batch_id in range(start if below is None else min(start, below), -1, -1):
        found = _at_batch(query, batch_id, bounds, histories)
        if found is not None:
            return batch_id, found
    raise InvalidInputError(
        f"no batch of the query belongs to a remaining snapshot: commit_user={query.user} newest_batch={start} "
        f"tables={','.join((*query.sources, *query.targets))} fix=stop the query for a moment, or keep snapshots longer"
    )


def _at_batch(
    query: QueryLink, batch_id: int, bounds: Mapping[str, int], histories: Mapping[str, BatchHistory]
) -> dict[str, int] | None:
    found: dict[str, int] = {}
    for name in query.targets:
        last = histories[name].last_before(query.user, batch_id, bounds[name])
        if last is None:
            raise InvalidInputError(
                f"the snapshots of a batch have expired: table={name} commit_user={query.user} batch_id={batch_id} "
                "fix=keep snapshots longer (snapshot.num-retained.min), or cut more often"
            )
        found[name] = last
    if query.places is not None and query.sources:
        places = query.places.snapshots_at(batch_id)
        if places is None or any(places[name] > bounds[name] for name in query.sources):
            return None
        for name in query.sources:
            found[name] = min(places[name], found.get(name, places[name]))
    return found
