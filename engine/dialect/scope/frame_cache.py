"""Frames of immutable states: the next statement on the same snapshot need not plan it again."""

from collections.abc import Hashable
from typing import Final

from pyspark.sql import DataFrame

from engine.read.batch_plan import BatchPlan
from engine.read.batch_read import BatchRead
from engine.read.read_state import StateSource
from filestore.io.byte_cache import ByteCache
from filestore.predicate.predicate import Predicate
from filestore.scan.data_split import split_bytes

_FRAME_BYTES: Final = 1 << 20  # of one in the JVM
_MOST_BYTES: Final = 64 << 20

_Planned = tuple[BatchPlan, DataFrame]


class FrameCache:
    """The most recently used frames of one session; its statements may come from several threads."""

    def __init__(self) -> None:
        """Empty."""
        self._kept: ByteCache[_Planned] = ByteCache(_MOST_BYTES, size_of=_bytes_of, keeps_newest=True)

    def find(self, key: Hashable | None) -> tuple[BatchPlan, DataFrame] | None:
        """The plan and the frame of a key."""
        return None if key is None else self._kept.find(key)

    def keep(self, key: Hashable | None, plan: BatchPlan, frame: DataFrame) -> None:
        """Cache a frame, evicting the least recently used ones. A None key is not cached."""
        if key is not None:
            self._kept.keep(key, (plan, frame))


def _bytes_of(planned: _Planned) -> int:
    plan, _ = planned
    return _FRAME_BYTES + split_bytes(plan.splits)


def frame_key(read: BatchRead, columns: tuple[str, ...], predicate: Predicate | None) -> Hashable | None:
    """The cache key of a frame; None when it depends on more than a snapshot.

    Args:
        read: the state. Its manifest lists identify the snapshot: after a rollback, ids are reused.
        columns: the columns that are read.
        predicate: the predicate that prunes files.
    """
    snapshot, table = read.snapshot, read.table
    if snapshot is None or read.served.source is not StateSource.SNAPSHOT:
        return None
    place = (table.store.paths.branch_root, snapshot.id, snapshot.base_manifest_list, snapshot.delta_manifest_list)
    others: tuple[Hashable, ...] = ()
    if read.fallback is not None:
        other = read.fallback.snapshot
        others = (read.fallback.table.store.paths.branch, other.base_manifest_list, other.delta_manifest_list)
    options = table.options
    return (*place, *others, table.schema.id, options, tuple(sorted(read.constants)), columns, predicate)
