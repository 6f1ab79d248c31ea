"""Notes of started compactions, so that a compaction that killed its process is not retried unchanged.

A note is a small file in a directory beside ``snapshot/``, where no reader of the layout looks. It is written before
the first file is read, and deleted when the task ends or fails; a killed process, usually for its memory, leaves it.
The next attempt on the same files has half the memory for each such death. After ``MOST_DEATHS`` deaths, the files are
attempted once an hour, unless a user asks for a full compaction. Notes whose files were deleted are orphans.
"""

import json
import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha1
from typing import Any, Final

from filestore.compact.task import CompactionTask
from filestore.table_store import TableStore
from lsm.errors import FluvialError

ATTEMPT_DIRECTORY: Final = "compaction-attempts"
MOST_DEATHS: Final = 3
PAUSE_MS: Final = 3_600_000  # of files on which so many attempts have died

_LEAST_BUFFER_BYTES: Final = 1024 * 1024
_BUFFER: Final = "sort-spill-buffer-size"

logger = logging.getLogger("fluvial.compaction")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deaths:
    """Attempts on the same files whose process was killed before they ended."""

    count: int
    last_ms: int  # when the newest one began
    bucket: int
    size_bytes: int  # of the files on disk

    @property
    def is_final(self) -> bool:
        """Whether compaction skips the files for ``PAUSE_MS``."""
        return self.count >= MOST_DEATHS


def deaths_of(store: TableStore) -> Mapping[str, Deaths]:
    """Killed attempts by the fingerprint of their files; empty when the notes cannot be read."""
    found: dict[str, Deaths] = {}
    with suppress(FluvialError, OSError):
        for name in store.io.list_names(_directory(store)):
            note = _read(store, name)
            if note is None or not _is_dead(store, note):
                continue
            key = name.partition("-")[0]
            known = found.get(key, Deaths(count=0, last_ms=0, bucket=note["bucket"], size_bytes=note["sizeBytes"]))
            found[key] = replace(known, count=known.count + 1, last_ms=max(known.last_ms, note["begunMs"]))
    return found


def worth_trying(store: TableStore, tasks: Sequence[CompactionTask], *, insists: bool) -> list[CompactionTask]:
    """Note on each task how many attempts on its files were killed, and leave out the tasks that pause.

    Args:
        store: the table of the tasks.
        tasks: the picked tasks.
        insists: ignore pauses, because a user asked for a full compaction.

    Returns:
        The tasks to run, in the given order.
    """
    deaths = deaths_of(store) if tasks else {}
    if not deaths:
        return list(tasks)
    chosen = []
    for task in tasks:
        found = deaths.get(_fingerprint(task))
        if found is None:
            chosen.append(task)
            continue
        pauses = found.is_final and not insists and store.clock.now_ms() - found.last_ms < PAUSE_MS
        logger.warning(
            "previous compaction was killed, probably out of memory: table=%s bucket=%d files=%d bytes=%d deaths=%d "
            "next=%s",
            store.name, task.bucket, len(task.files), task.size_bytes, found.count,
            "in an hour" if pauses else "now, with less memory",
        )  # fmt: skip
        if not pauses:
            chosen.append(replace(task, deaths=found.count))
    return chosen


@contextmanager
def attempt(store: TableStore, task: CompactionTask) -> Iterator[TableStore]:
    """Carry out a task in this block; gives the table with the memory that is left for it.

    Raises: UnavailableError: the note cannot be written; no other file could.
    """
    key = _fingerprint(task)
    name = f"{key}-{store.names.uuid()}"
    try:
        _write(store, name, task, failed=False)
        yield _with_less_memory(store, task.deaths)
    except MemoryError:
        with suppress(FluvialError, OSError):
            store.io.delete(f"{_directory(store)}/{name}")
            _write(store, f"{name}-failed", task, failed=True)
        raise
    except BaseException:
        _forget(store, name)
        raise
    _forget(store, key if task.deaths else name)


def _with_less_memory(store: TableStore, deaths: int) -> TableStore:
    if not deaths:
        return store
    left = max(store.options.sort_spill_buffer_size_bytes >> deaths, _LEAST_BUFFER_BYTES)
    return replace(store, options=store.options.with_texts({_BUFFER: f"{left} b"}))


def _write(store: TableStore, name: str, task: CompactionTask, *, failed: bool) -> None:
    note = {
        "host": socket.gethostname(),
        "process": _process(os.getpid()),
        "failed": failed,
        "begunMs": store.clock.now_ms(),
        "bucket": task.bucket,
        "files": len(task.files),
        "sizeBytes": task.size_bytes,
    }
    with store.io.open_output(f"{_directory(store)}/{name}") as sink:
        sink.write(json.dumps(note).encode())


def _read(store: TableStore, name: str) -> dict[str, Any] | None:
    with suppress(FluvialError, OSError, ValueError):
        note = json.loads(store.io.read_bytes(f"{_directory(store)}/{name}"))
        return note if isinstance(note, dict) and {"host", "process", "begunMs", "bucket"} <= note.keys() else None
    return None


def _forget(store: TableStore, start: str) -> None:
    """Remove the notes with such names; one that stays costs the next attempt half its memory."""
    with suppress(FluvialError, OSError):
        names = [start] if "-" in start else store.io.list_names(_directory(store))
        for name in names:
            if name.startswith(start):
                store.io.delete(f"{_directory(store)}/{name}")


def _is_dead(store: TableStore, note: Mapping[str, Any]) -> bool:
    """Whether the process of a note has ended; for another machine, whether the note is old."""
    if note.get("failed"):
        return True
    if note["host"] == socket.gethostname():
        pid = str(note["process"]).partition(":")[0]
        return not pid.isdecimal() or _process(int(pid)) != note["process"]
    return bool(store.clock.now_ms() - note["begunMs"] > store.options.compaction_lease_timeout_ms)


def _process(pid: int) -> str | None:
    """A process, distinct from a later one with its number where the system says so; None: it has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass  # of another user
    began = ""
    with suppress(OSError, IndexError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
        began = stat.read().rpartition(")")[2].split()[19]
    return f"{pid}:{began}"


def _fingerprint(task: CompactionTask) -> str:
    names = "\n".join(sorted(file.file_name for file in task.files))
    return sha1(names.encode(), usedforsecurity=False).hexdigest()[:16]


def _directory(store: TableStore) -> str:
    return f"{store.paths.root}/{ATTEMPT_DIRECTORY}"
