"""Cuts of tables on disk: of one query's targets, of a pipeline, of a time; back to them, and on from there."""

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog, Table, procedures
from engine.broker.broker import Broker
from lsm.errors import InvalidInputError
from tests.support.streams import Query
from tests.support.tables import commit_batch

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def cut_table(catalog: Catalog, name: str, **options: str) -> Table:
    return catalog.create_table(name, SCHEMA, primary_key=["id"], options={"bucket": "1", **options})


def commit_ids(table: Table, user: str, batch_id: int, *ids: int) -> None:
    """What a sink commits for a micro-batch."""
    commit_batch(table.files, user, batch_id, pa.table({"id": ids, "v": [batch_id] * len(ids)}, schema=SCHEMA))


def ids(table: Table) -> list[int]:
    return sorted(table.files.read().to_arrow().column("id").to_pylist())


def cut(catalog: Catalog, tables: str, tag: str, **more: str) -> dict[str, int]:
    rows = procedures.create_consistent_tag(catalog, tables, tag, **more).to_pylist()  # type: ignore[arg-type]
    return {row["table"]: row["tagged_snapshot_id"] for row in rows}


class FakeCheckpoint:
    """What Spark keeps of a query that reads one table of ours."""

    def __init__(self, root: Path) -> None:
        self.location = str(root)
        self.query_id = str(uuid.uuid4())
        self._root = root
        for name in ("offsets", "commits"):
            (root / name).mkdir(parents=True)
        (root / "metadata").write_text(json.dumps({"id": self.query_id}))

    def note(self, batch_id: int, position: str) -> None:
        (self._root / f"offsets/{batch_id}").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{position}')
        (self._root / f"commits/{batch_id}").write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_targets_of_one_query_are_cut_behind_one_batch(catalog: Catalog) -> None:
    """Issue 6 item 6, Decision 52: batch 2 has reached only one of them."""
    a, b = cut_table(catalog, "db.a"), cut_table(catalog, "db.b")
    for batch_id in range(3):
        commit_ids(a, "q", batch_id, batch_id)
        if batch_id < 2:
            commit_ids(b, "q", batch_id, batch_id)
    a.compact(full=True)
    shown = procedures.create_consistent_tag(catalog, "db.a,db.b", "eod", dry_run=True).to_pylist()
    assert a.store.snapshots.tag_names() == []
    assert procedures.create_consistent_tag(catalog, "db.a,db.b", "eod").to_pylist() == shown
    assert [(row["tagged_snapshot_id"], row["commit_user"], row["batch_id"]) for row in shown] == [
        (2, "q", 1), (2, "q", 1),
    ]  # fmt: skip
    [dry, _] = procedures.rollback_to_cut(catalog, "db.b", "eod", dry_run=True).to_pylist()
    assert (dry["table"], dry["partitions"], dry["current_snapshot_id"]) == ("db.a", 1, 4)
    assert ids(a) == [0, 1, 2]
    rows = procedures.rollback_to_cut(catalog, "db.b", "eod").to_pylist()
    assert [(row["table"], row["partitions"], row["current_snapshot_id"]) for row in rows] == [
        ("db.a", 1, 5), ("db.b", 0, 2),
    ]  # fmt: skip
    assert ids(a) == ids(b) == [0, 1]
    again = procedures.rollback_to_cut(catalog, "db.a", "eod").to_pylist()
    assert [row["partitions"] for row in again] == [0, 0]


def test_without_a_common_query_a_time_is_needed(catalog: Catalog) -> None:
    """Issue 6 item 6: the newest snapshot not after it in each; a batch is not torn by it."""
    a, b, c = (cut_table(catalog, f"db.{name}") for name in "abc")
    commit_ids(a, "q", 0, 1)
    commit_ids(b, "q", 0, 1)
    c.write(pa.table({"id": [1], "v": [1]}, schema=SCHEMA))
    commit_ids(a, "q", 1, 2)
    latest = a.latest_snapshot()
    assert latest is not None
    commit_ids(b, "q", 1, 2)
    c.write(pa.table({"id": [2], "v": [1]}, schema=SCHEMA))
    with pytest.raises(InvalidInputError, match=r"no query is known to connect these tables: groups=db\.c; db\.a"):
        cut(catalog, "db.a,db.b,db.c", "eod")
    at = str(latest.time_ms)
    assert cut(catalog, "db.a,db.b,db.c", "eod", timestamp=at) == {"db.a": 1, "db.b": 1, "db.c": 1}
    with pytest.raises(InvalidInputError, match=r"the table has no such snapshot: table=db\.a timestamp=2001"):
        cut(catalog, "db.a", "old", timestamp="2001-01-01 00:00:00")


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["files", pytest.param("broker", id="log")])
def test_a_pipeline_is_cut_where_its_query_stood(
    catalog: Catalog, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """Issue 6 item 6: one -> query -> two; the last batch of the query ended within a snapshot of the first table."""
    brokers = {}
    if kind == "broker":
        broker: Broker = request.getfixturevalue(kind)
        brokers = {"log.kafka.bootstrap.servers": broker.bootstrap_servers}
    name = f"db.{tmp_path.name.replace('-', '_')}"
    one, two = cut_table(catalog, name, **brokers), cut_table(catalog, "db.two")
    checkpoint = FakeCheckpoint(tmp_path / "checkpoint")
    reader = Query(catalog.warehouse, name, read_stream_maxRowsPerTrigger="3")
    batch_id = 0
    stood: list[tuple[int, int | None]] = []

    def run() -> None:
        nonlocal batch_id
        while (rows := reader.batch()) is not None:
            checkpoint.note(batch_id, reader.planned[-1])
            commit_ids(two, checkpoint.query_id, batch_id, *sorted({row["id"] for row in rows}))
            stood.append((batch_id, one.store.snapshots.latest_id()))
            batch_id += 1

    one.write(pa.table({"id": [1, 2], "v": [0, 0]}, schema=SCHEMA))
    run()
    one.write(pa.table({"id": [3, 4], "v": [0, 0]}, schema=SCHEMA))
    run()
    one.write(pa.table({"id": list(range(10, 20)), "v": [0] * 10}, schema=SCHEMA))
    whole = len(stood)
    rows = reader.batch() if kind == "broker" else None  # three of the ten; files are read as a whole
    if kind == "broker":
        assert rows is not None
        assert len(rows) < 10
        checkpoint.note(batch_id, reader.planned[-1])
        commit_ids(two, checkpoint.query_id, batch_id, *(row["id"] for row in rows))
    with pytest.raises(InvalidInputError, match="no query is known to connect these tables"):
        cut(catalog, f"{name},db.two", "eod")
    found = cut(catalog, f"{name},db.two", "eod", checkpoints=checkpoint.location)
    assert found == {name: 2, "db.two": whole}
    assert cut(catalog, f"{name},db.two", "named", checkpoints=f"{name}={checkpoint.location}") == found
    procedures.rollback_to_cut(catalog, name, "eod")
    assert ids(one) == ids(two) == [1, 2, 3, 4]
    to = str(tmp_path / "rewound")
    [row] = procedures.rewind_checkpoint(two, "eod", checkpoint.location, to).to_pylist()
    assert (row["batch_id"], row["old_query_id"]) == (whole - 1, checkpoint.query_id)
    assert sorted(path.name for path in (tmp_path / "rewound/offsets").iterdir()) == [str(whole - 2), str(whole - 1)]
    assert row["query_id"] != row["old_query_id"]
    assert json.loads((tmp_path / "rewound/metadata").read_text()) == {"id": row["query_id"]}


def test_checkpoints_that_do_not_fit_are_named(catalog: Catalog, tmp_path: Path) -> None:
    a, b = cut_table(catalog, "db.a"), cut_table(catalog, "db.b")
    commit_ids(a, "q", 0, 1)
    commit_ids(b, "q", 0, 1)
    checkpoint = FakeCheckpoint(tmp_path / "checkpoint")
    checkpoint.note(0, '{"logOffset":1}')
    with pytest.raises(InvalidInputError, match="the query has written none of the tables"):
        cut(catalog, "db.a,db.b", "eod", checkpoints=checkpoint.location)
    commit_ids(b, checkpoint.query_id, 0, 2)
    with pytest.raises(InvalidInputError, match=r"a table that a query reads is not one of the cut: table=db\.c"):
        cut(catalog, "db.a,db.b", "eod", checkpoints=f"db.c={checkpoint.location}")
    assert cut(catalog, "db.a,db.b", "eod", checkpoints=checkpoint.location) == {"db.a": 1, "db.b": 2}
    with pytest.raises(InvalidInputError, match="a table is named twice"):
        cut(catalog, "db.a,db.a", "eod")
    with pytest.raises(InvalidInputError, match="the tag contains no batch of the query"):
        procedures.rewind_checkpoint(a, "eod", FakeCheckpoint(tmp_path / "other").location, str(tmp_path / "new"))
