"""Kinds of tables and of logs, and what a stream of each gives."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Table
from engine.log.log_rows import paired_kinds
from engine.log.table_log import TableLog
from engine.spark.data_source import FluvialDataSource
from engine.write.batch_writer import BatchWriter
from lsm.errors import InvalidInputError
from lsm.row_kind import RowKind
from tests.engine.stream.conftest import NewTable
from tests.support.logs import write_batch, write_without_commit
from tests.support.streams import Query, as_foreign, content, fold, ids, query, rows

broker = pytest.mark.broker


def without_kinds(found: pa.Table) -> pa.Table:
    return found.drop_columns(["_row_kind"])


def shown(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found]


def write_eventually(table: Table, batch: int, news: pa.Table) -> None:
    write_batch(BatchWriter(table.files, TableLog.of(table.files), commit_user="eventual"), batch, news)


# ---- log.consistency


@broker
@pytest.mark.parametrize("consistency", ["eventual", "transactional"])
def test_rows_are_seen_before_their_snapshot_or_with_it(new_table: NewTable, consistency: str) -> None:
    """FL-57, FL-58, FL-105, FL-107, FL-108, FL-127, FL-128, FL-188 to FL-190: in the log; files only with it."""
    table = new_table(log_consistency=consistency, bucket="2")
    write_eventually(table, 0, rows([1, 2]))
    stream = query(table)
    found = stream.available()
    write_without_commit(table, 1, rows([2, 3], "new"))
    early = stream.available()
    assert ids(early) == ([2, 3] if consistency == "eventual" else [])
    assert {row["v"] for row in content(table).values()} == {"x"}
    write_eventually(table, 1, rows([2, 3], "new"))
    found += early + stream.available()
    assert fold(found) == content(table)
    assert ids(query(table).available()) == [1, 2, 3]


@broker
def test_rows_without_a_key_are_seen_with_their_snapshot_only(new_table: NewTable) -> None:
    """FL-106, FL-189: a reader that counts them must not count one twice."""
    table = new_table(key=(), bucket="2", **{"bucket-key": "id"})
    write_eventually(table, 0, without_kinds(rows([1, 2])))
    stream = Query(table_home(table), table.name, with_kinds=False)
    found = stream.available()
    write_without_commit(table, 1, without_kinds(rows([2, 3])))
    assert stream.available() == []
    write_eventually(table, 1, without_kinds(rows([2, 3])))
    assert ids(found + stream.available()) == [1, 2, 2, 3]
    with pytest.raises(InvalidInputError, match=r"log\.consistency"):
        new_table(key=(), log_consistency="eventual", **{"bucket-key": "id"})


@broker
@pytest.mark.parametrize("consistency", ["eventual", "transactional"])
def test_a_stream_is_right_after_commits_of_others_in_between(new_table: NewTable, consistency: str) -> None:
    """FL-58, FL-108: the log's rows are newer than the foreign commit, and come again after it."""
    table = new_table(log_consistency=consistency)
    write_eventually(table, 0, rows([1, 2]))
    stream = query(table, read_stream_maxRowsPerTrigger="2")
    found = stream.available()
    write_without_commit(table, 1, rows([1, 3], "log"))
    found += stream.available()
    assert (fold(found)[(1,)]["v"] == "log") == (consistency == "eventual")
    Table(table.files.with_options({"log.system": "none"})).write(rows([1, 2, 3], "foreign"))
    as_foreign(table)
    stream.start()
    found += stream.available()
    write_eventually(table, 1, rows([1, 3], "log"))
    found += stream.available()
    assert fold(found) == content(table)
    assert {row["v"] for row in content(table).values()} == {"log", "foreign"}


@broker
def test_latest_of_an_eventual_table_is_the_end_of_its_log(new_table: NewTable) -> None:
    """FL-58, FL-73: what could be seen before the query started does not come."""
    table = new_table(log_consistency="eventual")
    write_without_commit(table, 0, rows([1]))
    stream = query(table, log_scan="latest")
    assert stream.available() == []
    write_eventually(table, 0, rows([1]))
    write_without_commit(table, 1, rows([2]))
    assert ids(stream.available()) == [2]


# ---- log.changelog-mode


@broker
def test_a_log_of_all_changes_has_updates_in_pairs(new_table: NewTable) -> None:
    """FL-62, FL-132, FL-133: as they were written, with the old row; nothing has to be looked up."""
    table = new_table(log_changelog__mode="all")
    table.write(rows([1, 2], "a"))
    stream = query(table)
    assert [row["_row_kind"] for row in stream.available()] == ["+I", "+I"]
    table.write(
        pa.concat_tables(
            [rows([1], "a", "-U"), rows([1], "b", "+U"), rows([2], "a", "-D"), rows([3], "c"), rows([3], "c", "-D")]
        )
    )
    wanted = [(1, "a", "-U"), (1, "b", "+U"), (2, "a", "-D"), (3, "c", "+I"), (3, "c", "-D")]
    assert shown(stream.available()) == wanted
    assert fold(query(table).available()) == content(table)


@pytest.mark.sweep
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("xy"), st.booleans()), max_size=30))
def test_neighbours_of_one_key_are_a_pair(changes: list[tuple[int, str, bool]]) -> None:
    """FL-62: a retract directly before an add of its key, and nothing else."""
    keys = [pa.array([each[0] for each in changes], pa.int64()), pa.array([each[1] for each in changes], pa.string())]
    kinds = np.array([RowKind.INSERT if each[2] else RowKind.DELETE for each in changes], np.int8)
    wanted = [RowKind(int(kind)).symbol for kind in kinds]
    for number in range(len(changes) - 1):
        (key, other, is_add), (next_key, next_other, next_is_add) = changes[number : number + 2]
        if (key, other) == (next_key, next_other) and not is_add and next_is_add:
            wanted[number : number + 2] = ["-U", "+U"]
    assert [RowKind(kind).symbol for kind in paired_kinds(keys, kinds).to_pylist()] == wanted


# ---- log.format


@broker
@pytest.mark.parametrize("log_format", ["json", "avro"])
def test_a_delete_in_a_log_of_plain_rows_has_its_key_only(new_table: NewTable, log_format: str) -> None:
    """FL-64, FL-136: so other columns are nullable, and a filter on the key sees it."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string(), nullable=False)])
    table = new_table(schema=schema, log_format=log_format)
    table.write(rows([1, 2], "a"))
    stream = query(table, filter="id < 2", columns="v,id")
    names = {field.name: field.nullable for field in FluvialDataSource(dict(stream.options)).schema()}
    assert names == {"v": True, "id": False, "_row_kind": False}
    assert shown(stream.available()) == [("a", 1, "+I")]
    table.write(rows([1, 2], "a", "-D"))
    table.write(rows([1, 3], "b"))
    assert shown(stream.available()) == [(None, 1, "-D"), ("b", 1, "+I")]


# ---- what is not tracked, and what is overwritten


@broker
@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("key", [("id",), ()])
def test_commits_that_are_not_tracked_are_passed_over(new_table: NewTable, log: bool, key: tuple[str, ...]) -> None:
    """FL-34: re-processing of old data does not reach streams; what comes later does."""
    table = new_table(log=log, key=key)
    news = rows if key else lambda *parts: without_kinds(rows(*parts))
    table.write(news([1]))
    stream = query(table)
    assert ids(stream.available()) == [1]
    table.write(news([2]), options={"change-tracking": "false"})
    table.overwrite(without_kinds(rows([3])), options={"change-tracking": "false"})
    table.write(news([4]))
    assert ids(stream.available()) == [4]
    assert ids(query(table).available()) == [3, 4]


@broker
@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("key", [("id",), ()])
def test_overwrites_are_seen_or_passed_over(new_table: NewTable, log: bool, key: tuple[str, ...]) -> None:
    """FL-33: an exact difference, unless the table or reader does not want it."""
    table = new_table(log=log, key=key)
    news = rows if key else lambda *parts: without_kinds(rows(*parts))
    table.write(news([1, 2]))
    option = "streaming__read__overwrite" if key else "streaming__read__append__overwrite"
    seeing, passing = query(table), query(table, **{option: "false"})
    assert ids(seeing.available()) == ids(passing.available()) == [1, 2]
    table.overwrite(without_kinds(rows([2, 3])))
    table.write(news([4]))
    changes = sorted((row["id"], row["_row_kind"]) for row in seeing.available())
    if key:
        assert changes == [(1, "-D"), (3, "+I"), (4, "+I")]
    else:
        assert [change for change in changes if change[0] != 2] == [(1, "-D"), (3, "+I"), (4, "+I")]
    assert [(row["id"], row["_row_kind"]) for row in passing.available()] == [(4, "+I")]


# ---- streaming-read-mode


@broker
@pytest.mark.parametrize("mode", [None, "log", "file"])
def test_where_changes_are_read(new_table: NewTable, mode: str | None) -> None:
    """FL-25, FL-109: the log unless the reader wants files; the same rows either way."""
    table = new_table()
    table.write(rows([1, 2]))
    stream = query(
        table, read_metadata__columns="_log_offset", **({} if mode is None else {"streaming-read-mode": mode})
    )
    stream.available()
    table.write(rows([3], "new"))
    table.write(rows([1], "x", "-D"))
    found = stream.available()
    assert [(row["id"], row["_row_kind"]) for row in found] == [(3, "+I"), (1, "-D")]
    assert all((row["_log_offset"] is None) == (mode == "file") for row in found)


@broker
def test_a_log_is_needed_to_read_one(new_table: NewTable) -> None:
    """FL-24."""
    with pytest.raises(InvalidInputError, match=r"the table has no log: .* fix=remove it, or set log.system"):
        query(new_table(log=False), streaming__read__mode="log")


MERGING: dict[str, dict[str, str]] = {
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    "sequence": {"sequence.field": "n"},
    "ignore-delete": {"ignore-delete": "true"},
    "first-row": {"merge-engine": "first-row"},
}


@pytest.mark.sampled(4)
@broker
@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("engine", MERGING)
def test_a_stream_of_merged_rows_is_the_table_at_each_commit(new_table: NewTable, engine: str, log: bool) -> None:
    """FL-24, FL-137, FL-138: their log holds inputs of the merge, so changes come from files."""
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("s", pa.string())])
    table = new_table(schema=schema, log=log, **MERGING[engine])
    if log:
        with pytest.raises(InvalidInputError, match=r"unmerged changes.* fix=set streaming-read-mode=file"):
            query(table, streaming__read__mode="log")
    stream = query(table)
    found: list[dict[str, Any]] = []
    for step, (key, n, s) in enumerate([(1, 5, "a"), (2, 1, None), (1, 3, "b"), (1, 7, None), (2, None, "c")]):
        table.write(pa.table({"id": [key], "n": [n], "s": [s]}, schema=schema))
        if step == 3:
            table.compact(full=True)
        found += stream.available()
        table.compact(full=True)
        assert fold(found) == content(table)
    if engine == "partial-update":
        assert content(table)[(1,)] == {"id": 1, "n": 7, "s": "b"}
    late = query(table)
    assert fold(late.available()) == content(table)


@broker
@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_changes_come_with_the_compaction_that_tells_them(new_table: NewTable, producer: str) -> None:
    """FL-57, FL-135: with exact kinds, once; a stream that begins in between gets the rest.

    A commit alone tells a reader of files nothing, where another job compacts. Streams that read a log do not wait.
    """
    options = {"changelog__producer": producer, "write__only": "true"}
    table, logged = (new_table(log=log, **options) for log in (False, True))
    for each in (table, logged):
        each.write(rows([1, 2], "a"))
    stream = query(table)
    assert stream.available() == []
    table.compact(full=True)
    assert kinds_of(stream.available()) == [("+I", 1, "a"), ("+I", 2, "a")]
    table.write(rows([1, 3], "b"))
    table.write(rows([2], "a", "-D"))
    assert stream.available() == []
    late = query(table)
    assert kinds_of(late.available()) == [("+I", 1, "a"), ("+I", 2, "a")]
    table.compact(full=True)
    reported = [("-U", 1, "a"), ("+U", 1, "b"), ("-D", 2, "a"), ("+I", 3, "b")]
    assert kinds_of(stream.available()) == kinds_of(late.available()) == reported
    table.compact(full=True)
    assert stream.available() == []
    assert fold(query(table).available()) == content(table)
    from_log = query(logged)
    assert len(from_log.available()) == 2
    logged.write(rows([1], "b"))
    assert ids(from_log.available()) == [1], "what another commit of the table added, at once as ever"


@broker
def test_an_overwrite_is_told_of_the_rows_that_were(new_table: NewTable) -> None:
    """FL-139: streaming-read-overwrite with a changelog of compactions, which tell the new rows if they are behind."""
    options = {"changelog__producer": "lookup", "overwrite__upgrade": "false", "write__only": "true"}
    table = new_table(log=False, **options)
    table.write(rows([1, 2], "a"))
    table.compact(full=True)
    stream = query(table, streaming__read__overwrite="true")
    assert len(stream.available()) == 2
    table.overwrite(without_kinds(rows([2, 3], "c")))
    assert kinds_of(stream.available()) == [("-D", 1, "a"), ("-D", 2, "a")]
    table.compact(full=True)
    assert kinds_of(stream.available()) == [("+I", 2, "c"), ("+I", 3, "c")]


@broker
def test_an_overwrite_on_the_top_level_is_told_at_once(new_table: NewTable) -> None:
    """FL-139: its rows are known where compactions would tell them; a compaction afterwards tells nothing."""
    table = new_table(log=False, changelog__producer="lookup")
    table.write(rows([1, 2], "a"))
    table.compact(full=True)
    stream = query(table, streaming__read__overwrite="true")
    assert len(stream.available()) == 2
    table.overwrite(without_kinds(rows([2, 3], "c")))
    reported = [("-D", 1, "a"), ("-U", 2, "a"), ("+U", 2, "c"), ("+I", 3, "c")]
    assert kinds_of(stream.available()) == reported
    table.compact(full=True)
    table.write(rows([3], "d"))
    table.compact(full=True)
    assert kinds_of(stream.available()) == [("-U", 3, "c"), ("+U", 3, "d")]


def kinds_of(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["_row_kind"], row["id"], row["v"]) for row in found]


# ---- append tables, columns, filters


@broker
@pytest.mark.parametrize("log", [True, False])
def test_an_append_table_needs_no_kinds(new_table: NewTable, log: bool) -> None:
    """FL-60: every row once."""
    table = new_table(key=(), log=log, bucket="2" if log else "-1", **({"bucket-key": "id"} if log else {}))
    table.write(without_kinds(rows([1, 1, 2])))
    stream = Query(table_home(table), table.name, with_kinds=False)
    assert [list(row) for row in stream.available()] == [["id", "v"]] * 3
    table.write(without_kinds(rows([2, 3])))
    assert ids(stream.available()) == [2, 3]
    table.overwrite(without_kinds(rows([9])))
    with pytest.raises(InvalidInputError, match=r"a row was retracted.* fix=set read.changelog=true"):
        stream.available()


def table_home(table: Table) -> str:
    return query(table).options["warehouse"]


@broker
def test_a_table_with_a_key_needs_kinds(new_table: NewTable) -> None:
    """FL-24."""
    table = new_table()
    with pytest.raises(InvalidInputError, match=r"needs their kinds: .* fix=set read.changelog=true"):
        Query(table_home(table), table.name, with_kinds=False)


@broker
def test_columns_and_metadata(new_table: NewTable) -> None:
    """FL-24: chosen columns in their order; where each row came from."""
    table = new_table()
    table.write(rows([1], "a"))
    stream = query(table, columns="v", read_metadata__columns="_snapshot_id,_log_offset,_log_timestamp")
    assert shown(stream.available()) == [("a", "+I", 1, None, None)]
    table.write(rows([2], "b"))
    [(v, kind, snapshot, offset, timestamp)] = shown(stream.available())
    assert (v, kind, snapshot) == ("b", "+I", None)
    assert offset >= table.store.snapshots.read(1).log_offsets[0]
    assert timestamp is not None
    table.overwrite(without_kinds(rows([1], "z")))
    assert {row["_snapshot_id"] for row in stream.available()} == {3}
    with pytest.raises(InvalidInputError, match="_log_offest"):
        query(table, read_metadata__columns="_log_offest")
    with pytest.raises(InvalidInputError, match="nothing"):
        query(table, columns="nothing")


@broker
@pytest.mark.parametrize("mode", ["log", "file"])
def test_keys_and_values_can_be_filtered(new_table: NewTable, mode: str) -> None:
    """FL-24: of the snapshot, the log and files alike; a row that leaves a filter on values is deleted."""
    table = new_table(bucket="2")
    table.write(rows([1, 2, 3, 4]))
    stream = query(table, filter="id >= 3", columns="v", streaming__read__mode=mode)
    assert len(stream.available()) == 2
    table.write(rows([1, 5]))
    table.write(rows([2, 3], "x", "-D"))
    table.overwrite(without_kinds(rows([1, 4], "y")))
    assert [row["_row_kind"] for row in stream.available()].count("-D") == 2
    of_values = query(table, filter="v <> 'y'", streaming__read__mode=mode)
    assert of_values.available() == []
    table.write(pa.concat_tables([rows([1, 7], "x"), rows([8], "y")]))
    table.write(pa.concat_tables([rows([1], "z"), rows([7, 8], "y")]))
    shown = [(row["_row_kind"], row["id"], row["v"]) for row in of_values.available()]
    assert sorted(shown) == sorted([("+I", 1, "x"), ("+I", 7, "x"), ("-U", 1, "x"), ("+U", 1, "z"), ("-D", 7, "x")])


@broker
def test_a_filter_on_values_needs_what_a_change_replaces(new_table: NewTable) -> None:
    table = new_table(log_changelog__mode="all")
    with pytest.raises(InvalidInputError, match=r"column=v key=id .*fix=set streaming-read-mode=file"):
        query(table, filter="v = 'x'")
    table.write(rows([1]))
    assert len(query(table, filter="v = 'x'", streaming__read__mode="file").available()) == 1
    with pytest.raises(InvalidInputError, match=r"column=v key=id log.scan.remove-normalize=true"):
        query(new_table(), filter="v = 'x'", log_scan_remove__normalize="true")


@broker
def test_an_append_table_can_be_filtered_by_every_column(new_table: NewTable) -> None:
    """FL-24."""
    table = new_table(key=(), log=False)
    table.write(without_kinds(pa.concat_tables([rows([1], "a"), rows([2], "b")])))
    assert ids(query(table, filter="v = 'b'").available()) == [2]


# ---- a schema that changes


@broker
def test_a_schema_with_the_same_columns_is_looked_at_once(new_table: NewTable) -> None:
    """A stream that waits lists the versions, and reads none."""
    table = new_table(log=False)
    table.write(rows([1]))
    stream = query(table)
    body = json.loads(Path(table.store.paths.schema(0)).read_text())
    newest = Path(table.store.paths.schema(1))
    newest.write_text(json.dumps({**body, "id": 1, "comment": "altered"}))
    assert ids(stream.available()) == [1]
    newest.write_text("not to be read again")
    assert stream.available() == []
