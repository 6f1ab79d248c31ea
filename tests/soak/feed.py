"""A source that never rests: Debezium's changes of one table, sent by a thread, and what they come to."""

import json
import random
import threading
import time
from typing import Any, Final

from tests.support.clients import quiet_producer
from tests.support.kills.oracle import DELETES, Change, last_changes

TOPIC: Final = "changes"
PARTITIONS: Final = 4
_TICK_S: Final = 0.05


class Feed:
    """Sends changes until it is stopped; each has a number of its own, and is sent once, in the order of its key."""

    def __init__(self, servers: str, *, seed: int, rate: int, keys: int = 20_000) -> None:
        """``rate``: changes a second."""
        self.changes: list[Change] = []
        self._chance, self._rate, self._keys = random.Random(seed), rate, keys
        self._producer = quiet_producer(
            servers,
            message__timeout__ms=3_600_000,  # longer than any outage of a run, which are the point
            queue__buffering__max__messages=2_000_000,
        )
        self._rows: dict[int, Change] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """End, with every change acknowledged."""
        self._end.set()
        self._thread.join()
        left = self._producer.flush(300)
        assert left == 0, f"the source's own records are not acknowledged: {left}"

    def rows(self) -> dict[int, Change]:
        """What the table must be when all was read."""
        return last_changes(self.changes)

    def _run(self) -> None:
        began_s = time.monotonic()
        while not self._end.wait(_TICK_S):
            for _ in range(int((time.monotonic() - began_s) * self._rate) - len(self.changes)):
                self._send(self._next())
            self._producer.poll(0)

    def _next(self) -> Change:
        key = self._chance.randrange(self._keys)
        is_delete = key in self._rows and self._chance.random() < DELETES
        change = Change(id=key, v=len(self.changes), batch=0, is_delete=is_delete, salt="x" * 20)
        self.changes.append(change)
        if is_delete:
            del self._rows[key]
        else:
            self._rows[key] = change
        return change

    def _send(self, change: Change) -> None:
        row: dict[str, Any] = {"id": change.id, "v": change.v, "batch": change.batch, "salt": change.salt}
        image = {"before": row, "after": None} if change.is_delete else {"before": None, "after": row}
        value = {**image, "op": "d" if change.is_delete else "c", "ts_ms": time.time_ns() // 1_000_000}
        self._producer.produce(
            TOPIC,
            json.dumps(value, separators=(",", ":")),
            json.dumps({"id": change.id}),
            partition=change.id % PARTITIONS,
        )
