"""Maps rows of a file to the read schema: columns matched by field id, renamed, cast, filled with nulls.

A column added after the file was written has its initial default, which a change source declared, or else is null,
whatever its default: that applies only to writes.
A file may also be newer than its reader, if a column was widened after the reader was opened: then values that fit the
narrower type are read, and others are an error rather than truncated.
Source: Paimon SchemaEvolutionUtil.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from filestore.datafile.shared_maps import plain_map
from filestore.datafile.shredded_variants import METADATA_PART, TYPED_PART, VALUE_PART, put_together
from filestore.format.statistics import ColumnRange
from filestore.schema.file_fields import map_parts
from filestore.schema.table_schema import TableSchema
from filestore.types.casts import cast_array, floor_clock, keeps_order, literal_value, narrowed, widens
from filestore.types.data_types import NESTED_ROOTS, VARIANT_ARROW, DataField, DataType, arrow_field, arrow_type, walk
from filestore.types.nested_arrays import list_of, list_parts, struct_of
from lsm.errors import CorruptDataError, InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """The source of a read column. ``source`` None: the file is older than the column."""

    source: DataField | None  # as declared by the file's schema
    target: DataField
    is_same: bool  # the types agree, down to nested field ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Newer:
    """Schema ids of rows written with a later schema version than the reader's."""

    written: int  # schema id of the writer
    read: int  # schema id of the reader


@dataclass(frozen=True, slots=True)
class SchemaMapping:
    """How to build the read columns from one file schema."""

    columns: tuple[ColumnMapping, ...]
    arrow_schema: pa.Schema
    newer: Newer | None = None  # None: the file is not newer than the reader

    @property
    def file_fields(self) -> tuple[DataField, ...]:
        """The columns to read from the file, without duplicates."""
        return tuple({c.source.name: c.source for c in self.columns if c.source is not None}.values())

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the file as rows of the read schema.

        Args:
            rows: some of ``file_fields``, by name; missing ones are null. Of any type that can hold the values.

        Raises:
            CorruptDataError: a stored value is outside its declared type.
            InvalidInputError: a stored value cannot be cast to the column's new type; or the rows are newer than the
                reader, and a value does not fit the reader's type. Names the column.
        """
        arrays = [_mapped(rows, column, self.newer) for column in self.columns]
        if not arrays:
            return rows.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def ranges(self, ranges: Mapping[str, ColumnRange], row_count: int) -> Mapping[str, ColumnRange]:
        """Ranges by file column name, mapped to read column names.

        A column newer than the file is all null unless it has an initial default; then, like columns with a cast that
        may change the order, it is omitted.
        """
        mapped: dict[str, ColumnRange] = {}
        for column in self.columns:
            if column.source is None:
                if column.target.initial_default is None:
                    mapped[column.target.name] = ColumnRange(null_count=row_count)
            elif column.source.name in ranges and (
                column.is_same or keeps_order(column.source.type, column.target.type)
            ):
                mapped[column.target.name] = ranges[column.source.name]
        return mapped


def newer_than(known: TableSchema, written: TableSchema) -> Newer | None:
    """Both schema ids if rows were written with a later version than the reader knows, else None."""
    return Newer(written=written.id, read=known.id) if written.id > known.id else None


def map_schema(
    file_fields: Sequence[DataField], read_fields: Sequence[DataField], *, newer: Newer | None = None
) -> SchemaMapping:
    """How to read ``read_fields`` from a file with ``file_fields``, by field id.

    Args:
        file_fields: columns of the file.
        read_fields: columns to read.
        newer: set if the file's schema version is later than the reader's.
    """
    by_id = {field.id: field for field in file_fields}
    columns = tuple(_column(by_id.get(field.id), field) for field in read_fields)
    return SchemaMapping(columns, pa.schema([arrow_field(field) for field in read_fields]), newer)


def _column(source: DataField | None, target: DataField) -> ColumnMapping:
    is_same = source is not None and (source is target or _same(source.type, target.type))
    return ColumnMapping(source=source, target=target, is_same=is_same)


def map_ranges(
    ranges: Mapping[str, ColumnRange], file_schema: TableSchema, read_schema: TableSchema, row_count: int
) -> Mapping[str, ColumnRange]:
    """Statistics of a file by the columns of the read schema; see ``SchemaMapping.ranges``."""
    return map_schema(file_schema.fields, read_schema.fields).ranges(ranges, row_count)


def _same(source: DataType, target: DataType) -> bool:
    """Whether values need no conversion. Nullability is ignored for reads."""
    if source.root != target.root:
        return False
    if source.root == "ROW":
        return len(source.fields) == len(target.fields) and all(
            one.id == two.id and one.name == two.name and _same(one.type, two.type)
            for one, two in zip(source.fields, target.fields, strict=True)
        )
    if source.element is not None and target.element is not None:
        return _same(source.element, target.element)
    if source.root == "MAP":
        return all(_same(one, two) for one, two in zip(map_parts(source), map_parts(target), strict=True))
    return (source.length, source.precision, source.scale) == (target.length, target.precision, target.scale)


def _mapped(rows: pa.RecordBatch, column: ColumnMapping, newer: Newer | None) -> pa.Array:
    target = arrow_type(column.target.type)
    if column.source is None and column.target.initial_default is not None:
        return pa.repeat(literal_value(column.target.initial_default, column.target.type), rows.num_rows)
    index = -1 if column.source is None else rows.schema.get_field_index(column.source.name)
    if column.source is None or index < 0:
        return pa.nulls(rows.num_rows, target)
    array = rows.column(index)
    if column.source.type.root == "MAP":
        array = plain_map(array, rows.schema.field(index))
    if newer is not None and array.null_count and column.source.type.nullable and not column.target.type.nullable:
        raise _does_not_fit(column.target.name, column.source.type, column.target.type, newer, "null")
    if column.is_same and array.type == target:
        return array
    declared = conform(array, column.source.type, column.source.name)
    if column.is_same and declared.type == target:
        return declared
    return _evolve(declared, column.source.type, column.target.type, column.target.name, newer)


def _does_not_fit(
    column: str, written: DataType, known: DataType, newer: Newer, error: pa.ArrowInvalid | str
) -> InvalidInputError:
    return InvalidInputError(
        f"a value does not fit the column type that the table was opened with: column={column} type={known} "
        f"new_type={written} schema={newer.written} opened_schema={newer.read} error={error} "
        "fix=reopen the table, or restart the query: it continues with the new type"
    )


def conform(array: pa.Array, data_type: DataType, column: str) -> pa.Array:
    """A column as stored by any writer, as the Arrow type of its declared type: only the storage changes.

    Raises: CorruptDataError when a value is outside the declared type.
    """
    target = arrow_type(data_type)
    if array.type == target and not holds_variant(data_type):
        return array
    if data_type.root == "VARIANT":
        return _variant(array, column)
    try:
        if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(target):
            # Finer precisions of other writers (nanoseconds, INT96) are truncated; time zones are metadata only.
            return pc.cast(floor_clock(array, target.unit), target)
        return (
            pc.cast(array, target) if data_type.root not in NESTED_ROOTS else _conform_nested(array, data_type, column)
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptDataError(
            f"column holds a value outside its type: column={column} type={data_type} stored_type={array.type} "
            f"error={error}"
        ) from error


def holds_variant(data_type: DataType) -> bool:
    """Whether a type is VARIANT, or has one inside."""
    return any(part.root == "VARIANT" for part in walk(data_type))


def _variant(array: pa.Array, column: str) -> pa.Array:
    """A VARIANT of any writer; parts of it that are columns of their own are put together.

    Raises:
        CorruptDataError: parts that do not fit each other.
        InvalidInputError: it has other parts, or a part is a column of a type that no value has.
    """
    plain = array.storage if isinstance(array, pa.ExtensionArray) else array
    found = {field.name: plain.field(index) for index, field in enumerate(plain.type)}
    if TYPED_PART in found:
        try:
            found[VALUE_PART] = put_together(plain)
        except (CorruptDataError, InvalidInputError) as error:
            raise type(error)(f"{error} column={column}") from error
    if not {VALUE_PART, METADATA_PART} <= {*found}:
        raise InvalidInputError(
            f"not a VARIANT: column={column} parts={[*found]} "
            f"fix='a struct of {VALUE_PART} and {METADATA_PART}, both bytes'"
        )
    parts = [found[field.name].cast(field.type) for field in VARIANT_ARROW]
    if plain.null_count:  # Arrow's writer looks at the parts of a null too, which Spark leaves null
        parts = [pc.if_else(plain.is_null(), b"", part) for part in parts]
    return _struct(plain, parts, VARIANT_ARROW)


def _conform_nested(array: pa.Array, data_type: DataType, column: str) -> pa.Array:
    if data_type.root == "ROW":
        places = {field.name: place for place, field in enumerate(array.type)}
        inner = [
            conform(array.field(places[field.name]), field.type, f"{column}.{field.name}")
            if field.name in places
            else pa.nulls(len(array), arrow_type(field.type))
            for field in data_type.fields
        ]
        return _struct(array, inner, arrow_type(data_type))
    if data_type.root == "ARRAY" and data_type.element is not None:
        array = _plain_list(array)
        return _list(array, conform(array.values, data_type.element, f"{column}.element"), arrow_type(data_type))
    key, value = map_parts(data_type)
    return _map(
        array,
        conform(array.keys, key, f"{column}.key"),
        conform(array.items, value, f"{column}.value"),
        arrow_type(data_type),
    )


def _evolve(array: pa.Array, source: DataType, target: DataType, column: str, newer: Newer | None) -> pa.Array:
    """Values of ``arrow_type(source)`` as values of ``arrow_type(target)``, nested fields by id."""
    if _same(source, target):
        return conform(array, target, column)
    if source.root == target.root == "ROW":
        by_id = {field.id: (index, field.type) for index, field in enumerate(source.fields)}
        inner = []
        for field in target.fields:
            index, old = by_id.get(field.id, (-1, field.type))
            inner.append(
                pa.nulls(len(array), arrow_type(field.type))
                if index < 0
                else _evolve(array.field(index), old, field.type, f"{column}.{field.name}", newer)
            )
        return _struct(array, inner, arrow_type(target))
    if source.root == target.root == "ARRAY" and source.element is not None and target.element is not None:
        values = _evolve(array.values, source.element, target.element, f"{column}.element", newer)
        return _list(array, values, arrow_type(target))
    if source.root == target.root and source.root in ("MAP", "MULTISET"):
        (old_key, old_value), (new_key, new_value) = map_parts(source), map_parts(target)
        keys = _evolve(array.keys, old_key, new_key, f"{column}.key", newer)
        items = _evolve(array.items, old_value, new_value, f"{column}.value", newer)
        return _map(array, keys, items, arrow_type(target))
    if source.root in NESTED_ROOTS or target.root in NESTED_ROOTS:
        raise InvalidInputError(f"a column cannot be read as its new type: old_type={source} new_type={target}")
    if newer is None or not widens(target, source):
        return cast_array(array, source, target)
    try:
        return narrowed(array, source, target)
    except pa.ArrowInvalid as error:
        raise _does_not_fit(column, source, target, newer, error) from error


# Only children are replaced; offsets and null bitmap are reused, so slices remain slices and nothing else is copied.


def _struct(array: pa.Array, children: Sequence[pa.Array], target: pa.DataType) -> pa.Array:
    return struct_of(array, children, target) if children else pc.cast(array, target)


def _plain_list(array: pa.Array) -> pa.Array:
    """Lists of another layout as ordinary ones."""
    if pa.types.is_list(array.type):
        return array
    return list_of(array, *list_parts(array), pa.list_(array.type.value_field))


def _list(array: pa.Array, values: pa.Array, target: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], array.null_count, array.offset, children=[values]
    )


def _map(array: pa.Array, keys: pa.Array, items: pa.Array, target: pa.DataType) -> pa.Array:
    entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], array.null_count, array.offset, children=[entries]
    )
