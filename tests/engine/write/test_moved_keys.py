"""An update that changes a key leaves values out as well: they are those of the row that its delete removed."""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.types.rows import UNAVAILABLE_COLUMN
from logstore.format.source.old_keys import with_old_keys
from lsm.errors import InvalidInputError

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64()), ("t", pa.string())])
LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "one bucket": {"primary_key": ["id"]},
    "four buckets": {"primary_key": ["id"], "options": {"bucket": "4"}},
    "dynamic buckets": {"primary_key": ["id"], "options": {"bucket": "-1"}},
    "partitions": {"primary_key": ["p", "id"], "partition_by": ["p"], "options": {"bucket": "2"}},
    "deletion vectors": {"primary_key": ["id"], "options": {"deletion-vectors.enabled": "true"}},
}
Change = tuple[str, Mapping[str, Any], bool, Mapping[str, Any] | None]
"""Kind, row, whether ``t`` was left out, the old key."""


def moving_table(tmp_path: Path, **layout: Any) -> Table:
    return Catalog(str(tmp_path / "warehouse")).create_table("db.t", SCHEMA, **{"primary_key": ["id"], **layout})


def moves(rows: Sequence[Change], *, deleted: str | None = None) -> pa.Table:
    table = pa.Table.from_pylist([dict(row) for _, row, _, _ in rows], schema=SCHEMA)
    marks = pa.array([["t"] if lacks else None for _, _, lacks, _ in rows], pa.list_(pa.string()))
    is_moved = [old is not None for *_, old in rows]
    if any(is_moved):
        keys = {
            name: pa.array([(old or {}).get(name) for *_, old in rows], SCHEMA.field(name).type) for name in ["id", "p"]
        }
        marks = with_old_keys(marks, keys, pa.array(is_moved).to_numpy(zero_copy_only=False), deleted=deleted)
    kinds = pa.array([kind for kind, *_ in rows], pa.string())
    return table.append_column("_row_kind", kinds).append_column(UNAVAILABLE_COLUMN, marks)


def held(table: Table) -> dict[int, tuple[Any, ...]]:
    return {row["id"]: (row["p"], row["v"], row["t"]) for row in table.read().to_arrow().to_pylist()}


def row(key: int, v: int = 0, t: str | None = None) -> dict[str, Any]:
    return {"id": key, "p": str(key % 2), "v": v, "t": t}


def moved(old: int, new: int, v: int = 0) -> list[Change]:
    key = {"id": old, "p": str(old % 2)}
    return [("-D", key, False, None), ("+I", row(new, v), True, key)]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_value_moves_with_its_row(tmp_path: Path, layout: Mapping[str, Any]) -> None:
    """From the snapshot, from the row before it in the batch, over several keys, and to a key that was another's."""
    table = moving_table(tmp_path, **layout)
    table.write(moves([("+I", row(key, 0, f"old {key}"), False, None) for key in range(1, 6)]))
    swap = [*moved(4, 9), *moved(5, 4), *moved(9, 5)]
    newer: Change = ("+U", row(2, 1, "new 2"), False, None)
    table.write(moves([*moved(1, 11, 7), newer, *moved(2, 12), *moved(12, 22), ("+U", row(22, 8), True, None), *swap]))
    assert held(table) == {
        3: ("1", 0, "old 3"), 11: ("1", 7, "old 1"), 22: ("0", 8, "new 2"), 4: ("0", 0, "old 5"), 5: ("1", 0, "old 4"),
    }  # fmt: skip


@pytest.mark.parametrize(
    "lost",
    [
        [
            ("+I", row(9), True, {"id": 1, "p": "1"})
        ],  # the delete was in an earlier batch, or comes from elsewhere later
        [("-D", {"id": 8, "p": "0"}, False, None), ("+I", row(9), True, {"id": 8, "p": "0"})],  # no such row
        [("-D", {"id": 1, "p": "1"}, False, None), ("+I", row(9), True, {"p": "1"})],  # the key is not whole
        [*moved(8, 9), ("+U", row(9, 1), True, None)],
    ],
)
def test_what_cannot_be_filled_is_refused_never_written(tmp_path: Path, lost: Sequence[Change]) -> None:
    table = moving_table(tmp_path)
    table.write(moves([("+I", row(1, 0, "old"), False, None)]))
    with pytest.raises(InvalidInputError, match=r"key={'id': 9}"):
        table.write(moves(lost))
    assert held(table) == {1: ("1", 0, "old")}


def test_a_table_that_keeps_deleted_rows_has_the_value_of_an_earlier_batch(tmp_path: Path) -> None:
    """Soft deletes: the row of the old key is still there, and says that it is deleted; one that is not is refused."""
    schema = SCHEMA.append(pa.field("gone", pa.bool_()))
    table = Catalog(str(tmp_path / "warehouse")).create_table("db.t", schema, primary_key=["id"])
    table.write(pa.table({"id": [1, 2], "p": ["1", "0"], "v": [0, 0], "t": ["a", "b"], "gone": [True, False]}, schema))
    for old in (1, 2):
        rows = moves([("+I", row(old + 10), True, {"id": old, "p": None})], deleted="gone")
        if old == 1:
            table.write(rows)
        else:
            with pytest.raises(InvalidInputError, match=r"key={'id': 12}.*had another key"):
                table.write(rows)
    assert held(table) == {1: ("1", 0, "a"), 2: ("0", 0, "b"), 11: ("1", 0, "a")}


def test_a_null_that_leaves_a_column_alone_would_lose_the_value(tmp_path: Path) -> None:
    table = moving_table(
        tmp_path, options={"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    )
    table.write(moves([("+I", row(1, 0, "old"), False, None)]))
    with pytest.raises(InvalidInputError, match="had another key"):
        table.write(moves(moved(1, 9)))


@pytest.mark.broker
def test_rows_of_other_buckets_are_seen_before_they_are_logged(
    tmp_path: Path, broker: Broker, new_topic: Callable[..., str]
) -> None:
    brokers = {"log.kafka.bootstrap.servers": broker.bootstrap_servers}
    given = {"bucket": "4", "log.kafka.topic": new_topic(bucket_count=4)}
    table = Catalog(str(tmp_path), options=brokers).create_table("db.t", SCHEMA, primary_key=["id"], options=given)
    table.write(moves([("+I", row(key, 0, "old"), False, None) for key in range(8)]))
    batch = [
        change for key in range(8) for change in [("+U", row(key, 1, f"new {key}"), False, None), *moved(key, key + 50)]
    ]
    table.write(moves(batch))
    assert held(table) == {key + 50: (str(key % 2), 0, f"new {key}") for key in range(8)}


@pytest.mark.sampled(3)
@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(8))
def test_the_table_is_what_a_loop_over_the_source_gives(tmp_path: Path, seed: int) -> None:
    """Against a dict that has every value: random updates, some of keys; a batch comes in pieces of any size."""
    some = random.Random(seed)
    table, truth = moving_table(tmp_path, **some.choice(list(LAYOUTS.values()))), dict[int, tuple[Any, ...]]()
    for _ in range(10):
        batch: list[Change] = []
        for _ in range(some.randint(1, 25)):
            key, v, new = some.randint(0, 12), some.randint(0, 99), some.randint(0, 12)
            if key not in truth:
                truth[key] = (str(key % 2), v, f"t{v}")
                batch.append(("+I", row(key, v, f"t{v}"), False, None))
            elif new not in truth and some.random() < 0.5:
                truth[new] = (str(new % 2), v, truth.pop(key)[2])
                batch += moved(key, new, v)
            elif some.random() < 0.2:
                del truth[key]
                batch.append(("-D", {"id": key, "p": str(key % 2)}, False, None))
            else:
                lacks = some.random() < 0.6
                truth[key] = (str(key % 2), v, truth[key][2] if lacks else f"t{v}")
                batch.append(("+U", row(key, v, None if lacks else f"t{v}"), lacks, None))
        cuts = sorted(some.sample(range(len(batch) + 1), k=min(3, len(batch))))
        pieces = [batch[start:end] for start, end in zip([0, *cuts], [*cuts, len(batch)], strict=True)]
        rows = pa.concat_tables([moves(piece) for piece in pieces if piece])  # a piece is a batch for the writer
        table.write(rows)
        assert held(table) == truth
