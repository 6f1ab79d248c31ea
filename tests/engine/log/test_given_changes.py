"""A log of mode all without a lookup has the changes that the writer gives: they have to be complete."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Catalog
from engine.broker.broker import Broker
from engine.log.given_changes import GivenChanges
from engine.procedures import copy
from engine.types.rows import ROW_KIND_COLUMN
from lsm.errors import InvalidInputError
from lsm.row_kind import RowKind
from tests.support.logs import log_changes
from tests.support.streams import rows
from tests.support.tables import key_table
from tests.support.warehouses import new_table

ALL = {"log.changelog-mode": "all"}


def is_complete(changes: list[tuple[int, str]]) -> bool:
    """Whether every +U comes right after the -U of its key, row by row."""
    last: dict[int, str] = {}
    for key, kind in changes:
        if kind == "+U" and last.get(key) != "-U":
            return False
        last[key] = kind
    return True


@pytest.mark.sweep
@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["+I", "-D", "-U +U", "-U +U", "-U", "+U"])), max_size=5),
    st.integers(1, 4),
)
def test_an_update_is_taken_with_what_it_replaces_however_the_batch_is_cut(
    given_changes: list[tuple[int, str]], size: int
) -> None:
    """FL-134"""
    changes = [(key, kind) for key, kinds in given_changes for kind in kinds.split()]
    checked = GivenChanges(key_table(bucket="1").store)
    numbers = {kind.symbol: kind.value for kind in RowKind}
    found = True
    for start in range(0, len(changes), size):
        piece = changes[start : start + size]
        batch = pa.RecordBatch.from_pydict({"id": pa.array([key for key, _ in piece], pa.int64())})
        try:
            checked.check(batch, pa.array([numbers[kind] for _, kind in piece], pa.int8()))
        except InvalidInputError:
            found = False
            break
    assert found == is_complete(changes)


@pytest.fixture
def warehouse(tmp_path: object, broker: Broker) -> Catalog:
    return Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})


@pytest.mark.broker
def test_a_batch_that_cannot_be_complete_is_refused(warehouse: Catalog) -> None:
    """FL-134: nothing of it is in the log or the table."""
    table = new_table(warehouse, options={**ALL, "bucket": "2"})
    table.write(rows([1, 2]))
    alone = rows([1], "new", "+U")
    pair = pa.concat_tables([rows([1], "x", "-U"), rows([1], "new", "+U")])
    for batch, words in (
        (alone, r"updates=1 first_key=\{'id': 1\} fix='send -U .*update-before=true.*changelog-producer=lookup'"),
        (pa.concat_tables([pair, alone]), r"updates=1 first_key=\{'id': 1\}"),
        (pa.concat_tables([rows([3], "x"), rows([3], "y", "+U")]), "comes without the row that it replaces"),
        (rows([4]).drop_columns([ROW_KIND_COLUMN]), r"the rows have none: .*fix='give the rows a column _row_kind"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            table.write(batch)
    table.write(pair)
    table.write(rows([1], "as an insert"))
    expected = [("+", 1, "as an insert"), ("+", 1, "new"), ("+", 1, "x"), ("+", 2, "x"), ("-", 1, "x")]
    assert (
        sorted(("-" if kind.is_retract else "+", row["id"], row["v"]) for kind, row in log_changes(table)) == expected
    )


@pytest.mark.broker
def test_what_needs_no_kinds_is_taken_without(warehouse: Catalog) -> None:
    plain = rows([1]).drop_columns([ROW_KIND_COLUMN])
    update = rows([1], "new", "+U")
    for options, key in (
        ({}, ["id"]),
        ({**ALL, "changelog-producer": "lookup"}, ["id"]),
        ({**ALL, "merge-engine": "partial-update"}, ["id"]),
        (ALL, []),
    ):
        table = new_table(warehouse, key=key, options=options)
        table.write(plain)
        table.write(update if key else plain)
    given = new_table(warehouse, options=ALL)
    given.write(rows([1]))
    copy(warehouse, given.name, "db.copied")
    assert [kind for kind, _ in log_changes(warehouse.table("db.copied"))] == [RowKind.INSERT]
