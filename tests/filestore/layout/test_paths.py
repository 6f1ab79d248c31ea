from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.io.file_io import LocalFileIO, RandomNames
from filestore.layout.paths import TablePaths, escape_path, partition_path
from filestore.manifest.entries import ManifestEntry
from filestore.manifest.manifest_store import ManifestStore
from filestore.options.table_options import TableOptions
from filestore.schema.schema_store import SchemaStore
from filestore.snapshot.snapshot_store import SnapshotStore
from filestore.types.binary_row import decode_row
from filestore.types.data_types import DataField, parse_data_type
from filestore.types.partition_text import partition_text
from lsm.errors import InvalidInputError
from tests.support.vectors import PROPERTY, golden_tables

LEGACY = TableOptions.parse({})
PLAIN = TableOptions.parse({"partition.legacy-name": "false"})
MOMENT_MS = 1709210096789  # 2024-02-29 12:34:56.789

TEXTS: list[tuple[str, Any, str, str]] = [
    ("DATE", 19782, "19782", "2024-02-29"),
    ("TIMESTAMP(3)", MOMENT_MS, "2024-02-29T12:34:56.789", "2024-02-29 12:34:56.789"),
    ("TIMESTAMP(6)", MOMENT_MS * 1000 + 123, "2024-02-29T12:34:56.789123", "2024-02-29 12:34:56.789123"),
    ("TIMESTAMP(6)", MOMENT_MS * 1000, "2024-02-29T12:34:56.789", "2024-02-29 12:34:56.789000"),
    ("TIMESTAMP(9)", MOMENT_MS * 10**6 + 1, "2024-02-29T12:34:56.789000001", "2024-02-29 12:34:56.789000001"),
    ("TIMESTAMP(0)", 1709210040000, "2024-02-29T12:34", "2024-02-29 12:34:00"),
    ("TIMESTAMP(3)", 1709210040000, "2024-02-29T12:34", "2024-02-29 12:34:00.000"),
    ("TIMESTAMP(3)", -1, "1969-12-31T23:59:59.999", "1969-12-31 23:59:59.999"),
    ("TIMESTAMP(3) WITH LOCAL TIME ZONE", MOMENT_MS, "2024-02-29T12:34:56.789", "2024-02-29 12:34:56.789"),
    ("TIME(3)", 3723004, "3723004", "01:02:03.004"),
    ("TIME(0)", 3723000, "3723000", "01:02:03"),
    ("BOOLEAN", True, "true", "true"),
    ("BOOLEAN", False, "false", "false"),
    ("INT", 7, "7", "7"),
    ("BIGINT", -7, "-7", "-7"),
    ("STRING", "text", "text", "text"),
    ("DECIMAL(10,2)", Decimal("1.50"), "1.50", "1.50"),
    ("DECIMAL(20,0)", Decimal("1E+19"), "10000000000000000000", "10000000000000000000"),
    ("DOUBLE", 1e10, "1.0E10", "1.0E10"),
    ("DOUBLE", 0.001, "0.001", "0.001"),
    ("DOUBLE", 9999999.0, "9999999.0", "9999999.0"),
    ("DOUBLE", 9.9e-4, "9.9E-4", "9.9E-4"),
    ("DOUBLE", -0.0, "-0.0", "-0.0"),
    ("DOUBLE", float("nan"), "NaN", "NaN"),
    ("FLOAT", 0.1, "0.1", "0.1"),
    ("FLOAT", 1e7, "1.0E7", "1.0E7"),
    ("INT", None, "__DEFAULT_PARTITION__", "__DEFAULT_PARTITION__"),
    ("STRING", "", "__DEFAULT_PARTITION__", "__DEFAULT_PARTITION__"),
    ("STRING", " \t\n", "__DEFAULT_PARTITION__", "__DEFAULT_PARTITION__"),
    ("STRING", "\u00a0", "\u00a0", "\u00a0"),  # Java does not count the no-break space
]


def fields_of(*texts: str) -> list[DataField]:
    return [DataField(id=index, name=f"p{index}", type=parse_data_type(text)) for index, text in enumerate(texts)]


@pytest.mark.parametrize(("data_type", "value", "legacy", "plain"), TEXTS)
def test_partition_values_have_javas_text(data_type: str, value: Any, legacy: str, plain: str) -> None:
    assert partition_text(value, parse_data_type(data_type), LEGACY) == legacy
    assert partition_text(value, parse_data_type(data_type), PLAIN) == plain


def test_directories_are_hives() -> None:
    """FL-143."""
    assert partition_path(("2020-08-08",), [DataField(id=0, name="dt", type=parse_data_type("STRING"))], LEGACY) == (
        "dt=2020-08-08"
    )


def test_characters_of_paths_are_escaped() -> None:
    assert escape_path("a b:c/d=e%é") == "a b%3Ac%2Fd%3De%25é"
    assert escape_path("\"#%'*/:=?\\{}[]^\x00\x1f\x7f") == ("%22%23%25%27%2A%2F%3A%3D%3F%5C%7B%7D%5B%5D%5E%00%1F%7F")
    assert partition_path(("x",), [DataField(id=0, name="a=b", type=parse_data_type("STRING"))], LEGACY) == "a%3Db=x"


@pytest.mark.sweep
@PROPERTY
@given(st.text())
def test_an_escaped_text_is_one_directory_name_and_loses_nothing(text: str) -> None:
    escaped = escape_path(text)
    assert not set(escaped) & set("\"#'*/:=?\\{}[]^\n")
    pieces = escaped.split("%")
    assert pieces[0] + "".join(chr(int(each[:2], 16)) + each[2:] for each in pieces[1:]) == text


def entries_of(table: Path) -> Iterator[tuple[TablePaths, ManifestEntry, tuple[object, ...]]]:
    io = LocalFileIO()
    schema = SchemaStore(io, TablePaths(str(table))).latest()
    assert schema is not None
    paths = TablePaths(str(table)).with_layout(schema.partition_fields, schema.table_options)
    types = [field.type for field in schema.partition_fields]
    manifests = ManifestStore(io, paths, RandomNames(), partition_types=types)
    snapshot = SnapshotStore(io, paths).latest()
    assert snapshot is not None
    for meta in manifests.read_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size):
        for entry in manifests.read_manifest(meta):
            yield paths, entry, decode_row(entry.partition, types)


@pytest.mark.parametrize("table", golden_tables(), ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_files_of_every_writer_are_where_their_metadata_says(table: Path) -> None:
    """FL-143, FL-144: partitions of eleven types, legacy names and plain ones."""
    found = 0
    for paths, entry, partition in entries_of(table):
        assert (
            Path(paths.data_file(partition, entry.bucket, entry.file.file_name)).stat().st_size == entry.file.size_bytes
        )
        found += 1
    assert found or table.name in ("decoupled", "stream", "app_branches", "evol", "rowtrack")


def test_a_bucket_is_a_directory_below_its_partition() -> None:
    """FL-144."""
    paths = TablePaths("/w/db.db/t").with_layout(fields_of("STRING", "INT"), LEGACY)
    assert paths.bucket_dir(("a/b", 3), 2) == "/w/db.db/t/p0=a%2Fb/p1=3/bucket-2"
    assert TablePaths("/t").bucket_dir((), 0) == "/t/bucket-0"
    assert TablePaths("/t").bucket_dir((), -1) == "/t/bucket-0"
    assert TablePaths("/t").bucket_dir((), -2) == "/t/bucket-postpone"


def test_a_directory_may_stand_before_the_partitions() -> None:
    paths = TablePaths("/t").with_layout(fields_of("INT"), TableOptions.parse({"data-file.path-directory": "data/"}))
    assert paths.data_file((1,), 0, "x.parquet") == "/t/data/p0=1/bucket-0/x.parquet"


def test_branches_share_data_and_manifests() -> None:
    paths = TablePaths("/t").with_branch("b1")
    assert paths.snapshot(3) == "/t/branch/branch-b1/snapshot/snapshot-3"
    assert paths.schema(0) == "/t/branch/branch-b1/schema/schema-0"
    assert paths.tag("x") == "/t/branch/branch-b1/tag/tag-x"
    assert paths.latest_hint == "/t/branch/branch-b1/snapshot/LATEST"
    assert (paths.manifest("m"), paths.index("i"), paths.statistics("s")) == (
        "/t/manifest/m",
        "/t/index/i",
        "/t/statistics/s",
    )
    assert TablePaths("/t").snapshot(3) == "/t/snapshot/snapshot-3"
    assert TablePaths("/t").changelog(3) == "/t/changelog/changelog-3"
    assert TablePaths("/t").consumer("c") == "/t/consumer/consumer-c"


@pytest.mark.parametrize(
    ("values", "types"),
    [((1,), ("INT", "INT")), ((b"x",), ("BYTES",)), (("x",), ("INT",)), ((10**9,), ("DATE",))],
)
def test_values_that_name_no_directory_are_refused(values: tuple[object, ...], types: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInputError):
        partition_path(values, fields_of(*types), PLAIN)
