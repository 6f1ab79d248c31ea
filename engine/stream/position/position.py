"""The position of a stream in a table's history, which Spark stores in its checkpoint.

A position defines what was delivered: every change up to a snapshot, and the log up to the next offset of each bucket.
While a snapshot's own files are being delivered, it also counts the finished splits, and names what it counts: the
plan that they are of, and the moment at which expiry of rows is evaluated. So the switch from a snapshot to the log is
just the next position, and a kill at any point neither repeats nor skips rows.

    {"version": 1, "phase": "snapshot", "snapshot": 7, "done": 3, "of": 12, "plan": "5c…", "schema": 0, "offsets": {…}}
    {"version": 1, "phase": "log", "snapshot": 8, "schema": 0, "offsets": {"0": 4200}, "range": true}
    {"version": 1, "phase": "files", "snapshot": 8, "next": 9, "done": 0, "of": 2, "schema": 0, "offsets": {"0": 4250}}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from engine.lineage.origins import SourceRead
from logstore.offsets import LogOffsets
from lsm.errors import CorruptDataError

VERSION: Final = 1
UNSTARTED: Final[Mapping[str, Any]] = {"version": VERSION, "phase": "unstarted"}
"""The offset of a query before its first batch, which stays the same however often Spark asks."""


class Phase(StrEnum):
    """The kind of data that is delivered next."""

    SNAPSHOT = "snapshot"  # the rows of a snapshot
    LOG = "log"  # the log; without one, nothing until the next snapshot
    FILES = "files"  # the changes between two snapshots, from their files


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The part of a table that a stream has delivered so far; the value in Spark's checkpoint."""

    phase: Phase
    snapshot_id: int  # phase SNAPSHOT: being delivered; else delivered with all changes before (0: none)
    offsets: LogOffsets  # next offset of each bucket's log; empty for a table without a log
    schema_id: int  # of the delivered rows
    topic_id: str | None = None  # of the log: the offsets are only valid in this topic
    next_id: int | None = None  # phase FILES: the snapshot with the changes being delivered
    done: int = 0  # splits delivered of the snapshot or of the changes
    of: int = 0  # total number of splits
    plan: str | None = None  # digest of the splits that are counted; None: of a former version, which counted only
    moment_ms: int | None = None  # phase SNAPSHOT: rows that have expired then are not delivered; None: none expire
    is_jump: bool = False  # nothing is delivered between the previous position and this one
    is_range: bool = False  # between the previous position and this one lie records of the log and nothing else
    commit: str | None = None  # of the snapshot: ids are reused after a rollback
    read: SourceRead | None = None  # for lineage: the oldest snapshot with everything delivered
    begin: "Position | None" = field(default=None)  # start of the query, in the end of its first batch only

    @classmethod
    def in_log(
        cls, snapshot_id: int, offsets: Mapping[int, int], *, schema_id: int, topic_id: str | None
    ) -> "Position":
        """After everything up to a snapshot and before these offsets of the log."""
        return cls(
            phase=Phase.LOG,
            snapshot_id=snapshot_id,
            offsets=LogOffsets(offsets),
            schema_id=schema_id,
            topic_id=topic_id,
        )

    @property
    def newest_id(self) -> int:
        """The newest snapshot of the position; 0: none."""
        return self.snapshot_id if self.next_id is None else self.next_id

    @property
    def place(self) -> "Position":
        """The position without its history."""
        return replace(self, is_jump=False, is_range=False, begin=None)

    def at_split(self, done: int) -> "Position":
        """The same phase with this number of splits delivered."""
        return replace(self.place, done=done)

    def behind(self, snapshot_id: int, offsets: Mapping[int, int]) -> "Position":
        """Everything up to a snapshot is delivered, and the log up to these offsets."""
        return replace(
            self.place,
            phase=Phase.LOG,
            snapshot_id=snapshot_id,
            offsets=LogOffsets(offsets),
            next_id=None,
            done=0,
            of=0,
            plan=None,
            moment_ms=None,
        )

    def before_splits(
        self,
        phase: Phase,
        snapshot_id: int,
        offsets: Mapping[int, int],
        *,
        next_id: int | None = None,
        moment_ms: int | None = None,
    ) -> "Position":
        """The position at the first split of a snapshot, or of the changes between ``snapshot_id`` and another one.

        Args:
            phase: SNAPSHOT or FILES.
            snapshot_id: to deliver, or delivered.
            offsets: of the log.
            next_id: phase FILES: the snapshot with the changes; None: the next one.
            moment_ms: phase SNAPSHOT: at which expiry of rows is evaluated.
        """
        if phase is Phase.FILES and next_id is None:
            next_id = snapshot_id + 1
        return replace(self.behind(snapshot_id, offsets), phase=phase, next_id=next_id, moment_ms=moment_ms)

    def in_other_log(self, topic_id: str | None, offsets: Mapping[int, int]) -> "Position":
        """The equal position of a table whose log was replaced, at these offsets of the new log."""
        return replace(self.place, topic_id=topic_id, offsets=LogOffsets(offsets))

    def to_json(self) -> dict[str, Any]:
        """The position as JSON values for Spark's checkpoint: numbers, texts, booleans, and objects of these."""
        body: dict[str, Any] = {
            "version": VERSION,
            "phase": self.phase.value,
            "snapshot": self.snapshot_id,
            "schema": self.schema_id,
            "offsets": {str(bucket): offset for bucket, offset in self.offsets.items()},
        }
        if self.phase is not Phase.LOG:
            body |= {"done": self.done, "of": self.of}
        if self.plan is not None:
            body["plan"] = self.plan
        if self.moment_ms is not None:
            body["moment"] = self.moment_ms
        if self.topic_id is not None:
            body["topic"] = self.topic_id
        if self.next_id is not None:
            body["next"] = self.next_id
        if self.is_jump:
            body["jump"] = True
        if self.is_range:
            body["range"] = True
        if self.commit is not None:
            body["commit"] = self.commit
        if self.read is not None:
            body["read"] = self.read.to_json()
        if self.begin is not None:
            body["begin"] = self.begin.to_json()
        return body

    @staticmethod
    def is_in(offset: object) -> bool:
        """Whether an offset of a checkpoint is a position of a table, and not of another source."""
        return isinstance(offset, dict) and {"version", "phase", "snapshot"} <= offset.keys()

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Position":
        """The inverse of ``to_json``.

        Raises:
            CorruptDataError: not a position, or one of a newer Fluvial.
        """
        try:
            if body["version"] != VERSION:
                raise CorruptDataError(
                    f"the position of a stream was written by a newer Fluvial: version={body['version']} "
                    f"known={VERSION} fix=upgrade"
                )
            return cls(
                phase=Phase(body["phase"]),
                snapshot_id=int(body["snapshot"]),
                offsets=LogOffsets({int(bucket): int(offset) for bucket, offset in body["offsets"].items()}),
                schema_id=int(body["schema"]),
                topic_id=body.get("topic"),
                next_id=None if body.get("next") is None else int(body["next"]),
                done=int(body.get("done", 0)),
                of=int(body.get("of", 0)),
                plan=None if body.get("plan") is None else str(body["plan"]),
                moment_ms=None if body.get("moment") is None else int(body["moment"]),
                is_jump=bool(body.get("jump", False)),
                is_range=bool(body.get("range", False)),
                commit=body.get("commit"),
                read=None if body.get("read") is None else SourceRead.from_json(body["read"]),
                begin=None if body.get("begin") is None else cls.from_json(body["begin"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptDataError(
                f"the position of a stream cannot be read: position={dict(body)} reason={error!r} "
                "fix=the checkpoint is of another source: start with a new one"
            ) from error
