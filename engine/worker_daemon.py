"""The parent of Spark's Python workers, with all modules that Fluvial's tasks need already imported.

Spark forks its Python workers from one daemon per executor and kind of work: tasks, and each step of planning. When the
daemon has the modules, a new worker has them too (0.5 to 1 s of imports otherwise). They are also frozen out of the
garbage collector, so the full collection that Spark's worker runs after every task visits the task's own objects and
not some 200,000 objects of libraries. PySpark is the installed one, not Spark's zip file of it, which every process
would compile again.

``engine.spark.session`` sets it on local masters. On a cluster, Fluvial must be installed on the executors (not shipped
with ``--py-files``, which a worker sees only after it has started), then set
``spark.python.daemon.module=engine.worker_daemon``.

Nothing here starts a thread or opens a client, because the process is forked. (PyArrow's allocator and NumPy's BLAS
keep a thread each, and handle a fork themselves.)
"""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from engine.runtime.installed_pyspark import prefer_installed_pyspark
from engine.spark_internals.workers import CREATION, IN_TASKS, LOOKUP, serve_tasks, wrap_reports

PRELOADED: Final = (
    "numpy",
    "pyarrow.compute",
    "pyarrow.json",
    "pyarrow.parquet",
    "confluent_kafka",
    *IN_TASKS,
    "engine.kafka.readers",
    "engine.kafka.source",
    "engine.write.sink",
    "engine.spark.data_source",
    "engine.spark.writer.staged_writer",
    "engine.spark.system_reader",
    "filestore.predicate.parser",
    # which functions of the modules above import, for the tables that need them
    "engine.read.log_state",
    "filestore.diff.table_diff",
    "filestore.format.avro",
    "filestore.format.orc",
    "filestore.iceberg.after_commit",
    "lsm.aggregate.aggregation",
    "lsm.merge.partial_update",
)
_PRELOADED_FOR: Final = {
    LOOKUP: (LOOKUP,),
    CREATION: (CREATION, "engine.kafka.readers", "engine.spark.data_source", "engine.spark.system_reader"),
}

_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"


def modules_for(arguments: Sequence[str]) -> Sequence[str]:
    """The modules for the kind of work that the last of a daemon's arguments names: all, but for short ones."""
    return _PRELOADED_FOR.get(arguments[-1], PRELOADED) if arguments else PRELOADED


def preload(names: Sequence[str] = PRELOADED) -> None:
    """Import the modules of the tasks and exclude them from garbage collection."""
    for name in names:
        # a module that cannot be imported here fails in the task that needs it, which reports the error to the user
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def quiet(worker: Callable[..., int]) -> Callable[..., int]:
    """Spark's function for one task, which ends without a traceback when Spark has closed the connection.

    Spark does so when it needs no more rows (LIMIT): nothing waits for the rest, and the process is not used again.
    """

    def run(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except (BrokenPipeError, ConnectionResetError):
            return os.EX_IOERR

    return run


def brief(report: Callable[..., None]) -> Callable[..., None]:
    """Spark's function that reports the error of a task: a mistake of the user is one line, without a traceback."""
    from lsm.errors import InvalidInputError

    def run(error: BaseException, *arguments: Any, **named: Any) -> None:
        if not isinstance(error, InvalidInputError):
            report(error, *arguments, **named)
            return
        before = os.environ.get(_HIDE_TRACEBACK)
        os.environ[_HIDE_TRACEBACK] = "1"
        try:
            report(error, *arguments, **named)
        finally:
            os.environ.pop(_HIDE_TRACEBACK)
            os.environ.update({} if before is None else {_HIDE_TRACEBACK: before})

    return run


def main() -> None:
    """Fork workers until Spark ends."""
    prefer_installed_pyspark()
    preload(modules_for(sys.argv[1:]))
    wrap_reports(brief)
    serve_tasks(quiet)


if __name__ == "__main__":
    main()
