"""``CREATE`` and ``REPLACE`` of databases and tables."""

from dataclasses import dataclass, field
from typing import Any, Final

from engine.dialect.grammar.clauses import (
    ColumnClause,
    no_checks,
    read_column,
    read_expression_text,
    read_key_words,
    read_not_enforced,
)
from engine.dialect.grammar.cursor import Cursor
from engine.dialect.grammar.dialect import parse_query, read_options
from engine.dialect.grammar.places import OwnSyntaxError
from engine.dialect.grammar.statements import (
    ComputedColumn,
    CreateDatabase,
    CreateLike,
    CreateTable,
    Statement,
    Watermark,
)
from filestore.schema.schema_store import PATH_KEY
from filestore.types.data_types import DataField

PROVIDERS: Final = frozenset({"fluvial", "paimon"})
_QUERY_STARTS: Final = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")
_LIKE_PARTS: Final = {
    "OPTIONS": "options",
    "PARTITIONS": "partitions",
    "CONSTRAINTS": "constraints",
    "GENERATED": "generated",
    "WATERMARKS": "watermarks",
}


def read_create(cursor: Cursor) -> CreateDatabase | CreateTable | None:
    """What follows CREATE; None when it is Spark's."""
    if cursor.sees("CATALOG"):
        raise cursor.problem(
            "a program opens a catalog, with its options: fix='fluvial.install(spark, fluvial.Catalog(warehouse, "
            "options), name)'",
            kind=OwnSyntaxError,
        )
    or_replace = cursor.take("OR", "REPLACE")
    if not or_replace and cursor.take_any("DATABASE", "SCHEMA", "NAMESPACE"):
        return _read_database(cursor)
    if not cursor.take("TABLE") or _is_sparks(cursor):
        return None
    return _read_table(cursor, or_replace=or_replace, must_exist=False)


def read_replace(cursor: Cursor) -> CreateTable | None:
    """What follows REPLACE; None when it is Spark's."""
    if not cursor.take("TABLE") or _is_sparks(cursor):
        return None
    return _read_table(cursor, or_replace=True, must_exist=True)


@dataclass
class _Table:
    """A statement as far as it has been read."""

    fields: list[DataField] = field(default_factory=list)
    computed: list[ComputedColumn] = field(default_factory=list)
    keys: list[tuple[str, ...]] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict, repr=False)
    clauses: dict[str, Any] = field(default_factory=dict)  # those that come once


def _read_database(cursor: Cursor) -> CreateDatabase:
    if_not_exists = cursor.if_not_exists()
    name = cursor.names("the name of a database")
    if cursor.token is not None:
        raise cursor.problem("a database has a name and nothing else, comments and properties are not stored")
    return CreateDatabase(name=name, if_not_exists=if_not_exists)


def _is_sparks(cursor: Cursor) -> bool:
    """Whether another provider makes the table: then the rest may be in words that we do not know."""
    depth = 0
    for index, token in enumerate(cursor.tokens):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        words = [each.text.upper() for each in cursor.tokens[index : index + 2]]
        if depth == 0 and index > cursor.index and len(words) == 2:
            if words[0] in _QUERY_STARTS or words[0] == "AS":
                return False
            if words[0] == "USING":
                return words[1].lower() not in PROVIDERS
            if words in (["STORED", "AS"], ["STORED", "BY"], ["ROW", "FORMAT"]):
                return True
    return False


def _read_table(cursor: Cursor, *, or_replace: bool, must_exist: bool) -> CreateTable:
    start = cursor.start
    if_not_exists = cursor.if_not_exists()
    if if_not_exists and or_replace:
        raise cursor.problem("REPLACE and IF NOT EXISTS contradict each other", start, cursor.stop)
    name = cursor.names("the name of a table")
    table = _Table()
    if cursor.sees("("):
        cursor.listed(lambda inner: _read_element(inner, table))
    while _read_clause(cursor, table):
        pass
    query = _read_query(cursor)
    cursor.expect_end()
    if len(table.keys) > 1:
        raise cursor.problem("a table has one primary key: name its columns in one PRIMARY KEY", start, cursor.stop)
    return CreateTable(
        name=name,
        if_not_exists=if_not_exists,
        or_replace=or_replace,
        must_exist=must_exist,
        fields=tuple(table.fields),
        computed=tuple(table.computed),
        primary_key=table.keys[0] if table.keys else (),
        options=table.options,
        query=query,
        **table.clauses,
    )


def _read_query(cursor: Cursor) -> Statement | None:
    is_announced = cursor.take("AS")
    if cursor.sees_any(*_QUERY_STARTS):
        part = cursor.source.part(cursor.start, len(cursor.text))
        cursor.rest()
        return Statement(part.text, part.base, parse_query(part), part.whole)
    if is_announced:
        raise cursor.problem("syntax error, expected a query")
    return None


def _read_element(cursor: Cursor, table: _Table) -> None:
    start = cursor.start
    if cursor.take("WATERMARK", "FOR"):
        column = ".".join(cursor.names("a column"))
        cursor.expect("AS")
        _once(cursor, table, "watermark", Watermark(column=column, expression=read_expression_text(cursor)), start)
    elif cursor.sees("CHECK", "("):
        raise no_checks(cursor)
    elif read_key_words(cursor):
        table.keys.append(tuple(cursor.listed(lambda inner: inner.name("a column"))))
        read_not_enforced(cursor)
    else:
        _add_column(cursor, table, read_column(cursor), start)


def _add_column(cursor: Cursor, table: _Table, column: ColumnClause, start: int) -> None:
    if len(column.path) > 1 or column.position is not None:
        raise cursor.problem("syntax error, expected a column and its type", start, cursor.stop)
    name = column.path[0]
    names = [*(each.name for each in table.fields), *(each.name for each in table.computed)]
    if name in names:
        raise cursor.problem(f"column is there twice: column={name}", start, cursor.stop)
    if column.expression is not None:
        table.computed.append(ComputedColumn(name=name, expression=column.expression, comment=column.comment))
        return
    table.fields.append(column.field)
    if column.is_key:
        table.keys.append((name,))


def _read_clause(cursor: Cursor, table: _Table) -> bool:
    """One clause behind the columns; False when none comes."""
    start = cursor.start
    if cursor.take("USING"):
        _once(cursor, table, "provider", cursor.name("a provider").lower(), start)
    elif cursor.take("COMMENT"):
        cursor.take("=")
        _once(cursor, table, "comment", cursor.string(), start)
    elif cursor.take("PARTITIONED BY") or cursor.take("PARTITIONED", "BY"):
        columns = tuple(cursor.listed(lambda inner: _read_partition_column(inner, table)))
        _once(cursor, table, "partition_by", columns, start)
    elif cursor.sees("WITH", "(") or cursor.sees_any("TBLPROPERTIES", "OPTIONS"):
        cursor.index += 1
        _add_options(cursor, table, read_options(cursor), start)
    elif cursor.take_any("CLUSTERED", "DISTRIBUTED"):
        _read_buckets(cursor, table, start)
    elif cursor.take("LIKE"):
        _once(cursor, table, "like", _read_like(cursor), start)
    elif cursor.take("LOCATION"):
        _add_options(cursor, table, {PATH_KEY: cursor.string()}, start)
    else:
        return False
    return True


def _read_partition_column(cursor: Cursor, table: _Table) -> str:
    start = cursor.start
    name = cursor.name("a partition column")
    if cursor.sees("("):
        raise cursor.problem("partitions are columns, not functions of columns: add a computed value as a column")
    if not cursor.sees_any(",", ")"):
        _add_column(cursor, table, read_column(cursor, names=(name,)), start)
    return name


def _read_buckets(cursor: Cursor, table: _Table, start: int) -> None:
    """``BY [HASH] (columns) [INTO n BUCKETS]``, ``INTO n BUCKETS``."""
    options = {}
    if cursor.take("BY"):
        cursor.take("HASH")
        options["bucket-key"] = ",".join(cursor.listed(lambda inner: inner.name("a column")))
    if cursor.take("INTO"):
        options["bucket"] = str(cursor.whole_number())
        cursor.expect("BUCKETS")
    _add_options(cursor, table, options, start)


def _read_like(cursor: Cursor) -> CreateLike:
    source = cursor.names("the name of a table")
    chosen: dict[str, str] = {}
    if cursor.take("("):
        while not cursor.take(")"):
            start = cursor.start
            how = cursor.take_any("INCLUDING", "EXCLUDING", "OVERWRITING")
            part = cursor.take_any("ALL", *_LIKE_PARTS)
            if how is None or part is None:
                raise cursor.problem("syntax error, expected INCLUDING, EXCLUDING or OVERWRITING and what")
            if how == "OVERWRITING" and part not in ("OPTIONS", "GENERATED", "WATERMARKS"):
                raise cursor.problem("this cannot be overwritten", start, cursor.stop)
            chosen |= {key: how for word, key in _LIKE_PARTS.items() if part == word}
            if part == "ALL":
                chosen = {key: chosen.get(key, how) for key in _LIKE_PARTS.values()}
    return CreateLike(source=source, **chosen)


def _add_options(cursor: Cursor, table: _Table, options: dict[str, str], start: int) -> None:
    for key, text in options.items():
        if table.options.setdefault(key, text) != text:
            raise cursor.problem(f"option is given twice with different values: option={key}", start, cursor.stop)


def _once(cursor: Cursor, table: _Table, clause: str, value: object, start: int) -> None:
    if clause in table.clauses:
        raise cursor.problem("this clause is there twice", start, cursor.stop)
    table.clauses[clause] = value
