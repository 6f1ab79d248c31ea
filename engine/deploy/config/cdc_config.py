"""Whole databases in a job file: the section ``cdc``. Everything but name, source and database has a default."""

import re
from collections.abc import Mapping
from typing import Any, Final, Self

from pydantic import Field, field_validator, model_validator

from engine.cdc.records.computed import parsed_expression
from engine.cdc.records.declared import BINARIES, DECIMALS, declared_part
from engine.cdc.records.metadata import metadata_type
from engine.cdc.records.part_columns import NULLS, NULLS_OF_AVRO
from engine.cdc.rules.names import DEFAULT_TO, NameRule, Naming
from engine.cdc.rules.part_sequence import CHANGE_KINDS, WORDS
from engine.cdc.rules.table_options import check_equal_options
from engine.cdc.settings import APPEND, COUNT_ROWS, CUT, HARD, ISOLATE, NO_CUT, SKIP, SOFT, STOP
from engine.deploy.config.pipeline_config import AVAILABLE_NOW, KAFKA, Expect, TriggerConfig
from engine.deploy.config.section import Options, Seconds, Section, SizeBytes, one_of, problem
from engine.deploy.config.table_config import Columns
from engine.dialect.grammar.type_grammar import parse_type
from engine.runtime.expected_rows import DEAD_LETTER
from filestore.options.table_options import TableOptions
from filestore.types.data_types import DataType
from lsm.errors import InvalidInputError

PATTERN: Final = "subscribePattern"
_ELSEWHERE: Final[Mapping[str, str]] = {
    "subscribe": "name the topics in subscribePattern",
    "startingOffsets": "leave it out: topics are read from their beginning, or no table would equal its source",
    "endingOffsets": "fluvial cdc run --once reads to the present end of the topics, and stops",
    "failOnDataLoss": "remove it: a table whose records have expired is parked, and the other tables continue",
    "key.columns": "leave it out: keys are those of the records; names: [{from: ..., key: [...]}] chooses others",
    "update-before": "leave it out: tables without a key get rows before updates by themselves",
    "epoch-units": "declare the columns with their precision, each: {TABLE: {columns: {at: TIMESTAMP(3)}}}",
    "decimals": "set source.connector: {decimal.handling.mode: ...} beside declared columns",
    "new-fields": "set schema-changes: {add: ...}",
    "new-types": "set schema-changes: {widen: ..., retype: ...}",
    "out-of-range": "set types: {out-of-range: ...}",
    "unavailable-values": "set unavailable-values of the database",
    "partial-deletes": "leave it out: such a delete is refused where its table needs the values",
    "truncates": "set schema-changes: {truncate: ...}",
    "on-bad-record": "set dead-letters of the database to a topic, or leave it out",
    "dead-letter.topic": "set dead-letters of the database",
}
"""Options of fluvial-kafka that a whole database does not take, each with what to do instead."""


class CdcSourceConfig(Section):
    """The topics of changes."""

    format: str = KAFKA
    """kafka: the only one."""
    options: Options = Field(default_factory=dict, repr=False)
    """subscribePattern (whole names of topics), kafka.* of the client, value.format: debezium-json (default) or
    debezium-avro, with schema.registry.url; maxOffsetsPerTrigger; unavailable.value.placeholder of the connector."""
    transactions: str | None = None
    """Topic of transaction metadata (provide.transaction.metadata=true of the connector), for commit.cut."""
    signals: str | None = None
    """Topic of signals (signal.kafka.topic of the connector), for `fluvial cdc resnapshot`."""
    flattened: tuple[str, ...] = ()
    """Regular expressions over schema.table: their topics have rows alone, as ExtractNewRecordState publishes them."""
    dsn: str | None = Field(default=None, repr=False)
    """Address of the captured database, for an SQL user who may read it: its catalog names the generated columns, which
    changes do not have and tables leave out, and what rows got with a column that was added after them; and
    `fluvial cdc verify` compares with it."""
    connector: Options = Field(default_factory=dict)
    """Settings of the connector that records do not show: decimal.handling.mode and binary.handling.mode, on which
    declared columns depend; value.converter.replace.null.with.default (Avro: value.converter.ignore.default.for.
    nullables), without which a null in a column with a default comes as the default."""

    @field_validator("connector")
    @classmethod
    def _connector_is_known(cls, given: Mapping[str, str]) -> Mapping[str, str]:
        for key in given:
            one_of(key, (DECIMALS, BINARIES, NULLS[0], NULLS_OF_AVRO[0]), what="setting of the connector")
        return given

    @model_validator(mode="after")
    def _has_pattern(self) -> Self:
        one_of(self.format, (KAFKA,), what="format")
        given = self.options.get(PATTERN)
        if not given:
            raise problem("topics are missing", key="options", facts=f"option={PATTERN} example=shop\\..*")
        _check_regex(given, PATTERN)
        elsewhere = {name.lower(): (name, fix) for name, fix in _ELSEWHERE.items()}
        for each in self.flattened:
            _check_regex(each, "source.flattened")
        for name in self.options:
            if name.lower() in elsewhere:
                known, fix = elsewhere[name.lower()]
                raise problem("not an option of a database", key="options", facts=f"option={known} fix='{fix}'")
        return self


class ChosenTablesConfig(Section):
    """Which source tables take part: regular expressions over schema.table, not over topics."""

    include: tuple[str, ...] = (".*",)
    """Those that match one."""
    exclude: tuple[str, ...] = ()
    """Without those that match one."""

    @field_validator("include", "exclude")
    @classmethod
    def _are_regexes(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for each in given:
            _check_regex(each, "tables")
        return given


class NameRuleConfig(Section):
    """The name of a source table's table; the first rule that matches counts."""

    source: str = Field(alias="from", min_length=1)
    """Regular expression over schema.table."""
    to: str = DEFAULT_TO
    """Name of the table: {1} is a group of the expression, {schema} and {table} are known. Without a placeholder all
    tables that match become one."""
    add: Options = Field(default_factory=dict)
    """Constant columns, to distinguish source tables that are merged into one table: {shard: '{1}'}."""
    key: tuple[str, ...] = ()
    """Key columns instead of the source's."""

    @field_validator("source")
    @classmethod
    def _is_a_regex(cls, given: str) -> str:
        return _check_regex(given, "names.from")


class TypesConfig(Section):
    """Types for source types without an equal."""

    numeric: str = "string"
    """Decimals without bounds: string, double, or decimal(p,s)."""
    time: str = "string"
    """Times of day: string, or time(3)."""
    timestamptz: str = "timestamp_ltz(6)"
    """Moments: timestamp_ltz(6), or string."""
    out_of_range: str = Field(default="fail", alias="out-of-range")
    """Infinity, and numbers with too many digits: fail, null, clamp."""
    lossy: str = "say"
    """Columns that lose something on the way, as `fluvial plan` names them: say (in the log), or refuse: their table
    waits until they are excluded, or the connector is set otherwise."""


class CdcColumnsConfig(Section):
    """Columns that are added, left out and renamed, in all tables."""

    add: Options = Field(default_factory=dict)
    """Columns with metadata: {_op_ts: source.ts_ms, _lsn: source.lsn, _tx: transaction.id, _deleted: op = d}."""
    compute: Options = Field(default_factory=dict)
    """Columns from others of the row, in tables that have these: {dt: date(created_at), name: upper(last)}."""
    exclude: tuple[str, ...] = ()
    """Regular expressions over schema.table.column."""
    rename: Options = Field(default_factory=dict)
    """Names in the tables by names in the source."""

    @field_validator("add")
    @classmethod
    def _are_in_the_envelope(cls, given: Options) -> Options:
        for expression in given.values():
            try:
                metadata_type(expression)
            except InvalidInputError as error:
                raise problem("not in the envelope", facts=str(error)) from error
        return given

    @field_validator("compute")
    @classmethod
    def _are_expressions(cls, given: Options) -> Options:
        for expression in given.values():
            try:
                parsed_expression(expression)
            except InvalidInputError as error:
                raise problem("not computable", facts=str(error)) from error
        return given

    @field_validator("exclude")
    @classmethod
    def _are_regexes(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for each in given:
            _check_regex(each, "columns.exclude")
        return given


class CdcCommitConfig(Section):
    """Micro-batches."""

    every: str = "10 seconds"
    """Interval between micro-batches, or available-now: take what is there and end."""
    cut: str = NO_CUT
    """transaction: batches end between transactions of the source, and leave a tag over all tables; none."""
    max_wait: Seconds = Field(default=60.0, alias="max-wait", gt=0)
    """How long an incomplete transaction may hold others back; then the batch is taken without a tag."""
    tag_every: Seconds = Field(default=60.0, alias="tag-every", ge=0)
    """Least time between two tags of cut."""
    tag_retained: Seconds = Field(default=86_400.0, alias="tag-retained", gt=0)
    """How long these tags live."""
    memory: SizeBytes = Field(default=128 << 20, gt=0)
    """Records that are kept between the two passes of a batch; further ones are read twice."""

    @field_validator("cut")
    @classmethod
    def _is_known(cls, given: str) -> str:
        return one_of(given, (CUT, NO_CUT), what="cut")

    @property
    def trigger(self) -> TriggerConfig:
        """The trigger of the query."""
        given: Any = self.every if self.every == AVAILABLE_NOW else {"processing-time": self.every}
        return TriggerConfig.model_validate(given)

    @model_validator(mode="after")
    def _every_is_an_interval(self) -> Self:
        _ = self.trigger
        return self


class OneTableConfig(Section):
    """The settings of one table."""

    partition_by: tuple[str, ...] = ()
    """Columns that split the table into directories; part of its key."""
    columns: Columns = Field(default_factory=dict)
    """For records without schema parts: columns by name, with their types. Without them such records are refused."""
    key: tuple[str, ...] = ()
    """Key columns among them; none: a table without a key."""
    expect: Expect = Field(default_factory=dict)
    """Rules on its rows, by name: {positive: {condition: amount >= 0, on-fail: drop}}. A change that breaks one
    is left out whole: the row stays as it was."""
    options: Options = Field(default_factory=dict, repr=False)
    """Options of the table, besides those of all."""


CDC_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "deletes": (HARD, SOFT),
    "unavailable-values": ("keep", "fail"),
    "without-key": (COUNT_ROWS, APPEND, SKIP),
    "on-table-failure": (ISOLATE, STOP),
}
"""By key: the words that it takes."""


class CdcConfig(Section):
    """A database that is kept equal: one query, one table for each source table."""

    name: str = Field(min_length=1)
    """Name of the job; its state belongs to this name permanently."""
    source: CdcSourceConfig
    database: str = Field(min_length=1)
    """Database of the tables."""
    tables: ChosenTablesConfig = ChosenTablesConfig()
    names: tuple[NameRuleConfig, ...] = ()
    """Names of tables; default: the source's, and two tables with one name are refused."""
    types: TypesConfig = TypesConfig()
    columns: CdcColumnsConfig = CdcColumnsConfig()
    deletes: str = HARD
    """hard, or soft: a deleted row stays, with _deleted=true."""
    schema_changes: Mapping[str, str] = Field(default_factory=dict, alias="schema-changes")
    """evolve (default), lenient, ignore or fail; or by kind: {add: evolve, widen: evolve, retype: new-column,
    drop: keep, truncate: apply}."""
    unavailable_values: str = Field(default="keep", alias="unavailable-values")
    """Large values that an update left alone: keep (what the table has), or fail."""
    without_key: str = Field(default=COUNT_ROWS, alias="without-key")
    """Tables without a key: count-rows (needs REPLICA IDENTITY FULL), append or skip."""
    on_table_failure: str = Field(default=ISOLATE, alias="on-table-failure")
    """isolate: park the failing table, and continue with the other tables; stop: fail the job."""
    max_bad: int = Field(default=100, alias="max-bad", ge=0)
    """Most unreadable records of a table in an hour that are written to the dead letters; then the table is parked."""
    dead_letters: str | None = Field(default=None, alias="dead-letters")
    """Topic for records that cannot be read; none: the first such record parks its table."""
    commit: CdcCommitConfig = CdcCommitConfig()
    options: Options = Field(default_factory=dict, repr=False)
    """Options of all tables."""
    each: Mapping[str, OneTableConfig] = Field(default_factory=dict)
    """Options of single tables, by name without the database."""
    checkpoint: str | None = None
    """Directory of Spark's checkpoint; default: in the warehouse, under _cdc/NAME."""

    @model_validator(mode="before")
    @classmethod
    def _one_word_is_for_all_kinds(cls, given: Any) -> Any:
        word = given.get("schema-changes") if isinstance(given, Mapping) else None
        if not isinstance(word, str):
            return given
        if word not in WORDS:
            raise problem("unknown word", key="schema-changes", facts=f"given={word} known={', '.join(WORDS)}")
        return {**given, "schema-changes": WORDS[word]}

    @field_validator("schema_changes")
    @classmethod
    def _are_kinds(cls, given: Mapping[str, str]) -> Mapping[str, str]:
        for kind, word in given.items():
            one_of(kind, tuple(CHANGE_KINDS), what="kind of change")
            one_of(word, CHANGE_KINDS[kind], what="word")
        return given

    @model_validator(mode="after")
    def _words_are_known(self) -> Self:
        for key, words in CDC_WORDS.items():
            one_of(getattr(self, key.replace("-", "_")), words, what=key)
        for name, each in self.each.items():
            for rule, given in each.expect.items():
                if given.on_fail == DEAD_LETTER and self.dead_letters is None:
                    facts = f"table={name} rule={rule} fix='set dead-letters of the database to a topic'"
                    raise problem("dead letters have no topic", key="each", facts=facts)
        for name, columns in self.declared.items():
            try:
                declared_part(name, columns, self.each[name].key, self.source.connector)
            except InvalidInputError as error:
                raise problem("columns cannot be read", key="each", facts=str(error)) from error
        return self

    @model_validator(mode="after")
    def _tables_may_equal_their_sources(self) -> Self:
        for where, options in (
            ("options", self.options),
            *((f"each.{name}", one.options) for name, one in self.each.items()),
        ):
            try:
                check_equal_options(TableOptions.parse(options, strict=False), where=where)
            except InvalidInputError as error:
                raise problem(
                    "options that a table of a source cannot have", key="options", facts=str(error)
                ) from error
        return self

    @property
    def declared(self) -> Mapping[str, tuple[tuple[str, DataType], ...]]:
        """Declared columns by table."""
        return {
            name: tuple((column, parse_type(given.type)) for column, given in each.columns.items())
            for name, each in self.each.items()
        }

    @property
    def naming(self) -> Naming:
        """The choice and the names of tables."""
        rules = tuple(NameRule(source=each.source, to=each.to, add=each.add, key=each.key) for each in self.names)
        return Naming(include=self.tables.include, exclude=self.tables.exclude, rules=rules)


def _check_regex(given: str, key: str) -> str:
    try:
        re.compile(given)
    except re.error as error:
        raise problem("not a regular expression", facts=f"key={key} given={given} reason={error}") from error
    return given
