"""Columns that a job adds to rows: each holds one field of the envelope, such as ``_op_ts: source.ts_ms``."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from filestore.types.data_types import STRING, DataField, DataType, arrow_type
from lsm.errors import InvalidInputError

META: Final = pa.schema(
    [
        ("op", pa.string()),
        ("ts_ms", pa.int64()),
        (
            "source",
            pa.struct(
                [
                    ("connector", pa.string()),
                    ("name", pa.string()),
                    ("db", pa.string()),
                    ("schema", pa.string()),
                    ("table", pa.string()),
                    ("ts_ms", pa.int64()),
                    ("lsn", pa.int64()),
                    ("sequence", pa.string()),
                    ("snapshot", pa.string()),
                    ("file", pa.string()),
                    ("pos", pa.int64()),
                    ("row", pa.int64()),
                ]
            ),
        ),
        (
            "transaction",
            pa.struct([("id", pa.string()), ("total_order", pa.int64()), ("data_collection_order", pa.int64())]),
        ),
    ]
)
"""The fields of an envelope that are read, besides its rows."""
OTHERS: Final = {
    "io.debezium.connector.common.Heartbeat": "heartbeats",
    "io.debezium.connector.common.TransactionMetadataValue": "transactions",
    "SchemaChangeValue": "schema changes",
    "MessageValue": "logical decoding messages",
    "SignalValue": "signals",
}
"""Records that connectors publish beside changes, by the end of their schema's name."""
DELETED_COLUMN: Final = "_deleted"
DELETED_WHEN: Final = "op = d"
SEQUENCE_COLUMN: Final = "_lsn"
SEQUENCE: Final = "source.lsn"
"""This field orders rows of one key that come from several topics, such as those of PostgreSQL's partitions."""
_BOOLEAN: Final = DataType(root="BOOLEAN")
_BIGINT: Final = DataType(root="BIGINT")
_MOMENT: Final = DataType(root="TIMESTAMP_LTZ", precision=3)
_COMPARED: Final = re.compile(r"op\s*=\s*([a-z])")
_SHORT: Final[Mapping[str, str]] = {"lsn": "source.lsn", "tx": "transaction.id", "ts": "source.ts_ms"}
_LARGE: Final = frozenset({"CHAR", "VARCHAR", "BINARY", "VARBINARY", "ARRAY", "MAP"})
_OF_TABLE: Final = frozenset({"source.connector", "source.name", "source.db", "source.schema", "source.table"})
POSTGRES_CONNECTOR: Final = "postgresql"
"""The name of PostgreSQL's connector."""
_WHOLE_ROWS: Final = pa.array(["mysql", "mariadb"])
"""Connectors that always have all values of a row."""


def paths() -> tuple[str, ...]:
    """The paths in an envelope that ``columns.add`` takes."""
    found = []
    for field in META:
        if pa.types.is_struct(field.type):
            found += [f"{field.name}.{inner.name}" for inner in field.type]
        else:
            found.append(field.name)
    return tuple(found)


def metadata_type(expression: str) -> DataType:
    """The type of an added column.

    Raises: InvalidInputError: the envelope has no such place; names those that there are.
    """
    if _COMPARED.fullmatch(expression):
        return _BOOLEAN
    path = _SHORT.get(expression, expression)
    if path not in paths():
        raise InvalidInputError(
            f"the envelope has no such place: columns.add={expression} known={', '.join(paths())}, op = d"
        )
    if path.endswith("ts_ms"):
        return _MOMENT
    return _BIGINT if pa.types.is_integer(_arrow_of(path)) else STRING


def is_of_table(expression: str) -> bool:
    """Whether an added column has one value for all changes of a table, or only marks deleted rows."""
    return expression == DELETED_WHEN or expression in _OF_TABLE


def metadata_column(expression: str, meta: pa.StructArray) -> pa.Array:
    """The values of an added column, (n,) of ``metadata_type``; null where an envelope has none."""
    compared = _COMPARED.fullmatch(expression)
    if compared is not None:
        return pc.equal(pc.struct_field(meta, "op"), compared[1])
    path = _SHORT.get(expression, expression)
    values = pc.struct_field(meta, path.split("."))
    wanted = arrow_type(metadata_type(expression))
    return values.cast(pa.timestamp("ms", tz="UTC")).cast(wanted) if path.endswith("ts_ms") else values.cast(wanted)


def may_lack_values(meta: pa.StructArray, fields: Sequence[DataField]) -> bool:
    """Whether updates of such events may have left out values of such columns."""
    if not any(field.type.root in _LARGE for field in fields):
        return False
    connectors = pc.struct_field(meta, ["source", "connector"])
    return not bool(pc.all(pc.is_in(connectors, _WHOLE_ROWS)).as_py())


def _arrow_of(path: str) -> pa.DataType:
    outer, _, inner = path.partition(".")
    kind = META.field(outer).type
    return kind.field(inner).type if inner else kind
