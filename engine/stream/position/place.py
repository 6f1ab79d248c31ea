"""The place of a stream that its table knows: ``consumer-id``. It holds back expiry, and outlives the checkpoint.

Two consumers of the table, both as Paimon has them: ``<id>`` names the snapshot that the stream wants next, and
``<id>.base`` the one that it has, because differences and look-ups start from its files. While a whole snapshot is
being delivered there is only the second: without a checkpoint, such a stream has to begin anew.
"""

from typing import Final

from engine.stream.position.position import Phase, Position
from filestore.table_store import TableStore

BASE_SUFFIX: Final = ".base"
_EXPIRE_EVERY: Final = 100  # notes
_REFRESHES: Final = 4  # within the age at which a consumer is forgotten


class ConsumerPlace:
    """What one stream notes. One process at a time may use a name."""

    def __init__(self, store: TableStore, consumer_id: str, *, ignores_progress: bool) -> None:
        """Nothing is noted yet.

        Args:
            store: the table.
            consumer_id: name of the stream.
            ignores_progress: what is noted already does not count, and is forgotten at the first note.
        """
        self._consumers = store.consumers
        self._clock = store.clock
        self._name = consumer_id
        self._ignores_progress = ignores_progress
        self._expires_ms: int | None = store.options.consumer_expiration_time_ms
        self._notes = 0
        self._noted_ms = 0

    def next_snapshot(self) -> int | None:
        """The snapshot whose changes the stream wants next; None when it has to begin anew."""
        return None if self._ignores_progress else self._consumers.next_snapshot(self._name)

    def note(self, here: Position) -> None:
        """Everything up to a position is processed."""
        if self._ignores_progress and self._notes == 0:
            self._consumers.delete(self._name)
        base_id = here.snapshot_id
        if here.phase is Phase.FILES and base_id == 0 and here.next_id is not None:
            base_id = here.next_id  # a whole snapshot, as its difference from nothing
        elif here.phase is not Phase.SNAPSHOT:
            self._consumers.write(self._name, here.snapshot_id + 1, may_go_back=True)
        if base_id:
            self._consumers.write(self._name + BASE_SUFFIX, base_id, may_go_back=True)
        if self._expires_ms is not None and self._notes % _EXPIRE_EVERY == 0:
            self._consumers.expire(self._expires_ms)
        self._notes += 1
        self._noted_ms = self._clock.now_ms()

    def refresh(self, here: Position) -> None:
        """Note the same position again now and then: a stream that waits for data is not forgotten."""
        if self._expires_ms is not None and self._clock.now_ms() - self._noted_ms > self._expires_ms // _REFRESHES:
            self.note(here)
