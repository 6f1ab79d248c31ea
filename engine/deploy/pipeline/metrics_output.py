"""Metrics of a running job, where its file wants them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

from engine.deploy.config.operation_config import MetricsConfig
from engine.monitor.metrics_listener import MetricsListener
from engine.monitor.table_metrics import watch_tables
from engine.runtime.metrics import REGISTRY, metrics_file, serve_metrics
from engine.table import Table


@contextmanager
def metrics_of(config: MetricsConfig, spark: SparkSession, tables: Sequence[Table]) -> Iterator[None]:
    """Show queries and tables while the block runs; nothing is measured where nobody looks.

    Raises:
        InvalidInputError: the port is taken, or the file cannot be written.
    """
    with ExitStack() as ways:
        if config.port is not None or config.file is not None:
            listener, collector = MetricsListener(), watch_tables(tables)
            ways.callback(REGISTRY.unregister, collector)
            spark.streams.addListener(listener)
            ways.callback(spark.streams.removeListener, listener)
        if config.port is not None:
            ways.enter_context(serve_metrics(config.port, host=config.host))
        if config.file is not None:
            ways.enter_context(metrics_file(config.file))
        yield
