"""A table that grows with the columns of its source: ``write.merge-schema`` in a job file.

Spark fixes the columns of a stream when the query starts. So at its start, a pipeline reads the newest records of its
topics: their schema part has the current columns and types of the source table. While the pipeline runs, a record with
an unknown column fails its micro-batch before anything is written (``new-fields=fail``); after a restart, by
``on_failure`` or by hand, the pipeline knows the column, and no value is lost. Where records carry no types (plain
JSON, Avro), columns cannot be added.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from engine.deploy.config.pipeline_config import PipelineConfig
from engine.kafka.options import KafkaSourceOptions, ValueFormat
from engine.request.writer_options import SINK_KEYS, WriterOptions
from engine.table import Table
from engine.write.schema_evolution import fields_of_rows, merge_rules
from filestore.evolution.schema_change import apply_changes
from filestore.evolution.schema_merge import MergeRules, merge_changes
from filestore.types.data_types import DataField
from logstore.format.connect_types import value_schema
from logstore.format.schema_parts import split_payloads
from logstore.kafka.topics import LogTopics
from logstore.log.log_reader import read_range
from logstore.offsets import LogRange

_SAMPLE_SIZE: Final = 200  # newest records of each partition


def grown_fields(
    pipeline: PipelineConfig, tables: Sequence[Table], source: KafkaSourceOptions | None
) -> tuple[DataField, ...] | None:
    """The columns of a pipeline's first table, with those of the source's newest records added.

    Args:
        pipeline: the pipeline.
        tables: tables of its outputs.
        source: options of its source; None for sources other than topics.

    Returns:
        None when no table grows, or the source carries no types.

    Raises:
        UnavailableError: the brokers do not answer.
        InvalidInputError: a source column cannot be a table column, or an option has an invalid value.
    """
    if source is None or source.value_format is not ValueFormat.DEBEZIUM_JSON or pipeline.source.columns:
        return None
    rules = _rules(pipeline, tables)
    if rules is None:
        return None
    table = tables[0].files
    schema = table.at_version(table.store.schemas.ids()[-1]).schema  # it may have grown since the job started
    for columns in _newest_columns(source):
        changes = merge_changes(schema, fields_of_rows(columns, schema), rules)
        schema = apply_changes(schema, changes, has_rows=False)
    return schema.fields


def _rules(pipeline: PipelineConfig, tables: Sequence[Table]) -> MergeRules | None:
    """How the tables may grow; incompatible types are left to the decoder, which checks every value."""
    found = [
        merge_rules(table.store, WriterOptions.parse(output.options, SINK_KEYS, "sink option"))
        for output, table in zip(pipeline.outputs, tables, strict=True)
    ]
    rules = next((each for each in found if each is not None), None)
    return None if rules is None else replace(rules, casts=False, fitting=lambda known, given: True)


def _newest_columns(source: KafkaSourceOptions) -> list[pa.Schema]:
    topics = LogTopics(source.properties)
    found: dict[str, pa.Schema] = {}
    for name in source.topics:
        topic = topics.find_topic(name)
        partitions = range(0 if topic is None else topic.bucket_count)
        earliest, ends = topics.earliest_offsets(name, partitions), topics.end_offsets(name, partitions)
        for partition, end in ends.items():
            start = max(earliest[partition], end - _SAMPLE_SIZE)
            log_range = LogRange(bucket=partition, start_offset=start, end_offset=end)
            for records in read_range(source.properties, topic=name, log_range=log_range, columns=["value"]):
                groups, _ = split_payloads(records["value"].drop_null())
                for group in groups:
                    columns = value_schema(group.schema_part)
                    found[str(columns)] = columns
    return list(found.values())
