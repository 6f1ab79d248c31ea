"""Rules by regular expression that map source tables to tables, and their columns to columns: pure.

A rule's ``to`` without a placeholder joins many source tables on purpose. Any other two with one name are refused.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.types.rows import ROW_KIND_COLUMN, UNAVAILABLE_COLUMN
from filestore.schema.validation import STREAM_NAMES
from lsm.errors import InvalidInputError

_RESERVED: Final = frozenset({*STREAM_NAMES, ROW_KIND_COLUMN, UNAVAILABLE_COLUMN})
_PREFIX: Final = "src_"
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
DEFAULT_TO: Final = "{table}"


@dataclass(frozen=True, slots=True, order=True)
class SourceTable:
    """A table of the source, by PostgreSQL's schema or MySQL's database."""

    schema: str
    name: str

    def __str__(self) -> str:
        """``schema.name``, as rules see it."""
        return f"{self.schema}.{self.name}"

    @classmethod
    def of_topic(cls, topic: str) -> "SourceTable":
        """The source table that a topic is named after: the last two words of ``prefix.schema.table``."""
        words = topic.rsplit(".", 2)
        return cls(words[-2] if len(words) > 1 else "", words[-1])

    @classmethod
    def parse(cls, text: str) -> "SourceTable":
        """The inverse of ``str``."""
        schema, _, name = text.partition(".")
        return cls(schema, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """Source tables that match, and where they go. ``{1}`` is a group; ``{schema}`` and ``{table}`` are known."""

    source: str
    to: str = DEFAULT_TO
    add: Mapping[str, str] = field(default_factory=dict)  # constant columns by name: which distinguish shards
    key: tuple[str, ...] = ()  # instead of the source's key

    @property
    def joins(self) -> bool:
        """Whether the rule merges all matching tables into one."""
        return not _PLACEHOLDER.search(self.to)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTarget:
    """The table that takes the rows of a source table."""

    table: str  # without the database
    constants: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    joins: bool = False  # other source tables may go there, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """The choice of source tables and the names of tables."""

    include: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ()
    rules: tuple[NameRule, ...] = ()

    def target_of(self, source: SourceTable) -> TableTarget | None:
        """The table of a source table; None: it is left out."""
        text = str(source)
        if not _matches(self.include, text) or _matches(self.exclude, text):
            return None
        for rule in self.rules:
            found = re.fullmatch(rule.source, text)
            if found is not None:
                words = {"schema": source.schema, "table": source.name}
                words |= {str(number): text or "" for number, text in enumerate(found.groups(), start=1)}
                constants = {name: _filled(value, words, rule) for name, value in rule.add.items()}
                return TableTarget(
                    table=_filled(rule.to, words, rule), constants=constants, key=rule.key, joins=rule.joins
                )
        return TableTarget(table=source.name)


def check_nameable(table: str, sources: Sequence[SourceTable] = ()) -> None:
    """Refuse a name that no table can have. Raises: InvalidInputError with the rule to write, and how to resume.

    Args:
        table: the name.
        sources: known source tables of the rows.
    """
    if "." in table or not table:
        shown = ",".join(map(str, sources)) or f"SCHEMA.{table}"
        raise InvalidInputError(
            f"a table cannot have a dot in its name: table={table} "
            f"fix='write a rule into names: {{from: (.*)\\.{re.escape(table)}, "
            f'to: "{{1}}_{table.replace(".", "_")}"}}, start the job again, and: fluvial cdc resnapshot {shown}\''
        )


def check_one_source(target: TableTarget, source: SourceTable, known: Sequence[SourceTable]) -> None:
    """Refuse a second source table in one table, unless a rule joins them.

    Raises: InvalidInputError with both names and the rule to write.
    """
    others = [each for each in known if each != source]
    if others and not target.joins:
        raise InvalidInputError(
            f"two source tables have one name: table={target.table} sources={others[0]},{source} "
            f'fix=\'write a rule into names: {{from: (.*)\\.(.*), to: "{{1}}_{{2}}"}}, start the job again, and: '
            f"fluvial cdc resnapshot {others[0]},{source}; or join them by a rule without a placeholder, start it, "
            f"and: fluvial cdc resume {target.table}'"
        )


def name_in_table(name: str, renamed: Mapping[str, str]) -> str:
    """The name of a source column in the table: as a rule says; a reserved one behind ``src_``."""
    if name in renamed:
        return renamed[name]
    return f"{_PREFIX}{name}" if name.lower() in _RESERVED else name


def is_excluded(source: SourceTable, column: str, patterns: Sequence[str]) -> bool:
    """Whether ``schema.table.column`` matches one of the patterns."""
    return _matches(patterns, f"{source}.{column}")


def _matches(patterns: Sequence[str], text: str) -> bool:
    return any(re.fullmatch(pattern, text) for pattern in patterns)


def _filled(template: str, words: Mapping[str, str], rule: NameRule) -> str:
    missing = [name for name in _PLACEHOLDER.findall(template) if name not in words]
    if missing:
        raise InvalidInputError(
            f"no such placeholder: names.from={rule.source} template={template} placeholder={missing[0]} "
            f"known={','.join(words)}"
        )
    return _PLACEHOLDER.sub(lambda found: words[found[1]], template)
