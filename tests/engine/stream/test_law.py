"""The law of the hybrid source: snapshot S and the changes after it add up to the table, wherever it is cut."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import Catalog, Table
from engine.broker.broker import Broker
from tests.support.streams import Query, as_foreign, content, fold

HISTORIES = os.environ.get("FLUVIAL_LAW_HISTORIES")  # for a soak: as many, and others each time
law = settings(
    max_examples=int(HISTORIES or 16),
    deadline=None,
    derandomize=HISTORIES is None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
SCHEMA = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("v", pa.int64()), ("w", pa.string())])
KEYS = ("dt", "id")

changes = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 12), st.integers(0, 9), st.booleans()),
    min_size=1,
    max_size=12,
)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), changes),
        st.tuples(st.just("write"), changes),
        st.tuples(st.just("write"), changes),
        st.tuples(st.just("overwrite"), changes),
        st.tuples(st.just("foreign"), changes),
        st.tuples(st.just("compact a little"), st.none()),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("foreign compact"), st.none()),
        st.tuples(st.just("abort"), changes),
    ),
    min_size=1,
    max_size=9,
)


def operation_rows(found: list[tuple[str, int, int, bool]], *, with_deletes: bool = True) -> pa.Table:
    rows = [
        {"dt": dt, "id": key, "v": v, "w": f"{dt}-{v}", "_row_kind": "-D" if gone and with_deletes else "+I"}
        for dt, key, v, gone in found
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA.append(pa.field("_row_kind", pa.string())))


def run_operation(table: Table, operation: tuple[str, Any]) -> None:
    """One step of a history."""
    kind, found = operation
    match kind:
        case "write":
            table.write(operation_rows(found))
        case "overwrite":
            table.overwrite(operation_rows(found, with_deletes=False).drop_columns(["_row_kind"]))
        case "foreign":
            unlogged = Table(table.files.with_options({"log.system": "none"}))
            unlogged.write(operation_rows(found))
            as_foreign(table)
        case "abort":
            abort(table, operation_rows(found))
        case "foreign compact":
            if table.compact(full=True) is not None:
                as_foreign(table)
        case _:
            table.compact(full=kind == "compact")


def abort(table: Table, rows: pa.Table) -> None:
    """A transaction that never ends well: a reader must not see it, and offsets go on behind it."""
    log = table.log
    if log is None:
        return
    with log.writer(0) as writer:
        writer.fence()
        writer.begin(query="died", batch=1)
        writer.append(None, pa.array([b"{}"] * rows.num_rows))


@pytest.fixture(params=["log", "files", "log by files"])
def options(request: pytest.FixtureRequest, broker: Broker) -> dict[str, str]:
    found = {"bucket": "2"}
    if request.param != "files":
        found["log.kafka.bootstrap.servers"] = broker.bootstrap_servers
    if request.param == "log by files":
        found["streaming-read-mode"] = "file"
    return found


_number = iter(range(10**9))


@pytest.mark.sampled(1)
@pytest.mark.broker
@law
@given(operations, st.data())
def test_a_snapshot_and_what_follows_add_up_to_the_table(
    options: dict[str, str], steps: list[tuple[str, Any]], data: st.DataObject
) -> None:
    """FL-24, FL-71, FL-72, FL-99, FL-109: for every start and every end, with deletes, partitions, aborted
    transactions, compactions, overwrites, and commits of other engines between."""
    with tempfile.TemporaryDirectory() as root:
        name = f"law.t{next(_number)}_{Path(root).name}"
        table = Catalog(root).create_table(name, SCHEMA, primary_key=KEYS, partition_by=["dt"], options=options)
        limited = {"read_stream_maxRowsPerTrigger": str(data.draw(st.integers(1, 8)))}
        follower = Query(root, name, **limited)
        followed: list[dict[str, Any]] = []
        queries: dict[int, Query] = {}
        for step in steps:
            run_operation(table, step)
            if data.draw(st.booleans()):
                followed += follower.available()
                assert fold(followed, KEYS) == content(table, KEYS)
            latest = table.latest_snapshot()
            if latest is not None and latest.id not in queries:
                queries[latest.id] = Query(root, name, scan_snapshot__id=str(latest.id))
        followed += follower.available()
        assert fold(followed, KEYS) == content(table, KEYS)
        for query in queries.values():
            assert fold(query.available(), KEYS) == content(table, KEYS)
        Catalog(root).drop_table(name)
