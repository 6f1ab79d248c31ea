"""``ALTER TABLE`` in Spark's, Hive's and Flink's words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import starmap
from typing import Any, Final

from engine.dialect.grammar.clauses import (
    ColumnClause,
    check_options,
    read_check,
    read_column,
    read_default,
    read_expression_text,
    read_partition,
    read_position,
)
from engine.dialect.grammar.cursor import Cursor
from engine.dialect.grammar.dialect import read_option_key, read_set_options
from engine.dialect.grammar.places import WordElsewhereError
from engine.dialect.grammar.statements import (
    AlterTable,
    CompactTable,
    DropPartitions,
    Name,
    PartitionSpec,
    RenameTable,
    ReplaceColumns,
    SetPartitionOptions,
)
from engine.dialect.grammar.type_grammar import read_type
from filestore.evolution.schema_change import (
    AddColumn,
    ChangeComment,
    ChangeDefault,
    ChangeNullability,
    ChangeType,
    DropColumn,
    MoveColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetComment,
    SetOption,
)
from filestore.options.rules import CHECK_PREFIX


@dataclass(frozen=True)
class _Target:
    name: Name
    if_exists: bool

    def changed(self, *changes: SchemaChange, **flags: bool) -> AlterTable:
        return AlterTable(name=self.name, if_exists=self.if_exists, changes=changes, **flags)


def read_alter(cursor: Cursor) -> Any | None:
    """What follows ALTER; None when it is Spark's."""
    if not cursor.take("TABLE"):
        return None
    if_exists = cursor.if_exists()
    target = _Target(cursor.names("the name of a table"), if_exists)
    partition: PartitionSpec | None = read_partition(cursor) if cursor.take("PARTITION") else None
    if cursor.take("COMPACT"):
        found: Any = CompactTable(name=target.name, if_exists=if_exists, partition=partition)
    elif partition is not None:
        cursor.expect("SET")
        options = read_set_options(cursor)
        found = SetPartitionOptions(name=target.name, if_exists=if_exists, partition=partition, options=options)
    else:
        word = cursor.take_any(*_ACTIONS)
        if word is None and cursor.sees("EXECUTE"):
            hint = "syntax error, a procedure is called: write=\"CALL sys.procedure('db.t', ...)\""
            raise WordElsewhereError(str(cursor.problem(hint)), target.name)
        if word is None:
            raise cursor.problem("syntax error, expected what to change: SET, ADD, DROP, RENAME, ALTER, COMPACT, ...")
        found = _ACTIONS[word](cursor, target)
    cursor.expect_end()
    return found


def read_comment_on(cursor: Cursor) -> AlterTable | None:
    """What follows COMMENT ON; None when it is Spark's."""
    kind = cursor.take_any("TABLE", "COLUMN")
    if kind is None:
        return None
    name = cursor.names(f"the name of a {kind.lower()}")
    cursor.expect("IS")
    comment = None if cursor.take("NULL") else cursor.string()
    cursor.expect_end()
    if kind == "TABLE":
        return _Target(name, if_exists=False).changed(SetComment(comment))
    return _Target(name[:-1], if_exists=False).changed(ChangeComment(name[-1:], comment))


def _set(cursor: Cursor, target: _Target) -> AlterTable:
    if cursor.sees_any("LOCATION", "SERDE", "SERDEPROPERTIES", "FILEFORMAT"):
        raise cursor.problem("a table of Fluvial has nothing of this kind")
    changes: list[SchemaChange] = []
    for key, text in read_set_options(cursor).items():
        changes.append(SetComment(text) if key == "comment" else SetOption(key, text))
    return target.changed(*changes)


def _unset(cursor: Cursor, target: _Target) -> AlterTable:
    cursor.take_any("TBLPROPERTIES", "OPTIONS")
    cursor.if_exists()
    keys = cursor.listed(read_option_key)
    return target.changed(*(SetComment(None) if key == "comment" else RemoveOption(key) for key in keys))


def _rename(cursor: Cursor, target: _Target) -> AlterTable | RenameTable:
    if cursor.take("TO"):
        return RenameTable(
            name=target.name, if_exists=target.if_exists, new_name=cursor.names("the new name of the table")
        )
    cursor.take("COLUMN")
    column = cursor.names("a column")
    cursor.expect("TO")
    return target.changed(RenameColumn(column, cursor.name("the new name of the column")))


def _add(cursor: Cursor, target: _Target) -> AlterTable:
    if cursor.sees("WATERMARK", "FOR"):
        return _watermark(cursor, target)
    check = read_check(cursor)
    if check is not None:
        if check.name is None:
            raise cursor.problem("a constraint that is added has a name: write CONSTRAINT name CHECK (...)")
        return target.changed(*starmap(SetOption, check_options([check]).items()), adds_check=True)
    _refuse_keys(cursor)
    if cursor.sees_any("PARTITION"):
        raise cursor.problem("a partition comes with its first row, and cannot be added without")
    is_announced = cursor.take_any("COLUMN", "COLUMNS") is not None
    if_not_exists = is_announced and cursor.if_not_exists()
    if cursor.sees("IF", "NOT"):
        raise cursor.problem("a partition comes with its first row, and cannot be added without")
    changes = [_added(cursor, column) for column in _columns(cursor)]
    return target.changed(*changes, if_column_not_exists=if_not_exists)


def _added(cursor: Cursor, column: ColumnClause) -> AddColumn:
    if column.checks:
        raise cursor.problem("a constraint is added by itself: ADD COLUMN, then ADD CONSTRAINT name CHECK (...)")
    if column.type is None or column.is_key:
        raise cursor.problem("columns that are added hold values, and are no part of the key")
    return AddColumn(
        path=column.path, type=column.type, comment=column.comment, default=column.default, position=column.position
    )


def _drop(cursor: Cursor, target: _Target) -> AlterTable | DropPartitions:
    if cursor.take("WATERMARK"):
        return target.changed(RemoveOption("watermark.column"), RemoveOption("watermark.expression"))
    if cursor.take("CONSTRAINT"):
        if_exists = cursor.if_exists()
        name = cursor.name("the name of the constraint")
        cursor.take_any("RESTRICT", "CASCADE")
        return target.changed(RemoveOption(CHECK_PREFIX + name), if_check_exists=if_exists)
    _refuse_keys(cursor)
    is_announced = cursor.take_any("COLUMN", "COLUMNS") is not None
    if_exists = cursor.if_exists()
    if not is_announced and cursor.sees("PARTITION", "("):
        return _drop_partitions(cursor, target, if_exists)
    if cursor.sees("("):
        columns = cursor.listed(lambda inner: inner.names("a column"))
    else:
        columns = [cursor.names("a column")]
        while cursor.take(","):
            columns.append(cursor.names("a column"))
    return target.changed(*map(DropColumn, columns), if_column_exists=if_exists)


def _drop_partitions(cursor: Cursor, target: _Target, if_exists: bool) -> DropPartitions:
    partitions = []
    while cursor.take("PARTITION"):
        partitions.append(read_partition(cursor))
        cursor.take(",")
    cursor.take("PURGE")
    return DropPartitions(
        name=target.name, if_exists=target.if_exists, if_partition_exists=if_exists, partitions=tuple(partitions)
    )


def _alter_column(cursor: Cursor, target: _Target) -> AlterTable:
    cursor.take("COLUMN")
    changes = _column_changes(cursor)
    while cursor.take(","):
        changes += _column_changes(cursor)
    return target.changed(*changes)


def _column_changes(cursor: Cursor) -> list[SchemaChange]:
    path = cursor.names("a column")
    if cursor.take("TYPE"):
        data_type = read_type(cursor)
        changes: list[SchemaChange] = [ChangeType(path, data_type)]
        return changes if data_type.nullable else [*changes, ChangeNullability(path, nullable=False)]
    if cursor.take("SET", "NOT", "NULL"):
        return [ChangeNullability(path, nullable=False)]
    if cursor.take("DROP", "NOT", "NULL"):
        return [ChangeNullability(path, nullable=True)]
    if cursor.take("COMMENT"):
        return [ChangeComment(path, cursor.string())]
    if cursor.take("SET", "DEFAULT"):
        return [ChangeDefault(path, read_default(cursor))]
    if cursor.take("DROP", "DEFAULT"):
        return [ChangeDefault(path, None)]
    position = read_position(cursor)
    if position is None:
        raise cursor.problem("syntax error, expected TYPE, SET, DROP, COMMENT, FIRST or AFTER: how the column changes")
    return [MoveColumn(path, position)]


def _change(cursor: Cursor, target: _Target) -> AlterTable:
    """Hive's: the old name, the new name, the type."""
    cursor.take("COLUMN")
    before = cursor.index
    path = cursor.names("a column")
    if cursor.sees_any("TYPE", "SET", "DROP", "COMMENT", "FIRST", "AFTER"):
        cursor.index = before
        return target.changed(*_column_changes(cursor))
    name = cursor.name("the new name of the column")
    column = read_column(cursor, names=(*path[:-1], name))
    renames: list[SchemaChange] = [] if name == path[-1] else [RenameColumn(path, name)]
    return target.changed(*renames, *_redefined(cursor, column))


def _modify(cursor: Cursor, target: _Target) -> AlterTable:
    """Flink's: a column as it will be."""
    if cursor.sees("WATERMARK", "FOR"):
        return _watermark(cursor, target)
    _refuse_keys(cursor)
    cursor.take("COLUMN")
    return target.changed(*(change for column in _columns(cursor) for change in _redefined(cursor, column)))


def _redefined(cursor: Cursor, column: ColumnClause) -> list[SchemaChange]:
    if column.type is None or column.is_key or column.checks:
        raise cursor.problem("computed columns and keys do not change, and constraints are added by themselves")
    changes: list[SchemaChange] = [ChangeType(column.path, column.type)]
    if not column.type.nullable:
        changes.append(ChangeNullability(column.path, nullable=False))
    if column.comment is not None:
        changes.append(ChangeComment(column.path, column.comment))
    if column.default is not None:
        changes.append(ChangeDefault(column.path, column.default))
    if column.position is not None:
        changes.append(MoveColumn(column.path, column.position))
    return changes


def _replace(cursor: Cursor, target: _Target) -> ReplaceColumns:
    cursor.expect("COLUMNS")
    columns = cursor.listed(read_column)
    if any(column.type is None or column.is_key or column.checks or len(column.path) > 1 for column in columns):
        raise cursor.problem("columns with their types are listed here, nothing else")
    return ReplaceColumns(
        name=target.name, if_exists=target.if_exists, fields=tuple(column.field for column in columns)
    )


def _watermark(cursor: Cursor, target: _Target) -> AlterTable:
    cursor.expect("WATERMARK", "FOR")
    column = ".".join(cursor.names("a column"))
    cursor.expect("AS")
    expression = read_expression_text(cursor)
    return target.changed(SetOption("watermark.column", column), SetOption("watermark.expression", expression))


def _columns(cursor: Cursor) -> list[ColumnClause]:
    if cursor.sees("("):
        return cursor.listed(read_column)
    columns = [read_column(cursor)]
    while cursor.take(","):
        columns.append(read_column(cursor))
    return columns


def _refuse_keys(cursor: Cursor) -> None:
    if cursor.sees_any("PRIMARY KEY", "CONSTRAINT") or cursor.sees("PRIMARY", "KEY"):
        raise cursor.problem("the key of a table never changes: create a new table and copy")


_ACTIONS: Final[Mapping[str, Callable[[Cursor, _Target], Any]]] = {
    "SET": _set,
    "UNSET": _unset,
    "RESET": _unset,
    "RENAME": _rename,
    "ADD": _add,
    "DROP": _drop,
    "ALTER": _alter_column,
    "CHANGE": _change,
    "MODIFY": _modify,
    "REPLACE": _replace,
}
