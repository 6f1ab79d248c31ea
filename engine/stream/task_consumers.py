"""Consumers that a task leaves to the next one in its process: a new one starts threads and connects to brokers.

Spark keeps its Python workers between tasks, and any bucket may come next. So they are idle between two ranges, and
fetch nothing; where no task comes any more they are closed.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Final

from logstore.kafka.clients import KafkaProperties
from logstore.kafka.environment import KafkaEnvironment
from logstore.log.kept_consumers import IdleConsumers

_MOST_LOGINS: Final = 4  # clusters and logins; a worker mostly reads for one query
_RANGES_AT_ONCE: Final = 2
_IDLE_S: Final = 60.0


_Login = tuple[KafkaProperties, KafkaEnvironment]


class _Held:
    """What one process holds."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.by_login: list[tuple[_Login, IdleConsumers]] = []  # used last at the end
        self.used_s = 0.0
        self.is_watched = False


class TaskConsumers:
    """Idle consumers by cluster and login. Thread-safe; in a forked process it is empty."""

    def __init__(self, idle_s: float = _IDLE_S, now_s: Callable[[], float] = time.monotonic) -> None:
        """None yet.

        Args:
            idle_s: time after which unused ones are closed, to within twice as much.
            now_s: a clock.
        """
        self._idle_s, self._now_s = idle_s, now_s
        self._held = _Held()

    def of(self, properties: KafkaProperties) -> IdleConsumers:
        """The consumers for a cluster under a login, to be given to ``read_range``."""
        if self._held.process != os.getpid():
            for _, each in self._held.by_login:
                each.abandon()
            self._held = _Held()
        held, login = self._held, (properties, properties.environment)
        with held.lock:
            found = next((each for known, each in held.by_login if known == login), None)
            consumers = found or IdleConsumers(_RANGES_AT_ONCE)
            others = [pair for pair in held.by_login if pair[0] != login]
            held.by_login = [*others, (login, consumers)][-_MOST_LOGINS:]
            held.used_s = self._now_s()
            if not held.is_watched:
                held.is_watched = True
                threading.Thread(target=self._close_unused, args=(held,), name="fluvial-idle", daemon=True).start()
        for _, dropped in others[: max(0, len(others) + 1 - _MOST_LOGINS)]:
            dropped.close()
        return consumers

    def close(self) -> None:
        """Close them all; others may be made afterwards."""
        with self._held.lock:
            closing, self._held.by_login = self._held.by_login, []
        for _, each in closing:
            each.close()

    def _close_unused(self, held: _Held) -> None:
        is_unused = False
        while not is_unused:
            time.sleep(self._idle_s)
            with held.lock:
                is_unused = self._now_s() - held.used_s >= self._idle_s
                if is_unused:
                    closing, held.by_login, held.is_watched = held.by_login, [], False
        for _, each in closing:
            each.close()  # one that a range is using is closed when it comes back


_HERE: Final = TaskConsumers()


def consumers_of(properties: KafkaProperties) -> IdleConsumers:
    """Those of this process for a cluster under a login."""
    return _HERE.of(properties)
