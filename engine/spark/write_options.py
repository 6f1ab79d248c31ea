"""What users give to ``df.write`` and ``df.writeStream``: which table, and how it is written this time."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from engine.request.branch_choice import BRANCH_KEY
from engine.request.option_check import is_client_property, refused_option
from engine.request.place_options import TABLE_PLACE_KEYS
from engine.request.writer_options import BATCH_WRITE_KEYS, SINK_KEYS, WriterOptions
from engine.spark.named_table import is_place_key, named_table
from engine.types.column_names import CaseRule
from engine.types.given_rows import renamed
from engine.types.spark_types import BESIDE_ROWS, check_frame, fields_of_frame
from engine.write.schema_evolution import cast_rows, evolve_schema, merge_rules
from filestore.evolution.schema_merge import MergeRules
from filestore.options.references import with_secrets
from filestore.options.table_options import canonical_options
from filestore.table import FileTable
from lsm.errors import InvalidInputError

PARTITION_KEY: Final = WriterOptions.partition.key
DYNAMIC_KEY: Final = WriterOptions.dynamic_partition_overwrite.key
WRITE_ONLY_KEYS: Final = tuple(key for key in BATCH_WRITE_KEYS if key != BRANCH_KEY)
"""Options of a batch write that no read has."""
_SINK_ALONE: Final = (WriterOptions.sink_writer.key, WriterOptions.trace_directory.key)
STREAM_WRITE_KEYS: Final = tuple(key for key in SINK_KEYS if key not in _SINK_ALONE)
_SPARKS_KEYS: Final = ("checkpointLocation", "queryName")  # what Spark passes on of its own options


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A table, and the options of one writer. Picklable."""

    table: FileTable
    given: WriterOptions
    partition: Mapping[str, object] | None = None  # to overwrite
    checkpoint: str | None = None  # of a streaming query: its location, if that is given here
    has_checkpoint: bool = False  # of a streaming query: a place of its own, or a name under the session's place
    rules: MergeRules | None = None  # what may change of the table's schema
    names: Mapping[str, str] = field(default_factory=dict)  # the table's names of columns, by those of the frame

    @classmethod
    def parse(cls, options: Mapping[str, str], keys: tuple[str, ...]) -> "WriteOptions":
        """Open the table and take the writer's options.

        Args:
            options: as Spark hands them over; keys may be in any case that Spark makes of them.
            keys: those that this way of writing understands.

        Raises:
            InvalidInputError: an unknown key (names the nearest), no table named, no such table or partition column, a
                value that is not one of the column.
        """
        known = (*TABLE_PLACE_KEYS, *keys)
        spelled = {key.lower(): key for key in (*known, *_SPARKS_KEYS)}
        spelled_here = {spelled.get(key.lower(), key): value for key, value in options.items()}
        named = with_secrets(canonical_options(spelled_here))
        for key, value in named.items():
            if key not in (*keys, *_SPARKS_KEYS) and not is_client_property(key) and not is_place_key(key):
                raise refused_option(key, value, known, "write option")
        table = named_table(named).files
        writer = WriterOptions(
            {key: value for key, value in named.items() if key not in _SPARKS_KEYS and not is_place_key(key)}
        )
        if writer.dynamic_partition_overwrite is not None:
            table = table.with_options({DYNAMIC_KEY: named[DYNAMIC_KEY]})
        table = writer.applied(table)
        return cls(
            table=table,
            given=writer,
            partition=None if writer.partition is None else partition_values(table, writer.partition),
            checkpoint=named.get(_SPARKS_KEYS[0]),
            has_checkpoint=any(key in named for key in _SPARKS_KEYS),
            rules=merge_rules(table.store, writer),
        )

    def for_frame(self, schema: StructType) -> "WriteOptions":
        """The same with the table at a schema that holds a frame's rows; published first, if the options say so.

        Raises:
            InvalidInputError: the columns cannot be merged.
        """
        own = (*self.table.schema.column_names, *BESIDE_ROWS)
        names = dict(zip(schema.names, CaseRule().as_spelled(schema.names, own), strict=True))
        found = self if names.keys() == {*names.values()} else replace(self, names=names)
        if self.rules is None:
            return found
        fields = fields_of_frame(found.spelled(schema), self.table.schema)
        return replace(found, table=evolve_schema(self.table, fields, self.rules))

    def spelled(self, schema: StructType) -> StructType:
        """A frame's columns with the table's names for those that differ from them in case only."""
        return StructType(
            [
                StructField(self.names.get(each.name, each.name), each.dataType, each.nullable, each.metadata)
                for each in schema.fields
            ]
        )

    def check_frame(self, schema: StructType) -> None:
        """Refuse a frame whose rows the table cannot hold. Raises: InvalidInputError."""
        if self.rules is None or not self.rules.casts:  # else every column was merged, and rows are cast
            check_frame(self.spelled(schema), self.table.schema)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of a task under the table's names, cast where that is allowed."""
        if self.names:
            batches = (renamed(batch, self.names) for batch in batches)
        return cast_rows(batches, self.table.schema, self.rules)


def partition_values(table: FileTable, text: str) -> Mapping[str, object]:
    """Values of partition columns out of ``dt=2024-01-01,region=eu``.

    Texts are those of the directories: ``%2C`` is a comma, the name of the default partition is null.

    Raises:
        InvalidInputError: no such partition column, or a value that is not one of its type.
    """
    found: dict[str, object] = {}
    for each in text.split(","):
        name, equals, escaped = (part.strip() for part in each.partition("="))
        if not equals or name not in table.schema.partition_keys:
            raise InvalidInputError(
                f"not a partition column and its value: partition={each.strip()} "
                f"partition_columns={list(table.schema.partition_keys)} fix=write column=value,column=value"
            )
        found[name] = partition_value(table, name, unquote(escaped))
    return found


def partition_value(table: FileTable, name: str, text: str) -> object:
    """Value of a partition column out of its text; the name of the default partition is null.

    Raises:
        InvalidInputError: it is not one of the column's type.
    """
    if text == table.options.partition_default_name:
        return None
    try:
        return pa.scalar(text).cast(table.schema.arrow_field(name).type).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"not a value of the partition column: column={name} value={text!r} type={table.schema.field(name).type}"
        ) from error
