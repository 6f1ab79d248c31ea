"""Fluvial, Apache Paimon for Java and pypaimon on one table: all read alike what each wrote, in any order.

FL-17: the files are Paimon's layout, so whatever reads Paimon reads Fluvial's tables.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filestore.catalog.catalog import FileCatalog
from tests.peers import DELETE, INSERT, Peer, Row, TableDefinition, normalise, row_text
from tests.peers.agreement import FLUVIAL, Agreement
from tests.peers.java_peer import JavaPeer
from tests.peers.pypaimon_peer import PyPaimonPeer
from tests.peers.tables import arrow_schema, root_of, rows_of

pytestmark = pytest.mark.interop

PLACES = TableDefinition(
    columns=[("pt", "STRING NOT NULL"), ("k", "INT NOT NULL"), ("v", "STRING"), ("n", "DECIMAL(10, 2)")],
    primary_key=["pt", "k"],
    partition_by=["pt"],
    options={"bucket": "2"},
)


class Story:
    """One table, many writers, and what must be in it: the newest row of every key."""

    def __init__(self, warehouse: Path, seed: int, java: JavaPeer, pypaimon: PyPaimonPeer) -> None:
        self.warehouse = warehouse
        self.random = random.Random(seed)
        self.java = java
        self.pypaimon = pypaimon
        self.rows: dict[tuple[str, int], dict[str, Any]] = {}
        self.reported: list[str] = []

    def step(self) -> None:
        """Let somebody do something."""
        deeds = [
            (6, lambda: self.change(FLUVIAL, deletes=True)),
            (4, lambda: self.change(self.java, deletes=True)),
            (3, lambda: self.change(self.pypaimon, deletes=False)),
            (2, lambda: self.keep("fluvial compacts", lambda: FLUVIAL.compact(self.warehouse, "db.t"))),
            (1, lambda: self.keep("java compacts", lambda: self.java.compact(self.warehouse, "db.t"))),
            (1, lambda: self.keep("java expires", lambda: self.java.expire(self.warehouse, "db.t", retain=3))),
        ]
        self.random.choices([deed for _, deed in deeds], [weight for weight, _ in deeds])[0]()

    def change(self, peer: Peer, *, deletes: bool) -> None:
        """Upserts and perhaps deletes of random keys, a key perhaps twice in one commit."""
        rows, kinds = [], []
        for _ in range(self.random.randint(1, 30)):
            place, key = self.random.choice(["a", "b c", "é/ü"]), self.random.randint(0, 40)
            number = Decimal(self.random.randint(-(10**9), 10**9)).scaleb(-2) if self.random.random() < 0.8 else None
            row = {"pt": place, "k": key, "v": f"{peer.name}-{len(self.reported)}", "n": number}
            if deletes and self.random.random() < 0.3:
                kinds.append(DELETE)
                self.rows.pop((place, key), None)
            else:
                kinds.append(INSERT)
                self.rows[place, key] = row
            rows.append(row)
        self.reported.append(f"{peer.name} writes {len(rows)} rows")
        peer.write(self.warehouse, "db.t", rows_of(PLACES, rows), kinds=kinds)

    def keep(self, what: str, deed: Any) -> None:
        """Something that changes no row."""
        self.reported.append(what)
        deed()

    def expected(self) -> list[Row]:
        """The rows that must be there."""
        return normalise(rows_of(PLACES, self.rows.values()))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("creator", ["fluvial", "java", "pypaimon"])
def test_writers_of_all_kinds_take_turns_on_one_table(
    tmp_path: Path,
    assert_peers_agree: Agreement,
    java_peer: JavaPeer,
    pypaimon_peer: PyPaimonPeer,
    creator: str,
    file_format: str,
) -> None:
    """FL-17: Fluvial, Java, Fluvial, pypaimon, Java compacts, Fluvial compacts ...: always the same rows for all."""
    creators: dict[str, Peer] = {"fluvial": FLUVIAL, "java": java_peer, "pypaimon": pypaimon_peer}
    definition = replace(PLACES, options={**PLACES.options, "file.format": file_format})
    creators[creator].create(tmp_path, "db.t", definition)
    story = Story(tmp_path, sum(map(ord, creator + file_format)), java_peer, pypaimon_peer)
    for _ in range(16):
        story.step()
        assert assert_peers_agree(root_of(tmp_path)) == story.expected(), "\n".join(story.reported)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(40))
def test_writers_take_turns_for_long(
    tmp_path: Path, assert_peers_agree: Agreement, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer, seed: int
) -> None:
    """The same with other seeds, formats, bucket counts and file sizes."""
    chance = random.Random(seed)
    options = {
        "bucket": str(chance.randint(1, 4)),
        "file.format": chance.choice(["parquet", "orc", "avro"]),
        "target-file-size": chance.choice(["128 mb", "4 kb"]),
        "num-sorted-run.compaction-trigger": str(chance.randint(2, 5)),
    }
    definition = replace(PLACES, options=options)
    FLUVIAL.create(tmp_path, "db.t", definition)
    story = Story(tmp_path, seed, java_peer, pypaimon_peer)
    for _ in range(30):
        story.step()
        assert assert_peers_agree(root_of(tmp_path)) == story.expected(), "\n".join(story.reported)


@pytest.mark.parametrize(
    ("options", "commits", "expected"),
    [
        (
            {"merge-engine": "first-row"},
            [[(1, 1, "x", 1)], [(1, 2, "y", 2), (2, 2, "b", 2)]],
            [(1, 1, "x", 1), (2, 2, "b", 2)],
        ),
        (
            {"sequence.field": "g"},
            [[(1, 1, "new", 9)], [(1, 2, "old", 3), (2, 1, "null", None)], [(2, 2, "first", 0)]],
            [(1, 1, "new", 9), (2, 2, "first", 0)],
        ),
    ],
    ids=["first-row", "sequence.field"],
)
@pytest.mark.parametrize("compactor", ["fluvial", "java"])
def test_merge_engines_merge_alike(
    tmp_path: Path,
    assert_peers_agree: Agreement,
    java_peer: JavaPeer,
    compactor: str,
    options: Mapping[str, str],
    commits: Sequence[Sequence[tuple[Any, ...]]],
    expected: Sequence[tuple[Any, ...]],
) -> None:
    """FL-160: what a merge engine makes of equal keys does not depend on who reads or compacts."""
    definition = TableDefinition(
        columns=[("k", "INT NOT NULL"), ("a", "INT"), ("b", "STRING"), ("g", "INT")],
        primary_key=["k"],
        options={"bucket": "1", "write-only": "true", **options},
    )
    names = [name for name, _ in definition.columns]
    FLUVIAL.create(tmp_path, "db.t", definition)
    for rows in commits:
        FLUVIAL.write(tmp_path, "db.t", rows_of(definition, [dict(zip(names, row, strict=True)) for row in rows]))
        assert_peers_agree(root_of(tmp_path))
    (FLUVIAL if compactor == "fluvial" else java_peer).compact(tmp_path, "db.t")
    wanted = normalise(rows_of(definition, [dict(zip(names, row, strict=True)) for row in expected]))
    assert assert_peers_agree(root_of(tmp_path)) == wanted


def test_columns_that_java_adds_renames_and_widens_are_followed(
    tmp_path: Path, assert_peers_agree: Agreement, java_peer: JavaPeer
) -> None:
    """Old files are read by field id: a rename keeps its values, a new column is null, a wider type is cast."""
    definition = TableDefinition(
        columns=[("k", "INT NOT NULL"), ("a", "INT"), ("b", "STRING")], primary_key=["k"], options={"bucket": "1"}
    )
    FLUVIAL.create(tmp_path, "db.t", definition)
    FLUVIAL.write(tmp_path, "db.t", rows_of(definition, [{"k": 1, "a": 1, "b": "x"}, {"k": 2, "a": 2, "b": "y"}]))
    java_peer.alter(tmp_path, "db.t", "renameColumn", "b", "c")
    java_peer.alter(tmp_path, "db.t", "addColumn", "b", java_peer.data_type("DOUBLE"))
    java_peer.alter(tmp_path, "db.t", "updateColumnType", "a", java_peer.data_type("BIGINT"))
    after = TableDefinition(columns=[("k", "INT NOT NULL"), ("a", "BIGINT"), ("c", "STRING"), ("b", "DOUBLE")])
    FLUVIAL.write(tmp_path, "db.t", rows_of(after, [{"k": 2, "a": 2**40, "c": "z", "b": 0.5}]))
    table = FileCatalog(str(tmp_path)).table("db.t")
    schemas = [json.loads(table.store.io.read_bytes(table.store.paths.schema(each))) for each in range(4)]
    uuids = [each.get("fluvialTableUuid") for each in schemas]
    assert (uuids[1:], table.store.table_uuid) == ([None] * 3, uuids[0]), "Java drops it, and it is the table's still"
    assert table.store.snapshots.latest().table_uuid == uuids[0]  # type: ignore[union-attr]
    wanted = [{"k": 1, "a": 1, "c": "x", "b": None}, {"k": 2, "a": 2**40, "c": "z", "b": 0.5}]
    assert assert_peers_agree(root_of(tmp_path)) == sorted(wanted, key=row_text)
    FLUVIAL.compact(tmp_path, "db.t")
    assert assert_peers_agree(root_of(tmp_path)) == sorted(wanted, key=row_text)


def test_tags_and_snapshots_of_java_are_travelled_to(
    tmp_path: Path, assert_peers_agree: Agreement, java_peer: JavaPeer
) -> None:
    """TAG-07: a tag outlives its snapshot, of any engine, whichever expired the snapshot."""
    FLUVIAL.create(tmp_path, "db.t", PLACES)
    first = rows_of(PLACES, [{"pt": "a", "k": 1, "v": "one"}, {"pt": "b", "k": 1, "v": "two"}])
    FLUVIAL.write(tmp_path, "db.t", first)
    FLUVIAL.write(tmp_path, "db.t", first.slice(0, 1), kinds=[DELETE])
    assert assert_peers_agree(root_of(tmp_path), snapshot_id=1) == normalise(first)
    assert assert_peers_agree(root_of(tmp_path), snapshot_id=2) == normalise(first.slice(1))
    java_peer.create_tag(tmp_path, "db.t", "first", snapshot_id=1)
    FLUVIAL.compact(tmp_path, "db.t")
    assert java_peer.expire(tmp_path, "db.t", retain=1) == 2
    for peer in (FLUVIAL, java_peer):
        assert peer.read(tmp_path, "db.t", options={"scan.tag-name": "first"}) == normalise(first)
    assert assert_peers_agree(root_of(tmp_path)) == normalise(first.slice(1))


@pytest.mark.long
def test_many_rows_over_many_files_are_read_alike(
    tmp_path: Path, assert_peers_agree: Agreement, java_peer: JavaPeer
) -> None:
    """Files that roll, row groups that split, runs that overlap: 60,000 rows in six commits."""
    definition = TableDefinition(
        columns=[("k", "BIGINT NOT NULL"), ("v", "STRING"), ("d", "DECIMAL(20, 3)")],
        primary_key=["k"],
        options={"bucket": "2", "target-file-size": "200 kb"},
    )
    FLUVIAL.create(tmp_path, "db.t", definition)
    expected: dict[int, str] = {}
    for turn in range(6):
        keys = [(index * 7919 + turn) % 25_000 for index in range(10_000)]
        expected |= {key: f"value {turn} {key * 31}" for key in keys}
        columns = {"k": keys, "v": [expected[key] for key in keys], "d": [Decimal(key).scaleb(-3) for key in keys]}
        FLUVIAL.write(tmp_path, "db.t", pa.table(columns, schema=arrow_schema(definition)))
    for compact in (
        lambda: None,
        lambda: FLUVIAL.compact(tmp_path, "db.t"),
        lambda: java_peer.compact(tmp_path, "db.t"),
    ):
        compact()
        rows = assert_peers_agree(root_of(tmp_path))
        assert {row["k"]: row["v"] for row in rows} == expected
        assert len(rows) == len(expected)
