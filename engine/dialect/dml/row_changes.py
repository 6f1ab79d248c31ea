"""DELETE and UPDATE.

One Spark query reads the table at one snapshot and returns the changes; one commit writes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import exp

from engine.dialect.dml.assignment import default_sql
from engine.dialect.dml.target import WriteTarget, find_target
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.query import BoundText, QueryTarget, TargetUse
from engine.dialect.query.reads import ReadPlan, StatementReads
from engine.dialect.query.references import StatementText
from engine.dialect.query.usage import condition_parts
from engine.dialect.scope.context import SqlContext
from engine.types.column_names import CaseRule
from engine.types.quoting import quoted
from engine.types.rows import ROW_KIND_COLUMN
from engine.write.row_places import FILE_NAME, ROW_NUMBER
from filestore.predicate.predicate import Compare, CompareOp
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError


@dataclass(frozen=True)
class Assignment:
    """``column = expression``, or ``column.field = expression``, as offsets in the statement's text."""

    path: tuple[str, ...]
    start: int  # of the expression
    stop: int
    name_start: int


@dataclass(frozen=True, slots=True)
class AssignedValue:
    """A value for a column, or for a field inside one."""

    path: tuple[str, ...]
    value: Column
    type: T.DataType


def run_delete(context: SqlContext, statement: Statement) -> pa.Table | None:
    """Delete rows; None: not a Fluvial table. Whole partitions are overwritten, other rows deleted individually.

    Raises:
        InvalidInputError: points at the error; nothing is visible.
        ConflictError: other writers committed meanwhile; nothing is visible: see ``Table.append``.
    """
    tree = statement.tree
    assert isinstance(tree, exp.Delete)
    target = find_target(context, statement, tree.this)
    if target is None:
        return None
    text = StatementText(statement)
    with target.turn(), bind_changed(context, statement, tree, StatementReads(context), target) as bound:
        partition = whole_partition(bound, tree, target.schema.partition_keys)
        if partition is not None:
            return target.clear(partition)
        _check(target, statement, "DELETE")
        head = bound.spliced.part(0, text.start_of(text.head("DELETE", tree.this)))
        rest = bound.spliced.part(_start(tree), len(text.text))
        if target.deletes_positions:
            rows = bound.frame(f"{head}SELECT {', '.join(_places(tree))} FROM {rest}")
            return target.replace_rows(changed_plan(bound, _start(tree)).plan, rows, None, "rows_deleted")
        rows = bound.frame(f"{head}SELECT * FROM {rest}")
        columns = [F.col(quoted(name)) for name in target.schema.column_names]
        changes = rows.select(*columns, F.lit("-D").alias(ROW_KIND_COLUMN))
        return target.append(changes, read_snapshot_id=read_snapshot_id(bound, _start(tree)))


def run_update(context: SqlContext, statement: Statement) -> pa.Table | None:
    """Update rows; None: not a Fluvial table.

    Raises:
        InvalidInputError: points at the error; nothing is visible.
        ConflictError: other writers committed meanwhile; nothing is visible: see ``Table.append``.
    """
    tree = statement.tree
    assert isinstance(tree, exp.Update)
    target = find_target(context, statement, tree.this)
    if target is None:
        return None
    _check(target, statement, "UPDATE")
    text = StatementText(statement)
    behind = text.find("SET", text.index_at(tree.this.meta["span"][1]))
    end = text.find("WHERE", behind)
    alias = (tree.this.alias or tree.this.name).lower()
    assignments = read_assignments(text, behind + 1, end, alias, target.names)
    for each in assignments:
        check_assigned(target, statement, each)
    with target.turn(), bind_changed(context, statement, tree, StatementReads(context), target) as bound:
        head = bound.spliced.part(0, text.start_of(text.head("UPDATE", tree.this)))
        table = bound.spliced.part(_start(tree), text.start_of(behind))
        where = bound.spliced.part(text.start_of(end), len(text.text))
        old = [f"{quoted(tree.this.alias or tree.this.name)}.{quoted(name)}" for name in target.schema.column_names]
        values = [expression_sql(bound, target, each) for each in assignments]
        if target.deletes_positions:
            found = bound.frame(f"{head}SELECT {', '.join([*old, *values, *_places(tree)])} FROM {table} {where}")
            found = found.localCheckpoint()  # rows and positions come from one computation
            new_rows = _updates(target, found, assignments, keeps_old=False).drop(ROW_KIND_COLUMN)
            return target.replace_rows(changed_plan(bound, _start(tree)).plan, found, new_rows, "rows_updated")
        found = bound.frame(f"{head}SELECT {', '.join([*old, *values])} FROM {table} {where}")
        changes = _updates(target, found, assignments)
        return target.append(changes, read_snapshot_id=read_snapshot_id(bound, _start(tree)))


def read_assignments(text: StatementText, start: int, stop: int, alias: str, names: CaseRule) -> list[Assignment]:
    """The assignments of a SET, between two tokens.

    Args:
        text: the statement.
        start: index of the first token after SET.
        stop: index of the token after the last assignment.
        alias: alias of the updated table, in lower case; it may qualify a column.
        names: when two names of columns are one.

    Raises:
        InvalidInputError: not an assignment, or a column is assigned twice, maybe as a field of it.
    """
    depth, commas = 0, [start - 1]
    for index in range(start, stop):
        word = text.tokens[index].text
        depth += (word in ("(", "[")) - (word in (")", "]"))
        if word == "," and depth == 0:
            commas.append(index)
    found: list[Assignment] = []
    for before, after in pairwise([*commas, stop]):
        path, index = [], before + 1
        name_start = text.start_of(index)
        while index < after:
            path.append(text.tokens[index].text)
            index += 1
            if text.word(index) != ".":
                break
            index += 1
        if index + 1 >= after or text.tokens[index].text not in ("=", "=="):
            raise text.statement.source.problem(
                "syntax error, expected column = value", name_start, text.start_of(after)
            )
        if len(path) > 1 and path[0].lower() == alias:
            path = path[1:]
        if any(_overlap(one.path, path, names) for one in found):
            raise text.statement.source.problem(
                f"a column is assigned twice: column={'.'.join(path)}", name_start, text.start_of(index)
            )
        found.append(Assignment(tuple(path), text.start_of(index + 1), text.tokens[after - 1].end + 1, name_start))
    return found


def _overlap(one: Sequence[str], other: Sequence[str], names: CaseRule) -> bool:
    """Whether two names are of one column, or of a column and a field inside it."""
    return all(names.folded(part) == names.folded(same) for part, same in zip(one, other, strict=False))


def check_assigned(target: WriteTarget, statement: Statement, assignment: Assignment) -> DataField:
    """The column of an assignment.

    Raises:
        InvalidInputError: an unknown column, or a column of the key or the partition.
    """
    place, schema = (assignment.name_start, assignment.start), target.schema
    try:
        field = target.field(assignment.path[0])
    except InvalidInputError as error:
        raise statement.source.problem(str(error), *place) from error
    if field.name in (*schema.primary_keys, *schema.partition_keys):
        what = "primary key" if field.name in schema.primary_keys else "partition"
        raise statement.source.problem(
            f"a row keeps its {what}: column={field.name} fix=DELETE the row and INSERT it with another one", *place
        )
    return field


def expression_sql(bound: BoundText, target: WriteTarget, assignment: Assignment) -> str:
    """The expression for Spark; DEFAULT is replaced by the column's default."""
    text = bound.spliced.part(assignment.start, assignment.stop)
    return default_sql(target.field(assignment.path[0])) if text.strip().upper() == "DEFAULT" else f"({text})"


def read_snapshot_id(bound: BoundText, start: int) -> int:
    """The snapshot of the changed table that the statement reads; 0 for an empty table."""
    plan = changed_plan(bound, start)
    return 0 if plan.read.snapshot is None else plan.read.snapshot.id


def changed_plan(bound: BoundText, start: int) -> ReadPlan:
    """How the changed table is read."""
    return next(each for each in bound.plans if each.reference.start == start)


def _places(tree: exp.Delete | exp.Update) -> list[str]:
    """The columns with the position of a row in the changed table."""
    return [f"{quoted(tree.this.alias or tree.this.name)}.{quoted(name)}" for name in (FILE_NAME, ROW_NUMBER)]


def before_and_after(frame: DataFrame, before: Mapping[str, Column], after: Mapping[str, Column]) -> DataFrame:
    """Two rows for each: the old one as ``-U``, then the new one as ``+U``."""
    old = F.struct(F.lit("-U").alias(ROW_KIND_COLUMN), *[value.alias(name) for name, value in before.items()])
    new = F.struct(F.lit("+U").alias(ROW_KIND_COLUMN), *[value.alias(name) for name, value in after.items()])
    return frame.select(F.explode(F.array(old, new)).alias("row")).select("row.*")


def _updates(
    target: WriteTarget, found: DataFrame, assignments: list[Assignment], *, keeps_old: bool = True
) -> DataFrame:
    """The changes from the old columns and the new values after them; ``keeps_old``: the log needs both."""
    schema = target.schema
    types = [field.dataType for field in found.schema.fields]
    plain = found.toDF(*[f"_{index}" for index in range(len(types))])
    old = {field.name: F.col(f"_{index}") for index, field in enumerate(schema.fields)}
    given = [
        AssignedValue(each.path, F.col(f"_{index}"), types[index])
        for index, each in enumerate(assignments, len(schema.fields))
    ]
    new = {**old, **assigned_columns(target, plain, old, given)}
    if keeps_old and target.table.options.log_takes_old_rows:
        return before_and_after(plain, old, new)
    return plain.select(*[value.alias(name) for name, value in new.items()], F.lit("+U").alias(ROW_KIND_COLUMN))


def assigned_columns(
    target: WriteTarget, frame: DataFrame, old: Mapping[str, Column], values: Sequence[AssignedValue]
) -> dict[str, Column]:
    """The columns that values are assigned to, with their new values, by name.

    Args:
        target: the table.
        frame: that all columns here are of.
        old: the columns of the table as they are.
        values: in the order of the statement.

    Raises:
        InvalidInputError: a value cannot be stored, or there is no such field.
    """
    raw: dict[str, tuple[Column, T.DataType]] = {}
    for each in values:
        name = target.field(each.path[0]).name
        if len(each.path) == 1:
            raw[name] = (each.value, each.type)
            continue
        whole = raw[name][0] if name in raw else old[name]
        changed = _with_field(whole, _type_of(frame, whole), each.path, 1, each.value, target.names)
        raw[name] = (changed, _type_of(frame, changed))
    return {name: target.assignment.stored(*each, target.field(name), by_name=True) for name, each in raw.items()}


def _type_of(frame: DataFrame, column: Column) -> T.DataType:
    return frame.select(column).schema.fields[0].dataType


def _with_field(
    whole: Column, given: T.DataType, path: Sequence[str], depth: int, value: Column, names: CaseRule
) -> Column:
    """A struct with another value of one field; a null struct becomes one whose other fields are null, as in Spark.

    Args:
        whole: the struct.
        given: its type.
        path: of the field, from the column on.
        depth: index in the path of a field of this struct.
        value: of the field.
        names: when two names are one.

    Raises:
        InvalidInputError: it has no such field.
    """
    fields = given.fields if isinstance(given, T.StructType) else []
    wanted = names.found(path[depth], [each.name for each in fields])
    if wanted is None:
        known = [each.name for each in fields]
        raise InvalidInputError(f"no such field: column={'.'.join(path[: depth + 1])} fields={known}")

    def part(field: T.StructField) -> Column:
        inside = whole.getField(field.name)
        if field.name != wanted:
            return inside
        is_inner = depth + 1 < len(path)
        return _with_field(inside, field.dataType, path, depth + 1, value, names) if is_inner else value

    return F.struct(*[part(field).alias(field.name) for field in fields])


def _check(target: WriteTarget, statement: Statement, what: str) -> None:
    try:
        target.check_changes_rows(what, deletes=what == "DELETE")
    except InvalidInputError as error:
        raise statement.source.problem(str(error), 0, len(statement.text)) from error


def bind_changed(
    context: SqlContext, statement: Statement, tree: exp.Expr, reads: StatementReads, target: WriteTarget
) -> BoundText:
    """The text of a change with the rows of its table, and their places where the table deletes by these."""
    use = TargetUse.PLACED_ROWS if target.deletes_positions else TargetUse.ROWS
    return BoundText.bind(context, statement, reads, target=QueryTarget(_start(tree), use))


def _start(tree: exp.Expr) -> int:
    start: int = tree.this.meta["span"][0]
    return start


def whole_partition(bound: BoundText, tree: exp.Delete, partition_keys: Sequence[str]) -> dict[str, object] | None:
    """Partition values when exactly all rows with these values are deleted; {} is the whole table."""
    where = tree.args.get("where")
    if where is None:
        return {}
    conditions = next(each.conditions for each in bound.plans if each.reference.start == _start(tree))
    if len(conditions) != len(list(condition_parts(where.this))):
        return None
    found: dict[str, object] = {}
    for each in conditions:
        test = each.predicate
        if not isinstance(test, Compare) or test.op is not CompareOp.EQ or test.path:
            return None
        if test.column not in partition_keys or test.column in found:
            return None
        found[test.column] = test.value
    return found
