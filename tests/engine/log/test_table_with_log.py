"""A table whose changes go to files and log, written from one process without Spark."""

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.cli.app import run_command
from engine.log.table_log import TableLog
from engine.request.writer_options import WriterOptions
from engine.runtime.steps import Step, StepEvent
from engine.write.batch_part import write_part
from engine.write.batch_writer import BatchWriter
from engine.write.ticket_queue import TURNS_DIRECTORY
from filestore.snapshot.snapshot import CHANGES_KEY
from logstore.kafka import topics as topics_module
from logstore.kafka.topics import LogTopics
from lsm.errors import ConflictError, CorruptDataError, FluvialError, InvalidInputError, UnavailableError
from tests.peers.agreement import Agreement
from tests.support.log_formats import FORMATS, FormatOptions
from tests.support.logs import log_changes
from tests.support.option_keys import dotted
from tests.support.rows import id_rows
from tests.support.waiting import eventually
from tests.support.warehouses import ID_SCHEMA, new_table

pytestmark = pytest.mark.broker


@pytest.fixture
def catalog(tmp_path: Path, broker: Broker) -> Catalog:
    return Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})


def table_with_log(catalog: Catalog, **options: str) -> Table:
    return new_table(catalog, options={"bucket": "2", **dotted(options)})


def log_of(table: Table) -> list[tuple[str, int, str | None]]:
    """Every change in the log as (kind, id, v), bucket by bucket."""
    return [("-" if kind.is_retract else "+", row["id"], row["v"]) for kind, row in log_changes(table)]


def test_the_log_lives_as_long_as_the_option_says(catalog: Catalog, topics: LogTopics) -> None:
    """FL-98."""
    table = table_with_log(catalog, log_retention="2 h")
    assert table.log is not None
    topic = table.log.topic
    eventually(lambda: topics.topic_config(topic)["retention.ms"], "7200000")


def test_creating_a_table_creates_its_topic_and_dropping_drops_it(catalog: Catalog, topics: LogTopics) -> None:
    """FL-17, FL-19, FL-116, FL-117, FL-120: one partition per bucket; the topic's id is remembered."""
    table = table_with_log(catalog)
    topic = topics.find_topic(table.name)
    assert topic is not None
    assert (topic.bucket_count, topic.topic_id) == (2, table.log.topic_id)
    catalog.drop_table(table.name)
    assert topics.find_topic(table.name) is None


def test_log_and_files_hold_the_same_changes(catalog: Catalog) -> None:
    """FL-26, FL-72, FL-130, FL-136: -U stays out of the log, a delete carries its whole row."""
    table = table_with_log(catalog)
    table.write(id_rows([1, 2, 3]))
    table.write(
        pa.table({"id": pa.array([1, 1, 2], pa.int64()), "v": ["x", "y", "x"], "_row_kind": ["-U", "+U", "-D"]})
    )
    assert sorted(log_of(table)) == [("+", 1, "x"), ("+", 1, "y"), ("+", 2, "x"), ("+", 3, "x"), ("-", 2, "x")]
    assert {row["id"]: row["v"] for row in table.read().to_arrow().to_pylist()} == {1: "y", 3: "x"}
    ends = table.log_end_offsets()
    known = table.latest_snapshot().log_offsets
    assert all(known[bucket] <= ends[bucket] for bucket in known)


def test_change_tracking_off_leaves_the_log_alone(catalog: Catalog) -> None:
    """FL-34, FL-75: the snapshot keeps the offsets it knew."""
    table = table_with_log(catalog)
    table.write(id_rows([1]))
    before = table.latest_snapshot().log_offsets
    table.write(id_rows([2]), options={"change-tracking": "false"})
    assert table.latest_snapshot().log_offsets == before
    assert table.latest_snapshot().properties[CHANGES_KEY] == "none"
    assert [change[1] for change in log_of(table)] == [1]


def test_without_a_log_untracked_writes_are_marked(tmp_path: Path) -> None:
    """FL-33, FL-34."""
    table = Catalog(str(tmp_path)).create_table("db.t", ID_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for options, said in (({}, "files"), ({"change-tracking": "false"}, "none")):
        table.write(id_rows([1]), options=options)
        assert table.latest_snapshot().properties[CHANGES_KEY] == said


def writer(table: Table, user: str, **overrides: str) -> BatchWriter:
    return BatchWriter(table.files, TableLog.of(table.files, WriterOptions(dotted(overrides))), commit_user=user)


def test_a_batch_that_is_written_again_changes_nothing(catalog: Catalog) -> None:
    """FL-164."""
    table = table_with_log(catalog)
    for _ in range(2):
        result = writer(table, "q").write(7, lambda spec: write_part(spec, id_rows([1, 2]).to_batches()))
    assert result.already_committed
    assert table.latest_snapshot().id == 1
    assert sorted(log_of(table)) == [("+", 1, "x"), ("+", 2, "x")]


class Died(Exception):
    """What stands for kill -9 in a test of one process."""


def test_a_replay_takes_over_what_the_log_holds_even_if_it_computes_other_rows(catalog: Catalog) -> None:
    """FL-72: the log is the point of no return; files and slice of the first attempt stay together."""
    table = table_with_log(catalog)

    def dies_after_the_log(event: StepEvent) -> None:
        if event.step is Step.TASKS_DONE:
            raise Died

    first = BatchWriter(table.files, table.log, commit_user="q", observe=dies_after_the_log)
    with pytest.raises(Died):
        first.write(0, lambda spec: write_part(spec, id_rows([1, 2, 3, 4], "first").to_batches()))
    assert table.latest_snapshot() is None
    writer(table, "q").write(0, lambda spec: write_part(spec, id_rows([1, 9], "second").to_batches()))
    table_rows = {row["id"]: row["v"] for row in table.read().to_arrow().to_pylist()}
    assert table_rows == {1: "first", 2: "first", 3: "first", 4: "first"}
    assert {(row, v) for _, row, v in log_of(table)} == set(table_rows.items())


def test_a_foreign_batch_in_the_log_stops_the_next_writer_unless_it_may_adopt(catalog: Catalog) -> None:
    table = table_with_log(catalog)

    def dies(event: StepEvent) -> None:
        if event.step is Step.TASKS_DONE:
            raise Died

    with pytest.raises(Died):
        BatchWriter(table.files, table.log, commit_user="gone", observe=dies).write(
            3, lambda spec: write_part(spec, id_rows([1, 2], "orphan").to_batches())
        )
    with pytest.raises(CorruptDataError, match=r"query=gone batch=3.*on-orphan-batch=adopt"):
        writer(table, "new").write(0, lambda spec: write_part(spec, id_rows([5]).to_batches()))
    writer(table, "new", log_on__orphan__batch="adopt").write(
        0, lambda spec: write_part(spec, id_rows([5]).to_batches())
    )
    assert (
        sorted(table.read().to_arrow()["id"].to_pylist()) == sorted(change[1] for change in log_of(table)) == [1, 2, 5]
    )


def test_two_writers_of_one_log_never_mix_their_batches(catalog: Catalog) -> None:
    """FL-87: the one that is overtaken gets a conflict; nothing of it is visible; its next try succeeds."""
    table = table_with_log(catalog)
    slow, fast = writer(table, "slow"), writer(table, "fast")

    def overtaken(spec):  # type: ignore[no-untyped-def]
        def batches():  # type: ignore[no-untyped-def]
            yield from id_rows([1, 2, 3, 4], "slow").to_batches()
            fast.write(0, lambda other: write_part(other, id_rows([1, 2, 3, 4], "fast").to_batches()))

        return write_part(spec, batches())

    with pytest.raises(FluvialError):
        slow.write(0, overtaken)
    assert set(table.read().to_arrow()["v"].to_pylist()) == {"fast"}
    writer(table, "slow").write(0, lambda spec: write_part(spec, id_rows([1, 2], "slow").to_batches()))
    assert {row["id"]: row["v"] for row in table.read().to_arrow().to_pylist()} == {
        1: "slow",
        2: "slow",
        3: "fast",
        4: "fast",
    }
    assert len(log_of(table)) == 6


def test_without_a_log_the_overtaken_writer_wins_by_numbering_its_rows_again(tmp_path: Path) -> None:
    """FL-89: two writers of one bucket; the later commit is newer, and no number is used twice."""
    table = Catalog(str(tmp_path)).create_table("db.t", ID_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    slow, fast = writer(table, "slow"), writer(table, "fast")

    def overtaken(spec):  # type: ignore[no-untyped-def]
        results = write_part(spec, id_rows([1, 2], "slow").to_batches())
        fast.write(0, lambda other: write_part(other, id_rows([2, 3], "fast").to_batches()))
        return results

    slow.write(0, overtaken)
    assert {row["id"]: row["v"] for row in table.read().to_arrow().to_pylist()} == {1: "slow", 2: "slow", 3: "fast"}
    live = slow.live
    live.advance()
    ranges = sorted((f.min_sequence_number, f.max_sequence_number) for key in live.buckets() for f in live.files(key))
    assert ranges == [(0, 1), (2, 3)]


def test_a_missing_broker_is_said_and_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long it is waited for is seen by a job, in tests/engine/cli/test_cli_bad_input.py."""
    monkeypatch.setattr(topics_module, "FIRST_CONTACT_S", 1.0)
    catalog = Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": "127.0.0.1:1"})
    began = time.monotonic()
    with pytest.raises(UnavailableError, match=r"bootstrap\.servers=127\.0\.0\.1:1 .*Connection refused"):
        catalog.create_table("db.t", ID_SCHEMA, primary_key=["id"])
    assert time.monotonic() - began < 30
    assert catalog.list_databases() == []


def test_a_topic_that_was_made_again_is_noticed(catalog: Catalog, topics: LogTopics) -> None:
    table = table_with_log(catalog)
    table.write(id_rows([1]))
    topics.delete_topic(table.name)
    topics.create_topic(table.name, bucket_count=2)
    with pytest.raises(CorruptDataError, match="deleted and recreated"):
        table.write(id_rows([2]))
    assert table.read().to_arrow().num_rows == 1


def test_options_that_do_not_go_together_make_no_topic(catalog: Catalog, topics: LogTopics) -> None:
    """FL-58, FL-128."""
    with pytest.raises(InvalidInputError, match="eventual needs a primary key"):
        catalog.create_table("db.keyless", ID_SCHEMA, options={"log.consistency": "eventual"})
    assert topics.find_topic("db.keyless") is None


@pytest.mark.sampled(2)
@pytest.mark.interop
@pytest.mark.parametrize("log_format", FORMATS)
def test_all_log_formats_carry_deletes(
    catalog: Catalog, log_format: str, format_options: FormatOptions, assert_peers_agree: Agreement
) -> None:
    """FL-119, FL-121, FL-123 to FL-126."""
    table = table_with_log(catalog, **format_options(log_format))
    table.write(id_rows([1]))
    table.write(pa.table({"id": pa.array([1], pa.int64()), "_row_kind": ["-D"]}))
    assert [(sign, row) for sign, row, _ in log_of(table)] == [("+", 1), ("-", 1)]
    assert table.read().to_arrow().num_rows == 0
    assert assert_peers_agree(table.store.paths.root) == []
    assert len(assert_peers_agree(table.store.paths.root, snapshot_id=1)) == 1


def test_a_stale_attempt_stops_when_a_later_batch_is_in_the_log(catalog: Catalog) -> None:
    table = table_with_log(catalog)
    query = writer(table, "q")
    query.write(0, lambda spec: write_part(spec, id_rows([1]).to_batches()))
    stale = query._spec(1, {})
    query.write(1, lambda spec: write_part(spec, id_rows([1]).to_batches()))
    query.write(2, lambda spec: write_part(spec, id_rows([1]).to_batches()))
    with pytest.raises(ConflictError, match="later batch"):
        write_part(stale, id_rows([1]).to_batches())
    assert len(log_of(table)) == 3


def test_a_missing_broker_is_told_soon_and_nothing_is_half_done(
    catalog: Catalog,
    tmp_path: Path,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As long as a client's first contact takes, not as long as a request may."""
    monkeypatch.setattr(topics_module, "FIRST_CONTACT_S", 0.5)
    name = table_with_log(catalog).name
    schema = Path(catalog.table(name).store.paths.schema(0))
    schema.write_text(schema.read_text().replace(broker.bootstrap_servers, "127.0.0.1:1"))
    table = catalog.table(name)
    files = sorted(tmp_path.rglob("*"))
    began = time.monotonic()
    said = r"cannot be reached: bootstrap\.servers=127\.0\.0\.1:1 .*Connection refused.* fix=check that the broker"
    with pytest.raises(UnavailableError, match=said):
        table.write(id_rows([1]))
    with pytest.raises(UnavailableError, match=said):
        table.read(options={"scan.log.union": "true"})
    with pytest.raises(UnavailableError, match=rf"{said}.*DROP TABLE {name} FORCE"):
        catalog.drop_table(name)
    assert run_command(["lag", name, "--warehouse", str(tmp_path)]) != 0
    assert "bootstrap.servers=127.0.0.1:1" in capsys.readouterr().err
    assert time.monotonic() - began < 30
    (turns,) = set(tmp_path.rglob("*")) - set(files)
    assert (turns.name, [*turns.iterdir()]) == (TURNS_DIRECTORY, [])
    drop = ["sql", f"DROP TABLE {name} FORCE", "--warehouse", str(tmp_path), "--format", "json"]
    assert run_command(drop) == 0
    assert json.loads(capsys.readouterr().out) == {"topic_that_may_be_left": table.options.log_topic}
    assert not catalog.table_exists(name)
    assert not Path(table.store.paths.root).exists()
    assert catalog.drop_table(name, if_exists=True, force=True) == []
