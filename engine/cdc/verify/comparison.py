"""A table and its source, compared in three steps: sums of ranges, rows of ranges that differ, values of such rows.

Each step reads both sides once. Memory holds one batch, the sums, and the hashes of at most ``max_rows`` rows, whatever
the size of the table: ranges that differ are looked at in groups, until `limit` keys are found.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.cdc.verify.database import LiveTable, Query, SourceDatabase
from engine.cdc.verify.digests import (
    RangeSums,
    RowDigests,
    differing_keys,
    differing_ranges,
    digests_of,
    joined,
    key_texts,
)
from engine.cdc.verify.expressions import NUMBERS, quoted_name, text_of
from engine.cdc.verify.texts import row_texts, value_texts
from lsm.errors import InvalidInputError

_RANGE_ROWS: Final = 4096
_MOST_RANGES: Final = 1 << 16
RowTexts = tuple[str | None, ...]


class ComparedRows(Protocol):
    """A state of a table, which can be read several times; ``BatchRead`` is one."""

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""

    def to_batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, in no order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPair:
    """A column of both sides."""

    source: str
    name: str  # in the table
    type: pa.DataType  # in the table
    text: str  # SQL of the value's text
    is_number: bool = False  # as a text, of which zeros behind the last digit mean nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePair:
    """The columns of a source table and of its table that are compared."""

    source: LiveTable
    query: Query
    columns: tuple[ColumnPair, ...]
    key: tuple[int, ...]  # places in the columns; of a table without a key, all
    left_out: Mapping[str, str] = field(default_factory=dict)  # columns that are not compared, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDifference:
    """A key whose rows are not equal; without a key, a row. RowTexts are texts of ``texts``, by the table's columns."""

    key: Mapping[str, str | None]
    source: tuple[RowTexts, ...]  # rows in the database
    table: tuple[RowTexts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of a comparison."""

    pair: TablePair
    source_rows: int
    table_rows: int
    range_count: int
    differing_ranges: int
    differences: tuple[KeyDifference, ...]
    is_complete: bool  # False: there are more than the limit

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return self.differing_ranges == 0


def paired(
    dialect: str,
    source: LiveTable,
    sql_name: str,
    schema: pa.Schema,
    *,
    named: Callable[[str], str] = str,
    excluded: Callable[[str], bool] = lambda column: False,
) -> TablePair:
    """Pair the columns of a source table with those of its table, as far as they can be compared.

    Args:
        dialect: of the database.
        source: the source table.
        sql_name: in SQL.
        schema: of the table's rows.
        named: a source column's name in the table.
        excluded: whether a source column is left out on purpose.

    Raises:
        InvalidInputError: a key column cannot be compared.
    """
    pairs: list[ColumnPair] = []
    left_out: dict[str, str] = {}
    for column, kind in source.columns:
        name = named(column)
        if excluded(column):
            continue
        if name not in schema.names:
            is_generated = column in source.generated
            left_out[column] = "the source computes it (generated)" if is_generated else "the table has no such column"
            continue
        data_type = schema.field(name).type
        text = text_of(dialect, kind, data_type, quoted_name(dialect, column))
        if text is None:
            left_out[column] = f"no common text of {kind} and {data_type}"
        else:
            is_number = kind in NUMBERS and data_type in (pa.string(), pa.list_(pa.string()))
            pairs.append(ColumnPair(source=column, name=name, type=data_type, text=text, is_number=is_number))
    names = [each.source for each in pairs]
    missing = [each for each in source.key if each not in names]
    if missing or not pairs:
        raise InvalidInputError(
            f"table cannot be compared: source={source} column={missing[0] if missing else 'all'} "
            f"reason={left_out.get(missing[0], 'excluded') if missing else 'none has a common text'}"
        )
    key = tuple(names.index(each) for each in source.key) or tuple(range(len(pairs)))
    columns = tuple((quoted_name(dialect, each.source), each.text) for each in pairs)
    query = Query(table=sql_name, columns=columns, key=tuple(columns[at] for at in key))
    return TablePair(source=source, query=query, columns=tuple(pairs), key=key, left_out=left_out)


def compared(
    database: SourceDatabase, pair: TablePair, state: ComparedRows, *, limit: int = 1000, max_rows: int = 200_000
) -> Comparison:
    """Compare a table with its source.

    Args:
        database: at one moment.
        pair: what is compared.
        state: the table at one moment.
        limit: of differences to look for.
        max_rows: whose hashes are held at once, unless one range has more.

    Raises:
        UnavailableError: the database refuses a query, for example a conversion.
    """
    source_rows = database.count(pair.query.table)
    count = min(max(source_rows // _RANGE_ROWS, 1), _MOST_RANGES)
    sums = RangeSums(count)
    for _, digests in _digests(pair, state):
        sums.add(digests)
    here, there = sums.found(), database.sums(pair.query, count)
    differing = differing_ranges(here, there)
    sizes = {at: sum(side[at].count for side in (here, there) if at in side) for at in differing}
    found: list[str] = []
    looked_at = 0
    for group in _groups(sizes, max_rows):
        looked_at += len(group)
        mine = joined(each.chosen(np.isin(each.ranges(count), group)) for _, each in _digests(pair, state))
        found += differing_keys(mine, database.digests(pair.query, group, count))
        if len(found) >= limit:
            break
    is_complete = len(found) <= limit and looked_at == len(differing)
    return Comparison(
        pair=pair,
        source_rows=source_rows,
        table_rows=sum(each.count for each in here.values()),
        range_count=count,
        differing_ranges=len(differing),
        differences=tuple(_differences(database, pair, state, found[:limit])),
        is_complete=is_complete,
    )


def _groups(sizes: Mapping[int, int], max_rows: int) -> Iterator[list[int]]:
    group: list[int] = []
    rows = 0
    for at, size in sizes.items():
        if group and rows + size > max_rows:
            yield group
            group, rows = [], 0
        group.append(at)
        rows += size
    if group:
        yield group


def _digests(pair: TablePair, state: ComparedRows) -> Iterator[tuple[list[pa.Array], RowDigests]]:
    """The texts of each batch by column, and their hashes."""
    names = [each.name for each in pair.columns]
    for batch in state.to_batches(columns=names):
        if batch.num_rows:
            texts = [_texts(batch.column(each.name), each) for each in pair.columns]
            yield texts, digests_of(row_texts([texts[at] for at in pair.key]), row_texts(texts))


def _texts(values: pa.Array, column: ColumnPair) -> pa.Array:
    return value_texts(_bare(values) if column.is_number else values)


def _bare(numbers: pa.Array) -> pa.Array:
    """Numbers as texts, or lists of them, without zeros behind the last digit."""
    if pa.types.is_list(numbers.type):
        whole = numbers.take(pa.array(range(len(numbers)), pa.int64()))  # a slice has no mask of its own
        return pa.ListArray.from_arrays(whole.offsets, _bare(whole.values), mask=whole.is_null())
    return pc.replace_substring_regex(pc.replace_substring_regex(numbers, r"(\.[0-9]*?)0+$", r"\1"), r"\.$", "")


def _differences(
    database: SourceDatabase, pair: TablePair, state: ComparedRows, keys: Sequence[str]
) -> Iterator[KeyDifference]:
    if not keys:
        return
    wanted = set(keys)
    rows: dict[str, tuple[list[RowTexts], list[RowTexts]]] = {key: ([], []) for key in keys}
    for key, values in database.values(pair.query, keys):
        rows[key][0].append(values)
    for texts, digests in _digests(pair, state):
        hashes = key_texts(digests)
        places = [place for place, key in enumerate(hashes) if key in wanted]
        chosen = [column.take(pa.array(places, pa.int64())).to_pylist() for column in texts]
        for place, values in zip(places, zip(*chosen, strict=True), strict=True):
            rows[hashes[place]][1].append(values)
    names = [each.name for each in pair.columns]
    for source, table in rows.values():
        first = (source or table)[0]
        values_of_key = {names[at]: first[at] for at in pair.key}
        yield KeyDifference(key=values_of_key, source=tuple(source), table=tuple(table))
