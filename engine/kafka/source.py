"""The Spark source ``fluvial-kafka``: topics as batch and streaming frames, without a jar.

    spark.readStream.format("fluvial-kafka").option("kafka.bootstrap.servers", ...).option("subscribe", "orders")
         .option("value.format", "debezium-json").schema("id BIGINT, amount DECIMAL(10, 2), _row_kind STRING").load()

Spark finds it through the installed module ``pyspark_fluvial_kafka``. Sessions and the process that looks for sources
import this module; its parts come when they are used.

Source: Spark's "Structured Streaming + Kafka Integration Guide" for options and columns.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from engine.kafka.readers import KafkaBatchReader


class KafkaSource(DataSource):
    """The data source that Spark instantiates for the format."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "fluvial-kafka"

    def schema(self) -> StructType:
        """The columns when the user gives no schema, which is possible for raw records only."""
        from engine.checkpoint.admission import without_checkpoint
        from engine.kafka.readers import schema_of

        return schema_of(without_checkpoint(self.options))

    def reader(self, schema: StructType) -> "KafkaBatchReader":
        """The reader for ``spark.read``."""
        from engine.kafka.options import KafkaSourceOptions
        from engine.kafka.readers import KafkaBatchReader

        return KafkaBatchReader(KafkaSourceOptions.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader for ``spark.readStream``."""
        from engine.checkpoint.admission import fitting_reader, without_checkpoint
        from engine.kafka.options import KafkaSourceOptions
        from engine.kafka.readers import KafkaStreamReader

        given = KafkaSourceOptions.parse(without_checkpoint(self.options))
        return fitting_reader(KafkaStreamReader(given, schema), self.options)
