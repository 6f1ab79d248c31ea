"""Histories of tables with a log: what the explorer has found once is not found again."""

import pytest

from engine.simulation.explorer import CRASH, INTERVENTIONS, PAUSE, explore, random_plan
from engine.simulation.history import run_history
from engine.simulation.log.operations import key_pair
from engine.simulation.scheduler import Fault, Intervention
from tests.engine.simulation.planted_bugs import at, plan
from tests.engine.simulation.test_explorer import failures_text

LOST = Intervention(fault=Fault.LOST_ANSWER)
SEED = 15_000


@pytest.mark.sweep
def test_random_histories_with_a_log_hold() -> None:
    plans = (each for each in map(random_plan, range(SEED, SEED + 40)) if each.setup.startswith("logged"))
    found = explore(plans)
    assert failures_text(found.failed) == ""
    assert found.operations["log-sink"] + found.operations["log-twin"] > 5


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("setup", ["logged", "logged-append", "logged-exact"])
def test_a_query_writes_a_batch_once_whatever_answer_is_lost(setup: str) -> None:
    choices = [INTERVENTIONS[name] for name in ("crash", "lost answer", "unsure")]
    changes = ("init_transactions", "produce", "commit_transaction", "create_exclusive", "answer")
    found = explore(at(plan("log-sink", setup=setup), of=changes, choices=choices)())
    assert failures_text(found.failed) == ""
    assert found.histories > 20


@pytest.mark.sweep
def test_a_run_that_stands_still_at_a_request_does_not_write_beside_its_successor() -> None:
    requests = ("init_transactions", "produce", "commit_transaction", "fetch", "list_offsets", "describe_topics")
    found = explore(at(plan("log-twin", "log-twin", setup="logged"), of=requests, choices=(PAUSE, CRASH))())
    assert failures_text(found.failed) == ""


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("setup", ["logged", "logged-append", "logged-exact"])
def test_writers_that_were_kept_write_a_batch_once_whoever_writes_between(setup: str) -> None:
    """The second batch has no fence of its own, until another writer's makes Kafka refuse it."""
    choices = [INTERVENTIONS[name] for name in ("pause", "pause, crash", "unsure", "pause, lost answer")]
    found = explore(
        at(plan("log-kept", "log-write", setup=setup), of=("produce", "commit_transaction"), choices=choices)()
    )
    assert failures_text(found.failed) == ""
    assert found.histories == 2 * 2 * 2 * len(choices)
    alone = [event.what for event in run_history(plan("log-kept", setup=setup)).events if "kafka/" in event.path]
    assert (alone.count("init_transactions"), alone.count("commit_transaction")) == (4, 4)


@pytest.mark.sweep
def test_records_that_retention_deletes_beside_a_look_at_the_end_are_no_outage() -> None:
    """The look found the ends of the log, and what it then asked for was deleted: it has to look again."""
    found = explore(at(plan("log-write", "log-trim", setup="logged"), of=("fetch",))())
    assert failures_text(found.failed) == ""
    assert found.operations["log-write"] == found.histories


@pytest.mark.sweep
def test_a_reader_of_files_and_log_gets_a_prefix_of_the_log() -> None:
    looks = ("describe_topics", "list_offsets", "fetch", "list_names")
    for setup in ("logged", "logged-exact", "logged-append"):
        found = explore(at(plan("log-read", "log-write log-sink compact-full", setup=setup), of=looks)())
        assert failures_text(found.failed) == ""
        assert found.operations["log-read"] == found.histories


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("name", ["log-upsert", "log-sink"])
def test_changes_that_were_looked_up_in_a_snapshot_that_expired_are_looked_up_again(name: str) -> None:
    """A writer of exact changes slept before or while it read the state before its batch: a missing file, no conflict.

    With a compaction beside it no file of that state is left.
    """
    others = "log-write compact-full log-write expire"
    reads = at(plan(name, others, setup="logged-exact"), "/manifest/", "/bucket-", of=("read_bytes", "open_input"))
    found = explore(reads())
    assert failures_text(found.failed) == ""
    assert found.histories > 10


def test_a_batch_has_a_row_in_each_bucket() -> None:
    history = run_history(plan("log-write", setup="logged"))
    assert history.problems == ()
    commits = [event.path for event in history.events if event.what == "commit_transaction"]
    assert commits == ["kafka/fluvial.simulated.0", "kafka/fluvial.simulated.1"]
    assert len({key for number in range(12) for key in key_pair(number)}) == 24
