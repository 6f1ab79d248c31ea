"""Arrow batches in the types that Spark's Python workers require: microsecond timestamps, nanosecond times."""

import pyarrow as pa


def to_spark_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with timestamps in microseconds and times in nanoseconds, at any depth."""
    schema = pa.schema([field.with_type(_spark_arrow(field.type)) for field in rows.schema])
    if schema.equals(rows.schema):
        return rows
    columns = [
        column if column.type == field.type else column.cast(field.type, safe=False)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _spark_arrow(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("us", tz=arrow.tz)
    if pa.types.is_time(arrow):
        return pa.time64("ns")
    if pa.types.is_list(arrow):
        return pa.list_(arrow.value_field.with_type(_spark_arrow(arrow.value_type)))
    if pa.types.is_map(arrow):
        return pa.map_(
            arrow.key_field.with_type(_spark_arrow(arrow.key_type)),
            arrow.item_field.with_type(_spark_arrow(arrow.item_type)),
        )
    if pa.types.is_struct(arrow):
        return pa.struct([arrow.field(i).with_type(_spark_arrow(arrow.field(i).type)) for i in range(arrow.num_fields)])
    return arrow
