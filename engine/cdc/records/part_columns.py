"""Columns of a schema part in the types of tables: where the job meets the rules of ``logstore.format``."""

from collections.abc import Mapping, Sequence
from typing import Any

from engine.cdc.records.routing import RowPart
from engine.cdc.rules.names import SourceTable, is_excluded
from engine.cdc.rules.part_sequence import PartColumn
from engine.cdc.settings import CdcSettings
from filestore.types.data_types import data_type_of
from logstore.format.connect_types import columns_of_part


def row_columns(part: RowPart, source: SourceTable, settings: CdcSettings) -> tuple[PartColumn, ...]:
    """The columns of a table's rows, without excluded ones and those that no table can hold."""
    return tuple(
        PartColumn(name=each.name, type=data_type_of(each.type), default=each.default)
        for each in columns_of_part(part.row, settings.types)
        if not each.refused and not is_excluded(source, each.name, settings.excluded)
    )


def refused_columns(part: RowPart, settings: CdcSettings) -> dict[str, str]:
    """The columns that no table can hold, and why."""
    return {each.name: each.note for each in columns_of_part(part.row, settings.types) if each.refused}


def lossy_columns(part: RowPart, source: SourceTable, settings: CdcSettings) -> dict[str, str]:
    """The columns of a table's rows that do not hold all of the source's values, and what is lost."""
    return {
        each.name: each.note
        for each in columns_of_part(part.row, settings.types)
        if each.note and not each.refused and not is_excluded(source, each.name, settings.excluded)
    }


def key_names(part: RowPart) -> tuple[str, ...]:
    """The columns of the key, in the source's order; () without one."""
    return field_names(part.key)


def field_names(part: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Names of the fields of a struct's schema part."""
    fields: Sequence[Mapping[str, Any]] = [] if part is None else part.get("fields") or []
    return tuple(str(each["field"]) for each in fields)
