"""Data files at external places: Java and Fluvial read, compact, expire and clean up what the other wrote there."""

from pathlib import Path

import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.maintenance.snapshot_expiry import Retention, expire_snapshots
from tests.peers import TableDefinition
from tests.peers.java_peer import JavaPeer
from tests.peers.pypaimon_peer import PyPaimonPeer
from tests.peers.tables import rows_of

pytestmark = pytest.mark.interop

COLUMNS = [("p", "STRING NOT NULL"), ("k", "INT NOT NULL"), ("v", "STRING")]
STRATEGIES = {
    "round-robin": {},
    "specific-fs": {"data-file.external-paths.specific-fs": "file"},
    "entropy-inject": {},
    "weight-robin": {"data-file.external-paths.weights": "1,3"},
}


@pytest.mark.parametrize("key", [["p", "k"], []], ids=["keyed", "unkeyed"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("maker", ["java", "fluvial"])
def test_writers_take_turns_at_external_places(
    maker: str, strategy: str, key: list[str], tmp_path: Path, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer
) -> None:
    warehouse, places = tmp_path / "w", tmp_path / "x"
    options = {
        "bucket": "1" if key else "-1",
        "data-file.external-paths": f"file://{places}/a/db.db/t,file://{places}/b/db.db/t",
        "data-file.external-paths.strategy": strategy,
        **STRATEGIES[strategy],
    }
    definition = TableDefinition(columns=COLUMNS, primary_key=key, partition_by=["p"], options=options)
    catalog = FileCatalog(str(warehouse), {"external-paths.allowed": str(places)})
    if maker == "java":
        java_peer.create(warehouse, "db.t", definition)
    else:
        catalog.create_table(
            "db.t", rows_of(definition, []).schema, primary_key=key, partition_by=["p"], options=options
        )
    oracle = []

    def check() -> None:
        expected = sorted((row["p"], row["k"], row["v"]) for row in oracle)
        ours = catalog.table("db.t").read().to_arrow().to_pylist()
        for found in (ours, java_peer.read(warehouse, "db.t"), pypaimon_peer.read(warehouse, "db.t")):
            assert sorted((row["p"], row["k"], row["v"]) for row in found) == expected
        assert [*warehouse.rglob("bucket-*/data-*")] == []

    for turn in range(4):
        rows = [{"p": f"p{number % 2}", "k": 10 * turn + number, "v": f"{turn}"} for number in range(6)]
        oracle += rows
        if turn % 2:
            java_peer.write(warehouse, "db.t", rows_of(definition, rows))
        else:
            catalog.table("db.t").write(rows_of(definition, rows))
        check()
    catalog.table("db.t").compact(full=True)
    check()
    java_peer.compact(warehouse, "db.t")
    check()
    list(expire_snapshots(catalog.table("db.t").store, Retention(min_count=1, max_count=1, age_ms=10**15, limit=100)))
    assert java_peer.clean_orphans(warehouse, "db.t", before_ms=2**62) == 0
    check()
    catalog.drop_table("db.t")
    assert [each for each in places.rglob("*/db.db/t/????????-*") if each.is_dir()] == []
