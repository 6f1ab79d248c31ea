"""The position at which a stream without a checkpoint begins: by its start options, or its consumer's position."""

import logging
from dataclasses import dataclass

from engine.lineage.recording import Recorder
from engine.stream.history import TableHistory
from engine.stream.log_views import LogView
from engine.stream.loss import at_whole_snapshot
from engine.stream.options import StreamOptions
from engine.stream.position.place import ConsumerPlace
from engine.stream.position.plan import ReadTarget, counted, end_of_log
from engine.stream.position.position import Phase, Position
from engine.stream.position.start import Start, StartKind, offsets_of_time
from filestore.snapshot.changelogs import changelog_as_of
from filestore.table_store import TableStore
from logstore.offsets import LogOffsets
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The options and the state of the table that decide where a stream begins."""

    options: StreamOptions
    view: LogView  # of the log in force
    place: ConsumerPlace | None
    recorder: Recorder | None

    def position(self, target: ReadTarget) -> Position:
        """The first position, if the table may be read up to ``target``.

        Raises: InvalidInputError: the snapshot, tag or time is not available.
        """
        start = self.options.start
        kept = self._kept_place()
        if kept is not None:
            return kept
        if self.options.from_job is not None:
            return self._behind_job(self.options.from_job, start)
        if start.kind is StartKind.FULL:
            return self._full(start, target)
        if start.kind is StartKind.LATEST:
            return self._behind(target.snapshot_id, end_of_log(target, self._history))
        if target.snapshot_id == 0:
            return self._behind(0, LogOffsets())
        if start.kind is StartKind.BEHIND:
            seen_id = start.snapshot_id or 0
            return self._behind(seen_id, self._history.facts(seen_id).offsets if seen_id else LogOffsets())
        if start.kind is StartKind.CHANGES:
            return self._changes_of(self._known(start.snapshot_id))
        assert start.time_ms is not None
        return self._at_time(start.time_ms)

    def _behind_job(self, other: str, start: Start) -> Position:
        """The position of another job in the catalog's lineage; recorded as the startup of this one."""
        recorder, job = self.recorder, self.options.job
        snapshot_id = None if recorder is None else recorder.read_by(other)
        if recorder is None or job is None or snapshot_id is None:
            raise InvalidInputError(
                f"the catalog's lineage does not know what the job has read: table={self._store.name} "
                f"scan.start-from-job={other} fix=look at paimon.source_snapshot_lineage, or set scan.snapshot-id"
            )
        self._existing(snapshot_id)
        if start.kind is StartKind.FULL:
            return at_whole_snapshot(self._behind(0, LogOffsets()), snapshot_id, self._history)
        return self._behind(snapshot_id, self._history.facts(snapshot_id).offsets)

    def _full(self, start: Start, target: ReadTarget) -> Position:
        if start.tag is not None:
            snapshot_id = self._store.snapshots.tag(start.tag).id
        elif start.snapshot_id is not None:
            snapshot_id = self._existing(start.snapshot_id)
        elif target.snapshot_id == 0:
            return self._behind(0, LogOffsets())
        else:
            snapshot_id = target.snapshot_id
        waiting = self._history.waiting_rows(snapshot_id)
        if waiting:
            logger.warning(
                "rows of the snapshot are not compacted yet, a stream gets them then: table=%s snapshot=%d rows=%d "
                "changelog-producer=%s",
                self._store.name, snapshot_id, waiting, self._store.options.changelog_producer,
            )  # fmt: skip
        return at_whole_snapshot(self._behind(0, LogOffsets()), snapshot_id, self._history)

    def _changes_of(self, snapshot_id: int) -> Position:
        """The position before the changes of a snapshot, also when the previous snapshot has expired."""
        before_id = snapshot_id - 1
        if before_id == 0:
            return self._behind(0, LogOffsets())
        if self._history.is_known(before_id):
            return self._behind(before_id, self._history.facts(before_id).offsets)
        if not self._history.has_changes(snapshot_id):
            return self._behind(snapshot_id, self._history.facts(snapshot_id).offsets)
        offsets = self._history.facts(snapshot_id).offsets
        return counted(self._behind(before_id, offsets).before_splits(Phase.FILES, before_id, offsets), self._history)

    def _at_time(self, time_ms: int) -> Position:
        store = self._store
        before = store.snapshots.as_of(time_ms - 1, now_ms=store.clock.now_ms())
        before = before or changelog_as_of(store.io, store.paths, time_ms - 1)
        facts = None if before is None else self._history.facts(before.id)
        base_id = 0 if before is None else before.id
        earliest = self._store.snapshots.earliest_id() or 1
        if before is None and earliest > 1:
            raise InvalidInputError(
                f"the time is before the oldest snapshot: table={self._store.name} time_ms={time_ms} "
                f"earliest_snapshot={earliest} fix=use a later time, or log.scan=full"
            )
        newest = self._history.latest()
        if self.view.log is None or newest is None:
            return self._behind(base_id, LogOffsets())
        at_newest = self._history.facts(newest.id).offsets
        then = self.view.log.offsets_at(time_ms)
        left = self.view.log.earliest()  # read last, because retention continues
        return self._behind(base_id, offsets_of_time(facts, then, at_newest, left))

    def _kept_place(self) -> Position | None:
        next_id = None if self.place is None else self.place.next_snapshot()
        if next_id is None:
            return None
        newest = self._history.latest()
        if newest is not None and next_id > newest.id + 1:
            raise InvalidInputError(
                f"the table was rolled back below the consumer's place: table={self._store.name} "
                f"consumer-id={self.options.consumer_id} place={next_id} latest_snapshot={newest.id} "
                "fix='move it with CALL sys.reset_consumer, or begin again with consumer.ignore-progress=true'"
            )
        if newest is not None and next_id > newest.id:
            return self._behind(newest.id, self._history.facts(newest.id).offsets)
        return self._changes_of(next_id)

    def _known(self, snapshot_id: int | None) -> int:
        """The snapshot, or its kept changelog. Raises: InvalidInputError: there is neither."""
        assert snapshot_id is not None
        return snapshot_id if self._history.is_known(snapshot_id) else self._existing(snapshot_id)

    def _existing(self, snapshot_id: int | None) -> int:
        assert snapshot_id is not None
        if not self._history.exists(snapshot_id):
            snapshots = self._store.snapshots
            raise InvalidInputError(
                f"no such snapshot: table={self._store.name} scan.snapshot-id={snapshot_id} "
                f"earliest={snapshots.earliest_id()} latest={snapshots.latest_id()}"
            )
        return snapshot_id

    def _behind(self, snapshot_id: int, offsets: LogOffsets) -> Position:
        topic_id = self.view.topic_id
        return Position.in_log(snapshot_id, offsets, schema_id=self._store.schema.id, topic_id=topic_id)

    @property
    def _store(self) -> TableStore:
        return self.options.table.store

    @property
    def _history(self) -> TableHistory:
        return self.view.history
