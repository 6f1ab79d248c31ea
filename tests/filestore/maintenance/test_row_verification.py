"""Every row is read, and what the manifests say of it is compared: nothing is said of a good table. (FL-14)"""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filestore.maintenance.row_verification import verify_rows
from filestore.maintenance.verification import Finding
from filestore.manifest.entries import DataFileMeta
from filestore.scan import live_files
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from lsm.errors import CorruptDataError
from tests.support.tables import key_table, memory_catalog, rows, stored_rows


def findings(table: FileTable) -> list[Finding]:
    return list(verify_rows(table.store, progress=lambda done, of: None))


def some_table() -> FileTable:
    table = key_table(bucket="2", changelog_producer="input")
    table.write(rows(*((each, each * 10) for each in range(100))))
    create_tag(table.store, "eod")
    table.write(rows((7, None), (3, 1)), kinds=pa.array(["-D", "+U"]))
    return table


def test_good_tables_have_no_findings() -> None:
    table = some_table()
    assert findings(table) == []
    table.compact(full=True)
    table.write(rows((1, 5)))
    assert findings(table) == []
    assert findings(key_table(bucket="1")) == []


@pytest.mark.parametrize("options", [{"bucket": "-1"}, {"file.format": "orc"}, {"file.format": "avro"}])
def test_values_of_many_types_are_inside_their_statistics(options: dict[str, str]) -> None:
    columns = {
        "i": pa.array([3, None, -1], pa.int64()),
        "f": pa.array([float("nan"), -0.0, 1.5]),
        "t": pa.array(["x" * 40, "ü", None]),
        "b": pa.array([b"\xff" * 40, b"", None]),
        "at": pa.array([0 if "file.format" in options else -1, None, 5], pa.timestamp("ms")),
        "d": pa.array([0, 1, None], pa.int32()).cast(pa.date32()),
        "n": pa.array([None, None, None], pa.int32()),
        "l": pa.array([[1], None, []], pa.list_(pa.int32())),
        "o": pa.array([True, False, None]),
    }
    data = pa.table(columns)
    table = memory_catalog().create_table("db.t", data.schema, options=options)
    table.write(data)
    assert findings(table) == []


def test_a_flipped_byte_is_found_and_the_other_files_are_still_read() -> None:
    table = some_table()
    live = LiveFiles.latest(table.store)
    paths = [table.store.file_path(*key, file) for key in live.all_buckets() for file in live.files(key)]
    for path in paths[:2]:
        body = bytearray(table.store.io.read_bytes(path))
        values = pq.ParquetFile(io.BytesIO(body)).metadata.row_group(0).column(4)
        body[values.data_page_offset + values.total_compressed_size - 1] ^= 1  # the last byte of ``v``
        table.store.io.replace(path, bytes(body))
    found = findings(table)
    assert len(found) == 2
    assert all(any(path in each.problem for path in paths[:2]) for each in found)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "rows": ({"row_count": 51}, "rows=.* manifest=51"),
    "retracts": ({"delete_row_count": 9}, "retracts=.* manifest=9"),
    "sequence": ({"max_sequence_number": 10_000}, r"sequence_numbers=.* manifest=\(.*10000"),
    "first key": ({"min_key": None}, "first_key="),
    "bounds": ({"value_stats": None}, r"column=v values=\[.* manifest="),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_a_manifest_says_wrongly_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, (changed, message) = some_table(), WRONG[kind]
    live = LiveFiles.latest(table.store)
    (first, *_, other) = [file for key in live.all_buckets() for file in live.files(key)]
    lies = {name: getattr(other, name) if value is None else value for name, value in changed.items()}
    real: Callable[[LiveFiles, Any], Any] = LiveFiles.files

    def lying(self: LiveFiles, key: Any) -> list[DataFileMeta]:
        return [replace(each, **lies) if each.file_name == first.file_name else each for each in real(self, key)]

    monkeypatch.setattr(live_files.LiveFiles, "files", lying)
    found = findings(table)
    assert found
    assert any(re.search(message, each.problem) for each in found)


def test_rows_out_of_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from filestore.maintenance import row_verification

    table = key_table(bucket="1")
    table.write(rows((1, 1), (2, 2), (3, 3)))
    real = row_verification.read_data_file

    def swapped(*given: Any, **named: Any) -> Any:
        for batch in real(*given, **named):
            yield batch.take(pa.array([1, 0, 2]))

    monkeypatch.setattr(row_verification, "read_data_file", swapped)
    assert any("not in the order of their keys" in each.problem for each in findings(table))


def test_checksums_are_verified_unless_the_table_says_otherwise() -> None:
    """A flipped bit in a column of doubles, which every decoder takes."""
    data = pa.table({"f": [float(each) for each in range(1000)]})
    table = memory_catalog().create_table(
        "db.t", data.schema, options={"bucket": "-1", "file.compression": "none", "metadata.stats-mode": "none"}
    )
    table.write(data)
    live = LiveFiles.latest(table.store)
    (key,) = live.all_buckets()
    path = table.store.file_path(*key, live.files(key)[0])
    body = bytearray(table.store.io.read_bytes(path))
    column = pq.ParquetFile(io.BytesIO(body)).metadata.row_group(0).column(0)
    body[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    table.store.io.replace(path, bytes(body))
    with pytest.raises(CorruptDataError, match="CRC"):
        stored_rows(table.store)
    unchecked = stored_rows(table.with_options({"read.verify-checksums": "false"}).store)
    assert unchecked.num_rows == 1000
    assert not unchecked.equals(data)
    assert len(findings(table.with_options({"read.verify-checksums": "false"}))) == 1, "verify --rows always looks"
