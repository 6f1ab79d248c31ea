"""What carries out statements with rows: loaded when the first such statement comes, for it needs Spark."""

from importlib import import_module
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from engine.sql.context import SqlContext
from engine.sql.statements import CreateTable, Statement


def run_query(context: SqlContext, statement: Statement) -> DataFrame:
    """The frame of a query."""
    return import_module("engine.sql.query").run_query(context, statement)


def run_dml(context: SqlContext, statement: Statement) -> pa.Table:
    """INSERT, DELETE, UPDATE, MERGE."""
    return import_module("engine.sql.dml").run_dml(context, statement)


def run_ctas(context: SqlContext, statement: Statement, create: CreateTable) -> pa.Table:
    """Fill the table that was just made from the query of its CREATE TABLE.

    Args:
        context: of the session.
        statement: the query.
        create: what made the table; its name is ``(database, table)``.
    """
    return import_module("engine.sql.dml").run_ctas(context, statement, ".".join(create.name))


def run_explain(context: SqlContext, statement: Statement) -> pa.Table:
    """EXPLAIN."""
    return import_module("engine.sql.explain").run_explain(context, statement)


def call(context: SqlContext, statement: Statement) -> Any:
    """CALL."""
    return import_module("engine.procedures").call(context, statement)
