"""A copy of a table as plain Parquet files: one directory for each state, and a link ``current`` to the newest.

Plain files have no metadata that could switch between two states, so a state is a directory that appears whole: it is
written under another name, with hard links to what the state before has, and renamed. Readers that open it by its own
name, or that follow the link once, have one state to the end.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from filestore.export.parts import CopiedPart, ExportState, leftovers, link_once
from filestore.export.result import Exported, ExportPlace, Progress
from filestore.io.file_io import FileIO, LinksFiles, MovesDirectories
from filestore.table import TableRead
from lsm.errors import ConflictError, InvalidInputError

CURRENT: Final = "current"
_STATE: Final = "state-"
_BUILDING: Final = ".building-"
_EMPTY: Final = "part-empty.parquet"
_ABOUT: Final = "_export.json"  # readers of Parquet directories skip names with an underscore


def export_parquet(read: TableRead, place: ExportPlace, progress: Progress) -> Exported:
    """Make ``current`` the state of a snapshot.

    Raises:
        InvalidInputError: the place is no local directory, or has the copy of another table.
        ConflictError: another export of another state was at work; the copy is whole.
    """
    io = place.io
    if not isinstance(io, LinksFiles):
        raise InvalidInputError(
            f"a copy as plain Parquet needs a local directory, where a link can be switched: path={place.root} "
            "fix='export as delta'"
        )
    state = ExportState(read, read.schema)
    name = state.table_name
    current = _current(place)
    its_table, known = (name, {}) if current is None else _about(io, current)
    if its_table != name:
        raise InvalidInputError(
            f"there is a copy of another table: path={place.root} its_table={its_table} table={name} "
            "fix='use another path'"
        )
    wanted = state.splits
    target = f"{place.root}/{_STATE}{_state_name(state)}"
    kept = [each for each in wanted if each in known]
    old = [each for each in _outlived(io, place) if each not in (target, current)]
    done = Exported(
        path=target,
        written=len(wanted) - len(kept),
        kept=len(kept),
        removed=len(known.keys() - wanted.keys()),
        deleted=len(old),
    )
    if place.dry_run:
        return done
    parts = list(known.values())
    if current != target:
        parts = _build(io, state, place, current, known, target, progress)
        if current is not None:
            os.utime(current)  # from now on readers leave it
        _switch(place.root, target, read.table.store.names.uuid())
    progress(len(wanted), len(wanted))
    for each in old:
        io.delete_tree(each)
    return replace(done, rows=sum(part.rows for part in parts), size_bytes=sum(part.size_bytes for part in parts))


def _build(
    io: FileIO,
    state: ExportState,
    place: ExportPlace,
    current: str | None,
    known: Mapping[str, CopiedPart],
    target: str,
    progress: Progress,
) -> list[CopiedPart]:
    if io.exists(target):  # it was complete before, and only the link was not switched
        return list(_about(io, target)[1].values())
    building = f"{place.root}/{_BUILDING}{os.path.basename(target)}"
    io.make_directory(building)
    assert isinstance(io, MovesDirectories)
    try:
        parts = _fill(io, state, building, current, known, progress)
        about = {
            "table": state.table_name,
            "branch": state.read.table.store.paths.branch,
            "snapshot": state.snapshot_id,
            "parts": [asdict(part) for part in parts],
        }
        io.replace(f"{building}/{_ABOUT}", json.dumps(about, indent=1).encode())
        io.move_directory(building, target)
    except (ConflictError, FileNotFoundError):
        if not io.exists(target):
            raise
        return list(_about(io, target)[1].values())  # another process has exported the same
    return parts


def _fill(
    io: FileIO,
    state: ExportState,
    building: str,
    current: str | None,
    known: Mapping[str, CopiedPart],
    progress: Progress,
) -> list[CopiedPart]:
    """The parts of a state that no one sees yet: links to those of the state before, and new ones."""
    parts: list[CopiedPart] = []
    for name in state.splits:
        progress(len(parts), len(state.splits))
        path = f"{building}/{name}"
        if name in known and not io.exists(path) and not link_once(io, f"{current}/{name}", path):
            raise InvalidInputError(f"a copy needs a file system with hard links: path={building}")
        parts.append(state.write(io, building, name))
    if not parts:  # a directory without files has no columns
        _write_empty(state, io, f"{building}/{_EMPTY}")
    for path in leftovers(io, building):
        io.delete(path)
    return parts


def _write_empty(state: ExportState, io: FileIO, path: str) -> None:
    with io.open_output(path) as output:
        pq.write_table(state.schema.empty_table(), output)


def _switch(root: str, target: str, unique: str) -> None:
    """Point the link to a state in one step."""
    temporary = f"{root}/.{CURRENT}.{unique}"
    os.symlink(os.path.basename(target), temporary)
    os.replace(temporary, f"{root}/{CURRENT}")


def _current(place: ExportPlace) -> str | None:
    """The directory of the state that readers have; None: there is no copy."""
    with suppress(OSError):
        target = Path(place.root, os.readlink(f"{place.root}/{CURRENT}"))
        if target.is_dir():
            return str(target)
    return None


def _about(io: FileIO, directory: str) -> tuple[str, dict[str, CopiedPart]]:
    """The table and the parts of a state."""
    found = json.loads(io.read_bytes(f"{directory}/{_ABOUT}"))
    parts = [CopiedPart(**each) for each in found["parts"]]
    return found["table"], {part.name: part for part in parts}


def _state_name(state: ExportState) -> str:
    digest = hashlib.sha256(json.dumps([str(state.schema), *sorted(state.splits)]).encode()).hexdigest()[:12]
    return f"{state.snapshot_id or 0}-{digest}"


def _outlived(io: FileIO, place: ExportPlace) -> list[str]:
    """States, finished or not, that were the copy's so long ago that no reader or writer has them open."""
    latest = place.clock.now_ms() - place.retain_ms
    names = [name for name in io.list_names(place.root) if name.startswith((_STATE, _BUILDING))]
    return [path for path in (f"{place.root}/{name}" for name in names) if io.modified_ms(path) < latest]
