"""Options of reads that are stored with a table: Java and Fluvial give the same rows, or Fluvial names the option."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from engine import Catalog
from filestore.branch.branches import create_branch
from filestore.tag.tags import create_tag
from lsm.errors import InvalidInputError
from tests.peers import TableDefinition
from tests.peers.agreement import FLUVIAL
from tests.peers.java_peer import JavaPeer
from tests.peers.tables import rows_of

pytestmark = pytest.mark.interop

COLUMNS = [("p", "STRING NOT NULL"), ("k", "INT NOT NULL"), ("v", "STRING")]
DEFINITION = TableDefinition(columns=COLUMNS, primary_key=["p", "k"], partition_by=["p"], options={"bucket": "1"})


def java_puts(warehouse: Path, table: str, *rows: tuple[str, int, str]) -> None:
    FLUVIAL.write(warehouse, table, rows_of(DEFINITION, [{"p": p, "k": k, "v": v} for p, k, v in rows]))


def java_sees(warehouse: Path, java_peer: JavaPeer | None = None) -> list[tuple[str, int, str]]:
    """What Java reads, or Fluvial."""
    if java_peer is None:
        found = Catalog(str(warehouse)).table("db.t").read().to_arrow().to_pylist()
    else:
        found = java_peer.read(warehouse, "db.t")
    return sorted((row["p"], row["k"], row["v"]) for row in found)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Three snapshots in partitions x and z, a tag on the first; a branch with x and y."""
    FLUVIAL.create(tmp_path, "db.t", DEFINITION)
    java_puts(tmp_path, "db.t", ("x", 1, "main"))
    table = FLUVIAL.table(tmp_path, "db.t")
    create_tag(table.store, "first", snapshot_id=1)
    create_branch(table.store, "dev")
    java_puts(tmp_path, "db.t$branch_dev", ("x", 2, "dev"), ("y", 1, "dev"))
    java_puts(tmp_path, "db.t", ("z", 1, "main"))
    java_puts(tmp_path, "db.t", ("x", 1, "newer"))
    return tmp_path


def store(place: Path, options: Mapping[str, str]) -> None:
    path = place / "db.db" / "t" / "schema" / "schema-0"
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "options": {**body["options"], **options}}))


@pytest.mark.parametrize(
    "options",
    [
        {"scan.primary-branch": "dev"},
        {"scan.fallback-branch": "dev"},
        {"scan.snapshot-id": "2"},
        {"scan.mode": "from-snapshot-full", "scan.snapshot-id": "1"},
        {"scan.tag-name": "first"},
        {"scan.version": "first"},
        {"scan.timestamp-millis": "then"},
        {"scan.mode": "from-timestamp", "scan.timestamp-millis": "then"},
        {"scan.mode": "latest"},
        {"scan.mode": "latest-full"},
        {"consumer-id": "c"},
        {"streaming-read-overwrite": "true"},
    ],
    ids=str,
)
def test_java_reads_the_same_rows(options: dict[str, str], place: Path, java_peer: JavaPeer) -> None:
    then = str(FLUVIAL.table(place, "db.t").store.snapshots.read(2).time_ms)
    store(place, {key: then if value == "then" else value for key, value in options.items()})
    assert java_sees(place) == java_sees(place, java_peer)


@pytest.mark.parametrize(
    "options",
    [
        {"branch": "dev"},
        {"incremental-between": "1,2"},
        {"scan.file-creation-time-millis": "4102444800000"},
        {"scan.mode": "compacted-full"},
    ],
    ids=str,
)
def test_what_only_java_honours_is_named(options: dict[str, str], place: Path, java_peer: JavaPeer) -> None:
    java_peer.compact(place, "db.t")
    java_puts(place, "db.t", ("z", 2, "after the compaction"))
    before = java_sees(place)
    store(place, options)
    assert java_sees(place, java_peer) != before
    with pytest.raises(InvalidInputError, match=f"option={next(iter(options))}"):
        java_sees(place)
