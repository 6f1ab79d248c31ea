"""``spark.read.format("fluvial")`` and ``Table.dataframe``: right in every query shape, before and after compaction."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from engine import Catalog, Table
from tests.support.spark_reads import by_format

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("dt", pa.string()), ("a", pa.int32()), ("v", pa.string()), ("n", pa.list_(pa.int64()))])
ROWS = 10


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Ten rows a = 0..9 in two partitions and two buckets, some in two versions, one deleted key beside them."""
    catalog = Catalog(str(tmp_path_factory.mktemp("warehouse")))
    made = catalog.create_table("db.t", SCHEMA, primary_key=["dt", "a"], partition_by=["dt"], options={"bucket": "2"})
    numbers = list(range(ROWS + 1))
    made.write(
        pa.table(
            {
                "dt": [f"d{a % 2}" for a in numbers],
                "a": pa.array(numbers, pa.int32()),
                "v": ["old"] * 11,
                "n": [[a] for a in numbers],
            }
        )
    )
    made.write(
        pa.table(
            {
                "dt": ["d0", "d1", "d0"],
                "a": pa.array([0, 1, 10], pa.int32()),
                "v": ["new", "new", None],
                "_row_kind": ["+U", "+U", "-D"],
            }
        )
    )
    return made


def by_frame(spark: SparkSession, table: Table, **options: str) -> DataFrame:
    columns = options.get("columns")
    return table.dataframe(spark, columns=columns.split(",") if columns else None, filter=options.get("filter"))


Reader = Callable[..., DataFrame]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("read", [by_format, by_frame], ids=["format", "dataframe"])
def test_a_filter_in_one_query_never_changes_another(spark: SparkSession, table: Table, read: Reader) -> None:
    """FL-25: the shapes in which Spark's own push-down into Python sources leaks (reports/spark.md, trap 1)."""
    frame = read(spark, table)
    assert frame.filter("a = 1").count() == 1
    assert frame.count() == ROWS
    frame.createOrReplaceTempView("filtered")
    union = spark.sql("SELECT a FROM filtered WHERE a = 3 UNION ALL SELECT a FROM filtered WHERE a = 4")
    assert sorted(row.a for row in union.collect()) == [3, 4]
    assert spark.sql("SELECT a FROM filtered WHERE a NOT IN (SELECT a FROM filtered WHERE a < 8)").count() == 2
    cte = "WITH x AS (SELECT * FROM filtered) "
    cte += "SELECT l.a, r.a AS b FROM x l LEFT JOIN x r ON l.a = r.a AND r.v = 'new' WHERE l.a < 3"
    assert sorted((row.a, row.b) for row in spark.sql(cte).collect() if row.b is not None) == [(0, 0), (1, 1)]
    assert spark.sql("SELECT count(*) AS n FROM filtered WHERE v = 'old'").first().n == ROWS - 2


@pytest.mark.parametrize("read", [by_format, by_frame], ids=["format", "dataframe"])
def test_the_filter_option_is_exact_and_spares_files(spark: SparkSession, table: Table, read: Reader) -> None:
    """FL-178, FL-181: the newest version decides, also where an older one would match."""
    assert sorted(row.a for row in read(spark, table, filter="v = 'old'").collect()) == list(range(2, ROWS))
    assert [row.v for row in read(spark, table, filter="dt = 'd0' AND a = 0").collect()] == ["new"]
    assert read(spark, table, filter="a = 10").count() == 0
    assert read(spark, table, filter="n IS NULL").count() == 2


@pytest.mark.parametrize("read", [by_format, by_frame], ids=["format", "dataframe"])
def test_the_columns_option_chooses_and_orders(spark: SparkSession, table: Table, read: Reader) -> None:
    frame = read(spark, table, columns="v,a")
    assert frame.columns == ["v", "a"]
    assert frame.filter("a = 1").collect()[0].v == "new"
    assert read(spark, table).select("a").agg({"a": "sum"}).first()[0] == 45


def test_a_snapshot_can_be_chosen(spark: SparkSession, table: Table) -> None:
    assert by_format(spark, table, **{"scan.snapshot-id": "1"}).count() == ROWS + 1
    assert table.dataframe(spark, snapshot_id=1).filter("v = 'new'").count() == 0


def test_an_empty_table_reads_as_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    Catalog(str(tmp_path)).create_table("db.t", SCHEMA, primary_key=["dt", "a"])
    frame = spark.read.format("fluvial").option("warehouse", str(tmp_path)).option("table", "db.t").load()
    assert frame.columns == ["dt", "a", "v", "n"]
    assert frame.count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tabel": "db.t"}, "did_you_mean=table"),
        ({"table": "db.u"}, "no such table"),
        ({"filter": "b = 1"}, "did_you_mean"),
        ({"columns": "a,b"}, "no such column"),
        ({"scan.snapshot-id": "99"}, "no such snapshot"),
        ({"scan.snapshot-id": "x"}, "expected=.a whole number, 1 or more"),
    ],
)
def test_a_wrong_option_is_named(spark: SparkSession, table: Table, options: dict[str, str], said: str) -> None:
    warehouse = table.store.paths.root.rsplit("/", 2)[0]
    with pytest.raises(PySparkException, match=said):
        spark.read.format("fluvial").options(**{"warehouse": warehouse, "table": "db.t", **options}).load().count()


def test_after_compaction_spark_scans_the_files_itself(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    """FL-04, FL-26: same rows, by Spark's own columnar scan: no Python in the plan."""
    catalog = Catalog(str(tmp_path))
    copy = catalog.create_table("db.t", SCHEMA, primary_key=["dt", "a"], partition_by=["dt"], options={"bucket": "2"})
    copy.write(table.read(snapshot_id=1).to_arrow())
    copy.write(pa.table({"dt": ["d0"], "a": pa.array([10], pa.int32()), "_row_kind": ["-D"]}))
    before = sorted(map(str, copy.dataframe(spark).collect()))
    copy.compact(full=True)
    frame = copy.dataframe(spark)
    assert sorted(map(str, frame.collect())) == before
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "FileScan parquet" in plan
    assert "MapInArrow" not in plan


def test_a_frame_keeps_its_snapshot_and_shows_which_it_is(spark: SparkSession, catalog: Catalog) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = catalog.create_table("db.kept", schema, primary_key=["id"], options={"bucket": "1"})

    def seen(frame: DataFrame) -> tuple[int, set[int]]:
        rows = frame.collect()
        return len(rows), {row["_snapshot_id"] for row in rows}

    def load() -> DataFrame:
        place = {"warehouse": catalog.warehouse, "table": "db.kept", "read.metadata-columns": "_snapshot_id"}
        return spark.read.format("fluvial").options(**place).load()

    table.write(pa.table({"id": [1]}, schema=schema))
    frame = load()
    assert seen(frame) == (1, {1})
    table.write(pa.table({"id": [2]}, schema=schema))
    assert seen(frame) == (1, {1})
    assert seen(load()) == (2, {2})
