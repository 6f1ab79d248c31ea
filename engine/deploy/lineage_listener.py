"""Table lineage that goes when its query does, for those who want it to say what runs now. Source: LN-69; FLIP-314."""

import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from engine.catalog import Catalog
from engine.procedures.lineage import delete_table_lineage
from lsm.errors import FluvialError

logger = logging.getLogger("fluvial.lineage")


class LineageListener(StreamingQueryListener):
    """Deletes what queries that have ended read and write: ``spark.streams.addListener(LineageListener(catalog))``.

    What their batches read and wrote stays. A query that is started again is told of again.
    """

    def __init__(self, catalog: Catalog, *, jobs: Mapping[str, str] | None = None, when_failed: bool = False) -> None:
        """Nothing is asked yet.

        Args:
            catalog: that keeps the lineage.
            jobs: by the name of a query, or its id when it has none: the name of its job where ``pipeline.name`` gives
                it another one.
            when_failed: also when a query failed; else it is taken to be started again.
        """
        self._catalog = catalog
        self._jobs = dict(jobs or {})
        self._when_failed = when_failed
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: Any) -> None:
        """A query was started."""
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: Any) -> None:
        """A query made progress."""

    def onQueryIdle(self, event: Any) -> None:
        """Nothing is new."""

    def onQueryTerminated(self, event: Any) -> None:
        """A query has ended. A store that does not answer is named in the log: the lineage is deleted by hand then."""
        name = self._names.pop(str(event.id), None)
        if name is None or (event.exception is not None and not self._when_failed):
            return
        job = self._jobs.get(name, name)
        try:
            delete_table_lineage(self._catalog, job)
        except FluvialError as error:
            logger.warning("table lineage of an ended job stays: job=%s error=%s", job, error)
