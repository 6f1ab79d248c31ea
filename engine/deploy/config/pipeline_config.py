"""Pipelines in a job file: source, transforms, targets and triggers."""

import re
from collections.abc import Mapping
from typing import Any, Final, Self

from pydantic import Field, field_validator, model_validator

from engine.deploy.config.section import Options, Section, SizeBytes, TableName, hint, one_of, problem
from engine.deploy.config.table_config import ColumnConfig
from engine.request.branch_choice import BRANCH_KEY
from engine.runtime.expected_rows import DEAD_LETTER, FAIL, ON_FAIL, Expectation
from engine.versions.expectations import check_row_condition
from filestore.layout.branch_names import agreed_branch, on_branch_name
from filestore.layout.paths import MAIN_BRANCH
from lsm.errors import InvalidInputError

AVAILABLE_NOW: Final = "available-now"
PROCESSING_TIME: Final = "processing-time"
KAFKA: Final = "kafka"
FLUVIAL: Final = "fluvial"
FILE_FORMATS: Final = ("json", "csv", "parquet", "orc", "text", "xml", "avro")

_FILE_LIMITS: Final = {"bytes": "maxBytesPerTrigger", "files": "maxFilesPerTrigger"}
LIMIT_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    KAFKA: {"records": "maxOffsetsPerTrigger"},
    FLUVIAL: {
        "records": "read.stream.maxRowsPerTrigger",
        "bytes": "read.stream.maxBytesPerTrigger",
        "files": "read.stream.maxFilesPerTrigger",
    },
    **dict.fromkeys(FILE_FORMATS, _FILE_LIMITS),
}
"""By source format: the source option of each limit."""

INTERVAL: Final = r"(\d+) *(ms|milliseconds?|s|seconds?|m|min|minutes?|h|hours?)"
_LONG_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "min": "minutes", "h": "hours"}
"""Units of time with short names that Spark does not accept."""


class SourceConfig(Section):
    """The source of a pipeline's rows."""

    format: str = KAFKA
    """kafka: Fluvial's own reader. fluvial: another table, changes with their kinds. Files: json, csv, parquet, orc,
    text. Otherwise any streaming source of Spark."""
    columns: Mapping[str, ColumnConfig] = Field(default_factory=dict)
    """Columns to decode from each record or file; none: those of the target table."""
    options: Options = Field(default_factory=dict, repr=False)
    """Options of the source; relative paths are relative to the working directory of the command."""


class LimitsConfig(Section):
    """Maximum input of one micro-batch."""

    records: int | None = Field(default=None, gt=0)
    """Records, over all topics."""
    bytes: SizeBytes | None = Field(default=None, gt=0)
    """Bytes of files: 64 mb."""
    files: int | None = Field(default=None, gt=0)
    """Files."""

    def given(self) -> dict[str, int]:
        """The limits that are set, by name."""
        return {key: value for key, value in self.model_dump().items() if value is not None}


class TransformConfig(Section):
    """A step between source and table: a query over the view ``source``, or a Python function of a frame.

    Plain text is the query.
    """

    sql: str | None = None
    """A query over the view `source`, the result of the previous step. Keep `_row_kind`."""
    python: str | None = None
    """module:function, which takes a frame and returns a frame."""

    @model_validator(mode="before")
    @classmethod
    def _text_is_sql(cls, given: object) -> object:
        return {"sql": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.sql is None) == (self.python is None):
            raise problem("a transform is either sql or python", facts="fix=write one of the two keys")
        if self.python is not None and not re.fullmatch(r"[\w.]+:\w+", self.python):
            facts = f"given={self.python} example=my_jobs.orders:cleaned"
            raise problem("a python transform is named module:function", key="python", facts=facts)
        return self


Transforms = tuple[TransformConfig, ...]


def _as_list(given: object) -> object:
    return [given] if isinstance(given, str | Mapping) else given


class ExpectConfig(Section):
    """A rule on the rows that are written. Plain text is its condition, and a row that breaks it fails the batch."""

    condition: str = Field(min_length=1)
    """Condition in SQL over the columns of a row: amount >= 0. A row breaks it where it is false; null passes. Deletes
    and old values of updates are not looked at."""
    on_fail: str = Field(default=FAIL, alias="on-fail")
    """fail: nothing of the batch is written; drop: the row is left out; dead-letter: it is left out and sent to the
    topic of dead letters; warn: it is written. Each is counted."""
    max_count: int | None = Field(default=None, alias="max-count", ge=0)
    """Rows of a batch that may break it; with more, the batch fails."""
    max_share: float | None = Field(default=None, alias="max-share", ge=0, le=1)
    """Share of the rows of a batch that may break it: 0.01; with more, the batch fails."""

    @model_validator(mode="before")
    @classmethod
    def _text_is_condition(cls, given: object) -> object:
        return {"condition": given} if isinstance(given, str) else given

    @field_validator("on_fail")
    @classmethod
    def _is_known(cls, given: str) -> str:
        return one_of(given, ON_FAIL, what="on-fail")

    @field_validator("condition")
    @classmethod
    def _is_a_condition_on_a_row(cls, given: str) -> str:
        try:
            check_row_condition(given)
        except InvalidInputError as error:
            raise problem("not a condition on a row", facts=f"value={given} reason={error}") from error
        return given

    @model_validator(mode="after")
    def _limits_have_an_effect(self) -> Self:
        if self.on_fail == FAIL and (self.max_count is not None or self.max_share is not None):
            facts = "on-fail=fail fix='on-fail: warn, drop or dead-letter: a batch with more than the limit fails'"
            raise problem("one row is enough to fail the batch", key="on-fail", facts=facts)
        return self

    def rule(self, name: str) -> Expectation:
        """The rule of this name."""
        return Expectation(
            name=name,
            condition=self.condition,
            on_fail=self.on_fail,
            max_count=self.max_count,
            max_share=self.max_share,
        )


Expect = Mapping[str, ExpectConfig]


class TargetConfig(Section):
    """A table that a pipeline writes. Plain text is its name."""

    table: TableName
    """database.table, or database.table$branch_name"""
    branch: str | None = Field(default=None, min_length=1)
    """Branch of the table to write; none: main."""
    transform: Transforms = ()
    """Steps for this table only, after those of the pipeline; they see one micro-batch at a time."""
    expect: Expect = Field(default_factory=dict)
    """Rules on the rows of this table, by name, besides those of the pipeline."""
    options: Options = Field(default_factory=dict, repr=False)
    """Sink options for this table."""

    _one_step_is_a_list = field_validator("transform", mode="before")(staticmethod(_as_list))

    @model_validator(mode="before")
    @classmethod
    def _text_is_table(cls, given: object) -> object:
        return {"table": given} if isinstance(given, str) else given


class TriggerConfig(Section):
    """When micro-batches start: once over the available data (``available-now``), or periodically without end."""

    processing_time: str | None = Field(default=None, alias=PROCESSING_TIME)
    """Interval between micro-batches of an endless pipeline: 5 seconds."""

    @model_validator(mode="before")
    @classmethod
    def _text_is_available_now(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        if given != AVAILABLE_NOW:
            known = f"{AVAILABLE_NOW}, {{{PROCESSING_TIME}: 5 seconds}}"
            raise problem("unknown trigger", facts=f"given={given} known={known}")
        return {}

    @field_validator("processing_time")
    @classmethod
    def _interval_as_spark_writes_it(cls, given: str | None) -> str | None:
        if given is None:
            return None
        found = re.fullmatch(INTERVAL, given)
        if found is None:
            raise problem("not a duration", facts=f"given={given} example=5 seconds")
        return f"{found[1]} {_LONG_UNITS.get(found[2], found[2])}"

    @property
    def ends(self) -> bool:
        """Whether the pipeline is finite."""
        return self.processing_time is None


class PipelineConfig(Section):
    """One streaming query: source, transforms, target tables."""

    name: str = Field(min_length=1)
    """Pipeline name in messages and in Spark's UI."""
    source: SourceConfig
    transform: Transforms = ()
    """Steps between source and tables, one or a list; each sees the result of the previous one."""
    target: TableName | None = None
    """The table to write."""
    targets: tuple[TargetConfig, ...] = ()
    """Several tables, each written from the same micro-batches; instead of `target`."""
    expect: Expect = Field(default_factory=dict)
    """Rules on the rows as they are written, by name: {positive: {condition: amount >= 0, on-fail: drop}}."""
    trigger: TriggerConfig = TriggerConfig()
    """available-now (default): process the available data and end. {processing-time: 5 seconds}: run without end."""
    limits: LimitsConfig = LimitsConfig()
    """Maximum input of one micro-batch; none: all available data."""
    checkpoint: str = Field(min_length=1)
    """Directory of Spark's checkpoint; it belongs to this pipeline permanently."""
    options: Options = Field(default_factory=dict, repr=False)
    """Sink options for every target."""

    _one_step_is_a_list = field_validator("transform", mode="before")(staticmethod(_as_list))

    @model_validator(mode="before")
    @classmethod
    def _targets_are_a_list(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and isinstance(given.get("targets"), str | Mapping):
            return {**given, "targets": [given["targets"]]}
        return given

    @model_validator(mode="after")
    def _has_targets(self) -> Self:
        if (self.target is None) == (not self.targets):
            raise problem("a pipeline has target or targets", facts="fix=write one of the two keys")
        tables = [each.table for each in self.outputs]
        for table in tables:
            if tables.count(table) > 1:
                raise problem("a table is a target twice", key="targets", facts=f"table={table} fix=UNION them")
        return self

    @model_validator(mode="after")
    def _limits_are_known_to_the_source(self) -> Self:
        known = LIMIT_OPTIONS.get(self.source.format, {})
        for name in self.limits.given():
            if name not in known:
                facts = f"limit={name} format={self.source.format} {hint(name, known) if known else 'known=none'}"
                raise problem("the source has no such limit", key="limits", facts=facts)
            if known[name] in self.source.options:
                raise problem("a limit is given twice", key="limits", facts=f"limit={name} option={known[name]}")
        return self

    @model_validator(mode="after")
    def _letters_have_a_topic(self) -> Self:
        wanted = [name for each in self.outputs for name, rule in each.expect.items() if rule.on_fail == DEAD_LETTER]
        if wanted and (self.source.format != KAFKA or "dead-letter.topic" not in self.source.options):
            fix = (
                "set dead-letter.topic among the options of the source"
                if self.source.format == KAFKA
                else ("on-fail: drop, or warn: rows of files and tables have no topic of dead letters")
            )
            raise problem("dead letters have no topic", key="expect", facts=f"rule={wanted[0]} fix='{fix}'")
        return self

    @property
    def outputs(self) -> tuple[TargetConfig, ...]:
        """The target tables, each with the options of the pipeline and its own; its own win."""
        given = self.targets or (TargetConfig(table=self.target or ""),)
        return tuple(
            _on_branch(
                each.model_copy(update={"expect": {**self.expect, **each.expect}}), {**self.options, **each.options}
            )
            for each in given
        )


def _on_branch(target: TargetConfig, options: Mapping[str, str]) -> TargetConfig:
    """A target with its branch in the table's name only, and all other options."""
    try:
        table, branch = agreed_branch(target.table, target.branch, options.get(BRANCH_KEY))
    except InvalidInputError as error:
        raise problem(str(error), key="targets") from None
    others = {key: value for key, value in options.items() if key != BRANCH_KEY}
    name = on_branch_name(table, branch or MAIN_BRANCH)
    return target.model_copy(update={"table": name, "branch": None, "options": others})
