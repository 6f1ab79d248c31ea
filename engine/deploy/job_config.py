"""What a job file says: tables, pipelines and settings as frozen values, checked before anything is started.

A job file is YAML (``config_file`` tells how it is read); ``conf/orders.yaml`` shows every key with a comment.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from engine.deploy.config_file import ConfigFile, override, parse_config
from lsm.errors import InvalidInputError

AVAILABLE_NOW: Final = "available-now"
PROCESSING_TIME: Final = "processing-time"

_INTERVAL: Final = re.compile(r"(\d+) *(ms|milliseconds?|s|seconds?|m|min|minutes?|h|hours?)")
_LONG_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "min": "minutes", "h": "hours"}
"""Units of time that Spark does not know by their short names."""

_FREE_KEYS: Final = frozenset({"catalog", "options", "conf", "columns"})
_WORDS: Final = {
    "missing": "a value is missing",
    "model_type": "a mapping belongs here",
    "dict_type": "a mapping belongs here",
    "mapping_type": "a mapping belongs here",
    "tuple_type": "a list belongs here",
    "string_type": "a text belongs here",
}
"""What pydantic's error types are in words of a job file."""


def _problem(fact: str, *, key: str | None = None, facts: str = "") -> PydanticCustomError:
    """An error about a section, or about one of its keys; ``_explained`` puts place and facts behind the fact."""
    return PydanticCustomError("job", "{fact}", {"fact": fact, "key": key, "facts": facts})


def _table_name(name: str) -> str:
    if not re.fullmatch(r"[^.]+\.[^.]+", name):
        raise _problem("a table is named database.table", facts=f"given={name}")
    return name


Options = Mapping[str, str]
TableName = Annotated[str, AfterValidator(_table_name)]


class _Section(BaseModel):
    """A mapping whose keys are known; another key is an error that names the nearest known one.

    A key with nothing behind it is as good as absent, so that a section may be emptied by comments.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        known = {field.alias or name for name, field in cls.model_fields.items()}
        for key in given:
            if key not in known:
                raise _problem("unknown key", key=key, facts=_hint(key, known).lstrip())
        return {key: value for key, value in given.items() if value is not None}


class ColumnConfig(_Section):
    """A column: its SQL type, and perhaps a comment. A plain text is the type alone."""

    type: str
    comment: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _text_is_type(cls, given: object) -> object:
        return {"type": given} if isinstance(given, str) else given


class TableConfig(_Section):
    """A table that the job makes if it does not exist."""

    columns: Mapping[str, ColumnConfig]
    primary_key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    options: Options = {}
    comment: str | None = None

    @model_validator(mode="after")
    def _keys_are_columns(self) -> Self:
        if not self.columns:
            raise _problem("a table has columns", key="columns")
        for key, names in (("primary_key", self.primary_key), ("partition_by", self.partition_by)):
            for name in names:
                if name not in self.columns:
                    raise _problem("no such column", key=key, facts=f"column={name}{_hint(name, self.columns)}")
        return self


class SourceConfig(_Section):
    """Where rows come from. ``kafka`` is our own reader; any other format is a streaming source that Spark knows."""

    format: str = "kafka"
    columns: Mapping[str, ColumnConfig] = {}
    """Columns to decode from each record; none = those of the target table."""
    options: Options = {}


class TransformConfig(_Section):
    """What happens between source and table: a query over the view ``source``, or a Python function of a frame.

    Plain text is the query.
    """

    sql: str | None = None
    python: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _text_is_sql(cls, given: object) -> object:
        return {"sql": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.sql is None) == (self.python is None):
            raise _problem("a transform is either sql or python")
        if self.python is not None and not re.fullmatch(r"[\w.]+:\w+", self.python):
            raise _problem("a python transform is named module:function", key="python", facts=f"given={self.python}")
        return self


class TriggerConfig(_Section):
    """When micro-batches start: once over what is there (``available-now``), or every so often for ever."""

    processing_time: str | None = Field(default=None, alias=PROCESSING_TIME)
    """``5 seconds``; None = take what is available now, in as many batches as the limits ask for, and end."""

    @model_validator(mode="before")
    @classmethod
    def _text_is_available_now(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        if given != AVAILABLE_NOW:
            known = f"{AVAILABLE_NOW}, {{{PROCESSING_TIME}: 5 seconds}}"
            raise _problem("unknown trigger", facts=f"given={given} known={known}")
        return {}

    @field_validator("processing_time")
    @classmethod
    def _interval_as_spark_writes_it(cls, given: str | None) -> str | None:
        if given is None:
            return None
        found = _INTERVAL.fullmatch(given)
        if found is None:
            raise _problem("not a duration", facts=f"given={given} example=5 seconds")
        return f"{found[1]} {_LONG_UNITS.get(found[2], found[2])}"


class PipelineConfig(_Section):
    """One streaming query: source, transform, target table."""

    name: str = Field(min_length=1)
    source: SourceConfig
    transform: TransformConfig | None = None
    target: TableName
    trigger: TriggerConfig = TriggerConfig()
    checkpoint: str = Field(min_length=1)
    options: Options = {}
    """Options of the sink."""


class SparkConfig(_Section):
    """Settings of the Spark session; what is given here is never changed by us."""

    master: str | None = None
    conf: Options = {}


class JobConfig(_Section):
    """A whole job file."""

    name: str = Field(min_length=1)
    warehouse: str = Field(min_length=1)
    catalog: Options = {}
    tables: Mapping[TableName, TableConfig] = {}
    pipelines: tuple[PipelineConfig, ...]
    spark: SparkConfig = SparkConfig()

    @model_validator(mode="after")
    def _pipelines_are_told_apart(self) -> Self:
        if not self.pipelines:
            raise _problem("a job has pipelines", key="pipelines")
        for what in ("name", "checkpoint"):
            values = [getattr(pipeline, what) for pipeline in self.pipelines]
            for value in values:
                if values.count(value) > 1:
                    raise _problem(f"two pipelines share a {what}", key="pipelines", facts=f"{what}={value}")
        return self


def load_job(path: str, *, overrides: Sequence[str] = (), environment: Mapping[str, str]) -> JobConfig:
    """The job that a file describes.

    Args:
        path: the YAML file.
        overrides: ``a.b=c`` texts, applied in their order; an item of a list is meant by its number or its ``name``.
        environment: what ``${NAME}`` refers to.

    Raises:
        InvalidInputError: the file is missing or not YAML, a key is unknown or missing, a value does not fit; file,
            line and key are named.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"job file cannot be read: file={path} reason={error}") from error
    return parse_job(text, name=path, overrides=overrides, environment=environment)


def parse_job(text: str, *, name: str, overrides: Sequence[str] = (), environment: Mapping[str, str]) -> JobConfig:
    """As ``load_job``, from text; ``name`` is what messages call the file."""
    file = parse_config(text, name=name, environment=environment)
    if not isinstance(file.value, dict):
        raise InvalidInputError(f"a job file is a mapping with name, warehouse and pipelines: file={name}")
    for given in overrides:
        path, equals, value = given.partition("=")
        if not equals or not path.strip():
            raise InvalidInputError(f"an override is written key.key=value: given={given}")
        parsed = parse_config(value, name=f"--set {path}", environment=environment)
        override(file.value, path.strip(), parsed.value, free_keys=_FREE_KEYS)
    try:
        return JobConfig.model_validate(file.value)
    except ValidationError as error:
        raise InvalidInputError(_explained(error, file)) from error


def _explained(error: ValidationError, file: ConfigFile) -> str:
    problems = []
    for found in error.errors(include_url=False):
        context = found.get("ctx", {})
        key = context.get("key")
        path = tuple(part for part in found["loc"] if part != "[key]") + ((key,) if key else ())
        fact = _WORDS.get(found["type"]) or found["msg"]
        where = f"key={_dotted(path)} file={file.name} line={file.line(path)}"
        problems.append(f"{fact[0].lower()}{fact[1:]}: {where} {context.get('facts', '')}".rstrip())
    return "; ".join(problems)


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _hint(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(name, names, 1)
    return f" did_you_mean={close[0]}" if close else f" known={', '.join(names)}"
