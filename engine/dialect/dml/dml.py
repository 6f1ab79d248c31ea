"""Statements that write rows."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from threading import Lock
from typing import Any, Final
from weakref import WeakValueDictionary

import pyarrow as pa
from sqlglot import exp

from engine.dialect.dml.insert import run_insert
from engine.dialect.dml.merge import run_merge
from engine.dialect.dml.row_changes import run_delete, run_update
from engine.dialect.dml.target import RESULT_SCHEMA
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.query import BoundText, QueryTarget
from engine.dialect.query.reads import StatementReads
from engine.dialect.query.references import written_table
from engine.dialect.scope.context import SqlContext
from engine.write.ticket_queue import NoTurnError
from lsm.errors import ConflictError
from lsm.retry import retrying

STATEMENT_ATTEMPTS: Final = 16
"""How often a statement is computed, at most."""
_repeats: Final[WeakValueDictionary[tuple[str, str], Lock]] = WeakValueDictionary()  # by warehouse and table
_RUN: Final[Mapping[type, Callable[[SqlContext, Statement], pa.Table | None]]] = {
    exp.Insert: run_insert,
    exp.Delete: run_delete,
    exp.Update: run_update,
    exp.Merge: run_merge,
}


def run_dml(context: SqlContext, statement: Statement) -> pa.Table:
    """INSERT, DELETE, UPDATE or MERGE, in one commit.

    A change that was computed from a state that other writers have changed meanwhile is computed again. In this process
    only one statement on a table does that at a time, and changes that come meanwhile wait for it: so of many threads
    that change the same rows each has its turn, and none is beaten again and again.

    Args:
        context: the session.
        statement: one of these; a statement on another table is run by Spark.

    Returns:
        One row: see ``RESULT_SCHEMA``.

    Raises:
        InvalidInputError: points at the error; nothing is visible.
        ConflictError: other writers changed the same rows each time, or one of them has its turn for longer than
            ``log.turn-timeout``; nothing is visible.
    """
    run = _RUN.get(type(statement.tree))
    if run is None:
        raise statement.source.problem("this statement cannot write rows", 0, len(statement.text))
    if not isinstance(statement.tree.this, exp.Expr):  # sqlglot reads DELETE t WHERE ...
        raise statement.source.problem("syntax error, expected FROM", 0, len(statement.text))
    repeats = _repeats.setdefault(_place(context, statement.tree), Lock())
    try:
        with repeats if repeats.locked() and _replaces(statement.tree) else nullcontext():
            done = run(context, statement)
    except ConflictError as conflict:
        _check_worthwhile(conflict)
        with repeats:
            done = retrying(lambda: run(context, statement), attempts=STATEMENT_ATTEMPTS - 1, replan=_check_worthwhile)
    return _in_spark(context, statement) if done is None else done


def _place(context: SqlContext, tree: exp.Expr) -> tuple[str, str]:
    """The warehouse of the table that a statement writes, and its name with the database."""
    table = written_table(tree)
    parts = [part.name for part in table.parts] if isinstance(table, exp.Table) else []
    name = ".".join(parts if len(parts) > 1 else [context.database, *parts])
    return context.catalog.warehouse, name.removeprefix(f"{context.catalog_name}.")


def _replaces(tree: exp.Expr) -> bool:
    """Whether a statement depends on rows that are there: it changes them, or its query reads the table."""
    if not isinstance(tree, exp.Insert) or tree.args.get("where"):
        return True
    written = written_table(tree)
    name = written.name.lower() if isinstance(written, exp.Table) else ""
    return any(each is not written and each.name.lower() == name for each in tree.find_all(exp.Table))


def _check_worthwhile(conflict: ConflictError) -> None:
    """Who has waited for its turn for so long does not begin again. Raises: the conflict."""
    if isinstance(conflict, NoTurnError):
        raise conflict


def _in_spark(context: SqlContext, statement: Statement) -> pa.Table:
    """The target is Spark's table; the sources may be Fluvial's."""
    tree: Any = statement.tree
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    start = node.meta.get("span", (-1,))[0]
    with BoundText.bind(context, statement, StatementReads(context), target=QueryTarget(start)) as bound:
        bound.frame().collect()
    return RESULT_SCHEMA.empty_table()
