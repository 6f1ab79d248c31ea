"""The peers as writers: what one writes, deletes, compacts or expires, the other sees."""

import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.peers import DELETE, INSERT, UPDATE_AFTER, PeerRefusedError, TableDefinition, normalise
from tests.peers.java_peer import JavaPeer
from tests.peers.pypaimon_peer import PyPaimonPeer

pytestmark = pytest.mark.interop

NOON = datetime.datetime.fromisoformat("2024-02-29T12:34:56.789123")
EVERY_TYPE = TableDefinition(
    columns=[
        ("id", "INT NOT NULL"),
        ("flag", "BOOLEAN"),
        ("tiny", "TINYINT"),
        ("small", "SMALLINT"),
        ("big", "BIGINT"),
        ("real", "FLOAT"),
        ("double", "DOUBLE"),
        ("text", "VARCHAR(20)"),
        ("bytes", "BYTES"),
        ("money", "DECIMAL(9, 2)"),
        ("longer", "DECIMAL(18, 4)"),
        ("widest", "DECIMAL(38, 10)"),
        ("day", "DATE"),
        ("millis", "TIMESTAMP(3)"),
        ("micros", "TIMESTAMP(6)"),
        ("instant", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("list", {"type": "ARRAY", "element": "INT"}),
        ("map", {"type": "MAP", "key": "STRING NOT NULL", "value": "INT"}),
        (
            "row",
            {
                "type": "ROW",
                "fields": [{"id": 101, "name": "x", "type": "INT"}, {"id": 102, "name": "y", "type": "STRING"}],
            },
        ),
    ],
    primary_key=["id"],
    options={"bucket": "1"},
)
EVERY_ROW = pa.Table.from_pylist(
    [
        {
            "id": 1,
            "flag": True,
            "tiny": -128,
            "small": -2,
            "big": 1 << 40,
            "real": 1.5,
            "double": float("nan"),
            "text": "héllo 😀",
            "bytes": b"\x00\xff",
            "money": Decimal("1.25"),
            "longer": Decimal("-2.5000"),
            "widest": Decimal("-12345678901234567890.5"),
            "day": datetime.date(1969, 12, 31),
            "millis": NOON.replace(microsecond=789000),
            "micros": NOON,
            "instant": NOON.replace(tzinfo=datetime.UTC),
            "list": [1, None, 3],
            "map": {"b": 2, "a": None},
            "row": {"x": 1, "y": "é"},
        },
        {"id": 2},
    ],
    schema=pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False),
            ("flag", pa.bool_()),
            ("tiny", pa.int8()),
            ("small", pa.int16()),
            ("big", pa.int64()),
            ("real", pa.float32()),
            ("double", pa.float64()),
            ("text", pa.string()),
            ("bytes", pa.binary()),
            ("money", pa.decimal128(9, 2)),
            ("longer", pa.decimal128(18, 4)),
            ("widest", pa.decimal128(38, 10)),
            ("day", pa.date32()),
            ("millis", pa.timestamp("ms")),
            ("micros", pa.timestamp("us")),
            ("instant", pa.timestamp("us", tz="UTC")),
            ("list", pa.list_(pa.int32())),
            ("map", pa.map_(pa.string(), pa.int32())),
            ("row", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ]
    ),
)
PAIRS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "v": ["a", "b", "c"]})
PAIRS_DEFINITION = TableDefinition(
    columns=[("id", "BIGINT NOT NULL"), ("v", "STRING")],
    primary_key=["id"],
    options={"bucket": "2", "write-only": "true"},
)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_java_writes_every_type_as_it_was_given(
    tmp_path: Path, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer, file_format: str
) -> None:
    definition = TableDefinition(
        columns=EVERY_TYPE.columns, primary_key=["id"], options={"bucket": "1", "file.format": file_format}
    )
    java_peer.create(tmp_path, "db.t", definition)
    java_peer.write(tmp_path, "db.t", EVERY_ROW)
    assert java_peer.read(tmp_path, "db.t") == normalise(EVERY_ROW)
    assert pypaimon_peer.read(tmp_path, "db.t") == normalise(EVERY_ROW)


def test_pypaimon_writes_every_type_as_it_was_given(
    tmp_path: Path, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer
) -> None:
    pypaimon_peer.create(tmp_path, "db.t", EVERY_TYPE)
    pypaimon_peer.write(tmp_path, "db.t", EVERY_ROW)
    assert pypaimon_peer.read(tmp_path, "db.t") == normalise(EVERY_ROW)
    assert java_peer.read(tmp_path, "db.t") == normalise(EVERY_ROW)


def test_nanoseconds_pass_through_java(tmp_path: Path, java_peer: JavaPeer) -> None:
    rows = pa.table(
        {
            "n": pa.array([1_709_210_096_789_123_456, None], pa.timestamp("ns")),
            "d": pa.array([None, Decimal("1.5")], pa.decimal128(4, 1)),
        }
    )
    java_peer.create(tmp_path, "db.t", TableDefinition(columns=[("n", "TIMESTAMP(9)"), ("d", "DECIMAL(4, 1)")]))
    java_peer.write(tmp_path, "db.t", rows)
    assert java_peer.read(tmp_path, "db.t") == normalise(rows)
    assert rows.num_rows == 2
    assert {row["n"] for row in normalise(rows)} == {"2024-02-29T12:34:56.789123456", None}


def test_java_deletes_compacts_and_expires_and_pypaimon_follows(
    tmp_path: Path, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer
) -> None:
    java_peer.create(tmp_path, "db.t", PAIRS_DEFINITION)
    java_peer.write(tmp_path, "db.t", PAIRS)
    changes = pa.table({"id": pa.array([1, 2, 4], pa.int64()), "v": ["a", "B", "d"]})
    java_peer.write(tmp_path, "db.t", changes, kinds=[DELETE, UPDATE_AFTER, INSERT])
    after = [{"id": 2, "v": "B"}, {"id": 3, "v": "c"}, {"id": 4, "v": "d"}]
    assert java_peer.read(tmp_path, "db.t") == after
    assert pypaimon_peer.read(tmp_path, "db.t") == after
    assert java_peer.read(tmp_path, "db.t", snapshot_id=1) == normalise(PAIRS)
    java_peer.compact(tmp_path, "db.t")
    assert java_peer.read(tmp_path, "db.t", snapshot_id=3) == after
    assert pypaimon_peer.read(tmp_path, "db.t", snapshot_id=3) == after
    java_peer.create_tag(tmp_path, "db.t", "first", snapshot_id=1)
    assert java_peer.expire(tmp_path, "db.t", retain=1) == 2
    assert sorted(path.name for path in (tmp_path / "db.db" / "t" / "snapshot").glob("snapshot-*")) == ["snapshot-3"]
    for peer in (java_peer, pypaimon_peer):
        assert peer.read(tmp_path, "db.t") == after
        assert peer.read(tmp_path, "db.t", options={"scan.tag-name": "first"}) == normalise(PAIRS)


def test_java_adds_and_renames_columns_and_pypaimon_follows(
    tmp_path: Path, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer
) -> None:
    java_peer.create(tmp_path, "db.t", PAIRS_DEFINITION)
    java_peer.write(tmp_path, "db.t", PAIRS)
    java_peer.alter(tmp_path, "db.t", "addColumn", "n", java_peer.data_type("INT"))
    java_peer.alter(tmp_path, "db.t", "renameColumn", "v", "w")
    java_peer.write(
        tmp_path, "db.t", pa.table({"id": pa.array([3], pa.int64()), "w": ["C"], "n": pa.array([7], pa.int32())})
    )
    expected = [{"id": 1, "w": "a", "n": None}, {"id": 2, "w": "b", "n": None}, {"id": 3, "w": "C", "n": 7}]
    assert java_peer.read(tmp_path, "db.t") == expected
    assert pypaimon_peer.read(tmp_path, "db.t") == expected


def test_the_changelog_between_two_snapshots_has_its_kinds(tmp_path: Path, java_peer: JavaPeer) -> None:
    definition = TableDefinition(
        columns=PAIRS_DEFINITION.columns, primary_key=["id"], options={"bucket": "1", "changelog-producer": "input"}
    )
    java_peer.create(tmp_path, "db.t", definition)
    java_peer.write(tmp_path, "db.t", PAIRS)
    java_peer.write(tmp_path, "db.t", PAIRS.slice(0, 2), kinds=[DELETE, UPDATE_AFTER])
    changes = java_peer.changes(tmp_path, "db.t", after=1, until=2)
    assert changes == [(DELETE, {"id": 1, "v": "a"}), (UPDATE_AFTER, {"id": 2, "v": "b"})]


def test_pypaimon_refuses_kinds_that_it_would_lose(tmp_path: Path, pypaimon_peer: PyPaimonPeer) -> None:
    pypaimon_peer.create(tmp_path, "db.t", PAIRS_DEFINITION)
    with pytest.raises(PeerRefusedError, match=r"rowkind\.field"):
        pypaimon_peer.write(tmp_path, "db.t", PAIRS, kinds=[DELETE, INSERT, INSERT])
