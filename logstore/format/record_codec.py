"""The format of a log's records: changes into keys and values, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import pyarrow as pa

from logstore.format import changelog_avro, changelog_json
from logstore.format.changelog_avro import LogChanges, RecordSchemas, RegisteredSchema, wanted_schemas
from logstore.format.changelog_json import EncodedChanges
from logstore.format.schema_registry import SchemaRegistry
from lsm.errors import InvalidInputError

LogFormat = Literal["debezium-json", "json", "debezium-avro", "avro"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCodec:
    """The format of one log. Picklable: a task gets the schemas that the driver has registered."""

    log_format: LogFormat
    key_names: tuple[str, ...]  # () for a table without a key
    keeps_update_before: bool
    topic: str = ""
    registry: SchemaRegistry | None = None  # of the Avro formats
    schemas: Mapping[int, RecordSchemas] = field(default_factory=dict)  # registered, by version of the table's schema

    @property
    def is_avro(self) -> bool:
        """Whether records have schemas in a registry."""
        return self.log_format in ("avro", "debezium-avro")

    @property
    def deletes_have_key_only(self) -> bool:
        """Whether a delete has no value, so that its key must be read."""
        return self.log_format in ("avro", "json")

    @property
    def has_tombstones(self) -> bool:
        """Whether a delete may have its key only, as Flink's sink of the log writes it; Fluvial's have a value."""
        return self.log_format == "debezium-json" and bool(self.key_names) and not self.keeps_update_before

    def registered(
        self, version: int, rows: pa.Schema, *, other_names: Mapping[str, Sequence[str]] | None = None
    ) -> Self:
        """The same codec for rows of one more version of the table's schema.

        Args:
            version: its id.
            rows: its columns.
            other_names: what they were called before.

        Raises:
            UnavailableError: the registry does not answer.
            InvalidInputError: it refuses the schema, or Avro has no such type.
        """
        if not self.is_avro or version in self.schemas:
            return self
        texts = wanted_schemas(
            rows, key_names=self.key_names, log_format=self.log_format, other_names=other_names or {}
        )
        key, value = (
            None
            if text is None
            else RegisteredSchema(schema_id=self._registry.register(f"{self.topic}-{part}", text), text=text)
            for part, text in zip(("key", "value"), texts, strict=True)
        )
        assert value is not None
        return replace(self, schemas={**self.schemas, version: RecordSchemas(key=key, value=value)})

    def encode(self, rows: pa.RecordBatch, kinds: pa.Array, *, version: int) -> EncodedChanges:
        """Encode row changes, of a ``registered`` version. See ``changelog_json.encode_changes``."""
        mode: changelog_json.ChangelogMode = "all" if self.keeps_update_before else "auto"
        if self.log_format == "debezium-json" or self.log_format == "json":
            return changelog_json.encode_changes(
                rows, kinds, key_names=self.key_names, log_format=self.log_format, changelog_mode=mode
            )
        return changelog_avro.encode_avro_changes(
            rows,
            kinds,
            schemas=self.schemas[version],
            key_names=self.key_names,
            log_format=self.log_format,
            changelog_mode=mode,
        )

    def decode(self, keys: pa.Array | None, values: pa.Array, schema: pa.Schema) -> LogChanges:
        """Decode records. See ``changelog_json.decode_changes``, ``changelog_avro.decode_avro_changes``."""
        if self.log_format == "debezium-json" or self.log_format == "json":
            rows, kinds = changelog_json.decode_changes(
                keys, values, schema=schema, key_names=self.key_names, log_format=self.log_format
            )
            return LogChanges(rows=rows, kinds=kinds, indices=None)
        return changelog_avro.decode_avro_changes(
            keys, values, schema=schema, key_names=self.key_names, log_format=self.log_format, registry=self._registry
        )

    @property
    def _registry(self) -> SchemaRegistry:
        if self.registry is None:
            raise InvalidInputError(
                f"no schema registry: log.format={self.log_format} fix='set log.schema-registry.url'"
            )
        return self.registry
