"""Every value that a table can hold, in rows, partitions, keys and filters: read alike by all implementations."""

import datetime
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filestore.types.data_types import arrow_type, parse_data_type
from lsm.errors import InvalidInputError
from tests.peers import DELETE, UPDATE_AFTER, Condition, Peer, TableDefinition, normalise
from tests.peers.agreement import FLUVIAL, Agreement
from tests.peers.java_peer import JavaPeer
from tests.peers.tables import arrow_schema, root_of, rows_of

pytestmark = pytest.mark.interop

NOON = datetime.datetime.fromisoformat("2024-02-29T12:34:56.789123")
BEFORE_EPOCH = datetime.datetime.fromisoformat("1903-03-01T00:00:00.000001")
YEAR_1 = datetime.datetime.fromisoformat("0001-01-01T00:00:00")
YEAR_9999 = datetime.datetime.fromisoformat("9999-12-31T23:59:59.999999")
UTC = datetime.UTC
ROW_TYPE = {
    "type": "ROW",
    "fields": [{"id": 101, "name": "x", "type": "INT"}, {"id": 102, "name": "y", "type": "STRING"}],
}

# name, type, three values and then null
TYPES: list[tuple[str, Any, list[Any]]] = [
    ("flag", "BOOLEAN", [True, False, True]),
    ("tiny", "TINYINT", [-128, 127, 0]),
    ("small", "SMALLINT", [-32768, 32767, 1]),
    ("whole", "INT", [-(2**31), 2**31 - 1, 0]),
    ("big", "BIGINT", [-(2**63), 2**63 - 1, 0]),
    ("real", "FLOAT", [1.5, float("nan"), -0.0]),
    ("dbl", "DOUBLE", [float("inf"), float("-inf"), 5e-324]),
    ("txt", "STRING", ["héllo 😀", "", "a" * 100]),
    ("vc", "VARCHAR(10)", ["x", "ééééé", " y "]),
    ("bin", "BYTES", [b"\x00\xff", b"", b"z" * 40]),
    ("d9", "DECIMAL(9, 2)", [Decimal("1.25"), Decimal("-9999999.99"), Decimal("0.00")]),
    ("d18", "DECIMAL(18, 4)", [Decimal("-2.5000"), Decimal("99999999999999.9999"), Decimal("0.0001")]),
    (
        "d38",
        "DECIMAL(38, 10)",
        [Decimal("-12345678901234567890.5000000000"), Decimal("9" * 28 + "." + "9" * 10), Decimal("0E-10")],
    ),
    ("day", "DATE", [datetime.date(2024, 2, 29), datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    ("tim", "TIME(3)", [datetime.time(1, 2, 3, 4000), datetime.time(0), datetime.time(23, 59, 59, 999000)]),
    (
        "ts0",
        "TIMESTAMP(0)",
        [moment.replace(microsecond=0) for moment in (NOON, BEFORE_EPOCH, YEAR_1)],
    ),
    ("ts3", "TIMESTAMP(3)", [moment.replace(microsecond=789000) for moment in (NOON, BEFORE_EPOCH, NOON)]),
    ("ts6", "TIMESTAMP(6)", [NOON, BEFORE_EPOCH, YEAR_9999]),
    ("ltz6", "TIMESTAMP(6) WITH LOCAL TIME ZONE", [NOON.replace(tzinfo=UTC), BEFORE_EPOCH.replace(tzinfo=UTC), None]),
    ("arr", {"type": "ARRAY", "element": "INT"}, [[1, None, 3], [], [2]]),
    ("deep", {"type": "ARRAY", "element": {"type": "ARRAY", "element": "STRING"}}, [[["a"], None, []], [], [[None]]]),
    ("mp", {"type": "MAP", "key": "STRING NOT NULL", "value": "INT"}, [{"b": 2, "a": None}, {}, {"": 0}]),
    ("rw", ROW_TYPE, [{"x": 1, "y": "é"}, {"x": None, "y": None}, {"x": 3, "y": ""}]),
]


def typed_rows(file_format: str = "parquet") -> list[dict[str, Any]]:
    """Four rows with every type: three with values, one of nulls."""
    rows = [{"id": index, **{name: values[index] for name, _, values in TYPES}} for index in range(3)]
    if file_format == "orc":  # Arrow reads ORC timestamps as nanoseconds in 64 bits, Java shifts those of the year 1
        fraction = BEFORE_EPOCH.replace(microsecond=789000)
        unsaid = [YEAR_1, YEAR_9999, BEFORE_EPOCH, fraction, BEFORE_EPOCH.replace(tzinfo=UTC)]  # see the test below
        rows = [{name: None if value in unsaid else value for name, value in row.items()} for row in rows]
    return [*rows, {"id": 3}]


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_every_type_is_read_by_everybody(
    tmp_path: Path, assert_peers_agree: Agreement, java_peer: JavaPeer, file_format: str
) -> None:
    """FL-17."""
    columns = [("id", "INT NOT NULL"), *((name, kind) for name, kind, _ in TYPES)]
    definition = TableDefinition(
        columns=columns, primary_key=["id"], options={"bucket": "1", "file.format": file_format}
    )
    FLUVIAL.create(tmp_path, "db.t", definition)
    rows = rows_of(definition, typed_rows(file_format))
    FLUVIAL.write(tmp_path, "db.t", rows)
    assert assert_peers_agree(root_of(tmp_path)) == normalise(rows)
    FLUVIAL.write(tmp_path, "db.t", rows.slice(0, 2), kinds=[UPDATE_AFTER, DELETE])
    assert assert_peers_agree(root_of(tmp_path)) == normalise(pa.concat_tables([rows.slice(0, 1), rows.slice(2)]))
    FLUVIAL.compact(tmp_path, "db.t")
    assert assert_peers_agree(root_of(tmp_path)) == normalise(pa.concat_tables([rows.slice(0, 1), rows.slice(2)]))
    java_peer.write(tmp_path, "db.t", rows)
    java_peer.compact(tmp_path, "db.t")
    assert assert_peers_agree(root_of(tmp_path)) == normalise(rows)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("buckets", ["-1", "3"])
def test_append_tables_are_read_by_everybody(
    tmp_path: Path, assert_peers_agree: Agreement, java_peer: JavaPeer, file_format: str, buckets: str
) -> None:
    """FL-17."""
    columns = [("id", "INT"), *((name, kind) for name, kind, _ in TYPES)]
    options = {"bucket": buckets, "file.format": file_format} | ({"bucket-key": "id"} if buckets != "-1" else {})
    definition = TableDefinition(columns=columns, options=options)
    FLUVIAL.create(tmp_path, "db.t", definition)
    rows = rows_of(definition, typed_rows(file_format))
    FLUVIAL.write(tmp_path, "db.t", rows)
    assert assert_peers_agree(root_of(tmp_path)) == normalise(rows)
    java_peer.write(tmp_path, "db.t", rows)
    FLUVIAL.write(tmp_path, "db.t", rows.slice(1, 1))
    twice = pa.concat_tables([rows, rows, rows.slice(1, 1)])
    assert assert_peers_agree(root_of(tmp_path)) == normalise(twice)


@pytest.mark.parametrize("zone", ["TIMESTAMP", "TIMESTAMP_LTZ"])
@pytest.mark.parametrize("precision", range(10))
def test_every_precision_of_a_timestamp_is_kept(
    tmp_path: Path, assert_peers_agree: Agreement, precision: int, zone: str
) -> None:
    """Rule 2 of the format: the unit in the file follows the precision of the type."""
    text = f"TIMESTAMP({precision})" + (" WITH LOCAL TIME ZONE" if zone.endswith("LTZ") else "")
    definition = TableDefinition(
        columns=[("k", "INT NOT NULL"), ("t", text)],
        primary_key=["k"],
        options={"bucket": "1", "file.format": "parquet" if precision <= 6 else "orc"},  # parquet refuses: INT96
    )
    unit = arrow_type(parse_data_type(text))
    step = 10 ** ({"ms": 3, "us": 6, "ns": 9}[unit.unit] - precision)
    before = -step if precision <= 6 else -(10**9)  # ORC: whole seconds only before 1970
    ticks = [1_709_210_096_789_123_456 // 10 ** {"ms": 6, "us": 3, "ns": 0}[unit.unit] // step * step, before, None]
    keys = pa.array([0, 1, 2], pa.int32())
    rows = pa.table({"k": keys, "t": pa.array(ticks, pa.int64()).cast(unit)}, schema=arrow_schema(definition))
    FLUVIAL.create(tmp_path, "db.t", definition)
    FLUVIAL.write(tmp_path, "db.t", rows)
    assert assert_peers_agree(root_of(tmp_path)) == normalise(rows)


@pytest.mark.parametrize("zone", ["", " WITH LOCAL TIME ZONE"])
@pytest.mark.parametrize("micros", [-1, -1_000_001, -999_999, -999_999_999])
def test_what_orc_cannot_say_to_java_is_refused(
    tmp_path: Path, assert_peers_agree: Agreement, micros: int, zone: str
) -> None:
    """Arrow's ORC writer gives times before 1970 negative fractions, at which Java's reader throws."""
    definition = TableDefinition(columns=[("t", f"TIMESTAMP(6){zone}")], options={"file.format": "orc"})
    rows = pa.table({"t": pa.array([micros], pa.int64()).cast(arrow_schema(definition).field("t").type)})
    FLUVIAL.create(tmp_path, "db.t", definition)
    try:
        FLUVIAL.write(tmp_path, "db.t", rows)
    except InvalidInputError as error:
        assert "column=t" in str(error)  # noqa: PT017  (to be refused or to be read by everybody: both are right)
    else:
        assert assert_peers_agree(root_of(tmp_path)) == normalise(rows)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("STRING", ["a", "", " ", "a b:c/d=e%é", "__DEFAULT_PARTITION__", "\x01{}[]^'\"*?\\", "😀", None]),
        ("INT", [0, -7, 2**31 - 1, None]),
        ("BIGINT", [0, -(2**63), None]),
        ("TINYINT", [0, -7, None]),
        ("DATE", [datetime.date(2024, 2, 29), datetime.date(1969, 12, 31), None]),
        ("BOOLEAN", [True, False, None]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_partitions_of_every_value_are_found_by_everybody(
    tmp_path: Path, assert_peers_agree: Agreement, java_peer: JavaPeer, kind: str, values: Sequence[Any]
) -> None:
    """The directory is recomputed by every reader from the value, so its rules must be the same in all."""
    definition = TableDefinition(columns=[("id", "INT"), ("pt", kind)], partition_by=["pt"])
    rows = rows_of(definition, [{"id": index, "pt": value} for index, value in enumerate(values)])
    FLUVIAL.create(tmp_path, "db.t", definition)
    FLUVIAL.write(tmp_path, "db.t", rows)
    directories = sorted(path.parent for path in root_of(tmp_path).rglob("bucket-0"))
    assert assert_peers_agree(root_of(tmp_path)) == normalise(rows)
    java_peer.write(tmp_path, "db.t", rows)
    assert assert_peers_agree(root_of(tmp_path)) == normalise(pa.concat_tables([rows, rows]))
    assert sorted(path.parent for path in root_of(tmp_path).rglob("bucket-0")) == directories


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("INT", [0, 1, -1, 2**31 - 1, -(2**31)]),
        ("BIGINT", [0, -1, 2**63 - 1, 2**40]),
        ("TINYINT", [0, -128, 127]),
        ("SMALLINT", [0, -1, 300]),
        ("STRING", ["", "a", "sevenby", "eight by", "élève", "😀😀", "x" * 50]),
        ("BYTES", [b"", b"\x00", b"1234567", b"12345678", b"\xff" * 20]),
        ("DECIMAL(9, 2)", [Decimal("0.00"), Decimal("-1.28"), Decimal("9999999.99")]),
        ("DECIMAL(30, 5)", [Decimal("0.00000"), Decimal("1.00000"), Decimal("-0.00128"), Decimal("9" * 25 + ".99999")]),
        ("DATE", [datetime.date(2024, 2, 29), datetime.date(1900, 1, 1)]),
        ("TIME(3)", [datetime.time(0), datetime.time(23, 59, 59, 999000)]),
        ("TIMESTAMP(3)", [NOON.replace(microsecond=789000), BEFORE_EPOCH.replace(microsecond=0)]),
        ("TIMESTAMP(6)", [NOON, BEFORE_EPOCH]),
        ("BOOLEAN", [True, False]),
        ("DOUBLE", [0.0, 1.5, -1e300]),
        ("FLOAT", [0.0, 1.5, -2.25]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_key_of_any_type_has_one_bucket_for_everybody(
    tmp_path: Path, assert_peers_agree: Agreement, java_peer: JavaPeer, kind: str, values: Sequence[Any]
) -> None:
    """A key that two writers put into two buckets would be two rows."""
    definition = TableDefinition(
        columns=[("k", f"{kind} NOT NULL"), ("v", "STRING")], primary_key=["k"], options={"bucket": "7"}
    )
    FLUVIAL.create(tmp_path, "db.t", definition)
    writers: list[Peer] = [FLUVIAL, java_peer, FLUVIAL]
    for turn, writer in enumerate(writers):
        rows = rows_of(definition, [{"k": value, "v": f"{writer.name} {turn}"} for value in values])
        writer.write(tmp_path, "db.t", rows)
        assert assert_peers_agree(root_of(tmp_path)) == normalise(rows)


CONDITIONS: list[list[Condition]] = [
    [("whole", ">=", 0)],
    [("whole", "<", -5)],
    [("whole", "=", 2**31 - 1)],
    [("whole", "<>", 0)],
    [("whole", "in", [0, 7])],
    [("whole", "is_null", None)],
    [("whole", "is_not_null", None)],
    [("big", ">", 0), ("big", "<=", 2**63 - 1)],
    [("txt", "=", "héllo 😀")],
    [("txt", ">", "a" * 99)],
    [("txt", "starts_with", "hé")],
    [("d9", "<", Decimal("0.00"))],
    [("d38", ">", Decimal("1"))],
    [("day", ">=", datetime.date(2024, 2, 29))],
    [("ts6", "=", NOON)],
    [("ts3", "<", NOON.replace(microsecond=790000))],
    [("flag", "=", True)],
    [("dbl", ">", 1.0)],
    [("small", "<", 0), ("txt", "is_not_null", None)],
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_key_table", [True, False])
@pytest.mark.parametrize("mode", ["truncate(16)", "full", "none", "counts"])
def test_filters_that_java_applies_to_our_statistics_lose_no_row(
    tmp_path: Path, java_peer: JavaPeer, is_key_table: bool, mode: str
) -> None:
    """Java prunes files by the statistics that Fluvial wrote, in any mode: wrong ones would lose rows silently."""
    columns = [("id", "INT NOT NULL"), *((name, kind) for name, kind, _ in TYPES)]
    definition = TableDefinition(
        columns=columns,
        primary_key=["id"] if is_key_table else [],
        options={"bucket": "2" if is_key_table else "-1", "metadata.stats-mode": mode},
    )
    FLUVIAL.create(tmp_path, "db.t", definition)
    for row in typed_rows():  # a file each, so that there is something to prune
        FLUVIAL.write(tmp_path, "db.t", rows_of(definition, [row]))
    for where in [*CONDITIONS, [("id", "=", 2)], [("id", ">", 1)]]:
        ours = FLUVIAL.read(tmp_path, "db.t", columns=["id"], where=where)
        assert java_peer.read(tmp_path, "db.t", columns=["id"], where=where) == ours, where
    FLUVIAL.compact(tmp_path, "db.t")
    for where in CONDITIONS:
        ours = FLUVIAL.read(tmp_path, "db.t", columns=["id"], where=where)
        assert java_peer.read(tmp_path, "db.t", columns=["id"], where=where) == ours, where
