"""Spark's part of a streaming query, played in one process: offsets through JSON, readers through pickle."""

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows

from engine import Table
from engine.spark.data_source import FluvialDataSource
from engine.stream.reader import HybridStreamReader
from tests.support.clients import delete_records
from tests.support.option_keys import dotted
from tests.support.rows import id_rows

Rows = list[dict[str, Any]]


class Query:
    """A query on one table, with its checkpoint; ``restarted`` is what a new process finds."""

    def __init__(self, warehouse: str | Path, table: str, *, with_kinds: bool = True, **options: str) -> None:
        kinds = {"read.changelog": "true"} if with_kinds else {}
        self.options = {"warehouse": str(warehouse), "table": table, **kinds, **dotted(options)}
        self.planned: list[str] = []  # ends of batches, as in the directory "offsets"
        self.committed = 0  # batches, as in the directory "commits"
        self.start()

    def start(self) -> None:
        """A new process: only the checkpoint is left of the old one."""
        source = FluvialDataSource(dict(self.options))
        self.reader: HybridStreamReader = source.streamReader(source.schema())
        self.first = json.dumps(self.reader.initialOffset())

    @property
    def position(self) -> dict[str, Any]:
        """The end of the last planned batch."""
        return dict(json.loads(self.planned[-1] if self.planned else self.first))

    def plan(self) -> bool:
        """Plan the next batch; False when there is nothing to read."""
        if len(self.planned) > self.committed:
            return True  # of a run that died
        start = json.loads(self.planned[-1] if self.planned else self.first)
        limit = self.reader.getDefaultReadLimit()
        assert isinstance(limit, ReadMaxRows)
        end = self.reader.latestOffset(start, limit)
        if end == start:
            return False
        self.planned.append(json.dumps(end))
        return True

    def read(self) -> Rows:
        """The rows of the planned batch, parts one after the other."""
        start = self.planned[-2] if len(self.planned) > 1 else self.first
        found: Rows = []
        for part in self.reader.partitions(json.loads(start), json.loads(self.planned[-1])):
            task_reader, task_part = pickle.loads(pickle.dumps((self.reader, part)))
            for batch in task_reader.read(task_part):
                assert batch.num_rows > 0
                found += batch.to_pylist()
        return found

    def commit(self) -> None:
        """The batch is processed."""
        self.committed = len(self.planned)
        self.reader.commit(json.loads(self.planned[-1]))

    def batch(self) -> Rows | None:
        """One micro-batch; None when there was nothing."""
        if not self.plan():
            return None
        found = self.read()
        self.commit()
        return found

    def available(self, most: int = 10_000) -> Rows:
        """All micro-batches until there is nothing left."""
        found: Rows = []
        for _ in range(most):
            rows = self.batch()
            if rows is None:
                return found
            found += rows
        raise AssertionError("the stream does not get to the end")


def fold(changes: Iterable[Mapping[str, Any]], keys: Sequence[str] = ("id",)) -> dict[tuple[Any, ...], dict[str, Any]]:
    """What a consumer that keeps the last row of each key has."""
    state: dict[tuple[Any, ...], dict[str, Any]] = {}
    for change in changes:
        row = {name: value for name, value in change.items() if not name.startswith("_")}
        key = tuple(row[name] for name in keys)
        if change["_row_kind"] in ("+I", "+U"):
            state[key] = row
        else:
            state.pop(key, None)
    return state


def content(table: Table, keys: Sequence[str] = ("id",), snapshot_id: int | None = None) -> dict[Any, dict[str, Any]]:
    """The rows of a snapshot by key."""
    found: pa.Table = table.files.read(snapshot_id=snapshot_id).to_arrow()
    return {tuple(row[name] for name in keys): row for row in found.to_pylist()}


def as_foreign(table: Table, **written: object) -> None:
    """Make the newest snapshot one of another engine, without log offsets and our properties, but with these fields."""
    latest = table.latest_snapshot()
    assert latest is not None
    path = Path(table.store.paths.snapshot(latest.id))
    body = json.loads(path.read_text())
    body.pop("logOffsets", None)
    body.pop("properties", None)
    path.write_text(json.dumps(body | written))


def rows(ids: Sequence[int], v: str | None = "x", kind: str = "+I") -> pa.Table:
    """Changes of a table of an ``id`` and a text ``v``."""
    return id_rows(ids, v).append_column("_row_kind", pa.array([kind] * len(ids)))


def query(table: Table, **options: Any) -> Query:
    """A stream of a table."""
    return Query(Path(table.store.paths.root).parents[1], table.name, **options)


def ids(found: Rows | None) -> list[int]:
    """The ids of rows, sorted."""
    return sorted(row["id"] for row in found or [])


def expire(table: Table, *snapshot_ids: int) -> None:
    """Snapshots are gone as after expiry; what only they need is left behind."""
    for snapshot_id in snapshot_ids:
        Path(table.store.paths.snapshot(snapshot_id)).unlink()
    table.store.snapshots.write_earliest_hint(min(table.store.snapshots.ids(), default=1))


def tag(table: Table, name: str, snapshot_id: int) -> None:
    """A tag as every engine makes it: a copy of the snapshot."""
    path = Path(table.store.paths.tag(name))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(Path(table.store.paths.snapshot(snapshot_id)).read_bytes())


def forget_log(table: Table, bucket: int = 0, before: int = -1) -> None:
    """Retention removes the records of a bucket before an offset; -1: all."""
    log = table.log
    assert log is not None
    delete_records(log.properties.by_name["bootstrap.servers"], log.topic, {bucket: before})
