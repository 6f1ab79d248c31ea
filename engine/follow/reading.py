"""A reading decides which rows a batch has, and in which order; a position within a batch counts those rows.

A later reading repeats an earlier one where all of this is the same. What the batch lies between (snapshots, offsets,
splits, the moment at which rows have expired) is in its two positions, and its steps are compared; columns that were
compared are compared again, also dropped ones. Whatever else differs is refused by its name.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from engine.stream.options import StreamOptions
from engine.stream.position.plan import ChangeStep, LogStep, PlanStep, SnapshotStep
from engine.stream.rows import StreamRows
from filestore.evolution.crossing import crossing
from filestore.options.table.rows import MergeOptions
from filestore.options.table_options import TableOptions
from filestore.predicate.predicate import And, Constant, Not, Or, Predicate
from filestore.schema.column_options import renamed_in_options
from filestore.schema.row_counts import seen_schema
from filestore.schema.table_schema import TableSchema
from filestore.table_view import TableView
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError

WAY: Final = 1
"""How steps become rows: raised when a version of the code delivers other rows for the same steps, or another order."""

_MOST_FIELDS: Final = 100_000  # of a table
_NO_VERSION: Final = -1  # id of a schema that no file has
_AGGREGATES: Final = "fields."
_DECIDING: Final = (
    *MergeOptions.declared.values(),
    TableOptions.changelog_producer,
    TableOptions.streaming_read_overwrite,
    TableOptions.streaming_read_append_overwrite,
    TableOptions.deletion_vectors_merge_on_read,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReading:
    """How the rows of one batch were read. Equal ones give the same rows in the same order."""

    schema_id: int  # version of the schema that names the columns
    columns: tuple[int, ...]  # ids of those that were read, for rows or for the filter, ascending
    share: str  # "0/2"
    filter: str  # digest; "" without one
    kinds: str  # normalized, exact, or "" as they are
    options: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # of the table: digests of what decides rows, by key
    tracking_id: int  # version of the schema that says which partitions are tracked
    steps: str = ""  # digest of what the batch consists of
    way: int = WAY

    @classmethod
    def of(cls, stream: StreamOptions, share: tuple[int, int]) -> Self:
        """The reading of a stream, of any batch."""
        table = stream.table
        ids = {each.name: each.id for each in table.schema.fields}
        return cls(
            schema_id=table.store.schema.id,
            columns=tuple(sorted(ids[name] for name in stream.columns)),
            share=f"{share[0]}/{share[1]}",
            filter="" if stream.filter is None else _digest(_with_ids(stream.filter, ids)),
            kinds="normalized" if stream.normalizes else "exact" if stream.is_exact else "",
            options=_deciding(table, ids),
            tracking_id=table.store.schema.id,
        )

    def of_batch(self, steps: Sequence[PlanStep], tracking_id: int) -> Self:
        """The reading of one batch."""
        return replace(self, steps=_digest([_facts(step) for step in steps]), tracking_id=tracking_id)

    def to_json(self) -> dict[str, Any]:
        """The choices as JSON values in positions; short, because browsers send them."""
        body: dict[str, Any] = {
            "way": self.way,
            "schema": self.schema_id,
            "columns": _as_ranges(self.columns),
            "tracking": self.tracking_id,
            "share": self.share,
            "steps": self.steps,
        }
        given = {"filter": self.filter, "kinds": self.kinds, "options": dict(self.options)}
        return body | {key: value for key, value in given.items() if value}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """The inverse of ``to_json``. Raises: KeyError, TypeError, ValueError, AttributeError."""
        return cls(
            way=int(body["way"]),
            schema_id=int(body["schema"]),
            columns=_of_ranges(body["columns"]),
            tracking_id=int(body["tracking"]),
            share=str(body["share"]),
            filter=str(body.get("filter", "")),
            kinds=str(body.get("kinds", "")),
            options={str(key): str(text) for key, text in body.get("options", {}).items()},
            steps=str(body["steps"]),
        )

    def check_repeated_by(self, stream: StreamOptions, share: tuple[int, int]) -> None:
        """Refuse a stream that would give other rows. Raises: InvalidInputError naming what differs."""
        now, name = self.of(stream, share), stream.table.name
        if self.way != now.way:
            raise not_repeated(name, f"cause='another version of Fluvial reads in another order' way={self.way}")
        for what, then, here in (
            ("share", self.share, now.share),
            ("filter", self.filter, now.filter),
            ("log.scan.normalize or a filter on values: kinds", self.kinds, now.kinds),
        ):
            if then != here:
                raise InvalidInputError(
                    f"the position is of a stream that asked for other rows: table={name} {what}={here or 'none'} "
                    f"then={then or 'none'} cause='it lies within a batch, and counts its rows' "
                    "fix='continue with the same filter, share and options until a batch is complete'"
                )
        for key in sorted(self.options.keys() | now.options.keys()):
            if self.options.get(key) != now.options.get(key):
                raise not_repeated(name, f"option={key} cause='it decides which rows there are, and was changed'")

    def repeated(self, batch: Self, rows: StreamRows) -> tuple[Self, StreamRows]:
        """This reading of a batch, and what reads its rows, in a stream's columns.

        Args:
            batch: the stream's own reading of the batch, checked; its columns may be others.
            rows: what reads in that way.

        Raises: InvalidInputError: the batch consists of something else now, or a column's type has changed so that
            equal values may differ now, or the reverse.
        """
        if batch.steps != self.steps:
            raise not_repeated(rows.table.name, "cause='other options of the table, or another version of Fluvial'")
        return self, self._comparing(rows) if rows.table.store.has_key else rows

    def tracking(self, table: TableView) -> TableSchema:
        """The version of the schema that says which partitions are tracked. Raises: InvalidInputError."""
        return self._version(table, self.tracking_id)

    @staticmethod
    def _version(table: TableView, schema_id: int) -> TableSchema:
        if schema_id != table.store.schema.id and schema_id not in table.store.schemas.ids():
            raise not_repeated(table.name, f"schema={schema_id} cause='there is no such version of the schema'")
        return table.store.schema_of(schema_id)

    def _comparing(self, rows: StreamRows) -> StreamRows:
        """Rows of which only a difference in the columns of this reading is a change, dropped columns too."""
        table = rows.table
        fields = {each.id: each for each in table.schema.fields}
        then = seen_schema(self._version(table, self.schema_id))
        known = {each.id: each for each in then.fields}
        if not known.keys() >= {*self.columns}:
            raise not_repeated(table.name, f"columns={_as_ranges(self.columns)} schema={self.schema_id}")
        here = [known[each] for each in self.columns if each in fields]
        changed = crossing(then, table.schema, [each.name for each in here]).refused
        if changed:
            raise not_repeated(table.name, f"{changed[0]} schema={table.schema.id} then={self.schema_id}")
        gone = _apart([known[each] for each in self.columns if each not in fields], table.schema)
        if gone:
            store = table.store
            schema = replace(store.schema, id=_NO_VERSION, fields=(*store.schema.fields, *gone))
            table = replace(table, store=replace(store, schema=schema))
            rows = replace(rows, wider=table)
        compared = [fields[each.id].name for each in here] + [each.name for each in gone]
        needed = {*rows.columns, *compared}
        columns = [name for name in table.schema.column_names if name in needed]
        return replace(rows, columns=columns, compared=compared)


def not_repeated(table: str, facts: str) -> InvalidInputError:
    """The error for a batch that cannot be read again as it was."""
    return InvalidInputError(
        f"the position lies within a batch, which cannot be read again as it was: table={table} {facts} "
        'fix=\'undo that until a batch is complete, or pass on what the position has under "at": the rows of its '
        "batch then come again'"
    )


def _facts(step: PlanStep) -> tuple[object, ...]:
    match step:
        case SnapshotStep():
            return "snapshot", step.snapshot_id, step.first, step.until, step.plan, step.moment_ms
        case ChangeStep():
            return "files", step.before_id, step.after_id, step.first, step.until, step.plan
        case LogStep():
            ranges = [(each.bucket, each.start_offset, each.end_offset) for each in step.ranges]
            return "log", step.base_id, ranges


def _apart(fields: Sequence[DataField], schema: TableSchema) -> list[DataField]:
    """Dropped columns under names that no other column has."""
    taken = {*schema.column_names}
    return [replace(each, name=each.name if each.name not in taken else f"{each.name}#{each.id}") for each in fields]


def _deciding(table: TableView, ids: Mapping[str, int]) -> dict[str, str]:
    """Digests of the options that decide which rows there are and can be altered, those of aggregates as one."""
    texts = table.options.texts_by_key()
    keys = [each.key for each in _DECIDING if not each.is_immutable and each.read(texts) != each.default]
    given = {key: text for key, text in texts.items() if key in keys or key.startswith(_AGGREGATES)}
    given = renamed_in_options(given, {name: f"#{number}" for name, number in ids.items()})
    aggregates = {key: given.pop(key) for key in sorted(given) if key.startswith(_AGGREGATES)}
    found = {key: _digest(text) for key, text in given.items()}
    return {**found, f"{_AGGREGATES}*": _digest(aggregates)} if aggregates else found


def _with_ids(predicate: Predicate, ids: Mapping[str, int]) -> Predicate:
    """A predicate that names columns by their ids, which renaming keeps."""
    if isinstance(predicate, And | Or):
        return replace(predicate, parts=tuple(_with_ids(part, ids) for part in predicate.parts))
    if isinstance(predicate, Not):
        return Not(part=_with_ids(predicate.part, ids))
    return predicate if isinstance(predicate, Constant) else replace(predicate, column=f"#{ids[predicate.column]}")


def _digest(value: object) -> str:
    return hashlib.blake2s(repr(value).encode(), digest_size=6).hexdigest()


def _as_ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as ``0-4,7``."""
    ends: list[list[int]] = []
    for number in numbers:
        if ends and ends[-1][1] == number - 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def _of_ranges(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if int(last or first) > _MOST_FIELDS:
            raise ValueError(f"no column has such an id: {part}")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)
