"""A topic is the log of one table: by name, by claim, by its id, and by the id in every marker."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.cli.app import run_command
from engine.procedures import adopt_copy, reset_log, verify
from filestore.layout.log_key import note_places
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics
from logstore.log import log_writer
from logstore.log.marker import read_tail
from logstore.log.topic_claim import claim_topic
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.clients import delete_records
from tests.support.logs import log_changes, wait_for_log, write_without_commit
from tests.support.rows import id_rows
from tests.support.streams import Query, fold, forget_log, ids
from tests.support.waiting import eventually
from tests.support.warehouses import ID_SCHEMA, new_table

pytestmark = pytest.mark.broker

UNION = {"scan.log.union": "true"}


@pytest.fixture
def warehouse(tmp_path: Path, broker: Broker) -> Catalog:
    return catalog_at(tmp_path, broker)


@pytest.fixture(params=["directories", "a database"])
def renaming(request: pytest.FixtureRequest, tmp_path: Path, broker: Broker) -> Catalog:
    """Catalogs by what changes when a table is renamed: its directory, or only its name (issue 20 point 6)."""
    if request.param == "directories":
        return catalog_at(tmp_path, broker)
    bucket, store = request.getfixturevalue("new_bucket")(), request.getfixturevalue("object_store")
    names = {"metastore": "jdbc", "uri": f"sqlite:///{tmp_path}/names.db"}
    return catalog_at(f"s3://{bucket}/lake", broker, **store.options, **names)


def catalog_at(place: Path | str, broker: Broker, **options: str) -> Catalog:
    return Catalog(str(place), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers, **options})


def table_in(catalog: Catalog, name: str, **options: str) -> Table:
    return catalog.create_table(name, ID_SCHEMA, primary_key=["id"], options=options)


def topic_of(table: Table) -> str:
    assert table.log is not None
    return table.log.topic


def ids_in(table: Table) -> tuple[list[int], list[int], list[int]]:
    """Ids in the files, in files and log, and in the log."""
    files = sorted(table.read().to_arrow()["id"].to_pylist())
    union = sorted(table.read(options=UNION).to_arrow()["id"].to_pylist())
    return files, union, sorted(row["id"] for _, row in log_changes(table))


def unique(word: str) -> str:
    return f"{word}{time.monotonic_ns()}"


def test_two_tables_never_share_a_topic(warehouse: Catalog, tmp_path: Path, broker: Broker, topics: LogTopics) -> None:
    """Names that are the same without the characters that Kafka refuses, and the same name in two catalogs."""
    database = unique("q")
    other_catalog = catalog_at(tmp_path / "other", broker)
    tables = [
        table_in(warehouse, f"{database}.a b"),
        table_in(warehouse, f"{database}.a_b"),
        table_in(other_catalog, f"{database}.a_b"),
    ]
    names = [topic_of(table) for table in tables]
    assert names[0] == f"{database}.a_b"
    for table, name in zip(tables[1:], names[1:], strict=True):
        assert name == f"{database}.a_b.{table.schema.options['log.transactional-id.prefix'][:8]}"
    for number, table in enumerate(tables):
        table.write(id_rows([number]))
    for number, table in enumerate(tables):
        assert ids_in(table) == ([number], [number], [number])
    warehouse.drop_table(tables[0].name)
    tables[1].write(id_rows([10]))
    tables[2].write(id_rows([20]))
    assert [topics.find_topic(name) is None for name in names] == [True, False, False]


def test_topics_are_listed_with_the_tables_that_have_them(
    warehouse: Catalog, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    table = new_table(warehouse)
    servers = broker.bootstrap_servers
    place = ["--warehouse", warehouse.warehouse, "--catalog-option", f"log.kafka.bootstrap.servers={servers}"]
    for given, name in ((place, table.name), (["--brokers", servers], None)):
        assert run_command(["topics", "--json", *given]) == 0
        found = {each["topic"]: each for each in json.loads(capsys.readouterr().out)}
        assert found[topic_of(table)] == {"topic": topic_of(table), "partitions": 1, "table": name}


def test_names_that_kafka_takes_for_one_get_two_topics(warehouse: Catalog) -> None:
    """A cluster refuses a topic whose name differs from another one in "." and "_" only."""
    word = unique("w")
    first, second = table_in(warehouse, f"{word}_y.z"), table_in(warehouse, f"{word}.y_z")
    assert topic_of(first) == f"{word}_y.z"
    assert topic_of(second) == f"{word}.y_z.{second.schema.options['log.transactional-id.prefix'][:8]}"
    second.write(id_rows([3]))
    assert ids_in(second) == ([3], [3], [3])


@pytest.mark.sampled(1)
def test_tables_with_rows_swap_their_names(renaming: Catalog) -> None:
    database = unique("q")
    one, two = table_in(renaming, f"{database}.one"), table_in(renaming, f"{database}.two")
    one.write(id_rows([1]))
    two.write(id_rows([2]))
    for old, new in (("one", "tmp"), ("two", "one"), ("tmp", "two")):
        renaming.rename_table(f"{database}.{old}", f"{database}.{new}")
    now_one, now_two = renaming.table(f"{database}.one"), renaming.table(f"{database}.two")
    now_one.write(id_rows([20]))
    now_two.write(id_rows([10]))
    assert ids_in(now_one) == ([2, 20],) * 3
    assert ids_in(now_two) == ([1, 10],) * 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rows", [0, 1])
def test_a_name_is_free_for_a_new_table_once_the_old_one_is_renamed(renaming: Catalog, rows: int) -> None:
    database = unique("q")
    first = table_in(renaming, f"{database}.r1")
    if rows:
        first.write(id_rows([1]))
    renamed = renaming.rename_table(f"{database}.r1", f"{database}.r2")
    again = table_in(renaming, f"{database}.r1")
    again.write(id_rows([5]))
    renamed.write(id_rows([6]))
    assert ids_in(again) == ([5],) * 3
    assert ids_in(renamed) == ([*range(1, rows + 1), 6],) * 3
    renaming.drop_table(again.name)
    renamed.write(id_rows([7]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "options",
    [{}, {"log.format": "json"}, {"log.changelog-mode": "all", "changelog-producer": "lookup"},
     {"log.consistency": "eventual"}],
    ids=["upsert", "json", "exact", "eventual"],
)  # fmt: skip
def test_every_reader_passes_over_the_claim_of_an_adopted_topic(
    warehouse: Catalog, topics: LogTopics, new_topic: Callable[..., str], options: dict[str, str]
) -> None:
    """Of the topic that an administrator made: a record without key and value begins each partition."""
    name = new_topic(bucket_count=2, retention_ms="3600000")
    table = new_table(warehouse, options={"bucket": "2", "log.kafka.topic": name, **options})
    assert table.options.log_topic_is_adopted
    eventually(lambda: topics.end_offsets(name, [0, 1]), {0: 2, 1: 2})
    assert ids_in(table) == ([], [], [])
    query = Query(warehouse.warehouse, table.name)
    assert query.available() == []
    table.write(id_rows([1, 2, 3, 4]))
    assert ids_in(table) == ([1, 2, 3, 4],) * 3
    assert sorted(fold(query.available())) == [(1,), (2,), (3,), (4,)]
    write_without_commit(table, 0, id_rows([5, 6]))
    assert sorted(table.read(options=UNION).to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 5, 6]
    offsets = json.dumps({bucket: end for bucket, end in table.log_end_offsets().items()})
    assert table.read(options={**UNION, "scan.log.offsets": offsets}).to_arrow().num_rows == 6
    assert topics.own_config(name) == {"retention.ms": "3600000"}


def test_streams_normalize_and_start_by_time_over_a_claim(warehouse: Catalog, new_topic: Callable[..., str]) -> None:
    table = new_table(warehouse, options={"log.kafka.topic": new_topic()})
    for value in ("old", "new"):
        table.write(id_rows([1, 2], value))
    for start in ({}, {"log.scan": "from-timestamp", "log.scan.timestamp-mills": "1"}):
        found = Query(warehouse.warehouse, table.name, log_scan_normalize="true").available()
        assert fold(found) == {(each,): {"id": each, "v": "new"} for each in (1, 2)}, start


def test_a_claim_that_retention_removed_is_no_loss(warehouse: Catalog, new_topic: Callable[..., str]) -> None:
    table = new_table(warehouse, options={"log.kafka.topic": new_topic()})
    query = Query(warehouse.warehouse, table.name)
    assert query.available() == []
    wait_for_log(table, {0: 2})
    forget_log(table)
    table.write(id_rows([1]))
    assert ids(query.available()) == [1]
    assert ids_in(table)[:2] == ([1], [1])


def test_an_adopted_topic_keeps_its_settings_unless_the_table_is_given_its_own(
    tmp_path: Path, broker: Broker, topics: LogTopics, new_topic: Callable[..., str]
) -> None:
    """A default of the catalog is for topics that it makes."""
    defaults = {"log.kafka.bootstrap.servers": broker.bootstrap_servers, "log.retention": "1 h"}
    catalog = Catalog(str(tmp_path), options=defaults)
    kept, given = new_topic(retention_ms="7200000"), new_topic(retention_ms="7200000")
    table = new_table(catalog, options={"log.kafka.topic": kept})
    assert table.options.log_retention_ms is None
    new_table(catalog, options={"log.kafka.topic": given, "log.retention": "3 h"})
    eventually(lambda: topics.own_config(given), {"retention.ms": "10800000"})
    assert topics.own_config(kept) == {"retention.ms": "7200000"}


def test_a_topic_that_cannot_be_claimed_is_left_as_it_is(
    warehouse: Catalog, topics: LogTopics, kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    """FL-120: written to, even if nothing is left; of another table; of another shape; compacted."""
    used, expired, narrow = new_topic(2), new_topic(2), new_topic(1, retention_ms="7200000")
    compacted = new_topic(2, cleanup_policy="compact")
    for name in (used, expired):
        stray(kafka, name, 1)
    eventually(lambda: topics.end_offsets(expired, [1]), {1: 1})
    delete_records(kafka.by_name["bootstrap.servers"], expired, {1: -1})
    of_table = topic_of(new_table(warehouse, options={"bucket": "2", "log.kafka.topic": new_topic(2)}))
    for name, words in (
        (used, r"was written to.*end_offsets=\{1: 1\}.*fix=choose another log\.kafka\.topic"),
        (expired, r"was written to.*end_offsets=\{1: 1\}"),
        (of_table, r"was written to, by a table or another program.*end_offsets=\{0: 2, 1: 2\}"),
        (narrow, r"partitions=1 buckets=2 fix=choose another log\.kafka\.topic, or bucket=1"),
        (compacted, r"compacted topic takes no records without a key fix=set cleanup\.policy=delete"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            new_table(
                warehouse, name="db.refused", options={"bucket": "2", "log.kafka.topic": name, "log.retention": "1 h"}
            )
        assert not warehouse.table_exists("db.refused")
    assert topics.own_config(narrow) == {"retention.ms": "7200000"}


def test_of_tables_that_claim_a_topic_at_once_one_gets_it(
    kafka: KafkaProperties, topics: LogTopics, new_topic: Callable[..., str]
) -> None:
    """All have seen it empty. What the others sent is never visible."""
    topic = topics.find_topic(new_topic(bucket_count=3))
    assert topic is not None

    def claim(number: int) -> str:
        try:
            claim_topic(kafka, topic, table_id=f"table-{number}")
        except InvalidInputError as error:
            return str(error)
        return f"table-{number}"

    with ThreadPoolExecutor(4) as threads:
        said = list(threads.map(claim, range(4)))
    winners = [each for each in said if each.startswith("table-")]
    assert all("fix=choose another log.kafka.topic" in each for each in said if each not in winners)
    assert len(winners) <= 1  # none, if each was faster in another partition
    for bucket in range(3):
        for number in range(4):
            owner = f"table-{number}"
            if winners and owner != winners[0]:
                with pytest.raises(CorruptDataError, match=f"table_id={owner} record_table_id={winners[0]} "):
                    read_tail(kafka, topic=topic.name, bucket=bucket, table_id=owner)
            else:
                assert read_tail(kafka, topic=topic.name, bucket=bucket, table_id=owner).marker is None


def test_a_drop_deletes_only_what_the_table_made(
    warehouse: Catalog, topics: LogTopics, new_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """FL-17: a topic that was there before stays, and so does another one under its name."""
    own, adopting, again = (
        new_table(warehouse), new_table(warehouse, options={"log.kafka.topic": new_topic()}), new_table(warehouse)
    )  # fmt: skip
    names = [topic_of(each) for each in (own, adopting, again)]
    topics.delete_topic(names[2])
    topics.create_topic(names[2], bucket_count=1)
    for table in (own, adopting, again):
        assert warehouse.drop_table(table.name) == []
    assert [topics.find_topic(name) is None for name in names] == [True, False, False]
    said = [record.getMessage() for record in caplog.records if "a topic stays" in record.getMessage()]
    assert len(said) == 2
    assert f"topic={names[1]}" in said[0]
    assert "it was there before the table" in said[0]
    assert f"topic={names[2]}" in said[1]
    assert "deleted and made again" in said[1]


@pytest.mark.parametrize("consistency", ["transactional", "eventual"])
def test_a_table_that_another_one_pushed_out_of_its_topic_says_so_and_leaves_it(
    warehouse: Catalog, topics: LogTopics, consistency: str
) -> None:
    """The one case that a claim cannot see: a topic that a table has just made and not yet written to."""
    first = new_table(warehouse, options={"log.consistency": consistency})
    second = new_table(warehouse, options={"log.kafka.topic": topic_of(first)})
    ids_of = [table.schema.options["log.transactional-id.prefix"] for table in (first, second)]
    for _ in range(2):
        with pytest.raises(
            CorruptDataError, match=f"table_id={ids_of[0]} record_table_id={ids_of[1]} .*CALL sys.reset_log"
        ):
            first.write(id_rows([1]))
        second.write(id_rows([2]))
    assert ids_in(second) == ([2], [2], [2, 2])
    with pytest.raises(CorruptDataError, match="the topic has records of another table"):
        first.read(options=UNION)
    stream = Query(warehouse.warehouse, first.name)
    if consistency == "transactional":
        assert stream.available() == []  # it goes as far as the table
    else:
        with pytest.raises(CorruptDataError, match="the topic has records of another table"):
            stream.available()
    warehouse.drop_table(first.name)
    assert topics.find_topic(topic_of(second)) is not None
    second.write(id_rows([3]))


def test_the_fix_of_the_errors_exists(warehouse: Catalog, topics: LogTopics) -> None:
    table = new_table(warehouse)
    table.write(id_rows([1]))
    topics.delete_topic(topic_of(table))
    with pytest.raises(CorruptDataError, match=r"CALL sys\.reset_log"):
        table.write(id_rows([2]))
    reset_log(table)
    mended = warehouse.table(table.name)
    mended.write(id_rows([2]))
    assert ids_in(mended) == ([1, 2], [1, 2], [2])  # the new log begins with what is new


def test_a_copy_of_a_warehouse_is_refused_its_first_write(
    warehouse: Catalog, topics: LogTopics, tmp_path: Path, broker: Broker
) -> None:
    """It has the table's id, topic and key; the original continues, also while its writer is open, and when it goes."""
    table = new_table(warehouse)
    table.write(id_rows([1]))
    shutil.copytree(warehouse.warehouse, tmp_path / "copy")
    copied = catalog_at(tmp_path / "copy", broker).table(table.name)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=r"is a copy.*is_there=true.*CALL sys\.reset_log"):
            copied.write(id_rows([2], "of the copy"))
        with pytest.raises(InvalidInputError, match="the original is still there"):
            adopt_copy(copied)
        table.write(id_rows([3]))
    topic = topic_of(table)
    reset_log(copied, delete_former=True)
    copied = catalog_at(tmp_path / "copy", broker).table(table.name)
    copied.write(id_rows([4]))
    assert topics.find_topic(topic) is not None
    catalog_at(tmp_path / "copy", broker).drop_table(table.name)
    assert topics.find_topic(topic) is not None
    table.write(id_rows([5]))
    assert ids_in(table) == ([1, 3, 5], [1, 3, 5], [1, 3, 3, 5])


def test_a_copy_that_is_dropped_leaves_the_topic(
    warehouse: Catalog, topics: LogTopics, tmp_path: Path, broker: Broker
) -> None:
    table = new_table(warehouse)
    table.write(id_rows([1]))
    shutil.copytree(warehouse.warehouse, tmp_path / "copy")
    catalog_at(tmp_path / "copy", broker).drop_table(table.name)
    assert topics.find_topic(topic_of(table)) is not None
    table.write(id_rows([2]))


def test_a_restored_warehouse_continues_when_that_is_said(tmp_path: Path, broker: Broker) -> None:
    """A backup at another place, and the original is gone; a moved directory, a link and a rename need no word."""
    warehouse = catalog_at(tmp_path / "lake", broker)
    table = new_table(warehouse)
    table.write(id_rows([1]))
    shutil.copytree(warehouse.warehouse, tmp_path / "backup")
    shutil.rmtree(warehouse.warehouse)
    restored = catalog_at(tmp_path / "backup", broker)
    with pytest.raises(InvalidInputError, match=r"is a copy.*is_there=false.*CALL sys\.adopt_copy"):
        restored.table(table.name).write(id_rows([2]))
    assert adopt_copy(restored.table(table.name)).num_rows == 1
    restored.table(table.name).write(id_rows([2]))
    shutil.move(tmp_path / "backup", tmp_path / "moved")
    (tmp_path / "link").symlink_to(tmp_path / "moved")
    catalog_at(tmp_path / "moved", broker).table(table.name).write(id_rows([3]))
    linked = catalog_at(tmp_path / "link", broker)
    linked.table(table.name).write(id_rows([4]))
    linked.rename_table(table.name, "db.renamed")
    linked.table("db.renamed").write(id_rows([5]))
    assert ids_in(linked.table("db.renamed"))[0] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("policy", ["fail", "adopt"])
def test_nothing_is_adopted_from_a_copy_of_the_tables_directory(
    warehouse: Catalog, tmp_path: Path, broker: Broker, policy: str
) -> None:
    """Two that do not know of each other have the id and the topic; the files of a marker are only there once."""
    table = new_table(warehouse)
    table.write(id_rows([1]))
    shutil.copytree(warehouse.warehouse, tmp_path / "copy")
    copied = catalog_at(tmp_path / "copy", broker).table(table.name)
    note_places(copied.store.io, copied.store.paths.root)
    copied.write(id_rows([2], "of the copy"))
    snapshot = table.latest_snapshot()
    with pytest.raises(CorruptDataError, match=r"nothing of it was adopted.*missing=.*cause=a copy of the table's"):
        table.write(id_rows([3]), options={"log.on-orphan-batch": policy})
    assert table.latest_snapshot() == snapshot
    assert [row["id"] for row in table.read().to_arrow().to_pylist()] == [1]


def test_markers_of_earlier_versions_have_no_id_and_are_taken(
    warehouse: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(warehouse)
    with monkeypatch.context() as patch:
        encode = log_writer.encode_marker
        patch.setattr(log_writer, "encode_marker", lambda **given: encode(**{**given, "table_id": None}))
        table.write(id_rows([1]))
    table.write(id_rows([2]))
    assert ids_in(table) == ([1, 2],) * 3


def fallen_ill(
    table: Table, topics: LogTopics, kafka: KafkaProperties, warehouse: Catalog
) -> Iterator[tuple[str, str]]:
    """Faults of a topic one after the other, each with what is said about it."""
    topic = topic_of(table)
    stray(kafka, topic, 1)
    yield "stray record", "last record of the log has no marker"
    delete_records(kafka.by_name["bootstrap.servers"], topic, {1: -1})
    yield "mended", ""
    admin = kafka.admin(ErrorNotes())
    (future,) = admin.create_partitions([NewPartitions(topic, 3)]).values()
    future.result(30)
    eventually(lambda: topics.find_topic(topic).bucket_count, 3)
    yield "more partitions", "partitions=3 buckets=2"
    topics.delete_topic(topic)
    yield "gone", "topic is missing"
    topics.create_topic(topic, bucket_count=2)
    yield "made again", "deleted and recreated"


def test_the_doctor_and_verify_see_whatever_refuses_writers(
    warehouse: Catalog, topics: LogTopics, kafka: KafkaProperties, capsys: pytest.CaptureFixture[str]
) -> None:
    table = new_table(warehouse, options={"bucket": "2"})
    table.write(id_rows([1, 2, 3]))
    for fault, words in fallen_ill(table, topics, kafka, warehouse):
        capsys.readouterr()
        arguments = [table.name, "--warehouse", warehouse.warehouse, "--strict", "--json"]
        code = run_command(["doctor", *arguments])
        said = {each["check"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
        if not words:
            assert (code, said["topic"]["severity"]) == (0, "ok"), fault
            assert [each["problem"] for each in verify(table).to_pylist() if "begins=" not in each["problem"]] == []
            table.write(id_rows([4]))
            continue
        assert code == 1
        assert said["topic"]["severity"] == "critical", fault
        assert words in said["topic"]["fact"]
        assert any(words in each["problem"] for each in verify(table).to_pylist()), fault
        with pytest.raises(CorruptDataError, match=words):
            table.write(id_rows([5]))


def test_the_doctor_sees_the_records_of_another_table(warehouse: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    first = new_table(warehouse)
    new_table(warehouse, options={"log.kafka.topic": topic_of(first)})
    assert run_command(["doctor", first.name, "--warehouse", warehouse.warehouse, "--strict"]) == 1
    assert "the topic has records of another table" in capsys.readouterr().out


def stray(kafka: KafkaProperties, topic: str, bucket: int, value: bytes = b"x") -> None:
    producer = kafka.producer(ErrorNotes(), transactional_id=None)
    producer.produce(topic, value, partition=bucket)
    assert producer.flush(20) == 0
    producer.close()
