"""A real sink in Spark beside statements and batches of the driver."""

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine import Catalog, sink, sql
from engine.broker.broker import Broker
from tests.support.logs import folded, log_changes
from tests.support.warehouses import new_table

SCHEMA = pa.schema([("value", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC"))])
ROWS = 10


@pytest.mark.long
@pytest.mark.spark
def test_a_sink_lives_beside_batches_and_statements(spark: SparkSession, tmp_path: Path, broker: Broker) -> None:
    """FL-87 to FL-90: the stream has the values from 0 on, the others those below."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    table = new_table(catalog, SCHEMA, key=["value"], broker=broker, options={"bucket": "2"})
    write, batches, is_done, is_skipped = sink(table), list[int](), threading.Event(), threading.Event()

    def watched(frame: DataFrame, batch: int) -> None:
        if is_done.is_set():
            is_skipped.set()
            return
        write(frame, batch)
        batches.append(batch)

    frames = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2).load()
    query = frames.writeStream.foreachBatch(watched).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    name = table.name
    statements = [
        f"INSERT INTO {name} SELECT value - 100, timestamp FROM {name} WHERE value BETWEEN -2 AND -1",
        f"UPDATE {name} SET timestamp = TIMESTAMP '2001-01-01 00:00:00' WHERE value < -100",
        f"DELETE FROM {name} WHERE value IN (-1, -2)",
        f"MERGE INTO {name} t USING (SELECT -101L AS v) s ON t.value = s.v WHEN MATCHED THEN DELETE",
    ]
    for number in range(1, 5):
        table.write(pa.table({"value": [-number], "timestamp": [None]}, schema=SCHEMA))
    for text in statements:
        sql(spark, text, catalog)
    table.overwrite(pa.table({"value": [-500], "timestamp": [None]}, schema=SCHEMA))
    before = len(batches)
    while len(batches) < before + 2 and query.isActive:
        query.awaitTermination(0.2)
    is_done.set()
    while not is_skipped.is_set() and query.isActive:
        query.awaitTermination(0.2)
    assert query.exception() is None
    query.stop()
    write.close()
    assert batches == [*range(len(batches))]
    assert len(batches) >= len(statements)
    found = {row["value"]: row["timestamp"] for row in table.read().to_arrow().to_pylist()}
    written = [value for value in found if value >= 0]
    assert min(found) == -500
    assert sorted(written) == [*range(min(written), len(batches) * ROWS)], "what came after the overwrite"
    logged = folded(log_changes(table), "value")
    assert sorted(value for value in logged if value >= 0) == [*range(len(batches) * ROWS)]
    assert {value: row["timestamp"].year for value, row in logged.items() if value <= -5} == {-102: 2001}
    assert sorted(value for value in logged if -5 < value < 0) == [-4, -3]
