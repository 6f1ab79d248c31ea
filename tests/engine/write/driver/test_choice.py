"""Which way a micro-batch is written, and that every way leaves the same table."""

import logging
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from engine import Catalog, sink
from engine.write.driver.driver_runner import DriverRunner, choose_writer, runner_of_batch
from engine.write.spark_runner import SparkRunner
from lsm.errors import InvalidInputError

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("text", pa.string())])
BATCHES, ROWS, KEYS = 4, 600, 50


@pytest.mark.parametrize(
    ("wanted", "master", "cores", "writer"),
    [
        ("auto", "local[2]", 2, "driver"),
        ("auto", "local[2,4]", 2, "driver"),
        ("auto", "local[*]", 32, "tasks"),
        ("auto", "local-cluster[2,1,1024]", 2, "tasks"),
        ("auto", "spark://host:7077", 2, "tasks"),
        ("tasks", "local[2]", 2, "tasks"),
        ("driver", "local[64]", 64, "driver"),
    ],
)
def test_the_driver_writes_on_small_local_masters(wanted: str, master: str, cores: int, writer: str) -> None:
    assert choose_writer(wanted, master, cores)[0] == writer


@pytest.mark.parametrize("master", ["yarn", "local-cluster[2,1,1024]"])
def test_the_driver_of_a_cluster_writes_nothing(master: str) -> None:
    with pytest.raises(InvalidInputError, match=r"sink.writer=driver master=.* fix='leave sink.writer out"):
        choose_writer("driver", master, 2)


@pytest.mark.spark
def test_the_driver_writes_rows_of_a_statement_that_are_surely_few(spark: SparkSession) -> None:
    for text, runner in {
        "VALUES (1, 'x')": DriverRunner,
        "SELECT id FROM range(10000)": DriverRunner,
        "SELECT id FROM range(10001)": SparkRunner,
        "SELECT explode(sequence(1, 10)) AS id": SparkRunner,  # nothing says that it is not a billion
    }.items():
        assert type(runner_of_batch(spark.sql(text))) is runner


@pytest.mark.sampled(1)
@pytest.mark.spark
@pytest.mark.parametrize(
    ("writer", "options", "said"),
    [
        ("tasks", {}, "written by the tasks"),
        ("auto", {}, "written by the driver"),
        ("driver", {"write-buffer-size": "8 kb"}, "too large for the driver"),
        ("driver", {"bucket": "-1"}, "reason='sink.writer=driver'"),
        ("driver", {"bucket": "1", "local-merge-buffer-size": "1 mb"}, "reason='sink.writer=driver'"),
    ],
)
def test_every_way_leaves_the_same_table_and_says_which_it_is(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    writer: str,
    options: dict[str, str],
    said: str,
) -> None:
    """Rows of one key follow each other within a partition: the last one of the newest batch is what is left."""
    table = Catalog(str(tmp_path / "warehouse")).create_table(
        "db.t", SCHEMA, primary_key=["id"], options={"bucket": "2", **options}
    )
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 1).load()
    changes = source.select(
        (F.col("value") % KEYS).alias("id"), F.col("value").alias("v"), F.repeat(F.lit("x"), 20).alias("text")
    )
    write, done = sink(table, {"sink.writer": writer}), 0

    def counted(frame: DataFrame, batch: int) -> None:
        nonlocal done
        if done < BATCHES:
            write(frame, batch)
            done += 1

    with caplog.at_level(logging.INFO, "fluvial.sink"):
        stream = changes.writeStream.foreachBatch(counted).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = stream.start()
        while done < BATCHES:
            assert query.isActive, query.exception()
            query.awaitTermination(0.1)
        query.stop()
        write.close()
    last = BATCHES * ROWS - KEYS
    rows = table.read().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["v"]) for row in rows] == [(key, last + key) for key in range(KEYS)]
    assert {row["text"] for row in rows} == {"x" * 20}
    assert said in caplog.text
    assert caplog.text.count("micro-batches are written by") == 1
    if "too large" in said:
        assert caplog.text.count(said) == 2  # tasks write the batch after the first one that was too large
