"""System tables of Fluvial and of Paimon for Java say the same of one table, in the columns that both have."""

from pathlib import Path

import pytest

from engine.catalog import Catalog
from tests.peers import DELETE, INSERT, TableDefinition, normalise
from tests.peers.agreement import FLUVIAL
from tests.peers.java_peer import JavaPeer
from tests.peers.tables import rows_of

pytestmark = pytest.mark.interop

PLACES = TableDefinition(
    columns=[("pt", "STRING NOT NULL"), ("k", "INT NOT NULL"), ("v", "STRING")],
    primary_key=["pt", "k"],
    partition_by=["pt"],
    options={"bucket": "2", "num-sorted-run.compaction-trigger": "3"},
)
SHARED = {
    "snapshots": [
        "snapshot_id",
        "schema_id",
        "commit_user",
        "commit_identifier",
        "commit_kind",
        "base_manifest_list",
        "delta_manifest_list",
        "total_record_count",
        "delta_record_count",
        "watermark",
    ],
    "manifests": ["file_name", "file_size", "num_added_files", "num_deleted_files", "schema_id"],
    "files": [
        "bucket",
        "file_path",
        "file_format",
        "schema_id",
        "level",
        "record_count",
        "file_size_in_bytes",
        "min_sequence_number",
        "max_sequence_number",
    ],
    "buckets": ["bucket", "record_count", "file_size_in_bytes", "file_count"],
    "options": ["key", "value"],
    "consumers": ["consumer_id", "next_snapshot_id"],
    "tags": ["tag_name", "schema_id", "record_count"],
}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, java_peer: JavaPeer) -> Path:
    """A table that both have written and compacted, with a tag and a consumer."""
    made = tmp_path_factory.mktemp("warehouse")
    java_peer.create(made, "db.t", PLACES)
    for turn in range(4):
        rows = [{"pt": place, "k": key, "v": f"{turn}"} for place in ("a", "b c") for key in range(turn, turn + 6)]
        kinds = [DELETE if row["k"] == 3 and turn == 2 else INSERT for row in rows]
        (java_peer if turn % 2 else FLUVIAL).write(made, "db.t", rows_of(PLACES, rows), kinds=kinds)
    FLUVIAL.compact(made, "db.t")
    java_peer.create_tag(made, "db.t", "eod", snapshot_id=2)
    java_peer.reset_consumer(made, "db.t", "report", 3)
    return made


@pytest.mark.parametrize("name", SHARED)
def test_both_say_the_same(warehouse: Path, java_peer: JavaPeer, name: str) -> None:
    ours = Catalog(str(warehouse)).system_table(f"db.t${name}").to_arrow(SHARED[name])
    theirs = java_peer.read(warehouse, f"db.t${name}", columns=SHARED[name])
    assert normalise(ours) == [
        {key: value.removeprefix("file:") if key == "file_path" else value for key, value in row.items()}
        for row in theirs
    ]


def test_rows_with_kinds_and_rows_of_the_top_level_agree(warehouse: Path, java_peer: JavaPeer) -> None:
    """The audit log of Java also shows deletes that no compaction has dropped yet: these are no rows of the state."""
    catalog = Catalog(str(warehouse))
    for name in ("audit_log", "ro"):
        theirs = [row for row in java_peer.read(warehouse, f"db.t${name}") if row.get("rowkind") != "-D"]
        assert normalise(catalog.system_table(f"db.t${name}").to_arrow()) == theirs
