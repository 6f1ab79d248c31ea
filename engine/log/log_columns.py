"""The columns of a table in the records of its log, which have the names and types at the time of writing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from filestore.datafile.schema_mapping import SchemaMapping, map_schema, newer_than
from filestore.schema.log_names import other_names
from filestore.table_view import TableView
from filestore.types.data_types import arrow_field
from lsm.errors import InvalidInputError
from lsm.row_kind import RowKind


@dataclass(frozen=True, slots=True, kw_only=True)
class LogColumns:
    """Converts records to the rows of an opened table, across schema changes since it was opened."""

    schema: pa.Schema  # to decode: one column per former or current name
    names: Mapping[str, Sequence[str]]  # other names by column
    mapping: SchemaMapping | None  # from the newest version of the schema to the opened one; None: it is the newest
    never_null: Sequence[str]  # NOT NULL in the opened version, nullable in the newest

    @classmethod
    def of(cls, table: TableView, columns: Sequence[str]) -> "LogColumns":
        """For the current schema versions.

        Args:
            table: the opened table.
            columns: columns of its schema.
        """
        versions = table.store.schema_versions()
        newest = versions[-1]
        wanted = table.schema.fields_of(columns)
        newer = newer_than(table.schema, newest)
        by_id = {} if newer is None else {field.id: field for field in newest.fields}
        read = [by_id.get(field.id, field) for field in wanted]  # dropped columns are still in old records
        others = other_names(read, versions) if len(versions) > 1 else {}
        fields = [arrow_field(field).with_nullable(True) for field in read]
        fields += [field.with_name(name) for field in fields for name in others.get(field.name, ())]
        loosened = [one.name for one, two in zip(wanted, read, strict=True) if two.type.nullable > one.type.nullable]
        nullable = [replace(field, type=replace(field.type, nullable=True)) for field in wanted]
        return cls(
            schema=pa.schema(fields),
            names=others,
            mapping=None if newer is None else map_schema(read, nullable, newer=newer),
            never_null=loosened,
        )

    def apply(self, rows: pa.RecordBatch, kinds: pa.Array) -> pa.RecordBatch:
        """Decoded rows with the columns of the opened table.

        Args:
            rows: (n,) of ``schema``.
            kinds: (n,) int8; deletes may have their key only.

        Raises:
            InvalidInputError: a value does not fit its column's type when the table was opened. Names the column.
        """
        for name, names in self.names.items():
            index = rows.schema.get_field_index(name)
            merged = pc.coalesce(rows.column(index), *(rows.column(each) for each in names))
            rows = rows.set_column(index, rows.schema.field(index), merged)
        if self.mapping is None:
            return rows
        found = self.mapping.apply(rows)
        for name in self.never_null:
            is_add = pc.is_in(kinds, value_set=pa.array([RowKind.INSERT, RowKind.UPDATE_AFTER], pa.int8()))
            if pc.any(pc.and_(is_add, found.column(name).is_null())).as_py():
                raise InvalidInputError(
                    f"null in a column that could not be null when the table was opened: column={name} "
                    "fix=open the table again, or restart the query"
                )
        return found
