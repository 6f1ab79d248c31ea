"""File indexes of one side spare the other side the opening of files.

Whether an index was used is seen by spoiling the data files: who passes over them has no error.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from filestore.scan.live_files import LiveFiles
from lsm.errors import CorruptDataError
from tests.peers import Condition, PeerError, normalise
from tests.peers.agreement import FLUVIAL, Agreement
from tests.peers.java_peer import JavaPeer
from tests.peers.tables import root_of
from tests.support.indexed import INDEXED, indexed_rows

pytestmark = pytest.mark.interop

MISS: list[Condition] = [("text", "=", "nobody")]
HIT: list[Condition] = [("text", "=", indexed_rows().column("text")[41].as_py())]


def _spoil(warehouse: Path, table: str) -> None:
    store = FLUVIAL.table(warehouse, table)
    live = LiveFiles.latest(store.store)
    for key in live.buckets():
        for file in live.files(key):
            Path(store.store.file_path(key.partition, key.bucket, file)).write_bytes(b"spoilt")


@pytest.mark.parametrize("threshold", ["0 b", "1 mb"])
def test_each_passes_over_files_by_the_others_index(tmp_path: Path, java_peer: JavaPeer, threshold: str) -> None:
    """Beside the data file and in the manifest; without a value to look for all see all rows."""
    options = {**INDEXED.options, "file-index.in-manifest-threshold": threshold, "metadata.stats-mode": "none"}
    definition = replace(INDEXED, options=options)
    rows = indexed_rows()
    for name, writer in (("db.ours", FLUVIAL), ("db.theirs", java_peer)):
        java_peer.create(tmp_path, name, definition)
        writer.write(tmp_path, name, rows)
        for reader in (FLUVIAL, java_peer):
            assert reader.read(tmp_path, name) == normalise(rows)
            assert [row["id"] for row in reader.read(tmp_path, name, where=HIT)] == [41]
        _spoil(tmp_path, name)
        for reader in (FLUVIAL, java_peer):
            assert reader.read(tmp_path, name, where=MISS) == []
            with pytest.raises((PeerError, CorruptDataError)):
                reader.read(tmp_path, name, where=HIT)


def test_everybody_reads_a_key_table_with_indexes(
    tmp_path: Path, java_peer: JavaPeer, assert_peers_agree: Agreement
) -> None:
    """Ours and Java's files with indexes in one bucket, compacted by either: pypaimon does not mind them."""
    columns = [column for column in INDEXED.columns if column[0] != "clock"]  # pypaimon knows no TIME
    options = {key: text for key, text in INDEXED.options.items() if ".clock." not in key}
    options |= {"bucket": "1", "file-index.bloom-filter.columns": ",".join(name for name, _ in columns)}
    definition = replace(INDEXED, columns=columns, primary_key=["id"], options=options)
    java_peer.create(tmp_path, "db.t", definition)
    rows = indexed_rows().drop(["clock"])
    FLUVIAL.write(tmp_path, "db.t", rows.slice(0, 80))
    java_peer.write(tmp_path, "db.t", rows.slice(40))
    for step in (lambda: None, lambda: FLUVIAL.compact(tmp_path, "db.t"), lambda: java_peer.compact(tmp_path, "db.t")):
        step()
        assert assert_peers_agree(root_of(tmp_path)) == normalise(rows)
        for reader in (FLUVIAL, java_peer):
            assert [row["id"] for row in reader.read(tmp_path, "db.t", where=HIT)] == [41]
