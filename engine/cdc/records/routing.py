"""Records of change topics by source table and schema part.

The table is that of a record's ``source``, not of its topic: routed topics hold several. Heartbeats, transactions,
schema changes and signals are known by the names of their schemas, and are no rows of a table.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.cdc.records.metadata import META
from engine.cdc.rules.names import SourceTable
from logstore.format.connect_types import row_part
from logstore.format.schema_parts import Payloads, Split, split_payloads
from logstore.format.source.column_values import part_fields
from logstore.json.arrow_bytes import flags, rows_where
from logstore.json.decoding import decode_objects
from logstore.json.reading import BadRecord, Reading, row_reading
from lsm.errors import InvalidInputError
from lsm.keys.words import BoolArray, IndexArray

ENVELOPE_FIELDS: Final = frozenset({"op", "source", "after"})
TRUNCATE: Final = "t"
UPDATE: Final = "u"
DELETE: Final = "d"
READ: Final = "r"  # of a snapshot
NO_SCHEMA_PART: Final = (
    "the record has no schema part, so its columns have no types: "
    "fix=set schemas.enable=true at both converters of the connector, use Avro, or declare the columns of the table"
)
FLATTENED: Final = (
    "the record is a row alone, without its kind of change: the connector flattens it (ExtractNewRecordState): "
    "fix=remove the transform, conventionally named unwrap, from the connector; or write source.flattened into the job"
)
CLOUD_EVENT: Final = (
    "the record is a CloudEvents envelope: fix=set value.converter of the connector to JsonConverter with "
    "value.converter.schemas.enable=true, or to AvroConverter, in place of CloudEventsConverter"
)
_CLOUD_EVENT: Final = pa.schema([("specversion", pa.string()), ("type", pa.string()), ("iodebeziumname", pa.string())])
_CLOUD_FIELDS: Final = frozenset({"specversion", "type", "datacontenttype", "data"})
_CLOUD_TYPE: Final = "io.debezium.connector."
_FACTS: Final = {"ts_ms": pa.int64(), "lsn": pa.int64(), "snapshot": pa.string()}
_OF_ROWS: Final = pa.schema(
    [("__op", pa.string()), ("__deleted", pa.string())]
    + [(f"__{name}{each}", kind) for each, kind in _FACTS.items() for name in ("", "source_")]
)
"""Facts of a change that ``ExtractNewRecordState`` can add to its row as fields, and their types."""
_REST_OF_EVENTS: Final = ({"field": "source", "type": "struct"}, {"field": "op", "type": "string"})
_OF_CHANGES: Final = re.compile(
    "__(deleted|op|table|db|schema|lsn|ts_ms|ts_us|ts_ns|connector|name|snapshot|version|sequence|txId|xmin|gtid|file|"
    "pos|row|thread|server_id|source_.+|transaction_.+)"
)
_OF_CONNECTORS: Final = (frozenset({"status", "event_count", "data_collections"}), frozenset({"databaseName", "ddl"}))
"""Members of transactions, and of changes of the schema."""
NO_KEY: Final = (
    "a row alone has no key, so which row a change is of is not known: fix=remove the transform, or add a key"
)
NO_COLUMNS: Final = "documents (MongoDB) have no columns: fix=let the pattern not match their topics"
TRANSACTION_PART: Final = "TransactionMetadataValue"
_TRANSACTION: Final = pa.schema(
    [
        ("status", pa.string()),
        ("id", pa.string()),
        ("data_collections", pa.list_(pa.struct([("data_collection", pa.string()), ("event_count", pa.int64())]))),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPart:
    """The schema of a table's rows, and of its records' keys, as records carry it."""

    digest: str
    row: Mapping[str, Any]  # the struct of ``after``
    key: Mapping[str, Any] | None  # None: records have no key
    is_declared: bool = False  # by the job, because records have no schema part
    is_key: bool = False  # of the key alone: a tombstone says no more


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPiece:
    """Records of one table and one schema part."""

    source: SourceTable
    part: RowPart | None  # None: truncates, which say nothing of the key
    indices: IndexArray  # (n,) of the records, ascending
    meta: pa.StructArray  # (n,) of ``META``
    texts: pa.Array  # (n,) the envelopes as JSON, without their schema part

    @property
    def size_bytes(self) -> int:
        """Memory that it takes."""
        return int(self.indices.nbytes + self.meta.nbytes + self.texts.nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecord:
    """A record that becomes no row. Its table waits; other tables do not."""

    index: int
    reason: str
    source: SourceTable | None = None  # None: not known
    is_letter: bool = True  # it alone is wrong; False: so is every record of its table


RecordPlace = tuple[str, int, int]
"""Topic, partition and offset."""


class RefusedRecordError(InvalidInputError):
    """A record at which a table waits."""

    def __init__(self, text: str, at: RecordPlace | None = None) -> None:
        """``at`` is the first record that ``fluvial cdc skip`` leaves out; None: not known."""
        super().__init__(text)
        self.at = at


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """The records of a batch, sorted by source table and schema part."""

    pieces: tuple[RecordPiece, ...]
    ended: tuple[tuple[int, str, Mapping[str, int]], ...]  # END records: index, transaction, changes by table
    bad: tuple[RefusedRecord, ...]
    others: frozenset[str] = frozenset()  # names of schemas of records that are no rows; "": of those without a schema


Declared = Callable[[SourceTable], RowPart | None]
"""The part of a table's records without schema parts; None: they are refused."""


def nothing_declared(_: SourceTable) -> RowPart | None:
    """Refuses all records without schema parts."""
    return None


def route(
    keys: pa.Array,
    values: pa.Array,
    *,
    split: Split = split_payloads,
    declared: Declared = nothing_declared,
    flattened: SourceTable | None = None,
) -> Routed:
    """Find the table and the schema part of each record.

    Args:
        keys: (n,) binary.
        values: (n,) binary; null is a tombstone.
        split: see ``decode_envelopes``.
        declared: parts for records that have none.
        flattened: the source table whose rows the records are, without envelopes; None: such records are refused.
    """
    is_tombstone = flags(values.is_null())
    places = np.flatnonzero(~is_tombstone)
    groups, unreadable = split(values.drop_null() if is_tombstone.any() else values)
    bad = _refused(unreadable, places)
    pieces: list[RecordPiece] = []
    others, gone = set[str](), list[int]()  # rows without a value are tombstones that a converter has wrapped
    ended: list[tuple[int, str, Mapping[str, int]]] = []
    for group in groups:
        if group.schema_part is not None and str(group.schema_part.get("name", "")).endswith(TRANSACTION_PART):
            ended += _ended(group, places[group.indices])
            continue
        is_cloud = _are_cloud_events(group)
        if is_cloud.any():
            found_at = places[group.indices[is_cloud]]
            bad += [RefusedRecord(index=int(at), reason=CLOUD_EVENT, is_letter=False) for at in found_at]
            group = replace(group, indices=group.indices[~is_cloud], texts=rows_where(group.texts, ~is_cloud))
            if not len(group.indices):
                continue
        if flattened is not None and not is_row_part(group.schema_part):
            has_row = ~flags(pc.equal(group.texts.cast(pa.binary()), b"null"))
            gone += places[group.indices[~has_row]].tolist()
            group = replace(group, indices=group.indices[has_row], texts=rows_where(group.texts, has_row))
            events, rows_at, unreadable = _enveloped(group, flattened)
            at, bad = places[rows_at], bad + _refused(unreadable, places[group.indices], source=flattened)
            has_key = flags(keys.take(pa.array(at)).is_valid())
            bad += [
                RefusedRecord(index=int(each), reason=NO_KEY, source=flattened, is_letter=False)
                for each in at[~has_key]
            ]
            events = replace(events, texts=rows_where(events.texts, has_key))
            found, refused = _pieces_of(events, at[has_key], keys, split, declared)
            pieces += found
            bad += refused
            continue
        if is_flattened(group.schema_part):
            bad += [RefusedRecord(index=int(at), reason=FLATTENED, is_letter=False) for at in places[group.indices]]
            continue
        found, refused = _pieces_of(group, places[group.indices], keys, split, declared)
        if not found and not refused:
            others.add("" if group.schema_part is None else str(group.schema_part.get("name") or "?"))
        pieces += found
        bad += refused
    if flattened is not None and (gone or is_tombstone.any()):
        gone_at = np.sort(np.r_[np.flatnonzero(is_tombstone), np.array(gone, np.int64)])
        found, refused = _deletes(flattened, gone_at, keys, split, declared)
        pieces += found
        bad += refused
    pieces.sort(key=lambda each: int(each.indices[0]))
    return Routed(
        pieces=tuple(pieces),
        ended=tuple(sorted(ended, key=lambda each: each[0])),
        bad=tuple(sorted(bad, key=lambda each: each.index)),
        others=frozenset(others),
    )


def is_row_part(part: Mapping[str, Any] | None) -> bool:
    """Whether a schema part is that of a table's changes."""
    return {each.get("field") for each in part_fields(part)} >= ENVELOPE_FIELDS


def is_flattened(part: Mapping[str, Any] | None) -> bool:
    """Whether a schema part describes a row without an envelope, as ``ExtractNewRecordState`` publishes it."""
    return part is not None and str(part.get("name", "")).endswith(".Value") and not is_row_part(part)


def is_cloud_event(part: Mapping[str, Any] | None) -> bool:
    """Whether a schema part describes envelopes of ``CloudEventsConverter``: those in Avro have one, in JSON none."""
    names = {each.get("field") for each in part_fields(part)}
    return part is not None and names >= _CLOUD_FIELDS and not str(part.get("name", "")).endswith(".Value")


def _are_cloud_events(group: Payloads) -> BoolArray:
    """(n,) whether each record is an envelope of ``CloudEventsConverter``.

    Source: Debezium "CloudEvents converter": its ``type``, or with attributes of extensions, ``iodebezium`` and a name.
    """
    found = np.full(len(group.texts), is_cloud_event(group.schema_part))
    if group.schema_part is not None:
        return found
    at = np.flatnonzero(flags(pc.match_substring(group.texts.cast(pa.binary()), '"specversion"')))
    if len(at):
        decoded = decode_objects(group.texts.take(pa.array(at)), row_reading(_CLOUD_EVENT, lenient=True))
        version, kind, name = decoded.rows.flatten()
        is_own = pc.or_(pc.fill_null(pc.starts_with(kind, _CLOUD_TYPE), False), name.is_valid())
        found[at[decoded.indices[flags(pc.and_(version.is_valid(), is_own))]]] = True
    return found


def is_of_documents(part: Mapping[str, Any] | None) -> bool:
    """Whether a schema part describes changes of MongoDB, whose documents are texts."""
    return any(each.get("field") == "after" and each.get("type") == "string" for each in part_fields(part))


def _ended(group: Payloads, indices: IndexArray) -> list[tuple[int, str, Mapping[str, int]]]:
    decoded = decode_objects(group.texts, row_reading(_TRANSACTION, lenient=True))
    return [
        (
            int(indices[at]),
            row["id"],
            {each["data_collection"]: each["event_count"] for each in row["data_collections"] or ()},
        )
        for at, row in zip(decoded.indices.tolist(), decoded.rows.to_pylist(), strict=True)
        if row["status"] == "END"
    ]


def _pieces_of(
    group: Payloads, indices: IndexArray, keys: pa.Array, split: Split, declared: Declared
) -> tuple[list[RecordPiece], list[RefusedRecord]]:
    if group.schema_part is not None and not is_row_part(group.schema_part):
        return [], []
    decoded = decode_objects(group.texts, _meta_reading())
    bad = _refused(decoded.bad, indices)
    meta, at, texts = decoded.rows, indices[decoded.indices], group.texts
    if len(at) < len(texts):
        texts = texts.take(pa.array(decoded.indices))
    source = pc.struct_field(meta, "source")
    is_event = flags(pc.and_(source.is_valid(), pc.struct_field(source, "table").is_valid()))
    if not is_event.all():
        if group.schema_part is not None:
            why = NO_COLUMNS if is_of_documents(group.schema_part) else "the event has no source table"
            bad += [RefusedRecord(index=int(each), reason=why, is_letter=False) for each in at[~is_event]]
        else:
            alone = at[~is_event][
                _are_rows_alone(keys.take(pa.array(at[~is_event])), texts.filter(pa.array(~is_event)))
            ]
            bad += [RefusedRecord(index=int(each), reason=FLATTENED, is_letter=False) for each in alone]
        meta, at, texts = rows_where(meta, is_event), at[is_event], rows_where(texts, is_event)
        source = pc.struct_field(meta, "source")
    pieces = []
    schema = pc.coalesce(pc.struct_field(source, "schema"), pc.struct_field(source, "db"), "")
    names = pc.binary_join_element_wise(schema, pc.struct_field(source, "table"), "\x00").dictionary_encode()
    codes = names.indices.to_numpy(zero_copy_only=False)
    is_truncate = flags(pc.equal(pc.struct_field(meta, "op"), TRUNCATE).fill_null(False))
    for code, name in enumerate(names.dictionary.to_pylist()):
        for truncates in (False, True) if is_truncate.any() else (False,):
            here = (codes == code) & (is_truncate == truncates)
            if not here.any():
                continue
            own, rows, given = at[here], rows_where(meta, here), rows_where(texts, here)
            table = SourceTable(*name.split("\x00", 1))
            if truncates:
                pieces.append(RecordPiece(source=table, part=None, indices=own, meta=rows, texts=given))
                continue
            if group.schema_part is None:
                parts, refused = _declared_part(table, own, declared)
            else:
                parts, refused = _parts_of(table, group.schema_part, own, keys, split)
            bad += refused
            pieces += [
                RecordPiece(
                    source=table,
                    part=part,
                    indices=own[mask],
                    meta=rows_where(rows, mask),
                    texts=rows_where(given, mask),
                )
                for part, mask in parts
            ]
    return pieces, bad


def _are_rows_alone(keys: pa.Array, texts: pa.Array) -> BoolArray:
    """(n,) whether each record without schema part and envelope is a row: it has its key's columns, with their values.

    Transactions and changes of the schema have them as well, and are known by members of their own.
    """
    found = np.zeros(len(texts), bool)
    for at, (key, text) in enumerate(zip(keys.to_pylist(), texts.to_pylist(), strict=True)):
        try:
            own, row = json.loads(key or b"null"), json.loads(text)
        except (ValueError, RecursionError):
            continue
        if own and isinstance(own, dict) and isinstance(row, dict):
            found[at] = {**row, **own} == row and not any(each <= row.keys() for each in _OF_CONNECTORS)
    return found


Parts = tuple[list[tuple[RowPart, BoolArray]], list[RefusedRecord]]
"""The parts of some records of a table, each with a mask of its records; and the records that have none."""


def _declared_part(table: SourceTable, indices: IndexArray, declared: Declared) -> Parts:
    part = declared(table)
    if part is not None:
        return [(part, np.ones(len(indices), bool))], []
    bad = [RefusedRecord(index=int(each), reason=NO_SCHEMA_PART, source=table, is_letter=False) for each in indices]
    return [], bad


def _parts_of(
    table: SourceTable, schema_part: Mapping[str, Any], indices: IndexArray, keys: pa.Array, split: Split
) -> Parts:
    try:
        key_parts, unreadable = _key_parts(keys, indices, split)
        parts = [(_row_part(schema_part, key), mask) for key, mask in key_parts]
    except Exception as error:  # noqa: BLE001 - whatever one table's part is, the others go on
        reason = f"unexpected: {type(error).__name__}: {error}"
        bad = [RefusedRecord(index=int(each), reason=reason, source=table, is_letter=False) for each in indices]
        return [], bad
    return parts, _refused(unreadable, indices, source=table)


@lru_cache(maxsize=1)
def _meta_reading() -> Reading:
    return row_reading(META, lenient=True)


def _key_parts(
    keys: pa.Array, indices: IndexArray, split: Split
) -> tuple[list[tuple[Mapping[str, Any] | None, BoolArray]], list[BadRecord]]:
    """The schema parts of the keys of some records, each with a mask of its records; None: of those without.

    Keys that cannot be read, by the place among those records, are in no mask.
    """
    chosen = keys.take(pa.array(indices))
    places = np.flatnonzero(flags(chosen.is_valid()))
    groups, unreadable = split(chosen.drop_null()) if len(places) else ((), ())
    bad = [BadRecord(index=int(places[each.index]), reason=f"its key: {each.reason}") for each in unreadable]
    rest = np.ones(len(indices), bool)
    rest[[each.index for each in bad]] = False
    found: list[tuple[Mapping[str, Any] | None, BoolArray]] = []
    for group in groups:
        mask = np.zeros(len(indices), bool)
        mask[places[group.indices]] = True
        rest &= ~mask
        found.append((group.schema_part, mask))
    return ([*found, (None, rest)] if rest.any() else found), bad


def _refused(bad: Iterable[BadRecord], indices: IndexArray, source: SourceTable | None = None) -> list[RefusedRecord]:
    return [RefusedRecord(index=int(indices[each.index]), reason=each.reason, source=source) for each in bad]


def _row_part(part: Mapping[str, Any], key: Mapping[str, Any] | None) -> RowPart:
    row = row_part(part)
    assert row is not None, "of ENVELOPE_FIELDS"
    return RowPart(digest=part_digest(row, key), row=row, key=key)


def part_digest(row: Mapping[str, Any], key: Mapping[str, Any] | None) -> str:
    """A hash of the columns of rows and keys: schema parts with the same columns have the same one."""
    fields = [row.get("fields"), None if key is None else key.get("fields")]
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _enveloped(group: Payloads, source: SourceTable) -> tuple[Payloads, IndexArray, tuple[BadRecord, ...]]:
    """Turn rows without envelopes into change events. Returns: events, the row index of each, and unreadable rows.

    Where no field says what a change is, it is an update: values that were left out of it are kept.
    """
    decoded = decode_objects(group.texts, row_reading(_OF_ROWS, lenient=True))
    said = {field.name: column for field, column in zip(_OF_ROWS, decoded.rows.flatten(), strict=True)}
    is_delete = pc.or_kleene(pc.equal(said["__deleted"], "true"), pc.equal(said["__op"], DELETE))
    kinds = pc.if_else(pc.fill_null(is_delete, False), DELETE, pc.coalesce(said["__op"], UPDATE))
    facts = [pa.repeat(_source_text(source), len(kinds))]
    for name, kind in _FACTS.items():
        given = pc.coalesce(said[f"__{name}"], said[f"__source_{name}"]).cast(pa.string())
        mark = '"' if pa.types.is_string(kind) else ""
        facts.append(pc.fill_null(pc.binary_join_element_wise(f',"{name}":{mark}', given, mark, ""), ""))
    sides = pc.if_else(pc.equal(kinds, DELETE), '","before":', '","after":')
    head = pc.binary_join_element_wise(*facts, '},"op":"', kinds, sides, "").cast(pa.binary())
    rows = group.texts.take(pa.array(decoded.indices)).cast(pa.binary())
    texts = pc.binary_join_element_wise(head, rows, b"}", b"")
    part = group.schema_part
    if part is not None:
        fields = [each for each in part_fields(part) if not _OF_CHANGES.fullmatch(str(each.get("field")))]
        row = {"type": "struct", "optional": True, "fields": fields}
        part = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}, *_REST_OF_EVENTS]}
    indices = np.arange(len(texts))
    return Payloads(schema_part=part, indices=indices, texts=texts), group.indices[decoded.indices], decoded.bad


def _deletes(
    source: SourceTable, indices: IndexArray, keys: pa.Array, split: Split, declared: Declared
) -> tuple[list[RecordPiece], list[RefusedRecord]]:
    """Read tombstones of rows without envelopes: each deletes the row of its key; one without a key is skipped."""
    indices = indices[flags(keys.take(pa.array(indices)).is_valid())]
    parts, unreadable = _key_parts(keys, indices, split)
    bad, pieces, own = _refused(unreadable, indices, source=source), list[RecordPiece](), declared(source)
    for given, mask in parts:
        key, at = given if given is not None else None if own is None else own.key, indices[mask]
        if key is None:
            bad += [RefusedRecord(index=int(each), reason=NO_SCHEMA_PART, source=source) for each in at]
            continue
        text = f'{_source_text(source)}}},"op":"{DELETE}"}}'
        texts = pa.repeat(pa.scalar(text.encode(), pa.binary()), len(at))
        part = RowPart(digest="", row=key, key=key, is_declared=given is None, is_key=True)
        meta = decode_objects(texts, _meta_reading()).rows
        pieces.append(RecordPiece(source=source, part=part, indices=at, meta=meta, texts=texts))
    return pieces, bad


def _source_text(source: SourceTable) -> str:
    """The beginning of an event, up to the name of its source table."""
    return f'{{"source":{{"schema":{json.dumps(source.schema)},"table":{json.dumps(source.name)}'
