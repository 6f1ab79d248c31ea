"""Makes the tags of a stream's table when their periods end, whether or not anything is written."""

import logging
import threading
from typing import Final

from filestore.automatic_tags import make_due_tags
from filestore.table_store import TableStore
from filestore.tag_schedule import TagClock, TagSchedule
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.housekeeping")

_LONGEST_WAIT_S: Final = 60.0  # the clock may be set, and other processes delete tags


class TagTimer:
    """A thread that waits for the ends of periods."""

    def __init__(self, table: TableStore) -> None:
        """Start it, if the table has tags by the clock; what is wrong with its options is logged."""
        self._table = table
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            schedule = TagSchedule.of(table.options)
        except InvalidInputError as error:
            logger.warning("no tags are made: table=%s error=%s", table.name, error)
            return
        if schedule is not None and schedule.clock is TagClock.PROCESS_TIME:
            self._thread = threading.Thread(target=self._run, args=(schedule,), name="fluvial-tags", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Make no more tags."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, schedule: TagSchedule) -> None:
        while not self._ended.wait(min(schedule.wait_ms(self._table.clock.local_ms()) / 1000, _LONGEST_WAIT_S)):
            try:
                make_due_tags(self._table)
            except Exception:
                logger.warning("tags failed, it will be tried again: table=%s", self._table.name, exc_info=True)
