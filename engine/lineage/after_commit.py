"""What happens after a commit is visible, and only then: its lineage is recorded, and listeners are notified.

``commit.callbacks`` names entry points of installed packages, not code: a user who may set a table's options must not
be able to run code in its writers.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

from engine.lineage.origins import CommitOrigin
from engine.lineage.recording import Recorder
from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.commit.expired_commits import DATA_KINDS
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.table_store import TableStore
from lsm.errors import CommittedError, InvalidInputError

logger = logging.getLogger("fluvial.commit")

LISTENER_ENTRY_POINTS: Final = "fluvial.commit-callbacks"
CALLBACKS_KEY: Final = "commit.callbacks"


class CommitListener(Protocol):
    """Notified about commits of one table's rows. Source: PIP "Table and data lineage", CommitListener."""

    def notify_commit_complete(self, identifier: int, snapshot_id: int, commit_kind: CommitKind) -> None:
        """A commit is visible. Called again when a batch is repeated; exceptions are logged and ignored.

        Args:
            identifier: commit identifier: the micro-batch of a stream.
            snapshot_id: the snapshot of the commit.
            commit_kind: APPEND or OVERWRITE.
        """


class AfterCommit:
    """What one writer of a table does after its commits."""

    def __init__(self, store: TableStore) -> None:
        """Find out what can fail before a row is written.

        Raises:
            InvalidInputError: a listener is not installed, or the store of lineage belongs to another catalog.
            UnavailableError: the store of lineage does not answer, and ``lineage.on-unavailable=fail``.
        """
        self._store = store
        self._recorder = Recorder.of(store)
        if self._recorder is not None:
            self._recorder.check()
        self._listeners = listeners_of(store)

    def properties(self, origin: CommitOrigin | None) -> dict[str, str]:
        """The snapshot properties with the origin of its rows."""
        return {} if origin is None or self._recorder is None else origin.to_properties()

    @contextmanager
    def emitting(self, origin: CommitOrigin | None, identifier: int, rows: object) -> Iterator[None]:
        """Report the begin of a write on entry, and its failure on error, to the listeners of lineage."""
        if origin is None or self._recorder is None:
            yield
            return
        flow = None
        if self._recorder.wants_columns and hasattr(rows, "sparkSession"):
            from engine.lineage.frame_columns import columns_of_frame  # Spark is here

            flow = columns_of_frame(rows, origin.reads)
        self._recorder.begins(origin, flow, is_batch=identifier == BATCH_IDENTIFIER)
        try:
            yield
        except BaseException as error:
            self._recorder.fails(origin, error)
            raise

    def report(
        self, snapshot: Snapshot | None, origin: CommitOrigin | None, *, commit_user: str, identifier: int
    ) -> None:
        """Report a commit to listeners and lineage, unless it made no snapshot, or its snapshot has expired.

        Raises:
            CommittedError: the lineage is recorded nowhere, not in the queue either; the rows are visible, and the
                message says in which snapshot.
        """
        if (
            snapshot is None
            or (snapshot.commit_user, snapshot.commit_identifier) != (commit_user, identifier)
            or snapshot.commit_kind not in DATA_KINDS
        ):
            if origin is not None and self._recorder is not None:
                self._recorder.ends(origin, None, is_batch=identifier == BATCH_IDENTIFIER)
            return
        for listener in self._listeners:
            try:
                listener.notify_commit_complete(identifier, snapshot.id, snapshot.commit_kind)
            except Exception:
                logger.warning(
                    "a listener failed, the commit is visible: table=%s snapshot=%d listener=%s",
                    self._store.name, snapshot.id, type(listener).__name__, exc_info=True,
                )  # fmt: skip
        if origin is not None and self._recorder is not None:
            try:
                self._recorder.committed(snapshot, CommitOrigin.of(snapshot) or origin)
            except Exception as error:
                raise CommittedError(
                    f"rows are visible, but their lineage is not recorded: table={self._store.name} "
                    f"snapshot={snapshot.id} reason={error!s} "
                    "fix='do not write these rows again; CALL sys.repair_lineage once the store answers'"
                ) from error


def listeners_of(store: TableStore) -> Sequence[CommitListener]:
    """The listeners of a table: each entry point is called with the table. Raises: InvalidInputError."""
    names = [name.strip() for name in (store.options.commit_callbacks or "").split(",") if name.strip()]
    return tuple(_factory(name)(store) for name in names)


@cache
def _factory(name: str) -> Any:
    known = {each.name: each for each in entry_points(group=LISTENER_ENTRY_POINTS)}
    if name not in known:
        raise InvalidInputError(
            f"no such listener of commits: {CALLBACKS_KEY}={name} known={sorted(known)} "
            f"fix='install a package with this entry point in {LISTENER_ENTRY_POINTS}'"
        )
    return known[name].load()
