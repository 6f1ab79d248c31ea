"""One history: actors with their operations, a schedule, and what was wrong at the end."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from engine.runtime.task_host import forget_tables
from engine.simulation.invariants import Checker
from engine.simulation.log.clients import connected
from engine.simulation.log.invariants import StoredLog, deeds_by_log
from engine.simulation.log.operations import SINKS, finish
from engine.simulation.model import Catalogue, Deed
from engine.simulation.operations import ON_BRANCHES, RENAMED, REPLACE_MAIN, TABLE, LogRead, Session, SimulatedOperation
from engine.simulation.plan import HistoryPlan
from engine.simulation.repertoire import operation
from engine.simulation.scheduler import Actor, Crash, EndlessError, Event, Schedule, Scheduler
from engine.simulation.schedules import PlacedSchedule
from engine.simulation.seams import WAS_REFUSED, ActorClock, ActorNames, SimulatedTime, files_of
from engine.simulation.setups import Setup, catalog_of, memory_of, prepared, setup_named
from filestore.branch.branches import list_branches
from filestore.catalog.catalog import FileCatalog
from filestore.io.file_io import FileIO
from filestore.maintenance.history_repair import read_history, repair_history
from filestore.snapshot.lost_files import SnapshotExpiredError
from logstore.kafka.memory.cluster import MemoryCluster
from lsm.errors import (
    ConflictError,
    CorruptDataError,
    FluvialError,
    InvalidInputError,
    OutcomeUnknownError,
    TakenOverError,
    UnavailableError,
)

_REPEATS: Final = 4
_ROOT: Final = "/w"
_FINISHER: Final = 97
_ORPHAN: Final = "the log holds a batch that the table does not"
_LOST: Final = "records of the log are lost"
_SNAPSHOT: Final = "/snapshot/snapshot-"
_NAME: Final = re.compile(r"0*(\d+)-0000-4000-8000-0*(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedHistory:
    """What happened."""

    plan: HistoryPlan
    problems: tuple[str, ...]
    deeds: tuple[Deed, ...]
    events: tuple[Event, ...]
    steps: int
    schedule: Schedule = field(repr=False)

    def trace(self, *, most: int = 200) -> list[str]:
        """The changes of files and what was done to actors, one line each; the last ones when there are too many."""
        lines = []
        names = [" ".join(each) for each in self.plan.actors]
        for event in self.events:
            actor = names[event.actor] if event.actor < len(names) else "repair"
            path = _NAME.sub(r"\1.\2", event.path.partition("/d.db/")[2] or event.path)
            lines.append(f"{event.step:5} {event.actor} {actor:<20.20} {event.what} {path} {event.note}".rstrip())
        left = len(lines) - most
        return [f"  ... {left} lines before", *lines[-most:]] if left > 0 else lines


def run_history(
    plan: HistoryPlan, *, place: "HistoryPlace | None" = None, sound: set[int] | None = None
) -> SimulatedHistory:
    """Run one history and check it.

    Args:
        plan: what decides it.
        place: where its files are; None: in memory.
        sound: of histories by the same code, see ``Checker``; None: of this one alone.
    """
    forget_tables()
    setup = setup_named(plan.setup, file_format=plan.file_format)
    ready = prepared(setup)
    root = _ROOT if place is None else place.root
    time = SimulatedTime(ready.time_ms)
    in_memory = memory_of(ready.files, root, time, is_object_store=plan.is_object_store)
    io = in_memory if place is None else place.filled(ready.files)
    schedule = plan.schedule()
    scheduler = Scheduler(schedule)
    with ExitStack() as stack:
        run = _Run(
            setup=setup, root=root, io=io, time=time, scheduler=scheduler, began_ms=time.ms,
            cluster=ready.cluster.copy(), stack=stack, sound=set() if sound is None else sound,
        )  # fmt: skip
        return _carried_out(plan, run, ready.state)


def _carried_out(plan: HistoryPlan, run: "_Run", start: Catalogue) -> SimulatedHistory:
    number = iter(range(1000))
    programs = [
        (" ".join(names), run.program([operation(name, next(number)) for name in names])) for names in plan.actors
    ]
    scheduler = run.scheduler
    try:
        scheduler.run(programs)
    except EndlessError as error:
        run.problems.append(str(error))
    else:
        run.repair()
        run.check(start)
    events = tuple(scheduler.trace)
    return SimulatedHistory(
        plan=plan, problems=tuple(run.problems), deeds=tuple(run.deeds), events=events, steps=scheduler.step,
        schedule=scheduler.schedule,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class HistoryPlace:
    """A directory of a real warehouse for one history, which is deleted behind it."""

    root: str
    io: FileIO

    def filled(self, files: Mapping[str, bytes]) -> FileIO:
        """The file system, with these files below the root."""
        for path, body in files.items():
            self.io.replace(f"{self.root}/{path}", body)
        return self.io


@dataclass(slots=True)
class _Run:
    """A history while it runs."""

    setup: Setup
    root: str
    io: FileIO
    time: SimulatedTime
    scheduler: Scheduler
    began_ms: int
    cluster: MemoryCluster
    stack: ExitStack  # which lasts as long as the history
    sound: set[int]
    problems: list[str] = field(default_factory=list)
    deeds: list[Deed] = field(default_factory=list)
    interrupted: list[tuple[Deed, SimulatedOperation]] = field(default_factory=list)
    announced_late: list[tuple[Deed, SimulatedOperation]] = field(default_factory=list)  # that they are at work
    errors: list[tuple[Deed, str]] = field(default_factory=list)
    removals: list[Deed] = field(default_factory=list)
    reads: list[LogRead] = field(default_factory=list)
    names: dict[int, ActorNames] = field(default_factory=dict)  # by actor, over its operations and restarts

    def program(self, operations: list[SimulatedOperation]) -> Callable[[Actor], None]:
        """An actor that carries out operations one after the other; as a new process behind each crash."""

        def live(actor: Actor) -> None:
            for each in operations:
                deed = self._carry_out(each, actor)
                if actor.is_dead and not self.scheduler.is_endless:
                    actor.restart()
                if each.name in SINKS and not deed.is_acknowledged:
                    break  # a query does not skip a batch

        return live

    def repair(self) -> None:
        """Run again what was interrupted and has to be run again, without interventions.

        Replacements of main come first: until they are completed main is sealed, or what is left of it misses files.
        """
        for interrupted, each in sorted(self.interrupted, key=lambda left: left[1].name != REPLACE_MAIN):
            deed = interrupted
            actor = Actor(Scheduler(PlacedSchedule()), deed.actor, "repair")
            self.scheduler.step += 1
            if each.repeats_apart:
                deed = self._begun(each, actor)
            try:
                each.run(self._session(actor, is_repair=True))
            except (ConflictError, InvalidInputError):
                pass
            except Exception as error:  # noqa: BLE001  (it is reported)
                self.problems.append(f"{each.name} cannot be completed: {type(error).__name__}: {error}")
            else:
                deed.is_acknowledged = True
                # a commit that went with its main, or was rolled back, is made again
                if each.publishes_rows and (deed.published is None or _row_snapshots(actor)):
                    deed.published = self.scheduler.step
            deed.ended = self.scheduler.step
        for deed, each in self.announced_late:
            self._free(each, deed.actor)
        if any(deed.may_be_done for deed in self.deeds) or self.scheduler.had_late_requests:
            self._repair_histories()
        if self.setup.has_log:
            self._publish_what_is_left()

    def _free(self, each: SimulatedOperation, actor: int) -> None:
        """Run again what has an answer, because its announcement came behind its end: then nothing is at work."""
        self.scheduler.step += 1
        again = self._begun(each, Actor(Scheduler(PlacedSchedule()), actor, "repair"))
        again.may_be_done = True
        with suppress(ConflictError, InvalidInputError):
            each.run(self._session(Actor(Scheduler(PlacedSchedule()), actor, "repair"), is_repair=True))
        again.ended = self.scheduler.step

    def _repair_histories(self) -> None:
        """As an operator does where a death or an unknown outcome left a fork of the history."""
        names = ActorNames(_FINISHER)
        catalog = catalog_of(self.root, self.io, self.time, names)
        for name in (TABLE, RENAMED):
            if catalog.table_exists(name):
                main = catalog.table(name)
                for found in (main, *(main.on_branch(branch.name) for branch in list_branches(main.store))):
                    history = read_history(found.store)
                    if history.forks or history.late:
                        list(repair_history(found.store))

    def _publish_what_is_left(self) -> None:
        try:
            finish(self._session(Actor(Scheduler(PlacedSchedule()), _FINISHER, "repair"), is_repair=True))
        except Exception as error:  # noqa: BLE001  (it is reported)
            self.problems.append(f"what is left in the log cannot be published: {type(error).__name__}: {error}")

    def check(self, start: Any) -> None:
        """The state at the end, and the errors on the way."""
        for deed, error in self.errors:
            if not any(each.began < deed.ended for each in self.removals):
                self.problems.append(f"{deed.name} fails on a healthy table: {error}")
        checker = Checker(self.io, self.root, self.time, self.setup, self.cluster, self.stack, self.sound)
        try:
            deeds = self.deeds
            if self.setup.has_log:
                log = StoredLog(self.cluster)
                deeds = deeds_by_log(log, deeds, self.scheduler.step)
                checker.check_log(log, deeds, self.reads)
            checker.check(start, deeds, is_calm=self._is_calm)
        except (FluvialError, OSError, AssertionError, ValueError, LookupError, TypeError) as error:
            self.problems.append(f"the table cannot be used at the end: {type(error).__name__}: {error}")
        self.problems += checker.problems

    @property
    def _is_calm(self) -> bool:
        """Whether every operation came to its end, without a fault, and on the table that it had opened.

        Never with a log: a job whose batch another one has adopted from it leaves the files that it wrote. Nor where a
        number of a snapshot was used twice: a writer that takes back a fork does not look for what was spared for it.
        """
        if self.setup.has_log or self.scheduler.has_faults or self.scheduler.had_late_requests or self.interrupted:
            return False
        moved = any(each.name in ("drop", "rename") for each in self.removals)
        return not moved and not self._has_used_twice() and not any(each.may_be_done for each in self.deeds)

    def _has_used_twice(self) -> bool:
        """Whether a snapshot was published with a number that another one had before."""
        known = Counter(f"{self.root}/{path}" for path in prepared(self.setup).files if _SNAPSHOT in path)
        for event in self.scheduler.trace:
            if _SNAPSHOT in event.path:
                known[event.path] += (event.what == "create_exclusive") - (event.what == WAS_REFUSED)
        return any(count > 1 for count in known.values())

    def _carry_out(self, each: SimulatedOperation, actor: Actor) -> Deed:
        self.scheduler.step += 1  # what is done from now on is later than what has ended
        deed = self._begun(each, actor)
        actor.note(f"begins {each.name}")
        actor.created.clear()
        actor.has_late_requests = False
        for attempt in range(_REPEATS):
            if self._attempt(each, deed, actor) or not each.is_repeated or self.scheduler.is_endless:
                break
            if attempt + 1 == _REPEATS:
                break  # what is left to do is done behind the history
            deed.attempts += 1
            if actor.is_dead:
                actor.restart()
            if each.repeats_apart:
                deed.ended = self.scheduler.step
                self.scheduler.step += 1
                deed = self._begun(each, actor)
        deed.ended = self.scheduler.step
        self.scheduler.step += 1
        deed.published = _published(actor, deed) if each.publishes_rows else None
        said = "is acknowledged" if deed.is_acknowledged else deed.error or "has died"
        actor.note(f"{each.name} {said}")
        moved = each.name in ON_BRANCHES and any(removal.name == "rename" for removal in self.removals)
        is_refused = deed.error is not None and moved  # what it left is in the renamed table
        if (deed.may_be_done or is_refused or each.name in SINKS) and not deed.is_acknowledged and each.is_repeated:
            self.interrupted.append((deed, each))
        elif actor.has_late_requests and each.name in ON_BRANCHES:
            self.announced_late.append((deed, each))
        return deed

    def _begun(self, each: SimulatedOperation, actor: Actor) -> Deed:
        deed = Deed(
            actor=actor.index, name=each.name, effect=each.effect, began=self.scheduler.step, otherwise=each.otherwise,
            rows=each.rows,
        )  # fmt: skip
        self.deeds.append(deed)
        if each.removes_table:
            self.removals.append(deed)
        return deed

    def _attempt(self, each: SimulatedOperation, deed: Deed, actor: Actor) -> bool:
        """Whether the operation has an answer that ends it."""
        try:
            each.run(self._session(actor))
            actor.reach("answer", each.name, changes=False)
        except Crash:
            deed.may_be_done = True
        except OutcomeUnknownError as error:
            deed.may_be_done = True
            deed.error = f"has an unknown outcome: {error}"
        except (ConflictError, InvalidInputError) as error:
            deed.error = f"is refused: {type(error).__name__}: {error}"
            if each.name in SINKS and not isinstance(error, TakenOverError):
                actor.rest()
                return False  # the query starts again
            return True
        except UnavailableError as error:
            deed.error = f"is unavailable: {error}"
            if each.is_repeated or not each.publishes_rows:
                deed.may_be_done = True  # only a commit says by it that nothing is visible
            if not self.scheduler.has_faults:
                self.errors.append((deed, f"UnavailableError: {error}"))
        except Exception as error:  # noqa: BLE001  (any other error is a finding)
            if self.setup.has_log and self._is_allowed(each, error):
                deed.error = f"is refused: {type(error).__name__}: {error}"
                return each.name not in SINKS
            deed.error = f"fails: {type(error).__name__}: {error}"
            deed.may_be_done = True
            self.errors.append((deed, f"{type(error).__name__}: {error}"))
            return True
        else:
            deed.is_acknowledged = True
            return True
        return False

    def _is_allowed(self, each: SimulatedOperation, error: Exception) -> bool:
        """Whether an error says what is so: a batch in the log without its writer, or records that are deleted."""
        if _ORPHAN in str(error):
            return isinstance(error, CorruptDataError)
        names = {deed.name for deed in self.deeds}
        if each.name != "log-read":
            return False
        if isinstance(error, SnapshotExpiredError):
            return bool(names & {"expire", "expire-some"})
        return _LOST in str(error) and "log-trim" in names

    def _session(self, actor: Actor, *, is_repair: bool = False) -> Session:
        io = files_of(self.io, actor)
        catalog: FileCatalog = catalog_of(self.root, io, ActorClock(self.time, actor), self._names_of(actor))
        return Session(
            catalog=catalog, actor=actor, began_ms=self.began_ms, options=self.setup.options,
            primary_key=self.setup.primary_key, is_repair=is_repair, kafka_address=self._kafka_address(actor),
            reads=self.reads,
        )  # fmt: skip

    def _kafka_address(self, actor: Actor) -> str:
        return connected(self.cluster, self.time, actor, self.stack) if self.setup.has_log else ""

    def _names_of(self, actor: Actor) -> ActorNames:
        return self.names.setdefault(actor.index, ActorNames(actor.index))


def _published(actor: Actor, deed: Deed) -> int | None:
    """The step of the last snapshot with rows that an operation created; None: it created none."""
    steps = [step for step in _row_snapshots(actor) if step >= deed.began]
    return steps[-1] if steps else None


def _row_snapshots(actor: Actor) -> list[int]:
    """The steps in which an actor created snapshots with rows."""
    return [
        step
        for step, path, body in actor.created
        if _SNAPSHOT in path and orjson.loads(body)["commitKind"] != "COMPACT"
    ]
