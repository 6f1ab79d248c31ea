"""The read-only tables of the database ``paimon``: options of the catalog, lineage, and views of it.

Source: PIP "Table and data lineage", Metadata Database.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from engine.lineage.settings import OpenCatalog, stored_options
from filestore.options.catalog_options import FIXED_CATALOG_KEYS, CatalogOptions
from filestore.options.secrets import without_secrets
from filestore.predicate.predicate import Predicate
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    from engine.lineage.lineage import Lineage
    from engine.lineage.store.store import LineageMeta
    from engine.lineage.truth.tables_now import ListedTables

DATABASE: Final = "paimon"
CATALOG_OPTIONS_TABLE: Final = "catalog_options"
LATENESS_TABLE: Final = "upstream_lateness"
STATED_TABLE: Final = "stated_lineage"
SMALL_TABLES: Final = (CATALOG_OPTIONS_TABLE, LATENESS_TABLE, STATED_TABLE)
"""Tables that are returned whole, to be filtered by the caller."""
_ROWS_AT_ONCE: Final = 4096


def _schema(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])


_TIME: Final = pa.timestamp("ms")  # UTC, as DATETIME columns show it
_JOB: Final = ("job", pa.string())
_BARRIER: Final = ("barrier_id", pa.int64())
_TABLE: Final = (("database", pa.string()), ("table", pa.string()))
_SNAPSHOT: Final = ("snapshot_id", pa.int64())
_CREATED: Final = ("create_time", _TIME)
_DEPTH: Final = ("depth", pa.int64())


def _led_to(prefix: str, *columns: tuple[str, pa.DataType]) -> list[tuple[str, pa.DataType]]:
    return [(f"{prefix}{name}", kind) for name, kind in columns]


_TABLE_LINEAGE: Final = _schema(_JOB, *_TABLE, _CREATED)
_DATA_LINEAGE: Final = _schema(_JOB, _BARRIER, *_TABLE, _SNAPSHOT, _CREATED)
_VIEWS: Final[Mapping[str, pa.Schema]] = {
    f"{way}{kind}": schema
    for way in ("upstream_", "downstream_")
    for kind, schema in (
        ("tables", _schema(*_TABLE, *_led_to(way, *_TABLE), _DEPTH)),
        ("jobs", _schema(*_TABLE, _JOB, _DEPTH)),
        ("snapshots", _schema(*_TABLE, _SNAPSHOT, _JOB, _BARRIER, *_led_to(way, *_TABLE, _SNAPSHOT), _DEPTH)),
    )
}
LINEAGE_SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    CATALOG_OPTIONS_TABLE: _schema(("key", pa.string()), ("value", pa.string()), ("name", pa.string())),
    "source_job_lineage": _TABLE_LINEAGE,
    "sink_job_lineage": _TABLE_LINEAGE,
    "source_snapshot_lineage": _DATA_LINEAGE,
    "sink_snapshot_lineage": _DATA_LINEAGE,
    "job_startup": _schema(_JOB, *_TABLE, _SNAPSHOT),
    **_VIEWS,
    STATED_TABLE: _schema(_JOB, ("role", pa.string()), *_TABLE, _CREATED),
    LATENESS_TABLE: pa.schema(
        [
            *_schema(*_TABLE, _JOB, *_led_to("upstream_", *_TABLE)),
            *_schema(("read_snapshot_id", pa.int64()), ("newest_snapshot_id", pa.int64())),
            *_schema(("snapshots_behind", pa.int64())),
            pa.field("behind_ms", pa.int64()),
        ]
    ),
}
"""Columns by table. ``name`` equals ``key``, under the name in the PIP's example."""

_ENTITIES: Final["Mapping[str, Callable[[LineageMeta, Predicate | None, int | None], Iterable[Any]]]"] = {
    "source_job_lineage": lambda meta, predicate, limit: meta.source_table_lineages(predicate, limit=limit),
    "sink_job_lineage": lambda meta, predicate, limit: meta.sink_table_lineages(predicate, limit=limit),
    "job_startup": lambda meta, predicate, limit: meta.job_startups(predicate, limit=limit),
}


def read_lineage_table(
    catalog: "ListedTables", name: str, predicate: Predicate | None = None, limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of ``paimon.<name>``, compared with the snapshot files. The lineage store applies filter and limit.

    Args:
        catalog: the catalog.
        name: of ``LINEAGE_SCHEMAS``; ``SMALL_TABLES`` ignore filter and limit.
        predicate: on its columns.
        limit: maximum number of rows; None is all.

    Raises:
        InvalidInputError: the catalog records no lineage.
        UnavailableError: the store does not answer.
    """
    rows = _rows(catalog, name, predicate, limit)
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        yield pa.RecordBatch.from_pylist(some, schema=LINEAGE_SCHEMAS[name])


def require_lineage(catalog: OpenCatalog) -> "Lineage":
    """The lineage of a catalog. Raises: InvalidInputError when it records none."""
    from engine.lineage.lineage import lineage_of

    lineage = lineage_of(catalog)
    if lineage is not None:
        return lineage
    fix = "open the catalog with table-lineage=true or data-lineage=true"
    if stored_options(catalog):
        fix = "these options of a catalog cannot be changed: create another catalog"
    raise InvalidInputError(
        f"catalog records no lineage: warehouse={catalog.warehouse} "
        f"{' '.join(f'{key}=false' for key in FIXED_CATALOG_KEYS)} fix='{fix}'"
    )


def _rows(
    catalog: "ListedTables", name: str, predicate: Predicate | None, limit: int | None
) -> Iterator[Mapping[str, Any]]:
    if name == CATALOG_OPTIONS_TABLE:
        return iter(_options(catalog))
    return _checked_rows(catalog, require_lineage(catalog), name, predicate, limit)


def _checked_rows(
    catalog: "ListedTables", lineage: "Lineage", name: str, predicate: Predicate | None, limit: int | None
) -> Iterator[Mapping[str, Any]]:
    from engine.lineage.truth.checked import checked_meta  # SQLAlchemy is slow to import
    from engine.lineage.truth.lateness import lateness_rows
    from engine.lineage.truth.tables_now import TablesNow
    from engine.lineage.views import seed_rows, view_rows

    with checked_meta(lineage, catalog) as meta:
        if name in _VIEWS:
            yield from view_rows(meta, name, predicate, limit)
        elif name == LATENESS_TABLE:
            yield from lateness_rows(meta, TablesNow.of(catalog))
        elif name == STATED_TABLE:
            for role, found in (("read", meta.source_table_lineages()), ("written", meta.sink_table_lineages())):
                yield from ({**asdict(each), "role": role} for each in found if each.stated)
        elif name in _ENTITIES:
            yield from (asdict(each) for each in _ENTITIES[name](meta, predicate, limit))
        else:
            yield from seed_rows(meta, name, predicate, limit)


def _options(catalog: OpenCatalog) -> list[dict[str, str]]:
    given = CatalogOptions.parse(catalog.options)
    known = {
        **dict.fromkeys(FIXED_CATALOG_KEYS, "false"),
        **given.table_defaults,
        **stored_options(catalog),
        **given.given,
    }
    return [{"key": key, "value": value, "name": key} for key, value in without_secrets(known).items()]
