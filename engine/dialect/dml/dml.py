"""Statements that write rows."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from engine.dialect.dml.insert import insert_query, run_insert
from engine.dialect.dml.merge import run_merge
from engine.dialect.dml.row_changes import run_delete, run_update
from engine.dialect.dml.target import RESULT_SCHEMA
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.query import BoundText, QueryTarget
from engine.dialect.query.reads import StatementReads
from engine.dialect.scope.context import SqlContext
from engine.write.turns.ticket_queue import NoTurnError
from lsm.errors import ConflictError
from lsm.retry import retrying

_ATTEMPTS: Final = 4
_RUN: Final[Mapping[type, Callable[[SqlContext, Statement], pa.Table | None]]] = {
    exp.Insert: run_insert,
    exp.Delete: run_delete,
    exp.Update: run_update,
    exp.Merge: run_merge,
}


def run_dml(context: SqlContext, statement: Statement) -> pa.Table:
    """INSERT, DELETE, UPDATE or MERGE, in one commit.

    A change that was computed from a state that other writers have changed meanwhile is recomputed, a few times.

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
    done = retrying(lambda: run(context, statement), attempts=_ATTEMPTS, replan=_check_worthwhile)
    return _in_spark(context, statement) if done is None else done


def _check_worthwhile(conflict: ConflictError) -> None:
    """Who has waited for its turn for so long does not begin again. Raises: the conflict."""
    if isinstance(conflict, NoTurnError):
        raise conflict


def run_ctas(context: SqlContext, statement: Statement, table_name: str) -> pa.Table:
    """Fill a table that was created for a query.

    Args:
        context: the session.
        statement: the query.
        table_name: ``database.table``; its columns are the query's, in order.

    Returns:
        One row: see ``RESULT_SCHEMA``.
    """
    return insert_query(context, statement, table_name)


def _in_spark(context: SqlContext, statement: Statement) -> pa.Table:
    """The target is Spark's table; the sources may be Fluvial's."""
    tree: Any = statement.tree
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    start = node.meta.get("span", (-1,))[0]
    with BoundText.bind(context, statement, StatementReads(context), target=QueryTarget(start)) as bound:
        bound.frame().collect()
    return RESULT_SCHEMA.empty_table()
