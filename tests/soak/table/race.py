"""One table, and the processes that work on it at once: for seconds, and then all is compared.

A round has its own table and its own seed, which decides the kind of the table, who takes part and who is struck when;
what the operating system makes of it is different each time.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from engine import Catalog, Table
from engine import procedures as sys_
from filestore.branch.branches import list_branches
from filestore.branch.merge import interrupted_merges
from tests.soak.table.actors import DATABASE, NEEDS_A_LOOK, Place, look, open_table
from tests.soak.table.ending import check_cleaning, differences_at_the_end
from tests.soak.table.journal import DONE, FAILED, Deed
from tests.soak.table.kinds import KINDS, SCHEMA
from tests.soak.table.oracle import Oracle
from tests.soak.table.processes import Life, Processes, RaceError

ALWAYS: Final = ("writer 0", "writer 1", "compactor 0", "expirer 0", "tagger 0", "reader 0")
OTHERS: Final = ("saver 0", "brancher 0", "cleaner 0", "roller 0", "renamer 0", "compactor 1")
_PATIENCE_S: Final = 180.0
"""So much longer a round lasts in which nothing was written yet."""
_LEFT_BY_THE_DEAD: Final = frozenset(
    {"fork", "tag", "savepoint", "claim", "rollback", "branch", "hint", "snapshots", "pending", "expiry"}
)
"""Checks of ``verify`` that may find something behind killed processes: ``repair`` mends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a round is made of; by this it is run again."""

    seed: int
    kind: str
    others: tuple[str, ...]  # who takes part, besides the usual ones
    seconds: float  # longer where nothing was written in them
    pace_s: float = 0.01  # between two deeds of a process, on average
    with_strikes: bool = True

    @classmethod
    def planned(cls, seed: int, *, seconds: float, kind: str | None = None, **more: Any) -> "Round":
        """The round of a seed."""
        others = tuple(random.Random(f"{seed} plan").sample(OTHERS, 3))
        names = list(KINDS)
        given = {"others": others, **{name: each for name, each in more.items() if each is not None}}
        return cls(seed=seed, kind=kind or names[seed % len(names)], seconds=seconds, **given)

    @property
    def may_leave(self) -> bool:
        """Whether an operation may leave something to repair: its process is killed, or its table renamed under it."""
        return self.with_strikes or "renamer 0" in self.others

    def __str__(self) -> str:
        calm = "" if self.with_strikes else " --calm"
        return (
            f"--seed {self.seed} --kind {self.kind} --with '{','.join(self.others)}' --seconds {self.seconds:g} "
            f"--pace {self.pace_s:g}{calm}"
        )


@dataclass(slots=True)
class Facts:
    """What happened."""

    deeds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    strikes: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)  # by verify, behind killed processes
    looks: int = 0
    orphans: int = 0


class Race:
    """One round."""

    def __init__(self, home: Path, planned: Round) -> None:
        """``home``: an empty directory."""
        self.home, self.planned, self.kind, self.facts = home, planned, KINDS[planned.kind], Facts()
        for name in ("journals", "output"):
            (home / name).mkdir(parents=True)
        Catalog(str(home / "warehouse")).create_table(
            f"{DATABASE}.t0",
            SCHEMA,
            primary_key=self.kind.primary_key,
            partition_by=self.kind.partition_by,
            options=self.kind.options,
        )
        self._looks: list[Deed] = []
        self._own: list[Deed] = []  # what was done while nobody else worked on it
        self._processes = Processes(
            [
                Place(home=home, kind=planned.kind, slot=slot, seed=planned.seed, pace_s=planned.pace_s, index=index)
                for index, slot in enumerate((*ALWAYS, *planned.others), 1)
            ]
        )

    def run(self) -> Facts:
        """Everything. Raises: RaceError, TornError: something is not as it must be."""
        processes, chance = self._processes, random.Random(f"{self.planned.seed} strikes")
        try:
            processes.start_all()
            until_s = time.monotonic() + self.planned.seconds
            latest_s = until_s + _PATIENCE_S
            while (now_s := time.monotonic()) < until_s:
                if (life := processes.an_ended_one()) is not None:
                    self._go_on_behind(life)
                if self.planned.with_strikes:
                    processes.strike(chance)
                if now_s + 1.0 > until_s and now_s < latest_s and not self._has_begun():
                    until_s = now_s + 2.0  # on a busy machine processes may not even have started
                time.sleep(0.002)
            self._stop()
        finally:
            processes.kill_all()
        self._compare()
        return self.facts

    def _has_begun(self) -> bool:
        """Whether something was written, and someone was struck if anyone is."""
        if self.planned.with_strikes and not self._processes.strikes:
            return False
        writers = [*self._processes.dead, *self._processes.lives.values()]
        writes = (deed for life in writers if life.place.role == "writer" for deed in life.deeds)
        return any(deed.what == "write" and deed.is_done for deed in writes)

    def _go_on_behind(self, life: Life) -> None:
        """Start a killed process again; where it leaves everyone's rows unknown, look at them first."""
        _check_end(life)
        if _is_unsure(life):
            self._stop()
            self._look()
            self._processes.start_all()
        else:
            self._processes.start(life.place.slot)

    def _stop(self) -> None:
        for life in self._processes.end_all():
            _check_end(life)

    # ---- what must hold

    def _look(self) -> Table:
        """Mend what the dead left, and note what the table shows; nobody works on it."""
        self.facts.looks += 1
        table = open_table(self.home)
        for each in self._wrong(table):
            raise RaceError(f"verify: {each}")
        for branch in interrupted_merges(table.store):  # which repair finishes
            at = time.monotonic_ns()
            self._own.append(Deed(what="merge", slot="race", began=at, ended=at, facts={"name": branch}, outcome=DONE))
        for there in (table, *(Table(table.files.on_branch(each.name)) for each in list_branches(table.store))):
            sys_.repair(there)
        for each in sys_.verify(table, rows=True).to_pylist():
            if each["check"] == "branch":  # it was being made or deleted: nobody goes on with it
                sys_.delete_branch(table, each["subject"])
        table = open_table(self.home)
        if self.kind.is_lazy:
            table.compact(full=True)
        for each in sys_.verify(table, rows=True).to_pylist():
            raise RaceError(f"verify behind repair: {each}")
        facts: dict[str, Any] = {}
        began = time.monotonic_ns()
        look(self.kind, table, facts)
        seen = Deed(what="look", slot="race", began=began, ended=time.monotonic_ns(), facts=facts, outcome=DONE)
        self._looks.append(seen)
        return table

    def _wrong(self, table: Table) -> Iterator[dict[str, str]]:
        """What ``verify --rows`` finds that killed processes do not explain."""
        found = sys_.verify(table, rows=True).to_pylist()
        self.facts.found.update(each["check"] for each in found)
        has_killed = self.planned.may_leave or any(life.is_killed for life in self._processes.dead)
        forks = {each["subject"].partition(" ")[2] for each in found if each["check"] == "fork"}
        for each in found:
            if not has_killed or (each["check"] not in _LEFT_BY_THE_DEAD and each["subject"] not in forks):
                yield each

    def _compare(self) -> None:
        deeds = self._processes.deeds
        self.facts.strikes = self._processes.strikes
        self.facts.deeds.update(f"{deed.slot.split()[0]}: {deed.what}" for deed in deeds if deed.is_done)
        self.facts.refused.update(f"{deed.what}: {(deed.error or 'killed')[:60]}" for deed in deeds if not deed.is_done)
        table = self._look()
        *earlier, end = self._looks
        oracle = Oracle(self.kind, [*deeds, *self._own], earlier)
        problems = [*oracle.problems(), *differences_at_the_end(self.kind, oracle, table, end)]
        if problems:
            raise RaceError("\n".join(problems[:20]))
        unused = check_cleaning(self.kind, table)
        self.facts.orphans = len(unused)
        if unused and not self.planned.may_leave:
            raise RaceError(f"nobody was killed, and files without a use stay: {unused[:20]}")


def _check_end(life: Life) -> None:
    """Raises: RaceError: it was not killed, or ended in an error before."""
    failed = next((deed for deed in life.deeds if deed.outcome == FAILED), None)
    if failed is not None:
        raise RaceError(f"a process failed: {failed.what} {failed.error}\n{failed.facts.get('trace')}")
    if not life.is_killed and life.process.exitcode not in (0, NEEDS_A_LOOK):
        raise RaceError(f"a process ended: {life.described()}")


def _is_unsure(life: Life) -> bool:
    """Whether what it did last may have changed everyone's rows, or not."""
    last = next(reversed(life.deeds), None)
    return last is not None and last.what in ("roll back", "restore") and last.may_be_done and not last.is_done
