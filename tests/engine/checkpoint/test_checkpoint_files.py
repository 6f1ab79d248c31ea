"""Which files of a checkpoint are those of a batch, and a checkpoint made of them; no Spark."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.checkpoint.checkpoint_files import checkpoint_root, files_as_of, needed_files
from engine.checkpoint.saved_checkpoints import (
    CheckpointPlace,
    chosen_checkpoint,
    keep_checkpoint,
    restore_saved_checkpoint,
    rewind_saved_checkpoint,
)
from engine.write.housekeeping import Housekeeping
from filestore.refs.savepoint_files import list_savepoints
from filestore.tag.savepoints import create_savepoint, delete_savepoint
from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError
from tests.support.rows import arrow_rows
from tests.support.tables import commit_batch

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
QUERY = "aaaaaaaa-0000-4000-8000-000000000001"


def needed(names: Sequence[str], batch_id: int, *sources: Any) -> list[str]:
    return needed_files(names, batch_id=batch_id, sources=sources)


def test_what_came_after_the_batch_is_left_out() -> None:
    """Issue 6 item 4."""
    names = [f"{log}/{number}" for log in ("offsets", "commits") for number in range(9, 13)]
    assert needed(names, 10) == ["commits/10", "commits/9", "offsets/10", "offsets/9"]
    assert needed(["metadata", "somewhere/else", "offsets/0", "commits/0"], 0) == ["commits/0", "offsets/0"]


def test_state_is_that_of_the_version_behind_the_batch() -> None:
    """Batch 10 reads version 10 and makes version 11. Files without a version belong to all."""
    kept = [
        "state/0/0/11.delta", "state/0/0/9.snapshot", "state/0/1/11_8e2d.zip", "state/0/1/SSTs/000009-77.sst",
        "state/0/1/_metadata/schema", "state/0/_metadata/metadata",
    ]  # fmt: skip
    later = ["state/0/0/12.delta", "state/0/1/12.zip", "state/0/1/13_8e2d.changelog", "state/0/0/12.snapshot"]
    assert needed([*kept, *later], 10) == sorted(kept)


def test_the_log_of_a_file_source_ends_with_the_batch() -> None:
    """Files that were found later are found again; without an earlier entry the later compaction has to do."""
    log = [f"sources/0/{number}" for number in (0, 1, 2, 3)]
    assert needed(log, 7, {"logOffset": 2}) == log[:3]
    compacted = ["sources/0/9.compact", "sources/0/10", "sources/0/11"]
    assert needed(compacted, 7, {"logOffset": 10}) == ["sources/0/10", "sources/0/9.compact"]
    assert needed([*log, *compacted], 7, {"logOffset": 2}) == log[:3]
    assert needed(compacted, 7, {"logOffset": 8}) == ["sources/0/9.compact"]
    assert needed(["sources/0/0", "sources/1/0"], 7, {"topic": {"0": 9}}, 12) == ["sources/0/0", "sources/1/0"]


def new_checkpoint(root: Path, *, committed: int, planned: int, stateful: bool = False) -> Path:
    """Of a query that reads a topic."""
    for directory in ("offsets", "commits", *(["state/0/0"] if stateful else [])):
        (root / directory).mkdir(parents=True)
    (root / "metadata").write_text(json.dumps({"id": QUERY}))
    for batch_id in range(planned + 1):
        facts = json.dumps({"batchWatermarkMs": 40 + batch_id})
        (root / "offsets" / str(batch_id)).write_text(f"v1\n{facts}\n" + json.dumps({"t": {"0": 10 * batch_id}}))
        (root / "offsets" / f".{batch_id}.crc").write_text("crc")
        if stateful:
            (root / f"state/0/0/{batch_id + 1}.delta").write_text("delta")
    for batch_id in range(committed + 1):
        (root / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return root


def test_a_batch_that_the_table_has_counts_as_done(tmp_path: Path) -> None:
    """Spark notes a batch after the table has it; the query may have died between."""
    root = new_checkpoint(tmp_path / "c", committed=1, planned=2)
    found = files_as_of(str(root), 2, sleep=pytest.fail)
    assert found.sources == ({"t": {"0": 20}},)
    assert found.files["commits/2"] == b'v1\n{"nextBatchWatermarkMs":42}'
    assert sorted(found.files) == ["commits/1", "commits/2", "offsets/1", "offsets/2"]


def test_state_that_may_be_incomplete_is_waited_for_and_refused(tmp_path: Path) -> None:
    root = new_checkpoint(tmp_path / "c", committed=1, planned=2, stateful=True)
    waits: list[float] = []
    with pytest.raises(UnavailableError, match=r"has not recorded the batch.*batch_id=2 fix=let the query continue"):
        files_as_of(str(root), 2, sleep=waits.append, wait_ms=300)
    assert waits == [0.1, 0.1, 0.1]

    def noted(_: float) -> None:
        (root / "commits/2").write_text('v1\n{"nextBatchWatermarkMs":7}')

    assert files_as_of(str(root), 2, sleep=noted).files["commits/2"] == root / "commits/2"


def test_what_cannot_be_kept_is_said(tmp_path: Path) -> None:
    root = new_checkpoint(tmp_path / "c", committed=2, planned=2, stateful=True)
    for batch_id, missing in ((3, 3), (1, 0)):
        (root / "offsets/0").unlink(missing_ok=True)
        with pytest.raises(CorruptDataError, match=f"does not have the batch any more, or not yet.*batch_id={missing}"):
            files_as_of(str(root), batch_id, sleep=pytest.fail)
    (root / "state/0/_metadata").mkdir()
    (root / "state/0/_metadata/metadata").write_text(f"file:{root}/state/0/schema")
    with pytest.raises(InvalidInputError, match="state names its own directory"):
        files_as_of(str(root), 2, sleep=pytest.fail)
    with pytest.raises(InvalidInputError, match="only a checkpoint on this machine"):
        checkpoint_root("s3://bucket/c")
    with pytest.raises(InvalidInputError, match="no checkpoint of a streaming query"):
        CheckpointPlace.parse(str(tmp_path))
    assert checkpoint_root("file:///tmp/a%20b") == checkpoint_root("file:/tmp/a b") == Path("/tmp/a b")
    assert CheckpointPlace.parse("me=/c") == CheckpointPlace(location="/c", commit_user="me")


# ---- with a savepoint


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with batches 0 to 2 of the query."""
    made = Catalog(str(tmp_path / "w")).create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for batch_id in range(3):
        commit_batch(made.files, QUERY, batch_id, arrow_rows(SCHEMA, (1, batch_id)))
    return made


def test_a_checkpoint_comes_back_with_a_new_query(table: Table, tmp_path: Path) -> None:
    """Issue 6 item 4: as of the newest batch that the saved snapshot contains; its end frees the copies."""
    store, root = table.store, new_checkpoint(tmp_path / "c", committed=4, planned=5)
    place = CheckpointPlace.parse(str(root))
    saved = create_savepoint(store, keep_checkpoints=lambda snapshot: [keep_checkpoint(store, snapshot, place)])
    kept = chosen_checkpoint(saved, None)
    assert (kept.batch_id, kept.query_id, kept.sources) == (2, QUERY, ({"t": {"0": 20}},))
    (tmp_path / "new").mkdir()
    query_id = restore_saved_checkpoint(store, kept, str(tmp_path / "new"))
    files = {path.relative_to(tmp_path / "new").as_posix() for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert files == {"metadata", "offsets/1", "offsets/2", "commits/1", "commits/2"}
    assert json.loads((tmp_path / "new/metadata").read_text()) == {"id": query_id} != {"id": QUERY}
    assert (tmp_path / "new/offsets/2").read_text() == (root / "offsets/2").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []
    assert len(delete_savepoint(store, 1).metadata & set(saved.own_paths(store.paths))) == 4
    assert store.io.list_names(store.paths.savepoint_dir) == ["LATEST"]


@pytest.mark.parametrize(("gone", "is_fatal"), [("state/0/0/1.delta", False), ("offsets/1", True)])
def test_a_checkpoint_that_changes_meanwhile(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str, is_fatal: bool
) -> None:
    """A running query deletes old versions of its state; of the rest, a half is not kept."""
    root = new_checkpoint(tmp_path / "c", committed=2, planned=2, stateful=True)
    found = files_as_of(str(root), 2, sleep=pytest.fail)
    (root / gone).unlink()
    monkeypatch.setattr("engine.checkpoint.saved_checkpoints.files_as_of", lambda *_, **__: found)
    latest = table.latest_snapshot()
    assert latest is not None
    if is_fatal:
        with pytest.raises(UnavailableError, match=f"the checkpoint changed while it was copied.*file={gone}"):
            keep_checkpoint(table.store, latest, CheckpointPlace.parse(str(root)))
        with pytest.raises(UnavailableError, match="the checkpoint changed while it was copied"):
            rewind_saved_checkpoint(table.store, found, str(tmp_path / "new"))
        assert not (tmp_path / "new").exists()
        return
    kept = keep_checkpoint(table.store, latest, CheckpointPlace.parse(str(root)))
    assert set(found.files) - set(kept.files) == {gone}
    rewind_saved_checkpoint(table.store, found, str(tmp_path / "new"))
    assert not (tmp_path / "new" / gone).exists()
    assert (tmp_path / "new/state/0/0/3.delta").exists()


def test_a_checkpoint_is_chosen_by_what_is_known_of_it(table: Table, tmp_path: Path) -> None:
    store = table.store
    commit_batch(table.files, "other", 7, arrow_rows(SCHEMA, (1, 7)))
    first = CheckpointPlace.parse(str(new_checkpoint(tmp_path / "c", committed=4, planned=5)))
    second = CheckpointPlace.parse(f"other={new_checkpoint(tmp_path / 'd', committed=9, planned=9)}")
    saved = create_savepoint(
        store, keep_checkpoints=lambda snapshot: [keep_checkpoint(store, snapshot, each) for each in (first, second)]
    )
    assert chosen_checkpoint(saved, "other").batch_id == 7
    assert chosen_checkpoint(saved, str(tmp_path / "c")).batch_id == 2
    for query in (None, "nobody"):
        with pytest.raises(InvalidInputError, match=r"keeps (several|no such) checkpoint"):
            chosen_checkpoint(saved, query)
    with pytest.raises(InvalidInputError, match="the query has written nothing into the table"):
        keep_checkpoint(store, saved.snapshot, CheckpointPlace(location=str(tmp_path / "c"), commit_user="nobody"))


def test_a_stream_saves_before_a_batch(table: Table, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SP-18, savepoint.create-interval: a savepoint that cannot have its checkpoint is made without it."""
    place = CheckpointPlace.parse(str(new_checkpoint(tmp_path / "c", committed=2, planned=2)))
    Housekeeping(table.store, checkpoint=place).before_batch()
    assert list_savepoints(table.store) == []  # nobody asked for them
    store = table.store.with_options({"savepoint.create-interval": "1 h"})
    keeping = Housekeeping(store, checkpoint=place)
    keeping.before_batch()
    keeping.before_batch()  # it is not time yet
    Housekeeping(store, checkpoint=place).before_batch()  # nor for another process
    [saved] = list_savepoints(store)
    assert [each.batch_id for each in saved.checkpoints] == [2]
    commit_batch(table.files, QUERY, 3, arrow_rows(SCHEMA, (1, 3)))
    with caplog.at_level("WARNING", logger="fluvial"):
        Housekeeping(table.store.with_options({"savepoint.create-interval": "1 ms"}), checkpoint=place).before_batch()
    assert [each.checkpoints for each in list_savepoints(store)] == [saved.checkpoints, ()]
    assert "savepoint without a checkpoint" in caplog.text
