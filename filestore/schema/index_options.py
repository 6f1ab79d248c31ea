"""The options of bloom filter indexes, checked against the columns of a schema."""

from dataclasses import dataclass
from typing import Any, Final

from filestore.hashing.xxhash import has_hash
from filestore.options.table_options import TableOptions
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError

BLOOM: Final = "bloom-filter"

_PREFIX: Final = "file-index."
_COLUMNS_KEY: Final = f"{_PREFIX}{BLOOM}.columns"
_MOST_NAME_BYTES: Final = 2**16 - 1
_OWN_KEYS: Final = frozenset({"file-index.in-manifest-threshold", "file-index.read.enabled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomColumn:
    """One column that gets a bloom filter in every file."""

    field: DataField
    false_positive_rate: float = 0.1
    items: int | None = None  # None: as many as the file turns out to hold


def bloom_columns(schema: TableSchema, options: TableOptions) -> tuple[BloomColumn, ...]:
    """The columns that get bloom filters. Raises: InvalidInputError naming option and column."""
    key = _COLUMNS_KEY
    names = [name.strip() for name in (options.free(key) or "").split(",") if name.strip()]
    columns = []
    for name in names:
        field = next((each for each in schema.fields if each.name == name), None)
        if field is None:
            raise InvalidInputError(f"no such column: option={key} column={name} columns={list(schema.column_names)}")
        if not has_hash(field.type):
            raise InvalidInputError(
                f"columns of this type cannot have a bloom filter: option={key} column={name} type={field.type} "
                "fix='leave it out'"
            )
        java_text(name)
        start = f"{_PREFIX}{BLOOM}.{name}."
        columns.append(
            BloomColumn(
                field=field,
                false_positive_rate=_number(options, f"{start}fpp", float, 0.1, most=0.999),
                items=_number(options, f"{start}items", int, None, most=2**31 - 1),
            )
        )
    return tuple(columns)


def java_text(name: str) -> bytes:
    """A column's name in an index: Java's modified UTF-8, with surrogates one by one and without a zero byte.

    Raises: InvalidInputError: it is too long for the two bytes of its length.
    """
    wide = name.encode("utf-16-be", "surrogatepass")
    units = "".join(chr(int.from_bytes(wide[at : at + 2], "big")) for at in range(0, len(wide), 2))
    body = units.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    if len(body) > _MOST_NAME_BYTES:
        raise InvalidInputError(
            f"a name is too long for a bloom filter: option={_COLUMNS_KEY} column={name[:40]}... bytes={len(body)} "
            f"most={_MOST_NAME_BYTES} fix='leave it out, or rename the column'"
        )
    return body


def check_index_options(schema: TableSchema, options: TableOptions) -> None:
    """Refuse indexes of a new table that Fluvial does not write. Raises: InvalidInputError."""
    named = {column.field.name for column in bloom_columns(schema, options)}
    for name in options.behind(_PREFIX):
        key = f"{_PREFIX}{name}"
        if key in _OWN_KEYS or key == _COLUMNS_KEY:
            continue
        kind, _, rest = name.partition(".")
        column, _, word = rest.rpartition(".")
        if kind != BLOOM:
            raise InvalidInputError(f"file indexes of this kind are not written: option={key} fix='use {_COLUMNS_KEY}'")
        if column not in named or word not in ("fpp", "items"):
            raise InvalidInputError(
                f"unknown option of a bloom filter: option={key} columns={sorted(named)} "
                f"fix='write {_PREFIX}{BLOOM}.<column>.fpp or .items, of a column in {_COLUMNS_KEY}'"
            )


def _number(options: TableOptions, key: str, kind: Any, default: Any, *, most: float) -> Any:
    text = options.free(key)
    if text is None:
        return default
    try:
        number = kind(text.strip())
    except ValueError:
        number = -1
    if not 0 < number <= most:
        raise InvalidInputError(f"option value is not valid: option={key} value={text!r} expected='above 0, to {most}'")
    return number
