"""Values that a source left out of its updates come from the batch, then from the newest snapshot; none is lost."""

import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.types.rows import UNAVAILABLE_COLUMN
from engine.write.batch_part import BatchSpec, write_part
from engine.write.unavailable.newest_rows import EarlierRows
from filestore.scan.live_files import LiveFiles
from lsm.errors import InvalidInputError
from tests.support.logs import log_changes

SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.int64()), ("t", pa.string()), ("a", pa.list_(pa.string())), ("n", pa.int32())]
)
LONG = ["x" * 40] * 3
Change = tuple[str, Mapping[str, Any], Sequence[str]]


def filled_table(tmp_path: Path, options: Mapping[str, str] | None = None, **more: Any) -> Table:
    given = {"primary_key": ["id"], **more}
    return Catalog(str(tmp_path / "warehouse")).create_table("db.t", SCHEMA, options=options or {}, **given)


def changes(*rows: Change) -> pa.Table:
    """Kind, row, and the columns that were left out of it."""
    table = pa.Table.from_pylist([dict(row) for _, row, _ in rows], schema=SCHEMA)
    marks = pa.array([list(left_out) or None for *_, left_out in rows], pa.list_(pa.string()))
    kinds = pa.array([kind for kind, *_ in rows], pa.string())
    return table.append_column("_row_kind", kinds).append_column(UNAVAILABLE_COLUMN, marks)


def held(table: Table) -> dict[int, tuple[Any, ...]]:
    return {row["id"]: (row["v"], row["t"], row["a"], row["n"]) for row in table.read().to_arrow().to_pylist()}


FULL = {"id": 1, "v": 0, "t": "old", "a": LONG, "n": 5}
LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "one bucket": {},
    "four buckets": {"options": {"bucket": "4"}},
    "dynamic buckets": {"options": {"bucket": "-1"}},
    "partitions": {"primary_key": ["n", "id"], "partition_by": ["n"], "options": {"bucket": "2"}},
    "deletion vectors": {"options": {"deletion-vectors.enabled": "true"}},
    "changelog": {"options": {"changelog-producer": "lookup"}},
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_value_that_was_left_out_stays_as_it_is_in_the_table(
    tmp_path: Path, layout: Mapping[str, Any], is_compacted: bool
) -> None:
    """UPDATE toast SET v=1: the event has no t and no a (findings 1 and 2)."""
    table = filled_table(tmp_path, **layout)
    table.write(changes(*[("+I", FULL | {"id": key}, ()) for key in range(50)]))
    table.write(changes(("+U", FULL | {"id": 7, "t": "newer"}, ())))
    if is_compacted:
        table.compact(full=True)
    table.write(changes(*[("+U", {"id": key, "v": 1, "n": 5}, ("t", "a")) for key in (49, 7, 3)]))
    expected = {key: (0, "old", LONG, 5) for key in range(50)}
    expected |= {key: (1, "newer" if key == 7 else "old", LONG, 5) for key in (49, 7, 3)}
    assert held(table) == expected


def test_within_a_batch_the_row_before_is_taken_first(tmp_path: Path) -> None:
    table = filled_table(tmp_path)
    table.write(changes(("+I", FULL, ())))
    table.write(
        changes(
            ("+U", {"id": 1, "v": 1, "t": "1st"}, ("a", "n")),
            ("+I", {"id": 2, "v": 1, "t": "2nd", "a": ["b"], "n": 2}, ()),
            ("+U", {"id": 1, "v": 2}, ("t", "a", "n")),
            ("+U", {"id": 2, "v": 2, "n": 3}, ("t", "a")),
        )
    )
    assert held(table) == {1: (2, "1st", LONG, 5), 2: (2, "2nd", ["b"], 3)}


def test_null_is_a_value_unless_it_is_marked(tmp_path: Path) -> None:
    table = filled_table(tmp_path)
    table.write(changes(("+I", FULL, ())))
    table.write(changes(("+U", {"id": 1, "v": 1}, ("t",))))
    assert held(table) == {1: (1, "old", None, None)}


def test_a_row_that_was_deleted_gives_nothing(tmp_path: Path) -> None:
    table = filled_table(tmp_path)
    table.write(changes(("+I", FULL, ())))
    again = ("+I", {"id": 1, "v": 3, "t": "again", "a": [], "n": 1}, ())
    table.write(changes(("-D", {"id": 1}, ()), again, ("+U", {"id": 1, "v": 4, "n": 1}, ("t", "a"))))
    assert held(table) == {1: (4, "again", [], 1)}
    with pytest.raises(InvalidInputError, match=r"cannot be completed: table=db.t key={'id': 1} .*REPLICA IDENTITY"):
        table.write(changes(("-D", {"id": 1}, ()), ("+U", {"id": 1, "v": 5}, ("t",))))
    assert held(table) == {1: (4, "again", [], 1)}


def test_an_update_of_an_unknown_key_is_refused_never_written_with_nulls(tmp_path: Path) -> None:
    table = filled_table(tmp_path)
    for rows in (changes(("+U", {"id": 9, "v": 1}, ("t",))), changes(("+I", FULL, ()), ("+U", {"id": 9}, ("t",)))):
        with pytest.raises(InvalidInputError, match=r"key={'id': 9}"):
            table.write(rows)
    assert held(table) == {}


class Kept:
    """Refused rows, for the test."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def __call__(self, rows: pa.RecordBatch, reasons: Sequence[str]) -> None:
        self.rows += list(zip(rows.column("id").to_pylist(), reasons, strict=True))


def spec_of(table: Table, refuse: Any) -> BatchSpec:
    live = LiveFiles.latest(table.files.store)
    return BatchSpec(
        table=table.files,
        log=None,
        commit_user="user",
        batch_id=1,
        base=live.ref,
        max_sequence_numbers=live.max_sequence_numbers(),
        log_offsets={},
        refuse=refuse,
    )


def test_what_cannot_be_completed_may_be_put_aside_and_the_rest_is_written(tmp_path: Path) -> None:
    """Key unknown: dead letter; the other rows of the batch are not lost with it."""
    table, kept = filled_table(tmp_path), Kept()
    table.write(changes(("+I", FULL, ())))
    rows = changes(
        ("+U", {"id": 9, "v": 1}, ("t",)), ("+U", {"id": 1, "v": 1, "n": 1}, ("a", "t")), ("+I", {"id": 2}, ())
    )
    results = write_part(spec_of(table, kept), rows.to_batches())
    assert [(key, "no row of the key is known" in reason) for key, reason in kept.rows] == [(9, True)]
    assert sum(file.row_count for each in results for message in each.messages for file in message.new_files) == 2


def test_rows_before_it_may_have_come_in_earlier_pieces(tmp_path: Path) -> None:
    table, kept = filled_table(tmp_path), Kept()
    pieces = [
        changes(("+I", FULL, ()), ("+I", FULL | {"id": 3, "t": "three"}, ())),
        changes(("+U", {"id": 1, "v": 1, "t": "1"}, ("a", "n")), ("-D", {"id": 3}, ())),
        changes(("+U", {"id": 1, "v": 2}, ("a", "n", "t")), ("+U", {"id": 3, "v": 2}, ("t",))),
    ]
    write_part(spec_of(table, kept), [batch for piece in pieces for batch in piece.to_batches()])
    assert [key for key, _ in kept.rows] == [3]


@pytest.mark.parametrize("budget_bytes", [0, 1 << 20])
def test_earlier_rows_are_found_in_memory_and_on_disk(tmp_path: Path, budget_bytes: int) -> None:
    store = filled_table(tmp_path).files.store
    earlier = EarlierRows(store, budget_bytes)
    for v in range(3):
        earlier.add(pa.Table.from_pylist([{"id": key, "v": v} for key in range(v, 100, 2)], schema=SCHEMA))
    found = earlier.find(pa.table({"id": pa.array([0, 1, 2, 500], pa.int64())}))
    assert {row["id"]: row["v"] for row in found.to_pylist()} == {0: 0, 1: 1, 2: 2}


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({}, {"primary_key": []}),
        ({"merge-engine": "aggregation", "fields.default-aggregate-function": "last_value"}, {}),
        ({"bucket": "-2"}, {}),
    ],
)
def test_a_table_that_cannot_be_filled_refuses_masks_and_only_those(
    tmp_path: Path, options: Mapping[str, str], more: Mapping[str, Any]
) -> None:
    table = filled_table(tmp_path, options, **more)
    table.write(changes(("+I", FULL, ())))
    with pytest.raises(InvalidInputError, match=r"cannot be filled in: table=db.t columns=\['t'\].*REPLICA IDENTITY"):
        table.write(changes(("+I", {"id": 1}, ("t",))))


def test_partial_update_leaves_the_column_alone(tmp_path: Path) -> None:
    table = filled_table(tmp_path, {"merge-engine": "partial-update"})
    table.write(changes(("+I", FULL, ())))
    table.write(changes(("+U", {"id": 1, "v": 1}, ("t", "a", "n"))))
    assert held(table) == {1: (1, "old", LONG, 5)}


def test_not_null_columns_may_be_left_out(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), pa.field("t", pa.string(), nullable=False)])
    table = Catalog(str(tmp_path)).create_table("db.t", schema, primary_key=["id"])
    table.write(pa.table({"id": pa.array([1], pa.int64()), "t": ["text"]}))
    marks = pa.array([["t"]], pa.list_(pa.string()))
    left_out = pa.table({"id": pa.array([1], pa.int64()), "t": pa.nulls(1, pa.string()), UNAVAILABLE_COLUMN: marks})
    table.write(left_out)
    assert table.read().to_arrow().to_pylist() == [{"id": 1, "t": "text"}]
    with pytest.raises(InvalidInputError, match="t"):  # a null that is not marked is still refused
        table.write(left_out.set_column(2, UNAVAILABLE_COLUMN, pa.nulls(1, pa.list_(pa.string()))))


def test_masks_name_columns_of_the_table(tmp_path: Path) -> None:
    table = filled_table(tmp_path)
    table.write(changes(("+I", FULL, ())))
    for name in ("nothing", "id"):
        with pytest.raises(InvalidInputError, match="cannot be filled in"):
            table.write(changes(("+U", {"id": 1}, (name,))))
    with pytest.raises(InvalidInputError, match="reserved"):
        Catalog(str(tmp_path / "w")).create_table("db.t", pa.schema([(UNAVAILABLE_COLUMN, pa.string())]))


def test_new_columns_may_come_in_the_same_batch(tmp_path: Path) -> None:
    table = filled_table(tmp_path)
    table.write(changes(("+I", FULL, ())))
    rows = changes(("+U", {"id": 1, "v": 1, "n": 5}, ("t", "a"))).append_column("extra", pa.array([7], pa.int32()))
    table.write(rows, options={"write.merge-schema": "true"})
    reopened = Catalog(str(tmp_path / "warehouse")).table("db.t")
    assert reopened.read().to_arrow().to_pylist() == [{**FULL, "v": 1, "extra": 7}]


@pytest.mark.sampled(3)
@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(6))
def test_the_table_is_what_a_loop_over_the_source_gives(tmp_path: Path, seed: int) -> None:
    """Against a dict that has every value: random updates leave out what they do not change."""
    some = random.Random(seed)
    layout = some.choice(list(LAYOUTS.values()))
    table, truth = filled_table(tmp_path, **layout), dict[int, dict[str, Any]]()
    for _ in range(12):
        batch: list[Change] = []
        for _ in range(some.randint(1, 30)):
            key = some.randint(0, 12)
            row = {"id": key, "v": some.randint(0, 99), "t": f"t{some.randint(0, 99)}", "a": [str(key)], "n": 5}
            if key not in truth:
                truth[key] = row
                batch.append(("+I", row, ()))
            elif some.random() < 0.2:
                del truth[key]
                batch.append(("-D", {"id": key, "n": 5}, ()))
            else:
                left_out = [name for name in ("t", "a", "v") if some.random() < 0.5]
                truth[key] = {**row, **{name: truth[key][name] for name in left_out}}
                batch.append(("+U", {name: row[name] for name in row if name not in left_out}, left_out))
        table.write(changes(*batch))
        if some.random() < 0.3:
            table.compact(full=some.random() < 0.5)
    assert held(table) == {key: (row["v"], row["t"], row["a"], row["n"]) for key, row in truth.items()}


def test_a_specification_with_its_refusal_goes_to_tasks(tmp_path: Path) -> None:
    assert pickle.loads(pickle.dumps(spec_of(filled_table(tmp_path), None))).refuse is None


@pytest.mark.broker
@pytest.mark.parametrize(
    "options", [{}, {"log.changelog-mode": "all", "changelog-producer": "lookup"}], ids=["auto", "exact"]
)
def test_the_log_holds_the_values_as_well(
    tmp_path: Path, broker: Broker, new_topic: Callable[..., str], options: Mapping[str, str]
) -> None:
    """They are filled before anything is encoded: who reads the topic alone gets whole rows."""
    brokers = {"log.kafka.bootstrap.servers": broker.bootstrap_servers}
    given = {"bucket": "2", "log.kafka.topic": new_topic(bucket_count=2), **options}
    table = Catalog(str(tmp_path), options=brokers).create_table("db.t", SCHEMA, primary_key=["id"], options=given)
    table.write(changes(*[("+I", FULL | {"id": key}, ()) for key in (1, 2, 3)]))
    table.write(changes(*[("+U", {"id": key, "v": 1, "n": 5}, ("t", "a")) for key in (1, 2)]))
    after = [row for kind, row in log_changes(table) if not kind.is_retract]
    assert sorted((row["id"], row["v"], row["t"], row["a"]) for row in after) == [
        (1, 0, "old", LONG), (1, 1, "old", LONG), (2, 0, "old", LONG), (2, 1, "old", LONG), (3, 0, "old", LONG),
    ]  # fmt: skip
    assert held(table) == {key: (int(key < 3), "old", LONG, 5) for key in (1, 2, 3)}
