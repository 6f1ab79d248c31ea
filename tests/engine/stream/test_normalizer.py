"""``log.scan.normalize=true``: upserts become a changelog that a consumer can apply without knowing more."""

import decimal
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from engine import Table
from engine.stream.rows import exact_changes
from engine.types.row_changes import RowChanges
from lsm.errors import CorruptDataError, InvalidInputError
from lsm.row_kind import RowKind
from tests.engine.stream.conftest import NewTable
from tests.engine.stream.test_law import abort
from tests.support.streams import Query, Rows, as_foreign, content, expire, query, rows

law = settings(max_examples=300, deadline=None, derandomize=True)
few = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
SYMBOLS = {kind.value: kind.symbol for kind in RowKind}

# ---- exact_changes, a pure function

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("x", pa.float64()), ("y", pa.list_(pa.int64()))])
keys = st.tuples(st.integers(0, 2), st.sampled_from(["p", "q"]))
values = st.tuples(
    st.sampled_from([None, 0.0, -0.0, 1.5, math.nan, math.inf]), st.sampled_from([None, (), (1,), (None,), (1, 2)])
)
ADDS, RETRACTS = ("+I", "+U"), ("-U", "-D")


def same(left: Any, right: Any) -> bool:
    """NaN equals itself; the zeros are two."""
    return repr(left) == repr(right)


def oracle(
    before: Iterable[tuple[Any, Any]], changes: Sequence[tuple[Any, str, Any]], first: int
) -> list[tuple[str, Any, Any, int]]:
    """Change by change, with a dict."""
    state, found = dict(before), []
    for number, (key, kind, value) in enumerate(changes):
        old = state.get(key)
        if kind in ADDS:
            state[key] = value
            if old is None:
                found.append(("+I", key, value, number))
            elif not same(old, value):
                found += [("-U", key, old, number), ("+U", key, value, number)]
        elif old is not None:
            del state[key]
            found.append(("-D", key, old, number))
    return [change for change in found if change[3] >= first]


def columns(pairs: Sequence[tuple[Any, Any]]) -> pa.RecordBatch:
    found = [
        {"a": key[0], "b": key[1], "x": value[0], "y": None if value[1] is None else list(value[1])}
        for key, value in pairs
    ]
    return pa.RecordBatch.from_pylist(found, schema=SCHEMA)


@pytest.mark.sweep
@law
@given(
    st.dictionaries(keys, values),
    st.lists(st.tuples(keys, st.sampled_from([*ADDS, *RETRACTS]), values), min_size=1, max_size=25),
    st.data(),
)
def test_every_change_gets_its_kind_and_what_it_replaces(
    before: dict[Any, Any], changes: list[tuple[Any, str, Any]], data: st.DataObject
) -> None:
    """FL-61, FL-129, FL-131: against a dict that holds every row; repeats, unknown deletes and a prefix included."""
    first = data.draw(st.integers(0, len(changes)))
    numbers = {kind.symbol: kind.value for kind in RowKind}
    offsets = np.cumsum(data.draw(st.lists(st.integers(1, 3), min_size=len(changes), max_size=len(changes))))
    batches = list(
        exact_changes(
            pa.Table.from_batches([columns(list(before.items()))], schema=SCHEMA),
            RowChanges(
                rows=columns([(key, value) for key, _, value in changes]),
                kinds=pa.array([numbers[kind] for _, kind, _ in changes], pa.int8()),
                offsets=pa.array(offsets),
            ),
            key_names=["a", "b"],
            first_offset=int(offsets[first]) if first < len(changes) else int(offsets[-1]) + 1,
            columns=SCHEMA.names,
            compared=SCHEMA.names,
        )
    )
    found = [
        (SYMBOLS[kind], tuple(row.values()), offset)
        for each in batches
        for row, kind, offset in zip(
            each.rows.to_pylist(), each.kinds.to_pylist(), (each.offsets or pa.array([])).to_pylist(), strict=True
        )
    ]
    wanted = [
        (kind, (*key, value[0], None if value[1] is None else list(value[1])), int(offsets[number]))
        for kind, key, value, number in oracle(before.items(), changes, first)
    ]
    assert repr(found) == repr(wanted)
    assert all(len(each.rows) for each in batches)


def test_columns_that_are_not_asked_for_make_no_difference() -> None:
    """A change of them only is no change; keys need not be among them."""
    known = pa.Table.from_pylist([{"a": 1, "b": "p", "x": 1.0, "y": None}], schema=SCHEMA)
    news = columns([((1, "p"), (1.0, (9,))), ((1, "p"), (2.0, (9,)))])
    changes = RowChanges(rows=news, kinds=pa.array([0, 0], pa.int8()), offsets=pa.array([4, 5]))
    [found] = exact_changes(known, changes, key_names=["a", "b"], first_offset=0, columns=["x"], compared=["x"])
    assert found.rows.to_pydict() == {"x": [1.0, 2.0]}
    assert found.kind_texts().to_pylist() == ["-U", "+U"]
    assert found.offsets is not None
    assert found.offsets.to_pylist() == [5, 5]
    [all_of] = exact_changes(known, changes, key_names=["a", "b"], first_offset=0, columns=["x"], compared=["x", "y"])
    assert all_of.rows.to_pydict() == {"x": [1.0, 1.0, 1.0, 2.0]}, "a column may be compared and not shown"
    [one] = exact_changes(known, changes, key_names=["a", "b"], first_offset=0, columns=["x", "y"], compared=["x"])
    assert one.rows.to_pydict() == {"x": [1.0, 2.0], "y": [[9], [9]]}, "and shown and not compared"


# ---- end to end


class Consumer:
    """Applies a changelog and insists that every change fits."""

    def __init__(self, key: Sequence[str] = ("id",)) -> None:
        self.key = key
        self.state: dict[Any, dict[str, Any]] = {}
        self.count = 0

    def apply(self, found: Rows) -> None:
        replaced: Any = None
        for change in found:
            kind = change["_row_kind"]
            row = {name: value for name, value in change.items() if not name.startswith("_")}
            key = tuple(row[name] for name in self.key)
            assert (replaced is not None) == (kind == "+U"), "every -U is followed by its +U"
            match kind:
                case "+I":
                    assert key not in self.state
                    self.state[key] = row
                case "-U":
                    assert same(self.state[key], row)
                    replaced = key
                case "+U":
                    assert key == replaced
                    assert not same(self.state[key], row)
                    self.state[key], replaced = row, None
                case "-D":
                    assert same(self.state.pop(key), row)
        assert replaced is None
        self.count += len(found)

    def follow(self, stream: Query) -> None:
        """All micro-batches, one by one."""
        while (found := stream.batch()) is not None:
            self.apply(found)


WIDE = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("v", pa.int64()), ("w", pa.list_(pa.int64()))])
steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "overwrite", "foreign", "compact", "abort"]),
        st.lists(
            st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 2), st.sampled_from(["+I", "+U", "-D"])),
            min_size=1,
            max_size=10,
        ),
    ),
    min_size=1,
    max_size=6,
)


def run_operation(table: Table, what: str, found: list[tuple[str, int, int, str]]) -> None:
    news = [{"dt": dt, "id": key, "v": v or None, "w": [v], "_row_kind": kind} for dt, key, v, kind in found]
    batch = pa.Table.from_pylist(news, schema=WIDE.append(pa.field("_row_kind", pa.string())))
    match what:
        case "write":
            table.write(batch)
        case "overwrite":
            kept = [row for row in news if row["_row_kind"] in ADDS] or [{**news[0], "_row_kind": "+I"}]
            table.overwrite(pa.Table.from_pylist(kept, schema=WIDE))
        case "foreign":
            Table(table.files.with_options({"log.system": "none"})).write(batch)
            as_foreign(table)
        case "abort":
            abort(table, batch)
        case _:
            table.compact(full=found[0][2] == 0)


@pytest.mark.long
@pytest.mark.broker
@few
@given(steps, st.integers(0, 6), st.integers(1, 7))
def test_a_normalized_stream_is_a_valid_changelog_wherever_it_is_cut(
    new_table: NewTable, history: list[tuple[str, Any]], start: int, limit: int
) -> None:
    """FL-61, FL-71, FL-129, FL-131: full start, then updates; partitions; limits inside the range of a snapshot."""
    table = new_table(schema=WIDE, key=("dt", "id"), partition_by=["dt"], bucket="2")
    stream = query(table, log_scan_normalize="true", read_stream_maxRowsPerTrigger=str(limit))
    consumer = Consumer(("dt", "id"))
    for number, (what, found) in enumerate(history):
        if number >= start:
            consumer.follow(stream)
        run_operation(table, what, found)
    consumer.follow(stream)
    assert consumer.state == content(table, ("dt", "id"))


@pytest.mark.broker
def test_changes_that_only_files_hold_come_between(new_table: NewTable) -> None:
    """FL-109, FL-129: commits of other engines and overwrites, each at its place."""
    table = new_table()
    table.write(rows([1, 2]))
    stream, consumer = query(table, log_scan_normalize="true"), Consumer()
    consumer.follow(stream)
    table.write(rows([2, 3], "new"))
    table.overwrite(rows([3, 4], "over").drop_columns(["_row_kind"]))
    table.write(rows([4, 5], "newer"))
    table.write(rows([3], kind="-D"))
    consumer.follow(stream)
    assert consumer.state == content(table)


@pytest.mark.broker
def test_what_is_written_twice_comes_once(new_table: NewTable) -> None:
    """FL-108, FL-129: a batch that an eventual writer repeats after its death."""
    table = new_table(log_consistency="eventual")
    table.write(rows([1, 2]))
    stream = query(table, log_scan_normalize="true")
    consumer = Consumer()
    consumer.follow(stream)
    assert consumer.count == 2
    log = table.log
    assert log is not None
    value = b'{"before": null, "after": {"id": 7, "v": "seven"}, "op": "c"}'
    for batch in (10, 11):
        with log.writer(0) as writer:
            writer.fence()
            writer.begin(query="q", batch=batch)
            writer.append(pa.array([b'{"id": 7}'] * 2), pa.array([value] * 2))
            writer.commit(b"")
        consumer.follow(stream)
    assert consumer.count == 3
    assert consumer.state[(7,)] == {"id": 7, "v": "seven"}


@pytest.mark.sampled(2)
@pytest.mark.broker
@pytest.mark.parametrize("key_type", [pa.float64(), pa.float32(), pa.decimal128(10, 2), pa.binary(), pa.bool_()])
def test_keys_of_every_kind_are_found(new_table: NewTable, key_type: pa.DataType) -> None:
    """FL-131."""
    found: list[Any] = {"bool": [False, True], "binary": [b"", b"\xff"]}.get(str(key_type), [])
    if not found:
        found = [decimal.Decimal(each) for each in ("0", "1.25", "-3")]
    if pa.types.is_floating(key_type):
        found = [0.0, 1.5, math.nan, math.inf, -math.inf]
    for key in (["k"], ["k", "n"]):
        schema = pa.schema([("k", key_type), ("n", pa.int64()), ("v", pa.string())])
        table = new_table(schema=schema, key=key)

        def batch(
            chosen: list[Any], v: str, kind: str = "+I", schema: pa.Schema = schema, key_type: pa.DataType = key_type
        ) -> pa.Table:
            values = pa.array(chosen).cast(key_type)
            news = [values, pa.array([1] * len(chosen)), pa.array([v] * len(chosen))]
            return pa.table(news, schema=schema).append_column("_row_kind", pa.array([kind] * len(chosen)))

        table.write(batch(found, "old"))
        stream = query(table, log_scan_normalize="true")
        stream.available()
        table.write(batch(found, "new"))
        kinds = [change["_row_kind"] for change in stream.available()]
        assert kinds == ["-U", "+U"] * len(found), key
        for one in found:
            table.write(batch([one], "new", "-D"))
            assert [change["_row_kind"] for change in stream.available()] == ["-D"], (key, one)


@pytest.mark.broker
def test_columns_and_filters_go_along(new_table: NewTable) -> None:
    """FL-129: the key need not be shown; a filter on the key applies to what is looked up, too."""
    table = new_table()
    table.write(rows([1, 2], "a"))
    stream = query(table, log_scan_normalize="true", columns="v", filter="id = 2")
    assert [tuple(row.values()) for row in stream.available()] == [("a", "+I")]
    table.write(rows([1, 2], "b"))
    table.write(rows([1, 2], "b"))
    assert [tuple(row.values()) for row in stream.available()] == [("a", "-U"), ("b", "+U")]


@pytest.mark.broker
def test_the_state_before_is_needed(new_table: NewTable, tmp_path: Path) -> None:
    """FL-131: a stream that paused longer than snapshots are kept says so; see test_loss.py for what it can do."""
    table = new_table()
    table.write(rows([1]))
    stream = query(table, log_scan_normalize="true")
    stream.available()
    table.write(rows([1], "new"))
    table.write(rows([2], "new"))
    expire(table, 1)
    stream.start()
    with pytest.raises(CorruptDataError, match=r"wanted_snapshot=1 .* fix=.*keep log and snapshots longer"):
        stream.available()


@pytest.mark.broker
def test_combinations_without_a_meaning_are_refused(new_table: NewTable) -> None:
    """FL-61, FL-129, FL-132."""
    normal = {"log_scan_normalize": "true"}
    with pytest.raises(InvalidInputError, match=r"nothing to normalize: .*only the upsert log"):
        query(new_table(key=()), **normal)
    with pytest.raises(InvalidInputError, match=r"nothing to normalize: .*only the upsert log"):
        query(new_table(log=False), **normal)
    with pytest.raises(InvalidInputError, match=r"nothing to normalize: .*only the upsert log"):
        query(new_table(), streaming__read__mode="file", **normal)
    with pytest.raises(InvalidInputError, match=r"log.changelog-mode=all .*fix=remove log.scan.normalize"):
        query(new_table(log_changelog__mode="all"), **normal)
    with pytest.raises(InvalidInputError, match=r"contradict each other: .*log.scan.remove-normalize=true"):
        query(new_table(), log_scan_remove__normalize="true", **normal)
