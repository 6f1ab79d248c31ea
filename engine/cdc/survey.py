"""The survey of samples: tables with their keys and columns, and the schema changes in their topics. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.cdc.records.metadata import OTHERS, POSTGRES_CONNECTOR
from engine.cdc.records.part_columns import key_names, loss_of, lossy_columns
from engine.cdc.records.routing import (
    READ,
    Declared,
    RecordPiece,
    RowPart,
    is_cloud_event,
    is_flattened,
    is_row_part,
    nothing_declared,
    route,
)
from engine.cdc.rules.names import SourceTable, TableTarget, name_in_table
from engine.cdc.rules.part_sequence import CHANGE_KINDS
from engine.cdc.rules.widening import has_place_for, wider
from engine.cdc.samples import TopicSample
from engine.cdc.settings import GENERATED, REFUSE, SKIP, CdcSettings
from filestore.types.data_types import data_type_of
from logstore.format.connect_types import SourceColumn, columns_of_part
from logstore.format.schema_parts import Split

_EMPTIED: Final = (
    "null in all changes of the samples, and not in rows of a snapshot: so is a generated column after a snapshot by a "
    "signal; source.dsn knows them, or exclude it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedColumn:
    """A column, as the newest part has it."""

    source: SourceColumn
    name: str  # in the table
    type: str  # in the table; "" = refused or excluded
    note: str  # what is lost, or why it is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedTable:
    """A source table."""

    source: SourceTable
    table: str | None  # None: left out by the rules
    topics: tuple[str, ...]
    key: tuple[str, ...]
    key_from: str
    columns: tuple[SurveyedColumn, ...]
    changes: tuple[str, ...] = ()  # between the earliest and the newest part
    problems: tuple[str, ...] = ()  # the job would refuse it
    joins: bool = False  # a rule sends other source tables into the same table


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All that was found."""

    tables: tuple[SurveyedTable, ...]
    others: Mapping[str, str] = field(default_factory=dict)  # topics that are no tables: what they are
    problems: Mapping[str, str] = field(default_factory=dict)  # topics that cannot be read, and why

    @property
    def is_possible(self) -> bool:
        """Whether a job would refuse nothing."""
        return not self.problems and not any(each.problems for each in self.tables)


@dataclass(slots=True)
class _Met:
    topics: list[str] = field(default_factory=list)
    connector: str | None = None
    parts: list[tuple[str, RowPart, bool]] = field(default_factory=list)  # by topic partition; of a snapshot's rows
    values: dict[tuple[bool, str], bool] = field(default_factory=dict)
    """By whether rows are of a snapshot, and column: whether any is not null."""

    def count(self, piece: RecordPiece) -> None:
        """Note which columns have values in some records."""
        for op, text in zip(pc.struct_field(piece.meta, "op").to_pylist(), piece.texts.to_pylist(), strict=True):
            for name, value in (json.loads(text).get("after") or {}).items():
                key = op == READ, name
                self.values[key] = self.values.get(key, False) or value is not None

    @property
    def emptied(self) -> frozenset[str]:
        """Columns that rows of a snapshot have values of, and changes are null in."""
        return frozenset(
            name
            for (is_read, name), has in self.values.items()
            if is_read and has and not self.values.get((False, name), True)
        )


def survey(
    samples: Iterable[TopicSample], settings: CdcSettings, split: Split, declared: Declared = nothing_declared
) -> Survey:
    """Look at samples.

    Args:
        samples: of all partitions.
        settings: rules of names and types.
        split: of the records' format.
        declared: parts for records that have none.
    """
    met: dict[SourceTable, _Met] = {}
    others: dict[str, str] = {}
    problems: dict[str, str] = {}
    for sample in samples:
        kind, problem = _look(sample, split, declared, settings.flattened_source(sample.topic), met)
        if problem:
            problems[sample.topic] = problem
        elif kind:
            others.setdefault(sample.topic, kind)
    tables = [_table(source, met[source], settings) for source in sorted(met)]
    return Survey(tables=tuple(_without_clashes(tables)), others=others, problems=problems)


def _look(
    sample: TopicSample, split: Split, declared: Declared, flattened: SourceTable | None, met: dict[SourceTable, _Met]
) -> tuple[str, str]:
    """The kind of a topic that is no table's, and the reason why it cannot be read."""
    kinds: set[str] = set()
    problem = ""
    has_tables = False
    position = f"{sample.topic}/{sample.partition}"
    for batch in sample.records:
        routed = route(batch["key"], batch["value"], split=split, declared=declared, flattened=flattened)
        for piece in routed.pieces:
            has_tables = True
            of = met.setdefault(piece.source, _Met())
            of.connector = pc.struct_field(piece.meta, ["source", "connector"])[-1].as_py() or of.connector
            if sample.topic not in of.topics:
                of.topics.append(sample.topic)
            digests = [part.digest for at, part, _ in of.parts if at == position]
            if piece.part is not None and not piece.part.is_key:
                of.count(piece)
            if piece.part is not None and not piece.part.is_key and piece.part.digest not in digests[-1:]:
                is_read = pc.all(pc.equal(pc.struct_field(piece.meta, "op"), READ)).as_py() is True
                of.parts.append((position, piece.part, is_read))
        if routed.bad and not routed.pieces:
            problem = routed.bad[0].reason
        kinds |= set(_kinds_of(batch, split))
    if has_tables:
        return "", ""
    if kinds:
        return ", ".join(sorted(kinds)), ""
    return ("" if problem else "no records yet" if not sample.size else _why_no_changes(sample)), problem


def _why_no_changes(sample: TopicSample) -> str:
    for value in (each for batch in sample.records for each in batch["value"].drop_null().to_pylist()):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and found.keys() >= {"op", "before", "after"} and not found.get("source"):
            return (
                "changes of rows without `source`, which says of which table they are: one topic for one table is "
                f"followed by a job of its own, fluvial init DIR --from-topic {sample.topic}"
            )
    return "no changes of rows: another topic, or flattened records without schema parts"


def _kinds_of(batch: pa.RecordBatch, split: Split) -> Iterator[str]:
    groups, _ = split(batch["value"].drop_null())
    for group in groups:
        part = group.schema_part
        if part is not None and not any(known(part) for known in (is_row_part, is_flattened, is_cloud_event)):
            name = str(part.get("name") or "")
            kinds = [kind for known, kind in OTHERS.items() if name.endswith(known)]
            yield kinds[0] if kinds else f"records of {name or 'no name'}"


def _table(source: SourceTable, met: _Met, settings: CdcSettings) -> SurveyedTable:
    target = settings.naming.target_of(source)
    if not met.parts:  # only truncates
        return SurveyedTable(
            source=source,
            table=None if target is None else target.table,
            topics=tuple(met.topics),
            key=(),
            key_from="not known: no row among the samples",
            columns=(),
        )
    newest = met.parts[-1][1]
    emptied = met.emptied if met.connector == POSTGRES_CONNECTOR else frozenset()
    columns = tuple(
        _column(each, source, settings, is_emptied=each.name in emptied)
        for each in columns_of_part(newest.row, settings.types)
    )
    in_part = {each.source.name for each in columns}
    columns += tuple(_generated(each, settings) for each in settings.lost_generated(source) if each not in in_part)
    key, key_from = _key(newest, target, settings, met.connector)
    problems = [f"{each.source.name}: {each.note}" for each in columns if each.source.refused and each.name in key]
    known = {column.name for column in columns if column.type} | set(() if target is None else target.constants)
    missing = [each for each in key if each not in known]
    problems += [f"key column {each} is not among the columns of the table" for each in missing]
    if settings.types.lossy == REFUSE:
        lossy = lossy_columns(newest, source, settings)
        problems += [f"{name}: types.lossy=refuse: {lost}" for name, lost in lossy.items()]
    return SurveyedTable(
        source=source,
        table=None if target is None else target.table,
        topics=tuple(met.topics),
        key=key,
        key_from=key_from,
        columns=columns,
        changes=tuple(dict.fromkeys(_changes([each[1:] for each in met.parts], settings))),
        problems=tuple(problems) if target is not None else (),
        joins=target is not None and target.joins,
    )


def _key(
    part: RowPart, target: TableTarget | None, settings: CdcSettings, connector: str | None
) -> tuple[tuple[str, ...], str]:
    if target is not None and target.key:
        return target.key, "a rule of names"
    names = key_names(part)
    if names:
        return tuple(name_in_table(each, settings.renamed) for each in names), "the record's key"
    whole_rows = "binlog_row_image=FULL" if connector in ("mysql", "mariadb") else "REPLICA IDENTITY FULL"
    left_out = " and is left out" if settings.without_key == SKIP else f", needs {whole_rows}"
    return (), f"none: without-key={settings.without_key}{left_out}"


def _column(
    column: SourceColumn, source: SourceTable, settings: CdcSettings, *, is_emptied: bool = False
) -> SurveyedColumn:
    name = name_in_table(column.name, settings.renamed)
    why = settings.why_left_out(source, column.name)
    if why is not None:
        return SurveyedColumn(source=column, name=name, type="", note=why)
    if column.refused:
        return SurveyedColumn(source=column, name=name, type="", note=f"refused: {column.note}")
    lost = loss_of(column, settings)
    notes = [each for each in (lost, _EMPTIED if is_emptied else "") if each]
    notes += [f"renamed from {column.name}"] if name != column.name else []
    return SurveyedColumn(source=column, name=name, type=str(data_type_of(column.type)), note="; ".join(notes))


def _generated(name: str, settings: CdcSettings) -> SurveyedColumn:
    """A column that no sample has, because the source computes it."""
    source = SourceColumn(
        name=name, type=pa.null(), nullable=True, default=None, source_type="", note=GENERATED, refused=False
    )
    return SurveyedColumn(source=source, name=name_in_table(name, settings.renamed), type="", note=GENERATED)


def _changes(parts: Sequence[tuple[RowPart, bool]], settings: CdcSettings) -> Iterator[str]:
    """A line for each change between neighbouring parts, with what a job does; a part may be of rows of a snapshot."""
    for (before, is_read), (after, is_again) in pairwise(parts):
        old = {each.name: each for each in columns_of_part(before.row, settings.types) if not each.refused}
        new = {each.name: each for each in columns_of_part(after.row, settings.types) if not each.refused}
        for name, column in new.items():
            kind = data_type_of(column.type)
            if name not in old:
                default = "" if column.default is None else f" default {column.default}"
                rest = f", null in rows before it, because {column.unknown}" if column.unknown else ""
                yield f"column {name} {kind}{default} is added{rest}: {_rule(settings, 'add')}"
            elif old[name].type != column.type:
                known = data_type_of(old[name].type)
                if has_place_for(known, kind):
                    continue
                change = "retype" if wider(known, kind) is None else "widen"
                yield f"column {name} changes from {known} to {kind}: {_rule(settings, change)}"
        for name in old.keys() - new.keys():
            yield f"column {name} is dropped: {_rule(settings, 'drop')}"
            if is_read and not is_again:
                yield f"column {name} may be a generated one, not in changes: the table waits until it is excluded"
        if key_names(before) != key_names(after):
            names = [",".join(key_names(each)) or "none" for each in (before, after)]
            yield f"the key changes from {names[0]} to {names[1]}: it waits until a snapshot makes it again"


def _rule(settings: CdcSettings, kind: str) -> str:
    word = settings.schema_changes.get(kind, CHANGE_KINDS[kind][0])
    return f"schema-changes.{kind}={word}"


def _without_clashes(tables: Sequence[SurveyedTable]) -> Iterator[SurveyedTable]:
    """Two source tables with one name are a problem of both."""
    by_table: dict[str, list[SurveyedTable]] = {}
    for each in tables:
        if each.table is not None and not each.joins:
            by_table.setdefault(each.table, []).append(each)
    for each in tables:
        same = [] if each.joins else by_table.get(each.table or "", [])
        others = [str(other.source) for other in same if other is not each]
        yield each if not others else replace(each, problems=(*each.problems, _clash(each, others)))


def _clash(table: SurveyedTable, others: Sequence[str]) -> str:
    return (
        f"table {table.table} is also that of {', '.join(others)}: "
        "fix=write a rule into names, such as {from: (.*)\\.(.*), to: '{1}_{2}'}, or one without a placeholder to join"
    )


def survey_json(found: Survey) -> dict[str, Any]:
    """The survey as JSON values, as ``fluvial plan --from-topics --json`` prints it."""
    return {
        "tables": [
            {
                "source": str(each.source),
                "table": each.table,
                "topics": list(each.topics),
                "key": list(each.key),
                "key_from": each.key_from,
                "columns": [
                    {
                        "source": column.source.name,
                        "source_type": column.source.source_type,
                        "name": column.name,
                        "type": column.type or None,
                        "default": column.source.default,
                        "note": column.note,
                    }
                    for column in each.columns
                ],
                "changes": list(each.changes),
                "problems": list(each.problems),
            }
            for each in found.tables
        ],
        "other_topics": dict(found.others),
        "problems": dict(found.problems),
    }
