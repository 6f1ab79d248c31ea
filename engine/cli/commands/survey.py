"""Surveys of the topics of a database: ``fluvial plan --from-topics``, ``fluvial init --from-topics``."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from engine.cdc.records.scan import declared_parts, split_of
from engine.cdc.samples import samples
from engine.cdc.settings import CdcSettings
from engine.cdc.survey import Survey, survey, survey_json
from engine.cli.output import console, print_json, print_table
from engine.cli.place import Command
from engine.deploy.cdc_job import informed_settings
from engine.deploy.config.job_config import JobConfig
from engine.kafka.options import KafkaSourceOptions, check_reachable
from lsm.errors import InvalidInputError

_SAMPLE_SIZE: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTopics:
    """The options of the command line."""

    pattern: str
    brokers: str
    registry: str | None
    database: str


def from_topics_options(command: Command) -> Command:
    """Adds the options of a survey, and passes them as ``asked``: None without ``--from-topics``."""

    def with_asked(
        pattern: str | None, brokers: str | None, registry: str | None, database: str | None, **rest: Any
    ) -> Any:
        if "kafka" in rest:  # two names for one
            rest["kafka"] = brokers = _same(brokers, rest["kafka"])
        given = {"--brokers": brokers, "--database": database}
        if pattern is None:
            alone = {"--registry": registry, "--database": database, "--brokers": brokers}
            unused = [flag for flag, value in alone.items() if value and not (flag == "--brokers" and "kafka" in rest)]
            if unused:
                raise InvalidInputError(f"option needs --from-topics: option={','.join(unused)} fix='leave it out'")
            return command(asked=None, **rest)
        missing = [flag for flag, value in given.items() if not value]
        if missing:
            raise InvalidInputError(f"--from-topics needs more: missing={','.join(missing)}")
        asked = AskedTopics(pattern=pattern, brokers=str(given["--brokers"]), registry=registry, database=str(database))
        return command(asked=asked, **rest)

    with_asked.__name__, with_asked.__doc__ = command.__name__, command.__doc__
    with_asked.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        click.option("--database", metavar="NAME", help="With --from-topics: database of the tables."),
        click.option("--registry", metavar="URL", help="With --from-topics: schema registry of records in Avro."),
        click.option("--brokers", metavar="HOST:PORT", help="Brokers of the topics."),
        click.option("--from-topics", "pattern", metavar="REGEX", help=r"Change topics of a database: 'shop\..*'."),
    ):
        with_asked = option(with_asked)
    return with_asked


def _same(brokers: str | None, kafka: str | None) -> str | None:
    """The value of an option with two names. Raises: InvalidInputError, they have different ones."""
    if brokers and kafka and brokers != kafka:
        raise InvalidInputError(f"brokers are given twice: --brokers={brokers} --kafka={kafka} fix='leave out one'")
    return brokers or kafka


def surveyed(asked: AskedTopics) -> tuple[Survey, str]:
    """Survey topics. Returns: the findings, and the text of the job file.

    Raises:
        InvalidInputError: no topic matches, or the pattern is no regular expression.
        UnavailableError: the brokers or the registry do not answer.
    """
    settings = _settings(asked)
    found = _looked(settings)
    if not found.tables and not found.others and not found.problems:
        raise InvalidInputError(f"no topic matches: pattern={asked.pattern} fix=name another, in regular expressions")
    return found, job_text(found, settings, brokers=asked.brokers, registry=asked.registry)


def surveyed_databases(job: JobConfig) -> dict[str, Survey]:
    """What the topics of a job file's databases would become by its rules, by name; those without topics are empty.

    Raises:
        InvalidInputError: settings that do not go together.
        UnavailableError: the brokers or a registry do not answer.
    """
    return {each.name: _looked(informed_settings(job, each)) for each in job.cdc}


def _looked(settings: CdcSettings) -> Survey:
    check_reachable(settings.properties)
    found = samples(settings, count=_SAMPLE_SIZE)
    return survey(found, settings, split_of(settings), declared_parts(settings))


def sampled(topic: str, brokers: str) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of some records of a topic.

    Raises:
        InvalidInputError: there is no such topic, or it has no records.
        UnavailableError: the brokers do not answer.
    """
    asked = AskedTopics(pattern=re.escape(topic), brokers=brokers, registry=None, database="topic")
    settings = _settings(asked)
    check_reachable(settings.properties)
    found = [
        (key, value)
        for sample in samples(settings, count=_SAMPLE_SIZE)
        if sample.topic == topic
        for batch in sample.records
        for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    ]
    if not found:
        raise InvalidInputError(
            f"no such topic, or it has no records: topic={topic} brokers={brokers} fix='name another'"
        )
    return found


def print_survey(found: Survey, *, is_json: bool, database: str | None = None) -> None:
    """Show tables, columns, what is lost and what is refused; ``database``: of a job file, which may have several."""
    if is_json:
        print_json(survey_json(found))
        return
    if database is not None:
        none = "" if found.tables or found.others or found.problems else ": no topic matches yet"
        console().print(f"database {database}{none}", style="bold", soft_wrap=True, markup=False)
    for each in found.tables:
        key = ", ".join(each.key) or "none"
        title = f"{each.source} -> {each.table or 'left out'}: key {key} (from {each.key_from})"
        rows = [(column.name, column.source.source_type, column.type, column.note) for column in each.columns]
        console().print(title, style="bold", soft_wrap=True, markup=False)
        print_table("", ("column", "in the source", "in the table", "what is lost"), rows)
        for line in (*each.changes, *(f"problem: {problem}" for problem in each.problems)):
            console().print(f"  {line}", soft_wrap=True, markup=False)
    for topic, kind in sorted(found.others.items()):
        console().print(f"topic {topic}: {kind}", soft_wrap=True, markup=False)
    for topic, problem in sorted(found.problems.items()):
        console().print(f"topic {topic}: problem: {problem}", soft_wrap=True, markup=False)


def write_job(text: str, file: Path) -> None:
    """Write a job file. Raises: InvalidInputError: it is there already."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as made:
            made.write(text)
    except FileExistsError as error:
        raise InvalidInputError(f"file exists: file={file} fix=name another, files are not overwritten") from error


def _settings(asked: AskedTopics) -> CdcSettings:
    options = {"kafka.bootstrap.servers": asked.brokers, "subscribe": asked.pattern, "value.format": "debezium-json"}
    if asked.registry is not None:
        options |= {"value.format": "debezium-avro", "schema.registry.url": asked.registry}
    source = KafkaSourceOptions.parse(options)
    return CdcSettings(
        name=asked.database,
        database=asked.database,
        pattern=asked.pattern,
        properties=source.properties,
        registry=source.registry,
    )


# ---- The job file of a survey: what a user would write, with what was found as comments. Pure


_HEAD: Final = """\
# A database and its tables, from the topics that were there. What a run would do: fluvial plan --from-topics
name: {name}

warehouse: ${{WAREHOUSE:-.fluvial/warehouse}}

log:
  kafka.bootstrap.servers: ${{KAFKA:-{brokers}}}

spark:
  master: local[2]
  conf: {{spark.ui.enabled: false}}

cdc:
- name: {name}
  database: {database}
  source:
    options: {{{options}}}
"""


def job_text(found: Survey, settings: CdcSettings, *, brokers: str, registry: str | None = None) -> str:
    """The text of a job file with the section ``cdc``.

    Args:
        found: decides about names, transactions, and tables that are left out.
        settings: that were used for the survey.
        brokers: of the topics.
        registry: address of the schema registry of records in Avro.
    """
    options = f"subscribePattern: {yaml_text(_pattern(found, settings))}"
    if registry is not None:
        options += f", value.format: debezium-avro, schema.registry.url: {yaml_text(registry)}"
    text = _HEAD.format(name=settings.name, brokers=brokers, database=settings.database, options=options)
    transactions = [topic for topic, kind in found.others.items() if kind == "transactions"]
    if len(transactions) == 1:
        text += f"    transactions: {yaml_text(transactions[0])}\n  commit: {{cut: transaction}}\n"
    clashes = [each for each in found.tables if any("is also that of" in problem for problem in each.problems)]
    if clashes:
        text += "  names:\n  - {from: '(.*)\\.(.*)', to: '{1}_{2}'}  # two schemas have tables of one name\n"
    refused = [each for each in found.tables if each.problems and each not in clashes]
    if refused:
        patterns = ", ".join(yaml_text(str(each.source).replace(".", "\\.")) for each in refused)
        text += f"  tables: {{exclude: [{patterns}]}}  # a run would refuse them\n"
    return text + "".join(f"# {line}\n" for line in _comments(found))


def _pattern(found: Survey, settings: CdcSettings) -> str:
    """The pattern without the names that logs of the tables will have, unless a source table's topic has such a one."""
    own = rf"{re.escape(settings.database)}\.[^.]+"
    needed = [topic for each in found.tables for topic in each.topics if re.fullmatch(own, topic)]
    is_wide = any(re.fullmatch(settings.pattern, f"{settings.database}.{each.table}") for each in found.tables)
    return f"(?!{own}$)(?:{settings.pattern})" if is_wide and not needed else settings.pattern


def yaml_text(text: str) -> str:
    """A text in YAML, of which nothing is special."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def _comments(found: Survey) -> list[str]:
    lines = ["", "tables that were found, with keys and what their columns lose:"]
    for each in found.tables:
        key = f"key {', '.join(each.key)}" if each.key else f"no key ({each.key_from})"
        lines.append(f"{each.source} -> {each.table or 'left out'}: {len(each.columns)} columns, {key}")
        lines += [f"  {column.source.name}: {column.note}" for column in each.columns if column.note]
        lines += [f"  problem: {problem}" for problem in each.problems]
    return [line if line else "-" for line in lines][1:]
