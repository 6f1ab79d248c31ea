"""Tables that Paimon 2.0.0 wrote through Spark: each is read as it reads it itself, or refused by a named option."""

import json
import tarfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from lsm.errors import InvalidInputError

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "paimon-2.0.0-spark"
EXPECTED: Final = {
    f"{warehouse}/d.db/{name}": rows
    for warehouse in ("plain", "rare")
    for name, rows in json.loads((GOLDEN / f"{warehouse}.json").read_text()).items()
}
NOT_READ: Final = {"rare/d.db/row": "file.format"}
NOT_WRITTEN: Final = {"plain/d.db/apde": "data-evolution.enabled"}
MANIFESTS: Final = {"rare/d.db/mfmt": b"ORC", "rare/d.db/mfmtp": b"PAR1"}


def opened_kind(name: str, warehouse: Path) -> FileTable:
    with tarfile.open(GOLDEN / "tables.tar.gz") as archive:
        members = [each for each in archive.getmembers() if each.name.startswith(f"{name}/")]
        archive.extractall(warehouse, members=members, filter="data")
    return FileTable.open("d.t", str(warehouse / name))


def plain_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain_value(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain_value(each) for each in value]
    return str(value.replace(tzinfo=None)) if isinstance(value, datetime) else value


def in_order(rows: Sequence[Any]) -> list[str]:
    return sorted(json.dumps(plain_value(row), sort_keys=True) for row in rows)


def rows_read_from(table: FileTable) -> list[str]:
    return in_order(table.read().to_arrow().to_pylist())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_rows_are_those_that_paimon_2_reads_or_an_option_is_named(name: str, tmp_path: Path) -> None:
    if name in NOT_READ:
        with pytest.raises(InvalidInputError, match=f"option={NOT_READ[name]} "):
            opened_kind(name, tmp_path).read().to_arrow()
    else:
        assert rows_read_from(opened_kind(name, tmp_path)) == in_order(EXPECTED[name])


@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - NOT_READ.keys()))
def test_compaction_and_expiry_leave_the_rows_or_name_an_option(name: str, tmp_path: Path) -> None:
    table = opened_kind(name, tmp_path)
    if name in NOT_WRITTEN:
        with pytest.raises(InvalidInputError, match=f"option={NOT_WRITTEN[name]} "):
            table.write(table.read().to_arrow())
    else:
        waits = table.options.merge_engine == "first-row" or table.options.deletion_vectors_enabled
        expected = rows_read_from(table) if not waits else None
        table.compact(full=True)
        list(expire_snapshots(table.store, Retention(min_count=1, max_count=1, age_ms=0, limit=100)))
        assert len(list((tmp_path / name / "snapshot").glob("snapshot-*"))) == 1
        if expected is not None:
            assert rows_read_from(FileTable.open("d.t", str(tmp_path / name))) == expected


@pytest.mark.parametrize("name", sorted(MANIFESTS))
def test_writers_keep_the_format_of_manifests_that_a_table_has(name: str, tmp_path: Path) -> None:
    table = opened_kind(name, tmp_path)
    rows = table.read().to_arrow()
    table.write(rows.slice(0, 3))
    table.compact(full=True)
    manifests = list((tmp_path / name / "manifest").iterdir())
    assert {each.read_bytes().startswith(MANIFESTS[name]) for each in manifests} == {True}
    assert rows_read_from(FileTable.open("d.t", str(tmp_path / name))) == in_order(EXPECTED[name])
