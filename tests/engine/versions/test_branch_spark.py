"""Branches through Spark: SQL, frames and streaming queries."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from filestore.branch.branches import create_branch
from lsm.errors import InvalidInputError
from tests.support.streams import content, rows

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A table db.t with rows 1 and 2, and 3 on its branch b."""
    made = Catalog(str(tmp_path / "warehouse"))
    main = made.create_table("db.t", SCHEMA, primary_key=["id"])
    main.write(rows([1, 2]))
    create_branch(main.store, "b", snapshot_id=1)
    made.table("db.t$branch_b").write(rows([3]))
    return made


def values(catalog: Catalog, name: str) -> dict[int, str]:
    return {key[0]: row["v"] for key, row in content(catalog.table(name)).items()}


@pytest.mark.long
def test_sql_reads_writes_and_changes_a_branch(spark: SparkSession, catalog: Catalog) -> None:
    """BR-09, BR-10, BR-11, BR-13, BR-38, BR-39, BR-42, BR-43."""
    session = SqlSession(SqlContext(catalog=catalog, open_spark=spark.newSession, database="db"))

    def run(text: str) -> list[tuple[object, ...]]:
        result = session.execute(text)[-1]
        found = result.table if result.frame is None else result.frame.toArrow()
        assert found is not None
        return [tuple(row.values()) for row in found.to_pylist()]

    count = "SELECT count(*) FROM"
    assert run(f"{count} t$branch_b") == run(f"{count} t /*+ OPTIONS('scan.branch'='b') */") == [(3,)]
    assert run(f"{count} t WITH (branch = 'b')") == [(3,)]
    assert run(f"{count} t$branch_b b JOIN t ON b.id = t.id") == [(2,)]
    run("INSERT INTO t$branch_b VALUES (4, 'new')")
    run("INSERT INTO t /*+ OPTIONS('branch'='b') */ VALUES (5, 'new')")
    run("UPDATE t$branch_b SET v = 'up' WHERE id = 1")
    run("DELETE FROM t$branch_b WHERE id = 2")
    run("MERGE INTO t$branch_b b USING t ON b.id = t.id WHEN MATCHED THEN UPDATE SET v = concat(b.v, '+')")
    on_branch = {1: "up+", 3: "x", 4: "new", 5: "new"}
    assert values(catalog, "db.t$branch_b") == on_branch
    run("ALTER TABLE t$branch_b ADD COLUMN w INT")
    assert [row[0] for row in run("DESCRIBE t$branch_b")][:3] == ["id", "v", "w"]
    assert "`t$branch_b`" in str(run("SHOW CREATE TABLE t$branch_b"))
    run("CALL sys.create_tag(table => 'db.t$branch_b', tag => 'eod')")
    run("INSERT OVERWRITE t$branch_b VALUES (7, 'all', 1)")
    run("CALL sys.compact('db.t$branch_b')")
    assert run("SELECT id, v, w FROM t$branch_b") == [(7, "all", 1)]
    assert run(f"{count} t$branch_b VERSION AS OF 'eod'") == run(f"{count} t VERSION AS OF 'b.eod'") == [(4,)]
    begin = catalog.table("db.t$branch_b").latest_snapshot().id  # type: ignore[union-attr]
    assert run(f"{count} t VERSION AS OF 'b.{begin}'") == [(1,)]
    assert run(f"{count} t$branch_b$tags WHERE tag_name = 'eod'") == [(1,)]
    assert values(catalog, "db.t") == {1: "x", 2: "x"}
    assert catalog.table("db.t").schema.column_names == ("id", "v")

    run("SET 'table-storage.scan.branch' = 'b'")
    assert run(f"{count} t") == [(1,)]
    run("UPDATE t SET v = 'main' WHERE id = 1")  # what is written is not what only reads look at
    run("SET 'table-storage.branch' = 'b'")
    run("RESET 'table-storage.scan.branch'")
    run("INSERT INTO t VALUES (8, 'session', 2)")
    run("UPDATE t SET v = 'session' WHERE id = 7")
    assert values(catalog, "db.t$branch_b") == {7: "session", 8: "session"}
    assert run(f"{count} t$branch_main") == [(2,)]
    run("CREATE TABLE made AS SELECT * FROM t")  # a new table has no branch, and keeps no word of one
    assert "branch" not in catalog.table("db.made").schema.options
    assert values(catalog, "db.made") == {7: "session", 8: "session"}
    assert values(catalog, "db.t") == {1: "main", 2: "x"}

    for wrong, words in (
        ("SELECT * FROM t$branch_c", "no such branch"),
        ("INSERT INTO t$branch_c VALUES (1, 'x')", "no such branch"),
        ("SELECT * FROM t$branch_b /*+ OPTIONS('scan.branch'='c') */", "two branches are named"),
        ("INSERT INTO t$branch_b$files VALUES (1)", "system tables are read only"),
        ("INSERT INTO t /*+ OPTIONS('scan.branch'='b') */ VALUES (1, 'x')", "an option of reads, not a write option"),
        ("ALTER TABLE t SET ('scan.branch' = 'b')", "no table has this option"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            run(wrong)


def test_frames_and_streaming_queries_read_and_write_a_branch(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    """BR-12, BR-13, BR-14, BR-43: by the format; by the sink see the page about versions."""
    place = {"warehouse": catalog.warehouse, "table": "db.t"}
    new = spark.createDataFrame([(4, "a")], "id BIGINT, v STRING")
    new.write.format("fluvial").options(**place, branch="b").mode("append").save()
    catalog.table("db.t$branch_b").append(new.selectExpr("id + 1 AS id", "v"))
    assert set(values(catalog, "db.t$branch_b")) == {1, 2, 3, 4, 5}
    source = catalog.create_table("db.source", SCHEMA, primary_key=["id"])
    source.write(rows([100], v="streamed"))
    stream = (
        spark.readStream.format("fluvial")
        .options(warehouse=catalog.warehouse, table=source.name, **{"read.changelog": "true"})
        .load()
    )
    writer = stream.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.format("fluvial").options(**place, branch="b").start().awaitTermination()
    assert values(catalog, "db.t$branch_b")[100] == "streamed"
    streamed = (
        spark.readStream.format("fluvial")
        .options(**place, **{"scan.branch": "b", "read.changelog": "true"})
        .load()
        .writeStream.format("memory")
    )
    streamed.queryName("of_b").trigger(availableNow=True).start().awaitTermination()
    assert spark.table("of_b").count() == 6
    assert set(values(catalog, "db.t")) == {1, 2}
