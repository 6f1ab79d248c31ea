"""The pages about tables: all of a warehouse, and one."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from engine.drawing.commits import identifier_text
from engine.drawing.model import picture_of
from engine.drawing.page import svg_page
from engine.drawing.svg import without_style
from engine.drawing.timeline import minutes_svg
from engine.lineage.origins import CommitOrigin
from engine.log.table_log import ignored_options
from engine.monitor.holders import holders_of
from engine.monitor.lag_report import log_lags, stream_lags
from engine.monitor.symptom import Severity, Symptom
from engine.runtime.units import age_text, many_text
from engine.table import Table
from engine.ui.console import MINUTES, Console, TableFacts
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
from filestore.options.effective import OptionOrigin, effective_table_options
from filestore.snapshot.snapshot import Snapshot
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError

Asked = Mapping[str, str]
"""The parameters of an address."""

_ON_A_PAGE: Final = 100
_MINUTES_HEAD: Final = f"last {MINUTES} minutes"
_RATE: Final = 3  # the column behind the rates: minutes
_NUMBERS: Final = frozenset({2, *range(4, 9)})
_LISTED_SNAPSHOTS: Final = 30
_DRAWN_SNAPSHOTS: Final = 200
_DRAWN_BUCKETS: Final = 200
_LISTED_SCHEMAS: Final = 20
_KINDS: Final[Mapping[Severity, Tone]] = {
    Severity.OK: "good",
    Severity.NOTE: "soft",
    Severity.WARNING: "warn",
    Severity.CRITICAL: "bad",
}
_SORTS: Final[Mapping[str, tuple[str, Callable[[TableFacts], Any]]]] = {
    "name": ("table", lambda each: each.name),
    "time": ("newest snapshot", lambda each: -each.snapshot.time_ms if each.snapshot else 0),
    "rate": ("rows a minute", lambda each: -each.rate()),
    "rows": ("rows in files", lambda each: -each.row_count),
    "size": ("size", lambda each: -each.size_bytes),
    "runs": ("runs", lambda each: -each.max_runs),
    "debt": ("debt", lambda each: -each.debt_bytes),
    "lag": ("log lag", lambda each: -(each.log_lag or 0)),
    "doctor": ("doctor", lambda each: (each.problem is None, -_worst(each))),
}


def warehouse_page(console: Console, query: Asked) -> Page:
    """All tables: a hundred on a page, found by a part of their names, sorted by any column.

    Args:
        console: the warehouse.
        query: ``find``, ``sort`` (a key of the columns), ``page`` from 1 on.

    Raises: InvalidInputError; UnavailableError.
    """
    find, sort = query.get("find", ""), query.get("sort", "name")
    if sort not in _SORTS:
        raise InvalidInputError(f"pages are not sorted so: sort={sort[:40]} fix='one of {', '.join(_SORTS)}'")
    names, broken = console.names()
    found = [each for each in names if find.casefold() in each.casefold()]
    pages = max(1, -(-len(found) // _ON_A_PAGE))
    number = min(max(1, int(given) if (given := query.get("page", "1")).isdecimal() else 1), pages)
    if sort == "name":
        shown = found[(number - 1) * _ON_A_PAGE : number * _ON_A_PAGE]
        facts = console.facts(shown)
    else:
        facts = console.facts((), also=found)
        key = _SORTS[sort][1]
        found.sort(key=lambda name: (name not in facts, key(facts[name]) if name in facts else 0, name))
        shown = found[(number - 1) * _ON_A_PAGE : number * _ON_A_PAGE]
        facts = console.facts(shown)
    rows = [[*_row(name, facts.get(name))] for name in shown]
    rows += [[*_row(each.name, each, href="")] for each in broken if number == pages]
    links = [
        Cell(text=words, href=_address(find, each, 1), kind="" if each == sort else "soft")
        for each, (words, _) in _SORTS.items()
    ]
    links.insert(_RATE, Cell(text=_MINUTES_HEAD))
    note = many_text(len(found), "table") + (f", page {number} of {pages}" if pages > 1 else "")
    unknown = sum(name not in facts for name in (shown if sort == "name" else found))
    note += f"; {unknown:,} not looked at yet" if unknown else ""
    steps = [("before", number - 1), ("next", number + 1)]
    turns = [("", Cell(text=words, href=_address(find, sort, to))) for words, to in steps if 1 <= to <= pages]
    return Page(
        title=console.catalog.warehouse,
        sections=[
            PagePart(name="tables", title="tables", note=note, columns=links, rows=rows, numbers=_NUMBERS),
            PagePart(name="turns", facts=turns),
        ],
        forms=[
            PageForm(
                inputs=[
                    Input(name="find", value=find, kind="search", label="find"),
                    Input(name="sort", value=sort, kind="hidden"),
                ]
            )
        ],
        is_partial=bool(unknown),
    )


def _minutes(facts: TableFacts) -> Cell:
    """Commits and rows of the last minutes, drawn; empty where nothing was written."""
    found = facts.last_minutes()
    commits, rows = sum(each.commits for each in found), sum(each.rows for each in found)
    if not commits:
        return Cell(text="")
    tip = f"{_MINUTES_HEAD}: {many_text(commits, 'commit')}, {many_text(rows, 'row')}"
    svg = minutes_svg([each.rows for each in found], [each.commits for each in found], tip)
    return Cell(text="", svg=without_style(svg), tip=f"{tip}, in a minute at most {max(each.rows for each in found):,}")


def _address(find: str, sort: str, number: int) -> str:
    return f"/?{urlencode({'find': find, 'sort': sort, 'page': number})}"


def _worst(facts: TableFacts) -> Severity:
    return facts.findings[0].severity if facts.findings else Severity.OK


def _row(name: str, facts: TableFacts | None, href: str | None = None) -> Iterator[Cell]:
    yield Cell(text=name, href=table_address(name) if href is None else href)
    if facts is None:
        yield from [Cell(text="…", kind="soft")] * len(_SORTS)
        return
    if facts.problem is not None:
        yield from [Cell(text="")] * (len(_SORTS) - 1)
        yield text_cell(facts.problem, "bad")
        return
    yield time_cell(None if facts.snapshot is None else facts.snapshot.time_ms)
    yield count_cell(round(60 * facts.rate()) or None)
    yield _minutes(facts)
    yield count_cell(facts.row_count)
    yield size_cell(facts.size_bytes)
    yield count_cell(facts.max_runs)
    yield size_cell(facts.debt_bytes, "warn") if facts.debt_bytes else Cell(text="")
    yield count_cell(facts.log_lag, "warn" if facts.log_lag else "")
    worst = facts.findings[0] if facts.findings else None
    if worst is None or worst.severity is Severity.OK:
        yield Cell(text="no finding", kind="good")
    else:
        yield Cell(text=f"{worst.check}: {worst.fact}"[:160], kind=_KINDS[worst.severity], tip=worst.fix or "")


# ---- One table


def table_page(console: Console, name: str) -> Page:
    """One table: what the doctor found, its trees and history, what holds it, its log, its options and columns.

    Raises: InvalidInputError: there is no such table; CorruptDataError; UnavailableError.
    """
    table = console.table(name)
    facts = console.facts([name]).get(name)
    newest = table.latest_snapshot()
    parts: list[Callable[[], Iterator[PagePart]]] = [
        lambda: _findings(facts),
        lambda: _picture(console, table, newest),
        lambda: _snapshots(table),
        lambda: _holders(table),
        lambda: _log(console, table),
        lambda: _streams(console, table),
        lambda: _schemas(table),
        lambda: _options(table),
    ]
    sections = [PagePart(name="facts", facts=[*_facts(table, facts, newest)])]
    for number, part in enumerate(parts):
        sections += read_part(f"part-{number}", part)
    return Page(
        title=name,
        path=[(console.catalog.warehouse, "/")],
        sections=sections,
        is_partial=facts is None,
    )


def read_part(name: str, part: Callable[[], Iterator[PagePart]]) -> Iterator[PagePart]:
    """A part of a page, or why it cannot be read: one takes nothing from the others."""
    try:
        yield from [*part()]
    except (FluvialError, OSError) as error:
        yield PagePart(name=name, facts=[("cannot be read", text_cell(error, "bad"))])


def _facts(table: Table, facts: TableFacts | None, newest: Snapshot | None) -> Iterator[tuple[str, Cell]]:
    yield "rows", Cell(text="look at them", href=table_address(table.name, "/data"))
    if newest is not None:
        yield "newest snapshot", Cell(text=f"{newest.id}", href=table_address(table.name, "/data", at=str(newest.id)))
        yield "committed", time_cell(newest.time_ms)
    if oldest := table.store.snapshots.line().ids[:1]:
        yield "oldest snapshot", Cell(text=str(oldest[0]), href=table_address(table.name, "/data", at=str(oldest[0])))
        kept = f"after {age_text(table.options.snapshot_time_retained_ms)}"
        yield "expires", Cell(text=f"{kept}, but for the newest {table.options.snapshot_num_retained_min}")
    yield "key", text_cell(", ".join(table.schema.primary_keys) or "none")
    if table.schema.partition_keys:
        yield "partitioned by", text_cell(", ".join(table.schema.partition_keys))
    yield "changes", Cell(text="as they come", href=table_address(table.name, "/changes"))
    if facts is not None and facts.problem is None:
        yield _MINUTES_HEAD, _minutes(facts)
        yield "rows in files", count_cell(facts.row_count)
        yield "size", Cell(text=f"{size_cell(facts.size_bytes).text} in {many_text(facts.file_count, 'file')}")
        yield "runs", count_cell(facts.max_runs)
        yield "compaction debt", size_cell(facts.debt_bytes, "warn" if facts.debt_bytes else "")


def _findings(facts: TableFacts | None) -> Iterator[PagePart]:
    if facts is None or facts.problem is not None:
        why = Cell(text="…", kind="soft") if facts is None else text_cell(facts.problem, "bad")
        yield PagePart(name="doctor", title="doctor", facts=[("", why)])
        return
    bad = [each for each in facts.findings if each.severity is not Severity.OK]
    rest = [each for each in facts.findings if each.severity is Severity.OK]
    note = "nothing was found" if not bad else ""
    yield PagePart(name="doctor", title="doctor", note=note, rows=[*map(_finding, bad)])
    passed = [*map(_finding, rest)]
    yield PagePart(name="passed", title=f"{many_text(len(rest), 'check')} passed", rows=passed, is_open=False)


def _finding(each: Symptom) -> list[Cell]:
    kind = _KINDS[each.severity]
    return [
        Cell(text=each.severity.name.lower(), kind=kind),
        Cell(text=each.check),
        text_cell(each.fact),
        text_cell(each.fix),
    ]


def _picture(console: Console, table: Table, newest: Snapshot | None) -> Iterator[PagePart]:
    """Trees and history, drawn once for a snapshot and its tags."""
    tags = tuple(table.store.snapshots.tag_names())

    def draw() -> str:
        picture = picture_of(table.store, snapshot_limit=_DRAWN_SNAPSHOTS, bucket_limit=_DRAWN_BUCKETS)
        return without_style(svg_page(picture, lambda number: table_address(table.name, "/data", at=str(number))))

    svg = console.kept.get(table.name, (newest, tags, table.store.schema.id), draw)
    yield PagePart(name="picture", title="history and trees", svg=svg)


def _snapshots(table: Table) -> Iterator[PagePart]:
    found = [*table.history(_LISTED_SNAPSHOTS)]
    rows = []
    for each in found:
        diff = table_address(table.name, "/data", at=str(each.id), before=str(each.id - 1))
        rows.append(
            [
                Cell(text=str(each.id), href=table_address(table.name, "/data", at=str(each.id))),
                time_cell(each.time_ms),
                Cell(text=each.commit_kind.value.lower()),
                Cell(text=f"{each.delta_record_count or 0:+,}"),
                job_cell(each),
                text_cell(identifier_text(each)),
                Cell(text="what it changed", href=diff) if each.commit_kind.changes_rows else Cell(text=""),
                Cell(text="what follows", href=what_if_address(table.name, each.id)),
            ]
        )
    columns = heads("snapshot", "time", "kind", "rows", "by", "batch", "", "")
    title = f"newest {many_text(len(rows), 'snapshot')}"
    yield PagePart(name="snapshots", title=title, columns=columns, rows=rows, numbers=frozenset({0, 3}), is_open=False)


def job_cell(snapshot: Snapshot) -> Cell:
    """The job that committed a snapshot, else its commit user."""
    try:
        origin = CommitOrigin.of(snapshot)
    except CorruptDataError:
        origin = None
    return text_cell(snapshot.commit_user if origin is None else origin.job)


def _holders(table: Table) -> Iterator[PagePart]:
    """Tags, savepoints, branches, consumers, unfinished operations: what expiry waits for."""
    rows, now_ms = [], table.store.clock.now_ms()
    for each in holders_of(table.store, now_ms):
        at = f"savepoint.{each.name}" if each.kind == "savepoint" else each.name
        href = table_address(table.name, "/data", at=at) if each.kind in ("tag", "savepoint") else ""
        if each.kind == "branch":
            href = table_address(f"{table.name}$branch_{each.name}")
        rows.append(
            [
                Cell(text=each.kind),
                Cell(text=each.name[:200], href=href),
                text_cell(each.snapshot_id),
                time_cell(None if each.age_ms is None else now_ms - each.age_ms),
                Cell(text="its own files are missing", kind="bad") if each.is_broken else Cell(text=""),
            ]
        )
    columns = heads("kind", "name", "snapshot", "of", "")
    title = "tags, savepoints, branches, consumers"
    if rows:
        yield PagePart(name="holders", title=title, columns=columns, rows=rows, numbers=frozenset({2}))


def _log(console: Console, table: Table) -> Iterator[PagePart]:
    if table.log is None:
        return
    away = console.brokers_away(table)
    title, servers = f"log: topic {table.log.topic}", table.log.properties.by_name["bootstrap.servers"]
    if away is not None:
        yield PagePart(name="log", title=title, facts=[("brokers", text_cell(away, "bad"))])
        return
    columns = heads("partition", "offset of the snapshot", "end of the log", "rows ahead")
    rows = [[count_cell(value) for value in each.values()] for each in log_lags(table)]
    retention = table.options.log_retention_ms
    kept = "its brokers decide" if retention is None else age_text(retention)
    facts = [("brokers", text_cell(servers)), ("retention", text_cell(kept))]
    yield PagePart(name="log", title=title, facts=facts, columns=columns, rows=rows, numbers=frozenset(range(4)))


def _streams(console: Console, table: Table) -> Iterator[PagePart]:
    found = stream_lags(table) if console.brokers_away(table) is None else []  # the part of the log says so
    columns = heads("consumer", "delivered snapshot", "snapshots behind", "records behind", "seconds behind")
    rows = [
        [
            text_cell(each["stream"]),
            text_cell(each["snapshot"]),
            *(count_cell(each[key], "warn" if each[key] else "") for key in ("lag_snapshots", "lag_records")),
            text_cell(each["lag_seconds"]),
        ]
        for each in found
    ]
    if rows:
        numbers = frozenset(range(1, 5))
        yield PagePart(name="consumers", title="who reads", columns=columns, rows=rows, numbers=numbers)


def _schemas(table: Table) -> Iterator[PagePart]:
    """The columns of now, and what each version of the schema changed."""
    fields = table.schema.fields
    rows = [[Cell(text=each.name), text_cell(each.type), text_cell(each.description)] for each in fields]
    title = many_text(len(rows), "column")
    yield PagePart(name="columns", title=title, columns=heads("column", "type", ""), rows=rows, is_open=False)
    ids = table.store.schemas.ids()[-_LISTED_SCHEMAS - 1 :]
    versions = [table.store.schemas.read(each) for each in ids]
    changed = []
    for before, after in zip([None, *versions], versions, strict=False):
        then = {} if before is None else {each.id: f"{each.name} {each.type}" for each in before.fields}
        now = {each.id: f"{each.name} {each.type}" for each in after.fields}
        facts = [f"+ {now[each]}" for each in now if each not in then]
        facts += [f"− {then[each]}" for each in then if each not in now]
        facts += [f"{then[each]} → {now[each]}" for each in now if each in then and then[each] != now[each]]
        old = {} if before is None else before.options
        keys = sorted(key for key in {*old, *after.options} if old.get(key) != after.options.get(key))
        facts += [f"options {', '.join(keys)}"] if keys and before is not None else []
        changed.append([text_cell(after.id), time_cell(after.time_ms), text_cell("; ".join(facts))])
    title = f"{many_text(len(changed), 'version')} of the schema"
    rows = changed[::-1][:_LISTED_SCHEMAS]
    yield PagePart(name="schemas", title=title, columns=heads("version", "time", "changes"), rows=rows, is_open=False)


def _options(table: Table) -> Iterator[PagePart]:
    """What is not as it is by default, where that comes from, and what has no effect."""
    ignored = ignored_options(table.store)
    found = effective_table_options(table.schema.options, primary_key=table.schema.primary_keys)
    rows = []
    for each in found:
        if each.origin is not OptionOrigin.DEFAULT:
            why = ignored.get(each.key)
            doc = text_cell(each.doc, "soft") if why is None else text_cell(f"has no effect: {why}", "warn")
            rows.append([Cell(text=each.key), text_cell(each.value), Cell(text=each.origin.value), doc])
    columns = heads("option", "value", "from", "")
    title = f"{many_text(len(rows), 'option')} other than the default"
    yield PagePart(name="options", title=title, columns=columns, rows=rows, is_open=False)
