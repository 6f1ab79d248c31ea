"""A query that goes on from a savepoint: the wrong part is as if it had never been."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from engine import Catalog, Table, procedures, sink
from engine.broker.broker import Broker
from engine.runtime.spark_settings import spark_setting
from filestore.refs.savepoint_files import read_savepoint
from lsm.errors import InvalidInputError
from tests.support.streams import Query, content, fold

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


class Source:
    """A directory of files, one for each micro-batch."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self._root = root
        root.mkdir()

    def put(self, number: int, rows: Mapping[int, int]) -> None:
        path = self._root / f"{number}.json"
        path.write_text("".join(json.dumps({"id": key, "v": value}) + "\n" for key, value in rows.items()))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # read in this order

    def take_back(self, number: int) -> None:
        (self._root / f"{number}.json").unlink()

    def run(
        self,
        checkpoint: Path,
        write: Callable[[DataFrame, int], None],
        shape: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        mode: str = "append",
    ) -> None:
        frame = self._spark.readStream.schema("id long, v long").option("maxFilesPerTrigger", "1")
        query = shape(frame.json(str(self._root))).writeStream.foreachBatch(write).outputMode(mode)
        query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query.start().awaitTermination()


def listed(table: Table) -> list[tuple[int, int]]:
    return sorted((row["id"], row["v"]) for row in table.files.read().to_arrow().to_pylist())


@pytest.mark.long
def test_wrong_batches_are_undone_and_the_query_goes_on(spark: SparkSession, tmp_path: Path, broker: Broker) -> None:
    """Issue 6 item 4, SP-19, LN-38, LN-41: a table with a log and one without a key, which would show a row twice.

    Savepoint behind batch 1, wrong batches 2 and 3, rollback, restored checkpoint, right batches: the tables, and what
    a stream of the log was given, are those of a run without the wrong batches.
    """
    catalog = Catalog(str(tmp_path / "w"))
    brokers = {"log.kafka.bootstrap.servers": broker.bootstrap_servers}
    keyed = catalog.create_table(f"db.{tmp_path.name}", SCHEMA, primary_key=["id"], options={"bucket": "2", **brokers})
    plain = catalog.create_table("db.plain", SCHEMA, options={"bucket": "1"})
    source = Source(spark, tmp_path / "in")
    reader = Query(tmp_path / "w", keyed.name)
    batches: list[int] = []

    def run(checkpoint: Path) -> None:
        writes = [sink(keyed), sink(plain)]

        def write(frame: DataFrame, batch_id: int) -> None:
            batches.append(batch_id)
            for each in writes:
                each(frame, batch_id)

        source.run(checkpoint, write)
        for each in writes:
            each.close()

    first, second = tmp_path / "first", tmp_path / "second"
    for number in range(2):
        source.put(number, {1: number, 10 + number: number})
    run(first)
    right = reader.available()
    [saved] = procedures.create_savepoint(keyed, checkpoints=str(first)).to_pylist()
    procedures.create_savepoint(plain, checkpoints=f"file:{first}")
    assert (saved["savepoint_id"], saved["sorted_runs"], saved["checkpoints"]) == (1, 1, 1)
    assert reader.available() == []  # of the compaction nothing is seen
    [kept] = read_savepoint(keyed.store, 1).checkpoints
    assert (kept.batch_id, kept.sources) == (1, ({"logOffset": 1},))

    for number in (2, 3):
        source.put(number, {1: -1, 11: -1, 90 + number: -1})
    run(first)
    assert batches == [0, 1, 2, 3]
    assert content(keyed)[(11,)]["v"] == -1
    wrong = reader.available()
    for number in (2, 3):
        source.take_back(number)
    for table in (keyed, plain):
        procedures.rollback_to_savepoint(table, 1)
    undone = reader.available()
    assert fold([*right, *wrong, *undone]) == fold(right) == content(keyed)

    [restored] = procedures.restore_checkpoint(keyed, 1, str(second)).to_pylist()
    assert restored["query_id"] != restored["saved_query_id"] == kept.query_id
    with pytest.raises(InvalidInputError, match="the directory is in use"):
        procedures.restore_checkpoint(keyed, 1, str(second))
    for number in range(2, 4):
        source.put(number, {1: number, 10 + number: number})
    run(second)
    assert batches == [0, 1, 2, 3, 2, 3]
    assert listed(keyed) == [(1, 3), *((10 + number, number) for number in range(4))]
    assert listed(plain) == sorted([*((1, n) for n in range(4)), *((10 + n, n) for n in range(4))])
    resumed = reader.available()
    assert [(row["id"], row["v"]) for row in resumed if row["_row_kind"] in ("+I", "+U") and row["id"] > 10] == [
        (12, 2), (13, 3),
    ]  # fmt: skip
    assert fold([*right, *wrong, *undone, *resumed]) == content(keyed)
    users = [keyed.store.snapshots.read(each).commit_user for each in keyed.store.snapshots.ids()]
    assert users.count(kept.query_id) == 4
    assert users.count(restored["query_id"]) == 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("provider", ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"])
def test_the_state_of_a_query_goes_back_too(spark: SparkSession, tmp_path: Path, provider: str) -> None:
    """Issue 6 item 4: sums go on from those of the savepoint, which the stream made by itself."""
    table = Catalog(str(tmp_path / "w")).create_table(
        "db.sums",
        pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())]),
        primary_key=["id"],
        options={"bucket": "1", "savepoint.create-interval": "1 ms"},
    )
    source = Source(spark, tmp_path / "in")
    key = "spark.sql.streaming.stateStore.providerClass"
    with spark_setting(spark, key, f"org.apache.spark.sql.execution.streaming.state.{provider}"):
        for number in range(3):
            source.put(number, {1: 1, 2: 10})
        sums = lambda frame: frame.groupBy("id").agg(F.sum("v").alias("v"))  # noqa: E731
        writing = sink(table)
        source.run(tmp_path / "first", writing, sums, "update")
        writing.close()
        assert listed(table) == [(1, 3), (2, 30)]
        # a savepoint before each batch but the first; the second one is behind batch 1
        second = read_savepoint(table.store, 2)
        assert [each.batch_id for each in second.checkpoints] == [1]
        procedures.rollback_to_savepoint(table, 2)
        assert listed(table) == [(1, 2), (2, 20)]
        procedures.restore_checkpoint(table, 2, str(tmp_path / "second"))
        source.put(2, {1: 100})
        source.run(tmp_path / "second", sink(table), sums, "update")
        assert listed(table) == [(1, 102), (2, 20)]
