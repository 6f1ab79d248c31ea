"""export, by Python, SQL and the shell."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from engine import Table
from engine.cli.app import run_command
from engine.procedures import create_tag, export
from lsm.errors import InvalidInputError
from tests.engine.procedures.conftest import Call
from tests.support.rows import row_set


def test_a_copy_follows_the_table(new_table: Callable[..., Table], call: Call, tmp_path: Path) -> None:
    table = new_table()
    create_tag(table, "eod")
    path = str(tmp_path / "copy")
    (dry,) = call("export", path=path, dry_run=True)
    assert (dry["format"], dry["snapshot_id"], dry["rows"]) == ("delta", 2, None)
    assert not (tmp_path / "copy").exists()
    (done,) = call("export", path=path)
    assert (done["written"], done["kept"], done["rows"]) == (dry["written"], 0, 3)
    gone = table.read().to_arrow(filter="id <= 2")
    table.write(gone.append_column("_row_kind", pa.array(["-D"] * 2)))
    (done,) = call("export", path=path, retain="0 s")
    assert done["rows"] == 1
    read = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert {tuple(row.values()) for row in read} == row_set(table)
    (done,) = call("export", path=path, version="eod")
    assert (done["snapshot_id"], done["rows"]) == (2, 3)
    (done,) = call("export", path=str(tmp_path / "plain"), format="parquet")
    found = ds.dataset(str(Path(done["path"]))).to_table().to_pylist()
    assert {tuple(row.values()) for row in found} == row_set(table)


def test_progress_and_errors(
    new_table: Callable[..., Table], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = new_table()
    seen: list[tuple[int, int | None]] = []
    export(table, str(tmp_path / "copy"), progress=lambda done, of: seen.append((done, of)))
    assert seen[0] == (0, seen[-1][0])
    assert [done for done, _ in seen] == list(range(len(seen)))
    with pytest.raises(InvalidInputError, match="absolute path"):
        export(table, "copy")
    with pytest.raises(InvalidInputError, match="no such version"):
        export(table, str(tmp_path / "copy"), version="eod")
    warehouse = str(Path(table.store.paths.root).parents[1])
    command = ["export", "shop.orders", "--path", str(tmp_path / "copy"), "--warehouse", warehouse, "--json"]
    assert run_command(command) == 0
    (row,) = json.loads(capfd.readouterr().out)["rows"]
    assert (row["written"], row["rows"]) == (0, 3)
