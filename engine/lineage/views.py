"""Transitive lineage of tables, as recursive queries.

A query starts at the rows that the filter selects and follows them, so its cost depends on its result. From one job to
the next, a snapshot leads to a job's last one that is not newer (upstream), or its first one that is not older
(downstream): snapshots of compactions lie between them, and a job may read several at once. Source: PIP "Table and data
lineage", queries. The PIP's own text joins snapshots by the tables of jobs, which have none: here they are joined by
those of snapshots.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from engine.lineage.store.jdbc import JdbcLineageMeta
from engine.lineage.store.sql_copy import as_sql
from engine.lineage.store.sql_predicates import where
from engine.lineage.store.sql_tables import (
    SINK_JOBS,
    SINK_SNAPSHOT_JOBS,
    SINK_SNAPSHOTS,
    SOURCE_JOBS,
    SOURCE_SNAPSHOT_JOBS,
    SOURCE_SNAPSHOTS,
    of_newest_run,
)
from engine.lineage.store.store import LineageMeta
from filestore.predicate.predicate import Compare, CompareOp, Predicate, conjuncts, on_columns_only

MOST_STEPS: Final = 32
_BOUNDS: Final = {CompareOp.EQ: 0, CompareOp.LE: 0, CompareOp.LT: -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Direction:
    """Upstream leads from what jobs write to what they read, downstream the other way."""

    prefix: str  # prefix of the target columns
    near: sa.Table  # jobs of the table where a step starts
    far: sa.Table
    near_snapshots: sa.Table
    near_jobs: sa.Table  # with rows in near_snapshots
    far_snapshots: sa.Table
    is_back: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A transitive closure: its start, and one further step."""

    start: tuple[str, ...]  # columns by which a filter may restrict the start
    first: "sa.Select[Any]"  # the first step, with column names, without the depth
    next: Callable[["sa.CTE"], "sa.Select[Any]"]  # from the rows found to the next step


def view_rows(meta: LineageMeta, name: str, predicate: Predicate | None, limit: int | None) -> Iterator[dict[str, Any]]:
    """Rows of a view, sorted.

    Args:
        meta: the store; a store other than Fluvial's is copied first.
        name: ``upstream_tables`` etc.
        predicate: on its columns.
        limit: maximum number of rows; None is all.

    Raises:
        UnavailableError: the store does not answer.
    """
    with as_sql(meta) as database:
        yield from database.rows(view_query(name, predicate, database.database.dialect), limit)


def seed_rows(
    meta: JdbcLineageMeta, name: str, predicate: Predicate | None, limit: int | None
) -> Iterator[dict[str, Any]]:
    """Rows of ``source_snapshot_lineage`` or ``sink_snapshot_lineage``, by their key; arguments as in ``view_rows``.

    Raises: UnavailableError.
    """
    shown = of_newest_run(name).subquery("shown")
    passes = where(predicate, dict(shown.c.items()), meta.database.dialect)
    yield from meta.rows(sa.select(shown).where(passes).order_by(*[*shown.c][:4]), limit)


def view_query(name: str, predicate: Predicate | None, dialect: str) -> "sa.Select[Any]":
    """The query of a view."""
    view = _VIEWS[name]
    first = view.first
    begin = where(on_columns_only(predicate, view.start), dict(first.selected_columns.items()), dialect)
    found = (
        first.add_columns(sa.literal_column("1", sa.Integer).label("depth")).where(begin).cte("found", recursive=True)
    )
    step = view.next(found).add_columns((found.c.depth + 1).label("depth")).where(found.c.depth < _deepest(predicate))
    closure = found.union(step)
    columns = [closure.c[column.name] for column in first.selected_columns]
    depth = sa.func.min(closure.c.depth).label("depth")
    shortest = sa.select(*columns, depth).group_by(*columns).subquery("shortest")
    passes = where(predicate, dict(shortest.c.items()), dialect)
    return sa.select(shortest).where(passes).order_by(*shortest.c)


def _deepest(predicate: Predicate | None) -> int:
    """The maximum depth of rows that can pass the filter."""
    parts = conjuncts(predicate) if predicate is not None else []
    bounds: list[int] = [
        each.value + _BOUNDS[each.op]
        for each in parts
        if isinstance(each, Compare) and each.column == "depth" and each.op in _BOUNDS
    ]
    return min([MOST_STEPS, *bounds])


def _tables(way: _Direction) -> _View:
    near, far = way.near.alias("n").c, way.far.alias("f").c
    led_to = (far.database.label(f"{way.prefix}database"), far.table.label(f"{way.prefix}table"))
    return _View(
        start=("database", "table"),
        first=sa.select(near.database, near.table, *led_to).where(far.job == near.job),
        next=lambda found: sa.select(found.c.database, found.c.table, *led_to).where(
            _leads_to(found, way, near), far.job == near.job
        ),
    )


def _jobs(way: _Direction) -> _View:
    near, far = way.near.alias("n").c, way.far.alias("f").c
    return _View(
        start=("database", "table"),
        first=sa.select(near.database, near.table, near.job),
        next=lambda found: sa.select(found.c.database, found.c.table, near.job).where(
            far.job == found.c.job, near.database == far.database, near.table == far.table
        ),
    )


def _snapshots(way: _Direction) -> _View:
    near, far = way.near_snapshots.alias("n").c, way.far_snapshots.alias("f").c
    by = (near.job, near.barrier_id)
    led_to = [far[name].label(f"{way.prefix}{name}") for name in ("database", "table", "snapshot_id")]
    is_same_barrier = sa.and_(far.job == near.job, far.barrier_id == near.barrier_id, far.run == near.run)

    def more(found: "sa.CTE") -> "sa.Select[Any]":
        jobs, there = way.near_jobs.alias("j").c, way.near_snapshots.alias("t").c
        place = found.c[f"{way.prefix}snapshot_id"]
        nearest = (
            sa.select(there.snapshot_id)
            .where(there.job == jobs.job, there.database == jobs.database, there.table == jobs.table)
            .where(there.snapshot_id <= place if way.is_back else there.snapshot_id >= place)
            .order_by(there.snapshot_id.desc() if way.is_back else there.snapshot_id.asc())
            .limit(1)
        )
        # Expressions, so that every planner goes from job to nearest row to its barrier, and never scans all rows.
        is_nearest = sa.and_(
            near.job == jobs.job.concat(""),
            near.database == jobs.database.concat(""),
            near.table == jobs.table.concat(""),
            near.snapshot_id == nearest.scalar_subquery(),
            far.job == near.job.concat(""),
            far.barrier_id == near.barrier_id + 0,
            far.run == near.run.concat(""),
        )
        begin = (found.c.database, found.c.table, found.c.snapshot_id)
        return sa.select(*begin, *by, *led_to).where(_leads_to(found, way, jobs), is_nearest)

    return _View(
        start=("database", "table", "snapshot_id"),
        first=sa.select(near.database, near.table, near.snapshot_id, *by, *led_to).where(is_same_barrier),
        next=more,
    )


def _leads_to(found: "sa.CTE", way: _Direction, near: Any) -> sa.ColumnElement[bool]:
    return sa.and_(near.database == found.c[f"{way.prefix}database"], near.table == found.c[f"{way.prefix}table"])


_UP: Final = _Direction(
    prefix="upstream_",
    near=SINK_JOBS,
    far=SOURCE_JOBS,
    near_snapshots=SINK_SNAPSHOTS,
    near_jobs=SINK_SNAPSHOT_JOBS,
    far_snapshots=SOURCE_SNAPSHOTS,
    is_back=True,
)
_DOWN: Final = _Direction(
    prefix="downstream_",
    near=SOURCE_JOBS,
    far=SINK_JOBS,
    near_snapshots=SOURCE_SNAPSHOTS,
    near_jobs=SOURCE_SNAPSHOT_JOBS,
    far_snapshots=SINK_SNAPSHOTS,
    is_back=False,
)
_VIEWS: Final = {
    f"{way.prefix}{kind}": make(way)
    for way in (_UP, _DOWN)
    for kind, make in (("tables", _tables), ("jobs", _jobs), ("snapshots", _snapshots))
}
