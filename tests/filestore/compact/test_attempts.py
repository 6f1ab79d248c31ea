"""A compaction that killed its process is not tried again unchanged (FL-145)."""

import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from filestore.compact import compactor
from filestore.compact.attempts import ATTEMPT_DIRECTORY, MOST_DEATHS, PAUSE_MS, Deaths, attempt, deaths_of
from filestore.compact.compactor import compact_table, pick_tasks, run_task
from filestore.compact.task import CompactionTask
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable
from tests.support.faults import MemoryFileIO
from tests.support.tables import content, key_table, rows


def table_with_runs(io: MemoryFileIO | None = None, count: int = 3) -> FileTable:
    table = key_table(io or MemoryFileIO(), **{"num-sorted-run.compaction-trigger": "2"})
    for number in range(count):
        table.write(rows((1, number), (number, number)))
    return table


def task_of(table: FileTable, **how: Any) -> CompactionTask:
    [task] = pick_tasks(table.store, LiveFiles.latest(table.store), **how)
    return task


def notes(table: FileTable) -> list[str]:
    return sorted(table.store.io.list_names(f"{table.store.paths.root}/{ATTEMPT_DIRECTORY}"))


def die(table: FileTable, task: CompactionTask, **changes: Any) -> None:
    """Leave the note of a process that was killed: of another machine, long ago, unless ``changes`` say otherwise."""

    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        [name] = set(notes(table)) - before
        path = f"{table.store.paths.root}/{ATTEMPT_DIRECTORY}/{name}"
        note = json.loads(table.store.io.read_bytes(path)) | {"host": "elsewhere"} | changes
        left.append((f"{path}0", json.dumps(note).encode()))
        raise Killed

    before, left = set(notes(table)), list[tuple[str, bytes]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compactor, "_run_task", killed)
        with pytest.raises(Killed):
            run_task(table.store, task)
    for path, body in left:
        table.store.io.write_new(path, body)


def later(table: FileTable, ms: int) -> None:
    table.store.clock.sleep(ms / 1000)


def test_a_task_leaves_no_note_when_it_ends_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_with_runs()
    task = task_of(table)
    with monkeypatch.context() as patch:
        seen: list[list[str]] = []
        patch.setattr(compactor, "_run_task", lambda *_: seen.append(notes(table)) or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_task(table.store, task)
    assert [len(each) for each in seen] == [1]
    assert notes(table) == []
    run_task(table.store, task)
    assert notes(table) == []


def test_each_death_halves_the_memory_of_the_next_attempt() -> None:
    table = table_with_runs()
    for deaths in range(MOST_DEATHS):
        task = task_of(table)
        assert task.deaths == deaths
        assert CompactionTask.from_json(task.to_json()) == task
        with attempt(table.store, replace(task, files=task.files[:1])) as allowed:
            given = allowed.options.sort_spill_buffer_size_bytes
        assert given == 64 * 2**20 >> deaths
        die(table, task)
        later(table, table.options.compaction_lease_timeout_ms)


def test_after_some_deaths_the_files_are_left_alone_for_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    """FL-145: it is reported and not tried at once; a full compaction that is asked for, or other files, are."""
    table = table_with_runs()
    for _ in range(MOST_DEATHS):
        die(table, task_of(table))
        later(table, 1000)
    later(table, table.options.compaction_lease_timeout_ms)
    live = LiveFiles.latest(table.store)
    with caplog.at_level(logging.WARNING, "fluvial.compaction"):
        assert pick_tasks(table.store, live) == []
    assert "deaths=3 next=in an hour" in caplog.text
    assert [each.is_final for each in deaths_of(table.store).values()] == [True]
    assert [task.deaths for task in pick_tasks(table.store, live, full=True, insists=True)] == [MOST_DEATHS]
    later(table, PAUSE_MS)
    assert [task.deaths for task in pick_tasks(table.store, live)] == [MOST_DEATHS]
    assert compact_table(table.store) is not None
    assert (notes(table), deaths_of(table.store)) == ([], {})
    assert content(table) == {0: 0, 1: 2, 2: 2}


def test_new_files_are_tried_as_if_nothing_had_happened() -> None:
    table = table_with_runs()
    die(table, task_of(table))
    later(table, table.options.compaction_lease_timeout_ms)
    assert task_of(table).deaths == 1
    table.write(rows((9, 9)))
    assert task_of(table).deaths == 0


def test_a_compaction_that_is_still_running_is_not_dead() -> None:
    """Of this machine the process is asked for; of others the note's age is all that is known."""
    table = table_with_runs()
    task = task_of(table)
    die(table, task, host=os.uname().nodename)  # the process that runs this test
    later(table, 10 * table.options.compaction_lease_timeout_ms)
    die(table, task)
    assert deaths_of(table.store) == {}
    die(table, task, host=os.uname().nodename, process=f"{os.getpid()}:1")  # an earlier process with its number
    [found] = deaths_of(table.store).values()
    assert (found.count, found.bucket) == (1, 0)


def test_an_attempt_that_gets_no_memory_counts_as_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_with_runs()
    task = task_of(table)

    def fail(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(compactor, "_run_task", fail)
        with pytest.raises(MemoryError):
            run_task(table.store, task)
    assert task_of(table).deaths == 1


def test_what_others_put_beside_the_notes_is_ignored() -> None:
    table = table_with_runs()
    for name, body in {"x": b"", "y-1": b"[]", "z-2": b"{", "w-3": b"{}"}.items():
        table.store.io.write_new(f"{table.store.paths.root}/{ATTEMPT_DIRECTORY}/{name}", body)
    assert deaths_of(table.store) == {}
    assert task_of(table).deaths == 0


_KILLED = """
import os, signal, sys
from filestore.compact import compactor
from filestore.table import FileTable
compactor._run_task = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
compactor.compact_table(FileTable.open("d.t", sys.argv[1]).store, full=True)
"""


@pytest.mark.sweep
def test_a_killed_process_leaves_its_note(tmp_path: Path) -> None:
    from filestore.catalog.catalog import FileCatalog
    from tests.support.tables import KEY_SCHEMA

    table = FileCatalog(str(tmp_path)).create_table("d.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for number in range(2):
        table.write(rows((1, number)))
    done = subprocess.run([sys.executable, "-c", _KILLED, table.store.paths.root], check=False)
    assert done.returncode == -signal.SIGKILL
    [found] = deaths_of(table.store).values()
    assert found == Deaths(count=1, last_ms=found.last_ms, bucket=0, size_bytes=found.size_bytes)
    compact_table(table.store, full=True)
    assert deaths_of(table.store) == {}
    assert content(table) == {1: 1}
