"""SHOW CREATE TABLE can be run and makes the same table, whatever the table is."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.catalog import Catalog
from engine.dialect.ddl.table_parts import computed_options
from engine.dialect.grammar.statements import ComputedColumn
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import BYTES, MAX_LENGTH, STRING, DataField, DataType

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
WORDS = st.one_of(
    st.sampled_from(["a", "B", "table", "primary", "as", "1a", "a b", "a`b", "select", "date", "größe", "a.b", "x'y"]),
    TEXTS.filter(lambda text: bool(text.strip()) and not text.startswith("_")),
)
COMMENTS = st.one_of(
    st.none(), st.sampled_from(["it's", 'say "x"', "back\\slash", "two\nlines", "-- /* no", ""]), TEXTS
)
ATOMIC = st.one_of(
    st.sampled_from(
        ["BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE"]
    ).map(lambda root: DataType(root=root)),
    st.sampled_from([STRING, BYTES]),
    st.builds(lambda n: DataType(root="CHAR", length=n), st.integers(1, 255)),
    st.builds(lambda root, n: DataType(root=root, length=n), st.sampled_from(["VARCHAR", "BINARY", "VARBINARY"]),
              st.sampled_from([1, 7, MAX_LENGTH - 1])),
    st.builds(lambda p: DataType(root="DECIMAL", precision=p, scale=p // 3), st.integers(1, 38)),
    st.builds(lambda root, p: DataType(root=root, precision=p), st.sampled_from(["TIMESTAMP", "TIMESTAMP_LTZ"]),
              st.integers(0, 6)),
    st.builds(lambda p: DataType(root="TIME", precision=p), st.integers(0, 9)),
)  # fmt: skip


def nullable(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    return st.builds(lambda each, is_nullable: replace(each, nullable=is_nullable), types, st.booleans())


def fields(types: st.SearchStrategy[DataType], most: int) -> st.SearchStrategy[list[DataField]]:
    one = st.builds(
        lambda name, each, text: DataField(id=0, name=name, type=each, description=text), WORDS, types, COMMENTS
    )
    return st.lists(one, min_size=1, max_size=most, unique_by=lambda field: field.name)


KEYS = ATOMIC.map(lambda each: replace(each, nullable=False))
TYPES = st.recursive(
    nullable(ATOMIC),
    lambda inner: nullable(
        st.one_of(
            st.builds(lambda each: DataType(root="ARRAY", element=each), inner),
            st.builds(lambda each: DataType(root="MULTISET", element=each), KEYS),
            st.builds(lambda key, each: DataType(root="MAP", key=key, value=each), KEYS, inner),
            st.builds(lambda each: DataType(root="ROW", fields=tuple(each)), fields(inner, 3)),
        )
    ),
    max_leaves=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> SqlSession:
    catalog = Catalog(str(tmp_path_factory.mktemp("warehouse")))
    return SqlSession(SqlContext(catalog=catalog, open_spark=lambda: pytest.fail("no Spark")))


def made_again(session: SqlSession) -> TableSchema:
    """The table ``t`` dropped and made by its own statement."""
    (shown,) = session.execute("SHOW CREATE TABLE t")
    assert shown.table is not None
    session.execute("DROP TABLE t")
    session.execute(shown.table[0][0].as_py())
    return replace(session.context.catalog.table("default.t").schema, time_ms=0)


@pytest.mark.sweep
@settings(max_examples=60, deadline=None)
@given(fields(TYPES, 4), COMMENTS, st.booleans(), COMMENTS)
def test_any_columns_and_comments(
    session: SqlSession, columns: list[DataField], comment: str | None, has_key: bool, text: str | None
) -> None:
    """FL-09, FL-14."""
    names = {field.name for field in columns}
    key = [DataField(id=0, name="the key", type=DataType(root="BIGINT"))] if "the key" not in names else []
    computed = (
        [ComputedColumn(name="the sum", expression="`the key` + 1", comment=text)] if "the sum" not in names else []
    )
    made = session.context.catalog.create_table(
        "default.t",
        [*key, *columns],
        primary_key=["the key"] if has_key and key else [],
        options={"bucket": "1" if has_key and key else "-1", **computed_options(computed, list(names))},
        comment=comment,
    )
    try:
        before = replace(made.schema, time_ms=0)
        assert made_again(session) == before
    finally:
        session.execute("DROP TABLE IF EXISTS t")


@pytest.mark.parametrize(
    ("data_type", "default"),
    [("INT", "-5"), ("STRING", "it's \\ 5"), ("BOOLEAN", "true"), ("DATE", "2026-01-31"), ("DECIMAL(5, 2)", "-1.50"),
     ("DOUBLE", "1e3"), ("TIMESTAMP(3)", "2026-01-31 10:00:00"), ("STRING", "")],
)  # fmt: skip
def test_defaults(session: SqlSession, data_type: str, default: str) -> None:
    escaped = default.replace("\\", "\\\\").replace("'", "\\'")
    session.execute(f"CREATE TABLE t (a {data_type} DEFAULT '{escaped}')")
    assert made_again(session).fields[0].default_value == default
    session.execute("DROP TABLE t")


def test_partitions_watermark_and_options(session: SqlSession, tmp_path: Path) -> None:
    """FL-10, FL-11, FL-15, FL-16."""
    session.execute(
        "CREATE TABLE t (`d t` STRING, id INT, ts TIMESTAMP(3), c AS concat(`d t`, 'it\\'s') COMMENT 'x', "
        "WATERMARK FOR ts AS ts - INTERVAL '1' HOUR, PRIMARY KEY (`d t`, id) NOT ENFORCED) PARTITIONED BY (`d t`) "
        "WITH ('bucket' = '3', 'sequence.field' = 'ts', 'change-tracking' = 'false')"
    )
    before = replace(session.context.catalog.table("default.t").schema, time_ms=0)
    assert made_again(session) == before
    session.execute("DROP TABLE t")
