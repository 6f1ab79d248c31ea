"""A streaming reader that a test kills: python reading_job.py WAREHOUSE TABLE CHECKPOINT OUTPUT.

Every micro-batch becomes one file of OUTPUT, named by its id and replaced as a whole: a sink that is idempotent.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from engine.spark.session import checkpoint_settings, session


def main() -> None:
    warehouse, table, checkpoint, output = sys.argv[1:]

    def take(frame: DataFrame, batch: int) -> None:
        rows = [row.asDict() for row in frame.collect()]
        target = Path(output) / f"{batch:06}.json"
        if target.exists():
            # a batch that is run again has the same rows
            assert sorted(map(str, json.loads(target.read_text()))) == sorted(map(str, rows)), batch
        unfinished = target.with_suffix(".tmp")
        unfinished.write_text(json.dumps(rows))
        os.replace(unfinished, target)

    conf = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"}
    spark = session("reading", "local[2]", conf)
    options = {"warehouse": warehouse, "table": table, "read.changelog": "true", "read.stream.maxRowsPerTrigger": "40"}
    frame = spark.readStream.format("fluvial").options(**options).load()
    with checkpoint_settings(spark, checkpoint):
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
