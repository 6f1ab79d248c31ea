"""What happens to a job that runs for weeks: kills, freezes, outages, one after another, and its return from each."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import psutil

from engine.broker.broker import Broker
from tests.soak.job import SoakJob
from tests.support.kills.processes import name_of

FATAL = ("kill the driver", "kill the JVM", "kill a worker")
"""End processes of the job."""
PASSING = ("freeze the job", "broker away", "freeze the broker")
"""End none."""
LONG_FREEZE = "freeze the job for minutes"
"""As by the lid of a laptop: longer than Spark's timeouts."""
_LONG_FREEZE_S: Final = 180.0


@dataclass(frozen=True)
class Struck:
    """One strike."""

    at_s: float
    what: str
    back_s: float  # from its end until the next micro-batch


class Strikes:
    """Carries them out."""

    def __init__(self, job: SoakJob, broker: Broker, *, freeze_s: float, idle: Callable[[float], None]) -> None:
        """``idle(seconds)`` waits and samples meanwhile."""
        self._job, self._broker, self._freeze_s, self._idle = job, broker, freeze_s, idle
        self._began_s = time.monotonic()
        self.done: list[Struck] = []

    def strike(self, what: str) -> None:
        """One strike; returns when the job is back at work."""
        at_s = time.monotonic() - self._began_s
        getattr(self, f"_{what.replace(' ', '_').lower()}")()
        ended_s = time.monotonic()
        self._until_back(what)
        self.done.append(Struck(round(at_s, 1), what, round(time.monotonic() - ended_s, 1)))

    def _until_back(self, what: str) -> None:
        self._idle(1.0)
        starts, before, deadline = self._job.starts, self._job.batches(), time.monotonic() + 300
        while not (self._job.batches() > before or (self._job.starts > starts and self._job.batches())):
            assert time.monotonic() < deadline, f"the job does not come back: {what}\n{self._job.tree.tail()}"
            self._idle(0.5)
            if self._job.starts > starts:
                starts, before = self._job.starts, 0

    def _kill_the_driver(self) -> None:
        self._job.tree.kill()
        with contextlib.suppress(OSError):
            os.unlink(self._job.home / "health.json")

    def _kill_the_jvm(self) -> None:
        for each in self._members("java"):
            each.kill()

    def _kill_a_worker(self) -> None:
        for each in list(self._members("python"))[1:2]:
            each.kill()

    def _freeze_the_job(self) -> None:
        self._frozen(self._freeze_s)

    def _freeze_the_job_for_minutes(self) -> None:
        self._frozen(_LONG_FREEZE_S)

    def _frozen(self, seconds: float) -> None:
        self._job.tree.freeze()
        time.sleep(seconds)
        self._job.tree.thaw()

    def _broker_away(self) -> None:
        self._broker.kill()
        self._idle(self._freeze_s)
        self._broker.start()

    def _freeze_the_broker(self) -> None:
        pid = self._broker.status().pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        self._idle(self._freeze_s)
        os.kill(pid, signal.SIGCONT)

    def _members(self, name: str) -> Iterator[psutil.Process]:
        for each in self._job.tree.members():
            if name_of(each).startswith(name) and each.pid != self._job.tree.process.pid:
                yield each
