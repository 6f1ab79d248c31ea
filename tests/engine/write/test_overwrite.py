"""INSERT OVERWRITE beside a log and its streams."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Table
from engine.broker.broker import Broker
from engine.request.writer_options import NO_OPTIONS
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from engine.write.batch_writer import BatchWriter
from engine.write.session import LocalRunner, Upkeep, WriteSession
from filestore.compact.compactor import pick_tasks, run_task
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.change_tracking import UNLOGGED_KEY
from filestore.snapshot.snapshot import CHANGES_KEY
from lsm.errors import ConflictError, InvalidInputError
from tests.support.changelogs import newest_changes
from tests.support.logs import ends_with_markers
from tests.support.rows import arrow_rows, row_set
from tests.support.tables import referenced_files
from tests.support.warehouses import new_table

SCHEMA = pa.schema([("day", pa.string()), ("id", pa.int64()), ("v", pa.string())])
Row = tuple[str, int, str]


def partitioned_table(tmp_path: Path, broker: Broker | None = None) -> Table:
    key, by = ["day", "id"], ["day"]
    return new_table(tmp_path, SCHEMA, key=key, partition_by=by, broker=broker, options={"bucket": "2"})


@pytest.fixture
def table(tmp_path: Path, broker: Broker) -> Table:
    """A table with a log."""
    return partitioned_table(tmp_path, broker)


def said(table: Table) -> tuple[str, str | None]:
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    return snapshot.properties[CHANGES_KEY], snapshot.properties.get(UNLOGGED_KEY)


@pytest.mark.broker
def test_the_log_does_not_get_an_overwrite_and_streams_get_its_difference(table: Table) -> None:
    """FL-29, FL-33."""
    table.write(arrow_rows(SCHEMA, ("a", 1, "x"), ("a", 2, "x"), ("b", 1, "x")))
    before, ends = table.latest_snapshot(), ends_with_markers(table)
    assert said(table) == ("log", "0")
    table.overwrite(arrow_rows(SCHEMA, ("a", 2, "x"), ("a", 3, "y")))
    assert row_set(table) == {("a", 2, "x"), ("a", 3, "y"), ("b", 1, "x")}
    assert said(table) == ("files", "2")
    after = table.latest_snapshot()
    assert before is not None
    assert after is not None
    assert (after.log_offsets, table.log_end_offsets()) == (before.log_offsets, ends)
    assert sorted(newest_changes(table.files)) == [("+I", "a", 3, "y"), ("-D", "a", 1, "x")]
    table.write(arrow_rows(SCHEMA, ("a", 3, "z")))
    assert said(table) == ("log", "2")
    assert row_set(table) == {("a", 2, "x"), ("a", 3, "z"), ("b", 1, "x")}


@pytest.mark.broker
def test_an_untracked_overwrite_is_for_nobody(table: Table) -> None:
    """FL-34."""
    table.write(arrow_rows(SCHEMA, ("a", 1, "x")))
    table.overwrite(arrow_rows(SCHEMA, ("a", 2, "x")), options={"change-tracking": "false"})
    assert said(table) == ("none", "0")
    assert row_set(table) == {("a", 2, "x")}


@pytest.mark.broker
def test_a_running_stream_goes_on_and_loses_nothing(table: Table) -> None:
    """FL-88, FL-89: the overwrite comes after the stream's rows are in the log, and before they are committed."""
    stream = BatchWriter(table.files, table.log, commit_user="stream")
    many = [("a", key, f"overwritten {key}") for key in range(200)]

    def interrupted(spec: BatchSpec) -> list[BucketResult]:
        results = write_part(spec, arrow_rows(SCHEMA, ("a", 1, "streamed"), ("b", 1, "streamed")).to_batches())
        table.overwrite(arrow_rows(SCHEMA, *many))
        return results

    table.write(arrow_rows(SCHEMA, ("a", 7, "old"), ("b", 7, "old")))
    stream.write(0, interrupted)
    streamed = {("a", 1, "streamed"), ("b", 1, "streamed"), ("b", 7, "old")}
    assert row_set(table) == streamed | {row for row in many if row[1] != 1}
    assert stream.write(0, interrupted).already_committed
    stream.write(1, lambda spec: write_part(spec, arrow_rows(SCHEMA, ("a", 2, "next")).to_batches()))
    assert row_set(table) == streamed | {("a", 2, "next")} | {row for row in many if row[1] not in (1, 2)}
    assert said(table) == ("log", "2")
    newest = table.latest_snapshot()
    assert newest is not None
    assert newest.log_offsets == {bucket: end - 1 for bucket, end in ends_with_markers(table).items()}


@pytest.mark.broker
def test_an_overwrite_takes_what_the_stream_committed_meanwhile(table: Table) -> None:
    """FL-89, FL-90: optimistic; it replaces the partition as it is when it is published."""
    stream = BatchWriter(table.files, table.log, commit_user="stream")
    table.write(arrow_rows(SCHEMA, ("a", 7, "old"), ("b", 7, "old")))

    class Slow(LocalRunner):
        def write(self, spec: BatchSpec, rows: Iterable[pa.RecordBatch]) -> list[BucketResult]:
            stream.write(0, lambda spec: write_part(spec, streamed.to_batches()))
            return super().write(spec, rows)

    streamed = arrow_rows(SCHEMA, ("a", 1, "s"), ("b", 1, "s"))
    session = WriteSession(
        table.files,
        Slow(),
        commit_user="job",
        options=NO_OPTIONS,
        upkeep=Upkeep.REPLACE,
        origin=lambda batch_id, rows: None,
    )
    session.overwrite(arrow_rows(SCHEMA, ("a", 9, "new")).to_batches(), None)
    assert row_set(table) == {("a", 9, "new"), ("b", 7, "old"), ("b", 1, "s")}
    assert ("-D", "a", 1, "s") in sorted(newest_changes(table.files))


def test_a_compaction_whose_files_were_overwritten_is_refused(tmp_path: Path) -> None:
    """FL-90, FL-91: a file to be deleted is missing at commit."""
    table = partitioned_table(tmp_path)
    table.write(arrow_rows(SCHEMA, ("a", 1, "x")))
    table.write(arrow_rows(SCHEMA, ("a", 1, "y")))
    live = LiveFiles.latest(table.store)
    messages = [run_task(table.store, task) for task in pick_tasks(table.store, live, full=True)]
    table.overwrite(arrow_rows(SCHEMA, ("a", 1, "z")))
    with pytest.raises(ConflictError, match="not live any more"):
        table.files.new_commit("compactor").commit_compaction(messages, base=live.ref)
    assert row_set(table) == {("a", 1, "z")}
    assert said(table) == ("files", None)


def test_rows_outside_the_partition_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    """FL-30."""
    table = partitioned_table(tmp_path)
    table.write(arrow_rows(SCHEMA, ("a", 1, "x")))
    with pytest.raises(InvalidInputError, match="outside the partition"):
        table.overwrite(arrow_rows(SCHEMA, ("a", 2, "x"), ("b", 2, "x")), partition={"day": "a"})
    with pytest.raises(InvalidInputError, match="not a partition column: column=id"):
        table.overwrite(arrow_rows(SCHEMA, ("a", 2, "x")), partition={"id": 2})
    with pytest.raises(InvalidInputError, match="option=change-tracking value='no'"):
        table.overwrite(arrow_rows(SCHEMA, ("a", 2, "x")), options={"change-tracking": "no"})
    assert row_set(table) == {("a", 1, "x")}
    files = {str(path) for path in Path(table.store.paths.root).rglob("bucket-*/*")}
    assert files == referenced_files(table.files)


@pytest.mark.spark
@pytest.mark.broker
def test_frames_overwrite_partitions_statically_and_dynamically(spark: SparkSession, table: Table) -> None:
    """FL-29, FL-30: from Spark tasks, each bucket in one of them."""
    table.write(arrow_rows(SCHEMA, ("a", 1, "x"), ("b", 1, "x"), ("c", 1, "x")))
    numbers = spark.range(0, 1000, 1, 4).selectExpr("'a' AS day", "id", "concat('v', id) AS v")
    table.overwrite(numbers)
    wanted = {("a", key, f"v{key}") for key in range(1000)}
    assert row_set(table) == wanted | {("b", 1, "x"), ("c", 1, "x")}
    assert said(table) == ("files", "2")
    table.overwrite(numbers.limit(0), {"day": "b"})
    assert row_set(table) == wanted | {("c", 1, "x")}
    assert sorted(newest_changes(table.files)) == [("-D", "b", 1, "x")]
    table.overwrite(numbers.limit(0), {})
    assert row_set(table) == set()
    assert len(sorted(newest_changes(table.files))) == 1001
