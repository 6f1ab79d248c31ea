"""Table types as Spark types, and frames cast to a table's columns.

Source: Spark SQL "Data Types", Paimon's "Spark type conversion". TIME is ``TimeType(3)``; TIMESTAMP without zone is
    ``TimestampNTZType``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from engine.spark_internals.session import arrow_schema_of, arrow_type_of
from engine.types.column_names import CaseRule
from engine.types.quoting import quoted
from engine.types.rows import ROW_KIND_COLUMN, UNAVAILABLE_COLUMN
from engine.types.text_length import length_metadata, sized_type
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField, DataType, data_type_of, with_stored_times
from lsm.errors import InvalidInputError
from lsm.nearest_names import did_you_mean

_TIME: Final[type[T.DataType] | None] = getattr(T, "TimeType", None)  # since 4.1
_VARIANT: Final[type[T.DataType] | None] = getattr(T, "VariantType", None)  # since 4.0
_SIMPLE: Final[Mapping[str, T.DataType]] = {
    "BOOLEAN": T.BooleanType(),
    "TINYINT": T.ByteType(),
    "SMALLINT": T.ShortType(),
    "INT": T.IntegerType(),
    "BIGINT": T.LongType(),
    "FLOAT": T.FloatType(),
    "DOUBLE": T.DoubleType(),
    "DATE": T.DateType(),
    "CHAR": T.StringType(),
    "VARCHAR": T.StringType(),
    "BINARY": T.BinaryType(),
    "VARBINARY": T.BinaryType(),
    **({} if _TIME is None else {"TIME": _TIME(3)}),
    **({} if _VARIANT is None else {"VARIANT": _VARIANT()}),
    "TIMESTAMP": T.TimestampNTZType(),
    "TIMESTAMP_LTZ": T.TimestampType(),
}
BESIDE_ROWS: Final = (ROW_KIND_COLUMN, UNAVAILABLE_COLUMN)
"""Columns of changes to write, beside the table's."""
INITIAL_DEFAULT: Final = "fluvial.initial-default"
"""Metadata of a frame's column: what rows have that were written before it was added, as a literal."""
_TIME_DIGITS: Final = 3  # a table holds milliseconds of the day
_WIDER: Final[Mapping[type[T.DataType], tuple[type[T.DataType], ...]]] = {
    T.ByteType: (T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType),
    T.ShortType: (T.IntegerType, T.LongType, T.FloatType, T.DoubleType),
    T.IntegerType: (T.LongType, T.DoubleType),
    T.FloatType: (T.DoubleType,),
}
_DIGITS: Final[Mapping[type[T.DataType], int]] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}


def spark_type(data_type: DataType) -> T.DataType:
    """The Spark type for all values of a table type.

    Raises:
        InvalidInputError: Spark has no such type; leave the column out of the read.
    """
    simple = _SIMPLE.get(data_type.root)
    if simple is not None:
        return simple
    if data_type.root == "DECIMAL":
        return T.DecimalType(data_type.precision or 10, data_type.scale or 0)
    if data_type.root == "ARRAY" and data_type.element is not None:
        return T.ArrayType(spark_type(data_type.element), data_type.element.nullable)
    if data_type.root == "MAP" and data_type.key is not None and data_type.value is not None:
        return T.MapType(spark_type(data_type.key), spark_type(data_type.value), data_type.value.nullable)
    if data_type.root == "MULTISET" and data_type.element is not None:
        return T.MapType(spark_type(data_type.element), T.IntegerType(), False)
    if data_type.root == "ROW":
        return spark_schema(data_type.fields)
    known = " fix='use Spark 4.1, or leave the column out of the read'" if data_type.root == "TIME" else ""
    raise InvalidInputError(f"type has no spark equivalent: type={data_type.root} spark={pyspark.__version__}{known}")


def spark_arrow_schema(schema: T.StructType) -> pa.Schema:
    """What Spark takes and gives for rows of a schema; moments are microseconds in UTC."""
    return arrow_schema_of(schema)


def is_time(given: T.DataType) -> bool:
    """Whether a type is a time of the day, which Spark has since 4.1."""
    return _TIME is not None and isinstance(given, _TIME)


def described_schema(fields: Sequence[DataField]) -> T.StructType:
    """``spark_schema`` of a table that is only described: a column of a type that Spark has not is VOID."""
    return T.StructType([_described_field(field) for field in fields])


def _described_field(field: DataField) -> T.StructField:
    try:
        return spark_schema([field])[0]
    except InvalidInputError:
        return T.StructField(field.name, T.NullType())


def spark_schema(fields: Sequence[DataField]) -> T.StructType:
    """The Spark schema of table columns, in their order, with nullability and comments."""
    return T.StructType(
        [T.StructField(field.name, spark_type(field.type), field.type.nullable, _metadata(field)) for field in fields]
    )


def _metadata(field: DataField) -> dict[str, str] | None:
    given = {"comment": field.description or None, INITIAL_DEFAULT: field.initial_default}
    return {name: text for name, text in {**given, **length_metadata(field.type)}.items() if text is not None} or None


def fields_of_spark(schema: T.StructType) -> list[DataField]:
    """Table columns for the columns of a frame; the table assigns the ids.

    Raises:
        InvalidInputError: a type is not supported by tables; the message suggests a cast.
    """
    found = _fields_of_spark(schema, known=frozenset())
    return [
        field if (sized := sized_type(column)) is None else replace(field, type=sized)
        for field, column in zip(found, schema.fields, strict=True)
    ]


def _fields_of_spark(schema: T.StructType, *, known: frozenset[str]) -> list[DataField]:
    fields = []
    for index, column in enumerate(schema.fields):
        try:
            if column.name not in known:
                _refuse_fine_times(column.dataType)
            _refuse_intervals(column.dataType)
            _refuse_collations(column.dataType)
            given = T.StringType() if isinstance(column.dataType, (T.CharType, T.VarcharType)) else column.dataType
            arrow = with_stored_times(arrow_type_of(given))
            data_type = data_type_of(arrow, nullable=column.nullable)
        except (InvalidInputError, PySparkTypeError) as error:
            raise InvalidInputError(
                f"a table cannot hold this column: column={column.name} type={column.dataType.simpleString()} {error}"
            ) from error
        fields.append(
            DataField(
                id=index,
                name=column.name,
                type=data_type,
                description=column.metadata.get("comment"),
                initial_default=column.metadata.get(INITIAL_DEFAULT),
            )
        )
    return fields


def _refuse_fine_times(given: T.DataType) -> None:
    for each in _parts(given):
        if is_time(each) and each.precision > _TIME_DIGITS:
            raise InvalidInputError(f"TIME holds milliseconds: fix='cast it AS TIME({_TIME_DIGITS})'")


def _refuse_intervals(given: T.DataType) -> None:
    for each in _parts(given):
        if isinstance(each, T.DayTimeIntervalType):
            raise InvalidInputError(
                "a table holds no intervals: fix='store its seconds, CAST(CAST(i AS INTERVAL SECOND) AS BIGINT), "
                "or both moments'"
            )
        if isinstance(each, T.YearMonthIntervalType):
            raise InvalidInputError(
                "a table holds no intervals: fix='store its months, CAST(CAST(i AS INTERVAL MONTH) AS INT)'"
            )
        if isinstance(each, T.CalendarIntervalType):
            raise InvalidInputError("a table holds no intervals: fix='store its text, CAST(i AS STRING)'")


def _refuse_collations(given: T.DataType) -> None:
    for each in _parts(given):
        if isinstance(each, T.StringType) and not each.isUTF8BinaryCollation():
            raise InvalidInputError(
                f"a table compares texts by their bytes: collation={each.collation} "
                "fix='declare STRING, and write COLLATE in the query, or CAST(c AS STRING) AS c'"
            )


def _parts(given: T.DataType) -> Iterator[T.DataType]:
    """The type and all inside it."""
    yield given
    if isinstance(given, T.StructType):
        inner = [field.dataType for field in given.fields]
    elif isinstance(given, T.MapType):
        inner = [given.keyType, given.valueType]
    else:
        inner = [given.elementType] if isinstance(given, T.ArrayType) else []
    for each in inner:
        yield from _parts(each)


def fields_of_frame(schema: T.StructType, known: TableSchema) -> list[DataField]:
    """The columns of a frame to write, without the row kind, and without known columns of the null type.

    Raises:
        InvalidInputError: a new column has the null type, or a type that tables do not support.
    """
    kept = [
        column
        for column in schema.fields
        if (column.name not in BESIDE_ROWS or column.name in known.column_names)
        and not (isinstance(column.dataType, T.NullType) and column.name in known.column_names)
    ]
    return _fields_of_spark(T.StructType(kept), known=frozenset(known.column_names))


def as_spelled(frame: DataFrame, schema: TableSchema) -> DataFrame:
    """The frame with the table's names for its columns, if the session says that case does not count.

    Raises:
        InvalidInputError: two of its columns are one of the table.
    """
    given, own = frame.schema.names, (*schema.column_names, *BESIDE_ROWS)
    if set(given) <= {*own}:
        return frame
    names = CaseRule.of(frame.sparkSession).as_spelled(given, own)
    return frame if names == given else frame.toDF(*names)


def cast_frame(frame: DataFrame, schema: TableSchema) -> DataFrame:
    """The frame with every column cast that the table holds in another type, after ``schema_evolution.evolved``."""
    fields = {field.name: spark_type(field.type) for field in schema.fields}

    def column(given: T.StructField) -> Column:
        value = F.col(quoted(given.name))
        wanted = fields.get(given.name)
        if wanted is None or fits(given.dataType, wanted):
            return value
        return _as_type(value, given.dataType, wanted).alias(given.name)

    return frame.select(*[column(given) for given in frame.schema.fields])


def aligned(frame: DataFrame, schema: TableSchema) -> DataFrame:
    """The frame with the table's columns, in order and types of the table, then ``_row_kind`` and ``_unavailable``.

    The two are there if the frame has them. A missing nullable column becomes null. Columns are cast only where no
    value can be lost.

    Raises:
        InvalidInputError: see ``check_frame``.
    """
    columns_given = frame.schema
    check_frame(columns_given, schema)
    given = {field.name: field.dataType for field in columns_given.fields}
    beside = [name for name in BESIDE_ROWS if name in given and name not in schema.column_names]
    wanted = [*schema.column_names, *beside]
    if columns_given.names == wanted and all(
        is_same_type(given[field.name], spark_type(field.type)) for field in schema.fields
    ):
        return frame  # a selection of what is there only costs planning
    columns = [_aligned_column(field, given.get(field.name)) for field in schema.fields]
    columns += [F.col(name) for name in beside]
    return frame.select(*columns)


def check_frame(frame: T.StructType, schema: TableSchema) -> None:
    """Refuse a frame that cannot be written to the table without losing values.

    Raises:
        InvalidInputError: an unknown column, a missing non-nullable column, or a type that could lose values.
    """
    given = {field.name: field.dataType for field in frame.fields}
    names = [field.name for field in schema.fields]
    for name in given:
        if name not in names and name not in BESIDE_ROWS:
            hint = did_you_mean(name, names)
            raise InvalidInputError(f"the table has no such column: column={name}{hint} fix=drop or rename it")
    for field in schema.fields:
        _check_column(field, given.get(field.name))
    if ROW_KIND_COLUMN in given and not isinstance(given[ROW_KIND_COLUMN], T.StringType):
        raise InvalidInputError(
            f"row kinds are text: column={ROW_KIND_COLUMN} type={given[ROW_KIND_COLUMN].simpleString()} "
            f"fix=use one of +I -U +U -D"
        )
    marks = given.get(UNAVAILABLE_COLUMN)
    if marks is not None and UNAVAILABLE_COLUMN not in names and marks != T.ArrayType(T.StringType(), True):
        raise InvalidInputError(
            f"names of columns are a list of texts: column={UNAVAILABLE_COLUMN} type={marks.simpleString()} "
            "fix=cast it to array<string>"
        )


def _check_column(field: DataField, given: T.DataType | None) -> None:
    wanted = spark_type(field.type)
    if given is None or isinstance(given, T.NullType):
        if not field.type.nullable:
            raise InvalidInputError(f"a column that may not be null is missing: column={field.name} fix=add it")
    elif not fits(given, wanted):
        raise InvalidInputError(
            f"column type does not fit: column={field.name} given={given.simpleString()} "
            f"wanted={wanted.simpleString()} fix=cast it in the query"
        )


def _aligned_column(field: DataField, given: T.DataType | None) -> Column:
    wanted = spark_type(field.type)
    if given is None or isinstance(given, T.NullType):
        return F.lit(None).cast(wanted).alias(field.name)
    column = F.col(quoted(field.name))
    return column if is_same_type(given, wanted) else _as_type(column, given, wanted).alias(field.name)


def fits(given: T.DataType, wanted: T.DataType) -> bool:
    """Whether a column accepts every value; nested fields match by name, and missing ones become null."""
    if is_same_type(given, wanted) or is_wider_type(given, wanted) or isinstance(given, T.NullType):
        return True
    if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return fits(given.elementType, wanted.elementType)
    if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
        return fits(given.keyType, wanted.keyType) and fits(given.valueType, wanted.valueType)
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
        inner = {each.name: each.dataType for each in wanted.fields}
        return all(each.name in inner and fits(each.dataType, inner[each.name]) for each in given.fields)
    return False


def _as_type(value: Column, given: T.DataType, wanted: T.DataType) -> Column:
    """A value cast to another type; Spark's cast matches nested fields by position, this one by name."""
    if is_same_type(given, wanted):
        return value
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
        inner = {each.name: each.dataType for each in given.fields}
        parts = [
            _as_type(value.getField(each.name), inner[each.name], each.dataType).alias(each.name)
            if each.name in inner
            else F.lit(None).cast(each.dataType).alias(each.name)
            for each in wanted.fields
        ]
        return F.when(value.isNotNull(), F.struct(*parts))
    if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        one, two = given.elementType, wanted.elementType
        return F.transform(value, lambda each: _as_type(each, one, two))
    if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
        keys, values = (given.keyType, wanted.keyType), (given.valueType, wanted.valueType)
        retyped = F.transform_values(value, lambda _, each: _as_type(each, *values))
        return retyped if is_same_type(*keys) else F.transform_keys(retyped, lambda each, _: _as_type(each, *keys))
    return value.cast(wanted)


def is_same_type(given: T.DataType, wanted: T.DataType) -> bool:
    """Equal except for nullability, metadata and the digits of times."""
    if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return is_same_type(given.elementType, wanted.elementType)
    if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
        return is_same_type(given.keyType, wanted.keyType) and is_same_type(given.valueType, wanted.valueType)
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
        return bool(given.fieldNames() == wanted.fieldNames()) and all(
            is_same_type(a.dataType, b.dataType) for a, b in zip(given.fields, wanted.fields, strict=True)
        )
    if isinstance(given, T.StringType) and isinstance(wanted, T.StringType):
        return True
    if is_time(given) and is_time(wanted):
        return True  # a cast would cut digits off unseen; the writer refuses them
    return type(given) is type(wanted) and bool(given == wanted)


def is_wider_type(given: T.DataType, wanted: T.DataType) -> bool:
    """True when every value of ``given`` is a value of ``wanted``."""
    if isinstance(given, (T.CharType, T.VarcharType)) and isinstance(wanted, T.StringType):
        return True
    if isinstance(wanted, T.DecimalType):
        whole = wanted.precision - wanted.scale
        if isinstance(given, T.DecimalType):
            return bool(given.scale <= wanted.scale and given.precision - given.scale <= whole)
        return bool(_DIGITS.get(type(given), 99) <= whole)
    return type(wanted) in _WIDER.get(type(given), ())


def sql_type(data_type: T.DataType, write_name: Callable[[str], str] = quoted) -> str:
    """A type in Spark's SQL, whatever characters nested names have; ``write_name`` writes one of them."""
    if isinstance(data_type, T.StructType):
        fields = (f"{write_name(each.name)}: {sql_type(each.dataType, write_name)}" for each in data_type.fields)
        return f"STRUCT<{', '.join(fields)}>"
    if isinstance(data_type, T.ArrayType):
        return f"ARRAY<{sql_type(data_type.elementType, write_name)}>"
    if isinstance(data_type, T.MapType):
        return f"MAP<{sql_type(data_type.keyType, write_name)}, {sql_type(data_type.valueType, write_name)}>"
    return str(data_type.simpleString()).upper()
