"""Maps whose values are in columns that keys share, as Paimon 2 and pypaimon 2.1 store wide sparse ones.

A file stores such a column as a struct: ``__field_mapping`` has the number of the key that each of the columns
``__col_<n>`` holds in this row (negative: none), and ``__overflow`` the other keys by their numbers. The names of the
numbers are in the metadata of the file's field. A file says itself how it stores a map, whatever the option
``fields.<column>.map.storage-layout`` says by now.
Source: pypaimon 2.1.0 map_shared_shredding.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from filestore.schema.table_schema import TableSchema
from lsm.errors import CorruptDataError, InvalidInputError

_LAYOUT: Final = "map.storage-layout"
_SHARED: Final = "shared-shredding"
_PREFIX: Final = b"paimon.map.shared-shredding."
_MAPPING: Final = "__field_mapping"
_OVERFLOW: Final = "__overflow"
_COLUMN: Final = "__col_"
_VERSION: Final = 1


def may_share_columns(schema: TableSchema, name: str) -> bool:
    """Whether files of this version of a schema may store a column in this way."""
    return schema.options.get(f"fields.{name}.{_LAYOUT}", "").lower() == _SHARED


def plain_map(array: pa.Array, stored: pa.Field) -> pa.Array:
    """The maps of a column of a file; the array itself, where it is stored otherwise.

    Args:
        array: (n,) of the file.
        stored: the field of the file, with its metadata.

    Returns:
        (n,) maps of texts to values of the file's type, keys in the order of the file.

    Raises:
        InvalidInputError: the file does not show the names of the keys, as ORC files do not.
        CorruptDataError: the parts do not fit each other; names the column.
    """
    if not pa.types.is_struct(array.type) or array.type.get_field_index(_MAPPING) < 0:
        return array
    metadata = stored.metadata or {}
    if _PREFIX + b"version" not in metadata:
        raise InvalidInputError(
            f"maps with shared columns are read from Parquet files only: option=fields.{stored.name}.{_LAYOUT} "
            f"value={_SHARED} fix='file.format=parquet, and a full compaction by the engine that wrote the files'"
        )
    try:
        return _maps(array, _names(metadata))
    except (KeyError, ValueError, TypeError, OSError, struct.error, IndexError) as error:
        raise CorruptDataError(
            f"a map with shared columns cannot be put together: column={stored.name} error={error!r}"
        ) from error


def _names(metadata: Mapping[bytes, bytes]) -> Mapping[int, str]:
    """The keys by number. Raises: KeyError, ValueError: they are not in the metadata."""
    if (version := int(metadata[_PREFIX + b"version"])) != _VERSION:
        raise ValueError(f"version is {version} instead of {_VERSION}")
    size = int(metadata[_PREFIX + b"field-dict-original-size"])
    codec = metadata.get(_PREFIX + b"field-dict-compression", b"zstd").decode().lower()
    body = metadata[_PREFIX + b"field-dict"].decode().encode("latin-1")
    if codec == "lz4":
        length, known = struct.unpack_from("<ii", body)
        if (length, known) != (len(body) - 8, size):
            raise ValueError("the dictionary of keys has another size")
        body = bytes(pa.Codec("lz4_raw").decompress(body[8:], size))
    elif codec != "none":
        body = bytes(pa.Codec(codec).decompress(body, size))
    return {int(number): str(name) for name, number in orjson.loads(body).items()}


def _maps(array: pa.StructArray, names: Mapping[int, str]) -> pa.Array:
    rows = np.flatnonzero(np.asarray(array.is_valid()))
    present = array.take(pa.array(rows)) if len(rows) < len(array) or array.offset else array
    parts = {field.name: present.field(place) for place, field in enumerate(array.type)}
    columns = sorted((int(name.removeprefix(_COLUMN)), name) for name in parts if name.startswith(_COLUMN))
    count, width = len(rows), len(columns)
    if [number for number, _ in columns] != list(range(width)):
        raise ValueError(f"columns are {[name for _, name in columns]}")
    numbers, owners, places = _in_columns(parts[_MAPPING], count, width)
    values: list[Any] = [parts[name] for _, name in columns]
    if _OVERFLOW in parts:
        over = parts[_OVERFLOW]
        lengths = np.diff(np.asarray(over.offsets)) if len(over) else np.zeros(0, np.int64)
        lengths = np.where(np.asarray(over.is_valid()), lengths, 0)
        keys, items = _entries(over)
        numbers, owners = np.r_[numbers, keys], np.r_[owners, np.repeat(np.arange(count), lengths)]
        places = np.r_[places, width * count + np.arange(len(keys))]
        values.append(items)
    is_key = np.isin(numbers, np.fromiter(names, np.int64, len(names)))
    order = np.flatnonzero(is_key)[np.argsort(owners[is_key], kind="stable")]
    lengths = np.bincount(owners[order], minlength=count)
    sizes = np.zeros(len(array), np.int64)
    sizes[rows] = lengths
    offsets = pa.array(np.r_[0, np.cumsum(sizes)].astype(np.int32))
    known = sorted(names)
    texts = pa.array([names[each] for each in known], pa.string())
    found = texts.take(pa.array(np.searchsorted(known, numbers[order]))) if known else texts
    pool = pa.concat_arrays([each.cast(values[0].type) for each in values]) if values else pa.nulls(0)
    return pa.MapArray.from_arrays(offsets, found, pool.take(pa.array(places[order])), mask=array.is_null())


def _in_columns(mapping: pa.Array, count: int, width: int) -> tuple[Any, Any, Any]:
    """Numbers of keys, rows, and places among the values of all columns, one after the other; row by row."""
    lengths = pc.list_value_length(mapping)
    if count and not pc.all(pc.fill_null(pc.equal(lengths, width), False)).as_py():
        raise ValueError(f"a row does not say what is in each of {width} columns")
    flat = pc.list_flatten(mapping)
    if flat.null_count:
        raise ValueError("a row does not say what is in a column")
    grid = np.asarray(flat, np.int64).reshape(count, width)
    owners, held = np.nonzero(grid >= 0)
    return grid[owners, held], owners, held * count + owners


def _entries(maps: pa.Array) -> tuple[Any, pa.Array]:
    """Keys as numbers and values of maps, without those behind nulls and slices."""
    entries = pc.list_flatten(maps.cast(pa.list_(pa.struct([maps.type.key_field, maps.type.item_field]))))
    return np.asarray(entries.field(0), np.int64), entries.field(1)
