"""The classes that Spark loads, kept as the JVM maps them (class data sharing): a session starts in half the time.

    python -m tests.support.class_archive

Tests start Spark over a hundred times, in processes that they kill. `make test` makes the archive once for each
environment; Spark starts without it where it is missing or does not fit, only slower.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from engine import Catalog

# An archive fits one set of jars at one place: that of the environment, so it lies there.
ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"
# Spark runs for seconds here, over and over: the best compiler and a parallel collector of garbage cost more than they
# give (a fifth of the time of a job that is killed and started again).
_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")  # an archive that does not fit would be told on stdout
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_SCHEMA: Final = pa.schema([("id", pa.int64()), ("part", pa.int64()), ("name", pa.string())])


def use() -> None:
    """Let the sessions of this process, and of those that it starts, use the archive. A value from outside stays."""
    shared = (f"-XX:SharedArchiveFile={ARCHIVE}", "-Xshare:auto", *_QUIET) if ARCHIVE.exists() else ()
    os.environ.setdefault(_OPTIONS, " ".join((*_QUICK, *shared)))


def make() -> None:
    """Run what tests run, once, and have the JVM keep the classes that it loaded."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    partial = ARCHIVE.with_suffix(".part")
    os.environ[_OPTIONS] = " ".join((*_QUICK, *_QUIET, f"-XX:ArchiveClassesAtExit={partial}"))
    session = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    _train(session)
    process = session.sparkContext._gateway.proc
    session.stop()
    process.stdin.close()  # which ends the JVM; it writes the archive on its way out
    process.wait()
    if partial.exists():
        partial.replace(ARCHIVE)
    else:
        print("this JVM keeps no archive of classes: tests run without, only slower", file=sys.stderr)


def _train(session: SparkSession) -> None:
    """A query, a join, files, Python tasks, a stream into foreachBatch."""
    numbers = session.range(100).selectExpr("id", "id % 7 as part", "cast(id as string) as name")
    numbers.createOrReplaceTempView("numbers")
    session.sql("select part, count(*), max(name) from numbers group by part order by part").collect()
    session.sql("select * from numbers a join numbers b using (id) where a.part > 3").toArrow()
    numbers.mapInArrow(lambda batches: batches, numbers.schema).collect()
    with tempfile.TemporaryDirectory(prefix="fluvial-classes-") as directory:
        numbers.write.parquet(f"{directory}/files")
        stream = session.readStream.schema(numbers.schema).parquet(f"{directory}/files").filter("part < 6")
        _run(stream.writeStream.foreachBatch(_rows), f"{directory}/one")
        table = Catalog(f"{directory}/warehouse").create_table("db.t", _SCHEMA, primary_key=["id"])
        place = {"warehouse": f"{directory}/warehouse", "table": table.name}
        numbers.write.format("fluvial").options(**place).mode("append").save()
        session.read.format("fluvial").options(**place).load().groupBy("part").count().collect()
        changes = session.readStream.format("fluvial").options(**place, **{"read.changelog": "true"}).load()
        _run(changes.writeStream.format("fluvial").options(**place), f"{directory}/two")


def _rows(frame: DataFrame, batch_id: int) -> None:
    frame.mapInArrow(lambda batches: batches, frame.schema).collect()


def _run(writer: DataStreamWriter, checkpoint: str) -> None:
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    make()
