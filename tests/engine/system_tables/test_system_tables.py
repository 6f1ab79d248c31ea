"""System tables by every way in: Python, Spark frames, ``format("fluvial")``, streams, the command line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import engine
from engine import Catalog
from engine.cli.app import run_command
from engine.cli.exit_codes import EXIT_INVALID
from engine.dialect.query.query import system_frame
from engine.runtime.spark_settings import spark_setting
from engine.spark.data_source import FluvialDataSource
from engine.system_tables.binlog import packed
from engine.system_tables.names import ROW_TABLES, SystemName, parse_system_name
from filestore.catalog.catalog import FileCatalog
from filestore.system_tables import SYSTEM_TABLES
from lsm.errors import InvalidInputError
from tests.support.rows import write_changes
from tests.support.streams import Query

COLUMNS = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("v", pa.string()), ("at", pa.timestamp("us"))])
GOLDEN = Path(__file__).parents[2] / "golden" / "java-1.4.2"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A table of two days: three commits, a full compaction after the second."""
    made = Catalog(str(tmp_path_factory.mktemp("warehouse")), options={"file.format": "parquet"})
    table = made.create_table("db.t", COLUMNS, primary_key=["dt", "id"], partition_by=["dt"], options={"bucket": "1"})
    write_changes(table, ("+I", "d1", 1, "a"), ("+I", "d1", 2, "b"), ("+I", "d2", 3, "c"))
    write_changes(table, ("+U", "d1", 1, "A"), ("-D", "d1", 2, "b"))
    table.compact(full=True)
    write_changes(table, ("+U", "d2", 3, "C"), ("+I", "d2", 4, "d"))
    return made


def read_by_format(spark: SparkSession, catalog: Catalog, table: str, **options: str) -> DataFrame:
    spelled = {key.replace("_", "-").replace("scan-", "scan."): value for key, value in options.items()}
    return spark.read.format("fluvial").options(warehouse=catalog.warehouse, table=table, **spelled).load()


def plain(frame: DataFrame) -> list[dict[str, Any]]:
    return [dict(row.asDict(recursive=True)) for row in frame.collect()]


@pytest.mark.spark
def test_all_ways_show_the_same_rows(spark: SparkSession, catalog: Catalog) -> None:
    with spark_setting(spark, "spark.sql.session.timeZone", "America/Lima"):
        for name in SYSTEM_TABLES:
            arrow = catalog.system_table(f"db.t${name}").to_arrow()
            if name in ("files", "tags"):  # with rows and without any
                frame, loaded = (
                    system_frame(spark, catalog, "db.t", name),
                    read_by_format(spark, catalog, f"db.t${name}"),
                )
                assert frame.columns == arrow.column_names
                assert loaded.schema == frame.schema
                assert plain(loaded) == plain(frame)
                assert len(plain(frame)) == arrow.num_rows
        times = catalog.system_table("db.t$snapshots").to_arrow(["commit_time"]).column(0).cast(pa.int64())
        shown = system_frame(spark, catalog, "db.t", "snapshots").selectExpr("unix_millis(commit_time) AS ms").collect()
        assert [row.ms for row in shown] == times.to_pylist()


@pytest.mark.spark
def test_rows_with_their_kinds_and_rows_that_need_no_merging(spark: SparkSession, catalog: Catalog) -> None:
    """audit_log has the state's rows as inserts, ro those of the top level only, both after any filter."""
    now = {("d1", 1, "A"), ("d2", 3, "C"), ("d2", 4, "d")}
    compacted = {("d1", 1, "A"), ("d2", 3, "c")}
    for name, expected in (("audit_log", now), ("ro", compacted)):
        ways = [system_frame(spark, catalog, "db.t", name), read_by_format(spark, catalog, f"db.t${name}")]
        for frame in ways:
            assert frame.columns == [*(["rowkind"] if name == "audit_log" else []), *COLUMNS.names]
            assert {(row.dt, row.id, row.v) for row in frame.collect()} == expected
        arrow = catalog.system_table(f"db.t${name}")
        assert {(each["dt"], each["id"], each["v"]) for each in arrow.to_arrow().to_pylist()} == expected
        assert arrow.to_arrow(["id"], "v = 'A'").to_pydict() == {"id": [1]}
    audit = catalog.system_table("db.t$audit_log")
    assert audit.to_arrow(["id", "rowkind"], "rowkind = '+I' AND id = 4").to_pydict() == {"id": [4], "rowkind": ["+I"]}
    assert audit.to_arrow(filter="rowkind = '-D'").num_rows == 0
    chosen = read_by_format(spark, catalog, "db.t$audit_log", columns="v,rowkind", filter="id = 1")
    assert plain(chosen) == [{"v": "A", "rowkind": "+I"}]


@pytest.mark.spark
def test_rows_with_their_ids_by_every_door(spark: SparkSession, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    options = {"row-tracking.enabled": "true", "bucket": "-1"}
    table = catalog.create_table("db.r", COLUMNS, options=options)
    for number in range(3):
        table.write(pa.Table.from_pylist([{"dt": "d", "id": number, "v": "a"}], schema=COLUMNS))
    table.files.compact(full=True)
    names = [*COLUMNS.names, "_ROW_ID", "_SEQUENCE_NUMBER"]
    expected = [dict(zip(names, ("d", n, "a", None, n, n + 1), strict=True)) for n in range(3)]
    read = catalog.system_table("db.r$row_tracking")
    assert read.to_arrow().sort_by("id").to_pylist() == expected
    assert read.to_arrow(["id"], "_ROW_ID = 1 AND _SEQUENCE_NUMBER = 2").to_pylist() == [{"id": 1}]
    ways = [system_frame(spark, catalog, "db.r", "row_tracking"), read_by_format(spark, catalog, "db.r$row_tracking")]
    for frame in ways:
        assert sorted((row.asDict() for row in frame.collect()), key=lambda row: row["id"]) == expected
        assert [row.id for row in frame.where("_ROW_ID > 1").collect()] == [2]
    statement = "SELECT max(_ROW_ID) AS last FROM db.r$row_tracking WHERE _SEQUENCE_NUMBER < 3"
    assert engine.sql(spark, statement, catalog).collect()[0]["last"] == 1
    with pytest.raises(InvalidInputError, match=r"row-tracking\.enabled=true"):
        engine.sql(spark, "UPDATE db.r SET v = 'b'", catalog)


@pytest.mark.spark
def test_older_snapshots_can_be_seen(spark: SparkSession, catalog: Catalog) -> None:
    counts = [
        catalog.system_table("db.t$files", {"scan.snapshot-id": str(snapshot)}).to_arrow().num_rows
        for snapshot in (1, 2, 3, 4)
    ]
    assert counts == [2, 3, 2, 3]
    assert read_by_format(spark, catalog, "db.t$files", scan_snapshot_id="2").count() == 3
    given = {"scan.snapshot-id": "1"}
    assert system_frame(spark, catalog, "db.t", "audit_log", given).count() == 3
    assert [
        each["dt"] for each in catalog.system_table("db.t$ro", {"scan.snapshot-id": "2"}).to_arrow().to_pylist()
    ] == []
    with pytest.raises(InvalidInputError, match=r"no such snapshot: .* version=snapshot.9"):
        catalog.system_table("db.t$files", {"scan.snapshot-id": "9"}).to_arrow()


@pytest.mark.sweep
def test_a_stream_of_audit_log_is_the_changelog(catalog: Catalog) -> None:
    """``t$audit_log`` as a stream has the rows of ``t`` with read.changelog=true, the kind under Paimon's name."""

    def renamed(row: Mapping[str, Any]) -> dict[str, Any]:
        return {("rowkind" if name == "_row_kind" else name): value for name, value in row.items()}

    audit = Query(catalog.warehouse, "db.t$audit_log", with_kinds=False)
    changes = Query(catalog.warehouse, "db.t")
    expected = [renamed(row) for row in changes.available()]
    assert [dict(row) for row in audit.available()] == expected
    assert {row["rowkind"] for row in expected} == {"+I"}
    source = FluvialDataSource({"warehouse": catalog.warehouse, "table": "db.t$audit_log"})
    assert source.schema().fieldNames() == ["rowkind", *COLUMNS.names]
    write_changes(catalog.table("db.t"), ("+U", "d2", 4, "D"), ("-D", "d1", 1, "A"))
    assert audit.available() == [renamed(row) for row in changes.available()]


@pytest.mark.spark
def test_the_binlog_has_arrays(spark: SparkSession, catalog: Catalog) -> None:
    binlog = catalog.system_table("db.t$binlog")
    assert binlog.schema.names == ["rowkind", *COLUMNS.names]
    rows = binlog.to_arrow().to_pylist()
    state = catalog.system_table("db.t$audit_log").to_arrow().to_pylist()
    assert rows == [{key: value if key == "rowkind" else [value] for key, value in row.items()} for row in state]
    assert binlog.to_arrow(["v"], "id = 3").to_pylist() == [{"v": ["C"]}]
    assert binlog.to_arrow(["id"], "rowkind = '+I' AND id = 3").to_pylist() == [{"id": [3]}]
    for frame in (system_frame(spark, catalog, "db.t", "binlog"), read_by_format(spark, catalog, "db.t$binlog")):
        assert sorted(plain(frame), key=repr) == sorted(rows, key=repr)
    chosen = read_by_format(spark, catalog, "db.t$binlog", columns="v,rowkind", filter="id = 3")
    assert plain(chosen) == [{"v": ["C"], "rowkind": "+I"}]


def test_a_stream_of_the_binlog_has_what_was_and_what_is_in_one_row(tmp_path: Path) -> None:
    """As the stream of the audit log has it, with each pair of -U and +U in one row."""
    made = Catalog(str(tmp_path))
    columns = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    table = made.create_table("db.b", columns, primary_key=["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [1, 2], "tags": [["a"], None]}, schema=columns))
    queries = [Query(made.warehouse, f"db.b${name}", with_kinds=False) for name in ("binlog", "audit_log")]
    assert [query.available() for query in queries] == [
        [{"rowkind": "+I", "id": [1], "tags": [["a"]]}, {"rowkind": "+I", "id": [2], "tags": [None]}],
        [{"rowkind": "+I", "id": 1, "tags": ["a"]}, {"rowkind": "+I", "id": 2, "tags": None}],
    ]
    table.overwrite(pa.table({"id": [1, 3], "tags": [["b"], []]}, schema=columns))
    packed_rows, plain_rows = (query.available() for query in queries)
    assert [row["rowkind"] for row in plain_rows] == ["-U", "+U", "-D", "+I"]
    assert packed_rows == [
        {"rowkind": "+U", "id": [1, 1], "tags": [["a"], ["b"]]},
        {"rowkind": "-D", "id": [2], "tags": [None]},
        {"rowkind": "+I", "id": [3], "tags": [[]]},
    ]


@given(st.lists(st.lists(st.sampled_from(["+I", "-U", "+U", "-D"]), max_size=5), max_size=5))
def test_pairs_are_packed_wherever_batches_end(kinds: list[list[str]]) -> None:
    numbered = [list(enumerate(batch, start=100 * index)) for index, batch in enumerate(kinds)]
    flat = [pair for batch in numbered for pair in batch]
    expected: list[tuple[str, list[int]]] = []
    for number, kind in flat:
        if kind == "+U" and expected and expected[-1][0] == "-U" and len(expected[-1][1]) == 1:
            expected[-1] = ("+U", [expected[-1][1][0], number])
        else:
            expected.append((kind, [number]))
    batches = (
        pa.record_batch(
            {"kind": pa.array([k for _, k in each], pa.string()), "n": pa.array([n for n, _ in each], pa.int64())}
        )
        for each in numbered
    )
    found = [(row["kind"], row["n"]) for batch in packed(batches, "kind") for row in batch.to_pylist()]
    assert found == expected


def test_only_changes_can_be_streamed(catalog: Catalog) -> None:
    source = FluvialDataSource({"warehouse": catalog.warehouse, "table": "db.t$files"})
    with pytest.raises(InvalidInputError, match="only audit_log and binlog"):
        source.streamReader(source.schema())


def test_branches_have_system_tables_of_their_own() -> None:
    golden = Catalog(str(GOLDEN))
    ids = {
        name: golden.system_table(f"db.app_branches{name}$snapshots").to_arrow(["snapshot_id"]).column(0).to_pylist()
        for name in ("", "$branch_b1", "$branch_b2")
    }
    assert ids == {"": [1], "$branch_b1": [1], "$branch_b2": [1, 2]}
    assert golden.system_table("db.app_branches$branch_b2$audit_log").to_arrow().num_rows > 0
    with pytest.raises(InvalidInputError, match=r"no such branch: .*branch=nope"):
        golden.system_table("db.app_branches$branch_nope$files")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("db.t$files", SystemName(table="db.t", system="files")),
        ("db.t$branch_b$ro", SystemName(table="db.t", branch="b", system="ro")),
        ("sys.tables", SystemName(table=None, system="tables")),
    ],
)
def test_names_say_what_is_meant(name: str, expected: SystemName) -> None:
    assert parse_system_name(name) == expected
    assert str(expected) == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("db.t$fils", ["no such system table", "did_you_mean=files", "known=aggregation_fields, audit_log, binlog"]),
        ("db.t$zzzz", ["no such system table", "known="]),
        ("db.t$files$buckets", ["not the name of a system table"]),
        ("db.missing$files", ["no such table"]),
        ("sys.tabels", ["did_you_mean=tables"]),
    ],
)
def test_wrong_names_are_refused(catalog: Catalog, name: str, words: list[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        catalog.system_table(name)
    assert all(word in str(caught.value) for word in words)


def test_a_system_table_is_no_table(catalog: Catalog) -> None:
    with pytest.raises(InvalidInputError, match=r"Catalog\.system_table"):
        catalog.table("db.t$files")
    with pytest.raises(InvalidInputError, match=r"unknown option of db\.t\$files: scan\.snapshot-idd"):
        catalog.system_table("db.t$files", {"scan.snapshot-idd": "1"})


@pytest.mark.spark
def test_wrong_reads_are_refused_by_spark_too(spark: SparkSession, catalog: Catalog) -> None:
    for table, options in (("db.t$fils", {}), ("db.t$files", {"colums": "bucket"}), ("db.t$files", {"columns": "x"})):
        with pytest.raises(PySparkException, match=r"did_you_mean|known=|no such column"):
            read_by_format(spark, catalog, table, **options).collect()


@pytest.mark.spark
def test_the_catalog_is_a_database_too(spark: SparkSession, catalog: Catalog) -> None:
    [table] = catalog.system_table("sys.tables").to_arrow().to_pylist()
    assert (table["database_name"], table["table_name"], table["partitioned"], table["primary_key"]) == (
        "db",
        "t",
        True,
        True,
    )
    assert table["file_count"] == catalog.system_table("db.t$files").to_arrow().num_rows
    names = catalog.system_table("sys.partitions").to_arrow(["partition_name"]).column(0).to_pylist()
    assert names == ["dt=d1", "dt=d2"]
    options = catalog.system_table("sys.all_table_options").to_arrow(filter="key = 'bucket'").to_pylist()
    assert [each["value"] for each in options] == ["1"]
    assert catalog.system_table("sys.catalog_options").to_arrow().to_pylist() == [
        {"key": "file.format", "value": "parquet"}
    ]
    assert (
        read_by_format(spark, catalog, "sys.tables").count()
        == system_frame(spark, catalog, "sys", "tables").count()
        == 1
    )


def test_a_broken_table_hides_no_other(tmp_path: Path) -> None:
    files = FileCatalog(str(tmp_path))
    for name in ("good", "bad"):
        files.create_table(f"db.{name}", COLUMNS)
    (tmp_path / "db.db" / "bad" / "schema" / "schema-0").write_text("{}")
    found = Catalog(str(tmp_path)).system_table("sys.tables").to_arrow().to_pylist()
    assert [(each["table_name"], each["problem"] is None) for each in found] == [("bad", False), ("good", True)]


def test_the_command_reads_system_tables(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["read", "db.t$files", "--warehouse", catalog.warehouse, "--columns", "bucket,level", "--json"]
    assert run_command([*arguments, "--filter", "level = 0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {(row["bucket"], row["level"]) for row in map(json.loads, lines)} == {(0, 0)}
    assert run_command(["read", "sys.tables", "--columns", "table_name", "--warehouse", catalog.warehouse]) == 0
    assert "table_name" in capsys.readouterr().out
    assert run_command(["read", "db.t$filez", "--warehouse", catalog.warehouse]) == EXIT_INVALID
    assert "did_you_mean=files" in capsys.readouterr().err
    assert ROW_TABLES == ("audit_log", "binlog", "ro", "row_tracking")


@pytest.mark.parametrize("name", ["db.t$tags", "db.t$snapshots", "db.t$options", "sys.tables", "paimon.job_startup"])
def test_a_table_without_versions_refuses_them(catalog: Catalog, name: str) -> None:
    """It gave all rows, whatever snapshot was asked for."""
    with pytest.raises(InvalidInputError, match="without versions") as caught:
        catalog.system_table(name, {"scan.snapshot-id": "1"})
    assert f"table={name} scan.snapshot-id=1 fix=" in str(caught.value)
