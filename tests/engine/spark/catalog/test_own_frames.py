"""Frames and views of a table that are written back to it: the right rows, or an error and the old ones."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from engine import Catalog
from engine.dialect.query import reads as statement_reads
from engine.spark.catalog import table as tables_by_name
from engine.spark.catalog.planned import operation as planned
from engine.write import batch_target
from lsm.errors import FluvialError

SPACE = "own_frames"
KEY = "id BIGINT PRIMARY KEY NOT ENFORCED, n BIGINT, s STRING"
NO_KEY = "id BIGINT, n BIGINT, s STRING"
KINDS = {
    "key": (KEY, "", "'bucket' = '1'"),
    "vectors": (KEY, "", "'bucket' = '1', 'deletion-vectors.enabled' = 'true', 'write-only' = 'true'"),
    "no key": (NO_KEY, "", "'file.format' = 'parquet'"),
    "partitions": (NO_KEY, "PARTITIONED BY (s)", "'file.format' = 'parquet'"),
}
Rows = list[tuple[object, ...]]


class Own:
    """A table with two rows; of the kind with vectors one of them, and a third, wait for a compaction."""

    def __init__(self, spark: SparkSession, catalog: Catalog, kind: str) -> None:
        self.spark, self.catalog = spark, catalog
        self.short = f"{SPACE}.t_{kind.replace(' ', '_')}"
        self.name = f"fluvial.{self.short}"
        columns, parts, options = KINDS[kind]
        spark.sql(f"CREATE DATABASE IF NOT EXISTS fluvial.{SPACE}")
        spark.sql(f"DROP TABLE IF EXISTS {self.name}")
        spark.sql(f"CREATE TABLE {self.name} ({columns}) {parts} WITH ({options})")
        self.add((1, 0, "a"), (2, 0, "a"))
        if kind == "vectors":
            catalog.table(self.short).compact(full=True)
            self.add((1, 100, "new"), (3, 5, "three"))

    def add(self, *rows: tuple[int, int, str]) -> None:
        """Commit rows as another writer does, who tells Spark nothing."""
        names = ("id", "n", "s")
        types = (pa.int64(), pa.int64(), pa.string())
        columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), types, strict=True)]
        self.catalog.table(self.short).write(pa.table(columns, names=names))

    def rows(self) -> Rows:
        read = self.catalog.table(self.short).read(options={"deletion-vectors.merge-on-read": "true"})
        return sorted(tuple(each[name] for name in ("id", "n", "s")) for each in read.to_arrow().to_pylist())

    def query(self) -> DataFrame:
        return self.spark.sql(f"SELECT * FROM {self.name}")

    def view(self, text: str, name: str = "own_view") -> DataFrame:
        self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {text}")
        return self.spark.table(name)

    def by_name(self) -> DataFrame:
        return self.spark.table(self.name)

    def view_of_a_view(self) -> DataFrame:
        self.view(f"SELECT * FROM {self.name}")
        return self.view("SELECT * FROM own_view", "own_view_of_view")

    def named(self, frame: DataFrame) -> DataFrame:
        frame.createOrReplaceTempView("own_frame")
        return self.spark.table("own_frame")

    def kept(self, frame: DataFrame) -> DataFrame:
        frame.cache().count()
        return frame

    def self_join(self) -> DataFrame:
        other = self.by_name().selectExpr("id", "n AS m")
        return self.by_name().join(other, "id").select("id", "n", "s")

    def source(self) -> DataFrame:
        reader = self.spark.read.format("fluvial").option("warehouse", self.catalog.warehouse)
        return reader.option("table", self.short).load()

    def merge(self, frame: DataFrame) -> None:
        merge = frame.alias("news").mergeInto(self.name, F.expr(f"news.id = {self.name}.id"))
        merge.whenMatched().updateAll().whenNotMatched().insertAll().merge()

    def statement(self, text: str, frame: DataFrame) -> None:
        self.named(frame)
        self.spark.sql(text.format(self.name))


SOURCES: dict[str, Callable[[Own], DataFrame]] = {
    "by name": Own.by_name,
    "query": Own.query,
    "view": lambda own: own.view(f"SELECT * FROM {own.name}"),
    "view of a view": Own.view_of_a_view,
    "view of a frame": lambda own: own.named(own.by_name()),
    "view of a query": lambda own: own.named(own.query()),
    "kept by name": lambda own: own.kept(own.by_name()),
    "kept query": lambda own: own.kept(own.query()),
    "self-join": Own.self_join,
    "format": Own.source,
    "dataframe": lambda own: own.catalog.table(own.short).dataframe(own.spark),
}
DOORS: dict[str, Callable[[Own, DataFrame], Any]] = {
    "saveAsTable": lambda own, rows: rows.write.mode("overwrite").saveAsTable(own.name),
    "createOrReplace": lambda own, rows: rows.writeTo(own.name).createOrReplace(),
    "replace": lambda own, rows: rows.writeTo(own.name).replace(),
    "insertInto": lambda own, rows: rows.write.insertInto(own.name, overwrite=True),
    "overwritePartitions": lambda own, rows: rows.writeTo(own.name).overwritePartitions(),
    "overwrite": lambda own, rows: rows.writeTo(own.name).overwrite(F.lit(True)),
    "Table.overwrite": lambda own, rows: own.catalog.table(own.short).overwrite(rows, {}),
    "INSERT OVERWRITE": lambda own, rows: own.statement("INSERT OVERWRITE {} SELECT * FROM own_frame", rows),
    "CREATE OR REPLACE": lambda own, rows: own.statement("CREATE OR REPLACE TABLE {} AS SELECT * FROM own_frame", rows),
}
KEYED_DOORS: dict[str, Callable[[Own, DataFrame], Any]] = {
    "append": lambda own, rows: rows.writeTo(own.name).append(),
    "Table.append": lambda own, rows: own.catalog.table(own.short).append(rows),
    "mergeInto": Own.merge,
    "INSERT INTO": lambda own, rows: own.statement("INSERT INTO {} SELECT * FROM own_frame", rows),
}
CELLS = [
    (door, source, list(KINDS)[at % (2 if door in KEYED_DOORS else 4)])
    for at, (door, source) in enumerate((door, source) for door in (DOORS | KEYED_DOORS) for source in SOURCES)
]


def plus(frame: DataFrame, value: str = "n + 1") -> DataFrame:
    return frame.selectExpr("id", f"CAST({value} AS BIGINT) AS n", "s")


def more(rows: Sequence[tuple[Any, ...]]) -> Rows:
    return sorted((key, number + 1, text) for key, number, text in rows)


def meanwhile(monkeypatch: pytest.MonkeyPatch, commit: Callable[[], object]) -> None:
    """Let another writer commit, once, when it is known what was read, and nothing is written."""
    done: list[bool] = []

    def late(own: Callable[..., Any], *given: Any) -> Any:
        found = own(*given)
        if not done:
            done.append(True)
            commit()
        return found

    asked = {"own_snapshot_id": [tables_by_name, planned], "read_by_frame": [batch_target, statement_reads]}
    for name, modules in asked.items():
        for each in modules:
            monkeypatch.setattr(each, name, partial(late, getattr(each, name)))


WAITS = "wait for a compaction"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("door", "source", "kind"), CELLS)
def test_a_frame_of_a_table_is_written_back_to_it(
    spark: SparkSession, shop: Catalog, door: str, source: str, kind: str
) -> None:
    """A source that fails leaves the old rows; so does a frame that lacks rows of the table."""
    own = Own(spark, shop, kind)
    write, old = (DOORS | KEYED_DOORS)[door], own.rows()
    with pytest.raises((PySparkException, FluvialError), match=f"stop|{WAITS}"):
        write(own, plus(SOURCES[source](own), "if(id = 2, raise_error('stop'), n)"))
    assert own.rows() == old
    if kind == "vectors":
        with pytest.raises((PySparkException, FluvialError), match=WAITS):
            write(own, plus(SOURCES[source](own)))
        assert own.rows() == old
    else:
        write(own, plus(SOURCES[source](own)))
        assert own.rows() == more(old)
    spark.catalog.clearCache()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("door", "source", "kind"), [each for each in CELLS if each[2] != "vectors"])
def test_a_frame_is_not_written_over_what_others_have_committed_since(
    spark: SparkSession, shop: Catalog, monkeypatch: pytest.MonkeyPatch, door: str, source: str, kind: str
) -> None:
    """A statement over a view is computed again, unless the view shows one state of the table."""
    own = Own(spark, shop, kind)
    write, old, late = (DOORS | KEYED_DOORS)[door], own.rows(), (9, 50, "late")
    frame = plus(SOURCES[source](own))
    meanwhile(monkeypatch, lambda: own.add(late))
    problem = ""
    try:
        write(own, frame)
    except (PySparkException, FluvialError) as error:
        problem = str(error)
    assert not problem or "committed meanwhile" in problem or "changed while the rows were computed" in problem
    assert own.rows() == ([*old, late] if problem else more([*old, late]))
    spark.catalog.clearCache()
