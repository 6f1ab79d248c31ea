"""Values of a query stored into table columns, by Spark's ANSI store assignment.

An incompatible type is refused before anything runs, an out-of-range number when it occurs. Both errors name the
column.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from engine.types.quoting import quoted
from engine.types.spark_types import is_same_type, is_time, is_wider_type, spark_type
from engine.types.text_length import limit_of, within_length
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError

_PLAIN: Final = (T.NumericType, T.BooleanType, T.StringType, T.BinaryType, T.DateType)
_MOMENTS: Final = (T.DateType, T.TimestampType, T.TimestampNTZType)


def stored(value: Column, given: T.DataType, field: DataField) -> Column:
    """A column of a frame with the type and the name of a table's column.

    Args:
        value: a column of a frame.
        given: its type.
        field: the table's column.

    Raises:
        InvalidInputError: values of this type cannot be stored in the column.
    """
    wanted = spark_type(field.type)
    if is_same_type(given, wanted):
        return within_length(value, field.type, field.name).alias(field.name)
    if not _is_storable(given, wanted):
        raise InvalidInputError(
            f"values of this type are not stored in the column: column={field.name} given={given.simpleString()} "
            f"wanted={field.type} fix=cast them in the query"
        )
    if isinstance(given, T.NumericType) and not is_wider_type(given, wanted):
        return _checked(value, wanted, field).alias(field.name)
    return within_length(value.cast(wanted), field.type, field.name).alias(field.name)


def is_widened(given: T.DataType, field: DataField) -> bool:
    """Whether ``stored`` is nothing but Spark's cast to a type that holds all values of the given one."""
    wanted = spark_type(field.type)
    if not isinstance(given, _PLAIN) or limit_of(field.type) is not None:
        return False
    return is_same_type(given, wanted) or (isinstance(given, T.NumericType) and is_wider_type(given, wanted))


def widened_schema(fields: Sequence[DataField]) -> T.StructType:
    """The columns that rows get by ``DataFrame.to``; nulls are refused by the writer, which names the column."""
    return T.StructType([T.StructField(field.name, spark_type(field.type)) for field in fields])


def default_value(field: DataField) -> Column:
    """The value of an omitted column.

    Raises:
        InvalidInputError: it is NOT NULL and has no default.
    """
    if field.default_value is not None:
        return F.lit(field.default_value).cast(spark_type(field.type)).alias(field.name)
    if not field.type.nullable:
        raise InvalidInputError(f"a NOT NULL column is left out: column={field.name} fix=give it a value")
    return F.lit(None).cast(spark_type(field.type)).alias(field.name)


def default_sql(field: DataField) -> str:
    """The same as SQL text; NULL for a column without a default, which the column may refuse."""
    if field.default_value is None:
        return "NULL"
    escaped = field.default_value.replace("\\", "\\\\").replace("'", "\\'")
    return f"CAST('{escaped}' AS {sql_type(spark_type(field.type))})"


def sql_type(data_type: T.DataType) -> str:
    """A type in Spark's SQL, whatever characters nested names have."""
    if isinstance(data_type, T.StructType):
        fields = ", ".join(f"{quoted(each.name)}: {sql_type(each.dataType)}" for each in data_type.fields)
        return f"STRUCT<{fields}>"
    if isinstance(data_type, T.ArrayType):
        return f"ARRAY<{sql_type(data_type.elementType)}>"
    if isinstance(data_type, T.MapType):
        return f"MAP<{sql_type(data_type.keyType)}, {sql_type(data_type.valueType)}>"
    return str(data_type.simpleString()).upper()


def _checked(value: Column, wanted: T.DataType, field: DataField) -> Column:
    cast = value.try_cast(wanted)
    problem = F.concat(
        F.lit(f"a value does not fit the column: column={field.name} type={field.type} value="), value.cast("string")
    )
    return F.when(value.isNotNull() & cast.isNull(), F.raise_error(problem).cast(wanted)).otherwise(cast)


def _is_storable(given: T.DataType, wanted: T.DataType) -> bool:
    if is_same_type(given, wanted) or isinstance(given, T.NullType):
        return True
    if isinstance(given, T.NumericType) and isinstance(wanted, T.NumericType):
        return True
    if isinstance(given, _MOMENTS) and isinstance(wanted, _MOMENTS):
        return True
    if isinstance(wanted, T.StringType):
        return isinstance(given, T.AtomicType)
    return _is_storable_inside(given, wanted)


def _is_storable_inside(given: T.DataType, wanted: T.DataType) -> bool:
    """Nested values may only be widened: an overflow inside could not be reported."""
    if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return _is_part_storable(given.elementType, wanted.elementType)
    if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
        return _is_part_storable(given.keyType, wanted.keyType) and _is_part_storable(given.valueType, wanted.valueType)
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
        return len(given.fields) == len(wanted.fields) and all(
            _is_part_storable(one.dataType, other.dataType)
            for one, other in zip(given.fields, wanted.fields, strict=True)
        )
    return is_time(wanted) and is_time(given)


def _is_part_storable(given: T.DataType, wanted: T.DataType) -> bool:
    if isinstance(given, T.NumericType) and not (is_same_type(given, wanted) or is_wider_type(given, wanted)):
        return isinstance(wanted, T.StringType)
    return _is_storable(given, wanted)
