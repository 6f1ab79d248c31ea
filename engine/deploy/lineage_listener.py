"""Table lineage that is deleted when its query ends, for users who want it to show running queries only.

Source: FLIP-314.
"""

import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from engine.catalog import Catalog
from engine.procedures.lineage import delete_table_lineage
from lsm.errors import FluvialError

logger = logging.getLogger("fluvial.lineage")


class LineageListener(StreamingQueryListener):
    """Deletes the table lineage of ended queries: ``spark.streams.addListener(LineageListener(catalog))``.

    The lineage of their batches stays. A restarted query is recorded again.
    """

    def __init__(self, catalog: Catalog, *, jobs: Mapping[str, str] | None = None, when_failed: bool = False) -> None:
        """Create the listener.

        Args:
            catalog: the catalog that records the lineage.
            jobs: job name by query name, or by query id for a query without a name; needed where ``pipeline.name``
                gives the job another name.
            when_failed: also delete when a query failed; otherwise a failed query is expected to restart.
        """
        self._catalog = catalog
        self._jobs = dict(jobs or {})
        self._when_failed = when_failed
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Remember the name of a query."""
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """Delete the lineage of an ended query. If the store does not answer, only a warning is logged."""
        name = self._names.pop(str(event.id), None)
        if name is None or (event.exception is not None and not self._when_failed):
            return
        job = self._jobs.get(name, name)
        try:
            delete_table_lineage(self._catalog, job)
        except FluvialError as error:
            logger.warning("table lineage of an ended job stays: job=%s error=%s", job, error)
