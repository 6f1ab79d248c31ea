"""Consumers: named readers with their next snapshot, which expiry must keep.

A consumer is a small file of the table, supported by all Paimon engines: expiry keeps the least next snapshot and all
after it. Source: Paimon ConsumerManager, Consumer.
"""

import json
from typing import Final

from filestore.io.file_io import Clock, FileIO
from filestore.layout.paths import CONSUMER_PREFIX, TablePaths
from lsm.errors import CorruptDataError, InvalidInputError

_READS: Final = 10  # Paimon for Java overwrites in place: a file may briefly be empty or partial
_WAIT_SECONDS: Final = 0.2
_IDS: Final = 1 << 63  # a snapshot's id is a BIGINT


class ConsumerStore:
    """The consumers of one branch of a table."""

    def __init__(self, io: FileIO, paths: TablePaths, clock: Clock) -> None:
        self._io = io
        self._paths = paths
        self._clock = clock

    def next_snapshot(self, consumer_id: str) -> int | None:
        """The next snapshot of a consumer; None when there is no such consumer.

        Raises: CorruptDataError naming the file when it remains unreadable.
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
        """The first snapshot that consumers need; None when there are no consumers."""
        return min(self.next_snapshots().values(), default=None)

    def write(self, consumer_id: str, next_snapshot: int, *, may_go_back: bool = False) -> int:
        """Store that a consumer has read everything before a snapshot.

        Only one process at a time may write a consumer. Writing the same position again renews the consumer's expiry.

        Args:
            consumer_id: its name.
            next_snapshot: id of its next snapshot; need not exist yet.
            may_go_back: allow a lower id than the stored one; else the higher one is kept.

        Returns:
            The stored id.
        """
        known = None if may_go_back else self.next_snapshot(consumer_id)
        noted = next_snapshot if known is None else max(known, next_snapshot)
        body = json.dumps({"nextSnapshot": noted}, indent=2).encode()
        self._io.replace(self._path(consumer_id), body)
        return noted

    def delete(self, consumer_id: str) -> None:
        """Delete a consumer, if it exists."""
        self._io.delete(self._path(consumer_id))

    def expire(self, age_ms: int) -> list[str]:
        """Delete consumers that have not written for longer than this, and return their names."""
        oldest_ms = self._clock.now_ms() - age_ms
        deleted = []
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
                deleted.append(name.removeprefix(CONSUMER_PREFIX))
        return deleted

    def _path(self, consumer_id: str) -> str:
        if not consumer_id.strip() or "/" in consumer_id or not consumer_id.isprintable():
            raise InvalidInputError(f"invalid consumer name: consumer-id={consumer_id!r} fix='use a valid file name'")
        return self._paths.consumer(consumer_id)


def _decoded(body: bytes) -> int | None:
    try:
        found = json.loads(body)["nextSnapshot"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if type(found) is int and 0 <= found < _IDS else None
