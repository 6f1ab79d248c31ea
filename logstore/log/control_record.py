"""Records of a log that are neither rows nor markers: a table's claim to a topic, and notes that it has changed.

A topic that the table did not create begins, at offset 0 of every partition, with the table's claim: a record without
key and value, and in its header ``{"version": 1, "kind": "genesis", "table": "<id>"}`` and a line feed. At another
offset such a record is no row and no marker: with ``left`` in its header it says to consumers that the table has
changed without its log, ``{"snapshot": 7, "operation": "OVERWRITE", "time": 1763800000000}`` (epoch milliseconds).
"""

import json
from collections.abc import Mapping
from typing import Any, Final

HEADER: Final = "fluvial"
MARKER_VERSION: Final = 1
CLAIM_END: Final = 2
"""The next offset of every partition after a claim: the record, and the marker that ends its transaction."""

_GENESIS: Final = "genesis"
_LEFT: Final = "left"


def encode_genesis(table_id: str, left: Mapping[str, object] | None = None) -> bytes:
    """The header value of a table's claim to a topic; with ``left`` that of a control record.

    Args:
        table_id: the table.
        left: the commit by which the table has left its log: snapshot, operation, time.
    """
    fields = {"version": MARKER_VERSION, "kind": _GENESIS, "table": table_id, **({} if left is None else {_LEFT: left})}
    return json.dumps(fields).encode() + b"\n"


def header_of(record: Any) -> bytes | None:
    """The header of a marker, claim or control record; None: the record has none."""
    return next((value for name, value in record.headers() or () if name == HEADER), None)


def is_claim(record: Any) -> bool:
    """Whether a record is a claim or a control record."""
    return record.key() is None and not record.value() and claimant_of(header_of(record) or b"") is not None


def left_in(record: Any, table_id: str | None) -> int:
    """The snapshot that a control record of a table names; 0: a claim, or nothing that this table writes."""
    header = header_of(record) or b""
    if table_id is not None and claimant_of(header) != table_id:
        return 0
    left = json.loads(header.partition(b"\n")[0]).get(_LEFT)
    snapshot = left.get("snapshot") if isinstance(left, dict) else None
    return snapshot if type(snapshot) is int else 0


def claimant_of(header: bytes) -> str | None:
    """The table in the header of a claim; None: the header of something else."""
    try:
        fields = json.loads(header.partition(b"\n")[0])
        return str(fields["table"]) if fields["version"] == MARKER_VERSION and fields["kind"] == _GENESIS else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
