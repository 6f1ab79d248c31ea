"""Texts as statements: what is ours, what is Spark's, and errors that point at the place."""

import logging
from dataclasses import replace

import pytest
from sqlglot import exp

from engine.dialect.grammar.dialect import MAX_STATEMENT_CHARACTERS, MAX_STATEMENT_WORDS, table_options, table_span
from engine.dialect.grammar.parser import Call, Explain, SparkStatement, ends_statement, parse_statements
from engine.dialect.grammar.places import OwnSyntaxError
from engine.dialect.grammar.statements import (
    AlterTable,
    CompactTable,
    CreateTable,
    DescribeTable,
    DropPartitions,
    SetSetting,
    ShowTables,
)
from engine.dialect.grammar.type_grammar import parse_type
from filestore.evolution.schema_change import (
    AddColumn,
    ChangeComment,
    ChangeNullability,
    ChangeType,
    DropColumn,
    MoveColumn,
    RemoveOption,
    RenameColumn,
    SetComment,
    SetOption,
)
from filestore.schema.column_paths import ColumnPosition
from filestore.types.data_types import STRING, DataType
from lsm.errors import InvalidInputError

INT, BIGINT = DataType(root="INT"), DataType(root="BIGINT")


def tree_of(text: str) -> object:
    (statement,) = parse_statements(text)
    return statement.tree


def types_of(columns: str) -> list[str]:
    tree = tree_of(f"CREATE TABLE t ({columns})")
    assert isinstance(tree, CreateTable)
    return [str(field.type) for field in tree.fields]


def test_statements_know_their_text_and_place() -> None:
    text = "SELECT ';' -- not here;\n;; /* ; */ USE `a;b` ;\n"
    assert [(each.text, text[each.start :][: len(each.text)]) for each in parse_statements(text)] == [
        ("SELECT ';'", "SELECT ';'"),
        ("USE `a;b`", "USE `a;b`"),
    ]
    assert parse_statements(" -- nothing\n;") == []


@pytest.mark.parametrize(
    ("text", "ends"),
    [("SELECT 1", False), ("SELECT 1;", True), ("SELECT ';", False), ("SELECT 1 -- ;", False), (" ", True)],
)
def test_where_a_statement_that_is_typed_ends(text: str, ends: bool) -> None:
    assert ends_statement(text) is ends


@pytest.mark.parametrize(
    ("table", "options"),
    [
        ("t", {}),
        ("fluvial.shop.t$snapshots", {}),
        ("`shop`.`t$files`", {}),
        ("t /*+ OPTIONS('scan.snapshot-id'='3', 'a.b'='c') */", {"scan.snapshot-id": "3", "a.b": "c"}),
        ("t WITH (`scan.mode` = 'latest', bucket = 3, write-only true)", {
            "scan.mode": "latest", "bucket": "3", "write-only": "true",
        }),
        ("t VERSION AS OF 3", {}),
        ("t VERSION AS OF branch-1.tag-1", {}),
        ("t FOR VERSION AS OF branch-1.3 /*+ OPTIONS('k'='v') */", {"k": "v"}),
        ("t FOR SYSTEM_TIME AS OF '2026-01-01'", {}),
        ("t VERSION AS OF 'tag' WITH (k = 'v')", {"k": "v"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "around", ["SELECT * FROM {} AS x WHERE a = 1", "SELECT (SELECT max(a) FROM {}) FROM u", "TABLE {}"]
)
def test_tables_of_queries_keep_place_and_options(table: str, options: dict[str, str], around: str) -> None:
    text = around.format(table)
    tree = tree_of(text)
    assert isinstance(tree, exp.Expr)
    found = {text[slice(*table_span(each))]: table_options(each) for each in tree.find_all(exp.Table)}
    assert found[table] == options


def test_hints_of_queries_are_no_tables() -> None:
    tree = tree_of("SELECT /*+ BROADCAST(a) */ * FROM a JOIN b ON a.x = b.x")
    assert isinstance(tree, exp.Expr)
    assert sorted(each.name for each in tree.find_all(exp.Table)) == ["a", "b"]


def test_changes_of_rows_are_trees_too() -> None:
    insert = tree_of(
        "INSERT OVERWRITE t /*+ OPTIONS('change-tracking'='false') */ PARTITION (dt='x', h) (a, b) SELECT 1, 2, 3"
    )
    assert isinstance(insert, exp.Insert)
    assert table_options(next(insert.find_all(exp.Table))) == {"change-tracking": "false"}
    merge = "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    assert isinstance(tree_of(merge), exp.Merge)
    assert isinstance(tree_of("WITH s AS (SELECT 1) INSERT INTO t SELECT * FROM s"), exp.Insert)


def test_explain_and_call() -> None:
    explain = tree_of("EXPLAIN FORMATTED SELECT 1")
    assert isinstance(explain, Explain)
    assert (explain.mode, explain.inner.text, explain.inner.start) == ("FORMATTED", "SELECT 1", 18)
    text = "CALL sys.compact(`table` => 'db.t', -1, full => true)"
    call = tree_of(text)
    assert isinstance(call, Call)
    assert call.procedure == ("sys", "compact")
    assert [(each.name, text[each.start : each.stop]) for each in call.arguments] == [
        ("table", "`table` => 'db.t'"),
        (None, "-1"),
        ("full", "full => true"),
    ]


def test_types_in_the_spelling_of_spark_and_flink() -> None:
    """FL-05, FL-09."""
    assert types_of(
        "a BYTE, b SHORT, c INTEGER, d LONG, e REAL, f DOUBLE PRECISION, g DEC(10, 2), h NUMERIC, i BOOLEAN, j STRING, "
        "k CHAR(3), l VARCHAR(10), m CHARACTER VARYING(7), n BINARY, o BINARY(4), p VARBINARY(5), q BYTES, r DATE, "
        "s TIME"
    ) == [
        "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(10, 0)", "BOOLEAN",
        "STRING", "CHAR(3)", "VARCHAR(10)", "VARCHAR(7)", "BYTES", "BINARY(4)", "VARBINARY(5)", "BYTES", "DATE",
        "TIME(3)",
    ]  # fmt: skip
    assert types_of(
        "a TIMESTAMP, b TIMESTAMP(3), c TIMESTAMP_LTZ(3), d TIMESTAMP_NTZ, e TIMESTAMP(9) WITH LOCAL TIME ZONE, "
        "f TIMESTAMP WITHOUT TIME ZONE"
    ) == [
        "TIMESTAMP(6) WITH LOCAL TIME ZONE", "TIMESTAMP(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6)",
        "TIMESTAMP(9) WITH LOCAL TIME ZONE", "TIMESTAMP(6)",
    ]  # fmt: skip
    assert types_of(
        "a ARRAY<INT NOT NULL>, b MAP<STRING, ARRAY<DATE>>, c STRUCT<x: INT, `y z` STRING NOT NULL COMMENT 'c'>, "
        "d ROW(x INT, y ROW<z INT>) NOT NULL, e MULTISET<STRING>, f INT ARRAY"
    ) == [
        "ARRAY<INT NOT NULL>", "MAP<STRING NOT NULL, ARRAY<DATE>>", "ROW<x INT, y z STRING NOT NULL>",
        "ROW<x INT, y ROW<z INT>> NOT NULL", "MULTISET<STRING>", "ARRAY<INT>",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "in_statement", "in_schema"),
    [
        ("TIMESTAMP", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "TIMESTAMP(6)"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        ("TIMESTAMP WITHOUT TIME ZONE", "TIMESTAMP(6)", "TIMESTAMP(6)"),
        ("TIME", "TIME(3)", "TIME(0)"),
        ("BINARY", "BYTES", "BINARY(1)"),
        ("MAP<STRING, ROW<`a b` DECIMAL(10, 2), c CHAR(3) NOT NULL>> NOT NULL", None, None),
        ("struct<a: int, b: array<double precision>>", None, None),
    ],
)
def test_a_type_of_a_job_file_is_read_as_that_of_a_statement_but_for_names_alone(
    text: str, in_statement: str | None, in_schema: str | None
) -> None:
    (statement,) = types_of(f"a {text}")
    if in_statement is None:
        assert str(parse_type(text)) == statement
    else:
        assert (statement, str(parse_type(text))) == (in_statement, in_schema)


@pytest.mark.parametrize("text", ["", "INTT", "ARRAY<INT", "ROW<a>", "DECIMAL(39, 0)", "INT INT", "VARIANT(1)"])
def test_what_is_no_type_is_refused_with_the_place(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"line=1 column=\d+"):
        parse_type(text)


def test_everything_that_create_table_may_say() -> None:
    """FL-07..FL-16."""
    tree = tree_of(
        "CREATE TABLE IF NOT EXISTS fluvial.shop.t (id BIGINT NOT NULL COMMENT 'k', ts TIMESTAMP(3), n INT DEFAULT -1, "
        "total AS n * 2 COMMENT 'c', WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, "
        "CONSTRAINT pk PRIMARY KEY (dt, id) NOT ENFORCED) USING fluvial COMMENT 'things' PARTITIONED BY (dt STRING) "
        "WITH ('bucket' = '4') TBLPROPERTIES (file.format = orc) AS SELECT * FROM s"
    )
    assert isinstance(tree, CreateTable)
    assert (tree.name, tree.if_not_exists) == (("fluvial", "shop", "t"), True)
    assert [(each.name, each.description, each.default_value) for each in tree.fields] == [
        ("id", "k", None), ("ts", None, None), ("n", None, "-1"), ("dt", None, None),
    ]  # fmt: skip
    assert [(each.name, each.expression, each.comment) for each in tree.computed] == [("total", "n * 2", "c")]
    assert tree.watermark is not None
    assert tree.watermark.expression == "ts - INTERVAL '5' SECOND"
    assert (tree.primary_key, tree.partition_by, tree.comment) == (("dt", "id"), ("dt",), "things")
    assert tree.options == {"bucket": "4", "file.format": "orc"}
    assert tree.query is not None
    assert tree.query.text == "SELECT * FROM s"


def test_keys_and_computed_columns_beside_the_column() -> None:
    """FL-10, FL-12."""
    tree = tree_of(
        "CREATE TABLE t (a INT CONSTRAINT c PRIMARY KEY NOT ENFORCED, b INT GENERATED ALWAYS AS (a + 1)) "
        "CLUSTERED BY (a) INTO 3 BUCKETS"
    )
    assert isinstance(tree, CreateTable)
    assert (tree.primary_key, tree.options) == (("a",), {"bucket-key": "a", "bucket": "3"})
    assert [(each.name, each.expression) for each in tree.computed] == [("b", "(a + 1)")]


ALTERS = {
    "SET TBLPROPERTIES ('a' = 'b', 'comment' = 'c')": [SetOption("a", "b"), SetComment("c")],
    "SET ('change-tracking'='false')": [SetOption("change-tracking", "false")],
    "UNSET TBLPROPERTIES IF EXISTS ('a', comment)": [RemoveOption("a"), SetComment(None)],
    "RESET ('a')": [RemoveOption("a")],
    "RENAME COLUMN s.a TO b": [RenameColumn(("s", "a"), "b")],
    "RENAME a TO b": [RenameColumn(("a",), "b")],
    "ADD COLUMN a INT COMMENT 'x' FIRST": [AddColumn(path=("a",), type=INT, comment="x", position=ColumnPosition())],
    "ADD COLUMNS (a INT, s.b STRING AFTER `c d`)": [
        AddColumn(path=("a",), type=INT), AddColumn(path=("s", "b"), type=STRING, position=ColumnPosition("c d")),
    ],
    "ADD (a INT DEFAULT 5)": [AddColumn(path=("a",), type=INT, default="5")],
    "DROP COLUMNS (a, s.b)": [DropColumn(("a",)), DropColumn(("s", "b"))],
    "DROP a": [DropColumn(("a",))],
    "ALTER COLUMN a TYPE BIGINT, b COMMENT 'x', c FIRST, d SET NOT NULL, e DROP NOT NULL": [
        ChangeType(("a",), BIGINT), ChangeComment(("b",), "x"), MoveColumn(("c",), ColumnPosition()),
        ChangeNullability(("d",), False), ChangeNullability(("e",), True),
    ],
    "CHANGE COLUMN a b BIGINT COMMENT 'x' AFTER c": [
        RenameColumn(("a",), "b"), ChangeType(("b",), BIGINT), ChangeComment(("b",), "x"),
        MoveColumn(("b",), ColumnPosition("c")),
    ],
    "CHANGE a TYPE BIGINT": [ChangeType(("a",), BIGINT)],
    "MODIFY a BIGINT NOT NULL": [
        ChangeType(("a",), replace(BIGINT, nullable=False)), ChangeNullability(("a",), False),
    ],
    "ADD WATERMARK FOR ts AS ts": [SetOption("watermark.column", "ts"), SetOption("watermark.expression", "ts")],
}  # fmt: skip


@pytest.mark.parametrize(("action", "changes"), ALTERS.items(), ids=ALTERS.keys())
def test_alter_table(action: str, changes: list[object]) -> None:
    """FL-22."""
    tree = tree_of(f"ALTER TABLE IF EXISTS shop.t {action}")
    assert isinstance(tree, AlterTable)
    assert (tree.name, tree.if_exists, list(tree.changes)) == (("shop", "t"), True, changes)


def test_partitions_hold_values_as_text() -> None:
    """FL-20."""
    compact = tree_of("ALTER TABLE t PARTITION (dt = DATE '2026-01-31', hour = 7, x = NULL) COMPACT")
    assert isinstance(compact, CompactTable)
    assert compact.partition == {"dt": "2026-01-31", "hour": "7", "x": None}
    dropped = tree_of("ALTER TABLE t DROP IF EXISTS PARTITION (dt='a'), PARTITION (dt='b') PURGE")
    assert isinstance(dropped, DropPartitions)
    assert dropped.partitions == ({"dt": "a"}, {"dt": "b"})


@pytest.mark.parametrize(
    "text", ["DESCRIBE EXTENDED t", "DESC TABLE EXTENDED t", "DESCRIBE TABLE FORMATTED t", "DESCRIBE DETAIL TABLE t"]
)
def test_describe_in_all_its_words(text: str) -> None:
    """FL-35."""
    tree = tree_of(text)
    assert isinstance(tree, DescribeTable)
    assert (tree.name, tree.extended, tree.partition, tree.column) == (("t",), True, None, ())


@pytest.mark.parametrize(
    "text",
    ["SET table-storage.bucket = 10", "SET `table-storage.bucket` = '10'", "set 'table-storage.bucket'='10'",
     "SET table-storage.bucket=10"],
)  # fmt: skip
def test_settings_in_all_their_quotes(text: str) -> None:
    """FL-83."""
    assert tree_of(text) == SetSetting(key="table-storage.bucket", value="10")


def test_values_of_settings_go_to_the_end() -> None:
    tree = tree_of("SET table-storage.log.kafka.bootstrap.servers = a:1,b:2")
    assert tree == SetSetting(key="table-storage.log.kafka.bootstrap.servers", value="a:1,b:2")


@pytest.mark.parametrize(
    "text",
    ["SET spark.sql.ansi.enabled = true", "SET TIME ZONE 'UTC'", "CACHE TABLE x", "CREATE TEMPORARY VIEW v AS SELECT 1",
     "CREATE TABLE t USING parquet AS SELECT 1", "CREATE EXTERNAL TABLE t (a INT) STORED AS PARQUET LOCATION '/x'",
     "CREATE TABLE t (a INT) USING delta CLUSTER BY (a)", "DROP VIEW v", "SHOW FUNCTIONS",
     "MSCK REPAIR TABLE t", "ANALYZE TABLE t COMPUTE STATISTICS NOSCAN",
     "REFRESH TABLE x", "ALTER VIEW v AS SELECT 1", "DESCRIBE FUNCTION abs", "CREATE FUNCTION f AS 'x'"],
)  # fmt: skip
def test_what_is_sparks_goes_to_spark(text: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert isinstance(tree_of(text), SparkStatement)
    assert not caplog.records


MISTAKES = {
    "SELEC 1": (1, 1, "did_you_mean=SELECT"),
    "SELECT *\nFROM t\nWHERE": (3, 6, "something is missing"),
    "SELECT a FROM t GROUP a": (1, 23, "cannot stand here"),
    "SELECT 'abc": (1, 8, "not closed"),
    "SELECT 1;\nSHOW TABLES IN": (2, 15, "name of a database"),
    "CREATE TABLE t (a INT,\n  b FOO)": (2, 5, "unknown type"),
    "CREATE TABLE t (a VARCHAR)": (1, 19, "needs a length"),
    "CREATE TABLE t (a INT, a INT)": (1, 24, "there twice"),
    "CREATE TABLE t (a INT": (1, 22, "expected )"),
    "CREATE TABLE t (a INT) PARTITIONED BY (days(a))": (1, 44, "not functions"),
    "CREATE TABLE t (a INT, PRIMARY KEY (a) ENFORCED)": (1, 40, "NOT ENFORCED"),
    "CREATE TABLE t (a INT PRIMARY KEY NOT ENFORCED, PRIMARY KEY (a) NOT ENFORCED)": (1, 14, "one primary key"),
    "CREATE TABLE t (a INT) LOCATION /x": (1, 33, "expected"),
    "CREATE TABLE t (a INT) WITH ('k'='v', 'k'='w')": (1, 39, "given twice"),
    "CREATE TABLE t (a INT) WITH ('k' = )": (1, 36, "expected a value"),
    "CREATE TABLE t AS": (1, 18, "expected a query"),
    "CREATE DATABASE d COMMENT 'x'": (1, 19, "not stored"),
    "ALTER TABLE t FROBNICATE": (1, 15, "expected what to change"),
    "ALTER TABLE t ADD PRIMARY KEY (a)": (1, 19, "never changes"),
    "ALTER TABLE t ADD PARTITION (dt='x')": (1, 19, "comes with its first row"),
    "ALTER TABLE t DROP PARTITION (dt)": (1, 33, "needs values"),
    "DESCRIBE t PARTITION (dt > 1)": (1, 26, "expected ="),
    "SELECT * FROM t /*+ OPTION('a'='b') */": (1, 21, "expected OPTIONS"),
    "SELECT * FROM t WITH (a)": (1, 24, "expected a value"),
    "CALL sys.compact(x =>)": (1, 22, "expected an expression"),
    "EXPLAIN": (1, 8, "statement to explain"),
    "EXPLAIN SELECT 1 FROM": (1, 22, "expected table name"),
    "DROP TEMPORARY TABLE IF EXISTS t": (1, 6, "DROP VIEW a temporary view"),
    "CREATE CATALOG c WITH ('type' = 'paimon')": (1, 8, "fluvial.install"),
    "REFRESH TABLE t /*+ OPTIONS('a'='b') */": (1, 17, "no table takes this hint"),
    "UNCACHE TABLE /*+ OPTIONS('a'='b') */ t": (1, 15, "no table takes this hint"),
    "DROP TABLE a b": (1, 14, "end of the statement"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), MISTAKES.items(), ids=MISTAKES.keys())
def test_mistakes_are_shown_where_they_are(text: str, expected: tuple[int, int, str]) -> None:
    line, column, words = expected
    with pytest.raises(InvalidInputError) as caught:
        parse_statements(text)
    message = str(caught.value)
    assert f"line={line} column={column} " in message
    assert words in message
    _, excerpt, carets = message.rsplit("\n", 2)
    assert carets.index("^") == column + 1  # two blanks before both
    assert excerpt.strip() == text.split("\n")[line - 1].strip()


def test_long_lines_are_cut_around_the_mistake() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_statements(
            "SELECT " + ", ".join(f"column_{n}" for n in range(100)) + " FROM t WHERE a == == 1" + " " * 300
        )
    _, excerpt, carets = str(caught.value).rsplit("\n", 2)
    assert excerpt[carets.index("^") :].startswith("==")
    assert len(excerpt) < 130


def test_the_earlier_spelling_of_system_tables_is_answered_with_todays() -> None:
    """TAG-40"""
    for text in ("SELECT * FROM d.t#tags", "DESCRIBE d.t#tags", "INSERT INTO d.u SELECT tag_name FROM t#tags"):
        with pytest.raises(OwnSyntaxError, match=r"a system table is named with another sign: write='t\$tags'"):
            parse_statements(text)
    assert parse_statements("SET spark.a = b#c; SELECT '#', `t#tags` FROM d.t -- t#tags")


def test_show_tables() -> None:
    assert tree_of("SHOW TABLES FROM shop LIKE 'a*'") == ShowTables(database=("shop",), pattern="a*")


@pytest.mark.sweep
def test_a_statement_that_would_take_seconds_to_read_is_refused_with_the_way_out() -> None:
    """IN lists of 200,000 values took four seconds here, and again in Spark."""
    for count, size in (
        (MAX_STATEMENT_WORDS, f"words={2 * MAX_STATEMENT_WORDS + 9} "),
        (MAX_STATEMENT_CHARACTERS // 2, "characters="),
    ):
        text = f"DELETE FROM d.t WHERE id IN ({', '.join(['1'] * count)})"
        with pytest.raises(InvalidInputError, match=rf"statement is too long: {size}.* fix=.put the values"):
            parse_statements(text)
    few = f"DELETE FROM d.t WHERE id IN ({', '.join(['1'] * 1000)})"
    assert len(parse_statements(few)) == 1
