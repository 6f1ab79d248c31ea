"""Databases and tables by SQL, without Spark."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.broker.broker import Broker
from engine.catalog import Catalog
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from filestore.compact.compactor import compact_table
from filestore.schema.table_schema import TableSchema
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from lsm.errors import InvalidInputError
from tests.support.stored_login import store_options
from tests.support.waiting import eventually

Run = Callable[[str], list[tuple[Any, ...]]]

ORDERS = """
CREATE TABLE orders (
  dt STRING, id BIGINT, amount DECIMAL(10, 2) COMMENT 'in EUR', ts TIMESTAMP(3),
  vat AS amount * 0.2,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
  PRIMARY KEY (dt, id) NOT ENFORCED
) COMMENT 'what was bought' PARTITIONED BY (dt) WITH ('bucket' = '2')
"""


def write_day(session: SqlSession, dt: str, ids: list[int], **columns: list[Any]) -> None:
    table = session.context.catalog.table("shop.orders")
    table.write(pa.table({"dt": [dt] * len(ids), "id": ids, **columns}))


def schema_of(session: SqlSession, name: str) -> TableSchema:
    return replace(session.context.catalog.table(name).schema, time_ms=0)


def test_databases(run: Run, sql_session: SqlSession) -> None:
    run("CREATE DATABASE IF NOT EXISTS shop; CREATE SCHEMA other")
    assert run("SHOW DATABASES") == [("other",), ("paimon",), ("shop",), ("sys",)]
    assert run("SHOW SCHEMAS LIKE 's*'") == [("shop",), ("sys",)]
    run("USE other; CREATE TABLE t (a INT)")
    assert run("SHOW TABLES") == [("other", "t", False)]
    assert run("SHOW TABLES IN fluvial.shop") == []
    assert dict(run("DESCRIBE DATABASE EXTENDED other"))["Tables"] == "1"
    with pytest.raises(InvalidInputError, match="not empty"):
        run("DROP DATABASE other")
    run("DROP DATABASE other CASCADE; DROP DATABASE IF EXISTS other")
    with pytest.raises(InvalidInputError, match="no such database"):
        run("USE other")


def test_created_tables_are_there_with_all_their_parts(run: Run, sql_session: SqlSession) -> None:
    """FL-01, FL-07..FL-18, FL-110..FL-113, FL-116: files and schema; no connector, no options needed."""
    run(ORDERS)
    run(ORDERS.replace("TABLE orders", "TABLE IF NOT EXISTS fluvial.shop.orders"))
    schema = schema_of(sql_session, "shop.orders")
    assert [(each.name, str(each.type), each.description) for each in schema.fields] == [
        ("dt", "STRING NOT NULL", None),
        ("id", "BIGINT NOT NULL", None),
        ("amount", "DECIMAL(10, 2)", "in EUR"),
        ("ts", "TIMESTAMP(3)", None),
    ]
    assert (schema.primary_keys, schema.partition_keys, schema.comment) == (("dt", "id"), ("dt",), "what was bought")
    assert schema.options == {
        "bucket": "2",
        "file.format": "parquet",
        "computed-column.0": "vat AS amount * 0.2",
        "watermark.column": "ts",
        "watermark.expression": "ts - INTERVAL '5' SECOND",
    }
    assert Path(sql_session.context.catalog.table("shop.orders").store.paths.schema_dir).is_dir()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ORDERS, "table exists already"),
        ("CREATE TABLE t (dt STRING, id INT PRIMARY KEY NOT ENFORCED) PARTITIONED BY (dt)", "contain the partition"),
        ("CREATE TABLE t (a INT) WITH ('buckets' = '2')", "did_you_mean=.*bucket"),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'kafka')", "another connector"),
        ("CREATE TABLE t (a INT) WITH ('file.path' = '/elsewhere')", "lie in the warehouse"),
        ("CREATE TABLE t (a INT DEFAULT 'x')", "not a value"),
        ("CREATE TABLE t (a INT, WATERMARK FOR a AS a)", "TIMESTAMP column"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (b) NOT ENFORCED)", "no such column"),
        ("CREATE TABLE t (a INT) WITH ('computed-column.0' = 'b AS a')", "among the columns"),
        ("CREATE TABLE t", "no columns"),
        ("CREATE TABLE t LIKE nothing", "no such table"),
        ("CREATE TABLE fluvial.shop.t.u (a INT)", "is named"),
        ("REPLACE TABLE t (a INT)", "no such table"),
        ("DROP TABLE t", "no such table"),
        ("TRUNCATE TABLE orders PARTITION (day='x')", "not a partition column: .*dt"),
        ("ALTER TABLE orders DROP PARTITION (dt='nope')", "no such partition"),
        ("ALTER TABLE orders DROP COLUMN amount; DROP TABLE orders", "used_by=.*vat.* line=1"),
        ("DESCRIBE orders PARTITION (dt='nope')", "no such partition"),
        ("SHOW PARTITIONS t", "no such table"),
        ("SET table-storage.bukket = 1", "did_you_mean"),
        ("SET table-storage.bucket = many", "whole number"),
        ("USE CATALOG hive", "one catalog"),
    ],
)
def test_what_is_wrong_leaves_nothing_behind(run: Run, sql_session: SqlSession, text: str, reason: str) -> None:
    """FL-18."""
    run(ORDERS)
    before = schema_of(sql_session, "shop.orders")
    with pytest.raises(InvalidInputError, match=reason):
        run(text)
    assert run("SHOW TABLES") == [("shop", "orders", False)]
    assert schema_of(sql_session, "shop.orders") == before
    assert sql_session.context.settings == {}


def test_options_of_the_table_win_over_the_sessions_and_those_over_the_catalogs(tmp_path: Path) -> None:
    """FL-53..FL-68, FL-83, FL-115."""
    catalog = Catalog(str(tmp_path), options={"bucket": "2", "file.format": "avro", "table-default.write-only": "true"})
    session = SqlSession(SqlContext(catalog=catalog, open_spark=lambda: pytest.fail("no Spark")))
    session.execute(
        "CREATE TABLE before (a INT PRIMARY KEY NOT ENFORCED); SET table-storage.bucket = 10;"
        "SET table-storage.file.format = orc;"
        "CREATE TABLE t (a INT PRIMARY KEY NOT ENFORCED) WITH ('file.format' = 'parquet'); RESET table-storage.bucket;"
        "CREATE TABLE after (a INT PRIMARY KEY NOT ENFORCED)"
    )
    found = {name: schema_of(session, f"default.{name}").options for name in ("before", "t", "after")}
    assert found == {
        "before": {"bucket": "2", "file.format": "avro", "write-only": "true"},
        "t": {"bucket": "10", "file.format": "parquet", "write-only": "true"},
        "after": {"bucket": "2", "file.format": "orc", "write-only": "true"},
    }
    (shown,) = session.execute("SET")
    assert shown.table is not None
    assert shown.table.to_pylist() == [{"key": "table-storage.file.format", "value": "orc"}]


def test_like_takes_what_it_is_told_to(run: Run, sql_session: SqlSession) -> None:
    run(ORDERS)
    run("CREATE TABLE same LIKE orders")
    assert schema_of(sql_session, "shop.same") == schema_of(sql_session, "shop.orders")
    run("CREATE TABLE plain (note STRING) WITH ('bucket' = '1') LIKE orders (EXCLUDING ALL INCLUDING CONSTRAINTS)")
    plain = schema_of(sql_session, "shop.plain")
    assert plain.column_names == ("dt", "id", "amount", "ts", "note")
    assert (plain.primary_keys, plain.partition_keys) == (("dt", "id"), ())
    assert plain.options == {"bucket": "1", "file.format": "parquet"}


def test_or_replace_leaves_the_old_table_when_the_new_one_is_wrong(run: Run, sql_session: SqlSession) -> None:
    run(ORDERS)
    write_day(sql_session, "a", [1])
    with pytest.raises(InvalidInputError, match="unknown option"):
        run("CREATE OR REPLACE TABLE orders (a INT) WITH ('bukket' = '1')")
    assert run("SHOW PARTITIONS orders") == [("dt=a",)]
    run("CREATE OR REPLACE TABLE orders (a INT)")
    assert run("SHOW COLUMNS IN orders") == [("a",)]
    run("REPLACE TABLE orders (b INT)")
    assert (run("SHOW COLUMNS IN orders"), len(run("SHOW TABLES"))) == ([("b",)], 1)


def test_partitions_are_dropped_and_tables_truncated(run: Run, sql_session: SqlSession) -> None:
    """FL-19, FL-103."""
    run(ORDERS)
    for day in ("a", "b", "c"):
        write_day(sql_session, day, [1, 2])
    run("ALTER TABLE orders DROP IF EXISTS PARTITION (dt='a'), PARTITION (dt='nope')")
    assert run("SHOW PARTITIONS orders") == [("dt=b",), ("dt=c",)]
    run("TRUNCATE TABLE orders PARTITION (dt='b')")
    assert run("SHOW PARTITIONS orders") == [("dt=c",)]
    assert run("SHOW PARTITIONS orders PARTITION (dt='b')") == []
    run("TRUNCATE TABLE orders")
    assert sql_session.context.catalog.table("shop.orders").read().to_arrow().num_rows == 0
    directory = Path(sql_session.context.catalog.table("shop.orders").store.paths.root)
    run("DROP TABLE orders; DROP TABLE IF EXISTS orders")
    assert not directory.exists()


def test_altered_tables(run: Run, sql_session: SqlSession) -> None:
    """FL-22."""
    run(ORDERS)
    write_day(sql_session, "a", [1], amount=[Decimal("1.00")])
    run("""
        ALTER TABLE orders ADD COLUMN note STRING COMMENT 'n' AFTER id;
        ALTER TABLE orders ADD COLUMN IF NOT EXISTS note INT;
        ALTER TABLE orders DROP COLUMNS IF EXISTS (nope);
        ALTER TABLE orders RENAME COLUMN note TO remark;
        ALTER TABLE orders ALTER COLUMN amount TYPE DECIMAL(12, 2);
        ALTER TABLE orders SET ('change-tracking'='false', 'comment'='c');
        ALTER TABLE orders RENAME COLUMN amount TO `net amount`;
        ALTER TABLE orders RENAME COLUMN ts TO at;
        ALTER TABLE orders RENAME TO sales;
        ALTER TABLE IF EXISTS orders DROP COLUMN id;
    """)
    schema = schema_of(sql_session, "shop.sales")
    assert schema.column_names == ("dt", "id", "remark", "net amount", "at")
    assert schema.options["computed-column.0"] == "vat AS `net amount` * 0.2"
    assert schema.options["watermark.expression"] == "at - INTERVAL '5' SECOND"
    assert (schema.options["change-tracking"], schema.comment) == ("false", "c")
    rows = sql_session.context.catalog.table("shop.sales").read().to_arrow().to_pylist()
    assert [(row["id"], row["remark"], str(row["net amount"])) for row in rows] == [(1, None, "1.00")]
    run("ALTER TABLE sales REPLACE COLUMNS (dt STRING NOT NULL, id BIGINT NOT NULL, `net amount` DECIMAL(12, 2), "
        "at TIMESTAMP(3), extra INT)")  # fmt: skip
    assert run("SHOW COLUMNS IN sales") == [("dt",), ("id",), ("net amount",), ("at",), ("extra",), ("vat",)]


def test_compact_returns_when_it_is_done_and_leaves_other_partitions_alone(run: Run, sql_session: SqlSession) -> None:
    """FL-20, FL-21."""
    run(ORDERS)
    for _ in range(2):
        write_day(sql_session, "a", [1, 2, 3, 4])
        write_day(sql_session, "b", [1, 2, 3, 4])
    ((snapshot, buckets, before, after),) = run("ALTER TABLE orders PARTITION (dt='a') COMPACT")
    assert (snapshot, buckets, before, after) == ("5", "2", "4", "2")
    facts = {day: dict(row[:2] for row in run(f"DESCRIBE orders PARTITION (dt='{day}')")) for day in "ab"}
    assert [(facts[day]["compacted"], facts[day]["num-files"]) for day in "ab"] == [("true", "2"), ("false", "4")]
    run("ALTER TABLE orders COMPACT")
    assert compact_table(sql_session.context.catalog.table("shop.orders").store, full=True) is None
    assert run("ALTER TABLE orders COMPACT") == [(None, "0", "0", "0")]


def test_describe_shows_columns_and_how_the_table_is_kept(run: Run, sql_session: SqlSession) -> None:
    """FL-35..FL-45, FL-52."""
    run(ORDERS)
    assert run("DESCRIBE orders")[:5] == [
        ("dt", "STRING NOT NULL", None),
        ("id", "BIGINT NOT NULL", None),
        ("amount", "DECIMAL(10, 2)", "in EUR"),
        ("ts", "TIMESTAMP(3)", None),
        ("vat", "AS amount * 0.2", None),
    ]
    assert dict(run("DESCRIBE orders amount"))["comment"] == "in EUR"
    write_day(sql_session, "a", [1, 2], ts=pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2)], pa.timestamp("ms")))
    rows = run("DESCRIBE TABLE EXTENDED orders")
    root = sql_session.context.catalog.table("shop.orders").store.paths.root
    assert rows[rows.index(("# Detailed Table Information", "", "")) + 1 :] == [
        ("name", "fluvial.shop.orders", None),
        ("log.system", "none", None),
        ("log.kafka.bootstrap.servers", None, None),
        ("log.retention", None, None),
        ("log.kafka.topic", None, None),
        ("file.path", root, None),
        ("file.format", "parquet", None),
        ("bucket", "2", None),
        ("change-tracking", "true", None),
        ("watermark", "2026-01-01 23:59:55.000", None),
    ]
    run("ALTER TABLE orders SET ('change-tracking' = 'false')")
    assert dict(row[:2] for row in run("DESCRIBE EXTENDED orders"))["change-tracking"] == "false"


@pytest.mark.parametrize("database", ["", "IN shop", "IN fluvial.shop", "FROM shop"])
def test_all_tables_of_a_database_are_analyzed(run: Run, sql_session: SqlSession, database: str) -> None:
    """As ``ANALYZE TABLE`` analyzes one: what it counted is in ``$statistics``; a table without rows has none."""
    catalog = sql_session.context.catalog
    run(
        "CREATE TABLE a (id INT); CREATE TABLE b (id INT); CREATE TABLE nothing (id INT); CREATE TABLE other.c (id INT)"
    )
    for name in ("shop.a", "shop.b", "other.c"):
        catalog.table(name).write(pa.table({"id": pa.array([1, 2], pa.int32())}))
    assert run(f"ANALYZE TABLES {database} COMPUTE STATISTICS") == []
    for name, rows in (("shop.a", [2]), ("shop.b", [2]), ("shop.nothing", []), ("other.c", [])):
        assert catalog.system_table(f"{name}$statistics").to_arrow()["mergedRecordCount"].to_pylist() == rows
    with pytest.raises(InvalidInputError, match="word=NOSCAN fix="):
        run(f"ANALYZE TABLES {database} COMPUTE STATISTICS NOSCAN")
    with pytest.raises(InvalidInputError, match="no such database"):
        run("ANALYZE TABLES IN shp COMPUTE STATISTICS")


def test_a_column_gets_a_comment(run: Run) -> None:
    """As ``ALTER COLUMN ... COMMENT`` gives it one; NULL takes it away."""
    run("CREATE TABLE t (id INT, v STRING)")
    run("COMMENT ON COLUMN shop.t.v IS 'what it is'")
    assert run("DESCRIBE t") == [("id", "INT", None), ("v", "STRING", "what it is")]
    run("COMMENT ON COLUMN t.v IS NULL")
    assert run("DESCRIBE t") == [("id", "INT", None), ("v", "STRING", None)]
    with pytest.raises(InvalidInputError, match="nothing"):
        run("COMMENT ON COLUMN t.nothing IS 'x'")


@pytest.mark.parametrize("statistics", ["truncate(16)", "none"])
def test_watermark_of_old_and_new_files(run: Run, sql_session: SqlSession, statistics: str) -> None:
    """FL-45."""
    run(ORDERS.replace("'bucket' = '2'", f"'bucket' = '2', 'metadata.stats-mode' = '{statistics}'"))
    run("ALTER TABLE orders ADD COLUMN at TIMESTAMP_LTZ(6); ALTER TABLE orders DROP WATERMARK")
    write_day(sql_session, "a", [1])
    run("ALTER TABLE orders ADD WATERMARK FOR at AS at + INTERVAL 1 DAY")
    write_day(
        sql_session, "a", [2], at=pa.array([datetime(2026, 1, 31, 23, 59, 59, 999999)], pa.timestamp("us", "UTC"))
    )
    write_day(sql_session, "b", [3], at=pa.array([None], pa.timestamp("us", "UTC")))
    assert dict(row[:2] for row in run("DESCRIBE EXTENDED orders"))["watermark"] == "2026-02-01 23:59:59.999"


def test_describe_a_partition_and_a_table_without_any(run: Run, sql_session: SqlSession) -> None:
    """FL-46..FL-52."""
    run(ORDERS)
    write_day(sql_session, "a", [1])
    root = sql_session.context.catalog.table("shop.orders").store.paths.root
    rows = {key: value for key, value, _ in run("DESCRIBE EXTENDED orders PARTITION (dt='a')")}
    (file,) = Path(root, "dt=a").glob("bucket-*/*.parquet")
    made = datetime.fromtimestamp(file.stat().st_mtime, tz=UTC).astimezone().replace(tzinfo=None)
    assert abs(datetime.fromisoformat(rows.pop("last-modified")) - made) < timedelta(seconds=60)
    assert rows == {
        "partition": "dt=a",
        "file.path": f"{root}/dt=a",
        "compacted": "false",
        "change-tracking": "true",
        "num-files": "1",
    }
    run("ALTER TABLE orders COMPACT")
    assert dict(row[:2] for row in run("DESCRIBE orders PARTITION (dt='a')"))["compacted"] == "true"
    run("CREATE TABLE flat (a INT)")
    names = [row[0] for row in run("DESCRIBE EXTENDED flat")]
    assert names[names.index("name") :] == [
        "name", "log.system", "log.kafka.bootstrap.servers", "log.retention", "log.kafka.topic", "file.path",
        "file.format", "bucket", "change-tracking", "last-modified", "compacted", "num-files",
    ]  # fmt: skip


def test_system_tables_are_described_as_tables_are(run: Run) -> None:
    run(ORDERS)
    assert ("tag_name", "STRING NOT NULL", None) in run("DESCRIBE orders$tags")
    assert run("DESCRIBE EXTENDED shop.orders$tags")[-1] == ("name", "fluvial.shop.orders$tags", None)
    assert dict(run("DESCRIBE orders$binlog amount"))["data_type"] == "ARRAY<DECIMAL(10, 2)>"
    assert run("SHOW COLUMNS IN orders$audit_log") == [(each,) for each in ("rowkind", "dt", "id", "amount", "ts")]
    assert ("table_name",) in run("SHOW COLUMNS IN sys.tables")
    for text in ("DESCRIBE orders$tags PARTITION (dt='a')", "DESCRIBE orders$tag", "SHOW COLUMNS IN orders$tag"):
        with pytest.raises(InvalidInputError, match=r"no partitions|did_you_mean=tags"):
            run(text)


def test_properties_hide_secrets(run: Run, sql_session: SqlSession) -> None:
    run("CREATE TABLE t (a INT) WITH ('bucket'='1')")
    path = sql_session.context.catalog.table("shop.t").store.paths.schema(0)
    store_options(path, {"log.kafka.sasl.password": "x"})
    assert ("log.kafka.sasl.password", "******") in run("SHOW TBLPROPERTIES t")
    assert run("SHOW TBLPROPERTIES t ('bucket')") == [("bucket", "1")]
    assert "'x'" not in run("SHOW CREATE TABLE t")[0][0]


@pytest.mark.broker
def test_a_table_with_a_log(broker: Broker, tmp_path: Path) -> None:
    """FL-17, FL-19, FL-37..FL-40, FL-84: topic and directory come and go with the table; renaming keeps the topic."""
    settings = {"log.kafka.bootstrap.servers": broker.bootstrap_servers}
    topics = LogTopics(KafkaProperties.parse({"bootstrap.servers": broker.bootstrap_servers}))
    session = SqlSession(
        SqlContext(catalog=Catalog(str(tmp_path)), open_spark=lambda: pytest.fail("no Spark"), settings=settings)
    )
    session.execute(
        "CREATE TABLE ddl_log (id INT PRIMARY KEY NOT ENFORCED, a INT) WITH ('bucket'='3', 'log.retention'='3 d')"
    )
    described = session.execute("DESC EXTENDED ddl_log")[0].table
    assert described is not None
    rows = dict(zip(described["col_name"].to_pylist(), described["data_type"].to_pylist(), strict=True))
    assert (rows["log.system"], rows["log.retention"], rows["log.kafka.topic"]) == ("kafka", "3 d", "default.ddl_log")
    assert rows["log.kafka.bootstrap.servers"] == broker.bootstrap_servers
    assert topics.describe_topic("default.ddl_log").bucket_count == 3
    with pytest.raises(InvalidInputError, match="while the table has a log"):
        session.execute("ALTER TABLE ddl_log SET ('bucket'='4')")
    session.execute("ALTER TABLE ddl_log SET ('log.retention'='1 h'); ALTER TABLE ddl_log RENAME TO moved")
    eventually(lambda: topics.own_config("default.ddl_log")["retention.ms"], "3600000")
    moved = session.context.catalog.table("default.moved")
    moved.write(pa.table({"id": [1], "a": [1]}))
    assert moved.log_end_offsets() != {0: 0, 1: 0, 2: 0}
    session.execute("CREATE OR REPLACE TABLE moved (id INT PRIMARY KEY NOT ENFORCED)")
    assert topics.find_topic("default.ddl_log") is None
    topic = session.context.catalog.table("default.moved").options.log_topic
    assert topic is not None
    assert topics.find_topic(topic) is not None
    session.execute("ALTER TABLE moved SET ('change-tracking'='false'); DROP TABLE moved")
    assert topics.find_topic(topic) is None
