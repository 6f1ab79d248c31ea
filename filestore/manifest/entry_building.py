"""Objects of manifest entries from their columns, attribute by attribute."""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, TypeVar

import numpy as np

from filestore.format.simple_stats import SimpleStats
from filestore.layout.file_names import checked_name, checked_names
from filestore.manifest.avro_walk import Column, Lists, Numbers, Spans, walk_records
from filestore.manifest.entries import DataFileMeta, EntryKind, ManifestEntry
from filestore.manifest.entry_columns import FIELDS, KEPT_ENTRIES, ROWS_AT_ONCE, EntryColumns
from lsm.keys.words import IndexArray

T = TypeVar("T")

_TEXTS = frozenset(
    {"_FILE._FILE_NAME", "_FILE._EXTRA_FILES", "_FILE._VALUE_STATS_COLS", "_FILE._EXTERNAL_PATH", "_FILE._WRITE_COLS"}
)


def entries_at(columns: EntryColumns, rows: IndexArray | None = None) -> list[ManifestEntry]:
    """Some entries of a manifest as objects.

    Args:
        columns: of the manifest.
        rows: (n,) in this order; None is all.

    Raises: ValueError for a name that is none.
    """
    chosen = np.arange(len(columns)) if rows is None else rows
    if len(columns) <= KEPT_ENTRIES:
        return _kept_entries(columns, chosen)
    found: list[ManifestEntry] = []
    body = columns.body.tobytes() if len(chosen) > len(columns) // 8 else columns.body.data
    for first in range(0, len(chosen), ROWS_AT_ONCE):
        found += _entries(columns, chosen[first : first + ROWS_AT_ONCE], body)
    return found


def _kept_entries(columns: EntryColumns, rows: IndexArray) -> list[ManifestEntry]:
    """Each is made once: a walk costs the same for one record as for sixty."""
    known, asked = columns.objects, rows.tolist()
    missing = [row for row in asked if row not in known]
    if missing:
        made = _entries(columns, np.array(missing, np.int64), columns.body.tobytes())
        known.update(zip(missing, made, strict=True))
    return [known[row] for row in asked]


def _entries(columns: EntryColumns, rows: IndexArray, body: Any) -> list[ManifestEntry]:
    read = walk_records(columns.body, columns.places[rows].astype(np.int64), FIELDS)
    assert not read.is_bad.any(), "entries were read before"

    def values(name: str) -> Iterable[Any]:
        full = f"_FILE.{name}"
        return _values(read.columns[full], body, is_text=full in _TEXTS)

    keys: dict[Any, Any] = {}  # the first and last key are the least and greatest values of a key of one column

    def stats(name: str) -> list[SimpleStats]:
        known = keys if name == "_KEY_STATS" else {}
        return made_objects(
            SimpleStats,
            len(rows),
            min_values=_shared(values(f"{name}._MIN_VALUES"), known),
            max_values=_shared(values(f"{name}._MAX_VALUES"), known),
            null_counts=_shared(values(f"{name}._NULL_COUNTS")),
        )

    files = made_objects(
        DataFileMeta,
        len(rows),
        file_name=map(checked_name, values("_FILE_NAME")),
        size_bytes=values("_FILE_SIZE"),
        row_count=values("_ROW_COUNT"),
        min_key=_shared(values("_MIN_KEY"), keys),
        max_key=_shared(values("_MAX_KEY"), keys),
        key_stats=stats("_KEY_STATS"),
        value_stats=stats("_VALUE_STATS"),
        min_sequence_number=values("_MIN_SEQUENCE_NUMBER"),
        max_sequence_number=values("_MAX_SEQUENCE_NUMBER"),
        schema_id=values("_SCHEMA_ID"),
        level=values("_LEVEL"),
        extra_files=repeat(()) if columns.is_plain[rows].all() else map(checked_names, values("_EXTRA_FILES")),
        creation_time_ms=values("_CREATION_TIME"),
        delete_row_count=values("_DELETE_ROW_COUNT"),
        embedded_index=values("_EMBEDDED_FILE_INDEX"),
        file_source=values("_FILE_SOURCE"),
        value_stats_cols=_shared(values("_VALUE_STATS_COLS")),
        external_path=values("_EXTERNAL_PATH"),
        first_row_id=values("_FIRST_ROW_ID"),
        write_cols=_shared(values("_WRITE_COLS")),
        unknown=_unknown(columns, rows, 1),
    )
    kinds = tuple(EntryKind)
    return made_objects(
        ManifestEntry,
        len(rows),
        kind=map(kinds.__getitem__, columns.kinds[rows].tolist()),
        partition=map(columns.partitions.__getitem__, columns.partition_codes[rows].tolist()),
        bucket=columns.buckets[rows].tolist(),
        total_buckets=columns.total_buckets[rows].tolist(),
        file=files,
        unknown=_unknown(columns, rows, 0),
    )


def _unknown(columns: EntryColumns, rows: IndexArray, part: int) -> Iterable[Any]:
    """What is not known here of each entry (0), or of its file (1)."""
    if not columns.unknown:
        return repeat(())
    return [columns.unknown.get(row, ((), ()))[part] for row in rows.tolist()]


def made_objects(made_class: type[T], count: int, /, **attributes: Iterable[Any]) -> list[T]:
    """Objects of a frozen class with slots, as its constructor makes them: that one takes them one value at a time."""
    made = [*map(object.__new__, repeat(made_class, count))]
    for name, values in attributes.items():
        deque(map(getattr(made_class, name).__set__, made, values), maxlen=0)
    return made


def _values(column: Column, body: Any, *, is_text: bool) -> Iterable[Any]:
    if column.valid is not None and not column.valid.any():
        return repeat(None)
    if isinstance(column, Numbers):
        found: Sequence[Any] = column.values.tolist()
    elif isinstance(column, Spans):
        bounds = zip(column.starts.tolist(), column.ends.tolist(), strict=True)
        if is_text:
            found = [str(body[a:b], "utf-8") for a, b in bounds]
        elif type(body) is bytes:
            found = [body[a:b] for a, b in bounds]
        else:
            found = [bytes(body[a:b]) for a, b in bounds]
    else:
        found = _lists(column, body, is_text=is_text)
    if column.valid is None:
        return found
    return [value if is_valid else None for value, is_valid in zip(found, column.valid.tolist(), strict=True)]


def _lists(column: Lists, body: Any, *, is_text: bool) -> list[tuple[Any, ...]]:
    assert column.items is not None, "all columns were wanted"
    items = _values(column.items, body, is_text=is_text)
    flat = items if isinstance(items, list) else [None] * int(column.counts.sum())
    ends = np.cumsum(column.counts)
    return [tuple(flat[a:b]) for a, b in zip((ends - column.counts).tolist(), ends.tolist(), strict=True)]


def _shared(values: Iterable[Any], known: dict[Any, Any] | None = None) -> Iterable[Any]:
    """Equal values as one object: most files have the same counts and columns."""
    if isinstance(values, repeat):
        return values
    known = {} if known is None else known
    return [known.setdefault(value, value) for value in values]
