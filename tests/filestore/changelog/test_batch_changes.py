"""The changes that a batch makes, reported before it is visible: against a consumer that believes every word."""

import os
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.write.batch_part import batch_changes
from filestore.changelog.snapshot_changes import plan_diff, read_changes
from filestore.commit.committable import Committable
from filestore.commit.table_commit import TableCommit
from filestore.index.deletion_vectors import read_deletion_vectors
from filestore.manifest.commit_message import CommitMessage
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.scan.snapshot_files import deletion_indexes
from filestore.table import FileTable
from tests.support.changelogs import ENGINES, SCHEMA, Change, State, apply, drops_equal, writes_and_compactions
from tests.support.faults import FaultyFileIO, MemoryFileIO
from tests.support.rows import change_tuples
from tests.support.tables import content, key_table, memory_catalog, messages_of, reopened, rows

EXAMPLES = int(os.environ.get("FLUVIAL_MODEL_EXAMPLES", "4"))


def changes_ahead(table: FileTable, messages: list[CommitMessage]) -> list[Change]:
    """The changes of a batch on top of the newest snapshot."""
    live = LiveFiles.latest(table.store)
    found: list[Change] = []
    for message in messages:
        key = BucketKey(message.partition, message.bucket)
        vectors = read_deletion_vectors(table.store, deletion_indexes(table.store, live.snapshot).get(key, ()))
        found += change_tuples(batch_changes(table.store, message, live.files(key), deleted=vectors))
    return found


def commit_changes(table: FileTable, data: pa.Table, kinds: list[str] | None = None) -> list[Change]:
    """Commit a batch, and return the changes that it was found to make before."""
    messages = messages_of(table, data, kinds)
    found = changes_ahead(table, messages)
    base = table.store.snapshots.latest_ref()
    user = table.store.names.uuid()
    TableCommit(table.store, user).commit(Committable(identifier=1, messages=messages, base=base))
    return found


def test_every_change_says_what_was_there() -> None:
    """FL-132, FL-135: literals; the files of the batch are merged, the log gets one change of a key at most."""
    table = key_table(changelog_producer="lookup")
    assert commit_changes(table, rows((2, 2), (1, 1))) == [("+I", 1, 1), ("+I", 2, 2)]
    found = commit_changes(
        table,
        rows((1, 10), (1, 11), (2, None), (3, 3), (3, None), (4, 4), (5, None), (2, 22)),
        ["+U", "-U", "-D", "+I", "-D", "+I", "-D", "+I"],
    )
    assert found == [("-D", 1, 1), ("-U", 2, 2), ("+U", 2, 22), ("+I", 4, 4)]
    assert content(table) == {2: 22, 4: 4}


@pytest.mark.parametrize(("option", "expected"), [("false", [("-U", 1, 1), ("+U", 1, 1)]), ("true", [])])
def test_an_update_that_changes_nothing_is_left_out_on_request(option: str, expected: list[Change]) -> None:
    """Option changelog-producer.row-deduplicate, as in Paimon."""
    table = key_table(changelog_producer="lookup", **{"changelog-producer.row-deduplicate": option})
    commit_changes(table, rows((1, 1), (2, 2)))
    assert commit_changes(table, rows((1, 1))) == expected


def test_only_files_are_opened_that_may_hold_a_key() -> None:
    """Cost grows with the keys: other files of the bucket are not read."""
    disk = MemoryFileIO()
    table = key_table(disk, changelog_producer="lookup", **{"write-only": "true"})
    for first in (0, 100, 200):
        table.write(rows(*((n, n) for n in range(first, first + 50, 2))))
    messages = messages_of(table, rows((3, 3), (104, 4), (150, 5)))
    live = LiveFiles.latest(table.store)
    [key] = live.buckets()
    files = sorted(live.files(key), key=lambda file: file.min_sequence_number)
    watched = FaultyFileIO(disk)
    [message] = messages
    found = [kinds.to_pylist() for _, kinds in batch_changes(reopened(table, watched).store, message, files)]
    assert found == [[0, 1, 2, 0]]
    opened = [line.rpartition("/")[2] for line in watched.log if line.startswith("open_input")]
    new, low, middle = message.new_files[0].file_name, files[0].file_name, files[1].file_name
    assert opened == [new, low, middle, middle], "keys first, rows only where one of them is"


deeds = st.lists(
    st.one_of(
        writes_and_compactions,
    ),
    min_size=2,
    max_size=12,
)


def state_of(table: FileTable) -> State:
    """Every row of the newest snapshot, whichever level it is in."""
    found: State = {}
    latest = table.store.snapshots.latest()
    for split in plan_diff(table.store, None, latest) if latest else ():
        for batch, _ in read_changes(table, split):
            found |= {(row["p"], row["id"]): tuple(row.values()) for row in batch.to_pylist()}
    return found


@pytest.mark.sampled(3)
@pytest.mark.sweep
@pytest.mark.parametrize("engine", [*ENGINES, "deletion-vectors"])
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(history=deeds, buckets=st.integers(1, 2), partitioned=st.booleans(), budget=st.sampled_from([None, 1]))
def test_the_changes_of_all_batches_folded_are_the_table(
    engine: str, history: list[tuple[str, Any]], buckets: int, partitioned: bool, budget: int | None
) -> None:
    """FL-132, FL-135: after each batch, for every merge engine; each -U and -D is the row that was reported before.

    Batches of several files, with keys that come, change, go and come again; compactions in between change nothing.
    """
    options, takes_deletes = {**ENGINES, "deletion-vectors": ({"deletion-vectors.enabled": "true"}, True)}[engine]
    table = memory_catalog().create_table(
        "db.t", SCHEMA, primary_key=["p", "id"], partition_by=["p"] if partitioned else [],
        options={"bucket": str(buckets), "num-sorted-run.compaction-trigger": "3", "target-file-row-num": "3",
                 "compaction.max-size-amplification-percent": "900", "changelog-producer": "lookup"} | dict(options),
    )  # fmt: skip
    state: State = {}
    for number, (what, data) in enumerate(history):
        if what == "compact":
            table.compact(full=data)
            continue
        made = data if takes_deletes else [(row, "+I") for row, _ in data]
        writer = table.new_write(
            max_sequence_numbers=LiveFiles.latest(table.store).max_sequence_numbers(), budget_bytes=budget
        )
        for row, kind in made:
            writer.write(pa.Table.from_pylist([row], schema=SCHEMA), pa.array([kind]))
        messages = writer.prepare_commit()
        found = changes_ahead(table, messages)
        base = table.store.snapshots.latest_ref()
        TableCommit(table.store, "q").commit(Committable(identifier=number, messages=messages, base=base))
        apply(state, found, drops_equal=drops_equal(engine))
        assert state == state_of(table)
