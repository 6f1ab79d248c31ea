"""Options of reads that are stored with a table: Java and Fluvial give the same rows, or Fluvial names the option."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from engine import Catalog
from filestore.branch.branches import create_branch
from filestore.options.not_built import NOT_BUILT
from filestore.options.rules import ALIASES
from filestore.options.table_options import TableOptions
from filestore.tag.tags import create_tag
from lsm.errors import InvalidInputError
from tests.peers import DELETE, INSERT, PeerError, TableDefinition
from tests.peers.agreement import FLUVIAL
from tests.peers.java_peer import JavaPeer
from tests.peers.pypaimon_peer import PyPaimonPeer
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


def test_a_release_of_a_peer_has_no_option_without_a_class(java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer) -> None:
    """A newer one fails here until it is said of each of its options what it does here."""
    found = {*java_peer.option_names(), *pypaimon_peer.option_names()}
    assert len(found) > 300
    golden = Path(__file__).parents[1] / "golden"
    listed = {
        name
        for each in ("paimon-2.0.0-options.txt", "paimon-other-options.txt")
        for name in (golden / each).read_text(encoding="utf-8").split()
    }
    assert found - listed == set()
    assert [key for key in found if not any(key in each for each in (TableOptions.declared, ALIASES, NOT_BUILT))] == []


@pytest.mark.parametrize(
    "options",
    [
        {"scan.mode": "latest-full", "scan.snapshot-id": "1"},
        {"scan.mode": "latest", "scan.tag-name": "first"},
        {"scan.mode": "compacted-full", "scan.snapshot-id": "1"},
        {"merge-engine": "aggregation", "sequence.field": "v", "fields.v.aggregate-function": "max"},
    ],
    ids=str,
)
def test_both_refuse_to_make_such_a_table(options: dict[str, str], tmp_path: Path, java_peer: JavaPeer) -> None:
    """They were taken here, and one of the two options had no effect."""
    defined = TableDefinition(columns=COLUMNS, primary_key=["p", "k"], options={"bucket": "1", **options})
    with pytest.raises(PeerError, match=r"must be null|Should not define"):
        java_peer.create(tmp_path, "db.java", defined)
    with pytest.raises(InvalidInputError, match="fix='remove one'"):
        FLUVIAL.create(tmp_path, "db.fluvial", defined)


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "first-row"])
def test_older_names_mean_what_java_takes_them_for(engine: str, tmp_path: Path, java_peer: JavaPeer) -> None:
    """A delete that the table ignores under an older name was a delete here."""
    options = {
        "bucket": "1",
        "merge-engine": engine,
        f"{engine}.ignore-delete": "true",
        "write.compaction-skip": "true",
    }
    defined = TableDefinition(columns=COLUMNS, primary_key=["p", "k"], partition_by=["p"], options=options)
    for name, writer in (("db.ours", FLUVIAL), ("db.twin", java_peer)):
        java_peer.create(tmp_path, name, defined)
        row = rows_of(defined, [{"p": "x", "k": 1, "v": "a"}])
        for kind in (INSERT, DELETE):
            writer.write(tmp_path, name, row, kinds=[kind])
            writer.write(tmp_path, name, rows_of(defined, [{"p": "x", "k": 2 + kind, "v": "b"}]), kinds=[INSERT])
        FLUVIAL.compact(tmp_path, name)
    expected = java_peer.read(tmp_path, "db.twin")
    assert len(expected) == 3
    assert java_peer.read(tmp_path, "db.ours") == expected
    assert FLUVIAL.read(tmp_path, "db.ours") == FLUVIAL.read(tmp_path, "db.twin") == expected
