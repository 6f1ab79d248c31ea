"""A row of kind -U whose update never comes deletes the row: in the table, in its log, and for who reads either."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import Catalog, Table
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from tests.support.logs import folded, log_changes

KINDS = ("+I", "-U", "+U", "-D")
Change = tuple[int, int, str]

# a change of a key: its sequence number, and its kind
BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from(KINDS)), min_size=1, max_size=5),
    min_size=1,
    max_size=3,
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with serving("memory:9092", MemoryEnvironment(MemoryCluster())):
        yield Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": "memory:9092"})


def keyed(catalog: Catalog, **options: str) -> Table:
    schema = pa.schema([("id", pa.int64()), ("q", pa.int64()), ("n", pa.int64())])
    texts = {name.replace("_", "."): text for name, text in options.items()}
    return catalog.create_table(f"d.t{uuid4().hex}", schema, primary_key=["id"], options={"bucket": "2", **texts})


def state(rows: pa.Table) -> list[tuple[int, int, int]]:
    return sorted((row["id"], row["q"], row["n"]) for row in rows.to_pylist())


def applied(table: Table) -> list[tuple[int, int, int]]:
    """What who applies each change of the log has in the end."""
    held = folded(log_changes(table), "id").values()
    return sorted((row["id"], row["q"], row["n"]) for row in held)


def write_batches(table: Table, batches: list[list[Change]]) -> None:
    count = 0
    for batch in batches:
        columns = dict(zip(("id", "q", "_row_kind"), map(list, zip(*batch, strict=True)), strict=True))
        table.write(pa.table({**columns, "n": range(count, count + len(batch))}))
        count += len(batch)


@pytest.mark.sweep
@pytest.mark.parametrize("options", [{}, {"log_format": "json"}, {"ignore-update-before": "true"}])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
def test_who_applies_the_log_has_the_table(
    catalog: Catalog, options: dict[str, str], batches: list[list[Change]]
) -> None:
    table = keyed(catalog, **options)
    write_batches(table, batches)
    wanted = state(table.read().to_arrow())
    assert applied(table) == wanted
    assert state(table.read(options={"scan.log.union": "true"}).to_arrow()) == wanted


@pytest.mark.parametrize(
    ("options", "kinds", "wanted"),
    [
        ({}, ["-U"], ["-D"]),
        ({}, ["-U", "+U"], ["+I"]),
        ({}, ["-U", "-D"], ["-D"]),
        ({}, ["+I", "-U"], ["+I", "-D"]),
        ({}, ["-U", "+U", "-U"], ["+I", "-D"]),
        ({"ignore-update-before": "true"}, ["+I", "-U"], ["+I"]),
        ({"sequence.field": "q"}, ["-U", "+U"], ["-D", "+I"]),  # which one is newer, the sequence says
    ],
)
def test_an_old_row_is_in_the_log_where_no_later_one_decides(
    catalog: Catalog, options: dict[str, str], kinds: list[str], wanted: list[str]
) -> None:
    table = keyed(catalog, **options)
    write_batches(table, [[(1, 0, kind) for kind in kinds]])
    assert [kind.symbol for kind, _ in log_changes(table)] == wanted
