"""Guards of the protocol of the log, each taken away by a patch, with the histories that need it."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from engine.log.bucket_log import BucketLog
from engine.simulation.explorer import PAUSE
from engine.simulation.history import run_history
from engine.simulation.plan import HistoryPlan
from engine.simulation.scheduler import Fault, Intervention
from engine.simulation.schedules import PlacedSchedule
from engine.write.ticket_queue import Turn
from filestore.commit import snapshot_writer
from logstore.kafka import clients
from logstore.kafka.transactions import Transaction
from logstore.log import log_writer
from logstore.log.log_writer import BucketLogWriter, LogTarget
from logstore.log.marker import LogTail, read_tail
from tests.engine.simulation.planted_bugs import PlantedBug, at, plan, publishing, returning

LOST = Intervention(fault=Fault.LOST_ANSWER)
DIES = Intervention(crash=True)


def with_ids_of_their_own(patch: pytest.MonkeyPatch) -> None:
    numbers = count()
    patch.setattr(LogTarget, "transactional_id", property(lambda self: f"{self.bucket}.{next(numbers)}"))


def blind_to_markers(patch: pytest.MonkeyPatch) -> None:
    def look(*arguments: Any, **more: Any) -> LogTail:
        return replace(read_tail(*arguments, **more), marker=None)

    patch.setattr(log_writer, "read_tail", look)


def reading_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clients, "_CONSUMER", {**clients._CONSUMER, "isolation.level": "read_uncommitted"})


def deleting_files_of_the_log(patch: pytest.MonkeyPatch) -> None:
    def abort(self: BucketLog) -> bool:
        self.close()
        return True

    patch.setattr(BucketLog, "abort", abort)


def trusting_a_lost_commit(patch: pytest.MonkeyPatch) -> None:
    known = Transaction.commit

    def commit(self: Transaction) -> None:
        try:
            known(self)
        except clients.KafkaException:
            return

    patch.setattr(Transaction, "commit", commit)


def without_the_marker_of_a_commit(patch: pytest.MonkeyPatch) -> None:
    """The position behind the control record, which a snapshot must not have: a replay compares it."""
    known = BucketLogWriter._commit_with_marker
    patch.setattr(BucketLogWriter, "_commit_with_marker", lambda self, *given, **more: known(self, *given, **more) + 1)


def writing_behind_a_dead_writer(patch: pytest.MonkeyPatch) -> None:
    """Of both guards: who has no turn stops, too, unless it came back between two batches of a query."""
    patch.setattr(BucketLog, "_check_known", lambda *_: None)
    patch.setattr(Turn, "check", lambda *_: None)


def steps(plan: HistoryPlan, actor: int, operation: str, path: str) -> list[int]:
    """Places of an actor in a history, before an operation on paths that contain a text."""
    found = run_history(plan)
    assert isinstance(found.schedule, PlacedSchedule)
    reached = found.schedule.reached
    return [
        each.own_step for each in reached if (each.actor, each.operation) == (actor, operation) and path in each.path
    ]


def beside_a_dead_writer(setup: str) -> Iterator[HistoryPlan]:
    """One stands still before its look at the log, while another one dies between its log and its snapshot."""
    alone = HistoryPlan(actors=(("log-write",),), setup=setup)
    for pause in reversed(steps(alone, 0, "init_transactions", "")):
        beside = HistoryPlan(actors=(("log-write",), ("log-write",)), setup=setup, choices=((0, pause, PAUSE),))
        for death in steps(beside, 1, "create_exclusive", "snapshot-"):
            yield replace(beside, choices=(*beside.choices, (1, death, DIES)))


LOG_BUGS = (
    PlantedBug(
        name="writers of a bucket share a transactional id",
        patch=with_ids_of_their_own,
        plans=at(plan("log-twin", "log-twin", setup="logged"), of=("commit_transaction",)),
        most=2,
    ),
    PlantedBug(
        name="the marker at the end of the log",
        patch=blind_to_markers,
        plans=publishing(plan("log-sink", setup="logged"), DIES),
        most=2,
    ),
    PlantedBug(
        name="only committed records count",
        patch=reading_what_is_not_committed,
        plans=at(plan("log-sink", setup="logged"), of=("commit_transaction",), choices=(DIES,)),
        most=2,
    ),
    PlantedBug(
        name="files that the log names stay",
        patch=deleting_files_of_the_log,
        plans=at(plan("log-sink", setup="logged"), of=("commit_transaction",), choices=(LOST,)),
        most=2,
    ),
    PlantedBug(
        name="a commit without an answer is not one",
        patch=trusting_a_lost_commit,
        plans=at(
            plan("log-write", setup="logged"), of=("commit_transaction",),
            choices=(Intervention(fault=Fault.UNSURE), Intervention(fault=Fault.REFUSED)),
        ),
        most=4,
    ),
    PlantedBug(
        name="all earlier batches are in a snapshot",
        patch=writing_behind_a_dead_writer,
        plans=lambda: beside_a_dead_writer("logged"),
        most=12,
    ),
    PlantedBug(
        name="a compaction carries the offsets of the log on",
        patch=returning(snapshot_writer, "_known_offsets", {}),
        plans=lambda: [plan("compact-full", setup="logged")],
        most=1,
    ),
    PlantedBug(
        name="a snapshot ends with the last record of a batch",
        patch=without_the_marker_of_a_commit,
        plans=lambda: [plan("log-write", setup="logged")],
        most=1,
    ),
)  # fmt: skip
