"""Unwraps Kafka Connect's ``{"schema": ..., "payload": ...}`` from whole batches of JSON records.

The schema part is a long text repeated in every record of a topic until the source table changes. So it is parsed
once, and matched in the other records as a common prefix.

Source: Kafka Connect ``JsonConverter`` with ``schemas.enable=true``.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logstore.json.arrow_bytes import flags, rows_where, texts_between, value_bytes
from logstore.json.reading import BadRecord, UnreadableError, parsed
from lsm.keys.words import BoolArray, IndexArray

_SCHEMA_FIRST: Final = '{"schema":'
_PAYLOAD_FIRST: Final = '{"payload":'
_PAYLOAD_NEXT: Final = ',"payload":'
_HAS_SCHEMA_PART: Final = r'^\s*\{\s*"(schema|payload)"\s*:'
_MAX_PREFIXES: Final = 16  # schema changes within one batch; more means that records of many tables are mixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Payloads:
    """Payloads of records that share a schema part."""

    schema_part: Mapping[str, Any] | None  # None: records without a schema part
    indices: IndexArray  # (n,) ascending
    texts: pa.Array  # (n,) binary


Split = Callable[[pa.Array], tuple[list[Payloads], tuple[BadRecord, ...]]]
"""From records without nulls to payloads by schema part, and the records that cannot be split."""


def split_payloads(records: pa.Array) -> tuple[list[Payloads], tuple[BadRecord, ...]]:
    """Group payloads by schema part.

    Args:
        records: (n,) binary without nulls, with and without schema parts mixed.

    Returns:
        the groups, and the records that seem to have a schema part but are unreadable.
    """
    is_bare = _is_bare(records)
    groups = []
    if is_bare.any():
        groups.append(Payloads(schema_part=None, indices=np.flatnonzero(is_bare), texts=rows_where(records, is_bare)))
    pending = np.flatnonzero(~is_bare)
    unusual: list[int] = []
    while pending.size and len(groups) + len(unusual) <= _MAX_PREFIXES:
        prefix, schema_part = _prefix_of(records[int(pending[0])].as_py())
        if prefix is None:
            unusual.append(int(pending[0]))
            pending = pending[1:]
            continue
        candidates = records if len(pending) == len(records) else records.take(pa.array(pending))
        is_same = flags(pc.and_(pc.starts_with(candidates, prefix), pc.ends_with(candidates, "}")))
        offsets, data = value_bytes(rows_where(candidates, is_same))
        texts = texts_between(data, offsets[:-1] + len(prefix), offsets[1:] - 1)
        groups.append(Payloads(schema_part=schema_part, indices=pending[is_same], texts=texts))
        pending = pending[~is_same]
    single, bad = _split_each(records, [*unusual, *pending.tolist()])
    return groups + single, bad


def _is_bare(records: pa.Array) -> BoolArray:
    """(n,) whether each record has no schema part. The common forms are recognized by their first bytes."""
    is_bare = ~flags(pc.or_(pc.starts_with(records, _SCHEMA_FIRST), pc.starts_with(records, _PAYLOAD_FIRST)))
    is_unusual = ~flags(pc.starts_with(records, '{"'))
    if is_unusual.any():
        is_bare[is_unusual] = ~flags(pc.match_substring_regex(records.filter(pa.array(is_unusual)), _HAS_SCHEMA_PART))
    return is_bare


def _prefix_of(record: bytes) -> tuple[bytes | None, Any]:
    """Everything before the payload, and the schema in it; no prefix if the record is formatted differently."""
    try:
        text = record.decode()
        if not text.startswith(_SCHEMA_FIRST):
            return None, None
        schema_part, end = json.JSONDecoder().raw_decode(text, len(_SCHEMA_FIRST))
    except (ValueError, RecursionError):
        return None, None
    if not text.startswith(_PAYLOAD_NEXT, end) or not _is_schema_part(schema_part):
        return None, None
    return text[: end + len(_PAYLOAD_NEXT)].encode(), schema_part


def _split_each(records: pa.Array, indices: list[int]) -> tuple[list[Payloads], tuple[BadRecord, ...]]:
    groups, bad = [], []
    for index in sorted(indices):
        try:
            schema_part, payload = _members_of(records[index].as_py())
            groups.append(
                Payloads(schema_part=schema_part, indices=np.array([index]), texts=pa.array([payload], pa.binary()))
            )
        except UnreadableError as error:
            bad.append(BadRecord(index=index, reason=str(error)))
    return groups, tuple(bad)


def _members_of(record: bytes) -> tuple[Any, bytes]:
    """Schema part and payload text (so that numbers stay exact) of a record in any formatting."""
    try:
        text = record.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"not UTF-8: {error}") from error
    if "payload" not in parsed(text):
        raise UnreadableError("it has a schema but no payload")
    decoder = json.JSONDecoder()
    position = text.index("{") + 1
    payload, schema_part = b"null", None
    while match := re.compile(r'\s*,?\s*(?=")').match(text, position):
        name, position = decoder.raw_decode(text, match.end())
        start = re.compile(r"\s*:\s*").match(text, position).end()  # type: ignore[union-attr]  # it is valid JSON
        member, position = decoder.raw_decode(text, start)
        if name == "payload":
            payload = text[start:position].encode()
        elif name == "schema":
            schema_part = member
    if schema_part is not None and not _is_schema_part(schema_part):
        raise UnreadableError("its schema is not one of Kafka Connect")
    return schema_part, payload


def _is_schema_part(found: Any) -> bool:
    """Whether a JSON value has the shape of a schema at every depth: what looks into one need not check."""
    pending = [found]
    while pending:
        part = pending.pop()
        fields = part.get("fields") or [] if isinstance(part, dict) else None
        if not isinstance(fields, list) or not all(isinstance(part.get(name), str | None) for name in ("type", "name")):
            return False
        if not isinstance(part.get("parameters"), dict | None):
            return False
        if not all(isinstance(each, dict) and isinstance(each.get("field"), str) for each in fields):
            return False
        pending += fields
        pending += [part[name] for name in ("items", "keys", "values") if part.get(name) is not None]
    return True
