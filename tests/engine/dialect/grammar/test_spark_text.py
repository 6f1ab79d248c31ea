"""What a text of Spark's has of Fluvial's grammar is said in Spark's words."""

import pytest

from engine.dialect.grammar.places import OwnSyntaxError
from engine.dialect.grammar.spark_text import in_sparks_words

HINT = "/*+ OPTIONS('scan.snapshot-id'='1') */"
CLAUSE = "WITH ('scan.snapshot-id' = '1')"
STARTS = [
    "CREATE OR REPLACE TEMP VIEW v AS",
    "CREATE GLOBAL TEMPORARY VIEW v (id COMMENT 'x') AS",
    "CREATE VIEW spark_catalog.a.v AS",
    "CREATE TEMPORARY FUNCTION f() RETURNS TABLE (id INT) RETURN",
    "CACHE TABLE c AS",
    "CACHE LAZY TABLE c OPTIONS ('storageLevel' = 'DISK_ONLY')",
    "EXPLAIN FORMATTED CREATE TEMPORARY VIEW v AS",
    "BEGIN DECLARE x INT; SELECT 1;",
]


def squeezed(text: str) -> str:
    return " ".join(text.replace(",", " , ").replace(")", " ) ").split())


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    ("given", "for_spark"),
    [
        ("SELECT * FROM t {hint} WHERE a", "SELECT * FROM t {clause} WHERE a"),
        ("TABLE `t` {hint}", "TABLE `t` {clause}"),
        ("SELECT 1 FROM t {hint} x, db.`u$branch_b` {hint}", "SELECT 1 FROM t {clause} x, db.`u$branch_b` {clause}"),
        ("SELECT * FROM t {hint} VERSION AS OF 1 WHERE a", "SELECT * FROM t VERSION AS OF 1 {clause} WHERE a"),
        ("SELECT * FROM t VERSION AS OF 'a b' {hint} x", "SELECT * FROM t VERSION AS OF 'a b' {clause} x"),
        ("SELECT * FROM t FOR VERSION AS OF b-1.t-1 {hint}", "SELECT * FROM t FOR VERSION AS OF 'b-1.t-1' {clause}"),
        ("TABLE t TIMESTAMP AS OF '2026-01-01' {hint}", "TABLE t TIMESTAMP AS OF '2026-01-01' {clause}"),
        ("FROM a JOIN t VERSION AS OF eod USING (id)", "FROM a JOIN t VERSION AS OF 'eod' USING (id)"),
        ("SELECT * FROM t SYSTEM_VERSION AS OF 2026-11-30", "SELECT * FROM t SYSTEM_VERSION AS OF '2026-11-30'"),
        ("WITH q AS (TABLE t {hint}) SELECT * FROM q", "WITH q AS (TABLE t {clause}) SELECT * FROM q"),
        ("SELECT (SELECT x FROM t VERSION AS OF a) FROM s", "SELECT (SELECT x FROM t VERSION AS OF 'a') FROM s"),
        ("SELECT * FROM t -- {hint}\n", "SELECT * FROM t -- {hint}\n"),
        ("SELECT '{hint}' AS version", "SELECT '{hint}' AS version"),
        ("SELECT a, version AS of FROM t", "SELECT a, version AS of FROM t"),
        ("SELECT /*+ BROADCAST(t) */ a AS version FROM t", "SELECT /*+ BROADCAST(t) */ a AS version FROM t"),
    ],
)  # fmt: skip
def test_a_table_of_a_kept_text_says_options_and_versions_in_sparks_words(
    start: str, given: str, for_spark: str
) -> None:
    hint = HINT.replace("'", '"') if "'{hint}'" in given else HINT
    texts = [f"{start} {each.format(hint=hint, clause=CLAUSE)}" for each in (given, for_spark)]
    assert squeezed(in_sparks_words(texts[0])) == squeezed(texts[1])
    assert in_sparks_words(in_sparks_words(texts[0])) == in_sparks_words(texts[0])


@pytest.mark.parametrize(
    ("given", "for_spark"),
    [
        ("SELECT * FROM STREAM t {hint} WHERE a", "SELECT * FROM STREAM t {clause} WHERE a"),
        ("SELECT * FROM STREAM(c.db.t) {hint} x", "SELECT * FROM STREAM(c.db.t) {clause} x"),
        ("SELECT * FROM STREAM `t` {hint} {hint}", "SELECT * FROM STREAM `t` {clause}"),
        ("SELECT * FROM t {hint} JOIN STREAM db.s {hint}", "SELECT * FROM t {hint} JOIN STREAM db.s {clause}"),
        ("BEGIN INSERT INTO {hint} TABLE t SELECT 1; END", "BEGIN INSERT INTO TABLE t {clause} SELECT 1; END"),
        ("BEGIN INSERT OVERWRITE {hint} db.t VALUES (1); END", "BEGIN INSERT OVERWRITE db.t {clause} VALUES (1); END"),
        ("BEGIN INSERT INTO {hint} t {hint} VALUES (1); END", "BEGIN INSERT INTO t {clause} VALUES (1); END"),
        ("INSERT INTO {hint} t {hint} VALUES (1)", "INSERT INTO {hint} t {hint} VALUES (1)"),
        ("SELECT * FROM t {hint} VERSION AS OF a-1", "SELECT * FROM t {hint} VERSION AS OF a-1"),
        ("CALL sys.compact('t'); SELECT 1 AS version", "CALL sys.compact('t'); SELECT 1 AS version"),
    ],
)
def test_streams_and_scripts_are_sparks_and_other_statements_stay_as_they_are(given: str, for_spark: str) -> None:
    given, for_spark = (each.format(hint=HINT, clause=CLAUSE) for each in (given, for_spark))
    assert squeezed(in_sparks_words(given)) == squeezed(for_spark)


def test_options_are_quoted_for_spark() -> None:
    found = in_sparks_words("CACHE TABLE c AS SELECT * FROM t /*+ OPTIONS(a.b = 'it''s', \"c\" = 3, 'd' = 'e\\\\f') */")
    assert found.rstrip().endswith(r"WITH ('a.b' = 'it\'s', 'c' = '3', 'd' = 'e\\f')")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("CREATE TEMP VIEW v AS SELECT {hint} * FROM t", "no table takes this hint"),
        ("CREATE TEMP VIEW v AS SELECT * FROM t x {hint}", "no table takes this hint"),
        ("CREATE TEMP VIEW v AS SELECT * FROM (SELECT 1) {hint}", "no table takes this hint"),
        ("CACHE TABLE t {hint}", None),
        ("BEGIN CALL sys.compact('t') {hint}; END", "no table takes this hint"),
        ("CACHE TABLE c AS SELECT * FROM t {hint} /*+ OPTIONS('scan.snapshot-id'='2') */", "given twice"),
        ("CACHE TABLE c AS SELECT * FROM t /*+ OPTIONS() */", "expected an option's name"),
    ],
)
def test_a_hint_that_no_table_of_a_kept_text_takes_is_refused(text: str, problem: str | None) -> None:
    text = text.format(hint=HINT)
    if problem is None:
        assert CLAUSE in in_sparks_words(text)  # Spark's parser knows no such place
        return
    with pytest.raises(OwnSyntaxError, match=problem) as caught:
        in_sparks_words(text)
    assert "/*+" in str(caught.value)
