"""Views of lineage against a search by hand."""

from collections import defaultdict
from datetime import datetime
from pathlib import Path
from random import Random

import pytest

from engine.lineage.store.entities import DataLineage, LineageRecords, TableLineage
from engine.lineage.store.jdbc import JdbcLineageMeta
from engine.lineage.tables import LINEAGE_SCHEMAS
from engine.lineage.views import view_query, view_rows
from filestore.catalog.sql_database import ALL_DIALECTS, SqlDatabase
from filestore.predicate.parser import parse_filter
from filestore.schema.schema_store import new_schema

TIME = datetime(2023, 6, 5, 13, 29, 1)
Snapshot = tuple[str, int]  # of table


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> JdbcLineageMeta:
    if request.param == "sqlite":
        return JdbcLineageMeta(SqlDatabase.of(f"sqlite:////{tmp_path}/l.sqlite"))
    schema = f"views {request.node.name}"[:60]
    return JdbcLineageMeta(SqlDatabase.of(request.getfixturevalue(request.param), dialects=ALL_DIALECTS), schema)


def asked(store: JdbcLineageMeta, view: str, filter: str | None = None) -> list[tuple[object, ...]]:
    predicate = None if filter is None else parse_filter(filter, new_schema(LINEAGE_SCHEMAS[view], time_ms=0))
    rows = list(view_rows(store, view, predicate, None))
    assert [*(rows[0] if rows else LINEAGE_SCHEMAS[view].names)] == LINEAGE_SCHEMAS[view].names
    return [tuple(value for key, value in row.items() if "database" not in key) for row in rows]


@pytest.mark.sweep
def test_tables_and_jobs_are_found_over_any_graph(store: JdbcLineageMeta) -> None:
    """LN-01, LN-03, LN-04, LN-26, LN-27: the shortest way to each, through cycles too."""
    random, tables = Random(5), [f"t{each}" for each in range(7)]
    reads = {(f"j{random.randrange(5)}", random.choice(tables)) for _ in range(7)}
    writes = {(f"j{random.randrange(5)}", random.choice(tables)) for _ in range(7)}
    store.store(
        LineageRecords(
            source_tables=tuple(TableLineage(job, "db", table, TIME) for job, table in reads),
            sink_tables=tuple(TableLineage(job, "db", table, TIME) for job, table in writes),
        )
    )
    down: dict[str, set[str]] = defaultdict(set)
    up: dict[str, set[str]] = defaultdict(set)
    for job, source in reads:
        for other, sink in writes:
            if job == other:
                down[source].add(sink)
                up[sink].add(source)
    for view, edges in (("upstream_tables", up), ("downstream_tables", down)):
        expected = sorted((a, b, depth) for a in tables for b, depth in _distances(edges, a).items())
        assert any(depth > 2 for *_, depth in expected), "the graph is deep enough to show something"
        assert asked(store, view) == expected
        near = [row for row in expected if row[0] == "t1" and row[2] == 1]
        assert asked(store, view, "`table` = 't1' AND depth <= 1") == near
        others = [row for row in expected if row[0] != "t1" and row[2] < 3]
        assert asked(store, view, "depth < 3 AND NOT (`table` IN ('t1'))") == others
    jobs = {
        (table, job, depth + 1)
        for table in tables
        for near, depth in {**_distances(up, table), table: 0}.items()
        for job, sink in writes
        if sink == near
    }
    shortest = {(table, job): min(d for t, j, d in jobs if (t, j) == (table, job)) for table, job, _ in jobs}
    assert asked(store, "upstream_jobs") == sorted((*key, depth) for key, depth in shortest.items())


def _distances(edges: dict[str, set[str]], start: str) -> dict[str, int]:
    found: dict[str, int] = {}
    border, depth = {start}, 0
    while border:
        depth += 1
        border = {each for one in border for each in edges[one]} - found.keys()
        found |= dict.fromkeys(border, depth)
    return found


@pytest.mark.sweep
def test_snapshots_lead_to_the_last_one_of_each_job(store: JdbcLineageMeta) -> None:
    """LN-02, LN-28, LN-29: A writes ``m`` at 1, 3 and 4, B reads it up to 2 and 5, which are compactions."""

    def rows(job: str, table: str, *snapshots: int) -> tuple[DataLineage, ...]:
        return tuple(DataLineage(job, barrier, "db", table, each, TIME) for barrier, each in enumerate(snapshots, 1))

    store.store(
        LineageRecords(
            source_snapshots=(*rows("A", "s", 11, 12, 13), *rows("B", "m", 2, 5), *rows("B", "n", 7, 8)),
            sink_snapshots=(*rows("A", "m", 1, 3, 4), *rows("B", "k", 21, 22)),
        )
    )
    assert asked(store, "upstream_snapshots", "`table` = 'k' AND snapshot_id = 22") == [
        ("k", 22, "A", 3, "s", 13, 2),
        ("k", 22, "B", 2, "m", 5, 1),
        ("k", 22, "B", 2, "n", 8, 1),
    ]
    assert asked(store, "upstream_snapshots", "snapshot_id = 21 AND upstream_table <> 'n'") == [
        ("k", 21, "A", 1, "s", 11, 2),
        ("k", 21, "B", 1, "m", 2, 1),
    ]
    assert asked(store, "downstream_snapshots", "`table` = 's' AND snapshot_id = 12") == [
        ("s", 12, "A", 2, "m", 3, 1),
        ("s", 12, "B", 2, "k", 22, 2),
    ]
    assert asked(store, "downstream_snapshots", "`table` = 's' AND depth = 1 AND snapshot_id > 11") == [
        ("s", 12, "A", 2, "m", 3, 1),
        ("s", 13, "A", 3, "m", 4, 1),
    ]
    assert asked(store, "downstream_jobs", "`table` = 's'") == []


@pytest.mark.sweep
def test_a_job_that_reads_what_it_writes_comes_to_an_end(store: JdbcLineageMeta) -> None:
    """LN-28: a hundred snapshots of a loop; at most 32 steps are followed."""
    store.store(
        LineageRecords(
            source_snapshots=tuple(DataLineage("j", each, "db", "t", each, TIME) for each in range(100)),
            sink_snapshots=tuple(DataLineage("j", each, "db", "t", each + 1, TIME) for each in range(100)),
        )
    )
    found = asked(store, "upstream_snapshots", "snapshot_id = 90")
    assert len(found) == 32
    assert ("t", 90, "j", 58, "t", 58, 32) in found


@pytest.mark.parametrize("view", [name for name, schema in LINEAGE_SCHEMAS.items() if "depth" in schema.names])
def test_the_filter_chooses_where_a_view_begins(view: str) -> None:
    """LN-26 to LN-29: a closure of all tables is never made for one of them."""
    predicate = parse_filter("`table` = 'x' AND depth <= 3", new_schema(LINEAGE_SCHEMAS[view], time_ms=0))
    text = str(view_query(view, predicate, "sqlite").compile(compile_kwargs={"literal_binds": True}))
    begin, _, rest = text.partition("UNION")
    assert "= 'x'" in begin
    assert "< 3" in rest
