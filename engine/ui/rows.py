"""The pages of a table's rows: at a version, what differs between two versions, and changes as they come."""

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import pyarrow as pa

from engine.follow.choices import StreamChoices
from engine.follow.position import FollowPosition
from engine.runtime.times import time_text
from engine.table import Table
from engine.types.rows import ROW_KIND_COLUMN
from engine.ui.console import Console
from engine.ui.pages import job_cell, read_part
from engine.ui.parts import (
    Cell,
    Input,
    Page,
    PageForm,
    PagePart,
    Tone,
    count_cell,
    heads,
    size_cell,
    table_address,
    text_cell,
    time_cell,
    what_if_address,
)
from filestore.manifest.entries import EntryKind
from filestore.scan.snapshot_files import delta_entries, delta_manifests
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from logstore.json.text import json_texts
from lsm.errors import FluvialError, InvalidInputError

_SHOWN: Final = 200
_READ_TAGS: Final = 200
_MOST_FILES: Final = 10_000  # of a commit, of which they are read
_MOST_CHANGES: Final = 5000  # that one look reads
_AT_ONCE: Final = 1000
_LOOK_S: Final = 1.0
_TONES: Final[Mapping[str, Tone]] = {"+I": "add", "+U": "add", "-U": "old", "-D": "drop"}


def rows_page(console: Console, name: str, asked: Mapping[str, str]) -> Page:
    """At most 200 rows of a table.

    Args:
        console: the warehouse.
        name: of the table.
        asked: ``at``, a version as ``fluvial read --at`` takes it; ``time`` in its place, seconds since the epoch;
            ``before``, a version to compare with; ``filter`` as of ``fluvial read``; ``columns`` with commas between.

    Raises: InvalidInputError: there is no such table. Another error is shown below the forms.
    """
    table = console.table(name)
    at, before = asked.get("at", "").strip(), asked.get("before", "").strip()
    condition, columns = asked.get("filter", "").strip(), asked.get("columns", "").strip()
    if (moment := asked.get("time", "")).isdecimal() and not at:
        at = f"timestamp.{moment}000"
    version = table.latest_snapshot(), tuple(table.store.snapshots.tag_names())

    def read() -> list[PagePart]:
        if before and condition:
            raise InvalidInputError(f"a comparison takes no filter: filter={condition} fix='leave one of both empty'")
        names = _names(columns)
        return [_difference(table, before, at, names)] if before else [*_rows(table, at, condition, names)]

    try:
        parts = console.kept.get(("rows", name, at, before, condition, columns), version, read)
    except FluvialError as error:
        parts = [PagePart(name="rows", facts=[("these rows cannot be shown", text_cell(error, "bad"))])]
    return Page(
        title=f"rows of {name}",
        path=[(console.catalog.warehouse, "/"), (name, table_address(name))],
        sections=parts,
        forms=[*_sliders(table, at, condition, columns), _form(table, at, before, condition, columns)],
    )


def _names(columns: str) -> list[str] | None:
    return [each.strip() for each in columns.split(",") if each.strip()] or None


def _sliders(table: Table, at: str, condition: str, columns: str) -> Iterator[PageForm]:
    """One over the snapshots, and one over the time from the oldest of them to the newest."""
    ids = table.store.snapshots.line().ids
    if len(ids) < 2:
        return
    kept = [Input(name="filter", value=condition, kind="hidden"), Input(name="columns", value=columns, kind="hidden")]
    value = at if at.isdecimal() and ids[0] <= int(at) <= ids[-1] else str(ids[-1])
    yield PageForm(inputs=[_slider("at", "snapshot", value, ids[0], ids[-1]), *kept])
    ends = [table.store.snapshots.find(each) for each in (ids[0], ids[-1])]
    first_s, last_s = (-(-each.time_ms // 1000) if each is not None else 0 for each in ends)
    if first_s < last_s:
        word, _, moment = at.partition("timestamp.")
        given = int(moment) // 1000 if not word and moment.isdecimal() and len(moment) < 16 else last_s
        yield PageForm(inputs=[_slider("time", "time", str(min(max(given, first_s), last_s)), first_s, last_s), *kept])


def _slider(name: str, label: str, value: str, least: int, most: int) -> Input:
    shown = time_text(1000 * int(value)) if name == "time" else value
    return Input(name=name, value=value, shown=shown, label=label, kind="range", least=least, most=most)


def _form(table: Table, at: str, before: str, condition: str, columns: str) -> PageForm:
    tags = table.store.snapshots.tag_names()
    return PageForm(
        inputs=[
            Input(name="at", value=at, label="at", hint="5, a tag, timestamp.2026-01-31", choices=tags),
            Input(name="before", value=before, label="compared with", hint="an older version", choices=tags),
            Input(name="filter", value=condition, label="filter", hint="amount > 10"),
            Input(name="columns", value=columns, label="columns", hint="all", choices=table.schema.column_names),
        ]
    )


def _rows(table: Table, at: str, condition: str, names: list[str] | None) -> Iterator[PagePart]:
    """Raises: FluvialError."""
    state = table.read(version=at or None)
    found = _first(state.to_batches(names, condition or None), state.schema_of(names))
    if state.snapshot is None:
        yield _grid(found, f"nothing was committed, {_counted(found)}")
        return
    yield PagePart(name="state", facts=[*_facts(table, state.snapshot)])
    yield from read_part("files", lambda: _files(state.table.store, state.snapshot))
    yield _grid(found, f"snapshot {state.snapshot.id}, {_counted(found)}")


def _facts(table: Table, snapshot: Snapshot) -> Iterator[tuple[str, Cell]]:
    """When a snapshot was committed, its tags, and where to go from it."""
    number, rows = snapshot.id, table_address(table.name, "/data")
    yield "committed", time_cell(snapshot.time_ms)
    yield "kind", Cell(text=snapshot.commit_kind.value.lower())
    yield "by", job_cell(snapshot)
    tags = islice(table.store.snapshots.tagged(), _READ_TAGS)
    if found := [name for name, each in tags if each.id == number]:
        yield "tags", text_cell(", ".join(found))
    for words, other in (("before", number - 1), ("after", number + 1)):
        if table.store.snapshots.exists(other):
            yield words, Cell(text=f"snapshot {other}", href=f"{rows}?at={other}")
    if snapshot.commit_kind.changes_rows:
        yield "changes", Cell(text="what it changed", href=f"{rows}?at={number}&before={number - 1}")
    yield "lineage", Cell(text="what follows from it", href=what_if_address(table.name, number))


def _files(store: TableStore, snapshot: Snapshot | None) -> Iterator[PagePart]:
    """The files that a commit added and deleted. Raises: FluvialError."""
    manifests = [] if snapshot is None else delta_manifests(store, snapshot)
    added, deleted = sum(each.added_count for each in manifests), sum(each.deleted_count for each in manifests)
    if snapshot is None or not 0 < added + deleted <= _MOST_FILES:
        return
    rows = [
        [
            Cell(text="+", kind="add") if each.kind is EntryKind.ADD else Cell(text="−", kind="drop"),
            text_cell(each.file.file_name),
            count_cell(each.bucket),
            count_cell(each.file.level),
            count_cell(each.file.row_count),
            size_cell(each.file.size_bytes),
        ]
        for each in delta_entries(store, snapshot)[:_SHOWN]
    ]
    title, columns = f"files: +{added} −{deleted}", heads("", "file", "bucket", "level", "rows", "size")
    yield PagePart(name="files", title=title, columns=columns, rows=rows, numbers=frozenset(range(2, 6)), is_open=False)


def _difference(table: Table, before: str, at: str, names: list[str] | None) -> PagePart:
    """Raises: FluvialError."""
    found = table.diff(before, at or "latest")
    wanted = [ROW_KIND_COLUMN, *(names or (each for each in found.schema.names if each != ROW_KIND_COLUMN))]
    for each in wanted:
        table.schema.fields_of([] if each == ROW_KIND_COLUMN else [each])  # names the columns there are
    rows = _first(
        (batch.select(wanted) for batch in found.to_batches()), pa.schema([found.schema.field(each) for each in wanted])
    )
    said = "; ".join(f"column {each}" for each in found.columns)
    return _grid(rows, f"from {before} to {at or 'latest'}, {_counted(rows)}{'; ' if said else ''}{said}")


def _first(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """One row more than is shown."""
    kept: list[pa.RecordBatch] = []
    left = _SHOWN + 1
    for batch in batches:
        kept.append(batch.slice(0, left))
        left -= kept[-1].num_rows
        if not left:
            break
    return pa.Table.from_batches(kept, schema=kept[0].schema if kept else schema)


def _counted(rows: pa.Table) -> str:
    return f"the first {_SHOWN} rows" if rows.num_rows > _SHOWN else f"{rows.num_rows} rows"


def _grid(rows: pa.Table, note: str) -> PagePart:
    body = _body(rows.slice(0, _SHOWN))
    return PagePart(
        name="rows", title="rows", note=note, columns=_heads(rows.schema), rows=body, numbers=_numbers(rows)
    )


def _body(rows: pa.Table) -> list[list[Cell]]:
    kinds = rows.column(ROW_KIND_COLUMN).to_pylist() if ROW_KIND_COLUMN in rows.column_names else []
    cells = [_texts(column) for column in rows.columns]
    return [
        [_cell(value, _TONES.get(kinds[number], "") if kinds else "") for value in row]
        for number, row in enumerate(zip(*cells, strict=True))
    ]


def _heads(schema: pa.Schema) -> list[Cell]:
    return [text_cell("" if each == ROW_KIND_COLUMN else each) for each in schema.names]


def _numbers(schema: pa.Schema) -> frozenset[int]:
    return frozenset(number for number, field in enumerate(schema) if _is_number(field.type))


def _cell(value: str | None, tone: Tone) -> Cell:
    return Cell(text="null", kind="soft") if value is None else text_cell(value, tone)


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    if pa.types.is_string(column.type):
        return list(column.to_pylist())
    return [None if value is None else value.strip('"') for value in json_texts(column).to_pylist()]


def _is_number(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_decimal(arrow))


# ---- Changes as they come


def changes_page(console: Console, name: str, asked: Mapping[str, str]) -> Page:
    """The newest changes of a table, at most 200, newest first: those of its stream since a page asked first.

    Args:
        console: the warehouse.
        name: of the table.
        asked: ``filter`` and ``columns`` as of ``fluvial tail``.

    Raises: InvalidInputError: there is no such table. Another error is shown below the form.
    """
    table = console.table(name)
    condition, columns = asked.get("filter", "").strip(), asked.get("columns", "").strip()
    away = console.brokers_away(table)
    if away is not None:
        part = PagePart(name="changes", facts=[("brokers", text_cell(away, "bad"))])
    else:
        key, version = ("changes", name, condition, columns), (table.store.schema.id, table.store.table_id())
        tail: _Tail = console.kept.get(key, version, lambda: _Tail(_names(columns), condition))
        part = tail.look(table)
    form = PageForm(
        inputs=[
            Input(name="filter", value=condition, label="filter", hint="amount > 10"),
            Input(name="columns", value=columns, label="columns", hint="all", choices=table.schema.column_names),
        ]
    )
    path = [(console.catalog.warehouse, "/"), (name, table_address(name))]
    return Page(title=f"changes of {name}", path=path, sections=[part], forms=[form])


class _Tail:
    """A table's newest changes for all browsers. Its stream is read when a page asks, and at no other time."""

    def __init__(self, columns: Sequence[str] | None, condition: str) -> None:
        self._choices = StreamChoices(columns=columns, filter=condition or None, follow=False, max_rows=_AT_ONCE)
        self._position: FollowPosition | None = None  # None: begins with what comes from now on
        self._seen: deque[list[Cell]] = deque(maxlen=_SHOWN)  # cells, which are short: rows would keep their batches
        self._schema: pa.Schema | None = None
        self._newest: Snapshot | None = None
        self._has_gap, self._is_at_end = False, False
        self._lock = threading.Lock()

    def look(self, table: Table) -> PagePart:
        """What was seen, with what has come since the last look."""
        with self._lock:
            newest = table.latest_snapshot()
            if newest != self._newest or self._position is None or (table.log is not None and table.log.is_eventual):
                try:
                    self._read(table)
                except FluvialError as error:
                    self._position = None
                    return PagePart(name="changes", facts=[("changes cannot be read", text_cell(error, "bad"))])
                self._newest = newest if self._is_at_end else None
            return self._shown()

    def _read(self, table: Table) -> None:
        """Read what has come, for about a second; what is left of a large commit then is left out.

        Raises: FluvialError.
        """
        self._is_at_end = False
        count, seen = 0, time_cell(table.store.clock.now_ms())
        with table.stream("latest" if self._position is None else self._position, **self._choices) as stream:
            end_s, names = time.monotonic() + _LOOK_S, [each for each in stream.schema.names if each != ROW_KIND_COLUMN]
            self._schema = pa.schema([stream.schema.field(each) for each in (ROW_KIND_COLUMN, *names)])
            for changes in stream:
                self._position = changes.position
                rows = pa.table(changes.rows).select(self._schema.names)
                self._seen.extend([seen, *row] for row in _body(rows.slice(max(0, rows.num_rows - _SHOWN))))
                count += rows.num_rows
                is_late = time.monotonic() > end_s
                if count > _MOST_CHANGES or (is_late and not changes.is_complete):  # else it would be read again
                    self._has_gap, self._position = True, None
                if is_late or self._position is None:
                    return
        self._is_at_end = True

    def _shown(self) -> PagePart:
        note = "since this page was opened first" + ("; some came too fast to be shown" if self._has_gap else "")
        if not self._seen or self._schema is None:
            none = Cell(text="none yet", kind="soft")
            return PagePart(name="changes", title="changes", note=note, facts=[("", none)])
        columns, numbers = [Cell(text="seen"), *_heads(self._schema)], {each + 1 for each in _numbers(self._schema)}
        rows = [*reversed(self._seen)]
        return PagePart(
            name="changes", title="changes", note=note, columns=columns, rows=rows, numbers=frozenset(numbers)
        )
