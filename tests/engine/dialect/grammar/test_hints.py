"""A hint of options is taken by a table, or the statement is refused: at every place of every statement."""

import pytest
from sqlglot import exp

from engine.dialect.grammar.dialect import table_options, tokens_of
from engine.dialect.grammar.parser import Explain, SparkStatement, parse_statements
from engine.dialect.grammar.places import OwnSyntaxError, SourceText
from engine.dialect.grammar.statements import CreateTable, Statement
from lsm.errors import InvalidInputError

HINT = "/*+ OPTIONS('change-tracking' = 'false') */"
GIVEN = {"change-tracking": "false"}

TAKEN = [
    "INSERT INTO {} t {} VALUES (1, 2)",
    "INSERT OVERWRITE {} t {} VALUES (1, 2)",
    "INSERT INTO {} TABLE t {} VALUES (1, 2)",
    "INSERT OVERWRITE {} TABLE t {} PARTITION (a = 1) SELECT b FROM s {}",
    "INSERT INTO {} fluvial.db.t {} (a, b) VALUES (1, (SELECT max(x) FROM s {}))",
    "INSERT INTO {} `t` {} BY NAME SELECT 1 AS a, 2 AS b",
    "WITH s AS (SELECT 1 FROM u {}) INSERT INTO {} t {} SELECT * FROM s {}",
    "UPDATE t {} SET v = 1 WHERE id IN (SELECT id FROM s {})",
    "UPDATE db.t {} AS x SET v = 1, w = DEFAULT WHERE x.id = 2",
    "DELETE FROM t {} WHERE id = 1 AND EXISTS (SELECT 1 FROM s {})",
    "DELETE FROM t {}",
    "MERGE INTO t {} AS a USING s {} AS b ON a.id = b.id WHEN MATCHED AND a.v > 1 THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET v = b.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (b.id, 1)",
    "MERGE INTO t {} USING (SELECT * FROM s {}) b ON t.id = b.id WHEN NOT MATCHED THEN INSERT *",
    "SELECT DISTINCT id, v FROM t {} x JOIN s {} y ON x.id = y.id WHERE x.v = 1 GROUP BY 1 ORDER BY 2 LIMIT 3",
    "SELECT * FROM t {} VERSION AS OF 3 {} UNION ALL SELECT * FROM s {}",
    "SELECT a.* FROM t {} TIMESTAMP AS OF '2026-01-01' {} AS a LATERAL VIEW explode(x) y AS z",
    "FROM t {} SELECT id",
    "TABLE t {}",
    "CREATE TABLE c WITH ('bucket' = '1') AS SELECT * FROM t {}",
    "CREATE OR REPLACE TABLE c (PRIMARY KEY (id) NOT ENFORCED) AS SELECT id FROM t {} WHERE id > 1",
    "EXPLAIN FORMATTED SELECT * FROM t {} WHERE a = 1",
    "EXPLAIN INSERT INTO {} t {} SELECT 1, 2",
]  # with the places where a table takes the hint
NOT_TAKEN = [
    "CALL sys.compact(table => 'db.t', full => true)",
    "CALL fluvial.sys.create_tag('db.t', 'a')",
    "CREATE TABLE c (id BIGINT NOT NULL, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1')",
    "CREATE TABLE c LIKE t",
    "ALTER TABLE t SET ('bucket' = '1')",
    "ALTER TABLE t ADD COLUMN c INT",
    "ALTER TABLE t COMPACT",
    "ALTER TABLE t DROP PARTITION (a = 1)",
    "DROP TABLE IF EXISTS t",
    "TRUNCATE TABLE t",
    "DESCRIBE EXTENDED t",
    "DESCRIBE HISTORY t LIMIT 3",
    "SHOW TABLES IN db LIKE 'a*'",
    "SHOW CREATE TABLE t",
    "ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS a",
    "COMMENT ON TABLE t IS 'x'",
    "USE db",
    "RESET table-storage.bucket",
    "SET table-storage.bucket = 3",
    "SET table-storage.bucket",
    "VALUES (1, 2)",
]  # no table takes one


def gaps(text: str) -> list[int]:
    """The ends of a text's words, and its start: everywhere a hint can stand."""
    return [0, *(each.end + 1 for each in tokens_of(SourceText.of(text)))]


def with_hint(text: str, at: int, hint: str = HINT) -> str:
    return f"{text[:at]} {hint} {text[at:]}"


def taken(statement: Statement) -> list[dict[str, str]]:
    """The options of all tables of a statement."""
    tree = statement.tree
    if isinstance(tree, Explain):
        return taken(tree.inner)
    if isinstance(tree, CreateTable):
        return [] if tree.query is None else taken(tree.query)
    found = tree.find_all(exp.Table) if isinstance(tree, exp.Expr) else ()
    return [dict(table_options(each)) for each in found if table_options(each)]


def how_it_ends(text: str) -> list[dict[str, str]] | None:
    """The options that a text's tables took; None: it is refused, by Fluvial or by Spark."""
    try:
        (statement,) = parse_statements(text)
    except InvalidInputError:
        return None
    if isinstance(statement.tree, SparkStatement):
        assert HINT in statement.text  # and Spark's parser knows no such place
        return None
    return taken(statement)


@pytest.mark.parametrize("marked", TAKEN + NOT_TAKEN)
def test_a_hint_is_taken_at_the_places_of_tables_and_refused_at_all_others(marked: str) -> None:
    pieces = marked.split("{}")
    text = "".join(pieces)
    places = {len("".join(pieces[: index + 1]).rstrip()) for index in range(len(pieces) - 1)}
    assert taken(parse_statements(text)[0]) == []
    found = {at: how_it_ends(with_hint(text, at)) for at in gaps(text)}
    assert found == {at: [GIVEN] if at in places else None for at in gaps(text)}


@pytest.mark.parametrize(
    "text",
    [
        "INSERT {} INTO t VALUES (1, 2)",
        "INSERT INTO TABLE {} t VALUES (1, 2)",
        "INSERT INTO t (a, b) {} VALUES (1, 2)",
        "INSERT INTO t VALUES (1, 2) {}",
        "{} INSERT INTO t VALUES (1, 2)",
        "{}",
        "UPDATE {} t SET v = 1",
        "DELETE {} FROM t",
        "DELETE FROM {} t",
        "MERGE {} INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "SELECT {} * FROM t",
        "SELECT /*+ BROADCAST(t), OPTIONS ('a' = 'b') */ * FROM t",
        "SELECT /*+ options('a' = 'b') */ * FROM t",
        "SELECT * FROM {} t",
        "SELECT * FROM t x {}",
    ],
)
def test_who_writes_a_hint_elsewhere_learns_where_it_goes(text: str) -> None:
    """Also in Spark's own SQL, whose parser would point at ``/*+`` and say no more."""
    with pytest.raises(OwnSyntaxError, match="fix='write it behind the name of its table") as caught:
        parse_statements(text.replace("{}", HINT))
    assert "/*+" in str(caught.value).splitlines()[1]


TWICE = [
    "INSERT INTO {} t {} VALUES (1)",
    "INSERT INTO {} {} TABLE t VALUES (1)",
    "SELECT * FROM t {} VERSION AS OF 1 {}",
    "SELECT * FROM t {} {} x",
    "UPDATE t {} -- {}\n {} SET v = 1",
]


@pytest.mark.parametrize("text", TWICE)
def test_two_hints_of_a_table_add_up_unless_they_differ(text: str) -> None:
    first, second, other = (f"/*+ OPTIONS({pair}) */" for pair in ("'a'='1'", "'b'='2', 'a'='1'", "'a'='2'"))
    text = text.replace("-- {}", "-- c")
    (statement,) = parse_statements(text.format(first, second))
    assert taken(statement) == [{"a": "1", "b": "2"}]
    with pytest.raises(OwnSyntaxError, match="given twice with different values: option=a"):
        parse_statements(text.format(first, other))


def test_other_hints_and_comments_are_as_they_were() -> None:
    text = (
        "SELECT /*+ BROADCAST(t) */ * /* OPTIONS('a'='1') */ FROM t -- /*+ OPTIONS('a'='1') */\n WHERE v = '/*+ x */'"
    )
    (statement,) = parse_statements(text)
    assert taken(statement) == []
    assert statement.text == text
