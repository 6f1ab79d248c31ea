"""Makes ``format("fluvial-kafka")`` work in Spark without registration; a module of its own, for Spark takes one each.

Spark looks for installed top-level modules named ``pyspark_*`` and registers the ``DefaultSource`` of each under the
name that it gives itself.
"""

from engine.kafka.source import KafkaSource as DefaultSource

__all__ = ["DefaultSource"]
