"""Change events as Debezium's PostgreSQL connector 3.0 writes them by Connect's JsonConverter, with schema parts."""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics

Field = dict[str, Any]
Record = tuple[str, bytes | None, bytes | None] | tuple[str, bytes | None, bytes | None, Mapping[str, bytes]]
"""Topic, key, value, and headers if there are."""


def int32(name: str, *, optional: bool = True) -> Field:
    """A 32-bit column."""
    return {"type": "int32", "optional": optional, "field": name}


def int64(name: str, *, optional: bool = True) -> Field:
    """A 64-bit column."""
    return {"type": "int64", "optional": optional, "field": name}


def text(name: str, *, optional: bool = True) -> Field:
    """A text column."""
    return {"type": "string", "optional": optional, "field": name}


def decimal(name: str, precision: int, scale: int) -> Field:
    """A bounded decimal column, as ``decimal.handling.mode=precise`` has it."""
    return {
        "type": "bytes",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": str(scale), "connect.decimal.precision": str(precision)},
        "field": name,
    }


_SOURCE = (
    [
        {"type": "string", "optional": False, "field": name}
        for name in ("version", "connector", "name", "snapshot", "db", "schema", "table")
    ]
    + [{"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "lsn")]
    + [text("sequence")]
)


@dataclass(frozen=True)
class SourceTable:
    """A table of the source at one moment: its columns and its key."""

    name: str
    columns: Sequence[Field]
    key: Sequence[str] = ("id",)
    schema: str = "public"
    prefix: str = "shop"
    topic_name: str | None = None

    @property
    def topic(self) -> str:
        return self.topic_name or f"{self.prefix}.{self.schema}.{self.name}"

    def with_columns(self, *columns: Field) -> "SourceTable":
        return replace(self, columns=columns)

    def insert(self, row: Mapping[str, Any], **more: Any) -> Record:
        return self.event("c", None, row, **more)

    def read(self, row: Mapping[str, Any], **more: Any) -> Record:
        return self.event("r", None, row, **more)

    def update(self, row: Mapping[str, Any], *, before: Mapping[str, Any] | None = None, **more: Any) -> Record:
        return self.event("u", before, row, **more)

    def delete(self, row: Mapping[str, Any], **more: Any) -> Record:
        return self.event("d", row, None, **more)

    def truncate(self, **more: Any) -> Record:
        found = self.event("t", None, None, **more)
        return found[0], None, found[2]

    def event(
        self,
        op: str,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any] | None,
        *,
        lsn: int = 1,
        ts_ms: int = 1_763_859_600_000,
        tx: tuple[str, int, int] | None = None,
        snapshot: str = "false",
        commit: int | None = None,
    ) -> Record:
        row = after if after is not None else before
        payload = {
            "before": before,
            "after": after,
            "source": {
                "version": "3.0.8.Final", "connector": "postgresql", "name": self.prefix, "ts_ms": ts_ms,
                "snapshot": snapshot, "db": "shop", "schema": self.schema, "table": self.name, "lsn": lsn,
                "sequence": None if commit is None else json.dumps([str(commit), str(lsn)]),
            },
            "transaction": None
            if tx is None
            else {"id": tx[0], "total_order": tx[1], "data_collection_order": tx[2]},
            "op": op,
            "ts_ms": ts_ms + 100,
        }  # fmt: skip
        value = json.dumps({"schema": self._value_part(), "payload": payload}, separators=(",", ":")).encode()
        key = None
        if self.key and row is not None:
            key = json.dumps(
                {"schema": self._key_part(), "payload": {name: row[name] for name in self.key}}, separators=(",", ":")
            ).encode()
        return self.topic, key, value

    def _value_part(self) -> dict[str, Any]:
        name = f"{self.prefix}.{self.schema}.{self.name}"
        row = {"type": "struct", "fields": list(self.columns), "optional": True, "name": f"{name}.Value"}
        return {
            "type": "struct",
            "fields": [
                {**row, "field": "before"},
                {**row, "field": "after"},
                {"type": "struct", "fields": _SOURCE, "optional": False, "field": "source"},
                {
                    "type": "struct",
                    "fields": [text("id"), int64("total_order"), int64("data_collection_order")],
                    "optional": True,
                    "name": "event.block",
                    "field": "transaction",
                },
                {"type": "string", "optional": False, "field": "op"},
                {"type": "int64", "optional": True, "field": "ts_ms"},
            ],
            "optional": False,
            "name": f"{name}.Envelope",
            "version": 2,
        }

    def _key_part(self) -> dict[str, Any]:
        own = {each["field"]: each for each in self.columns}
        fields = [{**own[name], "optional": False} for name in self.key]
        name = f"{self.prefix}.{self.schema}.{self.name}.Key"
        return {"type": "struct", "fields": fields, "optional": False, "name": name}


def tombstone(record: Record) -> Record:
    """The record that follows a delete."""
    return record[0], record[1], None


def transaction_end(prefix: str, tx: str, counts: Mapping[str, int]) -> Record:
    """What a connector with ``provide.transaction.metadata`` writes behind a transaction; counts by schema.table."""
    payload = {
        "status": "END",
        "id": tx,
        "event_count": sum(counts.values()),
        "data_collections": [{"data_collection": name, "event_count": count} for name, count in counts.items()],
        "ts_ms": 1_763_859_600_000,
    }
    part = {"type": "struct", "name": "io.debezium.connector.common.TransactionMetadataValue", "optional": False}
    value = {"schema": {**part, "fields": [text("status"), text("id")]}, "payload": payload}
    return f"{prefix}.transaction", None, json.dumps(value, separators=(",", ":")).encode()


def send(properties: KafkaProperties, *records: Record) -> None:
    """Produce records, in order and in one transaction; each key has its partition, as in a real topic."""
    if not records:
        return
    producer = properties.producer(ErrorNotes(), transactional_id="the-source")
    producer.init_transactions(30)
    producer.begin_transaction()
    topics = LogTopics(properties)
    known = {topic: topics.find_topic(topic) for topic in {each[0] for each in records}}
    counts = {topic: 1 if found is None else found.bucket_count for topic, found in known.items()}
    for topic, key, value, *headers in records:
        partition = zlib.crc32(key or b"") % counts[topic]
        producer.produce(
            topic, value, key, partition=partition, headers=[pair for each in headers for pair in each.items()]
        )
    producer.commit_transaction(30)
