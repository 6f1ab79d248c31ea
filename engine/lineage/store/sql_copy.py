"""Any store of lineage as a SQL database: one of another kind is copied into a temporary file."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any, Final

from engine.lineage.store.entities import LineageRecords
from engine.lineage.store.jdbc import JdbcLineageMeta
from engine.lineage.store.store import LineageMeta
from filestore.catalog.sql_database import SqlDatabase

_COPIED_AT_ONCE: Final = 1000


@contextmanager
def as_sql(meta: LineageMeta) -> Iterator[JdbcLineageMeta]:
    """The store itself, or a copy that lasts for the block. Raises: UnavailableError."""
    if isinstance(meta, JdbcLineageMeta):
        yield meta
        return
    with TemporaryDirectory(prefix="fluvial-lineage-") as directory:
        copy = JdbcLineageMeta(SqlDatabase.of(f"sqlite:///{directory}/lineage.sqlite"))
        for records in copied_records(meta):
            copy.store(records)
        yield copy


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
