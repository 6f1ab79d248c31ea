"""The progress of a stream that its table keeps: ``consumer-id``. It holds back expiry, and outlives the checkpoint.

Two consumers of the table, in Paimon's format: ``<id>`` names the snapshot that the stream needs next, and
``<id>.base`` the last one, because differences and look-ups start from its files. While a whole snapshot is being
delivered only the second exists: without a checkpoint, such a stream has to start over.
"""

from typing import Final

from engine.stream.position.position import Phase, Position
from filestore.table_store import TableStore

BASE_SUFFIX: Final = ".base"
_EXPIRE_EVERY: Final = 100  # records
_REFRESHES: Final = 4  # within a consumer's expiration time


class ConsumerPlace:
    """The recorded progress of one stream. One process at a time may use a name."""

    def __init__(self, store: TableStore, consumer_id: str, *, ignores_progress: bool) -> None:
        """Create the record.

        Args:
            store: the table.
            consumer_id: name of the stream.
            ignores_progress: ignore recorded progress, and delete it with the first new record.
        """
        self._consumers = store.consumers
        self._clock = store.clock
        self._name = consumer_id
        self._ignores_progress = ignores_progress
        self._expires_ms: int | None = store.options.consumer_expiration_time_ms
        self._record_count = 0
        self._recorded_ms = 0

    def next_snapshot(self) -> int | None:
        """The snapshot with the changes that the stream needs next; None when it has to start over."""
        return None if self._ignores_progress else self._consumers.next_snapshot(self._name)

    def hold(self, here: Position) -> None:
        """Keep what a run reads first, before it has processed anything: it may die in its first batch."""
        base_id = _base_of(here)
        if base_id:
            self._consumers.write(self._name + BASE_SUFFIX, base_id, may_go_back=True)

    def record(self, here: Position) -> None:
        """Record that everything up to a position is processed."""
        if self._ignores_progress and self._record_count == 0:
            self._consumers.delete(self._name)
        if here.phase is not Phase.SNAPSHOT and _base_of(here) == here.snapshot_id:
            self._consumers.write(self._name, here.snapshot_id + 1, may_go_back=True)
        self.hold(here)
        if self._expires_ms is not None and self._record_count % _EXPIRE_EVERY == 0:
            self._consumers.expire(self._expires_ms)
        self._record_count += 1
        self._recorded_ms = self._clock.now_ms()

    def refresh(self, here: Position) -> None:
        """Record the same position again periodically, so that an idle stream's consumer does not expire."""
        if self._expires_ms is not None and self._clock.now_ms() - self._recorded_ms > self._expires_ms // _REFRESHES:
            self.record(here)


def _base_of(here: Position) -> int:
    """The snapshot that a position starts from; 0: none."""
    if here.phase is Phase.FILES and here.snapshot_id == 0 and here.next_id is not None:
        return here.next_id  # a whole snapshot, as its difference from nothing
    return here.snapshot_id
