"""``trace.directory``: a micro-batch of a real query, written by the driver and by tasks, has its times."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import sink
from engine.runtime.batch_trace import batch_trace
from engine.runtime.step_file import read_steps
from tests.support.warehouses import new_table

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


@pytest.mark.spark
@pytest.mark.parametrize(("writer", "rows"), [("driver", 60), ("tasks", None)])
def test_the_batches_of_a_query_are_traced(spark: SparkSession, tmp_path: Path, writer: str, rows: int | None) -> None:
    table = new_table(tmp_path / "warehouse", SCHEMA, key=["id"], options={"bucket": "2"})
    for number in range(2):
        spark.range(number * 60, number * 60 + 60, 1, 1).write.mode("append").parquet(str(tmp_path / "input"))
    source = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "input"))
    home = str(tmp_path / "trace")
    write = sink(table, {"sink.writer": writer, "trace.directory": home})
    stream = source.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = stream.trigger(availableNow=True).start()
    query.awaitTermination()
    write.close()
    steps = list(read_steps(home))
    for batch, progress in enumerate(query.recentProgress[:2]):
        trace = batch_trace(steps, batch=batch)
        assert (trace.table, trace.rows) == (table.name, rows)
        [added] = [each for each in trace.spans if each.name == "addBatch"]
        assert added.us == 1000 * progress["durationMs"]["addBatch"]
        driver = [each for each in trace.spans if each.lane == "driver"]
        collected = ["rows by Spark"] * (writer == "driver")
        assert [each.name for each in driver] == ["wait", *collected, "write", "commit", "after commit"]
        assert sum(each.us for each in driver) <= added.us + 5_000  # within what Spark measures of it
        assert {"memtable", "flush", "close"} <= {each.name for each in trace.spans if each.lane.startswith("part")}
    written_by = {each.process for each in steps if each.step == "rows-written"}
    assert (written_by == {each.process for each in steps if each.step == "batch-given"}) == (writer == "driver")
