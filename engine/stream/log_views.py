"""The logs that a table has had, as a stream reads them: each with the table's snapshots as that log sees them.

A position belongs to one log. When the table gets another one, or none, the stream continues in the former log to the
next snapshot boundary and crosses over there: from then on, what the snapshots before the new log changed is read
from their files.
"""

from dataclasses import dataclass, replace

from engine.log.table_log import TableLog, at_log_of
from engine.request.writer_options import EVEN_UNTRACKED
from engine.stream.history import TableHistory
from engine.stream.log import StreamLog
from engine.stream.options import StreamOptions, log_to_read
from engine.stream.position.alignment import holds, snapshot_read
from engine.stream.position.position import Phase, Position
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.left_logs import left_logs
from filestore.snapshot.lost_files import SnapshotExpiredError
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """One of a table's logs, or its files alone."""

    history: TableHistory
    table_log: TableLog | None  # None: changes come from files
    log: StreamLog | None

    @property
    def topic_id(self) -> str | None:
        """Id of the topic; None without a log."""
        return None if self.table_log is None else self.table_log.topic_id


class LogViews:
    """Finds the view of a position. Keeps connections and caches; not picklable."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._store = options.table.store
        self._by_topic = {None if options.log is None else options.log.topic_id: self._view(options.log)}
        self._in_force = next(iter(self._by_topic.values()))
        self._checked_id = self._store.schema.id

    def in_force(self, newest: TableSchema) -> LogView:
        """The view of the log that the newest schema version names; a stream of files alone continues without a log."""
        if newest.id != self._checked_id:
            if self._options.log is not None:
                self._in_force = self._of_log(self._log_of(newest, is_read=True))
            self._checked_id = newest.id
        return self._in_force

    def of(self, here: Position) -> LogView:
        """The view of a position. Raises: CorruptDataError: the table never had the position's log."""
        found = self._by_topic.get(here.topic_id)
        if found is not None:
            return found
        if here.topic_id is None:
            return self._of_log(None)
        for schema_id in reversed(self._store.schemas.ids()):
            schema = self._store.schemas.read(schema_id)
            if schema.table_options.log_topic_id == here.topic_id:
                return self._of_log(self._log_of(schema, is_read=False))
        raise CorruptDataError(
            f"the table has another log than when the stream stopped: table={self._store.name} "
            f"topic_id={self._in_force.topic_id} checkpoint_topic_id={here.topic_id} cause=the table was recreated "
            "fix=start with a new checkpoint"
        )

    def _log_of(self, schema: TableSchema, *, is_read: bool) -> TableLog | None:
        """The log of a version of the schema; with ``is_read`` None where streams read files instead."""
        table = replace(self._options.table, store=at_log_of(self._store, schema))
        log = TableLog.of(table, EVEN_UNTRACKED)
        return log_to_read(table, log, table.options) if is_read and log is not None else log

    def _of_log(self, log: TableLog | None) -> LogView:
        topic_id = None if log is None else log.topic_id
        if topic_id not in self._by_topic:
            self._by_topic[topic_id] = self._view(log)
        return self._by_topic[topic_id]

    def _view(self, log: TableLog | None) -> LogView:
        history = TableHistory(
            self._store,
            reads_log=log is not None,
            log_generation=None if log is None else log.generation,
            is_exact=self._options.is_exact,
            filter=self._options.filter,
        )
        return LogView(history=history, table_log=log, log=None if log is None else StreamLog(log))


def left_log_at(here: Position, store: TableStore, to: LogView) -> Position | None:
    """The position on a branch of a stream that followed the log of the branch's parent; None: there is none.

    Args:
        here: the delivered position.
        store: the table, on the branch.
        to: the view to cross over to.
    """
    snapshot = store.snapshots.find(here.snapshot_id) if here.phase is Phase.LOG and here.topic_id else None
    left = {} if snapshot is None else left_logs(snapshot)
    if here.topic_id is None or here.topic_id not in left or not here.offsets.is_at(left[here.topic_id]):
        return None
    offsets = to.history.facts(here.snapshot_id).offsets
    return replace(here.in_other_log(to.topic_id, offsets), is_jump=True)


def boundary(here: Position, newest_id: int, history: TableHistory) -> int:
    """The snapshot at whose end a position is, or which the stream has to reach before it can cross over.

    Args:
        here: in the log of ``history``.
        newest_id: of the table.
        history: as the position's log sees it.

    Raises:
        SnapshotExpiredError: the snapshots after the position have expired.
    """
    if history.is_eventual:  # records are delivered before there is a snapshot of them: those may come again
        return _last_within(here, newest_id, history)
    found = snapshot_read(here, newest_id, history)
    if not any(here.offsets.values()) or holds(found, here, history):
        return found
    raise SnapshotExpiredError(
        f"a stream is behind the end of its former log: snapshot={here.snapshot_id} newest_snapshot={newest_id} "
        f"offsets={dict(here.offsets)}"
    )


def _last_within(here: Position, newest_id: int, history: TableHistory) -> int:
    for snapshot_id in range(newest_id, here.snapshot_id, -1):
        then = history.facts(snapshot_id).offsets
        if all(offset <= here.offsets.get(bucket, 0) for bucket, offset in then.items()):
            return snapshot_id
    return here.snapshot_id


def crossed(here: Position, at: LogView, to: LogView, boundary_id: int) -> Position | None:
    """The equal position in another log; None while the stream is between two snapshots.

    Args:
        here: the delivered position, in the log of ``at``.
        at: the view of ``here``.
        to: the view to cross over to.
        boundary_id: from ``boundary``, for a position in the log.
    """
    if here.phase is Phase.LOG:
        then = at.history.facts(boundary_id).offsets if boundary_id else {}
        if not (here.offsets.is_at(then) or at.history.is_eventual):
            return None
        here = here.behind(boundary_id, then)
    offsets = to.history.facts(here.snapshot_id).offsets if here.snapshot_id else {}
    return replace(here.in_other_log(to.topic_id, offsets), is_jump=True)
