"""What a reader of Iceberg finds in a table's metadata: pyiceberg, which knows nothing of Fluvial."""

from collections import Counter
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StaticTable

from filestore.export.iceberg import FilesOfIceberg
from filestore.iceberg.places import METADATA_SUFFIX, iceberg_state
from filestore.manifest.lists import vectors_of
from filestore.scan.live_files import LiveFiles
from filestore.schema.row_counts import HASH_NAMES
from lsm.errors import FluvialError
from lsm.merge.row_count import ROW_COUNT
from tests.crossings.filters import matches
from tests.crossings.oracle import Column, MismatchError, canonical, expect
from tests.crossings.play import Line, Play, SkippedError, State, comparable, counted


def iceberg(play: Play, at: int, filter: Any = None) -> None:
    """A state that Iceberg shows: rows without a key at each commit, rows with one where they are compacted.

    Args:
        play: the history.
        at: which of the states.
        filter: one comparison that pyiceberg plans by, as ``["<", "a", 1]``.
    """
    line = play.main
    if play.cell["iceberg"] == "no" or not line.states:
        raise SkippedError
    metadata = _metadata(play, line)
    if metadata is None:
        raise SkippedError
    shown = sorted(each.snapshot_id for each in metadata.metadata.snapshots if each.snapshot_id in line.states)
    if not shown:
        raise SkippedError
    number = shown[at % len(shown)]
    state = line.states[number]
    if not _is_whole(play, line, number) or state.content.expired(state.at_ms):
        raise SkippedError
    columns = state.content.columns
    if filter is None:
        expect(state.rows, _rows(metadata.scan(snapshot_id=number).to_arrow(), columns))
        return
    names = {each.slot: each.name for each in columns}
    operator, slot, value = filter
    if slot not in names:
        raise SkippedError
    found = metadata.scan(row_filter=f"{names[slot]} {operator} {value}", snapshot_id=number).to_arrow()
    expect(_matching(state, columns, filter), _rows(found, columns))


def _rows(found: pa.Table, columns: tuple[Column, ...]) -> Counter[tuple[Any, ...]]:
    """Rows, as often as a table that counts them says; one that was removed before it came is none."""
    if ROW_COUNT not in found.column_names:
        return counted(found, columns)
    counts = found[ROW_COUNT].to_pylist()
    shown = found.drop_columns([*HASH_NAMES, ROW_COUNT])
    counted(shown.slice(0, 0), columns)
    rows = Counter[tuple[Any, ...]]()
    for row, count in zip(comparable(shown), counts, strict=True):
        rows[row] += count
    return +rows


def _metadata(play: Play, line: Line) -> StaticTable | None:
    """The table as pyiceberg opens it. Raises: MismatchError: it is behind, and nothing explains that."""
    state = iceberg_state(line.table.store)
    assert state is not None
    if state.behind and not _may_be_behind(play, line):
        raise MismatchError(f"iceberg={state}")
    if state.shown is None:
        return None
    files = FilesOfIceberg(line.table.store.io)
    path = f"{state.directory}/v{state.shown}{METADATA_SUFFIX}"
    metadata = FromInputFile.table_metadata(files.new_input(path))
    return StaticTable(("d", "t"), metadata, path, files, NoopCatalog("d"))


def _may_be_behind(play: Play, line: Line) -> bool:
    """Whether a column has no type there, files are of another format, or vectors of another kind."""
    has_time = play.cell["type"] == "TIME" and any(each.slot == "b" for each in line.content.columns)
    return has_time or play.cell["vectors"] in ("on", "merge-on-read")


def _is_whole(play: Play, line: Line, number: int) -> bool:
    """Whether Iceberg sees all rows of a snapshot, and pyiceberg reads them: it knows no vectors."""
    store = line.table.store
    with suppress(FluvialError):
        live = LiveFiles(store, store.snapshots.read(number))
        top = store.level_count - 1 if play.shape.has_key or play.cell["rows"] == "counted" else 0
        levels = {file.level for key in live.buckets() for file in live.files(key)}
        vectors = [each for key in live.buckets() for each in vectors_of(live.files(key), live.indexes(key))]
        return levels <= {top} and not vectors
    return False


def _matching(state: State, columns: tuple[Column, ...], filter: Any) -> Counter[tuple[Any, ...]]:
    places = [each.slot for each in columns]
    found = Counter[tuple[Any, ...]]()
    for row, count in state.rows.items():
        if matches(filter, dict(zip(places, row, strict=True))):
            found[tuple(map(canonical, row))] += count
    return found
