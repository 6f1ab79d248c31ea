"""Any store of lineage as a SQL database: one of another kind is copied into a temporary file."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import sqlalchemy as sa

from engine.lineage.store.entities import LineageRecords
from engine.lineage.store.jdbc import JdbcLineageMeta
from engine.lineage.store.store import LineageMeta
from filestore.catalog.sql_database import SqlDatabase
from lsm.errors import UnavailableError

_COPIED_AT_ONCE: Final = 1000
_COPY_ATTEMPTS: Final = 20


@contextmanager
def as_sql(meta: LineageMeta) -> Iterator[JdbcLineageMeta]:
    """The store itself, or a copy that lasts for the block. Raises: UnavailableError."""
    if isinstance(meta, JdbcLineageMeta):
        yield meta
        return
    with sql_copy(meta) as copy:
        yield copy


@contextmanager
def sql_copy(meta: LineageMeta) -> Iterator[JdbcLineageMeta]:
    """A copy that lasts for the block; a SQLite file is not even opened. Raises: UnavailableError."""
    with TemporaryDirectory(prefix="fluvial-lineage-") as directory:
        path = Path(directory) / "lineage.sqlite"
        copy = JdbcLineageMeta(SqlDatabase.of(f"sqlite:///{path}"))
        if isinstance(meta, JdbcLineageMeta) and meta.database.dialect == "sqlite":
            _copy_file(Path(str(sa.make_url(meta.database.url).database)), path)
        else:
            for records in copied_records(meta):
                copy.store(records)
        yield copy


def _copy_file(source: Path, target: Path) -> None:
    """A database with its write-ahead log, as of a moment at which no one wrote. Raises: UnavailableError."""
    for _ in range(_COPY_ATTEMPTS):
        before = _state(source)
        for suffix in ("", "-wal"):
            body = Path(f"{source}{suffix}")
            if body.exists():
                Path(f"{target}{suffix}").write_bytes(body.read_bytes())
        if _state(source) == before:
            return
    raise UnavailableError(f"lineage is written all the time, and cannot be copied: file={source} fix='try again'")


def _state(source: Path) -> list[tuple[int, int] | None]:
    paths = [Path(f"{source}{suffix}") for suffix in ("", "-wal")]
    return [(each.stat().st_mtime_ns, each.stat().st_size) if each.exists() else None for each in paths]


def copied_records(meta: LineageMeta) -> Iterator[LineageRecords]:
    """All that a store holds, in parts."""
    kinds: dict[str, Iterator[Any]] = {
        "source_tables": meta.source_table_lineages(),
        "sink_tables": meta.sink_table_lineages(),
        "source_snapshots": meta.source_data_lineages(),
        "sink_snapshots": meta.sink_data_lineages(),
        "startups": meta.job_startups(),
    }
    for kind, entities in kinds.items():
        while some := tuple(islice(entities, _COPIED_AT_ONCE)):
            yield LineageRecords(**{kind: some})
