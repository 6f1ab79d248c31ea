"""Values of a query stored into table columns, by Spark's store assignment.

What ``spark.sql.storeAssignmentPolicy`` does not allow is refused before anything runs, an out-of-range number when it
occurs. Both errors name the column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from engine.dialect.scope.context import SqlContext
from engine.runtime.spark_messages import cause_in_spark
from engine.types.column_names import CaseRule
from engine.types.spark_types import is_same_type, is_wider_type, spark_type, sql_type
from engine.types.text_length import limit_of, within_length
from filestore.types.casts import default_scalar, unquoted_default
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError

POLICY_KEY: Final = "spark.sql.storeAssignmentPolicy"
_NO_CAST: Final = "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST"
_ANSI: Final = "ANSI"
_STRICT: Final = "STRICT"
_PLAIN: Final = (T.NumericType, T.BooleanType, T.StringType, T.BinaryType, T.DateType)
_MOMENTS: Final = (T.DateType, T.TimestampType, T.TimestampNTZType)
_NUMBERS: Final = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType)  # by precedence
_DIGITS: Final[Mapping[type[T.DataType], int]] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 20}
_UP_CASTS: Final[Mapping[type[T.DataType], tuple[type[T.DataType], ...]]] = {
    T.DateType: (T.TimestampType, T.TimestampNTZType),
    T.TimestampType: (T.TimestampNTZType, T.LongType),
    T.TimestampNTZType: (T.TimestampType,),
    T.LongType: (T.TimestampType,),
}


@dataclass(frozen=True, slots=True)
class StoreAssignment:
    """How a session stores values in columns of another type."""

    names: CaseRule
    policy: str = _ANSI  # as the session says it

    @classmethod
    def of(cls, context: SqlContext) -> "StoreAssignment":
        """What a session says now; without Spark as Spark does by itself."""
        spark = context.running_spark
        return cls(context.names, _ANSI if spark is None else str(spark.conf.get(POLICY_KEY, _ANSI)).upper())

    def stored(self, value: Column, given: T.DataType, field: DataField, *, by_name: bool = False) -> Column:
        """A column of a frame with the type and the name of a table's column.

        Args:
            value: a column of a frame.
            given: its type.
            field: the table's column.
            by_name: whether fields of structs are found by their names; else by their places.

        Raises:
            InvalidInputError: values of this type cannot be stored in the column.
        """
        wanted = spark_type(field.type)
        if self.policy not in (_ANSI, _STRICT) and not is_same_type(given, wanted):
            raise InvalidInputError(
                "values that do not fit would be changed unseen, which Spark allows for its own tables only: "
                f"column={field.name} given={given.simpleString()} wanted={field.type} {POLICY_KEY}={self.policy} "
                "fix='set it to ANSI or STRICT, or cast the values in the query'"
            )
        if not self.admits(given, wanted, by_name=by_name):
            policy = f" {POLICY_KEY}={self.policy}" if self.policy != _ANSI else ""
            raise InvalidInputError(
                f"values of this type are not stored in the column: column={field.name} given={given.simpleString()} "
                f"wanted={field.type}{policy} fix=cast them in the query"
            ) from cause_in_spark(_NO_CAST)
        made = self._converted(value, given, wanted, field.name, by_name=by_name)
        return within_length(made, field.type, field.name).alias(field.name)

    def is_widened(self, given: T.DataType, field: DataField) -> bool:
        """Whether ``stored`` is nothing but Spark's cast to a type that holds all values of the given one."""
        wanted = spark_type(field.type)
        if not isinstance(given, _PLAIN) or limit_of(field.type) is not None:
            return False
        if is_same_type(given, wanted):
            return True
        return isinstance(given, T.NumericType) and is_wider_type(given, wanted) and self.policy == _ANSI

    def admits(self, given: T.DataType, wanted: T.DataType, *, by_name: bool = False) -> bool:
        """Whether the policy lets values of a type into a column of another; nested ones part by part."""
        if isinstance(given, T.NullType):
            return self.policy != _STRICT  # a NULL without a type
        if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
            return self.admits(given.elementType, wanted.elementType, by_name=by_name)
        if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
            parts = ((given.keyType, wanted.keyType), (given.valueType, wanted.valueType))
            return all(self.admits(*part, by_name=by_name) for part in parts)
        if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
            fields = self._matched(given, wanted, by_name=by_name)
            return fields is not None and all(
                self.admits(one.dataType, other.dataType, by_name=by_name)
                for one, other in zip(fields, wanted.fields, strict=True)
            )
        if is_same_type(given, wanted):
            return True
        return _is_up_cast(given, wanted) if self.policy == _STRICT else _is_ansi_cast(given, wanted)

    def _matched(self, given: T.StructType, wanted: T.StructType, *, by_name: bool) -> list[T.StructField] | None:
        """The given fields in the order of the wanted ones; None: some are missing or too many."""
        if len(given.fields) != len(wanted.fields):
            return None
        if not by_name:
            return list(given.fields)
        found = self.names.finder(given.names)
        names = [found(name) for name in wanted.names]
        return None if None in names or len(set(names)) < len(names) else [given[name] for name in names]

    def _converted(self, value: Column, given: T.DataType, wanted: T.DataType, name: str, *, by_name: bool) -> Column:
        """A value that is admitted, cast; a number that does not fit raises when it occurs."""
        if is_same_type(given, wanted):
            return value
        if isinstance(given, T.NumericType):
            is_exact = not isinstance(wanted, T.NumericType) or is_wider_type(given, wanted)
            return value.cast(wanted) if is_exact else _checked(value, wanted, name)
        if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
            one, other = given.elementType, wanted.elementType
            return F.transform(
                value, lambda each: self._converted(each, one, other, f"{name}.element", by_name=by_name)
            )
        if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
            return self._converted_map(value, given, wanted, name, by_name=by_name)
        if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
            fields = self._matched(given, wanted, by_name=by_name) or []
            parts = [
                self._converted(
                    value.getField(one.name), one.dataType, other.dataType, f"{name}.{other.name}", by_name=by_name
                ).alias(other.name)
                for one, other in zip(fields, wanted.fields, strict=True)
            ]
            return F.when(value.isNotNull(), F.struct(*parts))
        return value.cast(wanted)

    def _converted_map(self, value: Column, given: T.MapType, wanted: T.MapType, name: str, *, by_name: bool) -> Column:
        keys, values = (given.keyType, wanted.keyType), (given.valueType, wanted.valueType)
        if not is_same_type(*values):
            value = F.transform_values(
                value, lambda _, each: self._converted(each, *values, f"{name}.value", by_name=by_name)
            )
        if is_same_type(*keys):
            return value
        return F.transform_keys(value, lambda each, _: self._converted(each, *keys, f"{name}.key", by_name=by_name))


def widened_schema(fields: Sequence[DataField]) -> T.StructType:
    """The columns that rows get by ``DataFrame.to``; nulls are refused by the writer, which names the column."""
    return T.StructType([T.StructField(field.name, spark_type(field.type)) for field in fields])


def default_value(field: DataField) -> Column:
    """The value of an omitted column.

    Raises:
        InvalidInputError: it is NOT NULL and has no default.
    """
    if field.default_value is not None:
        micros = _default_micros(field)
        text = F.lit(unquoted_default(field.default_value)).cast(spark_type(field.type))
        return (text if micros is None else F.timestamp_micros(F.lit(micros))).alias(field.name)
    if not field.type.nullable:
        raise InvalidInputError(f"a NOT NULL column is left out: column={field.name} fix=give it a value")
    return F.lit(None).cast(spark_type(field.type)).alias(field.name)


def default_sql(field: DataField) -> str:
    """The default as SQL text; NULL for a column without a default, which the column may refuse."""
    if field.default_value is None:
        return "NULL"
    if (micros := _default_micros(field)) is not None:
        return f"timestamp_micros({micros})"
    escaped = unquoted_default(field.default_value).replace("\\", "\\\\").replace("'", "\\'")
    return f"CAST('{escaped}' AS {sql_type(spark_type(field.type))})"


def _default_micros(field: DataField) -> int | None:
    """Epoch microseconds of the default of a moment, which is in UTC, as the writer fills nulls; None: no moment."""
    if field.type.root != "TIMESTAMP_LTZ":
        return None
    return int(default_scalar(field).cast(pa.timestamp("us", "UTC"), safe=False).value)


def _checked(value: Column, wanted: T.DataType, name: str) -> Column:
    cast = value.try_cast(wanted)
    problem = F.concat(
        F.lit(f"a value does not fit the column: column={name} type={sql_type(wanted)} value="), value.cast("string")
    )
    return F.when(value.isNotNull() & cast.isNull(), F.raise_error(problem).cast(wanted)).otherwise(cast)


def _is_ansi_cast(given: T.DataType, wanted: T.DataType) -> bool:
    """Whether ANSI stores a plain value: what is a number stays one, what is a moment too; all have a text."""
    if isinstance(given, T.NumericType) and isinstance(wanted, T.NumericType):
        return True
    if isinstance(given, _MOMENTS) and isinstance(wanted, _MOMENTS):
        return True
    return isinstance(wanted, T.StringType) and isinstance(given, T.AtomicType)


def _is_up_cast(given: T.DataType, wanted: T.DataType) -> bool:
    """Whether STRICT stores a plain value: the type has all its values, or Spark counts it as such (BIGINT, FLOAT)."""
    if given.typeName() == "variant":
        return False
    if isinstance(wanted, T.StringType):
        return isinstance(given, T.AtomicType)
    if isinstance(given, T.DecimalType) and type(wanted) in _DIGITS:
        return bool(given.scale == 0 and given.precision < _DIGITS[type(wanted)])
    if isinstance(wanted, T.DecimalType) and type(given) in _DIGITS:
        return bool(_DIGITS[type(given)] <= wanted.precision - wanted.scale)
    if isinstance(given, _NUMBERS) and isinstance(wanted, _NUMBERS):
        return _NUMBERS.index(type(given)) < _NUMBERS.index(type(wanted))
    return is_wider_type(given, wanted) or type(wanted) in _UP_CASTS.get(type(given), ())
