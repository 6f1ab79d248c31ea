"""The current state of a table and its log, for one stream: start, readable end, and what to retain."""

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Final

from engine.lineage.recording import Recorder
from engine.log.retention import OffsetLostError
from engine.request.commit_handle import wait_until_visible
from engine.stream.beginning import Beginning
from engine.stream.history import TableHistory
from engine.stream.lag import Lag, lag_of
from engine.stream.log import StreamLog
from engine.stream.log_views import LogView, LogViews, boundary, crossed, left_log_at
from engine.stream.loss import after_loss, at_whole_snapshot
from engine.stream.options import Alignment, OnLoss, StreamOptions
from engine.stream.position.alignment import next_aligned_id, snapshot_read
from engine.stream.position.place import ConsumerPlace
from engine.stream.position.plan import Limits, PlanStep, ReadTarget, advance, end_of_log, steps, whole_reading
from engine.stream.position.position import Phase, Position
from filestore.evolution.crossing import Crossing, crossing
from filestore.schema.row_counts import seen_schema
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.lost_files import SnapshotExpiredError
from logstore.offsets import LogOffsets
from lsm.errors import CorruptDataError, InvalidInputError

# ---- Schema changes while a stream runs: the stream keeps its own columns where they can still represent the rows
# Spark fixes the columns of a frame when the query starts. Before a batch is planned, this module decides whether newer
# rows can be shown with them (``filestore.evolution.crossing``). Tasks handle the rest: files name the schema version
# they were written with, and records of the log name their columns.


class SchemaWatch:
    """Checks every version of a schema once."""

    def __init__(self, options: StreamOptions) -> None:
        self._table = options.table
        self._columns = options.columns
        self._drops_as_null = options.drops_as_null
        self._newest = options.table.store.schema  # the newest version that the stream can cross to

    @property
    def newest(self) -> TableSchema:
        """The newest version at the last check."""
        return self._newest

    def check(self) -> TableSchema:
        """Check the newest schema version, and return it. A new one is read once, and its changes are logged.

        Raises:
            InvalidInputError: the stream's columns can no longer represent the rows. Names them and the fix.
        """
        ids = self._table.store.schemas.ids()
        if not ids or ids[-1] == self._newest.id:
            return self._newest
        stored = self._table.store.schemas.read(ids[-1])
        newest = seen_schema(stored)
        found = crossing(self._table.schema, newest, self._columns)
        known_id = self._table.schema.id
        dropped = () if self._drops_as_null else found.dropped
        if found.refused or dropped:
            reasons = [*found.refused, *(f"column={name} reason='it was dropped'" for name in dropped)]
            fix = "restart the query, it continues from here with the new columns"
            if dropped and not found.refused:
                fix += "; or set read.stream.on-dropped-column=null: null from now on"
            raise InvalidInputError(
                f"the table's schema changed: table={self._table.name} {'; '.join(reasons)} schema={newest.id} "
                f"stream_schema={known_id} fix={fix}"
            )
        self._newest = stored
        facts = _facts(found)
        if facts:
            logger.warning(
                "the table's schema changed, the stream continues with its own columns: table=%s schema=%d "
                "stream_schema=%d %s",
                self._table.name, newest.id, known_id, facts,
            )  # fmt: skip
        return stored


def _facts(found: Crossing) -> str:
    """The changes for the log message, '' when there are none."""
    parts = {
        "not_delivered_until_restart": found.added,
        "renamed": found.renamed,
        "widened_and_checked": found.widened,
        "dropped_and_null": found.dropped,
    }
    return " ".join(f"{name}=[{', '.join(texts)}]" for name, texts in parts.items() if texts)


# ---- The current state of a table and its log, for one stream: start, readable end, and what to retain


logger = logging.getLogger("fluvial.stream")

_POLL_MS: Final = 50


class TableWatch:
    """State of a stream's planning process. Keeps connections and caches; not picklable."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._store = options.table.store
        self._views = LogViews(options)
        self._view = self._views.in_force(options.table.store.schema)
        self.lag: Lag | None = None
        self._stop: ReadTarget | None = None
        self._schemas = SchemaWatch(options)
        self.newest_id = 0  # at the last check
        self._planned: Position | None = None  # the end that was planned last, by this process
        self._instead: tuple[Position, Position] | None = None  # a planned end that was lost, and where the stream is
        self._recorder = Recorder.of(options.table.store)
        if self._store.options.write_only and self.log is None and self.history.reads_by_difference:
            logger.warning(
                "changes come with compactions, which the writers leave to others: table=%s changelog-producer=%s "
                "write-only=true fix='run fluvial compact --watch, or set write-only=false'",
                self._store.name, self._store.options.changelog_producer,
            )  # fmt: skip
        self._place: ConsumerPlace | None = None
        if options.consumer_id is not None:
            ignores = options.ignores_consumer
            self._place = ConsumerPlace(options.table.store, options.consumer_id, ignores_progress=ignores)

    @property
    def history(self) -> TableHistory:
        """The table's snapshots, as the log sees them that the stream reads now."""
        return self._view.history

    @property
    def log(self) -> StreamLog | None:
        """The log that the stream reads now; None: it reads files."""
        return self._view.log

    @property
    def newest_schema(self) -> TableSchema:
        """The newest version of the schema at the last look."""
        return self._schemas.newest

    @property
    def is_bounded(self) -> bool:
        """True for a query that ends at the state of the table when it started."""
        return self._stop is not None

    def stop_at_now(self) -> None:
        """End the stream at the table's current state. Raises: UnavailableError when a commit does not appear."""
        self._wait_for_commit()
        self._stop = self._now()

    def begin(self) -> Position:
        """The start of a stream without a checkpoint.

        Raises:
            ConflictError: another program uses the stream's consumer.
            InvalidInputError: the snapshot, tag or time is not available.
            UnavailableError: a commit to wait for does not appear.
        """
        self._wait_for_commit()
        self._view = self._views.in_force(self._schemas.check())
        beginning = Beginning(options=self._options, view=self._view, place=self._place, recorder=self._recorder)
        here = beginning.position(self._stop or self._now())
        if self._place is not None and self._place.hold(here) < self._store.snapshots.claimed_up_to():
            # an expiry did not see the consumer yet: the next one does
            self._stop = self._stop and self._now()
            here = beginning.position(self._stop or self._now())
            self._place.hold(here)
        return here

    def record_start(self, here: Position) -> None:
        """Before a run's first batch: keep what it reads, and record it by ``pipeline.name``. Raises: FluvialError."""
        if self._place is not None:
            self._place.hold(here)
        job, read = self._options.job, here.read
        if self._recorder is not None and job is not None and read is not None and read.snapshot_id:
            self._recorder.started(job, (self._recorder.read_here(read.snapshot_id),))

    def pinned(self, here: Position) -> Position:
        """A position that knows its moment of expiry; one of a former version gets that of now, from here on.

        Raises: CorruptDataError: the table never had the position's log.
        """
        if here.phase is not Phase.SNAPSHOT or here.moment_ms is not None:
            return here
        with suppress(SnapshotExpiredError):  # found again, and answered, by the plan
            return replace(here, moment_ms=self._views.of(here).history.moment_of(here.snapshot_id))
        return here

    def next(self, here: Position) -> Position:
        """The end of the next batch; ``here`` itself when there is nothing to deliver.

        Raises:
            CorruptDataError: needed data is lost, and the options do not say how to continue.
            InvalidInputError: the table's schema changed in a way that the stream cannot follow.
        """
        if self._instead is not None and self._instead[0] == here:
            return replace(self._instead[1], is_jump=True)
        self._view = in_force = self._views.in_force(self._schemas.check())
        if self._stop is not None:
            self.history.forget_after_rollback()
        target = self._stop or self._now()
        self._view = self._views.of(here)
        if self._view is not in_force:
            self.history.forget_after_rollback()
        self._check_commit(here)
        if in_force.topic_id != here.topic_id:
            return self._cross_over(here, target, in_force)
        if self.log is not None:
            self.log.check_topic()
        aligned = self._options.aligned
        reachable = target if aligned is None else self._aligned_target(here, target, aligned)
        goal = end_of_log(reachable, self.history)
        record_bytes = 0 if self.log is None else self.log.record_bytes(here.offsets, goal)
        limits = replace(self._options.limits, record_bytes=record_bytes or self._options.limits.record_bytes)
        try:
            end = self._advanced(here, reachable, goal, limits)
        except (OffsetLostError, SnapshotExpiredError) as loss:
            end = after_loss(here, loss, self._options, self.history, self.log, target)
        missing_from = end if end.is_jump else here
        now_ms = self._store.clock.now_ms()
        self.lag = lag_of(missing_from, target, self.history, record_bytes=limits.record_bytes, now_ms=now_ms)
        if end == here or self._is_not_worth_a_batch(here, end):
            return here
        self._planned = self.with_commit(end)
        return self._planned

    def _is_not_worth_a_batch(self, here: Position, end: Position) -> bool:
        """Whether a batch would only move past commits that changed no rows, such as compactions.

        The position is moved before its snapshot expires, and whenever a consumer or another job waits for it.
        """
        is_awaited = self._place is not None or self._options.aligned is not None
        return (
            not is_awaited
            and end.is_range
            and end.offsets == here.offsets
            and end.snapshot_id - here.snapshot_id < self._store.options.snapshot_num_retained_min // 2
        )

    def steps_between(self, start: Position, end: Position) -> list[PlanStep]:
        """The steps of a planned batch; after a loss those that the options ask for, while this process lives.

        Raises: CorruptDataError: needed data is lost, and the options do not say how to continue.
        """
        try:
            return self.planned_steps(start, end)
        except (OffsetLostError, SnapshotExpiredError) as loss:
            there = self.continued(start, loss)
            step, behind = whole_reading(there, self.history)
            self._instead = end.place, self.with_commit(behind)
            return [] if step is None else [step]

    def planned_steps(self, start: Position, end: Position) -> list[PlanStep]:
        """The steps of a planned batch. Raises: OffsetLostError, SnapshotExpiredError: needed data was removed."""
        if end != self._planned and end.is_range and self.log is not None:
            self.log.check_kept(self._store, self._needed_from(start, end.offsets), end.offsets)
        return list(steps(start, end, self.history))

    def continued(
        self, here: Position, loss: OffsetLostError | SnapshotExpiredError, *, is_between: bool = False
    ) -> Position:
        """The position at which the stream continues after a loss.

        Args:
            here: everything before is delivered.
            loss: what happened.
            is_between: something after it is delivered too, so no difference that starts there is exact.

        Raises: CorruptDataError: the options do not say how to continue.
        """
        target = self._stop or self._now()
        found = after_loss(here, loss, self._options, self.history, self.log, target)
        if is_between and self._options.on_loss is OnLoss.RESNAPSHOT:
            found = replace(at_whole_snapshot(here, target.snapshot_id, self.history), is_jump=True)
        return self.with_commit(found)

    def _advanced(self, here: Position, reachable: ReadTarget, goal: LogOffsets, limits: Limits) -> Position:
        if self.log is not None and here.phase is Phase.LOG:
            self.log.check_kept(self._store, self._needed_from(here, goal), goal)
        return advance(here, reachable, self.history, limits)

    def _cross_over(self, here: Position, target: ReadTarget, to: LogView) -> Position:
        """The next position of a stream whose table has another log now: in that log, or on the way there."""
        at, loss = self._view, None
        try:
            end = left_log_at(here, self._store, to)
            boundary_id = 0
            if end is None:
                boundary_id = boundary(here, target.snapshot_id, at.history) if here.phase is Phase.LOG else 0
                end = crossed(here, at, to, boundary_id)
            if end is None:
                reachable = ReadTarget(snapshot_id=boundary_id)
                return self.with_commit(
                    self._advanced(here, reachable, end_of_log(reachable, at.history), self._options.limits)
                )
        except (OffsetLostError, SnapshotExpiredError) as error:
            loss = error
        except CorruptDataError as error:  # the topic is gone, or another one has its name
            loss = OffsetLostError(str(error))
        self._view = to
        if loss is not None:
            end = after_loss(here.in_other_log(to.topic_id, {}), loss, self._options, to.history, to.log, target)
        assert end is not None
        logger.warning(
            "the table has another log, where the stream continues: table=%s topic=%s former_topic=%s snapshot=%d",
            self._store.name, to.topic_id, at.topic_id, end.snapshot_id,
        )  # fmt: skip
        return self.with_commit(end)

    def with_commit(self, here: Position) -> Position:
        """The position with its snapshot's commit, to detect rollbacks, its schema version, and its lineage."""
        read = self._recorder and self._recorder.read_here(snapshot_read(here, self.newest_id, self.history))
        return replace(
            here, commit=self.history.commit_of(here.newest_id), schema_id=self._store.schema.id, read=read or here.read
        )

    def check_history(self, here: Position) -> LogView:
        """Refuse a table that was rolled back below the stream's position, even if it has as many snapshots again.

        Returns: the log of the position.

        Raises:
            InvalidInputError: it was rolled back.
            CorruptDataError: the table never had the position's log.
        """
        self._view = self._views.of(here)
        self.history.forget_after_rollback()
        self._check_commit(here)
        return self._view

    def _check_commit(self, here: Position) -> None:
        """Refuse a table that is behind the position, or has another commit at its place. Raises: InvalidInputError."""
        if here.newest_id == 0:
            return
        known = self.history.commit_of(here.newest_id)
        if known is None and (latest_id := self._store.snapshots.latest_id() or 0) < here.newest_id:
            raise _rolled_back(self._store.name, here, f"latest_snapshot={latest_id}")  # else it has expired
        if known is not None and here.commit not in (None, known):
            raise _rolled_back(self._store.name, here, "another commit has its number")

    def record_progress(self, here: Position) -> None:
        """Record what this stream still needs, if it has a ``consumer-id``."""
        if self._place is not None:
            self._place.record(here)

    def keep_alive(self, here: Position) -> None:
        """Keep the consumer while a batch takes long, or there is none; everything before ``here`` is processed."""
        if self._place is not None:
            self._place.refresh(here)

    def has_news(self) -> bool:
        """Whether there may be more than at the last look; always, where records come before their snapshot."""
        return self._reads_to_end or (self._store.snapshots.latest_id() or 0) != self.newest_id

    @property
    def _reads_to_end(self) -> bool:
        """Whether rows are delivered before there is a snapshot of them."""
        waits = self._options.aligned is not None or self._options.waits_for_commits
        return self.log is not None and self.history.is_eventual and not waits

    def _wait_for_commit(self) -> None:
        handle = self._options.at_least
        if handle is not None:
            wait_until_visible(self._store, handle, timeout_s=self._options.at_least_timeout_s)

    def _now(self) -> ReadTarget:
        newest = self.history.latest()
        known = LogOffsets() if newest is None else self.history.facts(newest.id).offsets
        log_end = self.log.ends(known) if self.log is not None and self._reads_to_end else LogOffsets()
        self.newest_id = 0 if newest is None else newest.id
        return ReadTarget(snapshot_id=self.newest_id, log_end=log_end)

    def _aligned_target(self, here: Position, target: ReadTarget, aligned: Alignment) -> ReadTarget:
        """The end of an aligned batch; the stream's position when that snapshot does not exist yet."""
        if here.phase is not Phase.LOG:
            return ReadTarget(snapshot_id=here.newest_id)
        clock = self._store.clock
        until_ms = clock.now_ms() + (0 if self.is_bounded else aligned.timeout_ms)
        while True:
            earliest_id = self._store.snapshots.earliest_id() or 1
            end_id = next_aligned_id(here.snapshot_id, target.snapshot_id, earliest_id=earliest_id, every=aligned.every)
            if end_id is not None:
                return ReadTarget(snapshot_id=end_id)
            left_ms = until_ms - clock.now_ms()
            if left_ms <= 0:
                return ReadTarget(snapshot_id=here.snapshot_id)
            clock.sleep(min(left_ms, _POLL_MS) / 1000)
            target = self._now()

    def _needed_from(self, here: Position, goal: LogOffsets) -> LogOffsets:
        """The log start that the stream needs: the previous snapshot's, when it looks up replaced rows."""
        ahead = here.offsets.ranges_until(goal) if self._options.normalizes and here.snapshot_id else ()
        if not ahead:
            return here.offsets
        base = self.history.kept_facts(here.snapshot_id).offsets
        return LogOffsets(
            {**here.offsets, **{each.bucket: min(each.start_offset, base.get(each.bucket, 0)) for each in ahead}}
        )


def _rolled_back(table: str, here: Position, facts: str) -> InvalidInputError:
    return InvalidInputError(
        f"the table was rolled back below the stream's position: table={table} {facts} "
        f"delivered_snapshot={here.newest_id} "
        "cause='a rollback, a main branch that was replaced or moved, or the table was recreated' "
        "fix='start with a new checkpoint, or without the position'"
    )
