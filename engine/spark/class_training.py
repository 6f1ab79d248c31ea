"""The process that makes the archive of Spark's classes: it runs what jobs run, once, with the lowest priority.

    python -m engine.spark.class_training

It needs about half a minute of one core, and writes nothing but the archive. See ``class_archive``.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyspark

from engine.catalog import Catalog
from engine.spark.class_archive import SUBMIT_OPTIONS, make_archive, options_for, spark_archive
from engine.spark.session import session
from engine.spark_internals.session import end_jvm
from engine.write.sink import sink

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter

_NICE: Final = 19
_SCHEMA: Final = pa.schema([("id", pa.int64()), ("part", pa.int64()), ("name", pa.string())])
_CONF: Final = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"}


def main() -> None:
    """Make the archive if there is none."""
    os.nice(_NICE)
    archive = spark_archive()
    if archive is not None:
        make_archive(archive, train, starts_with)


def train(options: str) -> None:
    """A query, a join, files, tasks in Python, streams into a sink and into a table, in a JVM with these options."""
    os.environ[SUBMIT_OPTIONS] = options
    with tempfile.TemporaryDirectory(prefix="fluvial-classes-") as directory:
        spark = session("fluvial-classes", "local[2]", {**_CONF, "spark.sql.warehouse.dir": f"{directory}/spark"})
        numbers = spark.range(100).selectExpr("id", "id % 7 as part", "cast(id as string) as name")
        numbers.createOrReplaceTempView("numbers")
        spark.sql("select part, count(*), max(name) from numbers group by part order by part").collect()
        spark.sql("select * from numbers a join numbers b using (id) where a.part > 3").toArrow()
        numbers.mapInArrow(lambda batches: batches, numbers.schema).collect()
        numbers.write.parquet(f"{directory}/files")
        catalog = Catalog(f"{directory}/warehouse")
        table = catalog.create_table("db.t", _SCHEMA, primary_key=["id"], options={"bucket": "2"})
        files = spark.readStream.schema(numbers.schema).parquet(f"{directory}/files").filter("part < 6")
        for writer in ("driver", "tasks"):
            write = sink(table, {"sink.writer": writer})
            _run(files.writeStream.foreachBatch(write), f"{directory}/{writer}")
            write.close()
        place = {"warehouse": catalog.warehouse, "table": table.name}
        spark.read.format("fluvial").options(**place).load().groupBy("part").count().collect()
        table.dataframe(spark).count()
        changes = spark.readStream.format("fluvial").options(**place, **{"read.changelog": "true"}).load()
        _run(changes.writeStream.format("fluvial").options(**place), f"{directory}/format")
        spark.stop()
        end_jvm()


def starts_with(archive: Path) -> bool:
    """Whether a JVM of Spark's starts with an archive, all of which it reads."""
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    options = f"{options_for(archive)} -XX:+VerifySharedSpaces"
    done = subprocess.run(
        [submit, "--version"], env={**os.environ, SUBMIT_OPTIONS: options}, capture_output=True, check=False
    )
    return done.returncode == 0


def _run(writer: "DataStreamWriter", checkpoint: str) -> None:
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
