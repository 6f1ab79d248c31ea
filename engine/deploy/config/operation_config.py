"""Operation of a job, in a job file: Spark, failures, health, metrics and log messages."""

from typing import Final

from pydantic import Field, field_validator, model_validator

from engine.deploy.config.section import Options, Seconds, Section, one_of, problem

STOP_ALL: Final = "stop-all"
RESTART: Final = "restart"
CONTINUE: Final = "continue"
POLICIES: Final = (STOP_ALL, RESTART, CONTINUE)
FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


class SparkConfig(Section):
    """The Spark session."""

    master: str | None = None
    """local[2], spark://…, yarn, k8s://…; default: the one of spark-submit, else all cores of this machine."""
    conf: Options = Field(default_factory=dict, repr=False)
    """Spark settings, which Fluvial never overrides."""


class OnFailureConfig(Section):
    """Options for a failing pipeline. A plain text is the policy."""

    policy: str = RESTART
    """restart: the pipeline is restarted after a delay, unless that cannot help. stop-all: the others stop after their
    running micro-batch, and the job fails. continue: the others continue, and the job fails when they have ended."""
    max_attempts: int = Field(default=5, alias="max-attempts", gt=0)
    """Restarts without a finished micro-batch in between; then the policy is stop-all. What waits for brokers that do
    not answer waits on, if its trigger has no end."""
    backoff: Seconds = Field(default=1.0, ge=0)
    """Delay before the first restart; doubled for each further one."""
    max_backoff: Seconds = Field(default=60.0, alias="max-backoff", ge=0)
    """Maximum delay before a restart."""

    @model_validator(mode="before")
    @classmethod
    def _text_is_policy(cls, given: object) -> object:
        return {"policy": given} if isinstance(given, str) else given

    @field_validator("policy")
    @classmethod
    def _is_a_policy(cls, given: str) -> str:
        return one_of(given, POLICIES, what="policy")


class HealthConfig(Section):
    """Health checks of the job."""

    file: str | None = None
    """JSON file, replaced every few seconds: live, ready, and each pipeline."""
    port: int | None = Field(default=None, ge=0, le=65535)
    """HTTP port for GET /live and /ready (200 or 503), and / (the JSON)."""
    host: str = "127.0.0.1"
    """Address to bind; 0.0.0.0 for probes from other hosts, such as Kubernetes'."""
    batch_timeout: Seconds | None = Field(default=None, alias="batch-timeout", gt=0)
    """A micro-batch that takes longer makes the job not live; none: no limit."""


class MetricsConfig(Section):
    """Prometheus metrics of the job: queries, batches, tables, logs and lag."""

    port: int | None = Field(default=None, ge=0, le=65535)
    """HTTP port for GET /metrics."""
    host: str = "127.0.0.1"
    """Address to bind; 0.0.0.0 for scrapes from other hosts."""
    file: str | None = None
    """File for node_exporter's textfile collector, replaced every few seconds."""


class LoggingConfig(Section):
    """Log messages of Fluvial, on standard error or in a file."""

    level: str = "warning"
    """debug, info, warning or error."""
    levels: Options = Field(default_factory=dict)
    """Levels of individual loggers: fluvial.sink: debug."""
    format: str = "text"
    """text, or json: one object per line."""
    file: str | None = None
    """File to append to, of 32 MB; three older parts are kept beside it. Default: standard error."""

    @field_validator("format")
    @classmethod
    def _is_a_format(cls, given: str) -> str:
        return one_of(given, FORMATS, what="format")

    @field_validator("level")
    @classmethod
    def _is_a_level(cls, given: str) -> str:
        return one_of(given.lower(), LOG_LEVELS, what="level")

    @field_validator("levels")
    @classmethod
    def _are_levels(cls, given: Options) -> Options:
        for name, level in given.items():
            if level.lower() not in LOG_LEVELS:
                raise problem("unknown level", key=name, facts=f"given={level} known={', '.join(LOG_LEVELS)}")
        return given
