"""Fluvial, Apache Paimon for Java and pypaimon on one table: all read alike what each wrote, whoever comes after whom.

FL-17: the files are Paimon's layout, so whatever reads Paimon reads Fluvial's tables.
"""

import datetime
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filestore.datatypes import arrow_type, parse_data_type
from lsm.errors import InvalidInputError
from tests.peers import DELETE, INSERT, UPDATE_AFTER, Condition, Peer, Row, TableDefinition, normalise, row_text
from tests.peers.agreement import FLUVIAL, Agreement
from tests.peers.java_peer import JavaPeer
from tests.peers.pypaimon_peer import PyPaimonPeer

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

PLACES = TableDefinition(
    columns=[("pt", "STRING NOT NULL"), ("k", "INT NOT NULL"), ("v", "STRING"), ("n", "DECIMAL(10, 2)")],
    primary_key=["pt", "k"],
    partition_by=["pt"],
    options={"bucket": "2"},
)


def arrow_schema(definition: TableDefinition) -> pa.Schema:
    """Arrow schema of the rows of a table."""
    types = [(name, parse_data_type(kind)) for name, kind in definition.columns]
    return pa.schema([pa.field(name, arrow_type(kind), nullable=kind.nullable) for name, kind in types])


def rows_of(definition: TableDefinition, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows of a table; missing columns are null."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema(definition))


def root_of(warehouse: Path, name: str = "t") -> Path:
    """Directory of a table of database `db`."""
    return warehouse / "db.db" / name


def typed_rows(file_format: str = "parquet") -> list[dict[str, Any]]:
    """Four rows with every type: three with values, one of nulls."""
    rows = [{"id": index, **{name: values[index] for name, _, values in TYPES}} for index in range(3)]
    if file_format == "orc":  # Arrow reads ORC timestamps as nanoseconds in 64 bits, Java shifts those of the year 1
        unsaid = [YEAR_1, YEAR_9999, BEFORE_EPOCH, BEFORE_EPOCH.replace(tzinfo=UTC)]  # see the test below
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
    before = -step if precision <= 6 else -(10**6) * step
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


class Story:
    """One table, many writers, and what must be in it: the newest row of every key."""

    def __init__(self, warehouse: Path, seed: int, java: JavaPeer, pypaimon: PyPaimonPeer) -> None:
        self.warehouse = warehouse
        self.random = random.Random(seed)
        self.java = java
        self.pypaimon = pypaimon
        self.rows: dict[tuple[str, int], dict[str, Any]] = {}
        self.told: list[str] = []

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
            row = {"pt": place, "k": key, "v": f"{peer.name}-{len(self.told)}", "n": number}
            if deletes and self.random.random() < 0.3:
                kinds.append(DELETE)
                self.rows.pop((place, key), None)
            else:
                kinds.append(INSERT)
                self.rows[place, key] = row
            rows.append(row)
        self.told.append(f"{peer.name} writes {len(rows)} rows")
        peer.write(self.warehouse, "db.t", rows_of(PLACES, rows), kinds=kinds)

    def keep(self, what: str, deed: Any) -> None:
        """Something that changes no row."""
        self.told.append(what)
        deed()

    def expected(self) -> list[Row]:
        """The rows that must be there."""
        return normalise(rows_of(PLACES, self.rows.values()))


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
        assert assert_peers_agree(root_of(tmp_path)) == story.expected(), "\n".join(story.told)


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
        assert assert_peers_agree(root_of(tmp_path)) == story.expected(), "\n".join(story.told)


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
    wanted = [{"k": 1, "a": 1, "c": "x", "b": None}, {"k": 2, "a": 2**40, "c": "z", "b": 0.5}]
    assert assert_peers_agree(root_of(tmp_path)) == sorted(wanted, key=row_text)
    FLUVIAL.compact(tmp_path, "db.t")
    assert assert_peers_agree(root_of(tmp_path)) == sorted(wanted, key=row_text)


def test_tags_and_snapshots_of_java_are_travelled_to(
    tmp_path: Path, assert_peers_agree: Agreement, java_peer: JavaPeer
) -> None:
    """TAG-07: a tag outlives its snapshot, whoever made it and whoever expired the snapshot."""
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
