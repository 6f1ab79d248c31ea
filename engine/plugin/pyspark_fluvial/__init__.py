"""Makes ``format("fluvial")`` work in Spark without registration.

Spark looks for installed top-level modules named ``pyspark_*`` and registers the ``DefaultSource`` of each under the
name that it gives itself.
"""

from engine.spark.data_source import FluvialDataSource as DefaultSource

__all__ = ["DefaultSource"]
