"""The PySpark job of the whole way, as an application has it: two Debezium topics into two tables, until it is killed.

python -m tests.flink.whole_way_job WAREHOUSE BROKERS CHECKPOINTS
"""

import sys
from typing import Final

from engine import Catalog, session, sink

SCHEMAS: Final = {
    "customers": "id BIGINT, country STRING, _row_kind STRING",
    "orders": "id BIGINT, customer BIGINT, amount DECIMAL(10,2), _row_kind STRING",
}


def main(warehouse: str, brokers: str, checkpoints: str) -> None:
    """Run both queries."""
    spark = session("whole-way", "local[2]", {"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    catalog = Catalog(warehouse)
    for name, schema in SCHEMAS.items():
        changes = (
            spark.readStream.format("fluvial-kafka")
            .schema(schema)
            .option("kafka.bootstrap.servers", brokers)
            .option("subscribe", f"source.shop.{name}")
            .option("value.format", "debezium-json")
            .option("maxOffsetsPerTrigger", 100)
            .load()
        )
        write = sink(catalog.table(f"shop.{name}"))
        changes.writeStream.foreachBatch(write).option("checkpointLocation", f"{checkpoints}/{name}").start()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
