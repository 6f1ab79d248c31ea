"""Rows that are too old, by a column of theirs: what reads and compactions make of them."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.catalog.catalog import FileCatalog
from filestore.compact.compactor import pick_tasks
from filestore.compact.task import CompactionTask
from filestore.evolution.schema_change import DropColumn
from filestore.scan.data_split import DataSplit
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable
from lsm.errors import InvalidInputError
from tests.support.rows import write_rows
from tests.support.tables import check_metadata, content, memory_catalog

NOW_S = 1_700_000_000  # of the tests' clock
RULE = {"record-level.expire-time": "100 s", "record-level.time-field": "t"}
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("t", pa.int64())])


def expiring(schema: pa.Schema = SCHEMA, **options: str) -> FileTable:
    return memory_catalog().create_table(
        "db.t",
        schema,
        primary_key=["id"],
        options={key.replace("_", "-"): text for key, text in options.items()} | RULE,
    )


def write_aged(table: FileTable, *data: tuple[int, int | None, int | None], kinds: list[str] | None = None) -> None:
    """(id, v, age in seconds) rows; the column counts seconds."""
    rows = [{"id": key, "v": value, "t": None if age is None else NOW_S - age} for key, value, age in data]
    write_rows(table, *rows, kinds=kinds)


def stored_rows(table: FileTable) -> dict[int, Any]:
    """What the files hold, whatever its age."""
    return content(table.with_options({"record-level.expire-time": "100000 d"}))


@pytest.mark.parametrize(
    ("kind", "per_second"),
    [
        (pa.int32(), 1),
        (pa.int64(), 1),
        (pa.int64(), 1_000),
        (pa.timestamp("ms"), 1_000),
        (pa.timestamp("us"), 1_000_000),
        (pa.timestamp("us", "UTC"), 1_000_000),
    ],
    ids=str,
)
def test_rows_are_there_until_their_time_is_over(kind: pa.DataType, per_second: int) -> None:
    """Options record-level.*: seconds in INT, seconds or milliseconds in BIGINT, timestamps; null stays."""
    table = expiring(pa.schema([("id", pa.int64()), ("v", pa.int64()), ("t", kind)]))
    times = pa.array([(NOW_S - age) * per_second for age in (0, 100, 101, 5000)] + [None], pa.int64()).cast(kind)
    table.write(pa.table({"id": range(5), "v": range(5), "t": times}, schema=table.schema.arrow_schema))
    assert table.read().to_arrow().column("id").to_pylist() == [0, 1, 4]
    [split] = table.read().plan().splits
    assert not split.raw_convertible
    assert DataSplit.from_json(split.to_json()) == split
    assert table.read().to_arrow(columns=["v"], filter="v > 0").to_pydict() == {"v": [1, 4]}
    table.store.clock.sleep(200)
    assert table.read().to_arrow().column("id").to_pylist() == [4]
    table.compact(full=True)
    assert stored_rows(table) == {4: 4}
    check_metadata(table)


def test_a_row_that_is_too_old_hides_its_older_versions() -> None:
    """A record alone is never judged: Paimon's compaction would bring the first version back."""
    table = expiring(write_only="true")
    write_aged(table, (1, 1, 0), (2, 1, 0))
    write_aged(table, (1, 2, 500))
    assert content(table) == {2: 1}
    table.compact(full=True)
    assert content(table) == stored_rows(table) == {2: 1}


def test_a_compaction_above_older_rows_keeps_what_is_too_old() -> None:
    """It may hide one of those."""
    table = expiring(
        **{"num-sorted-run.compaction-trigger": "2", "compaction.max-size-amplification-percent": "1000000"}
    )
    write_aged(table, *((key, key * 7919 % 10007, key * 31 % 90) for key in range(3000)))
    table.compact(full=True)
    for value in (2, 3):
        write_aged(table, (1, value, 500))
    [task] = pick_tasks(table.store, LiveFiles.latest(table.store))
    assert (task.drops_deletes, task.expiry_moment_ms) == (False, None)
    table.compact()
    assert stored_rows(table)[1] == 3
    assert 1 not in content(table)
    table.compact(full=True)
    assert len(stored_rows(table)) == 2999


def test_a_full_compaction_rewrites_a_single_run_only_when_rows_are_too_old() -> None:
    """Statistics say it, also of a large file that nothing else would rewrite."""
    table = expiring(target_file_size="1 b")
    write_aged(table, *((key, 1, key % 50) for key in range(1000)))
    table.compact(full=True)
    assert table.compact(full=True) is None
    table.store.clock.sleep(90)
    [task] = pick_tasks(table.store, LiveFiles.latest(table.store), full=True)
    assert CompactionTask.from_json(task.to_json()) == task
    table.compact(full=True)
    assert len(stored_rows(table)) == 220
    assert table.compact(full=True) is None
    table.store.clock.sleep(10_000)
    table.compact(full=True)
    assert stored_rows(table) == {}
    assert content(table) == {}


def test_seconds_and_milliseconds_in_one_column_are_both_found() -> None:
    table = expiring()
    write_aged(table, (1, 1, 0), (2, 2, None))
    table.write(pa.table({"id": [3], "v": [3], "t": [(NOW_S - 500) * 1000]}, schema=SCHEMA))
    table.compact(full=True)
    assert content(table) == stored_rows(table) == {1: 1, 2: 2}


def test_who_travels_sees_the_rows_of_that_time() -> None:
    """TAG-06, TAG-07: an old snapshot does not lose rows by being old."""
    table = expiring()
    write_aged(table, (1, 1, 0), (2, 2, 500))
    write_aged(table, (3, 3, None))
    first = table.store.snapshots.read(1)
    table.store.io.write_new(table.store.paths.tag("eod"), first.to_json().encode())
    table.store.clock.sleep(1000)
    assert content(table) == {3: 3}
    assert content(table, snapshot_id=1) == content(table, tag="eod") == {1: 1}
    table.compact(full=True)
    assert content(table, tag="eod") == {1: 1}


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_the_changelog_tells_no_row_that_expires(producer: str) -> None:
    """What became of a row by itself is no change: an update of it is reported by the row that readers still have."""
    table = expiring(changelog_producer=producer)
    write_aged(table, (1, 1, 0), (2, 2, 0))
    table.compact(full=True)
    table.store.clock.sleep(1000)
    write_aged(table, (2, 3, -1000))
    table.compact(full=True)
    assert content(table) == stored_rows(table) == {2: 3}
    snapshot = table.store.snapshots.latest()
    assert snapshot is not None
    assert snapshot.changelog_record_count == 2


def test_aggregates_and_partial_rows_expire_as_a_whole() -> None:
    table = expiring(merge_engine="aggregation", **{"fields.v.aggregate-function": "sum"})
    write_aged(table, (1, 1, 500), (2, 1, 500), (3, 7, 500))
    write_aged(table, (1, 2, 0), (2, 2, None))
    assert content(table) == {1: 3}, "the time of the merged row counts: null takes the one from before"
    assert table.read().to_arrow(columns=["v"]).to_pydict() == {"v": [3]}
    table.compact(full=True)
    write_aged(table, (2, 5, 0))
    assert content(table) == {1: 3, 2: 5}, "what was dropped is forgotten"


deeds = st.lists(
    st.one_of(
        st.lists(
            st.tuples(st.integers(0, 6), st.integers(0, 9), st.none() | st.integers(-150, 150), st.sampled_from("IID")),
            min_size=1,
            max_size=5,
        ),
        st.integers(1, 120),
        st.booleans(),
    ),
    min_size=2,
    max_size=10,
)


@pytest.mark.sweep
@settings(max_examples=30, deadline=None, derandomize=True)
@given(history=deeds)
def test_at_any_time_the_newest_versions_that_are_young_enough_are_read(history: list[Any]) -> None:
    """Writes, hours that pass and compactions in any order, against a dictionary."""
    table = expiring(
        **{"num-sorted-run.compaction-trigger": "2", "target-file-row-num": "2", "sequence.field": "v"}
        if len(history) % 2
        else {"num-sorted-run.compaction-trigger": "3"}
    )
    newest: dict[int, tuple[int, int | None]] = {}
    for number, deed in enumerate(history):
        if isinstance(deed, bool):
            table.compact(full=deed)
        elif isinstance(deed, int):
            table.store.clock.sleep(deed)
        else:
            now_s = table.store.clock.now_ms() // 1000
            data = [
                (key, number * 10 + index, None if age is None else now_s - age, "-D" if kind == "D" else "+I")
                for index, (key, _, age, kind) in enumerate(deed)
            ]
            columns = {name: [row[index] for row in data] for index, name in enumerate(SCHEMA.names)}
            table.write(pa.table(columns, schema=SCHEMA), pa.array([kind for *_, kind in data]))
            for key, value, time, kind in data:
                if kind == "-D":
                    newest.pop(key, None)
                else:
                    newest[key] = (value, time)
        oldest_s = (table.store.clock.now_ms() + 1) // 1000 - 100
        assert content(table) == {
            key: value for key, (value, time) in newest.items() if time is None or time >= oldest_s
        }
    table.compact(full=True)
    assert content(table) == stored_rows(table)


@pytest.mark.parametrize(
    ("options", "columns", "text"),
    [
        ({"record-level.expire-time": "1 d"}, ["id"], "set record-level.time-field"),
        (RULE, ["id"], "no such column: used_by=record-level.time-field column=t"),
        (RULE, [], "needs a primary key"),
    ],
)
def test_rules_that_cannot_be_kept_are_refused(options: dict[str, str], columns: list[str], text: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    with pytest.raises(InvalidInputError, match=text):
        memory_catalog().create_table("db.t", schema, primary_key=columns, options=options)


def test_a_time_column_stays_what_it_is() -> None:
    """Neither another type nor dropping it: rows would never expire."""
    with pytest.raises(InvalidInputError, match=r"not a time column: .* type=STRING fix='use INT"):
        expiring(pa.schema([("id", pa.int64()), ("t", pa.string())]))
    catalog: FileCatalog = memory_catalog()
    catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=RULE)
    with pytest.raises(InvalidInputError, match=r"cannot be dropped: column=t used_by=\['record-level.time-field'\]"):
        catalog.alter_table("db.t", [DropColumn(path=("t",))])
