"""The report of a batch: the records, snapshot and state of each table. ``fluvial cdc status`` and metrics show it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.cdc.state import Parked
from engine.kafka.offsets import TopicPosition, from_json, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """One table after a batch."""

    table: str
    snapshot_id: int | None = None
    schema_id: int | None = None
    records: int = 0  # since the job began
    newest_ms: int | None = None  # time of the source's newest change
    newest_lsn: int | None = None  # its place in the log of PostgreSQL
    bad: int = 0  # since the job began
    broken: Mapping[str, int] = field(default_factory=dict)  # likewise, rows that broke a rule, by rule
    offsets: Mapping[TopicPosition, int] = field(default_factory=dict)
    parked: str | None = None  # why
    parked_since_ms: int | None = None

    @classmethod
    def parked_table(cls, table: str, parked: Parked) -> "TableReport":
        """A table that waits."""
        return cls(table=table, parked=parked.reason, parked_since_ms=parked.since_ms, offsets=parked.offsets)

    def after(self, before: "TableReport | None") -> "TableReport":
        """The report after this batch: its values, with the counts of earlier batches added."""
        if before is None:
            return self
        return replace(
            self,
            snapshot_id=self.snapshot_id or before.snapshot_id,
            schema_id=before.schema_id if self.schema_id is None else self.schema_id,
            records=self.records + before.records,
            bad=self.bad + before.bad,
            broken={
                name: self.broken.get(name, 0) + before.broken.get(name, 0)
                for name in sorted({*self.broken, *before.broken})
            },
            newest_ms=before.newest_ms if self.newest_ms is None else self.newest_ms,
            newest_lsn=before.newest_lsn if self.newest_lsn is None else self.newest_lsn,
            offsets={**before.offsets, **self.offsets},
        )

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        return {
            "table": self.table,
            "snapshot": self.snapshot_id,
            "schema": self.schema_id,
            "records": self.records,
            "newest_ms": self.newest_ms,
            "newest_lsn": self.newest_lsn,
            "bad": self.bad,
            "broken": dict(self.broken),
            "offsets": to_json(self.offsets, {}),
            "parked": self.parked,
            "parked_since_ms": self.parked_since_ms,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "TableReport":
        """The inverse of ``to_json``."""
        return cls(
            table=body["table"],
            snapshot_id=body["snapshot"],
            schema_id=body["schema"],
            records=body["records"],
            newest_ms=body["newest_ms"],
            newest_lsn=body.get("newest_lsn"),
            bad=body["bad"],
            broken=body.get("broken", {}),
            offsets=from_json(body["offsets"]),
            parked=body["parked"],
            parked_since_ms=body["parked_since_ms"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The report of a batch, or of all batches up to it."""

    batch_id: int
    time_ms: int
    tables: Mapping[str, TableReport]
    positions: Mapping[TopicPosition, int] = field(default_factory=dict)  # the next record of the job

    def after(self, before: "BatchReport | None") -> "BatchReport":
        """The report after this batch: its tables, with tables and counts of earlier batches added."""
        if before is None:
            return self
        own = {name: each.after(before.tables.get(name)) for name, each in self.tables.items()}
        tables = dict(sorted({**before.tables, **own}.items()))
        return replace(self, tables=tables, positions={**before.positions, **self.positions})

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        return {
            "batch": self.batch_id,
            "time_ms": self.time_ms,
            "tables": [each.to_json() for each in self.tables.values()],
            "positions": to_json(self.positions, {}),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any] | None) -> "BatchReport | None":
        """The inverse of ``to_json``; None: there is no file."""
        if body is None:
            return None
        found = [TableReport.from_json(each) for each in body["tables"]]
        return cls(
            batch_id=body["batch"],
            time_ms=body["time_ms"],
            tables={each.table: each for each in found},
            positions=from_json(body["positions"]),
        )
