"""A driver to be killed: one streaming query for each lane, in one session, each started again when it fails.

    python -m tests.support.kills.job CONFIG.json

The queries are not deterministic on purpose: every attempt stamps its own ``salt`` on each row, so a replay that wrote
again instead of taking over what the attempt before had left would be seen.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from engine import Catalog, session, sink
from engine.spark.data_source import FluvialDataSource
from engine.spark.write_options import STREAM_WRITE_KEYS, WriteOptions
from engine.spark.writer.staged_writer import StagedStreamWriter
from engine.write import sink as sinks
from tests.support.kills.points import Point, Strike, Trap

TAKEN_OVER = "another run of this query has taken over"
SCHEMA = "id long, v long, batch long, _row_kind string"


def struck_format(short_name: str, trap: Trap) -> type[FluvialDataSource]:
    """``format("fluvial")`` under another name, with an observer."""

    class Struck(FluvialDataSource):
        @classmethod
        def name(cls) -> str:
            return short_name

        def streamWriter(self, schema: StructType, overwrite: bool) -> StagedStreamWriter:
            options = WriteOptions.parse(self.options, STREAM_WRITE_KEYS)
            return StagedStreamWriter(options, schema, overwrite, observe=trap)

    return Struck


def forget_unplanned(checkpoint: Path) -> None:
    """Take files that no batch was planned with out of the log of Spark's file source.

    A driver that is killed between the two writes leaves them there, and the next batch then reads them beside a new
    file, as two partitions without an order; with a file a batch, the source says what each batch holds.
    """
    planned = batches_of(checkpoint / "offsets")
    for batch, file in batches_of(checkpoint / "sources" / "0").items():
        if batch > max(planned, default=-1):
            file.unlink()
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def batches_of(directory: Path) -> dict[int, Path]:
    """The files of a checkpoint's log by their batch, also those of compacted batches."""
    numbered = {file.name.partition(".")[0]: file for file in directory.glob("[0-9]*")}
    return {int(batch): file for batch, file in numbered.items()}


class Lane:
    """One query of the job, from its first start to its last."""

    def __init__(self, spark: SparkSession, config: dict[str, Any], lane: dict[str, Any], trap: Trap) -> None:
        self.name = lane["name"]
        self.restarts = config["restarts"]
        self._start = self._of_format if lane["writer"] == "format" else self._of_sink
        self._spark, self._config, self._lane, self._trap = spark, config, lane, trap
        self._sink: Any = None
        if lane["writer"] == "format":
            spark.dataSource.register(struck_format(self.name, trap))
        self.query: StreamingQuery | None = None

    def start(self) -> None:
        lane = self._lane
        forget_unplanned(Path(lane["checkpoint"]))
        changes = (
            self._spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .parquet(lane["input"])
            .withColumn("salt", F.expr("uuid()"))
        )
        writer = self._start(changes).option("checkpointLocation", lane["checkpoint"])
        self.query = writer.trigger(availableNow=True).start()

    def failure(self) -> str | None:
        """Why the query ended; None when it has all its input."""
        assert self.query is not None
        error = self.query.exception()
        return None if error is None else str(error)

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()

    def _of_sink(self, changes: Any) -> Any:
        options = {"sink.writer": "driver" if self._lane["writer"] == "driver" else "tasks"}
        sinks._hold = lambda _: None  # a second start is as on another machine, which has no lock of this one's
        self._sink = sink(Catalog(self._config["warehouse"]).table(self._lane["table"]), options, observe=self._trap)
        return changes.writeStream.foreachBatch(self._sink)

    def _of_format(self, changes: Any) -> Any:
        writer = changes.repartition(3, "id").writeStream.format(self.name)
        writer = writer.option("write.files-by", self._lane["files_by"])
        return writer.option("warehouse", self._config["warehouse"]).option("table", self._lane["table"])


def run_lanes(lanes: list[Lane], report: Callable[[str, str], None]) -> bool:
    """Until every lane has all its input, or has failed for good; whether none failed for good."""
    running, whole = list(lanes), True
    for lane in running:
        lane.start()
    while running:
        for lane in list(running):
            assert lane.query is not None
            if lane.query.isActive:
                time.sleep(0.02)
                continue
            failure = lane.failure()
            if failure is not None:
                report(lane.name, failure)
                lane.restarts -= 1
                if TAKEN_OVER not in failure and lane.restarts >= 0:
                    lane.start()
                    continue
                whole = False
            running.remove(lane)
    return whole


def main() -> None:
    config = json.loads(Path(sys.argv[1]).read_text())
    spark = session("killed-job", master=config["master"], conf={"spark.ui.enabled": "false", **config["conf"]})
    spark.sparkContext.setLogLevel("OFF")
    jvm_pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    points = [Point(lane, step, batch, Strike(strike)) for lane, step, batch, strike in config["points"]]
    lanes = [
        Lane(
            spark,
            config,
            lane,
            Trap(tuple(each for each in points if each.lane == lane["name"]), config["marks"], os.getpid(), jvm_pid),
        )
        for lane in config["lanes"]
    ]
    with Path(config["report"]).open("a") as file:

        def report(lane: str, error: str) -> None:
            file.write(json.dumps({"lane": lane, "error": error}) + "\n")
            file.flush()

        whole = run_lanes(lanes, report)
    for lane in lanes:
        lane.close()
    spark.stop()
    sys.exit(0 if whole else 3)


if __name__ == "__main__":
    main()
