"""Tables whose buckets are not fixed, written by Java and by us."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from filestore.compact.postpone import distribute
from filestore.index.index_manifest import bucket_index
from filestore.scan.live_files import LiveFiles
from tests.peers import DELETE, INSERT, TableDefinition, normalise
from tests.peers.agreement import FLUVIAL, Agreement
from tests.peers.java_peer import JavaPeer
from tests.peers.tables import rows_of

pytestmark = pytest.mark.interop

COLUMNS = [("k", "INT NOT NULL"), ("v", "STRING")]


GOLDEN = Path(__file__).parents[1] / "golden" / "java-1.4.2"


def definition(**options: str) -> TableDefinition:
    return TableDefinition(columns=COLUMNS, primary_key=["k"], options=options)


def test_postponed_rows_of_java_and_ours_get_their_buckets(
    tmp_path: Path, assert_peers_agree: Agreement, java_peer: JavaPeer
) -> None:
    what = definition(**{"bucket": "-2", "postpone.default-bucket-num": "2", "write-only": "true"})
    java_peer.create(tmp_path, "db.t", what)
    rows = [{"k": key, "v": "java"} for key in (1, 2, 3, 2)]
    java_peer.write(tmp_path, "db.t", rows_of(what, rows), kinds=[INSERT, INSERT, INSERT, DELETE])
    FLUVIAL.write(tmp_path, "db.t", rows_of(what, [{"k": 3, "v": "ours"}, {"k": 4, "v": "ours"}]))
    table = FLUVIAL.table(tmp_path, "db.t")
    live = LiveFiles.latest(table.store)
    names = [file.file_name for key in live.postponed() for file in live.files(key)]
    assert len(names) == 2, names
    assert assert_peers_agree(table.store.paths.root, only=["java"]) == []
    distribute(table.store)
    assert assert_peers_agree(table.store.paths.root) == [
        {"k": 1, "v": "java"},
        {"k": 3, "v": "ours"},
        {"k": 4, "v": "ours"},
    ]


def test_dynamic_buckets_of_java_are_filled_further(tmp_path: Path, assert_peers_agree: Agreement) -> None:
    """Keys that Java assigned stay where they are; new ones go to buckets with room."""
    shutil.copytree(GOLDEN / "db.db" / "dyn", tmp_path / "db.db" / "dyn")
    table = FLUVIAL.table(tmp_path, "db.dyn").with_options({"dynamic-bucket.target-row-num": "7"})
    before = table.read().to_arrow().sort_by("k").to_pylist()
    assert [row["k"] for row in before] == [0, 1, 2, 3, 4]
    again = [{**before[0], "k": key} for key in range(2, 12)]
    table.write(pa.Table.from_pylist(again, schema=table.schema.arrow_schema))
    expected = before[:2] + again
    assert assert_peers_agree(table.store.paths.root) == normalise(pa.Table.from_pylist(expected))
    entries = bucket_index(table.store, table.store.snapshots.latest())
    assert {entry.bucket: entry.row_count for entry in entries} == {0: 7, 1: 5}
