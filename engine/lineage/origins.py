"""The origin of a commit's rows: the job, its barrier, and what it had read by then.

A commit stores it as a property of its snapshot. So it is known as soon as the rows are visible, and the lineage store
can be completed from snapshots when a process died between the two.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from engine.lineage.store.entities import LONGEST_NAME
from engine.request.writer_options import WriterOptions
from filestore.layout.branch_names import SEPARATOR
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError

PROPERTY: Final = "fluvial.lineage"
JOB_KEY: Final = WriterOptions.pipeline_name.key
FIRST_BATCH_BARRIER: Final = 1 << 62
"""Barriers of micro-batches are below, those of batch writes start here."""
_USER_BITS: Final = 20
_TIME_BITS: Final = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRead:
    """A table, and its oldest snapshot that contains everything that was read from it."""

    warehouse: str  # path or address
    table: str  # "database.table", or "database.table$branch_b"
    snapshot_id: int
    table_id: str = ""  # see ``table_id``; "": not known
    path: str = field(default="", compare=False)  # see ``own_path``
    is_newest: bool = field(default=False, compare=False)  # it was asked for as the newest, by no name, number or time
    is_whole: bool = field(default=True, compare=False)  # it has the rows that wait for a compaction

    @classmethod
    def of(
        cls, store: TableStore, snapshot: Snapshot | None, *, is_newest: bool = False, is_whole: bool = True
    ) -> "SourceRead | None":
        """A state of a table; None without a catalog or without a snapshot."""
        if store.catalog is None or snapshot is None:
            return None
        warehouse, name = store.catalog.warehouse, store.name
        return cls(
            warehouse=warehouse,
            table=name,
            snapshot_id=snapshot.id,
            table_id=store.table_id(),
            path=own_path(store),
            is_newest=is_newest,
            is_whole=is_whole,
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        body = {"warehouse": self.warehouse, "table": self.table, "snapshot": self.snapshot_id}
        return body | {key: text for key, text in (("id", self.table_id), ("path", self.path)) if text}

    @classmethod
    def from_json(cls, body: Any) -> "SourceRead":
        """The inverse of ``to_json``. Raises: KeyError, TypeError, ValueError for anything else."""
        return cls(
            warehouse=str(body["warehouse"]),
            table=str(body["table"]),
            snapshot_id=int(body["snapshot"]),
            table_id=str(body.get("id", "")),
            path=str(body.get("path", "")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOrigin:
    """The job and barrier that wrote some rows."""

    job: str
    barrier_id: int  # micro-batch of a stream; for a batch write, see ``batch_barrier``
    reads: tuple[SourceRead, ...] = ()  # each table once
    run: str = ""  # differs between runs of a job that count their barriers alike; "": the commit user

    def to_properties(self) -> dict[str, str]:
        """The snapshot property."""
        body = {"job": self.job, "barrier": self.barrier_id, "reads": [each.to_json() for each in self.reads]}
        if self.run:
            body["run"] = self.run
        return {PROPERTY: json.dumps(body, separators=(",", ":"))}

    @classmethod
    def of(cls, snapshot: Snapshot) -> "CommitOrigin | None":
        """The origin in a snapshot; None when it has none. Raises: CorruptDataError."""
        text = snapshot.properties.get(PROPERTY)
        if text is None:
            return None
        try:
            body = json.loads(text)
            reads = tuple(SourceRead.from_json(each) for each in body["reads"])
            run = str(body.get("run") or snapshot.commit_user)[:LONGEST_NAME]
            return cls(job=str(body["job"]), barrier_id=int(body["barrier"]), reads=reads, run=run)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptDataError(
                f"lineage of a snapshot cannot be read: snapshot={snapshot.id} {PROPERTY}={text} reason={error!r}"
            ) from error


def batch_barrier(now_ms: int, commit_user: str) -> int:
    """The barrier of a batch write, the only one of its commit user.

    Later writes have higher ones; the commit user distinguishes writes of the same millisecond.

    Returns:
        >= ``FIRST_BATCH_BARRIER``, < 2**63.
    """
    mixed = int.from_bytes(blake2b(commit_user.encode(), digest_size=8).digest(), "big")
    time_ms = min(max(now_ms, 0), (1 << _TIME_BITS) - 1)
    return FIRST_BATCH_BARRIER | time_ms << _USER_BITS | mixed & ((1 << _USER_BITS) - 1)


def batch_time_ms(barrier_id: int) -> int:
    """When the batch write with this barrier began."""
    return (barrier_id - FIRST_BATCH_BARRIER) >> _USER_BITS


def newest_reads(reads: Iterable[SourceRead]) -> tuple[SourceRead, ...]:
    """Each table once, with its newest snapshot; snapshot 0 means that nothing was read."""
    found: dict[tuple[str, str], SourceRead] = {}
    for each in reads:
        key = (each.warehouse, each.table)
        if each.snapshot_id > 0 and (key not in found or found[key].snapshot_id < each.snapshot_id):
            found[key] = each
    return tuple(found[key] for key in sorted(found))


def start_of_run(begin: SourceRead | None, first: SourceRead | None) -> SourceRead | None:
    """Where a run begins in a table: what was read before it, else what its first batch reads."""
    return begin if begin is not None and begin.snapshot_id > 0 else first


def reads_of_offsets(offsets: Iterable[Any]) -> tuple[SourceRead, ...]:
    """What a micro-batch had read, from the end offsets of its sources; sources other than Fluvial's are ignored.

    Args:
        offsets: JSON values; None for a source without an offset.
    """
    return newest_reads(_reads(offsets))


def begins_of_offsets(offsets: Iterable[Any]) -> tuple[SourceRead, ...]:
    """Where sources begin whose first batch it is, from the end offsets of a micro-batch, as ``reads_of_offsets``."""
    return newest_reads(_reads(each.get("begin") for each in offsets if isinstance(each, Mapping)))


def _reads(offsets: Iterable[Any]) -> Iterator[SourceRead]:
    for each in offsets:
        body = each.get("read") if isinstance(each, Mapping) else None
        if isinstance(body, Mapping) and {"warehouse", "table", "snapshot"} <= body.keys():
            yield SourceRead.from_json(body)


def own_path(store: TableStore) -> str:
    """The directory of a table that lies elsewhere than its catalog puts tables; "": it lies there."""
    root, base = store.paths.root, store.name.partition(SEPARATOR)[0]
    return "" if store.catalog is None or root == default_path(store.catalog.warehouse, base) else root


def default_path(warehouse: str, table: str) -> str:
    """Where a catalog puts a table, ``database.table``."""
    database, _, name = table.partition(".")
    return f"{warehouse.rstrip('/')}/{database}.db/{name}"
