"""Apply the table changes of a plan: create missing tables and topics, and run the plan's statements.

Differences that no statement can change (keys and partitions) are refused before anything is done. Pipelines are left
to a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.catalog import Catalog
from engine.deploy.config.job_config import JobConfig
from engine.deploy.pipeline.table_changes import ensure_table
from engine.deploy.plan import DeployPlan, DeployStep, PlannedAction, no_spark
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from lsm.errors import InvalidInputError
from lsm.secret_names import shown_pairs

_TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedStep:
    """One applied change."""

    table: str
    statement: str | None  # None: the table was created, with its topic if it has a log


def steps_to_apply(plan: DeployPlan) -> list[DeployStep]:
    """The changes of tables, in the order of the plan.

    Raises:
        InvalidInputError: a table or topic differs in a way that no statement can change; nothing may be applied.
    """
    about_tables = [each for each in plan.steps if each.kind != "pipeline"]
    stuck = [each for each in about_tables if each.action is PlannedAction.REFUSE and each.statement is None]
    if stuck:
        facts = "; ".join(f"{each.kind} {each.name}: {each.fact}" for each in stuck)
        raise InvalidInputError(
            f"no statement can change this, nothing was done: {facts} fix=change the job file, or create another table "
            "and copy the rows"
        )
    return [
        each
        for each in about_tables
        if each.statement is not None or (each.kind == _TABLE and each.action is PlannedAction.CREATE)
    ]


def apply_steps(config: JobConfig, steps: Sequence[DeployStep]) -> list[AppliedStep]:
    """Apply the steps one after another; each is applied or not.

    Args:
        config: the job.
        steps: result of ``steps_to_apply``.

    Raises:
        InvalidInputError: a statement is refused, for example a narrower type that does not fit a value; the message
            lists the steps applied before.
        UnavailableError: a broker does not answer; earlier steps stay applied.
    """
    catalog = Catalog(config.warehouse, options=config.catalog_options)
    session = SqlSession(SqlContext(catalog=catalog, open_spark=no_spark))
    done: list[AppliedStep] = []
    for step in steps:
        if step.statement is None:
            ensure_table(catalog, step.name, config.tables[step.name])
        else:
            try:
                session.execute(step.statement)
            except InvalidInputError as error:
                before = [shown_pairs(each.statement or "") or f"CREATE TABLE {each.table}" for each in done]
                raise InvalidInputError(f"{error} statement={step.shown_statement} done_before={before}") from error
        done.append(AppliedStep(table=step.name, statement=step.statement))
    return done
