"""Metrics of a running job, exported as its job file says."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

from engine.deploy.config.operation_config import MetricsConfig
from engine.deploy.pipeline.broker_watch import ClusterWatch
from engine.monitor.metrics_listener import MetricsListener, shared_metrics
from engine.monitor.table_metrics import watch_tables
from engine.runtime.metrics import REGISTRY, metrics_file, serve_metrics
from engine.table import Table


@contextmanager
def metrics_of(
    config: MetricsConfig, spark: SparkSession, tables: Sequence[Table]
) -> Iterator[Callable[[ClusterWatch], None]]:
    """Export metrics of queries and tables while the block runs; without a port or file, nothing is measured.

    Yields:
        What takes the looks at the brokers.

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


def _on_look(cluster: ClusterWatch) -> None:
    metrics, lost_s = shared_metrics(), cluster.unreachable_s
    metrics.brokers(cluster.servers, reachable=lost_s is None)
    for query, lag in cluster.lags.items():  # of the last answer: without brokers the oldest record grows older
        metrics.behind(query, {"lag_records": lag.records, "lag_seconds": lag.seconds + (lost_s or 0.0)})
