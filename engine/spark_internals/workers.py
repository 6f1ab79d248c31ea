"""Spark's Python processes: the modules that they run, and the functions of them that Fluvial wraps.

Nothing is imported here before a function is called: a process connects to Spark first.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import IO, Any, Final

STREAM_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""What Spark starts a process with for the source of each streaming query."""
LOOKUP: Final = "pyspark.sql.worker.lookup_data_sources"
"""What finds the installed sources, once for each JVM. It imports their first modules itself, and needs no others."""
CREATION: Final = "pyspark.sql.worker.create_data_source"
"""What asks a source for its columns."""
IN_TASKS: Final = (
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    CREATION,
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.python_streaming_sink_runner",
    STREAM_RUNNER,
)
"""Modules that tasks and planning import. A release without one of them is no error: its workers import others."""

_REPORT: Final = "handle_worker_exception"
_MAKE_READER: Final = "_streamReader"
_WORKER: Final = "worker"


def wrap_reports(wrap: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    """Wrap what reports the error of a task, in every module of PySpark that has it; without it nothing happens."""
    from pyspark import util

    if _REPORT not in vars(util):
        return
    original: Callable[..., None] = vars(util)[_REPORT]
    for module in [*sys.modules.values()]:
        if getattr(module, "__name__", "").startswith("pyspark") and vars(module).get(_REPORT) is original:
            setattr(module, _REPORT, wrap(original))


def serve_tasks(wrap: Callable[[Callable[..., int]], Callable[..., int]]) -> None:
    """Fork workers until Spark ends.

    Args:
        wrap: around the function that serves one task; a release without it has its own way.
    """
    from pyspark import daemon

    if (found := getattr(daemon, _WORKER, None)) is not None:
        setattr(daemon, _WORKER, wrap(found))
    daemon.manager()


def serve_stream(file: IO[bytes], make: Callable[..., Any]) -> None:
    """Serve the source of one streaming query, until Spark closes the connection.

    Args:
        file: the connection, behind its greeting.
        make: called in place of what makes the reader of a source, which it is given first.
    """
    from pyspark.sql.streaming import python_streaming_source_runner as runner

    if (found := getattr(runner, _MAKE_READER, None)) is not None:
        setattr(runner, _MAKE_READER, partial(make, found))
    runner.main(file, file)
