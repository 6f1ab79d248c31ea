"""The format of a table's records in its log, and its schemas in a registry."""

from collections.abc import Sequence

from filestore.evolution.schema_change import SchemaChange, apply_changes
from filestore.options.table_options import TableOptions
from filestore.schema.log_names import other_names
from filestore.schema.row_counts import seen_schema
from filestore.schema.table_schema import TableSchema
from filestore.table_store import TableStore
from logstore.format.record_codec import RecordCodec
from logstore.format.schema_registry import LOG_REGISTRY, SchemaRegistry


def record_codec(schema: TableSchema, options: TableOptions, topic: str) -> RecordCodec:
    """The format of a table's records, without schemas. Raises: InvalidInputError: the registry has no address."""
    registry = None
    if options.log_is_avro and options.log_registry_url is not None:
        registry = SchemaRegistry(
            url=options.log_registry_url,
            user_info=options.log_registry_user_info,
            token=options.log_registry_token,
            ca_file=options.log_registry_ca,
            keys=LOG_REGISTRY,
        )
    return RecordCodec(
        log_format=options.log_format,
        key_names=tuple(schema.primary_keys),
        keeps_update_before=options.log_changelog_mode == "all",
        topic=topic,
        registry=registry,
    )


def registered(codec: RecordCodec, schema: TableSchema, versions: Sequence[TableSchema]) -> RecordCodec:
    """The codec for rows of a version of the table's schema. See ``RecordCodec.registered``.

    Args:
        codec: of the table.
        schema: the version.
        versions: all that there are, for what columns were called.
    """
    seen = seen_schema(schema)
    earlier = [each for each in versions if each.id <= schema.id]  # a version has one schema, whatever follows it
    return codec.registered(schema.id, seen.arrow_schema, other_names=other_names(seen.fields, earlier))


def register_next(codec: RecordCodec | None, store: TableStore, changes: Sequence[SchemaChange]) -> None:
    """Have the registry accept what a table's schema is after changes, before they are published.

    Raises:
        UnavailableError: the schema registry does not answer.
        InvalidInputError: it refuses the schema, or a change is refused.
    """
    if codec is None or not codec.is_avro:
        return
    versions = store.schema_versions()
    after = apply_changes(
        versions[-1], changes, has_rows=store.snapshots.latest_id() is not None, history=versions[:-1]
    )
    registered(codec, after, [*versions, after])
