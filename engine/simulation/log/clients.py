"""The log of a simulated process: clients of a cluster in memory whose requests report to the scheduler."""

from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from typing import Any, Final, TypeVar

from engine.simulation.scheduler import Actor, Fault
from engine.simulation.seams import SimulatedTime
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster, RefusedError
from logstore.kafka.memory.environment import MemoryEnvironment
from logstore.kafka.memory.requests import NoAnswerError

T = TypeVar("T")

_addresses: Final = count()


class ActorKafka(MemoryEnvironment):
    """Clients of one actor: each request is a seam, and a fault is an answer that does not come.

    ``Fault.REFUSED``: the request was lost; ``LOST_ANSWER``: it was carried out; ``UNSURE``: it is still on its way.
    """

    def __init__(self, cluster: MemoryCluster, time: SimulatedTime, actor: Actor | None) -> None:
        """``actor``: None for who checks a history: its requests are no seams."""
        super().__init__(cluster)
        self._time = time
        self._actor = actor

    def monotonic(self) -> float:
        """Seconds of the history."""
        return self._time.ms / 1000

    def now_ms(self) -> int:
        """Epoch milliseconds of the history."""
        return self._time.ms

    def sleep(self, seconds: float) -> None:
        """Wait, while others continue."""
        self._time.sleep(seconds)
        if self._actor is not None:
            self._actor.rest()

    def request(self, name: str, target: str, change: Callable[[], T], *, changes: bool, late: Any = None) -> T:
        """Implements ``MemoryEnvironment.request``."""
        actor = self._actor
        if actor is None:
            return super().request(name, target, change, changes=changes)
        path = f"kafka/{target}"
        fault = actor.reach(name, path, changes=changes)
        self.cluster.tick()
        if fault is None:
            if changes:
                actor.note(name, path)
            return self._done(change, name, path)
        actor.note("gets no answer to", path, f"{name} {fault.value}")
        if fault is Fault.LOST_ANSWER:
            try:
                change()
            except RefusedError:
                actor.note("was refused", path)
        elif fault is Fault.UNSURE:
            self.cluster.arrive_late(late or change)
        raise NoAnswerError

    def _done(self, change: Callable[[], T], name: str, path: str) -> T:
        assert self._actor is not None
        try:
            return change()
        except RefusedError:
            self._actor.note("was refused", path, name)
            raise


def connected(cluster: MemoryCluster, time: SimulatedTime, actor: Actor | None, until: ExitStack) -> str:
    """An address that leads an actor to a cluster, until the end of a stack."""
    address = f"simulated-{next(_addresses)}:9092"
    until.enter_context(serving(address, ActorKafka(cluster, time, actor)))
    return address
