"""A streaming job that kills itself, or its workers, at chosen steps. Run as a script by test_exactly_once.py.

usage: python crashing_job.py CONFIG.json

The query is made non-deterministic on purpose: every attempt stamps its own ``salt`` on each row, so a replay that
wrote again instead of taking over what the first attempt left would be seen.
"""

import json
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from engine import Catalog, session, sink
from engine.runtime.steps import StepEvent
from engine.spark.data_source import FluvialDataSource
from engine.spark.staged_writer import StagedStreamWriter
from engine.spark.write_options import STREAM_WRITE_KEYS, WriteOptions


@dataclass(frozen=True)
class Crash:
    """Kills the process that reaches a step for the first time. Picklable: tasks get it too."""

    points: tuple[tuple[str, int], ...]  # (step, batch)
    marks: str  # directory in which each crash is noted, so that it happens once
    driver_pid: int
    gateway_pid: int
    kills_jvm: bool = False  # also from other processes than the driver

    def __call__(self, event: StepEvent) -> None:
        if (event.step.value, event.batch_id) not in self.points:
            return
        try:
            fd = os.open(f"{self.marks}/{event.step.value}-{event.batch_id}", os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return
        os.close(fd)
        if self.kills_jvm or os.getpid() == self.driver_pid:
            os.kill(self.gateway_pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def crashing_format(crash: Crash) -> type[DataSource]:
    """``format("fluvial")`` under another name, with an observer."""

    class Crashing(FluvialDataSource):
        @classmethod
        def name(cls) -> str:
            return "crashing"

        def streamWriter(self, schema: StructType, overwrite: bool) -> StagedStreamWriter:
            options = WriteOptions.parse(self.options, STREAM_WRITE_KEYS)
            return StagedStreamWriter(options, schema, overwrite, observe=crash)

    return Crashing


def main() -> None:
    config = json.loads(Path(sys.argv[1]).read_text())
    spark = session("crashing-job", master=config["master"], conf={"spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("OFF")
    table = Catalog(config["warehouse"]).table(config["table"])
    gateway_pid = spark.sparkContext._gateway.proc.pid
    jvm_pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    crash = Crash(
        tuple((step, batch) for step, batch in config["crashes"]), config["marks"], os.getpid(), jvm_pid or gateway_pid
    )
    rows = spark.read.parquet(config["input"])
    changes = (
        spark.readStream.schema(rows.schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(config["input"])
        .withColumn("salt", F.expr("uuid()"))
    )
    spark.dataSource.register(crashing_format(replace(crash, kills_jvm=config["kills_jvm"])))

    def run() -> None:
        if config["writer"] == "sink":
            stream = changes.writeStream.foreachBatch(sink(table, observe=crash))
        else:
            stream = changes.repartition(3, "salt").writeStream.format("crashing")
            stream = stream.option("warehouse", config["warehouse"]).option("table", config["table"])
        stream = stream.option("checkpointLocation", config["checkpoint"]).trigger(availableNow=True)
        stream.start().awaitTermination()

    for _ in range(config["restarts"]):  # of the query, in the same session
        try:
            run()
        except StreamingQueryException:
            continue
        break
    else:
        run()
    spark.stop()


if __name__ == "__main__":
    main()
