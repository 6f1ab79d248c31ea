"""migrate_table: directories of Parquet files become tables, by Python, SQL and the shell."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from engine import Catalog
from engine.procedures import compact, migrate_table
from filestore.io import file_io as effects
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError
from tests.engine.procedures.conftest import Call
from tests.peers.agreement import Agreement

ROWS = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "name": ["a", None, "c"],
        "price": pa.array([Decimal("1.50"), Decimal("-2.25"), None], pa.decimal128(10, 2)),
        "day": pa.array([dt.date(2024, 1, 31), None, dt.date(1969, 12, 31)]),
        "at": pa.array([1, None, -1], pa.timestamp("us")),
        "raw": pa.array([b"x", b"", None], pa.large_binary()),
    }
)
PLAIN = ROWS.set_column(5, "raw", ROWS["raw"].cast(pa.binary()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of the same columns, as pyarrow writes them."""
    place = tmp_path / "theirs"
    (place / "deeper").mkdir(parents=True)
    pq.write_table(ROWS, place / "a.parquet")
    pq.write_table(ROWS.slice(0, 1), place / "deeper" / "b.parquet", compression="snappy", use_dictionary=False)
    (place / "_SUCCESS").touch()
    (place / ".hidden.crc").write_bytes(b"x")
    return place


def stored(catalog: Catalog, name: str = "db.t") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = catalog.table(name).read().to_arrow().to_pylist()
    return sorted(rows, key=repr)


def all_rows(*tables: pa.Table) -> list[dict[str, Any]]:
    return sorted((row for table in tables for row in table.to_pylist()), key=repr)


def data_files(catalog: Catalog) -> list[Path]:
    return sorted(Path(catalog.table("db.t").store.paths.root).glob("**/data-*"))


def test_plain_files_become_the_tables_own_without_a_copy(catalog: Catalog, call: Call, folder: Path) -> None:
    would = call("migrate_table", source=str(folder), target_table="db.t", dry_run=True)
    assert [(Path(each["file"]).name, each["way"], each["rows"]) for each in would] == [
        ("a.parquet", "taken", 3), ("b.parquet", "taken", 1),
    ]  # fmt: skip
    assert catalog.list_databases() == []
    done = call("migrate_table", source=str(folder), target_table="db.t")
    assert done == [{**each, "snapshot_id": 1} for each in would]
    assert stored(catalog) == all_rows(PLAIN, PLAIN.slice(0, 1))
    assert {path.stat().st_ino for path in data_files(catalog)} == {
        path.stat().st_ino for path in folder.rglob("*.parquet")
    }
    table = catalog.table("db.t")
    assert table.read().to_arrow(filter="id = 2").num_rows == 1
    table.write(PLAIN.slice(1, 1))
    compact(table, compact_strategy="full")
    assert stored(catalog) == all_rows(PLAIN, PLAIN.slice(0, 1), PLAIN.slice(1, 1))
    with pytest.raises(InvalidInputError, match="table exists"):
        migrate_table(catalog, str(folder), "db.t")


def test_bytes_are_copied_where_a_second_name_cannot_be(
    catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects.LocalFileIO, "link_file", lambda *_: False)
    migrate_table(catalog, str(folder), "db.t")
    monkeypatch.undo()
    migrate_table(catalog, str(folder), "db.u", copy_files=True)
    assert stored(catalog) == stored(catalog, "db.u") == all_rows(PLAIN, PLAIN.slice(0, 1))
    theirs = {path.stat().st_ino for path in folder.rglob("*.parquet")}
    assert not theirs & {path.stat().st_ino for path in Path(catalog.warehouse).rglob("data-*")}


def test_directories_become_partitions(catalog: Catalog, tmp_path: Path) -> None:
    """As Hive writes them: escaped names, the null partition, columns that are not in the files."""
    base = tmp_path / "hive"
    values = {"dt=2024-01-31/what=a%2Fb": 1, "dt=2024-02-01/what=__HIVE_DEFAULT_PARTITION__": 2}
    for place, number in values.items():
        (base / place).mkdir(parents=True)
        pq.write_table(pa.table({"id": [number]}), base / place / "part-0.parquet")
    done = migrate_table(catalog, str(base), "db.t", partition_types="dt DATE").to_pylist()
    assert {each["way"] for each in done} == {"written"}
    assert catalog.table("db.t").schema.partition_keys == ("dt", "what")
    assert stored(catalog) == [
        {"id": 1, "dt": dt.date(2024, 1, 31), "what": "a/b"},
        {"id": 2, "dt": dt.date(2024, 2, 1), "what": None},
    ]
    for text, reason in (
        ("day DATE", "not a partition column"),
        ("what INT", "not a value of the column: column=what"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            migrate_table(catalog, str(base), "db.u", partition_types=text)
    assert catalog.list_tables("db") == ["t"]


def test_a_key_takes_the_row_of_the_last_file(catalog: Catalog, tmp_path: Path) -> None:
    for number in range(3):
        rows = pa.table({"id": pa.array([1, number + 2], pa.int32()), "v": [number, number]})
        pq.write_table(rows, tmp_path / f"f{number}.parquet")
    (tmp_path / "sub").mkdir()
    done = migrate_table(catalog, str(tmp_path), "db.t", primary_key="id", options="bucket=2, file.compression=lz4")
    assert {each["way"] for each in done.to_pylist()} == {"written"}
    schema = catalog.table("db.t").schema
    assert (schema.primary_keys, schema.options["bucket"], schema.options["file.compression"]) == (("id",), "2", "lz4")
    assert sorted((row["id"], row["v"]) for row in stored(catalog)) == [(1, 2), (2, 0), (3, 1), (4, 2)]


@pytest.mark.parametrize("is_int96", [True, False])
def test_what_others_may_store_in_another_way_is_written_anew(catalog: Catalog, tmp_path: Path, is_int96: bool) -> None:
    """Nested columns, nanoseconds, and files without one of the columns."""
    nested = pa.table({"id": [1], "tags": [["x"]], "at": pa.array([5_999], pa.timestamp("ns"))})
    pq.write_table(nested, tmp_path / "a.parquet", use_deprecated_int96_timestamps=is_int96)
    pq.write_table(pa.table({"id": [2]}), tmp_path / "b.parquet")
    done = migrate_table(catalog, str(tmp_path), "db.t").to_pylist()
    assert [each["way"] for each in done] == ["written", "written"]
    found = stored(catalog)
    at = dt.datetime(1970, 1, 1, microsecond=5)
    assert [tuple(row.values()) for row in found] == [(1, ["x"], at), (2, None, None)]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda place: None, "no Parquet file below"),
        (lambda place: (place / "x.parquet").write_bytes(b"no"), "not a Parquet file: file=.*x.parquet"),
        (
            lambda place: [pq.write_table(pa.table({"a": v}), place / f"{i}.p") for i, v in enumerate([[1], ["x"]])],
            "a column has two types: column=a type=int64 .*other_type=string",
        ),
        (lambda place: pq.write_table(pa.table({"a": pa.array([1], pa.uint64())}), place / "u.p"), "uint64"),
    ],
)
def test_what_cannot_be_a_table_leaves_nothing(
    catalog: Catalog, tmp_path: Path, make: Callable[[Path], object], reason: str
) -> None:
    place = tmp_path / "theirs"
    place.mkdir()
    make(place)
    with pytest.raises((InvalidInputError, CorruptDataError), match=reason):
        migrate_table(catalog, str(place), "db.t")
    assert catalog.list_databases() == []


def test_files_of_another_storage_are_refused(catalog: Catalog) -> None:
    with pytest.raises(InvalidInputError, match="not where the warehouse is"):
        migrate_table(catalog, "s3://bucket/dir", "db.t")


def test_a_failure_half_way_leaves_no_table(catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise FluvialError("disk full")

    monkeypatch.setattr("engine.procedures.maintenance.migration.TableCommit.commit", fails)
    with pytest.raises(FluvialError, match="disk full"):
        migrate_table(catalog, str(folder), "db.t")
    assert catalog.list_tables("db") == []
    assert pq.read_table(folder / "a.parquet").num_rows == 3


@pytest.mark.interop
def test_every_paimon_reads_files_that_were_taken(
    catalog: Catalog, folder: Path, assert_peers_agree: Agreement
) -> None:
    migrate_table(catalog, str(folder), "db.t")
    assert len(assert_peers_agree(catalog.table("db.t").store.paths.root)) == 4


def test_files_that_a_constraint_is_about_are_looked_at(catalog: Catalog, tmp_path: Path) -> None:
    place = tmp_path / "theirs"
    place.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "amount": [5, -5]}), place / "a.parquet")
    with pytest.raises(InvalidInputError, match="positive"):
        migrate_table(catalog, str(place), "db.t", options="check.positive=amount >= 0")
    assert catalog.list_databases() == [] or catalog.list_tables("db") == []
    (way,) = migrate_table(catalog, str(place), "db.t", options="check.positive=amount > -9").column("way").to_pylist()
    assert way == "written"
    assert [row["amount"] for row in stored(catalog)] == [5, -5]
