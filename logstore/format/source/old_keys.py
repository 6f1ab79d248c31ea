"""Keys that rows had before an update: of the header ``__debezium.oldkey``, and as marks beside columns left out.

Connect writes headers with a converter of their own. Its default (``SimpleHeaderConverter``) writes a key as a JSON
object without a schema part, in which decimals are numbers; ``JsonConverter`` may write the schema part as well.

Source: Debezium PostgreSQL connector, "Primary key updates"; Kafka ``org.apache.kafka.connect.data.Values``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm.keys.words import BoolArray

_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_MARK: Final = "\0"  # no name of a column begins with it


def header_part(key_part: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The schema part of a header without its own: that of the record's key, but for decimals, which are numbers."""
    if key_part is None:
        return None
    fields = [each for each in key_part.get("fields") or () if each.get("name") != _DECIMAL]
    return {**key_part, "fields": fields}


def with_old_keys(
    marks: pa.Array, keys: Mapping[str, pa.Array], is_moved: BoolArray, *, deleted: str | None = None
) -> pa.Array:
    """Lists of columns that were left out, with the keys of the rows that have their values.

    Args:
        marks: (n,) list<string>.
        keys: (n,) by column of the table's primary key.
        is_moved: (n,) rows whose values are those of another key.
        deleted: the column that is true in rows that the source has deleted; None: deletes are rows of their kind.
    """
    here = pa.array(np.flatnonzero(is_moved))
    texts = [
        pc.binary_join_element_wise(f"{_MARK}{name}{_MARK}", column.take(here).cast(pa.string()), "")
        for name, column in keys.items()
    ]
    if deleted is not None:
        texts.append(pa.array([f"{_MARK}{_MARK}{deleted}"] * len(here), pa.string()))
    lengths = np.asarray(pc.list_value_length(marks).fill_null(0)).astype(np.int64)
    parents = [np.repeat(np.arange(len(marks)), lengths), *(np.flatnonzero(is_moved) for _ in texts)]
    values = pa.concat_arrays([pc.list_flatten(marks).cast(pa.string()), *texts])
    owner = np.concatenate(parents)
    counts = np.bincount(owner, minlength=len(marks))
    offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
    ordered = values.take(pa.array(np.argsort(owner, kind="stable")))
    return pa.ListArray.from_arrays(offsets, ordered, mask=pa.array(counts == 0))


def is_old_key(names: pa.Array) -> BoolArray:
    """(n,) whether each entry of flattened marks is part of an old key, and no column."""
    return np.asarray(pc.starts_with(names, _MARK).fill_null(False))


def deleted_column(entries: pa.Array) -> str | None:
    """The column that is true in deleted rows, by entries of old keys."""
    found = entries.filter(pc.starts_with(entries, _MARK * 2))
    return str(found[0].as_py())[2:] if len(found) else None


def old_key_columns(
    entries: pa.Array, rows: np.ndarray, fields: Sequence[pa.Field]
) -> tuple[pa.RecordBatch, np.ndarray]:
    """The old keys in marks, and the row of each; rows whose old key is not whole are left out.

    Args:
        entries: (m,) of old keys.
        rows: (m,) the row of each.
        fields: of the table's primary key.

    Raises:
        pa.ArrowInvalid: a value is none of its column.
    """
    found = {}
    for field in fields:
        prefix = f"{_MARK}{field.name}{_MARK}"
        here = np.asarray(pc.starts_with(entries, prefix))
        texts = pc.utf8_slice_codeunits(entries.filter(pa.array(here)), len(prefix))
        is_text = np.asarray(texts.is_valid())
        found[field.name] = (rows[here][is_text], texts.drop_null().cast(field.type))
    whole = np.unique(rows)
    for at, _ in found.values():
        whole = np.intersect1d(whole, at)
    columns = [values.take(pa.array(np.searchsorted(at, whole))) for at, values in found.values()]
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields]), whole
