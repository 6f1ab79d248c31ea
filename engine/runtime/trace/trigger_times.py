"""The times of a query's triggers, by Spark's own progress: a trigger is known when the next one runs."""

import json
from datetime import datetime
from typing import Any, Final

from pyspark.sql import DataFrame

from engine.runtime.trace.step_file import StepFile
from engine.spark_internals.session import JvmError, jvm_query

_QUERY_ID: Final = "sql.streaming.queryId"


class TriggerTimes:
    """Writes down the triggers of the query that gives a sink its frames."""

    def __init__(self, steps: StepFile) -> None:
        """Nothing is written yet."""
        self._steps = steps
        self._query: Any = None
        self._newest = -1

    def note_earlier(self, frame: DataFrame) -> None:
        """Write down the trigger before that of this frame."""
        if self._query is None:
            context = frame.sparkSession.sparkContext
            self._query = jvm_query(frame.sparkSession, context.getLocalProperty(_QUERY_ID))
        self._note()

    def close(self) -> None:
        """Write down the last trigger; the query may have ended, and Spark too."""
        try:
            self._note()
        except (JvmError, OSError):
            return

    def _note(self) -> None:
        progress = None if self._query is None else self._query.lastProgress()
        if progress is None:
            return
        found = json.loads(progress.json())
        if found["batchId"] > self._newest:
            self._newest = found["batchId"]
            began = datetime.fromisoformat(found["timestamp"])
            self._steps.add_trigger(found, int(began.timestamp() * 1000))
