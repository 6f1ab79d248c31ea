"""Machines that share nothing: a task that does not see the table's directory refuses before anything is written."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog, Table, sink
from engine.compaction.spark_units import SparkUnits
from engine.procedures import create_branch, create_tag, delete_branch, replace_main_branch
from engine.runtime import task_host
from engine.runtime.task_host import TaskHost
from engine.spark.data_source import FluvialDataSource
from filestore.compact.compactor import pick_tasks
from filestore.scan.live_files import LiveFiles
from lsm.errors import InvalidInputError

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
# Spark's planner of a data source is a process of its own, which does not see the directory of this test either
PLANNER = r"no such database: database=d warehouse=/proc/self/cwd/w"
REFUSAL = r"directory is not shared with this host: table=d\.t directory=/proc/self/cwd/w\S* host=\S+ driver=\S+ fix="


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """In a directory that has this name here only: that of the workers is another one."""
    monkeypatch.chdir(tmp_path)
    made = Catalog("/proc/self/cwd/w").create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "2"})
    for value in ("a", "b"):  # in two runs, which are merged in Python
        made.write(pa.table({"id": [1, 2], "v": [value] * 2}))
    return made


def streamed(spark: SparkSession, table: Table, rows: Any, tmp_path: Path) -> None:
    rows.write.parquet(str(tmp_path / "in"))
    source = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "in"))
    query = source.writeStream.foreachBatch(sink(table, {"sink.writer": "tasks"})).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "cp")).start().awaitTermination(120)


def formatted(spark: SparkSession, table: Table, rows: Any, tmp_path: Path) -> None:
    rows.write.format("fluvial").option("warehouse", "/proc/self/cwd/w").option("table", table.name).mode(
        "append"
    ).save()


def compacted(spark: SparkSession, table: Table, rows: Any, tmp_path: Path) -> None:
    tasks = pick_tasks(table.store, LiveFiles.latest(table.store), full=True)
    assert tasks
    SparkUnits(spark, table.store)(tasks)


def followed(spark: SparkSession, table: Table, rows: Any, tmp_path: Path) -> None:
    source = spark.readStream.format("fluvial").option("warehouse", "/proc/self/cwd/w").option("table", table.name)
    query = source.load().writeStream.format("noop").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "cp")).start().awaitTermination(120)


WAYS: dict[str, Callable[[SparkSession, Table, Any, Path], object]] = {
    "append": lambda spark, table, rows, tmp_path: table.append(rows),
    "overwrite": lambda spark, table, rows, tmp_path: table.overwrite(rows),
    "sink": streamed,
    "format": formatted,
    "compaction": compacted,
    "stream": followed,
    "read": lambda spark, table, rows, tmp_path: table.dataframe(spark).collect(),
}


@pytest.mark.spark
@pytest.mark.parametrize("way", WAYS)
def test_tasks_elsewhere_refuse(way: str, table: Table, spark: SparkSession, tmp_path: Path) -> None:
    before = table.latest_snapshot()
    rows = spark.createDataFrame([(3, "c"), (4, "d")], "id long, v string")
    with pytest.raises(Exception, match=PLANNER if way in ("format", "stream") else REFUSAL):
        WAYS[way](spark, table, rows, tmp_path)
    assert table.latest_snapshot() == before
    assert table.read().to_arrow().num_rows == 2
    assert not (Path(os.environ["PWD"]) / "w").exists()


def written_by_a_task(writer: Any) -> Callable[[Any], object]:
    return lambda there: there.write(iter(pa.table({"id": [3], "v": ["c"]}).to_batches()))


def read_by_a_task(reader: Any) -> Callable[[Any], object]:
    part = reader.partitions()[0]
    return lambda there: list(there.read(part))


def followed_by_a_task(reader: Any) -> Callable[[Any], object]:
    first = reader.initialOffset()
    part = reader.partitions(first, reader.latestOffset(first, reader.getDefaultReadLimit()))[0]
    return lambda there: list(there.read(part))


TASKS: dict[str, tuple[Callable[[FluvialDataSource, Any], Any], Callable[[Any], Callable[[Any], object]]]] = {
    "batch write": (lambda source, schema: source.writer(schema, False), written_by_a_task),
    "stream write": (lambda source, schema: source.streamWriter(schema, False), written_by_a_task),
    "batch read": (lambda source, schema: source.reader(schema), read_by_a_task),
    "stream read": (lambda source, schema: source.streamReader(schema), followed_by_a_task),
}


@pytest.mark.parametrize("way", TASKS)
def test_a_task_of_the_format_refuses_where_only_its_planner_saw_the_table(
    way: str, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark sends to an executor, run in a directory that shares nothing with the planner's."""
    options = {"warehouse": "/proc/self/cwd/w", "table": table.name}
    options |= {"stream write": {"checkpointLocation": "/checkpoint"}, "stream read": {"read.changelog": "true"}}.get(
        way, {}
    )
    source = FluvialDataSource(options)
    make, prepare = TASKS[way]
    columns = FluvialDataSource({key: text for key, text in options.items() if key != "checkpointLocation"}).schema()
    planned = make(source, columns)
    task = prepare(planned)
    sent = pickle.dumps(planned)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(task_host, "_seen", set())
    there = pickle.loads(sent)
    with pytest.raises(InvalidInputError, match=REFUSAL):
        task(there)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "deed", "says"),
    [
        ("d.t", "replace", "main is gone, another branch replaced it since it was opened: table=d.t "),
        ("d.t$branch_dev", "delete", r"branch is gone, .* table=d\.t\$branch_dev .* fix='open it again"),
        ("d.t", "drop", REFUSAL.replace("/proc/self/cwd", ".*").replace("fix=", ".*or the table was dropped")),
    ],
)
def test_a_table_that_became_another_one_is_not_called_unshared(
    name: str, deed: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames from before: their tasks have found no directory of the branch, and have blamed the host."""
    monkeypatch.setattr(task_host, "_seen", set())
    catalog = Catalog(str(tmp_path / "w"))
    table = catalog.create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [1], "v": ["a"]}))
    create_tag(table, "first")
    create_branch(table, "dev", tag="first")
    before = catalog.table(name).store
    {
        "replace": lambda: replace_main_branch(table, "dev"),
        "delete": lambda: delete_branch(table, "dev"),
        "drop": lambda: catalog.drop_table("d.t"),
    }[deed]()
    with pytest.raises(InvalidInputError, match=says):
        TaskHost.here().check(before)


def test_a_host_with_the_table_passes_and_looks_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_host, "_seen", set())
    made = Catalog(str(tmp_path)).create_table("d.t", SCHEMA)
    TaskHost.here().check(made.store)
    (tmp_path / "d.db" / "t" / "schema" / "schema-0").unlink()
    TaskHost.here().check(made.store)
    monkeypatch.setattr(task_host, "_seen", set())
    with pytest.raises(InvalidInputError, match=f"directory={tmp_path}.* fix='put the warehouse where"):
        TaskHost.here().check(made.store)
    assert [path.name for path in (tmp_path / "d.db" / "t" / "schema").iterdir()] == []


@pytest.mark.parametrize("library", ["python", "pyarrow"])
def test_another_release_is_refused(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_host, "_seen", set())
    made = Catalog(str(tmp_path)).create_table("d.t", SCHEMA)
    elsewhere = TaskHost(versions={**TaskHost.here().versions, library: "1.2"})
    with pytest.raises(InvalidInputError, match=rf"library={library} version=\S+ driver_version=1.2 host=\S+ .* fix="):
        elsewhere.check(made.store)


def test_a_library_in_an_archive_is_not_compared(tmp_path: Path) -> None:
    made = Catalog(str(tmp_path)).create_table("d.t", SCHEMA)
    TaskHost(versions={**TaskHost.here().versions, "no-such-library": "1.2"}).check(made.store)
