"""The changes that a run of a job would make: tables and topics to create, and where each pipeline resumes.

Reads warehouse, brokers and checkpoints, and changes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from pyspark.sql import SparkSession

from engine.catalog import Catalog, added_constraints, check_kept
from engine.checkpoint.checkpoint_files import is_readable, read_checkpoint
from engine.deploy.checks import check_job, check_table_options
from engine.deploy.config.job_config import JobConfig
from engine.deploy.config.operation_config import CONTINUE, RESTART
from engine.deploy.config.pipeline_config import PipelineConfig
from engine.deploy.pipeline.checkpoints import has_other_transform, source_difference
from engine.deploy.pipeline.query_check import ColumnCast, FieldsOf, check_queries, job_tables
from engine.deploy.pipeline.sources import kafka_options, source_table
from engine.deploy.pipeline.table_changes import TableDifference, table_differences
from engine.deploy.pipeline.transforms import function_named
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from engine.kafka.options import with_source_option_names
from engine.log.catalog_login import CatalogLogin
from engine.log.replacement import LogWanted
from engine.log.table_log import default_topic
from engine.table import Table
from filestore.evolution.publication import check_changes
from filestore.evolution.schema_change import SchemaChange
from filestore.layout.locations import absolute_path
from filestore.options.catalog_options import CatalogOptions
from filestore.options.table_options import TableOptions
from filestore.types.data_types import DataField
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from logstore.log.topic_claim import check_claimable
from lsm.errors import FluvialError, InvalidInputError
from lsm.nearest_names import close_names
from lsm.secret_names import shown_pairs


class PlannedAction(Enum):
    """The action of a run on a table, topic or pipeline."""

    CREATE = "create"
    CHANGE = "change"  # differs from the job file; the step's statement changes it
    START = "start"  # from the source's start
    CONTINUE = "continue"
    KEEP = "keep"
    REFUSE = "refuse"  # a run would fail, and no statement helps: another job file does


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployStep:
    """A table, topic or pipeline, with the planned action."""

    action: PlannedAction
    kind: str  # table, topic or pipeline
    name: str
    fact: str = ""
    statement: str | None = field(default=None, repr=False)  # SQL that makes it match the job file; may hold secrets
    is_before_run: bool = False  # of a change: no run starts before it is made

    @property
    def shown_statement(self) -> str | None:
        """The statement with stars for secrets."""
        return None if self.statement is None else shown_pairs(self.statement)

    @property
    def is_change(self) -> bool:
        """Whether something differs from the job file."""
        return self.action in (PlannedAction.CREATE, PlannedAction.CHANGE, PlannedAction.START)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployPlan:
    """The planned actions of a run, in order."""

    job: str
    steps: tuple[DeployStep, ...]

    @property
    def is_possible(self) -> bool:
        """Whether the run would start, once the changes of the plan are made."""
        return all(each.action is not PlannedAction.REFUSE for each in self.steps)

    @property
    def has_changes(self) -> bool:
        """Whether anything would be created, started, or differs from the job file."""
        return any(each.is_change for each in self.steps)

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON values, for scripts."""
        steps = [asdict(each) | {"action": each.action.value, "statement": each.shown_statement} for each in self.steps]
        return {"job": self.job, "possible": self.is_possible, "changes": self.has_changes, "steps": steps}


def make_plan(config: JobConfig) -> DeployPlan:
    """Plan the changes that a run would make now.

    Raises:
        InvalidInputError: the job file is invalid.
        UnavailableError: a broker does not answer.
    """
    check_job(config, with_sql=True)
    catalog = Catalog(config.warehouse, options=config.catalog_options)
    steps: list[DeployStep] = []
    for name in config.tables:
        steps += _table_steps(config, catalog, name)
    for pipeline in config.pipelines:
        steps += _pipeline_steps(config, catalog, pipeline)
    return DeployPlan(job=config.name, steps=tuple(steps))


def _table_steps(config: JobConfig, catalog: Catalog, name: str) -> Iterator[DeployStep]:
    wanted = config.tables[name]
    if not _exists(catalog, name):
        keys = f" primary_key={list(wanted.primary_key)}" if wanted.primary_key else ""
        yield DeployStep(
            action=PlannedAction.CREATE, kind="table", name=name, fact=f"columns={len(wanted.columns)}{keys}"
        )
        yield from _topic_steps(config, name)
        return
    differences = table_differences(name, catalog.table(name).schema, wanted)
    for each in differences:
        yield _step_of(config, name, each)
    if not differences:
        yield DeployStep(action=PlannedAction.KEEP, kind="table", name=name)


def _step_of(config: JobConfig, name: str, found: TableDifference) -> DeployStep:
    """The step for a difference; the statement is checked with the checks of its execution."""
    action, fact, statement = PlannedAction.CHANGE, found.fact, found.statement
    if statement is None:
        action = PlannedAction.REFUSE if found.is_refused else PlannedAction.KEEP
    else:
        try:
            asked = _AskedCatalog(config.warehouse, options=config.catalog_options)
            SqlSession(SqlContext(catalog=asked, open_spark=no_spark)).execute(statement)
        except InvalidInputError as error:
            action, fact, statement = PlannedAction.REFUSE, f"{fact} reason='{error}'", None
    is_needed = found.is_refused and action is PlannedAction.CHANGE
    fact += ", needed before a run" if is_needed else ""
    return DeployStep(action=action, kind="table", name=name, fact=fact, statement=statement, is_before_run=is_needed)


class _AskedCatalog(Catalog):
    """Says what a change of a table would be answered, and changes nothing."""

    def alter_table(self, name: str, changes: Sequence[SchemaChange]) -> Table:
        """Refuse what ``Catalog.alter_table`` refuses without its brokers."""
        table = self.table(name)
        if LogWanted.of(changes, table.store) is None:
            check_changes(table.store, changes)
            check_kept(table, added_constraints(table.schema, changes))
        return table


def no_spark() -> SparkSession:
    """Stands in for Spark in statements that change a schema, which need none. Raises: AssertionError."""
    raise AssertionError("a schema change needs no Spark")


def _topic_steps(config: JobConfig, name: str) -> Iterator[DeployStep]:
    given = check_table_options(config, name)
    options = TableOptions.parse(given, primary_key=config.tables[name].primary_key)
    if options.log_system == "none":
        return
    bucket_count = int(given.get("bucket", "1"))
    opening = CatalogLogin(CatalogOptions.parse(config.catalog_options).table_defaults).opening(given)
    topics = LogTopics(KafkaProperties.parse(options.with_only(opening).log_kafka))
    topics.check_reachable()
    topic = options.log_topic or default_topic(name)
    found = topics.find_topic(topic)
    made = f"partitions={bucket_count} table={name}"
    if found is not None and options.log_topic is None:
        made += ", with the table's id in its name: this one is in use"
    elif found is not None:
        action, fact = PlannedAction.KEEP, f"empty, adopted by table={name}"
        try:
            check_claimable(topics, found, bucket_count=bucket_count)
        except InvalidInputError as error:
            action, fact = PlannedAction.REFUSE, f"table={name} {error}"
        yield DeployStep(action=action, kind="topic", name=topic, fact=fact)
        return
    yield DeployStep(action=PlannedAction.CREATE, kind="topic", name=topic, fact=made)


def _pipeline_steps(config: JobConfig, catalog: Catalog, pipeline: PipelineConfig) -> Iterator[DeployStep]:
    try:
        _check_surroundings(config, catalog, pipeline)
        casts = check_queries(config, pipeline, _known_fields(config, catalog))
        place = _place_of(config, pipeline)
        yield replace(place, fact=place.fact + "".join(_casts_text(*each) for each in casts.items()))
    except InvalidInputError as error:
        yield DeployStep(action=PlannedAction.REFUSE, kind="pipeline", name=pipeline.name, fact=str(error))


def _known_fields(config: JobConfig, catalog: Catalog) -> FieldsOf:
    """Columns of tables of the job file, else of those that exist."""
    of_job = job_tables(config)

    def fields_of(name: str) -> Sequence[DataField] | None:
        found = of_job(name)
        return catalog.table(name).schema.fields if found is None and _exists(catalog, name) else found

    return fields_of


def _casts_text(table: str, casts: Sequence[ColumnCast]) -> str:
    return f", casts for {table}: {', '.join(map(str, casts))}" if casts else ""


def _check_surroundings(config: JobConfig, catalog: Catalog, pipeline: PipelineConfig) -> None:
    """Source, targets and functions exist. Raises: InvalidInputError, UnavailableError."""
    source = kafka_options(config, pipeline)
    if source is not None:
        try:
            topics = LogTopics(source.properties)
            topics.check_reachable()
            waits = config.on_failure.policy in (CONTINUE, RESTART)
            for option, names in (
                ("subscribe", () if waits else source.topics),
                ("dead-letter.topic", (source.dead_letter_topic,)),
            ):
                missing = [name for name in names if name is not None and topics.find_topic(name) is None]
                if missing:
                    raise InvalidInputError(
                        f"topic does not exist: option={option} topic={','.join(missing)} fix=create it"
                    )
        except FluvialError as error:
            raise with_source_option_names(error) from None
    tables = [output.table for output in pipeline.outputs]
    tables += [name for name in (source_table(config, pipeline),) if name is not None]
    for name in tables:
        if name not in config.tables:
            try:
                catalog.table(name)  # raises an error with similar names
            except InvalidInputError as error:
                close = [each for each in close_names(name, config.tables) if not _exists(catalog, each)]
                raise InvalidInputError(f"{error} did_you_mean={close[0]}" if close else str(error)) from error
    for step in (*pipeline.transform, *(step for output in pipeline.outputs for step in output.transform)):
        if step.python is not None:
            function_named(step.python)


def _place_of(config: JobConfig, pipeline: PipelineConfig) -> DeployStep:
    location = absolute_path(pipeline.checkpoint)
    if not is_readable(location):
        fact = f"checkpoint={location} is not on this machine: it decides whether the pipeline starts or resumes"
        return DeployStep(action=PlannedAction.CONTINUE, kind="pipeline", name=pipeline.name, fact=fact)
    state = read_checkpoint(location)
    if state is None:
        fact = f"from the start of its source, checkpoint={pipeline.checkpoint}"
        return DeployStep(action=PlannedAction.START, kind="pipeline", name=pipeline.name, fact=fact)
    source = kafka_options(config, pipeline)
    difference = source_difference(state, pipeline.source.format, () if source is None else source.topics)
    if difference is not None:
        raise InvalidInputError(f"{difference} checkpoint={pipeline.checkpoint} fix=give the pipeline a new checkpoint")
    batch = "before its first batch" if state.batch_id is None else f"after batch {state.batch_id}"
    action, fact = PlannedAction.CONTINUE, f"{batch}, query={state.query_id} checkpoint={pipeline.checkpoint}"
    if has_other_transform(location, pipeline):
        action = PlannedAction.CHANGE
        fact += (
            ", another transform than its last run had: rows that are written stay as that one made them; a new "
            "checkpoint and an emptied table write all again"
        )
    return DeployStep(action=action, kind="pipeline", name=pipeline.name, fact=fact)


def _exists(catalog: Catalog, name: str) -> bool:
    database, _, table = name.partition(".")
    return database in catalog.list_databases() and table in catalog.list_tables(database)
