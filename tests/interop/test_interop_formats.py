"""Tables whose levels have formats, codecs and layouts of their own: everybody reads what anybody wrote."""

import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from tests.peers import TableDefinition, normalise
from tests.peers.agreement import FLUVIAL, Agreement
from tests.peers.java_peer import JavaPeer
from tests.peers.tables import root_of, rows_of

pytestmark = pytest.mark.interop

COLUMNS = [("id", "BIGINT NOT NULL"), ("name", "STRING"), ("price", "DECIMAL(9, 2)"), ("at", "DATE")]


def numbered_rows(first: int, count: int, word: str) -> pa.Table:
    definition = TableDefinition(columns=COLUMNS)
    return rows_of(definition, [{"id": each, "name": f"{word}{each}"} for each in range(first, first + count)])


@pytest.mark.parametrize(
    "options",
    [
        {
            "file.format.per.level": "0:avro,4:orc",
            "file.compression.per.level": "0:snappy,5:lz4",
            "file.compression.zstd-level": "5",
            "file.suffix.include.compression": "true",
            "changelog-producer": "input",
            "changelog-file.format": "orc",
        },
        {
            "file.format": "orc",
            "file.format.per.level": "5:parquet",
            "data-file.thin-mode": "true",
            "file.block-size": "64 kb",
            "metadata.stats-mode": "none",
            "metadata.stats-mode.per.level": "5:full",
        },
    ],
    ids=["avro first, orc in between", "orc first, thin"],
)
def test_everybody_reads_tables_of_mixed_files(
    tmp_path: Path, java_peer: JavaPeer, assert_peers_agree: Agreement, options: dict[str, str]
) -> None:
    """FL-17, FL-145: flushed by us and by Java, merged by each of us, and once more on top."""
    definition = TableDefinition(columns=COLUMNS, primary_key=["id"], options={"bucket": "1", **options})
    java_peer.create(tmp_path, "db.t", definition)
    FLUVIAL.write(tmp_path, "db.t", numbered_rows(0, 60, "ours"))
    java_peer.write(tmp_path, "db.t", numbered_rows(40, 40, "java"))
    expected = {**{each: f"ours{each}" for each in range(40)}, **{each: f"java{each}" for each in range(40, 80)}}

    def check() -> None:
        found = assert_peers_agree(root_of(tmp_path))
        assert {row["id"]: row["name"] for row in found} == expected

    check()
    FLUVIAL.compact(tmp_path, "db.t")
    check()
    FLUVIAL.write(tmp_path, "db.t", numbered_rows(10, 5, "again"))
    expected.update({each: f"again{each}" for each in range(10, 15)})
    check()
    java_peer.compact(tmp_path, "db.t")
    check()
    assert normalise(numbered_rows(10, 1, "again"))[0] in FLUVIAL.read(tmp_path, "db.t")


@pytest.mark.parametrize("format", ["orc", "parquet"])
def test_manifests_of_each_format_are_written_and_read_by_all(tmp_path: Path, java_peer: JavaPeer, format: str) -> None:
    """Issue 1, finding 3: an empty table of Java stays one that Java reads, writes and expires."""
    options = {"bucket": "1", "manifest.format": format, "deletion-vectors.enabled": "true"}
    definition = TableDefinition(columns=COLUMNS, primary_key=["id", "at"], partition_by=["at"], options=options)
    java_peer.create(tmp_path, "db.t", definition)
    day = {"at": datetime.date(2026, 1, 1)}

    def rows(first: int, count: int, word: str) -> pa.Table:
        return rows_of(
            definition, [{"id": each, "name": f"{word}{each}", **day} for each in range(first, first + count)]
        )

    def check(expected: dict[int, str]) -> None:
        for peer in (java_peer, FLUVIAL):
            assert {row["id"]: row["name"] for row in peer.read(tmp_path, "db.t")} == expected

    FLUVIAL.write(tmp_path, "db.t", rows(0, 6, "ours"))
    java_peer.write(tmp_path, "db.t", rows(4, 4, "java"))
    expected = {**{each: f"ours{each}" for each in range(4)}, **{each: f"java{each}" for each in range(4, 8)}}
    check(expected)
    FLUVIAL.write(tmp_path, "db.t", rows(0, 2, "again"))
    FLUVIAL.compact(tmp_path, "db.t")
    check({**expected, 0: "again0", 1: "again1"})
    java_peer.compact(tmp_path, "db.t")
    assert java_peer.expire(tmp_path, "db.t", retain=1) > 0
    check({**expected, 0: "again0", 1: "again1"})
