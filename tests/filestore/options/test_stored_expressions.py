"""Expressions that a table stores call Spark's own pure functions and are no query, whatever their spelling."""

import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.evolution.schema_change import SetOption
from filestore.options.stored_expressions import check_computed, check_expression
from lsm.errors import InvalidInputError
from tests.support.faults import MemoryFileIO
from tests.support.tables import KEY_SCHEMA

FINE = """
n * 2
`a b` + m
upper(s)
Upper ( s )
concat(s, ' (', n, ')')
concat('reflect(''x'')', "java_method(")
regexp_replace(s, '\\\\(\\\\d+\\\\)', '')
cast(n AS decimal(10, 2))
CASE WHEN n IN (1, 2) THEN 'a' WHEN (n > 3) AND (m < 2) THEN 'b' ELSE s END
at - INTERVAL '5' SECOND
extract(day FROM at)
trim(BOTH 'x' FROM s)
transform(tags, t -> (upper(t)))
s.values[0] + m['k']
`values` + `select`
not (n = 1) or (n is null)
n - (-1)
größe * 2
'日本'
""".strip().splitlines()

ATTACKS = """
reflect('java.lang.System', 'load', '/evil.so')
REFLECT ('java.lang.System', 'load', '/evil.so')
`reflect`('java.lang.System', 'load', '/evil.so')
`java_method`  ('a', 'b')
try_reflect('a', 'b')
system.builtin.reflect('a', 'b')
system.builtin.upper('a')
my_catalog.db.f(n)
f(n)
1f(n)
from_avro(v, 'x')
from_protobuf(v, 'M', '/etc/passwd')
from_xml(s, 'a INT', map('rowValidationXSDPath', '/etc/passwd'))
IDENTIFIER('reflect')('a', 'b')
identifier('re' || 'flect')('a', 'b')
(SELECT max(value) FROM text.`/etc/passwd`)
(TABLE other)
(FROM other |> LIMIT 1)
( FROM other)
exists(SELECT 1 FROM other)
n IN (SELECT 1)
(WITH x AS (VALUES 1) TABLE x)
n IN (VALUES 1)
upper/**/(n)
reflect/* */('a', 'b')
'\\\\' || reflect('a', 'b') || '\\\\'
'\\'' || reflect('a', 'b') || '\\''
r'\\' || reflect('a', 'b') || r'\\'
R"\\" || reflect('a', 'b') || R"\\"
"\\"" || reflect('a', 'b') || "\\""
'a' -- ' || reflect('a', 'b')
n) FROM t; DROP TABLE t
n), reflect('a', 'b'
max(n) OVER (ORDER BY n)
'${spark.hadoop.fs.s3a.secret.key}'
upper\u200b(n)
reflect\u00a0('a', 'b')
'unclosed
`a``upper`(n)
""".strip("\n").splitlines()


@pytest.mark.parametrize("text", FINE)
def test_what_sees_its_arguments_alone_is_fine(text: str) -> None:
    check_expression(text)
    check_computed(f"c AS {text}")


@pytest.mark.parametrize("text", ATTACKS)
def test_what_could_reach_further_is_refused_where_it_is_stored(text: str) -> None:
    with pytest.raises(ValueError, match="expected="):
        check_expression(text)
    catalog = FileCatalog("/w", io=MemoryFileIO())
    catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for key, value in (("computed-column.0", f"`values` AS {text}"), ("watermark.expression", text)):
        with pytest.raises(InvalidInputError, match=f"option={key} .*expected="):
            catalog.create_table("db.u", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1", key: value})
        with pytest.raises(InvalidInputError, match=f"option={key} .*expected="):
            catalog.alter_table("db.t", [SetOption(key, value)])


def test_names_of_computed_columns_are_free() -> None:
    for name in ("select", "`reflect`", "values", "reflect"):
        check_computed(f"{name} AS n + 1")
