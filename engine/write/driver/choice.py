"""Which runner writes the micro-batches of a sink."""

import logging
from typing import Final

import pyspark
from pyspark.sql import DataFrame, SparkSession

from engine.request.writer_options import WriterOptions
from engine.spark_internals.session import has_arrow_results, most_rows_of
from engine.write.driver.driver_runner import DriverRunner
from engine.write.session import Runner
from engine.write.spark_runner import SparkRunner
from engine.write.unavailable.filling import Refuse
from lsm.errors import InvalidInputError

_FEW_ROWS: Final = 10_000

logger = logging.getLogger("fluvial.sink")

_DRIVER: Final = "driver"
_TASKS: Final = "tasks"
_MOST_CORES: Final = 8
"""Up to which threads of one Python process keep the cores busy: what is not in Arrow's kernels has one at a time."""


def runner_of_sink(
    spark: SparkSession, options: WriterOptions, table: str, *, refuse: Refuse | None = None
) -> Runner[DataFrame]:
    """The runner for a session's master, or the one that is asked for; the log says which and why.

    Args:
        spark: the session.
        options: of the sink.
        table: its name, for the log.
        refuse: see ``BatchSpec``.

    Raises:
        InvalidInputError: ``sink.writer=driver`` where rows are on other machines.
    """
    master = spark.sparkContext.master
    cores = spark.sparkContext.defaultParallelism
    writer, reason = choose_writer(options.sink_writer, master, cores, can_collect=has_arrow_results())
    logger.info("micro-batches are written by the %s: table=%s reason='%s'", writer, table, reason)
    return DriverRunner(spark, refuse=refuse) if writer == _DRIVER else SparkRunner(spark, refuse=refuse)


def runner_of_batch(rows: DataFrame) -> Runner[DataFrame]:
    """The runner for the rows of a statement, which is one batch and no stream.

    On a local master the driver writes rows of which Spark knows that they are few, as those of VALUES are: what may be
    any number would be computed once more if it were too large.
    """
    spark, most_rows = rows.sparkSession, most_rows_of(rows)
    is_small = most_rows is not None and most_rows <= _FEW_ROWS
    is_driver = is_small and on_this_machine(spark.sparkContext.master) and has_arrow_results()
    return DriverRunner(spark) if is_driver else SparkRunner(spark)


def on_this_machine(master: str) -> bool:
    """Whether no other machine computes anything."""
    return master.startswith("local") and not master.startswith("local-cluster")


def choose_writer(wanted: str, master: str, cores: int, *, can_collect: bool = True) -> tuple[str, str]:
    """The writer, and why.

    Args:
        wanted: option ``sink.writer``.
        master: of the session.
        cores: of the master, if it is local.
        can_collect: whether this PySpark gives the driver the rows of a frame in bounded memory.

    Raises:
        InvalidInputError: see ``runner_of_sink``.
    """
    if wanted == _DRIVER and not on_this_machine(master):
        raise InvalidInputError(
            f"the driver writes on a local master only: sink.writer={wanted} master={master} "
            "fix='leave sink.writer out: on a cluster rows stay where they are'"
        )
    if wanted == _DRIVER and not can_collect:
        raise InvalidInputError(
            f"this PySpark does not give its driver rows in bounded memory: sink.writer={wanted} "
            f"spark={pyspark.__version__} fix='leave sink.writer out: tasks write'"
        )
    if wanted in (_DRIVER, _TASKS):
        return wanted, f"sink.writer={wanted}"
    if not on_this_machine(master):
        return _TASKS, f"master={master}: rows stay where they are"
    if not can_collect:
        return _TASKS, f"pyspark={pyspark.__version__}: it does not give its driver rows in bounded memory"
    if cores > _MOST_CORES:
        return _TASKS, f"master={master}: more than {_MOST_CORES} cores, for which one Python process is too slow"
    return _DRIVER, f"master={master}: neither a shuffle nor other processes"
