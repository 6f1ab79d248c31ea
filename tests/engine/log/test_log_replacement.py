"""A table gets another log, its first one, or none: rows, history and running streams go on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.log.replacement import give_log
from engine.log.table_log import TableLog
from engine.procedures import PROCEDURES
from engine.request.writer_options import NO_OPTIONS
from engine.runtime.steps import Step, StepEvent
from engine.write.batch_part import write_part
from engine.write.batch_writer import BatchWriter
from engine.write.session import LocalRunner, Upkeep, WriteSession
from filestore.evolution.schema_change import SetOption
from filestore.io.file_io import LocalFileIO
from filestore.table import FileTable
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError
from tests.support.clients import quiet_admin, quiet_producer
from tests.support.faults import FaultyFileIO, When, fail_points
from tests.support.logs import log_changes
from tests.support.streams import content, fold, ids, query, rows
from tests.support.warehouses import ID_SCHEMA

pytestmark = pytest.mark.broker


@pytest.fixture
def catalog(tmp_path: Path, broker: Broker) -> Catalog:
    return Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})


def with_log(catalog: Catalog, name: str, **options: str) -> Table:
    given = {"bucket": "2", **{key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}}
    return catalog.create_table(f"db.{name}", ID_SCHEMA, primary_key=["id"], options=given)


def reset(table: Table, **arguments: Any) -> dict[str, Any]:
    (row,) = PROCEDURES["reset_log"](table, **arguments).to_pylist()
    return dict(row)


def reopened(catalog: Catalog, table: Table) -> Table:
    return catalog.table(table.name)


def delete_topic(broker: Broker, topic: str) -> None:
    LogTopics(KafkaProperties.parse({"bootstrap.servers": broker.bootstrap_servers})).delete_topic(topic)


@contextmanager
def stream_writer(table: Table) -> Iterator[Callable[[int, list[int]], object]]:
    """Writes batches as the sink of a streaming query does."""
    session = WriteSession(
        table.files, LocalRunner(), commit_user="q", options=NO_OPTIONS, upkeep=Upkeep.STREAM,
        origin=lambda batch_id, rows: None,
    )  # fmt: skip
    with session:
        yield lambda batch_id, keys: session.write(rows(keys).to_batches(), batch_id=batch_id)


Spoil = Callable[[Broker, str], None]


def stray_record(broker: Broker, topic: str) -> None:
    producer = quiet_producer(broker.bootstrap_servers)
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(20) == 0


def more_partitions(broker: Broker, topic: str) -> None:
    admin = quiet_admin(broker.bootstrap_servers)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)


def write_often(catalog: Catalog, table: Table) -> None:
    for _ in range(50):  # a broker shows new partitions a moment later
        reopened(catalog, table).write(rows([9]))


@pytest.mark.parametrize("spoil", [delete_topic, stray_record, more_partitions])
def test_a_table_that_refuses_writes_takes_them_again_after_a_reset(
    catalog: Catalog, broker: Broker, spoil: Spoil
) -> None:
    table = with_log(catalog, f"spoilt_{spoil.__name__}")
    table.write(rows([1, 2, 3]))
    assert table.log is not None
    spoil(broker, table.log.topic)
    with pytest.raises(CorruptDataError):
        write_often(catalog, table)
    done = reset(reopened(catalog, table))
    assert done["former_topic"] == table.log.topic
    assert done["topic"] != table.log.topic  # a writer of the former log would find a topic of that name
    table = reopened(catalog, table)
    table.write(rows([4]))
    assert {1, 2, 3, 4} <= {key for (key,) in content(table)}
    assert [row["id"] for _, row in log_changes(table)] == [4]
    assert {row["id"] for row in table.read(options={"scan.log.union": "true"}).to_arrow().to_pylist()} == {
        key for (key,) in content(table)
    }
    assert PROCEDURES["verify"](table).num_rows == 0


@pytest.mark.parametrize("is_reset", [True, False], ids=["reset", "by hand"])
def test_a_batch_in_another_topic_of_that_name_is_not_acknowledged(
    catalog: Catalog, broker: Broker, is_reset: bool
) -> None:
    """Between its fence and its first record the topic is deleted and made again: the offsets there are known ones."""
    table = with_log(catalog, f"renewed_{is_reset}".lower())
    table.write(rows(list(range(50))))
    log = table.log
    assert log is not None
    topics = LogTopics(log.properties)

    def renew(event: StepEvent) -> None:
        if event.step is Step.FILES_FLUSHED and topics.find_topic(log.topic) is not None and not renewed:
            renewed.append(True)
            delete_topic(broker, log.topic)
            if is_reset:
                reset(reopened(catalog, table), topic=log.topic)
            else:
                topics.create_topic(log.topic, bucket_count=log.bucket_count)

    renewed: list[bool] = []
    is_done = False
    session = WriteSession(
        table.files, LocalRunner(), commit_user="job", options=NO_OPTIONS, upkeep=Upkeep.BATCH,
        origin=lambda batch_id, rows: None, observe=renew,
    )  # fmt: skip
    refusal = suppress(FluvialError) if is_reset else pytest.raises(FluvialError, match="reset_log")
    with session, refusal:
        session.write(rows([3, 4], kind="-D").to_batches())
        is_done = True
    if not is_done:
        reset(reopened(catalog, table))
        reopened(catalog, table).write(rows([3, 4], kind="-D"))
    assert renewed
    table = reopened(catalog, table)
    assert {key for (key,) in content(table)} == {*range(50)} - {3, 4}
    assert {row["id"] for row in table.read(options={"scan.log.union": "true"}).to_arrow().to_pylist()} == {
        key for (key,) in content(table)
    }
    assert sorted(row["id"] for _, row in log_changes(table)) == [3, 4]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("is_running", [True, False], ids=["running", "restarted"])
@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "kept"])
@pytest.mark.parametrize("behind", [0, 2], ids=["caught-up", "behind"])
def test_a_stream_crosses_over_without_a_loss_or_a_repetition(
    catalog: Catalog, broker: Broker, is_running: bool, is_gone: bool, behind: int
) -> None:
    table = with_log(catalog, f"cross_{is_running}_{is_gone}_{behind}".lower())
    table.write(rows([1, 2, 3]))
    stream = query(table, log_kafka_bootstrap_servers=broker.bootstrap_servers)
    found = stream.available()
    if behind:
        table.write(rows([4, 1], "new"))
        table.write(rows([2], kind="-D"))
    assert table.log is not None
    if is_gone:
        delete_topic(broker, table.log.topic)
    reset(reopened(catalog, table))
    table = reopened(catalog, table)
    if not is_running:
        stream.start()
    found += stream.available()
    table.write(rows([5, 3], "newest"))
    found += stream.available()
    assert fold(found) == content(table)
    assert ids(found) == sorted([1, 2, 3, *([1, 2, 4] if behind else []), 3, 5])
    assert stream.position["topic"] == table.options.log_topic_id
    assert stream.batch() is None


def test_a_stream_in_the_middle_of_a_batch_reads_the_former_log_to_its_end(catalog: Catalog, broker: Broker) -> None:
    table = with_log(catalog, "middle", bucket="1")
    stream = query(table, read_stream_maxRowsPerTrigger="2", log_kafka_bootstrap_servers=broker.bootstrap_servers)
    table.write(rows(range(5)))
    table.write(rows(range(5, 10)))
    found: list[dict[str, Any]] = []
    stream.options["scan.mode"] = "from-snapshot"
    stream.options["scan.snapshot-id"] = "1"
    stream.start()
    found += stream.batch() or []
    assert 0 < len(found) < 5
    reset(reopened(catalog, table))
    table = reopened(catalog, table)
    table.write(rows([10]))
    found += stream.available()
    assert ids(found) == list(range(11))


def test_a_table_gets_its_first_log_and_loses_it_again(catalog: Catalog, broker: Broker) -> None:
    table = catalog.create_table(
        "db.first", ID_SCHEMA, primary_key=["id"], options={"bucket": "2", "log.system": "none"}
    )
    assert table.log is None
    table.write(rows([1, 2]))
    stream = query(table, log_kafka_bootstrap_servers=broker.bootstrap_servers)
    found = stream.available()
    table.write(rows([1], "new"))
    table = catalog.alter_table("db.first", [SetOption("log.system", "kafka")])
    assert table.log is not None
    table.write(rows([3]))
    found += stream.available()  # of a process that was started without a log
    stream.start()
    table.write(rows([4]))
    found += stream.available()
    assert stream.position["topic"] == table.options.log_topic_id
    assert sorted(row["id"] for _, row in log_changes(table)) == [3, 4]
    table = catalog.alter_table("db.first", [SetOption("log.system", "none")])
    assert table.log is None
    table.write(rows([2], kind="-D"))
    found += stream.available()
    stream.start()
    table.write(rows([5]))
    found += stream.available()
    assert ids(found) == [1, 1, 2, 2, 3, 4, 5]
    assert fold(found) == content(table)


def test_a_writer_that_runs_writes_to_the_log_that_the_table_has_now(catalog: Catalog, broker: Broker) -> None:
    """A stream's writer; a compaction that was opened before commits late."""
    table = with_log(catalog, "running_writer")
    late = reopened(catalog, table)
    stream = query(table, log_kafka_bootstrap_servers=broker.bootstrap_servers)
    with stream_writer(table) as write:
        write(0, [1, 2])
        found = stream.available()
        reset(reopened(catalog, table))
        write(1, [3])
        late.compact(full=True)
        write(2, [4, 1])
    now = reopened(catalog, table)
    assert sorted(row["id"] for _, row in log_changes(now)) == [1, 3, 4]
    found += stream.available()
    assert ids(found) == [1, 1, 2, 3, 4]
    assert fold(found) == content(now)


def test_what_a_writer_commits_late_to_the_former_log_is_read_from_its_files(catalog: Catalog, broker: Broker) -> None:
    """A batch that was begun before the reset, by a process that looked at the table before it."""
    table = with_log(catalog, "late_writer")
    table.write(rows([1]))
    stream = query(table, log_kafka_bootstrap_servers=broker.bootstrap_servers)
    found = stream.available()
    late = table.files
    writer = BatchWriter(late, TableLog.of(late), commit_user="late")
    reset(reopened(catalog, table))
    now = reopened(catalog, table)
    now.write(rows([2]))
    writer.write(7, lambda spec: write_part(spec, rows([3]).to_batches()))
    now.write(rows([4]))
    found += stream.available()
    assert ids(found) == [1, 2, 3, 4]
    again = query(now, log_kafka_bootstrap_servers=broker.bootstrap_servers)
    assert ids(again.available()) == [1, 2, 3, 4]
    assert content(now) == {(key,): {"id": key, "v": "x"} for key in (1, 2, 3, 4)}
    assert {row["id"] for row in now.read(options={"scan.log.union": "true"}).to_arrow().to_pylist()} == {1, 2, 3, 4}


@pytest.mark.parametrize("count", [1, 5])
def test_a_table_with_a_log_is_rescaled_and_streams_see_nothing_of_it(
    catalog: Catalog, broker: Broker, count: int
) -> None:
    """FL-80: another topic, with a partition for each bucket."""
    table = with_log(catalog, f"rescaled{count}")
    table.write(rows(range(20)))
    stream = query(table, log_kafka_bootstrap_servers=broker.bootstrap_servers)
    found = stream.available()
    table.write(rows([3, 20], "new"))
    PROCEDURES["rescale"](table, bucket_num=count)
    table = reopened(catalog, table)
    assert table.log is not None
    assert table.log.bucket_count == table.options.bucket == count
    table.write(rows([4, 21], "newest"))
    found += stream.available()
    assert fold(found) == content(table)
    assert len(found) == 20 + 2 + 2
    assert len(log_changes(table)) == 2


def test_older_states_are_read_as_before(catalog: Catalog) -> None:
    table = with_log(catalog, "older")
    table.write(rows([1]))
    PROCEDURES["create_tag"](table, tag="before")
    table.write(rows([2]))
    before_ms = int(table.store.clock.now_ms())
    reset(table)
    table = reopened(catalog, table)
    table.write(rows([3]))
    assert {row["id"] for row in table.read(options={"scan.tag-name": "before"}).to_arrow().to_pylist()} == {1}
    at_time = {"scan.timestamp-millis": str(before_ms), "scan.log.union": "true"}
    assert {row["id"] for row in table.read(options=at_time).to_arrow().to_pylist()} == {1, 2}
    stream = query(table, scan_snapshot__id="1", scan_mode="from-snapshot-full")
    assert ids(stream.available()) == [1, 2, 3]


def test_the_start_of_the_log_stays_known_when_the_snapshots_before_it_expire(catalog: Catalog) -> None:
    table = with_log(catalog, "anchor")
    table.write(rows([1]))
    table.write(rows([2]))
    reset(table)
    table = reopened(catalog, table)
    PROCEDURES["expire_snapshots"](table, retain_max=1, retain_min=1, older_than="2100-01-01 00:00:00")
    assert table.store.log_offsets_at(table.latest_snapshot()) == {0: 0, 1: 0}
    assert {row["id"] for row in table.read(options={"scan.log.union": "true"}).to_arrow().to_pylist()} == {1, 2}


def test_what_cannot_have_a_log_is_refused_and_nothing_has_changed(catalog: Catalog) -> None:
    options = {"bucket": "-1", "log.system": "none"}
    dynamic = catalog.create_table("db.dynamic", ID_SCHEMA, primary_key=["id"], options=options)
    with pytest.raises(InvalidInputError, match=r"bucket=-1 fix='rescale the table|partitions of its topic"):
        catalog.alter_table("db.dynamic", [SetOption("log.system", "kafka")])
    with pytest.raises(InvalidInputError, match="the table has no log"):
        reset(dynamic)
    with pytest.raises(InvalidInputError, match="in a step of its own"):
        catalog.alter_table(
            "db.dynamic", [SetOption("log.system", "kafka"), SetOption("snapshot.num-retained.min", "3")]
        )
    assert dynamic.store.schemas.ids() == [0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_a_reset_that_dies_anywhere_leaves_a_table_that_can_be_written_and_reset(
    catalog: Catalog, broker: Broker, when: When
) -> None:
    def run(number: int, fail_at: int) -> FaultyFileIO:
        table = with_log(catalog, f"dying_{when.value}_{number}", bucket="1")
        table.write(rows([1, 2]))
        stream = query(table, log_kafka_bootstrap_servers=broker.bootstrap_servers)
        found = stream.available()
        io = FaultyFileIO(LocalFileIO(), fail_at=fail_at, when=when)
        with suppress(FluvialError):
            give_log(FileTable.open(table.name, table.store.paths.root, io=io).store)
        reopened(catalog, table).write(rows([3]))
        found += stream.available()
        reset(reopened(catalog, table))
        table = reopened(catalog, table)
        table.write(rows([4]))
        stream.start()
        found += stream.available()
        assert ids(found) == [1, 2, 3, 4]
        assert sorted(content(table)) == [(1,), (2,), (3,), (4,)]
        assert ids(query(table).available()) == [1, 2, 3, 4]
        return io

    clean = run(0, 0)
    for number, fail_at in enumerate(fail_points(clean, When.AFTER), 1):
        run(number, fail_at)


def test_former_topics_go_with_the_table_or_at_once_and_an_adopted_one_stays(catalog: Catalog, broker: Broker) -> None:
    topics = LogTopics(KafkaProperties.parse({"bootstrap.servers": broker.bootstrap_servers}))
    topics.create_topic("admins", bucket_count=2)
    table = with_log(catalog, "former")
    first = str(table.options.log_topic)
    assert reset(table)["former_is_deleted"] is False
    table = reopened(catalog, table)
    second = str(table.options.log_topic)
    assert reset(table, delete_former=True, topic="admins")["former_is_deleted"] is True
    table = reopened(catalog, table)
    table.write(rows([1, 2, 3]))
    assert ids(query(table).available()) == [1, 2, 3]
    assert [topics.find_topic(each) is None for each in (first, second, "admins")] == [False, True, False]
    reset(table)
    third = str(reopened(catalog, table).options.log_topic)
    assert catalog.drop_table(table.name) == []
    assert [topics.find_topic(each) is None for each in (first, "admins", third)] == [True, False, True]
