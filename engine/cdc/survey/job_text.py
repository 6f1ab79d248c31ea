"""The job file of a survey: what a user would write, with what was found as comments. Pure."""

import re
from typing import Final

from engine.cdc.settings import CdcSettings
from engine.cdc.survey.findings import Survey

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
