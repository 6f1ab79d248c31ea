"""Merge engines: Paimon for Java reads, merges and compacts what Fluvial wrote, and Fluvial what Java wrote."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from filestore.scan.snapshot_files import live_files
from lsm.aggregate.sketch_aggregates import bitmap64_bytes, bitmap64_of
from tests.peers import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Row, TableDefinition
from tests.peers.agreement import FLUVIAL
from tests.peers.java_peer import JavaPeer
from tests.peers.layout import check_layout
from tests.peers.tables import root_of, rows_of

pytestmark = pytest.mark.interop

ITEM = {
    "type": "ROW",
    "fields": [
        {"id": 101, "name": "id", "type": "INT"},
        {"id": 102, "name": "v", "type": "STRING"},
        {"id": 103, "name": "w", "type": "INT"},
    ],
}
TIMED = {
    "type": "ROW",
    "fields": [{"id": 111, "name": "at", "type": "STRING"}, {"id": 112, "name": "x", "type": "INT"}],
}
ITEMS = {"type": "ARRAY", "element": ITEM}
# column: type and options behind fields.<column>.
COLUMNS: Mapping[str, tuple[Any, Mapping[str, str]]] = {
    "total": ("BIGINT", {"aggregate-function": "sum"}),
    "factor": ("INT", {"aggregate-function": "product"}),
    "most": ("DECIMAL(10, 2)", {"aggregate-function": "max"}),
    "least": ("STRING", {"aggregate-function": "min"}),
    "last": ("INT", {"aggregate-function": "last_value"}),
    "known": ("INT", {}),
    "first": ("INT", {"aggregate-function": "first_value"}),
    "first_known": ("INT", {"aggregate-function": "first_non_null_value"}),
    "words": ("STRING", {"aggregate-function": "listagg", "list-agg-delimiter": ";", "distinct": "true"}),
    "every": ("BOOLEAN", {"aggregate-function": "bool_and"}),
    "some": ("BOOLEAN", {"aggregate-function": "bool_or"}),
    "bag": ({"type": "ARRAY", "element": "INT"}, {"aggregate-function": "collect"}),
    "map": ({"type": "MAP", "key": "STRING NOT NULL", "value": "INT"}, {"aggregate-function": "merge_map"}),
    "timed": (
        {"type": "MAP", "key": "STRING NOT NULL", "value": TIMED},
        {"aggregate-function": "merge_map_with_keytime", "ts-field": "at"},
    ),
    "items": (ITEMS, {"aggregate-function": "nested_update", "nested-key": "id"}),
    "few": (ITEMS, {"aggregate-function": "nested_update", "count-limit": "3"}),
    "parts": (ITEMS, {"aggregate-function": "nested_partial_update", "nested-key": "id, v"}),
    "small": ("BYTES", {"aggregate-function": "rbm32"}),
    "large": ("BYTES", {"aggregate-function": "rbm64"}),
    "theta": ("BYTES", {"aggregate-function": "theta_sketch"}),
    "hll": ("BYTES", {"aggregate-function": "hll_sketch"}),
}
AGGREGATION = TableDefinition(
    columns=[("k", "INT NOT NULL"), *((name, kind) for name, (kind, _) in COLUMNS.items())],
    primary_key=["k"],
    options={"bucket": "1", "merge-engine": "aggregation", "write-only": "true"}
    | {f"fields.{name}.{key}": text for name, (_, own) in COLUMNS.items() for key, text in own.items()},
)


def java_bytes(java_peer: JavaPeer, numbers: Sequence[int]) -> dict[str, bytes]:
    """Sets and sketches of some numbers as Java makes them."""
    jvm = java_peer._jvm
    ints, longs = jvm.java_array("int", numbers), jvm.java_array("long", numbers)
    utils = jvm.paimon.utils
    return {
        "small": bytes(utils.RoaringBitmap32.bitmapOf(ints).serialize()),
        "large": bytes(utils.RoaringBitmap64.bitmapOf(longs).serialize()),
        "theta": bytes(utils.ThetaSketch.sketchOf(ints)),
        "hll": bytes(utils.HllSketchUtil.sketchOf(ints)),
    }


def our_bytes(numbers: Sequence[int]) -> dict[str, bytes]:
    theta, hll = datasketches.update_theta_sketch(), datasketches.hll_sketch(12)
    for number in numbers:
        theta.update(number)
        hll.update(number)
    groups: dict[int, list[int]] = {}
    for number in sorted(set(numbers)):
        groups.setdefault(number >> 16, []).append(number & 0xFFFF)
    return {
        "small": BitMap(numbers).serialize(),
        "large": bitmap64_bytes({key: np.array(low, np.uint16) for key, low in groups.items()}),
        "theta": theta.compact().serialize(),
        "hll": hll.serialize_compact(),
    }


def plain(rows: Sequence[Row]) -> list[Row]:
    """What rows say: without the order of sets, and of sketches their estimates."""
    readers: Mapping[str, Callable[[Any], Any]] = {
        "small": lambda data: list(BitMap.deserialize(data)),
        "large": lambda data: sorted(key << 16 | int(low) for key, lows in bitmap64_of(data).items() for low in lows),
        "theta": lambda data: datasketches.compact_theta_sketch.deserialize(data).get_estimate(),
        "hll": lambda data: round(datasketches.hll_sketch.deserialize(data).get_estimate(), 3),
        "items": lambda items: sorted(items, key=repr),
        "parts": lambda items: sorted(items, key=repr),
    }
    reported = [
        {
            name: readers.get(name, lambda each: each)(value) if value is not None else None
            for name, value in row.items()
        }
        for row in rows
    ]
    return sorted(reported, key=lambda row: int(row["k"]))


def values(turn: int, **given: Any) -> dict[str, Any]:
    """A row whose values depend on the turn."""
    item = {"id": turn % 2, "v": "abc"[turn % 3], "w": turn if turn % 3 else None}
    row: dict[str, Any] = {
        "k": 1, "total": turn * 10, "factor": turn, "most": turn, "least": "zyxw"[turn % 4], "last": turn or None,
        "known": turn if turn % 2 else None, "first": None if turn == 1 else turn, "first_known": turn % 3 or None,
        "words": f"w{turn};x", "every": turn != 3, "some": turn == 3, "bag": [turn, None, 7],
        "map": {"a": turn, f"k{turn}": None},
        "timed": {"a": {"at": f"t{turn % 3}", "x": turn}, "b": {"at": None, "x": 1} if turn % 2 else None},
        "items": [item, None, {"id": turn, "v": "q", "w": 1}], "few": [item], "parts": [item, item | {"w": None}],
    }  # fmt: skip
    return row | given


def numbers(turn: int) -> list[int]:
    """Some that every turn has, some of its own, and in every second turn many in a row."""
    many = range(turn * 1000, turn * 1000 + 6000, turn // 2) if turn % 2 == 0 else ()
    return [1, 5, turn * 70_000, *many]


def test_every_aggregate_function_is_merged_alike(tmp_path: Path, java_peer: JavaPeer) -> None:
    """FL-186, FL-187: both write, both read, both compact, and both go on."""
    FLUVIAL.create(tmp_path, "db.t", AGGREGATION)

    def write(*turns: int) -> None:
        for turn in turns:
            sets = java_bytes(java_peer, numbers(turn)) if turn % 2 else our_bytes(numbers(turn))
            rows = [values(turn, **sets), {"k": 2 + turn, **sets}, {"k": 100}]
            (java_peer if turn % 2 else FLUVIAL).write(tmp_path, "db.t", rows_of(AGGREGATION, rows))

    def same() -> list[Row]:
        check_layout(root_of(tmp_path))
        ours, javas = plain(FLUVIAL.read(tmp_path, "db.t")), plain(java_peer.read(tmp_path, "db.t"))
        assert ours == javas
        return ours

    write(1, 2, 3)
    merged = same()
    assert merged[0]["large"] == sorted({n for turn in (1, 2, 3) for n in numbers(turn)})
    FLUVIAL.compact(tmp_path, "db.t")
    assert same() == merged
    write(4, 5)
    merged = same()
    java_peer.compact(tmp_path, "db.t")
    assert same() == merged
    write(6)
    assert len(same()) == 8


def test_sets_of_64_bit_numbers_have_the_bytes_of_java(tmp_path: Path, java_peer: JavaPeer) -> None:
    """FL-186: every kind of node of the tree, and of container."""
    jvm = java_peer._jvm
    random = np.random.default_rng(5)
    for count, bits in ((1, 8), (3, 62), (12, 50), (40, 62), (200, 61), (3000, 24), (20_000, 20), (300, 63)):
        given = np.unique(random.integers(0, 2**bits, count)).tolist()
        low: dict[int, list[int]] = {}
        for number in given:
            low.setdefault(number >> 16, []).append(number & 0xFFFF)
        data = bitmap64_bytes({key: np.array(each, np.uint16) for key, each in low.items()})
        there = jvm.paimon.utils.RoaringBitmap64()
        there.deserialize(data)
        if count < 50:
            assert there.equals(jvm.paimon.utils.RoaringBitmap64.bitmapOf(jvm.java_array("long", given)))
        back = bitmap64_of(bytes(there.serialize()))
        assert sorted(key << 16 | int(each) for key, lows in back.items() for each in lows) == given


EVERY_KIND = (INSERT, INSERT, UPDATE_AFTER, UPDATE_BEFORE, DELETE)
ADDS = (INSERT, UPDATE_AFTER)
# options, and the kinds that the engine takes
ENGINES: Mapping[str, tuple[Mapping[str, str], Sequence[int]]] = {
    "sequence fields, the smallest is newest": (
        {"sequence.field": "g,s", "sequence.field.sort-order": "descending"},
        EVERY_KIND,
    ),
    "ignore-delete": ({"ignore-delete": "true"}, EVERY_KIND),
    "ignore-update-before": ({"ignore-update-before": "true"}, EVERY_KIND),
    "rowkind.field": ({"rowkind.field": "op"}, ADDS),
    "first-row": ({"merge-engine": "first-row", "ignore-delete": "true"}, EVERY_KIND),
    "partial-update": ({"merge-engine": "partial-update", "sequence.field": "g"}, ADDS),
    "partial-update, ignore-delete": ({"merge-engine": "partial-update", "ignore-delete": "true"}, EVERY_KIND),
    "partial-update, deletes": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        EVERY_KIND,
    ),
    "sequence groups": (
        {
            "merge-engine": "partial-update",
            "fields.g,s.sequence-group": "a,b,items",
            "fields.a.aggregate-function": "sum",
        }
        | {"fields.items.aggregate-function": "nested_update", "fields.items.nested-key": "id"},
        EVERY_KIND,
    ),
    "sequence groups, default function": (
        {"merge-engine": "partial-update", "fields.g.sequence-group": "a,b", "fields.s.sequence-group": "items,op"}
        | {"fields.default-aggregate-function": "last_non_null_value", "fields.a.aggregate-function": "count"}
        | {"partial-update.remove-record-on-sequence-group": "g", "fields.a.aggregate-function": "sum"},
        EVERY_KIND,
    ),
    "default function": (
        {"merge-engine": "aggregation", "fields.default-aggregate-function": "last_value", "sequence.field": "g"}
        | {"fields.a.aggregate-function": "sum", "fields.items.aggregate-function": "nested_update"},
        EVERY_KIND,
    ),
    "aggregation, deletes": (
        {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"}
        | {"fields.a.aggregate-function": "sum", "fields.b.aggregate-function": "max"},
        (INSERT, INSERT, UPDATE_AFTER, DELETE),
    ),
    "aggregation, ignored retracts": (
        {"merge-engine": "aggregation", "fields.default-aggregate-function": "min"}
        | {f"fields.{name}.ignore-retract": "true" for name in ("a", "b", "g", "s", "op")}
        | {"fields.items.aggregate-function": "first_value", "fields.items.ignore-retract": "true"},
        EVERY_KIND,
    ),
}
STORY_COLUMNS = [("k", "INT NOT NULL"), ("a", "BIGINT"), ("b", "STRING"), ("g", "INT"), ("s", "INT"), ("op", "STRING")]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("engine", ENGINES)
def test_both_write_compact_and_read_the_same_story(tmp_path: Path, java_peer: JavaPeer, engine: str) -> None:
    """FL-183, FL-186, FL-187: random rows of few keys, of every kind that the engine takes, nulls among them."""
    check_story(tmp_path, java_peer, engine, seed=0)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 21))
@pytest.mark.parametrize("engine", ENGINES)
def test_both_tell_many_stories(tmp_path: Path, java_peer: JavaPeer, engine: str, seed: int) -> None:
    check_story(tmp_path, java_peer, engine, seed=seed)


def check_story(tmp_path: Path, java_peer: JavaPeer, engine: str, *, seed: int) -> None:
    options, kinds = ENGINES[engine]
    definition = TableDefinition(
        columns=[*STORY_COLUMNS, ("items", ITEMS)],
        primary_key=["k"],
        options={"bucket": "1", "write-only": "true"} | dict(options),
    )
    FLUVIAL.create(tmp_path, "db.t", definition)
    random = Random(f"{engine} {seed}")

    def write(peer: Any, *, begins: bool = "partial-update.remove-record-on-sequence-group" in options) -> None:
        """Some rows of any kind; before them an insert of each key, if it ``begins``: Java forgets earlier retracts."""
        rows = []
        keys = [*range(1, 5)] if begins else []
        keys += [random.randint(1, 4) for _ in range(random.randint(3, 9))]
        for key in keys:
            row: dict[str, Any] = {"a": random.randint(1, 9), "b": random.choice("xyz"), "g": random.randint(1, 3)}
            row |= {
                "s": random.randint(1, 3),
                "items": [{"id": random.randint(1, 3), "v": random.choice("pq"), "w": 1}],
            }
            row = {name: value if random.random() < 0.75 else None for name, value in row.items()}
            rows.append(row | {"k": key, "op": random.choice(["+I", "-U", "+U", "-D"])})
        drawn = random.choices(kinds, k=len(rows))
        if begins:
            drawn[:4] = [INSERT] * 4
        peer.write(tmp_path, "db.t", rows_of(definition, rows), kinds=drawn)

    def same() -> list[Row]:
        check_layout(root_of(tmp_path))
        ours, javas = plain(FLUVIAL.read(tmp_path, "db.t")), plain(java_peer.read(tmp_path, "db.t"))
        assert ours == javas
        return ours

    write(FLUVIAL, begins=True)
    for peer in (java_peer, FLUVIAL):
        write(peer)
    merged = same()
    FLUVIAL.compact(tmp_path, "db.t")
    assert same() == merged or engine == "first-row"
    write(java_peer)
    write(FLUVIAL)
    merged = same()
    java_peer.compact(tmp_path, "db.t")
    assert same() == merged or engine == "first-row"
    assert merged


LEVELS = TableDefinition(columns=[("k", "INT NOT NULL"), ("a", "BIGINT"), ("g", "INT")], primary_key=["k"])
LOOKED_UP: Mapping[str, Mapping[str, str]] = {
    "aggregation, lookup": {
        "merge-engine": "aggregation",
        "fields.a.aggregate-function": "sum",
        "changelog-producer": "lookup",
    },
    "sequence group, force-lookup": {
        "merge-engine": "partial-update",
        "fields.g.sequence-group": "a",
        "fields.a.aggregate-function": "sum",
        "force-lookup": "true",
    },
    "sequence field, lookup": {"sequence.field": "g", "changelog-producer": "lookup"},
}


@pytest.mark.parametrize("kind", LOOKED_UP)
def test_a_row_above_level_0_has_the_rows_of_higher_levels_in_it(
    tmp_path: Path, java_peer: JavaPeer, kind: str
) -> None:
    """Sums of such tables of Java were 47 for 20 here, and 3 for 20 there of tables that were compacted here."""
    many, some = ([{"k": k, "a": k, "g": k} for k in range(2, count)] for count in (1500, 150))
    batches = [[{"k": 1, "a": 10, "g": 1}, *many], [{"k": 1, "a": 7, "g": 3}, *some], [{"k": 1, "a": 3, "g": 2}]]
    options = {"bucket": "1", "file.format": "avro", **LOOKED_UP[kind]}
    definition = TableDefinition(columns=LEVELS.columns, primary_key=["k"], options=options)
    turns: Mapping[str, Sequence[Any]] = {
        "java": [java_peer] * 3,
        "fluvial": [FLUVIAL] * 3,
        "turns": [FLUVIAL, java_peer, FLUVIAL],
    }
    found = {}
    for table, writers in turns.items():
        FLUVIAL.create(tmp_path, f"db.{table}", definition)
        for writer, rows in zip(writers, batches, strict=True):
            writer.write(tmp_path, f"db.{table}", rows_of(definition, rows))
            if rows is batches[0]:
                writer.compact(tmp_path, f"db.{table}")
            elif writer is FLUVIAL:
                FLUVIAL.table(tmp_path, f"db.{table}").compact()
        store = FLUVIAL.table(tmp_path, f"db.{table}").store
        assert {each.file.level for each in live_files(store, store.snapshots.latest())} == {3, 4, 5}
        for reader in (java_peer, FLUVIAL):
            found[table, reader.name] = reader.read(tmp_path, f"db.{table}")
        FLUVIAL.compact(tmp_path, f"db.{table}")
        found[table, "compacted"] = FLUVIAL.read(tmp_path, f"db.{table}")
    expected = found["java", "java"]
    assert [row["a"] for row in expected if row["k"] == 1] == [7 if kind.startswith("sequence field") else 20]
    assert [key for key, rows in found.items() if rows != expected] == []


def test_java_reads_an_early_retract_as_we_do_once_it_is_compacted(tmp_path: Path, java_peer: JavaPeer) -> None:
    """FL-186: before, Java hides it; then it is an insert for every reader, and what Java writes is added to it."""
    definition = TableDefinition(
        columns=[("k", "INT NOT NULL"), ("a", "BIGINT")],
        primary_key=["k"],
        options={"bucket": "1", "write-only": "true", "merge-engine": "aggregation"}
        | {"fields.a.aggregate-function": "sum"},
    )
    FLUVIAL.create(tmp_path, "db.t", definition)

    def sums(peer: Any) -> dict[int, int]:
        return {row["k"]: row["a"] for row in peer.read(tmp_path, "db.t")}

    java_peer.write(tmp_path, "db.t", rows_of(definition, [{"k": 1, "a": 5}]), kinds=[UPDATE_BEFORE])
    FLUVIAL.write(tmp_path, "db.t", rows_of(definition, [{"k": 2, "a": 3}]), kinds=[DELETE])
    assert (sums(FLUVIAL), sums(java_peer)) == ({1: -5, 2: -3}, {})
    FLUVIAL.compact(tmp_path, "db.t")
    assert sums(FLUVIAL) == sums(java_peer) == {1: -5, 2: -3}
    java_peer.write(tmp_path, "db.t", rows_of(definition, [{"k": 1, "a": 9}, {"k": 2, "a": 3}]), kinds=[INSERT, INSERT])
    assert sums(FLUVIAL) == sums(java_peer) == {1: 4, 2: 0}


@pytest.mark.parametrize(
    ("kind", "unit_per_second"),
    [
        ("INT", 1),
        ("BIGINT", 1),
        ("BIGINT", 1000),
        ("TIMESTAMP(3)", 10**3),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", 10**6),
    ],
)
def test_java_drops_the_rows_that_we_leave_out(
    tmp_path: Path, java_peer: JavaPeer, kind: str, unit_per_second: int
) -> None:
    """Options record-level.*: the same rule for every type, with any compactor; Java's reads show what is stored."""
    definition = TableDefinition(
        columns=[("k", "INT NOT NULL"), ("t", kind)],
        primary_key=["k"],
        options={"bucket": "1", "record-level.expire-time": "1 d", "record-level.time-field": "t"},
    )
    now = int(time.time())
    ages = (0, 80_000, 90_000, 10**8)
    times = pa.array([(now - age) * unit_per_second for age in ages] + [None], pa.int64())
    rows = rows_of(definition, [{"k": number} for number in range(5)])
    rows = rows.set_column(1, rows.schema.field("t"), times.cast(rows.schema.field("t").type))
    for name, compactor in (("db.t", java_peer), ("db.u", FLUVIAL)):
        FLUVIAL.create(tmp_path, name, definition)
        FLUVIAL.write(tmp_path, name, rows)
        wanted = FLUVIAL.read(tmp_path, name)
        assert [row["k"] for row in wanted] == [0, 1, 4]
        compactor.compact(tmp_path, name)
        assert FLUVIAL.read(tmp_path, name) == java_peer.read(tmp_path, name) == wanted
