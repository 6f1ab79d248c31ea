"""SELECT over tables of Fluvial, beside the same text over plain views of Spark."""

import datetime as dt
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Table
from engine.dialect.query.query import BoundText
from engine.dialect.query.reads import ReadPlan, StatementReads
from lsm.errors import InvalidInputError
from tests.engine.dialect.conftest import Warehouse

pytestmark = pytest.mark.spark

SHAPES = """
SELECT * FROM t
select id, name from t where v > 3
SELECT t.id FROM t WHERE t.name = 'n1' AND id BETWEEN 5 AND 30
SELECT x.id, x.s.a, x.s.b FROM t AS x WHERE x.s.a >= 20
SELECT count(*) FROM t
SELECT count(*), count(v), count(DISTINCT name), sum(v) FROM t GROUP BY name ORDER BY 1, 2, 3, 4
WITH c AS (SELECT * FROM t WHERE id < 20) SELECT a.id, b.name FROM c a JOIN c b ON a.id = b.id + 1
WITH t AS (SELECT k AS id FROM u WHERE k < 3) SELECT * FROM t
WITH t AS (SELECT * FROM t WHERE id = 3), c AS (SELECT * FROM t) SELECT * FROM c UNION ALL SELECT * FROM t
WITH c(a, b) AS (SELECT k, label FROM u) SELECT b, max(a) FROM c GROUP BY b
SELECT * FROM (SELECT id, v AS w FROM (SELECT * FROM t WHERE v IS NOT NULL)) WHERE w < 5
SELECT id FROM t WHERE EXISTS (SELECT * FROM u WHERE u.k = t.id AND u.v = t.v)
SELECT id FROM t WHERE id NOT IN (SELECT k FROM u WHERE label = 'l1')
SELECT id, tag FROM t LATERAL VIEW explode(tags) e AS tag WHERE id > 8
SELECT id, row_number() OVER (PARTITION BY name ORDER BY id DESC) AS r FROM t
SELECT * FROM u PIVOT (max(k) AS m FOR label IN ('l0' AS zero, 'l2' AS two))
SELECT * FROM (SELECT k, v FROM u) UNPIVOT (amount FOR what IN (k, v))
SELECT * FROM u TABLESAMPLE (100 PERCENT)
SELECT u.k FROM u TABLESAMPLE (100 PERCENT) REPEATABLE (3) WHERE u.k > 3
SELECT id, v FROM t UNION SELECT k, v FROM u
SELECT id FROM t EXCEPT ALL SELECT k FROM u
(SELECT id FROM t WHERE id < 3) UNION ALL (SELECT k FROM u WHERE k > 27) ORDER BY 1 LIMIT 4
FROM t SELECT id, name WHERE id < 9
FROM t |> WHERE id > 30 |> SELECT id, v |> AGGREGATE sum(v) AS total GROUP BY id % 2 AS odd
TABLE u
SELECT /*+ BROADCAST(u) */ t.id, u.label FROM t JOIN u ON t.id = u.k WHERE u.v > 1
SELECT /*+ MERGE(t, u) */ count(*) FROM t, u WHERE t.id = u.k AND t.v <> u.v
SELECT * FROM t NATURAL JOIN (SELECT k AS id, label FROM u)
SELECT t.id, u.k FROM t LEFT JOIN u ON t.id = u.k AND t.v > 2 WHERE u.k IS NULL
SELECT t.id, u.k FROM t RIGHT JOIN u ON t.id = u.k AND t.v > 2 WHERE u.v = 3
SELECT t.id, u.k FROM t FULL OUTER JOIN u ON t.id = u.k AND t.v > 4 AND u.v < 4 WHERE t.id > 3 OR u.v = 0
SELECT id FROM t LEFT ANTI JOIN u ON t.id = u.k AND u.v > 2 AND t.v > 1
SELECT id FROM t JOIN u USING (v) WHERE v > 2 AND k < 6
SELECT * FROM t, LATERAL (SELECT max(k) AS m FROM u WHERE u.k < t.id AND u.label = 'l0') WHERE t.id < 12
SELECT id FROM t -- FROM t is not a table here
SELECT id, 'SELECT * FROM t' AS text, "t" FROM t WHERE name <> 'u' /* from u */
SELECT id AS `größe`, '日本' AS `列` FROM t WHERE name = 'n1' AND '日本' = '日本'
SELECT transform(tags, t -> upper(t)) AS loud FROM t WHERE id < 9
SELECT a.id FROM t a JOIN t b ON a.id = b.v JOIN t c ON b.id = c.v
SELECT named_struct('x', id).x, CASE WHEN v > 3 THEN 'big' WHEN v IS NULL THEN '?' ELSE name END FROM t
SELECT name, sum(v) FILTER (WHERE id > 10) FROM t GROUP BY ALL HAVING count(*) > 3
SELECT * EXCEPT (tags, s, at) FROM t WHERE at > TIMESTAMP_NTZ '2023-11-15 00:00:00'
SELECT * FROM VALUES (1, 'a'), (2, 'b') AS w(n, c) WHERE n > 1
SELECT x.id, y.id FROM t x, range(3) y WHERE x.id = y.id
SELECT price, try_divide(v, v - v) FROM t WHERE NOT (price > 2 AND v < 5)
SELECT id FROM t WHERE name <=> NULL OR id IN (1, NULL)
SELECT max_by(name, id), collect_list(DISTINCT v) IS NULL FROM t
SELECT q.a FROM t AS q(a, b, c, d, e, f, g) WHERE q.a = 7 AND b = 'n2'
""".strip().splitlines()


@pytest.mark.sampled(16)
@pytest.mark.parametrize("text", SHAPES)
def test_a_query_gives_what_spark_gives(warehouse: Warehouse, text: str) -> None:
    """FL-25: whatever Spark can do works over tables of Fluvial."""
    assert warehouse.rows(text) == warehouse.expected(text)
    assert not [each.name for each in warehouse.context.spark.catalog.listTables() if each.name.startswith("fluvial_")]


HIDDEN = """
SELECT hash(a.*) FROM db.p a LEFT SEMI JOIN db.p b ON a.id = b.id AND a.n = b.n - 10 AND b.n < 22 AND a.n > 1
SELECT hash(a.*) FROM db.p a LEFT ANTI JOIN db.p b ON a.id = b.id AND a.n = b.n - 10 AND b.n < 22 AND a.n > 1
SELECT hash(a.*) FROM db.p a LEFT ANTI JOIN db.p b ON a.id = b.id AND a.n = b.n - 10 AND a.n > 11 WHERE n < 25
""".strip().splitlines()


def test_rows_left_out_before_spark_change_no_semi_join(warehouse: Warehouse) -> None:
    """What SQLite cannot judge in test_usage."""
    text = " UNION ALL ".join(f"SELECT {number}, * FROM ({each})" for number, each in enumerate(HIDDEN))
    assert warehouse.rows(text) == warehouse.expected(text.replace("db.p", "p"))


def plans_of(warehouse: Warehouse, text: str) -> list[ReadPlan]:
    statement = warehouse.statement(text)
    with BoundText.bind(warehouse.context, statement, StatementReads(warehouse.context)) as bound:
        return bound.plans


@pytest.mark.parametrize(
    ("text", "columns", "files"),
    [
        ("SELECT n FROM db.p", {"n"}, 4),
        ("SELECT count(*) FROM db.p", {"id"}, 4),
        ("SELECT * FROM db.p WHERE day = DATE '2024-03-19'", {"day", "id", "n"}, 1),
        ("SELECT p.N FROM db.p WHERE p.DAY >= '2024-03-20' AND length(n) > 0", {"day", "n"}, 2),
        ("SELECT id FROM db.p WHERE (n > 12 AND (n < 22 OR n = 23))", {"id", "n"}, 2),
        ("SELECT id FROM db.p AS x WHERE day = DATE '2024-03-19' OR n = 1", {"day", "id", "n"}, 2),
        ("SELECT id FROM (SELECT * FROM db.p WHERE n > 30) WHERE n > 31", {"day", "id", "n"}, 1),
        ("SELECT x.id FROM db.p x, db.p y WHERE x.n = 1 AND y.n = 1", {"id", "n"}, 1),
        ("SELECT id FROM db.p TABLESAMPLE (2 ROWS) WHERE n = 1", {"id", "n"}, 4),
        ("FROM db.p |> WHERE n = 1 |> SELECT id", {"day", "id", "n"}, 4),
        ("SELECT count(1) FROM db.p GROUP BY day HAVING max(n) > 30", {"day", "n"}, 4),
        ("SELECT id FROM db.p WHERE n = 1 AND (SELECT max(k) FROM u) > 3", {"id", "n"}, 1),
        ("SELECT id FROM db.p WHERE n IN (SELECT k FROM u)", {"id", "n"}, 4),
    ],
)
def test_only_what_is_used_is_read(warehouse: Warehouse, text: str, columns: set[str], files: int) -> None:
    """FL-26, FL-102: columns and files that cannot matter are left out before Spark sees them."""
    plan = plans_of(warehouse, text)[0]
    assert (set(plan.columns), sum(len(split.files) for split in plan.plan.splits)) == (columns, files)


@pytest.mark.parametrize(
    ("ours", "plain"),
    [
        ("SELECT db.p.n, p.id FROM db.p WHERE db.p.n > 3", "SELECT p.n, p.id FROM p WHERE n > 3"),
        ("SELECT fluvial.db.p.* FROM fluvial.db.p", "SELECT * FROM p"),
        ("SELECT * FROM `db`.`p` `x``y` WHERE `x``y`.n = 3", "SELECT * FROM p WHERE n = 3"),
        ("SELECT max(n) AS `db.p` FROM db.p -- from db.p\nWHERE 'db.p' = 'db.p'", "SELECT max(n) AS `db.p` FROM p"),
    ],
)
def test_tables_are_named_with_database_and_catalog(warehouse: Warehouse, ours: str, plain: str) -> None:
    """FL-36."""
    assert warehouse.rows(ours) == warehouse.expected(plain)


def test_a_temporary_view_hides_a_table(warehouse: Warehouse) -> None:
    spark = warehouse.context.spark
    spark.range(2).createOrReplaceTempView("U")
    try:
        assert warehouse.rows("SELECT * FROM u") == [("id",), (0,), (1,)]
        assert warehouse.rows("SELECT count(*) AS n FROM default.u") == [("n",), (30,)]
    finally:
        spark.catalog.dropTempView("U")


@pytest.fixture(scope="module")
def history(warehouse: Warehouse) -> Table:
    """``h``: snapshot n says n; the second is the tag ``two``."""
    table = warehouse.context.catalog.create_table(
        "default.h", pa.schema([("n", pa.int64())]), options={"bucket": "-1"}
    )
    for number in (1, 2, 3):
        table.overwrite(pa.table({"n": [number]}))
    store = table.store
    Path(store.paths.root, "tag").mkdir()
    for name, number in (("two", 2), ("tag-2026.01-31", 1), ("2026-01-30", 2)):
        Path(store.paths.root, "tag", f"tag-{name}").write_text(store.snapshots.read(number).to_json())
    return table


def test_a_branch_is_read(warehouse: Warehouse, history: Table) -> None:
    root = Path(history.store.paths.root)
    for kind in ("schema", "snapshot"):
        shutil.copytree(root / kind, root / "branch" / "branch-b" / kind)
    history.overwrite(pa.table({"n": [4]}))
    try:
        text = "SELECT x.n, `h$branch_b`.n AS b, c.n AS c FROM h x, h$branch_b, `h$branch_b` VERSION AS OF 1 c"
        assert warehouse.rows(text) == [("n", "b", "c"), (4, 3, 1)]
    finally:
        history.overwrite(pa.table({"n": [3]}))


@pytest.mark.parametrize(
    ("name", "fact"),
    [("h$branch_c", r"no such branch: .*branches=\['main'"), ("hh$branch_b", "no such table: table=.*hh")],
)
def test_a_branch_or_a_table_that_is_missing_is_named(
    warehouse: Warehouse, history: Table, name: str, fact: str
) -> None:
    """Before, Spark was asked what it makes of the name, and said that `$` is none."""
    with pytest.raises(InvalidInputError, match=fact):
        warehouse.rows(f"SELECT n FROM {name}")


@pytest.mark.parametrize(
    ("reference", "number"),
    [
        ("h VERSION AS OF 1", 1),
        ("h VERSION AS OF '1'", 1),
        ("h FOR VERSION AS OF 'two'", 2),
        ("h FOR SYSTEM_VERSION AS OF 2 AS x", 2),
        ("h VERSION AS OF 'snapshot.1'", 1),
        ("h VERSION AS OF 'two'", 2),
        ("h VERSION AS OF 'main.two'", 2),
        ("h VERSION AS OF main.two", 2),
        ("h VERSION AS OF two x", 2),
        ("h VERSION AS OF snapshot.1 AS x", 1),
        ("h VERSION AS OF 'latest'", 3),
        ("h VERSION AS OF tag-2026.01-31", 1),
        ("h FOR VERSION AS OF main.tag-2026.01-31 x", 1),
        ("h VERSION AS OF 2026-01-30 WITH ('read.changelog' = 'false')", 2),
        ("(SELECT * FROM h VERSION AS OF main.2026-01-30) x", 2),
        ("h WITH ('scan.version' = 'snapshot.2')", 2),
        ("h WITH ('incremental-between' = '1,3')", 3),
        ("h /*+ OPTIONS('scan.snapshot-id'='1') */", 1),
        ("h WITH ('scan.tag-name' = 'two') x", 2),
        ("h TIMESTAMP AS OF current_timestamp()", 3),
        ("h TIMESTAMP AS OF date_add(current_date(), 5) x", 3),
        ("h FOR SYSTEM_TIME AS OF '{time}'", 2),
        ("(SELECT * FROM h VERSION AS OF 1) x", 1),
    ],
)
def test_a_table_is_read_as_it_was(warehouse: Warehouse, history: Table, reference: str, number: int) -> None:
    """FL-25, TAG-06, TAG-07, TAG-11, TAG-12, TAG-63, BR-38, BR-39: by number, tag and time, however written."""
    time_ms = history.store.snapshots.read(2).time_ms
    time = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    assert warehouse.rows(f"SELECT n FROM {reference.format(time=time)}") == [("n",), (number,)]


def test_two_versions_in_one_query(warehouse: Warehouse, history: Table) -> None:
    """LN-33: what has changed between two snapshots."""
    text = "SELECT a.n AS a, b.n AS b FROM h VERSION AS OF 1 a FULL OUTER JOIN h VERSION AS OF 3 b ON a.n = b.n"
    assert warehouse.rows(text) == [("a", "b"), (1, None), (None, 3)]


def test_session_settings_choose_the_version_unless_the_query_does(warehouse: Warehouse, history: Table) -> None:
    warehouse.context.settings["scan.snapshot-id"] = "2"
    try:
        assert warehouse.rows("SELECT n FROM h") == [("n",), (2,)]
        assert warehouse.rows("SELECT n FROM h VERSION AS OF 1") == [("n",), (1,)]
    finally:
        warehouse.context.settings.clear()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT nme FROM t", ("nme", "column=8", "`name`")),
        ("SELECT id,\n  t.nope\nFROM t JOIN u ON k = id", ("nope", "line=2 column=3", "near='t.nope'")),
        ("SELECT * FROM t JOIN missing ON 1 = 1", ("missing", "column=22")),
        ("SELECT * FROM fluvial.db.pp", ("did_you_mean", "pp")),
        ("SELECT id FROM t WHERE", ("syntax error",)),
        ("SELECT * FROM t VERSION AS OF 99", ("version=snapshot.99", "column=15", "near='t VERSION AS OF 99'")),
        ("SELECT * FROM t /*+ OPTIONS('scan.snapshot-ids'='1') */", ("did_you_mean=scan.snapshot-id",)),
        ("SELECT * FROM t VERSION AS OF 1 WITH ('scan.tag-name'='a')", ("given twice", "scan.tag-name")),
        ("SELECT id + s FROM t", ("id + s", "column=8")),
    ],
)
def test_errors_point_at_the_users_text(warehouse: Warehouse, text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        warehouse.frame(text)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert "fluvial_" not in str(caught.value)


def test_computed_columns_are_added(warehouse: Warehouse) -> None:
    options = {"bucket": "-1", "computed-column.0": "twice AS n * 2", "computed-column.1": "`a b` AS twice + m"}
    schema = pa.schema([("n", pa.int64()), ("m", pa.int64()), ("o", pa.int64())])
    table = warehouse.context.catalog.create_table("default.c", schema, options=options)
    table.write(pa.table({"n": [1, 2], "m": [10, 20], "o": [0, 0]}))
    assert warehouse.rows("SELECT * FROM c") == [("n", "m", "o", "twice", "a b"), (1, 10, 0, 2, 12), (2, 20, 0, 4, 24)]
    assert warehouse.rows("SELECT `a b` FROM c WHERE twice > 2") == [("a b",), (24,)]
    assert plans_of(warehouse, "SELECT `A B` FROM c")[0].columns == ("n", "m")
