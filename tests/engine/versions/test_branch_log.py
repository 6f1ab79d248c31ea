"""The log of a branch is its own: streams of main and of a branch never see each other's rows."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.procedures import delete_branch, rename_branch, replace_main_branch
from engine.versions.branches import create_branch, logs_of
from filestore.branch.branches import read_branch
from filestore.layout.branch_state import Operation, Work, begin_work
from logstore.kafka.topics import LogTopics
from lsm.errors import ConflictError, InvalidInputError
from tests.engine.stream.test_law import KEYS, operations, run_operation
from tests.engine.stream.test_law import SCHEMA as LAW_SCHEMA
from tests.support.logs import log_changes
from tests.support.streams import Query, content, fold, ids, rows

pytestmark = pytest.mark.broker

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
_numbers = iter(range(10**9))


@pytest.fixture
def main(catalog: Catalog, broker: Broker) -> Table:
    """Rows 1 to 3 in two buckets and a log, tagged ``eod``; then row 4."""
    options = {"bucket": "2", "log.kafka.bootstrap.servers": broker.bootstrap_servers}
    made = catalog.create_table(f"db.main{next(_numbers)}", SCHEMA, primary_key=["id"], options=options)
    made.write(rows([1, 2]))
    made.write(rows([3]))
    made.write(rows([4]))
    return made


def test_a_branch_gets_a_topic_that_begins_empty_and_goes_with_the_table(
    catalog: Catalog, main: Table, topics: LogTopics
) -> None:
    """BR-12, BR-14, BR-24, idea 12: its first commit goes on from the beginning of its topic, not from main's place."""
    assert main.log is not None
    create_branch(main.store, "b", snapshot_id=2, log=True)
    branch = catalog.table(f"{main.name}$branch_b")
    assert branch.log is not None
    assert branch.log.topic == f"{main.log.topic}.b"
    assert branch.log.table_id != main.log.table_id
    before = main.log_end_offsets()
    query = Query(catalog.warehouse, branch.name)
    assert ids(query.available()) == [1, 2, 3]
    branch.write(rows([7]))
    first = branch.latest_snapshot()
    assert first is not None
    assert sorted(first.log_offsets.values()) == [0, 1]  # main's are further on
    assert query.position["phase"] == "log"
    assert ids(query.available()) == [7]
    assert branch.read(options={"scan.log.union": "true"}).to_arrow().num_rows == 4
    assert main.log_end_offsets() == before
    assert ids(Query(catalog.warehouse, branch.name, scan_snapshot__id="2").available()) == [1, 2, 3, 7]
    create_branch(main.store, "plain", snapshot_id=2)
    plain = catalog.table(f"{main.name}$branch_plain")
    query = Query(catalog.warehouse, plain.name)
    plain.write(rows([8]))
    assert plain.log is None
    assert ids(query.available()) == [1, 2, 3, 8]
    names = [each.topic for each in logs_of(main.store)]
    assert names == [main.log.topic, branch.log.topic]
    catalog.drop_table(main.name)
    assert [topics.find_topic(each) for each in names] == [None, None]


def test_a_renamed_branch_keeps_its_log_and_a_deleted_one_loses_it(
    catalog: Catalog, main: Table, topics: LogTopics
) -> None:
    """BR-08, idea 12."""
    assert main.log is not None
    create_branch(main.store, "b", snapshot_id=2, log=True)
    catalog.table(f"{main.name}$branch_b").write(rows([7]))
    rename_branch(main, "b", "c")
    renamed = catalog.table(f"{main.name}$branch_c")
    assert renamed.log is not None
    assert renamed.log.topic == f"{main.log.topic}.b"
    query = Query(catalog.warehouse, renamed.name)
    renamed.write(rows([8]))
    assert ids(query.available()) == [1, 2, 3, 7, 8]
    delete_branch(main, "c", dry_run=True)
    assert topics.find_topic(renamed.log.topic) is not None
    delete_branch(main, "c")
    assert topics.find_topic(renamed.log.topic) is None
    assert topics.find_topic(main.log.topic) is not None


def test_a_log_for_a_branch_is_refused_where_it_cannot_be(
    catalog: Catalog, main: Table, topics: LogTopics, new_topic: Any
) -> None:
    """Idea 12: and nothing is left behind."""
    assert main.log is not None
    used = new_topic(2)
    create_branch(main.store, "b", snapshot_id=2, log=True, options={"log.kafka.topic": used})
    for name, options, words in (
        ("c", {"log.kafka.topic": main.log.topic}, "the topic is that of another branch"),
        ("c", {"log.kafka.topic": used}, "the topic is that of another branch"),
        ("c", {"nonsense": "1"}, "unknown option"),
        ("b", {}, "branch exists already"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            create_branch(main.store, name, snapshot_id=2, log=True, options=options)
    assert topics.find_topic(f"{main.log.topic}.c") is None
    assert create_branch(main.store, "b", log=True, ignore_if_exists=True) == read_branch(main.store, "b")
    with pytest.raises(InvalidInputError, match=r"a topic for a branch without a log: .* fix=log=true"):
        create_branch(main.store, "c", snapshot_id=2, options={"log.kafka.topic": "x"})
    bare = catalog.create_table("db.bare", SCHEMA, primary_key=["id"])
    with pytest.raises(InvalidInputError, match="a branch can have a log if its table has one"):
        create_branch(bare.store, "b", log=True)
    with pytest.raises(InvalidInputError, match="no such branch"):
        main.files.on_branch("c")


def test_the_topic_of_a_creation_in_progress_stays_when_another_is_refused(main: Table, topics: LogTopics) -> None:
    """Idea 12"""
    assert main.log is not None
    topic = topics.create_topic(f"{main.log.topic}.c", bucket_count=main.log.bucket_count)
    first = Work(operation=Operation.CREATE, arguments={"tag": "other"})
    begin_work(main.store.io, main.store.paths.with_branch("c"), first)
    with pytest.raises(ConflictError, match="directory of an incomplete branch"):
        create_branch(main.store, "c", snapshot_id=2, log=True)
    assert topics.find_topic(topic.name) == topic


@pytest.mark.long
def test_a_killed_writer_of_a_branch_commits_once_and_main_goes_on(
    catalog: Catalog, main: Table, tmp_path: Path
) -> None:
    """BR-14, BR-24: killed between the branch's log and its table, and run again; main is written all the while."""
    create_branch(main.store, "b", snapshot_id=3, log=True)
    branch = catalog.table(f"{main.name}$branch_b")
    query = Query(catalog.warehouse, branch.name)
    assert ids(query.available()) == [1, 2, 3, 4]
    script = [sys.executable, str(Path(__file__).with_name("killed_writer.py"))]
    script += [catalog.warehouse, branch.name, str(tmp_path / "killed")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    assert subprocess.run(script, env=environment, check=False).returncode == -signal.SIGKILL
    main.write(rows([1000]))
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = [10 * batch + each for batch in range(3) for each in range(5)]
    assert sorted(row["id"] for _, row in log_changes(branch)) == expected
    assert ids(query.available()) == expected
    assert sorted(branch.read().to_arrow()["id"].to_pylist()) == sorted({1, 2, 3, 4, *expected})
    assert branch.store.snapshots.ids() == [3, 4, 5, 6]
    assert sorted(main.read().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 1000]
    assert sorted(row["id"] for _, row in log_changes(main)) == [1, 2, 3, 4, 1000]


def test_streams_of_a_branch_go_on_while_it_becomes_main(catalog: Catalog, main: Table, topics: LogTopics) -> None:
    """BR-31, BR-32: readers and writers of the branch keep their places; the old main's topic goes with it."""
    assert main.log is not None
    create_branch(main.store, "b", snapshot_id=2, log=True)
    branch = catalog.table(f"{main.name}$branch_b")
    by_log = Query(catalog.warehouse, branch.name)
    by_files = Query(catalog.warehouse, branch.name, streaming__read__mode="file")
    branch.write(rows([7]))
    assert ids(by_log.available()) == ids(by_files.available()) == [1, 2, 3, 7]
    replace_main_branch(main, "b")
    branch.write(rows([8]))
    assert ids(by_log.available()) == ids(by_files.available()) == [8]
    by_log.start()  # a new process, with the same checkpoint
    now = catalog.table(main.name)
    now.write(rows([9]))
    assert ids(by_log.available()) == ids(by_files.available()) == [9]
    assert ids(Query(catalog.warehouse, main.name).available()) == [1, 2, 3, 7, 8, 9]
    assert ids(Query(catalog.warehouse, main.name, scan_snapshot__id="1").available()) == [1, 2, 3, 7, 8, 9]
    assert now.log is not None
    assert (now.log.topic, topics.find_topic(main.log.topic)) == (f"{main.log.topic}.b", None)
    replace_main_branch(now, "main")
    back = catalog.table(main.name)
    assert back.log == now.log
    assert ids(Query(catalog.warehouse, main.name, scan_snapshot__id="1").available()) == [1, 2, 3, 7, 8, 9]
    catalog.drop_table(main.name)
    assert topics.find_topic(f"{main.log.topic}.b") is None


@pytest.mark.parametrize("has_log", [True, False])
def test_a_stream_of_main_continues_on_a_branch_that_began_where_it_stands(
    catalog: Catalog, main: Table, has_log: bool
) -> None:
    """LN-38: as one with a rewound checkpoint does; of another place in main's log the branch knows nothing."""
    here = Query(catalog.warehouse, main.name)
    assert ids(here.available()) == [1, 2, 3, 4]
    create_branch(main.store, "b", snapshot_id=3, log=has_log)
    create_branch(main.store, "early", snapshot_id=2, log=has_log)
    main.write(rows([5]))
    there = {}
    for branch in ("b", "early"):
        there[branch] = Query(catalog.warehouse, f"{main.name}$branch_{branch}")
        there[branch].planned, there[branch].committed = list(here.planned), here.committed
    catalog.table(f"{main.name}$branch_b").write(rows([7]))
    assert ids(there["b"].available()) == [7]
    with pytest.raises(InvalidInputError, match="the table was rolled back below the stream's position"):
        there["early"].available()


law = settings(
    max_examples=int(os.environ.get("FLUVIAL_LAW_HISTORIES") or 8),
    deadline=None,
    derandomize="FLUVIAL_LAW_HISTORIES" not in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
sides = st.lists(st.sampled_from(["main", "branch", "both"]), min_size=9, max_size=9)


@pytest.mark.long
@law
@given(operations, operations, sides, st.booleans())
def test_streams_of_main_and_of_a_branch_each_give_their_own_table(
    broker: Broker, first: list[tuple[str, Any]], then: list[tuple[str, Any]], who: list[str], has_log: bool
) -> None:
    """BR-12, BR-24, BR-28, idea 12: whatever is written on which side, with a log of the branch's own and without."""
    with tempfile.TemporaryDirectory() as root:
        catalog, name = Catalog(root), f"law.b{next(_numbers)}_{Path(root).name}"
        options = {"bucket": "2", "log.kafka.bootstrap.servers": broker.bootstrap_servers}
        main = catalog.create_table(name, LAW_SCHEMA, primary_key=KEYS, partition_by=["dt"], options=options)
        for step in first:
            run_operation(main, step)
        create_branch(main.store, "b", snapshot_id=main.store.snapshots.latest_id(), log=has_log)
        tables = {"main": main, "branch": catalog.table(f"{name}$branch_b")}
        queries = {side: Query(root, table.name) for side, table in tables.items()}
        followed: dict[str, list[dict[str, Any]]] = {side: query.available() for side, query in queries.items()}
        for step, side in zip(then, who, strict=False):
            for each in tables if side == "both" else (side,):
                run_operation(tables[each], step)
        for side, table in tables.items():
            followed[side] += queries[side].available()
            assert fold(followed[side], KEYS) == content(table, KEYS)
            assert fold(Query(root, table.name).available(), KEYS) == content(table, KEYS)
        catalog.drop_table(name)
