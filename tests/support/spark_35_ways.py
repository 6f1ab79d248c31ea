"""What Spark 3.5 has: ``python -m tests.support.spark_35_ways DIRECTORY`` prints what each way gives."""

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

import engine
from engine import Catalog

_MERGE = (
    "MERGE INTO shop.t USING (SELECT 1L AS id, 'm' AS v) AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
)


def ways(spark: SparkSession, directory: Path) -> dict[str, Any]:
    """Counts of a frame, what statements have done, and rows."""
    catalog = Catalog(str(directory / "warehouse"))
    columns = pa.schema([("id", pa.int64()), ("v", pa.string())])
    table = catalog.create_table("shop.t", columns, primary_key=["id"], options={"bucket": "1"})
    files = str(directory / "files")
    spark.range(5).selectExpr("id", "'s' AS v").write.parquet(files)
    writer = spark.readStream.schema("id BIGINT, v STRING").parquet(files).writeStream.foreachBatch(engine.sink(table))
    writer = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    table.append(spark.range(10, 13).selectExpr("id", "'x' AS v"))
    counts = [table.dataframe(spark).count()]
    done = [
        list(row)[1:]
        for text in ("INSERT INTO shop.t VALUES (99, 'q')", _MERGE)
        for row in engine.sql(spark, text, catalog=catalog).collect()
    ]
    found = engine.sql(spark, "SELECT id, v FROM shop.t WHERE id < 2 OR id > 12 ORDER BY id", catalog=catalog)
    return {"counts": counts, "done": done, "rows": [list(row) for row in found.collect()]}


if __name__ == "__main__":
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    started = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    started.sparkContext.setLogLevel("OFF")
    print(json.dumps({"version": pyspark.__version__} | ways(started, Path(sys.argv[1]))))
