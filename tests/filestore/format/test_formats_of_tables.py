"""Formats, codecs and layouts of files, in any mixture: the rows of a table are always the same."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc

from filestore.changelog.snapshot_changes import plan_changes, read_changes
from filestore.manifest.entries import DataFileMeta
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.snapshot import CommitKind
from filestore.table import FileTable
from lsm.errors import InvalidInputError
from lsm.row_kind import RowKind
from tests.support.tables import memory_catalog

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(9, 2)), ("tags", pa.list_(pa.int32()))]
)
FORMATS = st.sampled_from(["parquet", "orc", "avro"])
PARQUET_CODECS = st.sampled_from(["zstd", "snappy", "none"])  # all formats have them


def table_with(options: Mapping[str, str], *, key: bool = True) -> FileTable:
    keyed = {"bucket": "1", "num-sorted-run.compaction-trigger": "2"} if key else {}
    return memory_catalog().create_table(
        "db.t", SCHEMA, primary_key=["id"] if key else [], options={**keyed, **options}
    )


def version_rows(ids: list[int], version: int) -> pa.Table:
    rows = [
        {"id": each, "name": f"n{each}-{version}", "price": Decimal(each) / 4 + version, "tags": [each, None]}
        for each in ids
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def per_level(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.dictionaries(st.integers(0, 3), values, min_size=1).map(
        lambda levels: ",".join(f"{level}:{word}" for level, word in levels.items())
    )


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "file.format": FORMATS,
        "file.format.per.level": per_level(FORMATS),
        "file.compression": PARQUET_CODECS,
        "file.compression.per.level": per_level(PARQUET_CODECS),
        "file.compression.zstd-level": st.sampled_from(["1", "9"]),
        "file.block-size": st.sampled_from(["1 kb", "1 mb"]),
        "data-file.thin-mode": st.sampled_from(["true", "false"]),
        "file.suffix.include.compression": st.sampled_from(["true", "false"]),
        "metadata.stats-mode": st.sampled_from(["none", "counts", "full"]),
        "metadata.stats-mode.per.level": per_level(st.sampled_from(["none", "counts", "full", "truncate(2)"])),
        "target-file-size": st.sampled_from(["1 b", "1 gb"]),
        "file-index.bloom-filter.columns": st.sampled_from(["id", "name"]),
        "changelog-file.format": FORMATS,
        "changelog-file.compression": PARQUET_CODECS,
        "changelog-file.stats-mode": st.sampled_from(["none", "full"]),
        "changelog-file.prefix": st.sampled_from(["cl-"]),
    },
)
HISTORY = st.lists(
    st.tuples(
        st.lists(st.integers(0, 12), min_size=1, max_size=6, unique=True), st.sampled_from(["", "minor", "full"])
    ),
    min_size=1,
    max_size=5,
)


def append_snapshots(table: FileTable) -> list[int]:
    """The snapshots of writes. Between them each table compacts by the sizes of its own files."""
    return [
        each
        for each in table.store.snapshots.ids()
        if table.store.snapshots.read(each).commit_kind is CommitKind.APPEND
    ]


def changes_of(table: FileTable, snapshot_id: int) -> list[tuple[Any, ...]]:
    """Every change that the changelog of a snapshot tells, in order."""
    before = table.store.snapshots.read(snapshot_id - 1) if snapshot_id > 1 else None
    found: list[tuple[Any, ...]] = []
    for split in plan_changes(table.store, before, table.store.snapshots.read(snapshot_id)):
        for batch, kinds in read_changes(table, split):
            rows = batch.select(["id", "name"]).to_pylist()
            found += [(kind, *row.values()) for kind, row in zip(kinds.to_pylist(), rows, strict=True)]
    return found


def folded_names(table: FileTable) -> dict[int, str]:
    """The names by id that all changes of a table with one bucket add up to."""
    names: dict[int, str] = {}
    for snapshot_id in table.store.snapshots.ids():
        for kind, row_id, name in changes_of(table, snapshot_id):
            if RowKind(kind).is_retract:
                assert names.pop(row_id) == name
            else:
                names[row_id] = name
    return names


@pytest.mark.long
@pytest.mark.sweep
@settings(max_examples=30, deadline=None)
@given(OPTIONS, HISTORY, st.sampled_from(["none", "input", "full-compaction"]), st.booleans())
def test_a_table_reads_the_same_whatever_its_files_are(
    options: Mapping[str, str], history: list[tuple[list[int], str]], producer: str, key: bool
) -> None:
    """FL-145: written, merged, compacted, in changelogs, filtered, and at every older snapshot."""
    reported = {"changelog-producer": producer} if key else {}
    own = {each: text for each, text in options.items() if key or not each.startswith("changelog-file")}
    table, usual = table_with({**own, **reported}, key=key), table_with(reported, key=key)
    for version, (ids, compaction) in enumerate(history):
        for each in (table, usual):
            each.write(version_rows(ids, version))
            if compaction:
                each.compact(full=compaction == "full")
    for ours, theirs in zip(append_snapshots(table), append_snapshots(usual), strict=True):
        found = [
            each.read(snapshot_id=snapshot_id).to_arrow().sort_by("name")
            for each, snapshot_id in ((table, ours), (usual, theirs))
        ]
        assert found[0].equals(found[1])
        if producer == "input" and key:
            assert sorted(changes_of(table, ours)) == sorted(changes_of(usual, theirs))
    for where in ("id = 3", "name >= 'n5'", "price between 2 and 3 or id in (1, 12)"):
        found = [each.read().to_arrow(filter=where).sort_by("name") for each in (table, usual)]
        assert found[0].equals(found[1])
    if producer == "full-compaction" and key:
        table.compact(full=True)
        rows = table.read().to_arrow()
        assert folded_names(table) == dict(zip(*rows.select(["id", "name"]).to_pydict().values(), strict=True))


def files_of(table: FileTable) -> list[tuple[bytes, DataFileMeta]]:
    live = LiveFiles.latest(table.store)
    return [
        (table.store.io.read_bytes(table.store.file_path(key.partition, key.bucket, file)), file)
        for key in live.buckets()
        for file in live.files(key)
    ]


def test_levels_have_formats_codecs_and_statistics_of_their_own() -> None:
    """file.format.per.level, file.compression.per.level, metadata.stats-mode.per.level, and names that say so."""
    table = table_with(
        {
            "file.format.per.level": "0:avro",
            "file.compression.per.level": "2:snappy,3:none",
            "metadata.stats-mode.per.level": "0:none",
            "num-levels": "3",
            "file.suffix.include.compression": "true",
        }
    )
    table.write(version_rows([1, 2], 0))
    [(_, flushed)] = files_of(table)
    assert flushed.file_name.endswith(".zst.avro")
    assert flushed.value_stats_cols == ()
    table.write(version_rows([2, 3], 1))
    table.compact(full=True)
    [(body, compacted)] = files_of(table)
    assert compacted.file_name.endswith(".snappy.parquet")
    assert pq.ParquetFile(pa.BufferReader(body)).metadata.row_group(0).column(0).compression == "SNAPPY"
    assert compacted.value_stats_cols != ()


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_blocks_are_as_large_as_asked_for(file_format: str) -> None:
    """file.block-size: row groups of Parquet, stripes of ORC."""

    def blocks(**options: str) -> int:
        table = memory_catalog().create_table(
            "db.t", pa.schema([("a", pa.int64()), ("b", pa.float64())]), options={"file.format": file_format, **options}
        )
        numbers = list(range(200_000))
        table.write(pa.table({"a": numbers, "b": [each * 0.37 for each in numbers]}))
        [(body, _)] = files_of(table)
        source = pa.BufferReader(body)
        return int(
            pq.ParquetFile(source).metadata.num_row_groups if file_format == "parquet" else orc.ORCFile(source).nstripes
        )

    assert blocks(**{"file.block-size": "256 kb"}) > 1
    assert blocks(**{"file.block-size": "64 mb"}) == 1


def test_thin_files_leave_out_the_key() -> None:
    """data-file.thin-mode: smaller, with the same statistics."""
    thin, usual = table_with({"data-file.thin-mode": "true"}), table_with({})
    for table in (thin, usual):
        table.write(version_rows([3, 1, 2], 0))
    [(thin_body, thin_file)], [(usual_body, usual_file)] = files_of(thin), files_of(usual)
    assert pq.read_schema(pa.BufferReader(thin_body)).names == [
        each for each in pq.read_schema(pa.BufferReader(usual_body)).names if not each.startswith("_KEY_")
    ]
    assert thin_file.key_stats == usual_file.key_stats
    assert (thin_file.min_key, thin_file.max_key) == (usual_file.min_key, usual_file.max_key)


def test_unknown_formats_of_levels_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"file\.format\.per\.level value='0:csv'"):
        table_with({"file.format.per.level": "0:csv"})
