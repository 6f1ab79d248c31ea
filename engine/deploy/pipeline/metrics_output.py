"""Metrics of a running job, exported as its job file says."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

from engine.deploy.config.operation_config import MetricsConfig
from engine.deploy.pipeline.job_watch import ClusterWatch, Watched, lags_now
from engine.monitor.metrics_listener import MetricsListener, shared_metrics
from engine.monitor.table_metrics import watch_tables
from engine.runtime.metrics import REGISTRY, metrics_file, serve_metrics
from engine.table import Table


@contextmanager
def metrics_of(
    config: MetricsConfig, spark: SparkSession, tables: Sequence[Table]
) -> Iterator[Callable[[Watched], None]]:
    """Export metrics of queries and tables while the block runs; without a port or file, nothing is measured.

    Yields:
        What takes the looks at brokers and tables.

    Raises:
        InvalidInputError: the port is taken, or the file cannot be written.
    """
    with ExitStack() as exits:
        if config.port is not None or config.file is not None:
            listener, collector = MetricsListener(), watch_tables(tables)
            exits.callback(REGISTRY.unregister, collector)
            spark.streams.addListener(listener)
            exits.callback(spark.streams.removeListener, listener)
        if config.port is not None:
            exits.enter_context(serve_metrics(config.port, host=config.host))
        if config.file is not None:
            exits.enter_context(metrics_file(config.file))
        yield _on_look if config.port is not None or config.file is not None else lambda _: None


def _on_look(watched: Watched) -> None:
    metrics = shared_metrics()
    if isinstance(watched, ClusterWatch):
        metrics.brokers(watched.servers, reachable=watched.unreachable_s is None)
        for topic, end_offset in watched.dead_letters.items():
            metrics.dead_letters(topic, end_offset)
    for query, lags in lags_now(watched).items():
        metrics.behind(query, lags)
