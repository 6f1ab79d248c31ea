"""Union reads: files merged with the tail of the log, against a plain dict."""

import pickle
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import Table
from engine.broker.broker import Broker
from engine.read.batch_read import BatchRead
from engine.read.read_state import StateSource
from engine.write.batch_writer import BatchWriter
from logstore.kafka.topics import LogTopics
from logstore.offsets import LogOffsets
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.log_formats import FormatOptions
from tests.support.logs import ends_with_markers, write_batch, write_without_commit
from tests.support.option_keys import dotted
from tests.support.streams import as_foreign, expire
from tests.support.tails import (
    Change,
    adopt,
    by_key,
    changes,
    folded,
    forget_after,
    lose_log_before,
    write_aborted,
    write_log_only,
)
from tests.support.warehouses import new_table

pytestmark = pytest.mark.broker

UNION = {"scan.log.union": "true"}


def union(table: Table, **more: str) -> BatchRead:
    return table.read(options={**UNION, **{key.replace("_", "."): value for key, value in more.items()}})


def adds(ids: range | list[int], v: str = "tail") -> list[Change]:
    return [("+I", key, v) for key in ids]


FILES = range(100, 110)


@pytest.mark.parametrize(
    ("files", "tail"),
    [
        (adds(FILES, "file"), adds(range(200, 205))),  # fluss#3626: all keys of the tail above
        (adds(FILES, "file"), adds(range(5))),
        (adds(FILES, "file"), adds([99, 100, 104, 109, 110])),
        ([], adds(FILES)),
        (adds(FILES, "file"), [("-D", key, "file") for key in FILES]),
        (adds(FILES, "file"), [("-D", key, "never there") for key in (1, 105, 200)]),
        ([], [("-D", 1, None)]),
        (adds(FILES, "file"), [("-D", 105, "x"), ("+I", 105, "again"), ("+U", 106, "a"), ("+U", 106, "b")]),
        (adds(FILES, "file"), []),
    ],
    ids=["above", "below", "around", "no files", "all deleted", "unknown deleted", "only a delete", "order", "no tail"],
)
@pytest.mark.parametrize("log_format", ["debezium-json", "json"])
def test_no_row_of_either_side_is_lost(
    broker: Broker, tmp_path: Path, files: list[Change], tail: list[Change], log_format: str
) -> None:
    """Idea 4: also where all keys of the log are above those of the files (fluss#3626)."""
    table = new_table(tmp_path, broker=broker, options={"log.format": log_format})
    if files:
        table.write(changes(files))
    if tail:
        write_log_only(table, changes(tail))
    read = union(table)
    assert by_key(read.to_arrow()) == folded([*files, *tail])
    assert by_key(table.read().to_arrow()) == folded(files)
    assert (read.served.source, read.served.staleness_ms) == (StateSource.SNAPSHOT_AND_LOG, 0)
    assert any(piece.log_range for piece in read.plan().pieces) == bool(tail)


@pytest.mark.parametrize("log_format", ["debezium-avro", "avro"])
def test_a_tail_in_avro_is_merged_as_one_in_json(
    broker: Broker, tmp_path: Path, log_format: str, format_options: FormatOptions
) -> None:
    """FL-125, FL-126."""
    tail: list[Change] = [
        *adds([99, 109, 110]),
        ("-D", 105, "x"),
        ("+I", 105, "again"),
        ("+U", 106, "b"),
        ("-D", 1, None),
    ]
    table = new_table(tmp_path, broker=broker, options=format_options(log_format))
    table.write(changes(adds(FILES, "file")))
    write_log_only(table, changes(tail))
    assert by_key(union(table).to_arrow()) == folded([*adds(FILES, "file"), *tail])


def test_rows_that_are_too_old_are_read_from_neither_side(broker: Broker, tmp_path: Path) -> None:
    """Options record-level.*: a row of the log that is too old also hides the one below it."""
    schema = pa.schema([("id", pa.int64()), ("t", pa.int64())])
    options = {"record-level.expire-time": "1 d", "record-level.time-field": "t"}
    table = new_table(tmp_path, schema, broker=broker, options=options)
    now, old = int(time.time()), 1_000_000_000
    table.write(pa.table({"id": [1, 2, 3], "t": [now, old, now]}, schema=schema))
    write_log_only(table, pa.table({"id": [3, 4, 5], "t": [old, old, now], "_row_kind": ["+U", "+I", "+I"]}))
    assert union(table).to_arrow().column("id").to_pylist() == [1, 5]
    assert union(table).to_arrow(columns=["id"], filter="id > 1").to_pydict() == {"id": [5]}
    assert table.read().to_arrow().column("id").to_pylist() == [1, 3]


kinds = st.sampled_from(["+I", "+U", "+U", "-D"])
batches = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "commit", "compact", "compact fully", "abort", "adopt"]),
        st.lists(st.tuples(kinds, st.integers(0, 12)), min_size=1, max_size=8),
    ),
    min_size=2,
    max_size=7,
)


KINDS_OF_TABLE = st.sampled_from(
    [{}, {"log.changelog-mode": "all"}, {"deletion-vectors.enabled": "true"}, {"changelog-producer": "lookup"}]
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=batches, tail=st.lists(st.tuples(kinds, st.integers(0, 12)), max_size=8), options=KINDS_OF_TABLE)
def test_any_snapshot_folded_with_the_log_behind_it_is_the_table_at_the_end(
    broker: Broker,
    history: list[tuple[str, list[tuple[str, int]]]],
    tail: list[tuple[str, int]],
    options: Mapping[str, str],
) -> None:
    """Idea 4, the law of the hybrid table: for every snapshot S, S and log[S.offsets, end) are the table at end.

    With deletes, two partitions in each log bucket, aborted transactions, compactions, delete marks, rows that files
    alone do not show yet, and batches of dead writers.
    """
    schema = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("v", pa.string())])

    def rows(batch: list[tuple[str, int]], number: int) -> tuple[list[Change], pa.Table]:
        made: list[Change] = []
        for place, (kind, key) in enumerate(batch):
            if kind == "+U" and "log.changelog-mode" in options:
                made.append(("-U", key, None))
            made.append((kind, key, f"{number}.{place}"))
        return made, changes(made).append_column("dt", pa.array([f"d{key % 2}" for _, key, _ in made]))

    with tempfile.TemporaryDirectory() as root:
        table = new_table(
            root, schema, broker=broker, key=["dt", "id"], partition_by=["dt"], options={"bucket": "2", **options}
        )
        state: dict[int, str | None] = {}
        for number, (deed, batch) in enumerate(history):
            made, written = rows(batch, number)
            if deed == "abort":
                write_aborted(table, written)
                continue
            if deed == "adopt":
                write_log_only(table, written)
                state = folded(made, state)
                made, written = rows(batch, 100 + number)
                adopt(table, written)
            else:
                table.write(written)
            state = folded(made, state)
            if deed.startswith("compact"):
                table.compact(full=deed == "compact fully")
        if tail:
            made, written = rows(tail, 999)
            write_log_only(table, written)
            state = folded(made, state)
        for snapshot_id in reversed([0, *table.store.snapshots.ids()]):
            forget_after(table, snapshot_id)
            read = union(table)
            assert by_key(read.to_arrow()) == state, f"snapshot={snapshot_id}"
            assert read.served.snapshot_id == (snapshot_id or None)
            even = read.to_arrow(columns=["v", "id"], filter="dt = 'd0' and v is not null")
            assert by_key(even) == {key: v for key, v in state.items() if key % 2 == 0}
            one = read.to_arrow(filter="dt = 'd1' and id = 5")
            assert by_key(one) == {key: v for key, v in state.items() if key == 5}


def test_buckets_without_a_tail_are_read_as_ever_and_one_task_reads_the_tail_of_a_bucket(
    broker: Broker, tmp_path: Path
) -> None:
    table = new_table(tmp_path, broker=broker, options={"bucket": "4"})
    table.write(changes(adds(range(100), "file")))
    table.compact(full=True)
    plain = table.read().plan().splits
    write_log_only(table, changes(adds([1])))
    pieces = union(table).plan().pieces
    tails = [piece for piece in pieces if piece.log_range]
    others = [piece.own_split for piece in pieces if piece.own_split]
    assert len(tails) == 1
    assert tails[0].log_range is not None
    assert others == [split for split in plain if split.bucket != tails[0].log_range.bucket]
    assert all(split.raw_convertible for split in others)
    assert pickle.loads(pickle.dumps(tails[0])) == tails[0]
    assert not [piece for piece in union(table).plan("id = 2 or id = 3").pieces if piece.log_range]


def test_a_large_tail_goes_through_temporary_files_that_do_not_stay(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    table = new_table(tmp_path, broker=broker)
    table.write(changes(adds(range(0, 2000, 2), "file")))
    write_log_only(table, changes([*adds(range(1000)), *adds(range(500, 1500), "newer")]))
    wanted = {**dict.fromkeys(range(0, 2000, 2), "file"), **dict.fromkeys(range(1000), "tail")}
    wanted |= dict.fromkeys(range(500, 1500), "newer")
    small = Table(table.files.with_options({"write-buffer-size": "4 kb"})).read(options=UNION)
    assert by_key(small.to_arrow()) == wanted
    reading = small.to_batches()
    next(reading)
    assert len(list(scratch.rglob("*.parquet"))) >= 1
    reading.close()
    assert list(scratch.iterdir()) == []


def test_the_filter_sees_merged_rows_only(broker: Broker, tmp_path: Path) -> None:
    """A file without a matching row may hold the newer version of a row of the tail, or a part of it."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("seq", pa.int64())])
    table = new_table(tmp_path, schema, broker=broker, options={"sequence.field": "seq"})
    table.write(pa.table({"id": [1, 2], "v": ["file", "file"], "seq": [10, 10]}))
    table.compact(full=True)
    late = pa.table({"id": [1, 2, 3], "v": ["tail", "tail", "tail"], "seq": [5, 20, 1]})
    write_log_only(table, late)
    assert by_key(union(table).to_arrow(columns=["id", "v"])) == {1: "file", 2: "tail", 3: "tail"}
    assert by_key(union(table).to_arrow(columns=["id", "v"], filter="v = 'tail'")) == {2: "tail", 3: "tail"}
    assert by_key(union(table).to_arrow(columns=["id", "v"], filter="v = 'file'")) == {1: "file"}


@pytest.mark.parametrize(
    ("engine", "more", "wanted"),
    [
        ("first-row", {}, {1: ("file", 1), 2: ("tail", 7)}),
        ("partial-update", {}, {1: ("file", 7), 2: ("tail", 7)}),
        (
            "aggregation",
            {"fields.n.aggregate-function": "sum", "log.changelog-mode": "all"},
            {1: ("file", 8), 2: ("tail", 7)},
        ),
    ],
)
def test_every_merge_engine_folds_the_tail_as_it_folds_files(
    broker: Broker, tmp_path: Path, engine: str, more: dict[str, str], wanted: dict[int, tuple[str, int]]
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int64())])
    table = new_table(tmp_path, schema, broker=broker, options={"merge-engine": engine, **more})
    table.write(pa.table({"id": [1], "v": ["file"], "n": [1]}))
    write_log_only(table, pa.table({"id": [1, 2], "v": [None, "tail"], "n": [7, 7]}))
    rows = union(table).to_arrow().to_pylist()
    assert {row["id"]: (row["v"], row["n"]) for row in rows} == wanted


@pytest.mark.parametrize("options", [{"merge-engine": "first-row"}, {"deletion-vectors.enabled": "true"}])
def test_rows_that_wait_for_a_compaction_are_read_with_the_log(
    broker: Broker, tmp_path: Path, options: dict[str, str]
) -> None:
    """Idea 4: files alone leave level 0 out; with the log every bucket is read to its end, one without a tail too."""
    table = new_table(tmp_path, broker=broker, options={"bucket": "2", "write-only": "true", **options})
    table.write(changes(adds(range(20), "file")))
    assert table.read().to_arrow().num_rows == 0
    everything = dict.fromkeys(range(20), "file")
    assert by_key(union(table).to_arrow()) == everything
    write_log_only(table, changes(adds([50])))
    assert by_key(union(table).to_arrow()) == {**everything, 50: "tail"}
    fresh = table.read(options={"scan.max-staleness": "1 h"})
    assert (by_key(fresh.to_arrow()), fresh.served.staleness_ms) == ({**everything, 50: "tail"}, 0)
    assert by_key(union(table).to_arrow(filter="id = 50 or id = 3")) == {3: "file", 50: "tail"}


def test_a_table_without_a_key_is_its_files_and_the_rows_behind_them(broker: Broker, tmp_path: Path) -> None:
    table = new_table(tmp_path, broker=broker, key=[], options={"bucket-key": "id"})
    table.write(pa.table({"id": [1, 2], "v": ["a", "b"]}))
    write_log_only(table, pa.table({"id": [2, 3], "v": ["b", None]}))
    assert sorted(union(table).to_arrow()["id"].to_pylist()) == [1, 2, 2, 3]
    assert union(table).to_arrow(filter="id > 2")["id"].to_pylist() == [3]


def test_a_delete_in_a_json_log_needs_no_values(broker: Broker, tmp_path: Path) -> None:
    """FL-121: such a record has its key only, also where columns are NOT NULL."""
    schema = pa.schema([("id", pa.int64()), pa.field("v", pa.string(), nullable=False)])
    table = new_table(tmp_path, schema, broker=broker, options={"log.format": "json"})
    table.write(pa.table({"id": [1, 2], "v": ["a", "b"]}))
    write_log_only(table, pa.table({"id": [1], "v": ["a"], "_row_kind": ["-D"]}))
    assert by_key(union(table).to_arrow()) == {2: "b"}


def test_tables_whose_log_cannot_be_folded_say_so(broker: Broker, tmp_path: Path) -> None:
    def refused(said: str, **options: str) -> None:
        given = dotted(options)
        schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
        table = new_table(tmp_path, schema, broker=broker, options=given)
        with pytest.raises(InvalidInputError, match=said):
            union(table)

    refused("deletes have no values", sequence_field="n", log_format="json")
    refused(r"-U\) are not in the log", merge__engine="aggregation", fields_n_aggregate__function="sum")
    refused("the table has no log", log_system="none")


def test_the_end_can_be_given_as_offsets(broker: Broker, tmp_path: Path) -> None:
    """Idea 4: the base is the newest snapshot that is not behind them; what lies past them is not there yet."""
    table = new_table(tmp_path, broker=broker)
    table.write(changes(adds([1], "first")))
    table.write(changes(adds([2, 3, 4], "second")))
    first, second = (table.store.snapshots.read(each).log_offsets[0] for each in (1, 2))
    assert first == 1

    def until(offset: int) -> BatchRead:
        return union(table, scan_log_offsets=f'{{"0": {offset}}}')

    assert by_key(until(first).to_arrow()) == {1: "first"}
    assert until(second).served.snapshot_id == 2
    middle = until(second - 1)
    assert by_key(middle.to_arrow()) == {1: "first", 2: "second", 3: "second"}
    assert (middle.served.snapshot_id, middle.served.log_offsets) == (1, {0: second - 1})
    assert by_key(until(0).to_arrow()) == {}
    Path(table.store.paths.snapshot(1)).unlink()
    with pytest.raises(InvalidInputError, match="no snapshot is as old"):
        until(second - 1)
    with pytest.raises(InvalidInputError, match="no such bucket"):
        table.read(options={**UNION, "scan.log.offsets": '{"7": 1}'})


def test_a_commit_of_another_engine_under_the_tail_is_kept(broker: Broker, tmp_path: Path) -> None:
    """FL-29: it carries no offsets; the log goes on where the last snapshot with offsets has it."""
    table = new_table(tmp_path, broker=broker)
    table.write(changes(adds([1, 2], "ours")))
    table.write(changes(adds([2, 3], "theirs")), options={"change-tracking": "false"})
    as_foreign(table)
    write_log_only(table, changes(adds([3, 4])))
    assert by_key(union(table).to_arrow()) == {1: "ours", 2: "theirs", 3: "tail", 4: "tail"}
    Path(table.store.paths.snapshot(1)).unlink()
    with pytest.raises(CorruptDataError, match="where the log continues is not known"):
        union(table)


def test_a_table_that_was_only_overwritten_is_read_with_its_empty_log(broker: Broker, tmp_path: Path) -> None:
    """No snapshot that is left has offsets, and none ever had: nothing was written to the log."""
    table = new_table(tmp_path, broker=broker)
    for key in (1, 2, 3):
        table.overwrite(changes(adds([key], "file")).drop_columns("_row_kind"))
    expire(table, 1, 2)
    assert by_key(union(table).to_arrow()) == {3: "file"}
    now = table.store.clock.now_ms()
    assert by_key(table.read(timestamp=now, options=UNION).to_arrow()) == {3: "file"}
    table.write(changes(adds([4])))
    assert by_key(union(table).to_arrow()) == {3: "file", 4: "tail"}


def test_lost_records_fail_the_read_unless_files_alone_are_allowed(broker: Broker, tmp_path: Path) -> None:
    table = new_table(tmp_path, broker=broker)
    table.write(changes(adds([1], "file")))
    write_log_only(table, changes(adds([2, 3])))
    lose_log_before(table, {0: 3})  # the last row is left
    with pytest.raises(CorruptDataError, match=r"bucket=0 wanted_offset=1 earliest_offset=3.*on-offset-lost"):
        union(table)
    read = table.read(options={**UNION, "log.on-offset-lost": "resnapshot"})
    assert by_key(read.to_arrow()) == {1: "file"}
    assert read.served.source is StateSource.SNAPSHOT
    assert "are lost" in read.describe()


def test_a_batch_that_retention_removed_before_its_commit_is_as_if_it_was_aborted(
    broker: Broker, tmp_path: Path
) -> None:
    """FL-100: nothing shows that it was there; its query writes it again."""
    table = new_table(tmp_path, broker=broker)
    table.write(changes(adds([1], "file")))
    write_without_commit(table, 0, changes(adds([2, 3])))
    lose_log_before(table, ends_with_markers(table))
    assert by_key(union(table).to_arrow()) == {1: "file"}
    again = changes(adds([2, 3], "again"))
    write_batch(BatchWriter(table.files, table.log, commit_user="eventual"), 0, again)
    assert by_key(union(table).to_arrow()) == {1: "file", 2: "again", 3: "again"}


def test_a_log_that_expired_after_its_snapshot_is_not_missed(broker: Broker, tmp_path: Path) -> None:
    table = new_table(tmp_path, broker=broker)
    table.write(changes(adds([1], "file")))
    lose_log_before(table, ends_with_markers(table))
    assert by_key(union(table).to_arrow()) == {1: "file"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_overwrite_while_a_read_is_planned_is_never_half_seen(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The overwrite is not in the log, what is written after it is: a read that has the one has the other."""
    table = new_table(tmp_path, broker=broker)
    table.write(changes(adds([1, 2], "old")))
    ask = LogTopics.end_offsets

    def meanwhile(topics: LogTopics, name: str, buckets: Iterable[int]) -> LogOffsets:
        monkeypatch.setattr(LogTopics, "end_offsets", ask)
        ends = ask(topics, name, buckets) if when == "after" else None
        table.overwrite(pa.table({"id": [3], "v": ["new"]}))
        table.write(changes(adds([4], "new")))
        return ask(topics, name, buckets) if ends is None else ends

    monkeypatch.setattr(LogTopics, "end_offsets", meanwhile)
    assert by_key(union(table).to_arrow()) == {3: "new", 4: "new"}
