"""A table that grows with the columns of its source: ``write.merge-schema`` in a job file.

Spark fixes the columns of a stream when the query starts. So at its start, a pipeline reads the newest records of its
topics: their schema part has the current columns and types of the source table. While the pipeline runs, a record with
an unknown column or a wider type fails its micro-batch before anything is written (``new-fields=fail``). The pipeline
then starts again, whatever ``on_failure`` says, and looks at that very record: it may be older than the newest ones,
as after a column was dropped. Where records carry no types (plain JSON, Avro), columns cannot be added.
"""

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from engine.deploy.config.pipeline_config import PipelineConfig
from engine.kafka.offsets import OffsetRange
from engine.kafka.options import KafkaSourceOptions, ValueFormat
from engine.kafka.source_columns import column_name
from engine.request.writer_options import SINK_KEYS, WriterOptions
from engine.table import Table
from engine.write.schema_evolution import fields_of_rows, merge_rules
from filestore.evolution.schema_change import apply_changes
from filestore.evolution.schema_merge import MergeRules, merge_changes
from filestore.schema.row_counts import seen_schema
from filestore.schema.table_schema import TableSchema
from filestore.types.casts import literal_value
from filestore.types.data_types import INTEGER_ROOTS, TEXT_ROOTS, DataField, DataType
from logstore.format.connect_types import DEFAULT_METADATA, value_schema
from logstore.format.schema_parts import split_payloads
from logstore.kafka.topics import LogTopics
from logstore.log.log_reader import read_range
from logstore.offsets import LogRange
from lsm.errors import FluvialError, InvalidInputError, NewColumnsError

logger = logging.getLogger("fluvial.schema")

_RETYPED_ROOTS: Final = INTEGER_ROOTS | {"BOOLEAN", "FLOAT", "DOUBLE"}  # that become text with explicit-cast
_SAMPLE_SIZE: Final = 200  # newest records of each partition


_PLACE: Final = re.compile(r"topic=(\S+) partition=(\d+) offset=(\d+)\s*$")


def failed_record(error: FluvialError) -> OffsetRange | None:
    """The record whose columns or types a query did not know; None: it failed for another reason."""
    match = _PLACE.search(str(error)) if isinstance(error, NewColumnsError) else None
    if match is None:
        return None
    offset = int(match[3])
    return OffsetRange(topic=match[1], partition=int(match[2]), start_offset=offset, end_offset=offset + 1)


def grown_fields(
    pipeline: PipelineConfig,
    tables: Sequence[Table],
    source: KafkaSourceOptions | None,
    *,
    failed: Sequence[OffsetRange] = (),
    declared: Collection[str] = (),
) -> tuple[DataField, ...] | None:
    """The columns of a pipeline's first table, with those of the source's newest records added.

    Args:
        pipeline: the pipeline.
        tables: tables of its outputs.
        source: options of its source; None for sources other than topics.
        failed: records whose columns a run did not know, in the order in which they were met.
        declared: columns with a type in the job file, which must stay castable to it.

    Returns:
        None when no table grows, or the source carries no types.

    Raises:
        UnavailableError: the brokers do not answer.
        InvalidInputError: a source column cannot be a table column, or an option has an invalid value.
    """
    if source is None or source.value_format is not ValueFormat.DEBEZIUM_JSON or pipeline.source.columns:
        return None
    rules = growth_rules(pipeline, tables)
    if rules is None:
        return None
    table = tables[0].files
    schema = table.store.at_version(table.store.schemas.ids()[-1]).schema  # it may have grown since the job started
    for columns in (*_columns_of(source, failed), *_newest_columns(source)):
        schema = grown_schema(schema, columns, rules, declared=declared)
    return seen_schema(schema).fields


def grown_schema(
    stored: TableSchema, columns: pa.Schema, rules: MergeRules, *, declared: Collection[str] = ()
) -> TableSchema:
    """A schema with the columns of a source merged; of a table that counts rows it is the stored one, with its key."""
    seen = seen_schema(stored)
    known = {field.name: field.type for field in seen.fields}
    fields = [
        field
        for field in fields_of_rows(columns, seen)
        if field.name not in known or not _is_only_text(known[field.name], field.type, field.name in declared)
    ]
    if seen is stored:  # rows that are counted are known by all their values
        fields = [replace(field, initial_default=_initial_default(field, columns)) for field in fields]
    return apply_changes(stored, merge_changes(seen, fields, rules), has_rows=False)


def _is_only_text(known: DataType, given: DataType, is_declared: bool) -> bool:
    """Whether a source writes values as text, such as exact decimals, that the column takes; it stays what it is."""
    return given.root in TEXT_ROOTS and (is_declared or known.root not in _RETYPED_ROOTS)


def _initial_default(field: DataField, columns: pa.Schema) -> str | None:
    """The value of a new column in old rows of the source."""
    given = (columns.field(field.name).metadata or {}).get(DEFAULT_METADATA)
    if given is None:
        return None
    try:
        literal_value(given.decode(), field.type)
    except InvalidInputError as error:
        logger.warning("old rows of a new column are null: column=%s reason=%s", field.name, error)
        return None
    return str(given.decode())


def growth_rules(pipeline: PipelineConfig, tables: Sequence[Table]) -> MergeRules | None:
    """How the tables may grow; other types are left to the decoder, which checks every value. None: not at all."""
    found = [
        merge_rules(table.store, WriterOptions.parse(output.options, SINK_KEYS, "sink option"))
        for output, table in zip(pipeline.outputs, tables, strict=True)
    ]
    rules = next((each for each in found if each is not None), None)
    return None if rules is None else replace(rules, fitting=lambda known, given: True)


def _newest_columns(source: KafkaSourceOptions) -> Iterator[pa.Schema]:
    topics = LogTopics(source.properties)
    for name in source.topics:
        topic = topics.find_topic(name)
        partitions = range(0 if topic is None else topic.bucket_count)
        earliest, ends = topics.earliest_offsets(name, partitions), topics.end_offsets(name, partitions)
        newest = [
            OffsetRange(
                topic=name,
                partition=partition,
                start_offset=max(earliest[partition], end - _SAMPLE_SIZE),
                end_offset=end,
            )
            for partition, end in ends.items()
        ]
        yield from _columns_of(source, newest)


def _columns_of(source: KafkaSourceOptions, ranges: Sequence[OffsetRange]) -> Iterator[pa.Schema]:
    """The columns of records of these ranges, each once, in the order in which they are met."""
    found: dict[str, pa.Schema] = {}
    for each in ranges:
        log_range = LogRange(bucket=each.partition, start_offset=each.start_offset, end_offset=each.end_offset)
        for records in read_range(source.properties, topic=each.topic, log_range=log_range, columns=["value"]):
            groups, _ = split_payloads(records["value"].drop_null())
            for group in groups:
                columns = value_schema(group.schema_part)
                named = pa.schema([field.with_name(column_name(field.name)) for field in columns])
                found.setdefault(named.to_string(show_field_metadata=True), named)
    yield from found.values()
