"""The settings of a job as one frozen value, from the section ``cdc`` of a job file or from flags. Picklable."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from engine.cdc.rules.names import Naming, SourceTable, is_excluded, name_in_table
from engine.runtime.expected_rows import Expectation
from filestore.types.data_types import DataType
from logstore.format.connect_types import DEFAULT_RULES, TypeRules
from logstore.format.schema_registry import SchemaRegistry
from logstore.format.source.unavailable import UNAVAILABLE_VALUE
from logstore.kafka.clients import KafkaProperties

ISOLATE: Final = "isolate"
STOP: Final = "stop"
HARD: Final = "hard"
SOFT: Final = "soft"
COUNT_ROWS: Final = "count-rows"
APPEND: Final = "append"
SKIP: Final = "skip"
REFUSE: Final = "refuse"
"""The rule ``types.lossy`` for columns that lose something."""
CUT: Final = "transaction"
NO_CUT: Final = "none"
GENERATED: Final = "a generated column, left out: changes do not have it; columns.compute can compute it"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """The settings of one table."""

    partition_by: tuple[str, ...] = ()
    columns: tuple[tuple[str, DataType], ...] = ()  # of records without schema parts; (): such records are refused
    key: tuple[str, ...] = ()  # of these columns
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    expect: tuple[Expectation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcSettings:
    """The settings of a job: the topics that it reads, the tables that it writes, and the rules between them."""

    name: str
    database: str
    pattern: str  # of topics, whole names
    properties: KafkaProperties
    naming: Naming = field(default_factory=Naming)
    registry: SchemaRegistry | None = None  # None: JSON
    transactions: str | None = None  # topic of transaction metadata
    max_records: int | None = None  # of a batch
    types: TypeRules = DEFAULT_RULES
    unavailable_values: Literal["fail", "keep"] = "keep"
    placeholder: str = UNAVAILABLE_VALUE  # the connector's, for unavailable values
    renamed: Mapping[str, str] = field(default_factory=dict)  # columns of all tables
    added: Mapping[str, str] = field(default_factory=dict)  # metadata columns: what they hold, by name
    computed: Mapping[str, str] = field(default_factory=dict)  # columns by name, as expressions over others
    excluded: tuple[str, ...] = ()  # schema.table.column, as regular expressions
    flattened: tuple[str, ...] = ()  # schema.table, as regular expressions: their topics have rows without envelopes
    generated: frozenset[str] = frozenset()  # schema.table.column: the source computes them, changes do not have them
    deletes: str = HARD
    schema_changes: Mapping[str, str] = field(default_factory=dict)  # by kind
    without_key: str = COUNT_ROWS
    on_table_failure: str = ISOLATE
    max_bad: int = 100  # records of a table in an hour, then it is parked
    dead_letters: str | None = None  # topic
    cut: str = NO_CUT
    max_wait_s: float = 60.0
    tag_every_s: float = 60.0  # of cuts
    tag_retained_ms: int | None = 24 * 3_600_000
    memory_bytes: int = 128 << 20  # of records that are kept between the two passes of a batch
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # of every table
    tables: Mapping[str, TableSettings] = field(default_factory=dict)
    connector: Mapping[str, str] = field(default_factory=dict)  # settings that decide how it writes values

    def table(self, name: str) -> TableSettings:
        """The settings of one table, by its name without the database."""
        return self.tables.get(name, TableSettings())

    def flattened_source(self, topic: str) -> SourceTable | None:
        """The source table of a topic whose records are rows alone; None: they are events."""
        source = SourceTable.of_topic(topic)
        return source if any(re.fullmatch(each, str(source)) for each in self.flattened) else None

    def lost_generated(self, source: SourceTable) -> tuple[str, ...]:
        """Columns that a source table computes, and that its table lacks against the user's word, sorted."""
        prefix = f"{source}."
        names = sorted(each.removeprefix(prefix) for each in self.generated if each.startswith(prefix))
        return tuple(
            each
            for each in names
            if name_in_table(each, self.renamed) not in self.computed and not is_excluded(source, each, self.excluded)
        )

    def why_left_out(self, source: SourceTable, column: str) -> str | None:
        """The reason why a column of the source is left out of the table; None: it is not."""
        if is_excluded(source, column, self.excluded):
            return "excluded"
        return GENERATED if f"{source}.{column}" in self.generated else None
