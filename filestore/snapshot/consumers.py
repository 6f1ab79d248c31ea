"""Consumers: named readers, and the snapshot that each of them wants next, which holds back expiry.

A consumer is a small file of the table's, understood by every Paimon: expiry keeps the least next snapshot and all
after it. Source: Paimon ConsumerManager, Consumer; paimon-format.md section 9.
"""

import json
from typing import Final

from filestore.io.file_io import Clock, FileIO
from filestore.layout.paths import CONSUMER_PREFIX, TablePaths
from lsm.errors import CorruptDataError, InvalidInputError

_READS: Final = 10  # Paimon for Java overwrites in place: for a moment a file may be empty or half written
_WAIT_SECONDS: Final = 0.2


class ConsumerStore:
    """The consumers of one branch of a table."""

    def __init__(self, io: FileIO, paths: TablePaths, clock: Clock) -> None:
        self._io = io
        self._paths = paths
        self._clock = clock

    def next_snapshot(self, consumer_id: str) -> int | None:
        """The snapshot that a consumer wants next; None when there is no such consumer.

        Raises: CorruptDataError naming the file when it stays unreadable.
        """
        path = self._path(consumer_id)
        for attempt in range(_READS):
            if attempt:
                self._clock.sleep(_WAIT_SECONDS)
            try:
                body = self._io.read_bytes(path)
            except FileNotFoundError:
                return None
            found = _decoded(body)
            if found is not None:
                return found
        raise CorruptDataError(
            f"consumer cannot be decoded: file={path} size_bytes={len(body)} fix='reset or delete it'"
        )

    def next_snapshots(self) -> dict[str, int]:
        """The next snapshot of every consumer, by name, sorted."""
        names = (name for name in self._io.list_names(self._paths.consumer_dir) if name.startswith(CONSUMER_PREFIX))
        found = ((name, self.next_snapshot(name)) for name in (each.removeprefix(CONSUMER_PREFIX) for each in names))
        return {name: next_snapshot for name, next_snapshot in found if next_snapshot is not None}

    def least_next_snapshot(self) -> int | None:
        """The snapshot from which on all must be kept; None when nobody is waiting."""
        return min(self.next_snapshots().values(), default=None)

    def write(self, consumer_id: str, next_snapshot: int, *, may_go_back: bool = False) -> int:
        """Note that a consumer has had everything before a snapshot.

        One process at a time may write a consumer. Writing the same place again keeps the consumer from expiring.

        Args:
            consumer_id: its name.
            next_snapshot: what it wants next; need not exist yet.
            may_go_back: to a lower number than what is noted; else the higher one stays.

        Returns:
            What is noted now.
        """
        known = None if may_go_back else self.next_snapshot(consumer_id)
        noted = next_snapshot if known is None else max(known, next_snapshot)
        body = json.dumps({"nextSnapshot": noted}, indent=2).encode()
        self._io.replace(self._path(consumer_id), body)
        return noted

    def delete(self, consumer_id: str) -> None:
        """Forget a consumer; one that is not there is fine."""
        self._io.delete(self._path(consumer_id))

    def expire(self, age_ms: int) -> list[str]:
        """Forget the consumers that have not written for longer than this; their names."""
        oldest_ms = self._clock.now_ms() - age_ms
        gone = []
        for name in self._io.list_names(self._paths.consumer_dir):
            path = f"{self._paths.consumer_dir}/{name}"
            if not name.startswith(CONSUMER_PREFIX):
                continue
            try:
                is_old = self._io.modified_ms(path) < oldest_ms
            except FileNotFoundError:
                continue
            if is_old:
                self._io.delete(path)
                gone.append(name.removeprefix(CONSUMER_PREFIX))
        return gone

    def _path(self, consumer_id: str) -> str:
        if not consumer_id.strip() or "/" in consumer_id or not consumer_id.isprintable():
            raise InvalidInputError(
                f"not a name of a consumer: consumer-id={consumer_id!r} fix='use a name that a file can have'"
            )
        return self._paths.consumer(consumer_id)


def _decoded(body: bytes) -> int | None:
    try:
        found = json.loads(body)["nextSnapshot"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if type(found) is int else None
