"""The progress of a stream that its table keeps: ``consumer-id``. It holds back expiry, and outlives the checkpoint.

Two consumers of the table, in Paimon's format: ``<id>`` names the snapshot that the stream needs next, and
``<id>.base`` the last one, because differences and look-ups start from its files. While a whole snapshot is being
delivered only the second exists: without a checkpoint, such a stream has to start over.
"""

import logging
import re
from collections.abc import Mapping
from typing import Final

from engine.stream.position.position import Phase, Position
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID
from filestore.table_store import TableStore
from lsm.errors import ConflictError, InvalidInputError

logger = logging.getLogger("fluvial.stream")

BASE_SUFFIX: Final = ".base"
_EXPIRE_EVERY: Final = 100  # records
_REFRESHES: Final = 4  # within a consumer's expiration time
_OF_SHARE: Final = re.compile(r".*-\d+-of-\d+", re.DOTALL)


def check_consumer_name(name: str) -> None:
    """Refuse a name that is made of another consumer's name. Raises: InvalidInputError."""
    if name.endswith(BASE_SUFFIX) or _OF_SHARE.fullmatch(name):
        raise InvalidInputError(
            f"a consumer's name ends like the files of another one: consumer-id={name} "
            f"cause='<name>{BASE_SUFFIX} and <name>-0-of-2 are written for <name>' fix=choose another name"
        )


def share_name(name: str, share: tuple[int, int]) -> str:
    """The consumer of one of several programs that share a table's buckets."""
    return name if share == (0, 1) else f"{name}-{share[0]}-of-{share[1]}"


class ConsumerPlace:
    """The recorded progress of one stream. One process at a time may use a name; a second one is noticed."""

    def __init__(self, store: TableStore, consumer_id: str, *, ignores_progress: bool) -> None:
        """Create the record.

        Args:
            store: the table.
            consumer_id: name of the stream.
            ignores_progress: ignore recorded progress, and delete it with the first new record.
        """
        self._consumers = store.consumers
        self._clock = store.clock
        self._table = store.name
        self._name = consumer_id
        self._base = consumer_id + BASE_SUFFIX
        self._ignores_progress = ignores_progress
        self._expires_ms: int | None = store.options.consumer_expiration_time_ms
        self._record_count = 0
        self._recorded_ms = 0
        self._known: Mapping[str, int | None] = {}  # what its files said last; nothing before a run holds its start

    def next_snapshot(self) -> int | None:
        """The snapshot with the changes that the stream needs next; None when it has to start over."""
        return None if self._ignores_progress else self._consumers.next_snapshot(self._name)

    def hold(self, here: Position) -> int:
        """Keep what a run reads, before it has processed anything: it may die in its first batch.

        Returns: the first snapshot that is kept.

        Raises: ConflictError: another program uses the consumer.
        """
        found = self._checked()
        place = None if self._ignores_progress or self._known else found[self._name]
        if place is not None and place > here.snapshot_id + 1:
            logger.warning(
                "a stream begins before its consumer's place: table=%s consumer-id=%s place=%s snapshot=%d",
                self._table, self._name, place, here.snapshot_id,
            )  # fmt: skip
        return self._write(found, {self._base: _base_of(here)})

    def record(self, here: Position) -> None:
        """Record that everything up to a position is processed. Raises: ConflictError: see ``hold``."""
        found = self._checked()
        if self._ignores_progress and self._record_count == 0:
            self._consumers.delete(self._name)
            found = {**found, self._name: None}
        place = {} if _is_whole(here) else {self._name: here.snapshot_id + 1}
        self._write(found, {**place, self._base: _base_of(here)})
        if self._expires_ms is not None and self._record_count % _EXPIRE_EVERY == 0:
            self._consumers.expire(self._expires_ms)
        self._record_count += 1

    def refresh(self, here: Position) -> None:
        """Record the same position again periodically, so that the consumer of an idle or slow stream does not expire.

        Args:
            here: everything before is processed.

        Raises: ConflictError: see ``hold``.
        """
        if self._expires_ms is not None and self._clock.now_ms() - self._recorded_ms > self._expires_ms // _REFRESHES:
            self.record(here)

    def _checked(self) -> Mapping[str, int | None]:
        """Check that the files have the progress that this program wrote. Raises: ConflictError: another one wrote."""
        found = {name: self._consumers.next_snapshot(name) for name in (self._name, self._base)}
        for name, known in self._known.items():
            if found[name] not in (known, None):
                raise ConflictError(
                    f"another program has moved the place of this stream: table={self._table} "
                    f"consumer-id={self._name} file={name} place={found[name]} written={known} "
                    "cause='two programs with one name, or its place was reset or rolled back' "
                    "fix='run one program of a name at a time, others under names of their own; then start again'"
                )
        return found

    def _write(self, found: Mapping[str, int | None], places: Mapping[str, int]) -> int:
        for name, place in places.items():
            self._consumers.write(name, place, may_go_back=True)
        self._known = {**found, **places}
        self._recorded_ms = self._clock.now_ms()
        return places[self._base]


def _is_whole(here: Position) -> bool:
    """Whether the rows of a snapshot are being delivered, be it as its difference from nothing."""
    return here.phase is Phase.SNAPSHOT or (here.phase is Phase.FILES and here.snapshot_id == 0)


def _base_of(here: Position) -> int:
    """The snapshot that a position starts from; before all, the first one."""
    return max(here.newest_id if _is_whole(here) else here.snapshot_id, FIRST_SNAPSHOT_ID)
