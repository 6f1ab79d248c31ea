"""Checks of a job without tables, brokers or Spark: are its options, types and names valid?"""

import os
from collections.abc import Callable, Iterator

import sqlglot
from sqlglot.errors import SqlglotError

from engine.deploy.config.config_file import KeyPath
from engine.deploy.config.job_config import JobConfig
from engine.deploy.config.pipeline_config import PipelineConfig, TransformConfig
from engine.deploy.pipeline.sources import check_source
from engine.deploy.pipeline.table_changes import job_fields
from engine.deploy.pipeline.transforms import function_named
from engine.log.catalog_login import CatalogLogin
from engine.request.writer_options import SINK_KEYS, WriterOptions
from filestore.catalog.table_names import PLACES_DIRECTORY
from filestore.catalog.table_place import wanted_place, without_place
from filestore.layout.branch_names import split_branch
from filestore.options.catalog_options import CatalogOptions
from filestore.options.table_options import given_to_table
from filestore.predicate.sql_problems import problem_of
from filestore.schema.schema_store import new_schema
from lsm.errors import InvalidInputError, ManyProblemsError
from lsm.nearest_names import close_names

JobCheck = tuple[KeyPath, Callable[[], object]]


def check_job(
    job: JobConfig, *, with_sql: bool = False, with_functions: bool = False, with_targets: bool = False
) -> None:
    """Refuse a job that cannot work, with all its problems at once.

    Args:
        job: the parsed job file.
        with_sql: check queries, too: syntax, views, columns and types. A run leaves that to Spark.
        with_functions: import the modules of Python transforms.
        with_targets: look for typing errors in the names of targets, too. A plan and a run ask the catalog.

    Raises:
        InvalidInputError: all problems, each with key, file and line.
    """
    problems: list[str] = []
    checks = [*_table_checks(job), *_pipeline_checks(job)]
    checks += _sql_checks(job) if with_sql else ()
    checks += _function_checks(job) if with_functions else ()
    checks += _target_checks(job) if with_targets else ()
    for path, check in checks:
        try:
            check()
        except InvalidInputError as error:
            problems.append(" ".join(f"{error} {job.where(path)}".split()))
    if problems:
        text = "\n".join(problems)
        for secret in job.secrets:
            text = text.replace(secret, "******")
        raise ManyProblemsError(text)


def check_table_options(job: JobConfig, name: str) -> dict[str, str]:
    """The options that are stored with a table that the job creates."""
    catalog, options = CatalogOptions.parse(job.catalog_options), job.tables[name].options
    usual = "{}/{}.db/{}".format(job.warehouse, *name.split("."))
    wanted_place(name, options, catalog=catalog, warehouse=job.warehouse, usual=usual)
    defaults, own = without_place(catalog.table_defaults), without_place(options)
    return CatalogLogin(defaults).stored(given_to_table(own, defaults), own)


def _table_checks(job: JobConfig) -> Iterator[JobCheck]:
    for name in job.tables:
        yield ("tables", name), lambda name=name: _schema_of(job, name)  # type: ignore[misc]


def _schema_of(job: JobConfig, name: str) -> object:
    table = job.tables[name]
    return new_schema(
        job_fields(table),
        primary_key=table.primary_key,
        partition_by=table.partition_by,
        options=check_table_options(job, name),
        comment=table.comment,
        time_ms=0,
    )


def _pipeline_checks(job: JobConfig) -> Iterator[JobCheck]:
    for index, pipeline in enumerate(job.pipelines):
        path: KeyPath = ("pipelines", index)
        yield (*path, "source"), lambda each=pipeline: check_source(job, each)  # type: ignore[misc]
        yield path, lambda each=pipeline: _check_sink_options(each)  # type: ignore[misc]


def _steps(job: JobConfig, index: int) -> list[tuple[KeyPath, TransformConfig]]:
    path, pipeline = ("pipelines", index), job.pipelines[index]
    steps: list[tuple[KeyPath, TransformConfig]] = [((*path, "transform"), step) for step in pipeline.transform]
    return steps + [((*path, "targets", at), step) for at, out in enumerate(pipeline.targets) for step in out.transform]


def _function_checks(job: JobConfig) -> Iterator[JobCheck]:
    for index in range(len(job.pipelines)):
        for where, step in _steps(job, index):
            if step.python is not None:
                yield where, lambda name=step.python: function_named(name)  # type: ignore[misc]


def _target_checks(job: JobConfig) -> Iterator[JobCheck]:
    for index, pipeline in enumerate(job.pipelines):
        for output in pipeline.outputs:
            yield ("pipelines", index), lambda name=output.table: _check_target(job, name)  # type: ignore[misc]


def _check_target(job: JobConfig, target: str) -> None:
    """A table that the file does not declare may be in the warehouse; one that is nearly declared is not meant."""
    name, _ = split_branch(target)
    close = [] if name in job.tables else close_names(name, job.tables)
    database, table = name.split(".")
    places = [f"{job.warehouse}/{database}.db/{below}{table}" for below in ("", f"{PLACES_DIRECTORY}/")]
    if close and not any(map(os.path.isdir, places)):
        raise InvalidInputError(
            f"target is no table of the job file: target={target} did_you_mean={close[0]} "
            "fix='correct the name, or declare it under tables'"
        )


def _sql_checks(job: JobConfig) -> Iterator[JobCheck]:
    for index, pipeline in enumerate(job.pipelines):
        path: KeyPath = ("pipelines", index)
        steps = _steps(job, index)
        for where, step in steps:
            if step.sql is not None:
                yield where, lambda sql=step.sql: _check_sql(sql)  # type: ignore[misc]
        if all(step.sql is None or _is_query(step.sql) for _, step in steps):
            yield (*path, "transform"), lambda each=pipeline: _check_names(job, each)  # type: ignore[misc]


def _is_query(sql: str) -> bool:
    try:
        _check_sql(sql)
    except InvalidInputError:
        return False
    return True


def _check_names(job: JobConfig, pipeline: PipelineConfig) -> None:
    from engine.deploy.pipeline.query_check import check_queries, job_tables  # sqlglot's optimizer is slow to import

    check_source(job, pipeline)  # else its problem is another one, which is reported already
    check_queries(job, pipeline, job_tables(job))


def _check_sink_options(pipeline: PipelineConfig) -> None:
    for output in pipeline.outputs:
        WriterOptions.parse(output.options, SINK_KEYS, "sink option")


def _check_sql(sql: str) -> None:
    """Catches mistakes like a missing bracket."""
    try:
        sqlglot.parse_one(sql, read="spark")
    except SqlglotError as error:
        reason, place = problem_of(error, sql)
        raise InvalidInputError(f"not a query: reason={reason} sql={place} fix=correct the SQL") from error
    except RecursionError:
        raise InvalidInputError("not a query: reason=it is nested too deeply fix=leave out brackets") from None
