"""All ways to follow a table agree at each commit: streams of a program and of Spark, audit log, differences."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Catalog, Table
from engine.broker.broker import Broker
from filestore.evolution.schema_change import AddColumn
from filestore.types.data_types import data_type_of
from tests.engine.stream.test_law import KEYS, SCHEMA, changes, law, run_operation
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


@pytest.fixture(params=[pytest.param("log", marks=pytest.mark.broker), "files"])
def options(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "files":
        return {"bucket": "2"}
    broker: Broker = request.getfixturevalue("broker")
    return {"bucket": "2", "log.kafka.bootstrap.servers": broker.bootstrap_servers}


def first_columns(rows: Rows) -> Rows:
    """Rows in the columns that the table had from the beginning."""
    return [{name: row[name] for name in (*NAMES, "_row_kind")} for row in rows]


def by_key(rows: Rows) -> dict[Any, dict[str, Any]]:
    return {tuple(row[name] for name in KEYS): {name: row[name] for name in NAMES} for row in rows}


class Follower:
    """A program that begins again at its stored position whenever it looks."""

    def __init__(self, table: Table, consumer: str) -> None:
        self.consumer, self.rows, self.place = consumer, [], None  # type: tuple[str, Rows, str | None]
        self.follow(table)

    def follow(self, table: Table, most: int = 1 << 30, max_rows: int | None = None) -> None:
        """Some deliveries, at most up to the table's state of now."""
        choices: dict[str, Any] = {"columns": NAMES, "consumer": self.consumer, "max_rows": max_rows}
        with table.stream(self.place, follow=False, **choices) as stream:
            for count, found in enumerate(stream, 1):
                self.rows += first_columns(found.rows.to_pylist())
                self.place = str(found.position)
                if count == most:
                    return


@settings(law, max_examples=10)
@given(steps, st.data())
def test_every_way_gives_the_same_table(
    options: dict[str, str], steps: list[tuple[str, Any]], data: st.DataObject
) -> None:
    """Writes, overwrites, other engines, compactions, aborted transactions, ALTER and expiry, with restarts within
    batches: at each commit the changes add up to its rows, and differences lead from any state to it."""
    with tempfile.TemporaryDirectory() as root:
        catalog = Catalog(root)
        name = f"agree.t{Path(root).name}"
        table = catalog.create_table(name, SCHEMA, primary_key=KEYS, options=options)
        run_operation(table, ("write", [("a", 1, 1, False), ("b", 2, 2, False)]))
        close, slow = Follower(table, "close"), Follower(table, "slow")
        spark = Query(root, name, consumer__id="spark")
        of_spark = first_columns(spark.available())
        seen = by_key(list(content(table, KEYS).values()))
        before_id = table.store.snapshots.latest_id()
        for number, (kind, found) in enumerate(steps):
            if kind == "ALTER":
                catalog.alter_table(name, [AddColumn(path=(f"n{number}",), type=INT)])
                table = catalog.table(name)
                spark.start()
            elif kind == "expire":
                expire_all_but(table.files, 1)
            else:
                run_operation(table, (kind, found))
            close.follow(table)
            if data.draw(st.booleans()):
                slow.follow(table, most=data.draw(st.integers(1, 3)), max_rows=data.draw(st.integers(1, 4)))
            if data.draw(st.booleans()):
                of_spark += first_columns(spark.available())
            newest_id = table.store.snapshots.latest_id()
            rows = by_key(list(content(table, KEYS).values()))
            assert fold(close.rows, KEYS) == rows
            audit = catalog.system_table(f"{name}$audit_log").to_arrow().to_pylist()
            assert by_key([row for row in audit if row["rowkind"] in ("+I", "+U")]) == rows
            if table.store.snapshots.exists(before_id or 0):
                difference = table.diff(f"snapshot.{before_id}", f"snapshot.{newest_id}").to_arrow().to_pylist()
                state = [{**row, "_row_kind": "+I"} for row in seen.values()]
                assert fold([*state, *first_columns(difference)], KEYS) == rows
            seen, before_id = rows, newest_id
        slow.follow(table)
        assert fold(slow.rows, KEYS) == rows
        assert fold([*of_spark, *first_columns(spark.available())], KEYS) == rows
