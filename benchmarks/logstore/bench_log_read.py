"""Reading a table's log: Fluvial's rows beside a bare ``consume()`` loop and beside Spark's own Kafka source.

    python -m benchmarks log_read [--quick | --tiny]

Three lines. In one process: a range of one bucket fetched and decoded into the table's columns, against a loop that
only consumes the same records; and the decoding alone, budget: at least 60 % of that loop's rate. In Spark:
``readStream.format("fluvial")`` from offset 0 with ``availableNow``, against Spark's Kafka connector with ``from_json``
over the same topic, both into ``foreachBatch`` with a count; budget: half of the bare loop's rate. Beside them a source
of plain PySpark that reads nothing: it yields one Arrow batch again and again, so what it takes is Spark's. The
connector's jars are fetched for this benchmark alone.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.harness import REPOSITORY, measure, sized
from engine import Catalog, Table, session
from engine.broker.broker import Broker
from engine.broker.jars import fetch_jars
from engine.log.log_rows import log_rows
from logstore.kafka.clients import ErrorNotes
from logstore.log.log_reader import read_range
from logstore.offsets import LogRange

BUDGET = 0.6
SPARK_BUDGET = 0.5
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0@jar",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0@jar",
    "org.apache.kafka:kafka-clients:3.9.1@jar",
    "org.apache.commons:commons-pool2:2.12.1@jar",
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("city", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("note", pa.string()),
        ("changed", pa.timestamp("us")),
    ]
)
ENVELOPE = (
    "after STRUCT<id: BIGINT, name: STRING, city: STRING, amount: DECIMAL(10,2), note: STRING, changed: TIMESTAMP>"
)
WRITE_ROWS = 100_000
BARE_ROWS = 10_000  # of the batch that a source of plain PySpark repeats


def filled(root: str, broker: Broker, rows: int) -> Table:
    """A table of one bucket, with this number of records in its log."""
    options = {"bucket": "1", "log.kafka.bootstrap.servers": broker.bootstrap_servers, "write-only": "true"}
    table = Catalog(root).create_table("bench.log", SCHEMA, primary_key=["id"], options=options)
    chance = np.random.default_rng(7)
    for start in range(0, rows, WRITE_ROWS):
        table.write(changed_rows(start, min(WRITE_ROWS, rows - start), chance))
    return table


def changed_rows(start: int, count: int, chance: np.random.Generator) -> pa.Table:
    """Rows of ``SCHEMA`` with so many ids from ``start``."""
    ids = np.arange(start, start + count)
    return pa.table(
        {
            "id": ids,
            "name": [f"customer {number:08d}" for number in ids],
            "city": ["Springfield"] * count,
            "amount": pa.array(chance.integers(0, 10**6, count) / 100).cast(pa.decimal128(10, 2)),
            "note": [f"{number * 2_654_435_761:064x}" for number in ids.tolist()],
            "changed": pa.array(1_767_225_600_000_000 + ids, pa.timestamp("us")),
        },
        schema=SCHEMA,
    )


def consumed(table: Table, end: int) -> None:
    """What a loop without any work gets: the floor."""
    log = table.log
    assert log is not None
    consumer = log.properties.consumer(ErrorNotes())
    consumer.assign([TopicPartition(log.topic, 0, 0)])
    reached = 0
    while reached < end - 1:
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                reached = message.offset() + 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                reached = message.offset()
    consumer.close()


def decoded(table: Table, end: int, rows: int) -> None:
    assert table.log is not None
    whole = LogRange(bucket=0, start_offset=0, end_offset=end)
    found = log_rows(table.files, table.log, whole, columns=SCHEMA.names)
    assert sum(len(each.rows) for each in found) == rows


def decode_line(table: Table, end: int, rows: int, repeats: int) -> str:
    """Records in memory to columns, against the rate at which a bare loop gets them."""
    log = table.log
    assert log is not None
    whole = LogRange(bucket=0, start_offset=0, end_offset=end)
    batches = list(read_range(log.properties, topic=log.topic, log_range=whole, columns=["value"]))

    def decode() -> None:
        for records in batches:
            log.codec.decode(None, records["value"], SCHEMA)

    variants = {"fluvial": decode, "consume()": lambda: consumed(table, end)}
    found = measure("log_decode", variants, rows=rows, repeats=repeats)
    share = round(found.ratio("fluvial", "consume()"), 2)
    return found.line(peer="consume()", share_of_consume=share, budget=BUDGET, met=share >= BUDGET)


class RepeatedReader(DataSourceStreamReader):
    """One batch, as often as there are batches in so many rows, in one task."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"rows": self._rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(end["rows"] - start["rows"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        [batch] = changed_rows(0, min(BARE_ROWS, partition.value), np.random.default_rng(7)).to_batches()
        for _ in range(partition.value // batch.num_rows):
            yield batch


class RepeatedSource(DataSource):
    """``format("repeated")``, with the option ``rows``."""

    @classmethod
    def name(cls) -> str:
        return "repeated"

    def schema(self) -> str:
        return "id BIGINT, name STRING, city STRING, amount DECIMAL(10,2), note STRING, changed TIMESTAMP_NTZ"

    def streamReader(self, schema: StructType) -> RepeatedReader:
        return RepeatedReader(int(self.options["rows"]))


class Counting:
    """A ``foreachBatch`` function that looks at every column."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, frame: DataFrame, _batch: int) -> None:
        shown = frame.agg(F.count("*"), F.max("id"), F.max("name"), F.max("amount"), F.max("changed"), F.max("note"))
        self.rows += shown.collect()[0][0]


def run(frame: DataFrame, checkpoint: Path, rows: int) -> None:
    counting = Counting()
    query = (
        frame.writeStream.foreachBatch(counting)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert counting.rows == rows, counting.rows


def spark_line(table: Table, root: str, broker: Broker, rows: int, end: int, repeats: int) -> str:
    jars = fetch_jars(CONNECTOR, REPOSITORY / "conf" / "bench-kafka-jars.lock")
    conf = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.memory": "3g",
    }
    spark = session("bench", "local[2]", conf)
    names = iter(range(10**6))

    def fluvial() -> None:
        options: dict[str, Any] = {"warehouse": root, "table": table.name, "read.changelog": "true"}
        options |= {"log.scan": "from-timestamp", "log.scan.timestamp-mills": "0"}
        run(spark.readStream.format("fluvial").options(**options).load(), Path(root) / f"c{next(names)}", rows)

    def peer() -> None:
        assert table.log is not None
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": table.log.topic,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
        }
        raw = spark.readStream.format("kafka").options(**options).load()
        parsed = raw.select(F.from_json(F.col("value").cast("string"), ENVELOPE).alias("r"))
        run(parsed.select("r.after.*"), Path(root) / f"c{next(names)}", rows)

    def bare() -> None:
        source = spark.readStream.format("repeated").option("rows", rows).load()
        run(source, Path(root) / f"c{next(names)}", rows)

    spark.dataSource.register(RepeatedSource)
    floor = {"bare PySpark": bare, "consume()": lambda: consumed(table, end)}
    variants = {"fluvial": fluvial, "spark-sql-kafka": peer, **floor}
    found = measure("log_read_spark", variants, rows=rows, repeats=repeats)
    share = round(found.ratio("fluvial", "consume()"), 2)
    line = found.line(
        peer="spark-sql-kafka",
        share_of_consume=share,
        share_of_consume_by_bare=round(found.ratio("bare PySpark", "consume()"), 2),
        budget=SPARK_BUDGET,
        met=share >= SPARK_BUDGET,
    )
    spark.stop()
    return line


def main() -> None:
    rows, repeats = sized((1_000_000, 5), quick=(200_000, 3), tiny=(2_000, 1))
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root, Broker(Path(root) / "broker") as broker:
        table = filled(root, broker, rows)
        snapshot = table.latest_snapshot()
        assert snapshot is not None
        end = snapshot.log_offsets[0]
        found = measure(
            "log_read",
            {"fluvial": lambda: decoded(table, end, rows), "consume()": lambda: consumed(table, end)},
            rows=rows,
            repeats=repeats,
        )
        share = round(found.ratio("fluvial", "consume()"), 2)
        print(found.line(peer="consume()", share_of_consume=share), flush=True)
        print(decode_line(table, end, rows, repeats), flush=True)
        if sized(True, quick=True, tiny=False):  # else the connector's jars would be fetched for nothing
            print(spark_line(table, root, broker, rows, end, repeats), flush=True)


if __name__ == "__main__":
    main()
