"""Checkpoints of a Delta copy's log: readers and the next export find the same state with a shorter log.

Oracles: deltalake, which reads and writes checkpoints of its own; Polars' reader of the files that it names.
"""

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from filestore.export.delta import export_delta
from filestore.export.delta_log import read_log
from filestore.export.parts import open_state
from filestore.export.result import Exported, ExportPlace
from filestore.io.file_io import FileIO, LocalFileIO
from filestore.table import FileTable
from lsm.errors import CorruptDataError
from tests.filestore.export.test_export import FilesOfADead, KilledError
from tests.support.faults import ManualClock, MemoryFileIO
from tests.support.tables import key_table, rows

DAY_MS = 86_400_000
NOW_MS = 20_000 * DAY_MS + 5


def export(table: FileTable, root: Path, io: FileIO | None = None, *, now_ms: int = NOW_MS, days: int = 1) -> Exported:
    clock = ManualClock(now_ms)
    place = ExportPlace(io=io or LocalFileIO(), root=str(root), clock=clock, retain_ms=days * DAY_MS)
    return export_delta(open_state(table, "latest"), place, lambda done, of: None)


def exported_table(root: Path, count: int, **more: Any) -> FileTable:
    """A table whose snapshots were all exported."""
    table = key_table(bucket="2")
    write_turns(table, root, range(count), **more)
    return table


def write_turns(table: FileTable, root: Path, turns: Iterable[int], **more: Any) -> None:
    for turn in turns:
        table.write(rows((turn % 7, turn), (100 + turn, None)))
        export(table, root, **more)


def by_other(root: Path, version: int | None = None) -> list[Any]:
    """Rows of deltalake."""
    return sorted(map(tuple, map(dict.values, pa.table(DeltaTable(root, version).to_pyarrow_table()).to_pylist())))


def own(table: FileTable) -> list[Any]:
    return sorted(map(tuple, map(dict.values, table.read().to_arrow().to_pylist())))


def delta_log_of(root: Path) -> list[str]:
    """Names in the log, short: 3c is the checkpoint of version 3."""
    names = {path.name.lstrip("0") for path in (root / "_delta_log").iterdir()}
    return sorted(name.replace(".checkpoint.parquet", "c").removesuffix(".json") or "0" for name in names)


def without_commits(root: Path, last: int) -> None:
    for version in range(last + 1):
        (root / "_delta_log" / f"{version:020d}.json").unlink()


def actions_of(path: Path) -> dict[str, list[Any]]:
    """What a checkpoint says, in a form that does not depend on who wrote it."""
    table = pq.read_table(path)
    found = {}
    for kind in ("protocol", "metaData", "add"):
        values = table[kind].drop_null().to_pylist(maps_as_pydicts="strict")
        known = [{name: value for name, value in each.items() if value not in (None, {})} for each in values]
        found[kind] = sorted(({**each, "dataChange": False} for each in known), key=repr)
    return found


@pytest.mark.sweep
def test_25_exports_have_checkpoints_that_readers_start_from(tmp_path: Path) -> None:
    """Every tenth commit; the newest stands for all before it, and says what a checkpoint of deltalake says."""
    root = tmp_path / "copy"
    table = exported_table(root, 25)
    log = root / "_delta_log"
    assert [name for name in delta_log_of(root) if name.endswith("c")] == ["10c", "20c"]
    last = json.loads((log / "_last_checkpoint").read_text())
    path = log / f"{20:020d}.checkpoint.parquet"
    assert last["version"] == 20
    assert (last["size"], last["sizeInBytes"]) == (pq.read_metadata(path).num_rows, path.stat().st_size)
    before, then = read_log(LocalFileIO(), str(root)), by_other(root, 20)
    without_commits(root, 19)
    assert by_other(root) == own(table)
    assert sorted(pl.read_delta(str(root)).rows()) == own(table)
    assert by_other(root, 20) == then
    found = read_log(LocalFileIO(), str(root))
    assert (found.version, found.checkpoint, found.files, found.removed_ms) == (24, 20, before.files, before.removed_ms)
    other = tmp_path / "other"
    exported_table(other, 21)
    for name in (path.name, "_last_checkpoint"):
        (other / "_delta_log" / name).unlink()
    DeltaTable(other).create_checkpoint()
    assert actions_of(path) == actions_of(other / "_delta_log" / path.name)


@pytest.mark.sweep
def test_killed_around_a_checkpoint_readers_have_a_whole_state_and_the_next_export_goes_on(tmp_path: Path) -> None:
    """At each call between the commit before the checkpoint and the last note of it."""
    start = tmp_path / "start"
    table = exported_table(start, 10)
    states = [own(table)]
    table.write(rows((0, 99)))
    states.append(own(table))
    seen: set[tuple[bool, ...]] = set()
    for at in range(1, 99):
        root = tmp_path / str(at)
        shutil.copytree(start, root)
        dying: Any = FilesOfADead(LocalFileIO(), at)
        try:
            export(table, root, dying)
        except KilledError:
            found = by_other(root)
            seen.add(tuple(name in delta_log_of(root) for name in ("10", "10c", "_last_checkpoint")))
        else:
            break
        assert found in states
        export(table, root)
        assert by_other(root) == sorted(pl.read_delta(str(root)).rows()) == states[1]
        assert {"10", "10c"} <= {*delta_log_of(root)}
    assert seen >= {(False, False, False), (True, False, False), (True, True, False)}


def test_a_checkpoint_of_another_engine_stands_for_the_commits_that_it_cleaned(tmp_path: Path) -> None:
    root = tmp_path / "copy"
    table = exported_table(root, 4)
    DeltaTable(root).create_checkpoint()
    without_commits(root, 3)
    table.write(rows((1, 77)))
    done = export(table, root)
    assert done.kept + done.written == len(open_state(table, "latest").plan().splits)
    assert by_other(root) == own(table)
    assert delta_log_of(root) == ["3c", "4", "_last_checkpoint"]
    (root / "_delta_log" / f"{3:020d}.checkpoint.parquet").write_bytes(b"PAR1")
    with pytest.raises(CorruptDataError, match=r"a checkpoint of the copy cannot be read: path=.*fix='export to a new"):
        export(table, root)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("after_midnight_ms", "asked", "is_cleaned"),
    [(0, {}, True), (1, {}, False), (0, {"delta.enableExpiredLogCleanup": "false"}, False)],
    ids=["old", "young", "asked"],
)
def test_the_log_is_cleaned_as_delta_does_unless_another_engine_was_asked_to(
    after_midnight_ms: int, asked: dict[str, str], is_cleaned: bool, tmp_path: Path
) -> None:
    """What is before the checkpoint that the oldest state of 30 days needs; its days begin at midnight."""
    root = tmp_path / "copy"
    table = exported_table(root, 11)
    for version in range(11):
        at = NOW_MS // DAY_MS * DAY_MS - 30 * DAY_MS - (10 - version) * 1_000 + after_midnight_ms
        os.utime(root / "_delta_log" / f"{version:020d}.json", ns=(0, at * 1_000_000))
    turns = range(11, 21)
    if asked:
        DeltaTable(root).alter.set_table_properties(asked)
        turns = range(12, 21)
    write_turns(table, root, turns)
    gone = range(10) if is_cleaned else ()
    kept = {str(version) for version in range(21) if version not in gone} | {"10c", "20c", "_last_checkpoint"}
    assert {*delta_log_of(root)} == kept
    assert by_other(root) == own(table)
    assert DeltaTable(root, 10).version() == 10


@pytest.mark.sweep
def test_a_removed_part_is_deleted_also_when_only_a_checkpoint_knows_of_it(tmp_path: Path) -> None:
    root = tmp_path / "copy"
    table = exported_table(root, 11, days=10)
    parts = {path.name for path in root.glob("part-*")}
    without_commits(root, 10)
    export(table, root, now_ms=NOW_MS + 9 * DAY_MS, days=10)
    assert {path.name for path in root.glob("part-*")} == parts
    export(table, root, now_ms=NOW_MS + 11 * DAY_MS, days=10)
    live = {part.rpartition("/")[2] for part in DeltaTable(root).file_uris()}
    assert {path.name for path in root.glob("part-*")} == live < parts


@pytest.mark.sweep
def test_a_checkpoint_has_the_removed_parts_of_seven_days_or_of_the_retention(tmp_path: Path) -> None:
    """Seven days as Delta, longer where the files themselves stay longer."""
    for days, since in ((1, 4), (9, 2)):  # the clock moves on while an export runs
        root = tmp_path / str(days)
        table = key_table(bucket="1")
        for day in range(11):
            write_turns(table, root, [day], now_ms=NOW_MS + day * DAY_MS, days=days)
        rows_of = pq.read_table(root / "_delta_log" / f"{10:020d}.checkpoint.parquet")["remove"].drop_null().to_pylist()
        assert sorted({(each["deletionTimestamp"] - NOW_MS) // DAY_MS for each in rows_of}) == [*range(since, 11)]


@pytest.mark.sweep
def test_what_has_no_place_in_a_checkpoint_keeps_the_log_whole(tmp_path: Path) -> None:
    """Another engine's application transaction: readers find it in its commit, so no checkpoint hides that."""
    root = tmp_path / "copy"
    table = exported_table(root, 1)
    name = root / "_delta_log" / f"{1:020d}.json"
    name.write_text(json.dumps({"txn": {"appId": "stream", "version": 7}}) + "\n")
    write_turns(table, root, range(1, 13))
    assert not [each for each in delta_log_of(root) if each.endswith("c")]
    assert DeltaTable(root).transaction_version("stream") == 7


def test_checkpoints_in_an_object_store() -> None:
    io, root = MemoryFileIO(), Path("s3:/bucket/copy")
    table = key_table(bucket="1")
    for turn in range(12):
        table.write(rows((turn, turn)))
        export(table, root, io)
    names = [path.rpartition("/")[2] for path in io.files if "_delta_log" in path]
    assert f"{10:020d}.checkpoint.parquet" in names
    assert read_log(io, str(root)).checkpoint == 10
