"""Frames of immutable states: the next statement on the same snapshot need not plan it again."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from pyspark.sql import DataFrame

from engine.read.batch_plan import BatchPlan
from engine.read.batch_read import BatchRead
from engine.read.read_state import StateSource
from filestore.predicate.predicate import Predicate

_MOST: Final = 64


class FrameCache:
    """The most recently used frames of one session."""

    def __init__(self) -> None:
        """Empty."""
        self._kept: OrderedDict[Hashable, tuple[BatchPlan, DataFrame]] = OrderedDict()
        self._lock = threading.Lock()  # statements of several threads

    def find(self, key: Hashable | None) -> tuple[BatchPlan, DataFrame] | None:
        """The plan and the frame of a key."""
        with self._lock:
            if key is None or key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key]

    def keep(self, key: Hashable | None, plan: BatchPlan, frame: DataFrame) -> None:
        """Cache a frame, evicting the least recently used one. A None key is not cached."""
        if key is None:
            return
        with self._lock:
            self._kept[key] = plan, frame
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)


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
