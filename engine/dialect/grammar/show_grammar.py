"""``ANALYZE``, ``DROP``, ``TRUNCATE``, ``DESCRIBE``, ``SHOW``, ``USE``, ``SET`` and ``RESET``."""

from typing import Any, Final

from sqlglot import TokenType

from engine.dialect.grammar.clauses import read_partition
from engine.dialect.grammar.cursor import Cursor
from engine.dialect.grammar.dialect import read_option_key
from engine.dialect.grammar.places import OwnSyntaxError
from engine.dialect.grammar.statements import (
    AnalyzeTable,
    AnalyzeTables,
    DescribeDatabase,
    DescribeHistory,
    DescribeTable,
    DropDatabase,
    DropTable,
    ResetSetting,
    SetSetting,
    ShowColumns,
    ShowCreateTable,
    ShowDatabases,
    ShowPartitions,
    ShowProcedures,
    ShowProperties,
    ShowTables,
    TruncateTable,
    Use,
)
from filestore.options.table_options import SESSION_PREFIX

_DATABASES: Final = ("DATABASE", "SCHEMA", "NAMESPACE")
_EXTENDED: Final = ("EXTENDED", "FORMATTED", "DETAIL")


def read_drop(cursor: Cursor) -> DropTable | DropDatabase | None:
    """What follows DROP; None when it is Spark's."""
    if cursor.sees("TEMPORARY", "TABLE"):
        raise cursor.problem(
            "there are no temporary tables: DROP TABLE drops a table, DROP VIEW a temporary view", kind=OwnSyntaxError
        )
    if cursor.take("TABLE"):
        if_exists = cursor.if_exists()
        name = cursor.names("the name of a table")
        cursor.take("PURGE")
        force = bool(cursor.take("FORCE"))
        cursor.expect_end()
        return DropTable(name=name, if_exists=if_exists, force=force)
    if cursor.take_any(*_DATABASES) is None:
        return None
    if_exists = cursor.if_exists()
    name = cursor.names("the name of a database")
    cascade = cursor.take_any("CASCADE", "RESTRICT") == "CASCADE"
    cursor.expect_end()
    return DropDatabase(name=name, if_exists=if_exists, cascade=cascade)


def read_truncate(cursor: Cursor) -> TruncateTable | None:
    """What follows TRUNCATE."""
    cursor.expect("TABLE")
    name = cursor.names("the name of a table")
    partition = read_partition(cursor) if cursor.take("PARTITION") else None
    cursor.expect_end()
    return TruncateTable(name=name, partition=partition)


def read_analyze(cursor: Cursor) -> AnalyzeTable | AnalyzeTables | None:
    """What follows ANALYZE; None when it is Spark's."""
    if cursor.take("TABLES"):
        database = cursor.names("the name of a database") if cursor.take_any("IN", "FROM") else ()
        cursor.expect("COMPUTE", "STATISTICS")
        counts_rows = not cursor.take("NOSCAN")
        cursor.expect_end()
        return AnalyzeTables(database=database, counts_rows=counts_rows)
    if not cursor.take("TABLE"):
        return None
    name = cursor.names("the name of a table")
    if cursor.sees("PARTITION"):
        return None
    cursor.expect("COMPUTE", "STATISTICS")
    if cursor.sees("NOSCAN"):
        return None
    columns: tuple[str, ...] | None = ()
    if cursor.take("FOR", "ALL", "COLUMNS"):
        columns = None
    elif cursor.take("FOR"):
        cursor.expect("COLUMNS")
        names = [cursor.name("a column")]
        while cursor.take(","):
            names.append(cursor.name("a column"))
        columns = tuple(names)
    cursor.expect_end()
    return AnalyzeTable(name=name, columns=columns)


def read_describe(cursor: Cursor) -> DescribeTable | DescribeDatabase | DescribeHistory | None:
    """What follows DESCRIBE; None when it is Spark's."""
    if cursor.take_any(*_DATABASES) is not None:
        extended = cursor.take_any("EXTENDED") is not None
        database = DescribeDatabase(name=cursor.names("the name of a database"), extended=extended)
        cursor.expect_end()
        return database
    if cursor.sees_any("FUNCTION", "QUERY", "SELECT", "WITH", "VALUES", "FROM", "("):
        return None
    if len(cursor.tokens) > cursor.index + 1 and not cursor.sees("HISTORY", ".") and cursor.take("HISTORY"):
        table = cursor.names("the name of a table")
        limit = cursor.whole_number() if cursor.take("LIMIT") else None
        cursor.expect_end()
        return DescribeHistory(name=table, limit=limit)
    extended = cursor.take_any(*_EXTENDED) is not None
    if len(cursor.tokens) > cursor.index + 1 and cursor.take("TABLE"):
        extended = cursor.take_any(*_EXTENDED) is not None or extended
    name = cursor.names("the name of a table")
    partition = read_partition(cursor) if cursor.take("PARTITION") else None
    if cursor.sees("AS", "JSON"):
        if not extended or partition is not None:
            return None
        cursor.expect("AS")
        cursor.expect("JSON")
        cursor.expect_end()
        return DescribeTable(name=name, extended=True, partition=None, as_json=True)
    column = cursor.names("a column") if not cursor.at_end() else ()
    cursor.expect_end()
    return DescribeTable(name=name, extended=extended, partition=partition, column=column)


def read_show(cursor: Cursor) -> Any | None:
    """What follows SHOW; None when it is Spark's."""
    if cursor.take_any("DATABASES", "SCHEMAS", "NAMESPACES") is not None:
        if cursor.take_any("IN", "FROM") is not None:
            return None
        found: Any = ShowDatabases(pattern=_read_pattern(cursor))
    elif cursor.take("TABLES"):
        database = cursor.names("the name of a database") if cursor.take_any("IN", "FROM") else ()
        found = ShowTables(database=database, pattern=_read_pattern(cursor))
    elif cursor.take("CREATE", "TABLE"):
        found = ShowCreateTable(name=cursor.names("the name of a table"))
        if cursor.sees("AS", "SERDE"):
            return None
    elif cursor.take("PARTITIONS"):
        name = cursor.names("the name of a table")
        partition = read_partition(cursor) if cursor.take("PARTITION") else {}
        found = ShowPartitions(name=name, partition=partition)
    elif cursor.take("TBLPROPERTIES"):
        name = cursor.names("the name of a table")
        keys = cursor.listed(read_option_key) if cursor.sees("(") else []
        found = ShowProperties(name=name, key=keys[0] if keys else None)
    elif cursor.take("PROCEDURES"):
        space = cursor.names("the name of a database") if cursor.take_any("IN", "FROM") else ()
        found = ShowProcedures(space=space, pattern=_read_pattern(cursor))
    elif cursor.take("COLUMNS"):
        if cursor.take_any("IN", "FROM") is None:
            raise cursor.problem("syntax error, expected IN and a table")
        name = cursor.names("the name of a table")
        if cursor.take_any("IN", "FROM") is not None:
            name = (*cursor.names("the name of a database"), *name)
        found = ShowColumns(name=name)
    else:
        return None
    cursor.expect_end()
    return found


def read_use(cursor: Cursor) -> Use:
    """What follows USE."""
    kind = cursor.take_any("CATALOG", *_DATABASES) if len(cursor.tokens) > cursor.index + 1 else None
    name = cursor.names("the name of a database")
    cursor.expect_end()
    return Use(name=name, is_catalog=kind == "CATALOG")


def read_set(cursor: Cursor) -> SetSetting | None:
    """The statement behind SET; None when it is a setting of Spark's."""
    if cursor.at_end():
        return SetSetting(key=None, value=None)
    is_sparks = not _is_ours(cursor)
    if is_sparks and not cursor.sees_string():
        return None
    key = read_option_key(cursor)
    if cursor.at_end():
        return SetSetting(key=key, value=None, is_sparks=is_sparks)
    cursor.expect("=")
    if cursor.sees_string():
        value = cursor.string()
        cursor.expect_end()
    else:
        if any(each.token_type is TokenType.HINT for each in cursor.tokens[cursor.index :]):
            raise cursor.problem("syntax error, a setting has no hint")
        value = cursor.rest()
    if not value:
        raise cursor.problem("syntax error, expected a value")
    return SetSetting(key=key, value=value, is_sparks=is_sparks)


def read_reset(cursor: Cursor) -> ResetSetting | None:
    """What follows RESET; None when it is a setting of Spark's."""
    if cursor.at_end():
        return ResetSetting(key=None)
    is_sparks = not _is_ours(cursor)
    if is_sparks and not cursor.sees_string():
        return None
    key = read_option_key(cursor)
    cursor.expect_end()
    return ResetSetting(key=key, is_sparks=is_sparks)


def _is_ours(cursor: Cursor) -> bool:
    token = cursor.token
    is_plain = cursor.sees("TABLE", "-", "STORAGE", ".")
    return is_plain or (token is not None and token.text.lower().startswith(SESSION_PREFIX))


def _read_pattern(cursor: Cursor) -> str | None:
    cursor.take("LIKE")
    return cursor.string() if cursor.sees_string() else None
