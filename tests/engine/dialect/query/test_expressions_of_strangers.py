"""What a stranger wrote into a table's options as SQL runs nothing but Spark's own pure functions."""

import random
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from engine import Catalog, sql
from engine.spark_internals.session import jvm_of, jvm_session
from filestore.options import stored_expressions
from filestore.options.stored_expressions import check_expression
from lsm.errors import InvalidInputError
from tests.support.stored_login import store_options

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
PROBE = "fluvial.test.stranger"
RUNS = f"java_method('java.lang.System', 'setProperty', '{PROBE}', 'ran')"
PIECES = [
    "reflect", "`reflect`", "REFLECT", "upper", "java_method", "(", ")", "(", ")", "'a'", '"b"', "'\\'", "\\",
    "r'", "R\"",
    "'", '"', "`", "``", "''", "--", "\n", "/*", "*/", ",", "||", " ", ".", "n", "r", "->", "[", "]", "1", "(SELECT 1)",
    "SELECT", "FROM", "TABLE", "system", "builtin", "identifier", "IN", "\u00a0", "$", "?", ":x", "AS", "X'", "é",
    "{", "}",
]  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {"computed-column.0": f"x AS {RUNS}"},
        {"computed-column.0": f"x AS (SELECT max({RUNS}))"},
        {"watermark.column": "at", "watermark.expression": f"coalesce(to_timestamp({RUNS}), at)"},
        {"watermark.column": "at", "watermark.expression": f"at AS TIMESTAMP), {RUNS}, CAST(at"},
    ],
    ids=["computed", "computed by a query", "watermark", "watermark that ends its statement"],
)
def test_what_a_stranger_stores_does_not_run(options: dict[str, str], spark: SparkSession, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [1], "at": [0]}).cast(SCHEMA))
    store_options(table.store.paths.schema(0), options)
    jvm = jvm_of(spark)[1]
    refused = 0
    for text in ("SELECT * FROM db.t", "SELECT x FROM db.t", "DESCRIBE EXTENDED db.t", "SHOW CREATE TABLE db.t"):
        try:
            found = sql(spark, text, catalog=Catalog(str(tmp_path)))
            found.collect()
        except InvalidInputError as error:
            refused += f"option={next(reversed(options))}" in str(error)
        except PySparkException:
            assert "x" in text, "a table without such a column"
        assert jvm.java.lang.System.getProperty(PROBE) is None, text
    assert refused, "what is refused is named"
    assert [row.id for row in sql(spark, "SELECT id FROM db.t", catalog=Catalog(str(tmp_path))).collect()] == [1]


def calls(node: Any) -> Iterator[str]:
    """Functions that Spark's own parser finds in an expression, and its queries as ``?``."""
    kind = node.getClass().getSimpleName()
    if kind == "UnresolvedFunction":
        parts = node.nameParts()
        names = [parts.apply(index) for index in range(parts.size())]
        yield ".".join(names)
        arguments = node.arguments()
    else:
        if (
            "Subquery" in kind
            or "Plan" in kind
            or kind in {"Exists", "ListQuery", "ExpressionWithUnresolvedIdentifier"}
        ):
            yield f"? {kind}"
        arguments = node.children()
    for index in range(arguments.size()):
        yield from calls(arguments.apply(index))


@pytest.mark.long
@pytest.mark.sweep
def test_spark_finds_no_call_and_no_query_that_was_not_seen(spark: SparkSession) -> None:
    """Texts of pieces that could make both lexers differ; those that pass and that Spark parses at all."""
    parser = jvm_session(spark).sessionState().sqlParser()
    rng, parsed = random.Random(41), 0
    for _ in range(12_000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(3, 14)))
        try:
            check_expression(text)
        except ValueError:
            continue
        with suppress(Py4JJavaError, PySparkException):
            found = {each.lower() for each in calls(parser.parseExpression(text))}
            parsed += 1
            assert found <= stored_expressions._HARMLESS | {"concat", "||"}, text
    assert parsed > 20


def test_the_list_has_functions_of_spark_alone(spark: SparkSession) -> None:
    """And none of its groups that load, read or ask; a release that has new ones gets them by hand."""
    registry = jvm_session(spark).sessionState().functionRegistry()
    names = registry.listFunction()
    groups = {}
    for index in range(names.size()):
        info = registry.lookupFunction(names.apply(index)).get()
        groups[names.apply(index).funcName()] = (info.getSource(), info.getGroup())
    found = {groups[name] for name in stored_expressions._HARMLESS if name in groups}
    assert {source for source, _ in found} == {"built-in"}
    assert not {group for _, group in found} & {"avro_funcs", "protobuf_funcs", "xml_funcs", "table_funcs"}
    assert not stored_expressions._HARMLESS & {"reflect", "java_method", "try_reflect", "input_file_name"}
    pure = {
        "math_funcs",
        "datetime_funcs",
        "string_funcs",
        "conditional_funcs",
        "hash_funcs",
        "url_funcs",
        "array_funcs",
    }
    left_out = {name for name, (source, group) in groups.items() if source == "built-in" and group in pure}
    left_out = {name for name in left_out - stored_expressions._HARMLESS if re.fullmatch(r"\w+", name)}
    assert left_out <= {"session_window", "window", "window_time"}
