"""The rows of lineage: the tables that a job reads and writes, the snapshots of each barrier, and its start.

A *job* is a streaming query or a batch write, by name; a *barrier* is one of its micro-batches, by id.
Source: PIP "Table and data lineage", TableLineageEntity and DataLineageEntity.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final

from lsm.errors import InvalidInputError

TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
LONGEST_NAME: Final = 255  # characters; every database supports three of them in a primary key
STATED_RUN: Final = "stated:"
"""Begins the run of a barrier that was stated by hand: no snapshot file says it, and no correction knows better."""
OUTSIDE: Final = "outside"
"""``TableLineage.stated`` of what is not a table of the catalog."""


@dataclass(frozen=True, slots=True)
class TableLineage:
    """A job reads or writes a table."""

    job: str
    database: str
    table: str
    create_time: datetime  # UTC without a zone, whole seconds
    stated: str = ""  # by hand: the id of the table, or ``OUTSIDE``; "": recorded by the job

    def __post_init__(self) -> None:
        _check_names(self.job, self.database, self.table)
        object.__setattr__(self, "create_time", _whole_seconds(self.create_time))


@dataclass(frozen=True, slots=True)
class DataLineage:
    """At a barrier, a job has read a table up to a snapshot, or has written this snapshot."""

    job: str
    barrier_id: int
    database: str
    table: str
    snapshot_id: int
    create_time: datetime  # UTC without a zone, whole seconds
    run: str = ""  # what distinguishes runs of the job: id of the query, or commit user; "": not known
    table_id: str = ""  # see ``engine.lineage.origins.table_id``; "": not known
    identity: str = ""  # of the written snapshot; "": not known, or read
    moment_ms: int = 0  # the time of the snapshot in milliseconds; 0: ``create_time``

    def __post_init__(self) -> None:
        _check_names(self.job, self.database, self.table)
        object.__setattr__(self, "create_time", _whole_seconds(self.create_time))
        if not self.moment_ms:
            object.__setattr__(self, "moment_ms", _epoch_ms(self.create_time))

    @property
    def is_stated(self) -> bool:
        """Whether a person, or another program, has said it."""
        return self.run.startswith(STATED_RUN)


@dataclass(frozen=True, slots=True)
class JobStartup:
    """The snapshot of a table that a job started with.

    The first record of a start stays, and replaces that of another one.
    """

    job: str
    database: str
    table: str
    snapshot_id: int
    start: str = ""  # what distinguishes starts of the job: id of the query's run; "": not known, every record is one

    def __post_init__(self) -> None:
        _check_names(self.job, self.database, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageRecords:
    """Records that are stored atomically."""

    source_tables: tuple[TableLineage, ...] = ()
    sink_tables: tuple[TableLineage, ...] = ()
    source_snapshots: tuple[DataLineage, ...] = ()
    sink_snapshots: tuple[DataLineage, ...] = ()
    startups: tuple[JobStartup, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any record."""
        return any(getattr(self, field.name) for field in fields(self))

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """Lists of JSON values by kind; times as text."""
        return {
            field.name: [_plain(each) for each in getattr(self, field.name)]
            for field in fields(self)
            if getattr(self, field.name)
        }

    @classmethod
    def from_json(cls, found: Mapping[str, list[dict[str, Any]]]) -> "LineageRecords":
        """The inverse of ``to_json``. Raises: KeyError, TypeError, ValueError for anything else."""
        return cls(**{kind: tuple(_entity(_TYPES[kind], each) for each in rows) for kind, rows in found.items()})


_TYPES: Final[Mapping[str, type[Any]]] = {
    "source_tables": TableLineage,
    "sink_tables": TableLineage,
    "source_snapshots": DataLineage,
    "sink_snapshots": DataLineage,
    "startups": JobStartup,
}


def time_of(epoch_ms: int) -> datetime:
    """A time as ``create_time``: UTC without a zone, whole seconds."""
    return datetime.fromtimestamp(epoch_ms // 1000, UTC).replace(tzinfo=None)


def create_time_text(time: datetime) -> str:
    """``2023-06-05 13:29:01``."""
    return time.strftime(TIME_FORMAT)


def split_name(name: str) -> tuple[str, str]:
    """Database and table of ``database.table``."""
    database, _, table = name.partition(".")
    return database, table


def _plain(entity: Any) -> dict[str, Any]:
    return {
        key: create_time_text(value) if isinstance(value, datetime) else value
        for key, value in asdict(entity).items()
        if value != ""
    }


def _entity(kind: type[Any], values: Mapping[str, Any]) -> Any:
    made = dict(values)
    if "create_time" in made:
        made["create_time"] = datetime.strptime(made["create_time"], TIME_FORMAT)  # noqa: DTZ007
    return kind(**made)


def _epoch_ms(time: datetime) -> int:
    return int(time.replace(tzinfo=UTC).timestamp()) * 1000


def _whole_seconds(time: datetime) -> datetime:
    utc = time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)
    return utc.replace(microsecond=0)


def _check_names(*names: str) -> None:
    for name in names:
        if not name or "\0" in name or len(name) > LONGEST_NAME:
            raise InvalidInputError(
                f"the name is too long or invalid for lineage: name={name[:LONGEST_NAME]!r} characters={len(name)} "
                f"longest={LONGEST_NAME} fix='give the job, or the table, another name'"
            )
