"""SQL of PostgreSQL and MySQL for the texts of values (``texts``) and the hashes of rows. Pure.

Source: PostgreSQL "Data Type Formatting Functions"; MySQL "String Functions", "Spatial Function Reference"; Debezium
"Data type mappings" for what a connector makes of a type.
"""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from engine.cdc.verify.texts import NULL, has_text

POSTGRES: Final = "postgresql"
_BITS: Final = ("bit", "varbit")
_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")  # as text: base64 or hex
NUMBERS: Final = ("numeric", "money", "_numeric", "_money")
"""Types of numbers whose zeros behind the last digit mean nothing; connectors leave them out."""
_PG_MOMENT: Final = "YYYY-MM-DD HH24:MI:SS.US"
_MY_MOMENT: Final = "%Y-%m-%d %H:%i:%s.%f"
_MONTH_DAYS: Final = "30.4375"  # of Debezium's intervals in microseconds


def quoted_name(dialect: str, name: str) -> str:
    """A name in SQL."""
    mark = '"' if dialect == POSTGRES else "`"
    return mark + name.replace(mark, mark * 2) + mark


def text_of(dialect: str, source_type: str, kind: pa.DataType, column: str) -> str | None:
    """SQL for the text of a value that is not null.

    Args:
        dialect: ``postgresql``, or another: MySQL's.
        source_type: PostgreSQL's short name (``int4``, ``_text`` for an array), or MySQL's with its size
            (``tinyint(1)``).
        kind: the column's type in the table.
        column: SQL of the value.

    Returns:
        None: such values are not compared.
    """
    if not has_text(kind):
        return None
    make: Callable[[str, pa.DataType, str], str | None] = _postgres if dialect == POSTGRES else _mysql
    return make(source_type, kind, column)


def row_text(dialect: str, columns: Sequence[tuple[str, str]]) -> str:
    """SQL for the text of a row.

    Args:
        dialect: see `text_of`.
        columns: SQL of each column, and of its text.
    """
    parts = [
        f"CASE WHEN {column} IS NULL THEN '{NULL}' ELSE {_measured(dialect, text)} END" for column, text in columns
    ]
    return " || ".join(parts) if dialect == POSTGRES else f"CONCAT({', '.join(parts)})"


def md5_of(dialect: str, text: str) -> str:
    """SQL for the hash of a text, of its bytes in UTF-8."""
    return f"md5(convert_to({text}, 'UTF8'))" if dialect == POSTGRES else f"MD5(CONVERT({text} USING utf8mb4))"


def range_of(dialect: str, key_hash: str, count: int) -> str:
    """SQL for the range of a key's hash."""
    if dialect == POSTGRES:
        return f"(('x' || substr({key_hash}, 1, 8))::bit(32)::bigint % {count})"
    return f"(CAST(CONV(SUBSTR({key_hash}, 1, 8), 16, 10) AS UNSIGNED) % {count})"


def words_sum(dialect: str, row_hash: str) -> tuple[str, str]:
    """SQL for the sums of both halves of hashes."""
    if dialect == POSTGRES:
        return (
            f"sum(('x' || substr({row_hash}, 1, 16))::bit(64)::bigint)::text",
            f"sum(('x' || substr({row_hash}, 17, 16))::bit(64)::bigint)::text",
        )
    word = "SUM(CAST(CONV(SUBSTR({0}, {1}, 16), 16, 10) AS UNSIGNED))"
    return word.format(row_hash, 1), word.format(row_hash, 17)


def _measured(dialect: str, text: str) -> str:
    if dialect == POSTGRES:
        return f"octet_length(convert_to({text}, 'UTF8')) || ':' || {text}"
    return f"CONCAT(LENGTH({text}), ':', {text})"


def _postgres(source: str, kind: pa.DataType, column: str) -> str | None:
    if pa.types.is_list(kind):
        element = _postgres(source.removeprefix("_"), kind.value_type, "e") if source.startswith("_") else None
        joined = None if element is None else row_text(POSTGRES, [("e", element)])
        of = f"unnest({column}) WITH ORDINALITY AS u(e, o)"
        return joined and f"(SELECT count(*) || '[' || coalesce(string_agg({joined}, '' ORDER BY o), '') FROM {of})"
    if source.startswith("_") or source == "hstore" or (source in _BITS and not pa.types.is_boolean(kind)):
        return None
    if pa.types.is_boolean(kind):
        return f"({column} = B'1')::text" if source == "bit" else f"{column}::boolean::text"
    if pa.types.is_integer(kind):
        return _postgres_micros(column) if source == "interval" else f"{column}::text"
    if pa.types.is_floating(kind):
        number = f"{column}::numeric" if source == "money" else column  # which has no cast of its own
        return f"encode(float8send({number}::float8), 'hex')"
    if pa.types.is_decimal(kind):
        return f"trim_scale({column}::numeric * 1{'0' * kind.scale})::text"
    if pa.types.is_timestamp(kind):
        moment = f"({column} AT TIME ZONE 'UTC')" if source == "timestamptz" else f"{column}::timestamp"
        return f"CASE WHEN isfinite({column}) THEN to_char({moment}, '{_PG_MOMENT}') ELSE {column}::text END"
    if pa.types.is_time(kind):
        return f"to_char({column}, 'HH24:MI:SS.MS')"
    if pa.types.is_binary(kind):
        return f"encode({column}, 'hex')" if source == "bytea" else None
    return _postgres_string(source, column)


def _postgres_string(source: str, column: str) -> str | None:
    if source == "time":
        return f"to_char({column}, 'HH24:MI:SS.US')"
    if source == "timetz":
        return f"({column} AT TIME ZONE 'UTC')::time::text || 'Z'"
    if source == "timestamptz":
        moment = f"to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US') || 'Z'"
        return f"CASE WHEN isfinite({column}) THEN {moment} ELSE {column}::text END"
    if source in ("bytea", "interval", "point"):
        return None
    if source in NUMBERS:
        return f"trim_scale({column}::numeric)::text"
    return f"concat({column})"  # what the type writes; a cast would strip char(n) and add to inet


def _postgres_micros(column: str) -> str:
    months = f"(extract(year FROM {column}) * 12 + extract(month FROM {column}))"
    days = f"{months} * {_MONTH_DAYS} + extract(day FROM {column})"
    seconds = f"extract(hour FROM {column}) * 3600 + extract(minute FROM {column}) * 60 + extract(second FROM {column})"
    return f"trunc((({days}) * 86400 + {seconds}) * 1000000)::bigint::text"


def _mysql(source: str, kind: pa.DataType, column: str) -> str | None:
    name = source.partition("(")[0].partition(" ")[0]
    if pa.types.is_list(kind) or (name == "bit" and not pa.types.is_boolean(kind)):
        return None
    if pa.types.is_boolean(kind):
        return f"IF({column} + 0, 'true', 'false')"
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        return f"CAST({column} AS CHAR)"
    if pa.types.is_floating(kind):
        bits = f"HEX(SUBSTR(ST_AsWKB(POINT({column}, 0)), 6, 8))"  # the lowest byte first
        return f"LOWER(CONCAT({', '.join(f'SUBSTR({bits}, {at}, 2)' for at in range(15, 0, -2))}))"
    if pa.types.is_decimal(kind):
        scaled = f"({column} * 1{'0' * kind.scale})"
        whole = f"CAST(CAST({scaled} AS DECIMAL(65, 0)) AS CHAR)"
        return f"IF(TRUNCATE({scaled}, 0) = {scaled}, {whole}, CAST({scaled} AS CHAR))"
    if pa.types.is_timestamp(kind):
        return f"DATE_FORMAT({column}, '{_MY_MOMENT}')"
    if pa.types.is_time(kind):
        return f"SUBSTR(TIME_FORMAT({column}, '%H:%i:%s.%f'), 1, 12)"
    if pa.types.is_binary(kind):
        return f"LOWER(HEX({column}))"
    if name == "time":
        return f"TIME_FORMAT({column}, '%H:%i:%s.%f')"
    if name in ("timestamp", "datetime", *_BYTES):
        return None
    return f"CONVERT({column} USING utf8mb4)"
