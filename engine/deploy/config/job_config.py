"""Job files as frozen values: tables, pipelines and settings, validated before anything is started.

A job file is YAML; ``config_layers`` merges several into one, ``conf/orders.yaml`` shows every key with a comment.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from engine.deploy.config.cdc_config import CdcConfig
from engine.deploy.config.config_file import ConfigNode, KeyPath, merged
from engine.deploy.config.config_layers import parse_layers, read_layers, with_overrides, with_profile
from engine.deploy.config.operation_config import (
    HealthConfig,
    LoggingConfig,
    MetricsConfig,
    OnFailureConfig,
    SparkConfig,
)
from engine.deploy.config.pipeline_config import PipelineConfig
from engine.deploy.config.references import References
from engine.deploy.config.section import Options, Seconds, Section, TableName, dotted, explained, hint, problem
from engine.deploy.config.table_config import TableConfig
from lsm.errors import InvalidInputError, ManyProblemsError

LOG_PREFIX: Final = "log."
_FREE_KEYS: Final = frozenset({"catalog", "log", "options", "conf", "columns", "levels"})


class JobConfig(Section):
    """A whole job file."""

    name: str = Field(min_length=1)
    """Job name in messages and in Spark's UI."""
    warehouse: str = Field(min_length=1, pattern=r"^[^\x00-\x1f]*$")  # no control characters
    """Where the tables are: a directory or a URL."""
    catalog: Options = Field(default_factory=dict, repr=False)
    """Catalog options; other options are defaults for the tables created here."""
    log: Options = Field(default_factory=dict, repr=False)
    """Defaults for the logs of the tables created here: table options without their prefix `log.`."""
    tables: Mapping[TableName, TableConfig] = Field(default_factory=dict)
    """Tables by database.table."""
    pipelines: tuple[PipelineConfig, ...] = ()
    """Streaming queries; all run in one process."""
    cdc: tuple[CdcConfig, ...] = ()
    """Whole databases: `fluvial cdc run`."""
    on_failure: OnFailureConfig = Field(default=OnFailureConfig(), alias="on-failure")
    """What to do when a pipeline fails: stop-all (default), restart or continue."""
    stop_timeout: Seconds = Field(default=30.0, alias="stop-timeout", ge=0)
    """On SIGTERM, how long running micro-batches may take to finish before they are cancelled."""
    health: HealthConfig = HealthConfig()
    metrics: MetricsConfig = MetricsConfig()
    logging: LoggingConfig = LoggingConfig()
    spark: SparkConfig = SparkConfig()

    _tree: ConfigNode | None = PrivateAttr(default=None)
    _secrets: frozenset[str] = PrivateAttr(default=frozenset())
    _absent: tuple[str, ...] = PrivateAttr(default=())

    @model_validator(mode="after")
    def _pipelines_have_distinct_names(self) -> Self:
        if not self.pipelines and not self.cdc:
            raise problem("a job has pipelines", key="pipelines", facts="fix=write one")
        for what in ("name", "checkpoint"):
            values = [getattr(pipeline, what) for pipeline in self.pipelines]
            for value in values:
                if values.count(value) > 1:
                    facts = f"{what}={value} fix=give each its own"
                    raise problem(f"two pipelines share a {what}", key="pipelines", facts=facts)
        return self

    @model_validator(mode="after")
    def _log_options_are_said_once(self) -> Self:
        for key in self.log:
            if f"{LOG_PREFIX}{key}" in self.catalog:
                facts = f"option={LOG_PREFIX}{key} fix=remove it from log or from catalog"
                raise problem("an option is given twice", key="log", facts=facts)
        return self

    @property
    def catalog_options(self) -> dict[str, str]:
        """The options of the catalog, including the defaults of logs."""
        return {**self.catalog, **{f"{LOG_PREFIX}{key}": value for key, value in self.log.items()}}

    @property
    def secrets(self) -> frozenset[str]:
        """Texts of secret files, which must not be printed."""
        return self._secrets

    @property
    def absent(self) -> tuple[str, ...]:
        """References that were not here, and have a stand-in for their value."""
        return self._absent

    def where(self, path: KeyPath) -> str:
        """A key of this job in messages: ``key=… file=… line=…``."""
        place = "" if self._tree is None else f" {self._tree.place_of(path)}"
        return f"key={dotted(path)}{place}"

    def chosen(self, names: Iterable[str]) -> "JobConfig":
        """A copy of the job with the named pipelines only, or with all when none is named.

        Raises:
            InvalidInputError: a pipeline is unknown.
        """
        wanted, known = list(names), [each.name for each in self.pipelines]
        for name in wanted:
            if name not in known:
                raise InvalidInputError(f"no such pipeline: pipeline={name} job={self.name} {hint(name, known)}")
        if not wanted:
            return self
        kept = [index for index, name in enumerate(known) if name in wanted]
        job = self.model_copy(update={"pipelines": tuple(self.pipelines[index] for index in kept)})
        job._tree = None if self._tree is None else self._tree.with_items("pipelines", kept)
        return job


def load_job(
    path: str,
    *,
    overlays: Sequence[str] = (),
    profile: str | None = None,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str],
    may_lack: bool = False,
) -> JobConfig:
    """The job of a file, with other files and values merged over it.

    Args:
        path: the YAML file; it may include others.
        overlays: files with keys to override, in order.
        profile: name of a profile in the file.
        overrides: ``a.b=c`` texts, applied in order; an item of a list is selected by its index or its ``name``.
        environment: values of ``${NAME}`` references.
        may_lack: variables without a value and files of secrets need not be here; see ``JobConfig.absent``.

    Raises:
        InvalidInputError: a file is missing or not YAML, a key is unknown or missing, or a value is invalid; the
            message has file, line and key.
    """
    references = References(environment, may_lack=may_lack)
    return _job(read_layers(path, references), references, overlays, profile, overrides)


def parse_job(
    text: str,
    *,
    name: str,
    overlays: Sequence[str] = (),
    profile: str | None = None,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str],
) -> JobConfig:
    """Read a job from text, as ``load_job`` does from a file; ``name`` is the file name in messages."""
    references = References(environment)
    return _job(parse_layers(text, name=name, references=references), references, overlays, profile, overrides)


def _job(
    tree: ConfigNode, references: References, overlays: Sequence[str], profile: str | None, overrides: Sequence[str]
) -> JobConfig:
    tree = with_profile(tree, profile)
    for path in overlays:
        tree = merged(tree, read_layers(path, references))
    tree = references.resolved(with_overrides(tree, overrides, free_keys=_FREE_KEYS))
    try:
        job = JobConfig.model_validate(tree.plain())
    except ValidationError as error:
        raise ManyProblemsError(explained(error, tree, references.secrets)) from None  # pydantic shows values
    job._tree, job._secrets, job._absent = tree, frozenset(references.secrets), tuple(references.absent)
    return job
