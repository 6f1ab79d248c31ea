"""All ways to follow a table agree at each commit: streams of a program and of Spark, CHANGES, audit log, diffs."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.spark.changes_reader import ChangesRequest
from filestore.changelog.version_changes import plan_versions, read_versions
from filestore.diff.version_range import Bound, find_range
from filestore.evolution.schema_change import AddColumn
from filestore.types.data_types import data_type_of
from lsm.row_kind import ROW_KIND_SYMBOLS
from tests.engine.spark.test_changes_reader import Followed
from tests.engine.stream.test_law import HISTORIES, KEYS, SCHEMA, changes, law, run_operation
from tests.support.streams import Query, Rows, content, fold
from tests.support.tables import expire_all_but

NAMES = SCHEMA.names
INT = data_type_of(pa.int64())
steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "overwrite", "foreign", "compact", "abort", "ALTER", "expire"]),
        changes,
    ),
    min_size=2,
    max_size=9,
)


@pytest.fixture(params=[pytest.param("broker", id="log"), "files"])
def options(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "files":
        return {"bucket": "2"}
    broker: Broker = request.getfixturevalue(request.param)
    return {"bucket": "2", "log.kafka.bootstrap.servers": broker.bootstrap_servers}


def first_columns(rows: Rows) -> Rows:
    """Rows in the columns that the table had from the beginning."""
    return [{name: row[name] for name in (*NAMES, "_row_kind")} for row in rows]


def by_key(rows: Rows) -> dict[Any, dict[str, Any]]:
    return {tuple(row[name] for name in KEYS): {name: row[name] for name in NAMES} for row in rows}


def filtered(rows: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {key: row for key, row in rows.items() if row["v"] >= 5}


def add_exactly(state: dict[Any, dict[str, Any]], changes: Rows) -> None:
    """Apply changes that say what each replaces; fails where one does not fit the state."""
    for change in changes:
        row = {name: change[name] for name in NAMES}
        key = tuple(row[name] for name in KEYS)
        if change["_row_kind"] in ("-U", "-D"):
            assert state.pop(key) == row, change
        else:
            assert key not in state, change
            state[key] = row


def changes_of_versions(table: Table, after_id: int, until_id: int) -> Rows:
    """As Spark's CHANGES reads them, in the order of versions."""
    found = find_range(table.files, Bound(version=str(after_id), is_inclusive=False), Bound(version=str(until_id)))
    by_version: Rows = []
    for split in plan_versions(found.table.store, found.steps):
        for each in read_versions(found.table, split):
            extra = zip(each.versions.to_pylist(), ROW_KIND_SYMBOLS.take(each.kinds).to_pylist(), strict=True)
            by_version += [
                {**row, "version": version, "_row_kind": kind}
                for row, (version, kind) in zip(each.rows.to_pylist(), extra, strict=True)
            ]
    return sorted(by_version, key=lambda row: row["version"])


def taken(streamed: Followed) -> Rows:
    """What the stream of CHANGES has delivered since the last time."""
    kinds = {"insert": "+I", "delete": "-D"}
    found = [{**dict(zip(NAMES, row[: len(NAMES)], strict=True)), "_row_kind": kinds[row[-2]]} for row in streamed.rows]
    streamed.rows.clear()
    return found


class Follower:
    """A program that begins again at its stored position whenever it looks."""

    def __init__(self, table: Table, consumer: str, **choices: Any) -> None:
        self.consumer, self.rows, self.place = consumer, [], None  # type: tuple[str, Rows, str | None]
        self.choices = choices
        self.follow(table)

    def follow(self, table: Table, most: int = 1 << 30, max_rows: int | None = None) -> None:
        """Some deliveries, at most up to the table's state of now."""
        choices: dict[str, Any] = {"columns": NAMES, "consumer": self.consumer, "max_rows": max_rows, **self.choices}
        with table.stream(self.place, follow=False, **choices) as stream:
            for count, found in enumerate(stream, 1):
                self.rows += first_columns(found.rows.to_pylist())
                self.place = str(found.position)
                if count == most:
                    return


@pytest.mark.sampled(1)
@pytest.mark.sweep
@settings(law, max_examples=int(HISTORIES or 10))
@given(steps, st.data())
def test_every_way_gives_the_same_table(
    options: dict[str, str], steps: list[tuple[str, Any]], data: st.DataObject
) -> None:
    """Writes, overwrites, other engines, compactions, aborted transactions, ALTER and expiry, with restarts within
    batches: at each commit the changes add up to its rows, and differences lead from any state to it. CHANGES, also as
    a stream, and a filter on values are exact: nothing is deleted that is not there, nothing inserted that is."""
    with tempfile.TemporaryDirectory() as root:
        catalog = Catalog(root)
        name = f"agree.t{Path(root).name}"
        table = catalog.create_table(name, SCHEMA, primary_key=KEYS, options=options)
        run_operation(table, ("write", [("a", 1, 1, False), ("b", 2, 2, False)]))
        close, slow = Follower(table, "close"), Follower(table, "slow")
        matching, matched = Follower(table, "matching", filter="v >= 5"), dict[Any, dict[str, Any]]()
        spark = Query(root, name, consumer__id="spark")
        of_spark = first_columns(spark.available())
        streamed, by_stream = (
            Followed(table, ChangesRequest(), **{"consumer-id": "changes"}),
            dict[Any, dict[str, Any]](),
        )
        streamed.catch_up()
        add_exactly(by_stream, taken(streamed))
        seen = by_key(list(content(table, KEYS).values()))
        before_id = table.store.snapshots.latest_id()
        for number, (kind, found) in enumerate(steps):
            if kind == "ALTER":
                catalog.alter_table(name, [AddColumn(path=(f"n{number}",), type=INT)])
                table = streamed.table = catalog.table(name)
                spark.start()
            elif kind == "expire":
                expire_all_but(table.files, 1)
            else:
                run_operation(table, (kind, found))
            close.follow(table)
            matching.follow(table, max_rows=data.draw(st.sampled_from([None, 1, 2])))
            if data.draw(st.booleans()):
                slow.follow(table, most=data.draw(st.integers(1, 3)), max_rows=data.draw(st.integers(1, 4)))
            newest_id = table.store.snapshots.latest_id()
            rows = by_key(list(content(table, KEYS).values()))
            assert fold(close.rows, KEYS) == rows
            if data.draw(st.booleans()):
                of_spark += first_columns(spark.available())
                assert fold(of_spark, KEYS) == rows
            if data.draw(st.booleans()):
                streamed.catch_up()
                add_exactly(by_stream, taken(streamed))
                assert by_stream == rows
            add_exactly(matched, matching.rows)
            matching.rows.clear()
            assert matched == filtered(rows)
            audit = catalog.system_table(f"{name}$audit_log").to_arrow().to_pylist()
            assert by_key([row for row in audit if row["rowkind"] in ("+I", "+U")]) == rows
            if table.store.snapshots.exists(before_id or 0):
                difference = table.diff(f"snapshot.{before_id}", f"snapshot.{newest_id}").to_arrow().to_pylist()
                state = [{**row, "_row_kind": "+I"} for row in seen.values()]
                assert fold([*state, *first_columns(difference)], KEYS) == rows
                by_versions = dict(seen)
                add_exactly(by_versions, changes_of_versions(table, before_id or 0, newest_id or 0))
                assert by_versions == rows
            seen, before_id = rows, newest_id
        slow.follow(table)
        assert fold(slow.rows, KEYS) == rows
        assert fold([*of_spark, *first_columns(spark.available())], KEYS) == rows
