"""A marker that a stranger wrote to the topic brings no file into the table: markers are signed by the table's key."""

import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.cli.app import run_command
from engine.log.bucket_log import PAYLOAD_DIRECTORY
from engine.monitor.doctor import diagnose, examine
from engine.monitor.symptom import Severity, Symptom
from engine.procedures import reset_log, sign_log
from engine.versions.branches import create_branch
from filestore.evolution.schema_change import SetOption
from filestore.layout.log_key import remove_log_key
from filestore.options.log_place import MARKER_KEY_KEY
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.log.control_record import HEADER
from logstore.log.marker import CommitMarker, encode_marker
from logstore.log.marker_key import MarkerKey
from lsm.errors import ConflictError, CorruptDataError, FluvialError, InvalidInputError
from tests.support.logs import log_changes, wait_for_log, write_without_commit
from tests.support.rows import id_rows
from tests.support.warehouses import new_table

pytestmark = pytest.mark.broker

OTHER_BATCH = r"names a file of another one, nothing of it was adopted: .*file='data-.*log-key/.*reset_log"
NOT_OURS = r"not the table's, its marker is not signed by the table's key: .*reset_log"
ADOPT = {"log.on-orphan-batch": "adopt"}
UNION = {"scan.log.union": "true"}


@pytest.fixture
def warehouse(tmp_path: Path, broker: Broker) -> Catalog:
    return Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})


def as_of_before(catalog: Catalog) -> Table:
    """A table that an earlier version made, whose log has no key."""
    made = new_table(catalog)
    path = Path(f"{made.store.paths.root}/schema/schema-0")
    body = json.loads(path.read_text())
    remove_log_key(made.store.io, made.store.paths.root, body["options"].pop(MARKER_KEY_KEY))
    path.write_text(json.dumps(body))
    return catalog.table(made.name)


def ids_in(table: Table) -> list[int]:
    return sorted(table.read().to_arrow()["id"].to_pylist())


def last_marker(table: Table) -> CommitMarker:
    assert table.log is not None
    marker = table.log.fence_all()[0].marker
    assert marker is not None
    return marker


def send_marker(kafka: KafkaProperties, table: Table, header: bytes) -> None:
    """By one who has nothing but the right to write to the topic."""
    assert table.log is not None
    producer = kafka.producer(ErrorNotes(), transactional_id=None)
    value = json.dumps({"before": None, "after": {"id": 1, "v": "x"}, "op": "c"}).encode()
    producer.produce(table.log.topic, value, key=b'{"id":1}', partition=0, headers=[(HEADER, header)])
    assert producer.flush(20) == 0
    producer.close()


def with_a_deleted_row(table: Table) -> CommitMarker:
    """Key 1 is written and deleted; its first file is still on disk. The marker that names that file."""
    table.write(id_rows([1]))
    first = last_marker(table)
    table.write(id_rows([1]), kinds=pa.array(["-D"]))
    table.write(id_rows([2]))
    table.compact(full=True)
    return first


def forged(table: Table, marker: CommitMarker, key: MarkerKey | None, **changes: object) -> bytes:
    """The files of a batch once more, under another name."""
    assert table.log is not None
    given: dict[str, object] = {
        "query": "stranger", "batch": 0, "row_count": 1, "start_offset": None, "is_final": True, "is_pointer": False,
        "payload": marker.payload, "table_id": table.log.table_id, "after": 10**6, "bucket": 0,
    }  # fmt: skip
    return encode_marker(**given | changes, key=key)  # type: ignore[arg-type]


def topic_check(table: Table) -> Symptom:
    return next(each for each in diagnose(examine(table)) if each.check == "topic")


def check_refused(table: Table) -> None:
    """Neither a writer that adopts nor one that does not takes it; the doctor says so; the files can be read."""
    before = (table.latest_snapshot(), ids_in(table))
    for options in ({}, ADOPT):
        with pytest.raises(CorruptDataError, match=NOT_OURS):
            table.write(id_rows([3]), options=options)
    found = topic_check(table)
    assert (found.severity, re.search(NOT_OURS, found.fact) is not None) == (Severity.CRITICAL, True)
    assert (table.latest_snapshot(), ids_in(table)) == before
    reset_log(table)  # the way out that the error names
    table.write(id_rows([3]))
    assert ids_in(table) == [2, 3]


def marker_key(table: Table) -> MarkerKey:
    assert table.log is not None
    assert table.log.key is not None
    return table.log.key


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["unsigned", "other key", "other bucket", "payload changed", "line changed"])
def test_a_forged_marker_brings_nothing_in(warehouse: Catalog, kafka: KafkaProperties, how: str) -> None:
    table = new_table(warehouse)
    assert Path(f"{table.store.paths.root}/log-key/{table.schema.options[MARKER_KEY_KEY]}").is_file()
    first = with_a_deleted_row(table)
    key = marker_key(table)
    header = {
        "unsigned": forged(table, first, None),
        "other key": forged(table, first, replace(key, secret=b"0" * 32)),
        "other bucket": forged(table, first, key, bucket=1),
        "payload changed": forged(table, first, key) + b" ",
        "line changed": forged(table, first, key).replace(b'"stranger"', b'"strangers"'),
    }[how]
    send_marker(kafka, table, header)
    check_refused(warehouse.table(table.name))


def test_a_signed_marker_of_before_brings_nothing_in_again(warehouse: Catalog, kafka: KafkaProperties) -> None:
    """A stranger can copy a whole record, with its signature; what it says of the bucket's end is from before."""
    table = new_table(warehouse)
    first = with_a_deleted_row(table)
    send_marker(
        kafka, table, forged(table, first, marker_key(table), after=first.after, query=first.query, batch=first.batch)
    )
    before = table.latest_snapshot()
    with pytest.raises(CorruptDataError, match=r"a copy of an earlier one: .*written_after=0 table_end=.*reset_log"):
        table.write(id_rows([3]), options=ADOPT)
    assert (table.latest_snapshot(), ids_in(table)) == (before, [2])


def test_a_log_without_a_key_takes_no_file_of_another_batch(warehouse: Catalog, kafka: KafkaProperties) -> None:
    """Any marker counts in an older table, but the names of its files say of which batch they are."""
    table = as_of_before(warehouse)
    first = with_a_deleted_row(table)
    found = topic_check(table)
    assert (found.severity, "sign-log" in str(found.fix)) == (Severity.NOTE, True)
    send_marker(kafka, table, forged(table, first, None))
    with pytest.raises(CorruptDataError, match=OTHER_BATCH):
        table.write(id_rows([3]), options=ADOPT)
    assert ids_in(table) == [2]


@pytest.mark.parametrize("is_pointer", [False, True])
def test_who_has_the_key_cannot_take_the_place_of_the_next_batch(
    warehouse: Catalog, kafka: KafkaProperties, is_pointer: bool
) -> None:
    """A reader of the files and writer of the topic: number 2 was acknowledged, and its row was lost."""
    table = new_table(warehouse)
    with table.writer("gw") as writer:
        writer.write(id_rows([1]), number=1).result(60)
    marker = last_marker(table)
    taken: dict[str, object] = {"query": "gw", "batch": 2, "after": marker.end_offset}
    if is_pointer:
        place = f"{PAYLOAD_DIRECTORY}/{'0' * 32}"
        table.store.io.write_new(f"{table.store.paths.root}/{place}", marker.payload)
        taken |= {"payload": place.encode(), "is_pointer": True}
    send_marker(kafka, table, forged(table, marker, marker_key(table), **taken))
    writer = table.writer("gw", timeout_s=1)
    done = writer.write(id_rows([3]), number=2)
    with pytest.raises(CorruptDataError, match=OTHER_BATCH):
        done.result(60)
    with suppress(FluvialError):
        writer.close()
    assert (ids_in(table), table.latest_snapshot()) == ([1], warehouse.table(table.name).latest_snapshot())
    reset_log(table)  # the way out that the error names
    with warehouse.table(table.name).writer("gw") as again:
        again.write(id_rows([3]), number=2).result(60)
    assert ids_in(table) == [1, 3]


def test_a_copied_marker_brings_no_row_of_another_into_a_batch_that_waits(
    warehouse: Catalog, kafka: KafkaProperties
) -> None:
    """No snapshot has the batch yet, so its copy is of no earlier one; the rows before it were taken for its rows."""
    table = new_table(warehouse)
    table.write(id_rows([1]))
    write_without_commit(table, 0, id_rows([2]))
    assert table.log is not None
    marker = last_marker(table)
    consumer = kafka.consumer(ErrorNotes())
    consumer.assign([TopicPartition(table.log.topic, 0, marker.end_offset - 1)])
    headers = consumer.consume(1, 20)[0].headers()
    consumer.close()
    send_marker(kafka, table, dict(headers)[HEADER])
    with pytest.raises(CorruptDataError, match=r"a copy of an earlier one: .*written_at=.*reset_log"):
        table.write(id_rows([3]), options=ADOPT)
    assert ids_in(table) == [1]


def test_an_older_table_gets_a_key_by_one_command(
    warehouse: Catalog, kafka: KafkaProperties, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its old records stay readable, and who has it open goes on with the key; from then on as a new table."""
    table = as_of_before(warehouse)
    first = with_a_deleted_row(table)
    opened = warehouse.table(table.name)
    servers = f"log.kafka.bootstrap.servers={kafka.by_name['bootstrap.servers']}"
    assert (
        run_command(
            ["log", "sign", table.name, "--warehouse", warehouse.warehouse, "--json", "--catalog-option", servers]
        )
        == 0
    )
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["is_new"] is True
    assert sign_log(table).to_pylist() == [row | {"is_new": False}]
    opened.write(id_rows([4]))
    now = warehouse.table(table.name)
    assert (ids_in(now), last_marker(now).after is not None) == ([2, 4], True)
    assert [each["id"] for _, each in log_changes(now)] == [1, 1, 2, 4]
    assert topic_check(now).severity is Severity.OK
    now.write(id_rows([4]), kinds=pa.array(["-D"]))
    send_marker(kafka, now, forged(now, first, None))
    check_refused(now)


def test_a_key_waits_for_a_batch_that_is_in_the_log_alone(warehouse: Catalog) -> None:
    """It has the marker of before; its writer, or one that adopts it, comes first."""
    table = as_of_before(warehouse)
    table.write(id_rows([1]))
    write_without_commit(table, 0, id_rows([2]))
    with pytest.raises(ConflictError, match="a batch is in the log and not in the table"):
        sign_log(table)
    assert list(Path(table.store.paths.root).glob("log-key/*")) == []
    table.write(id_rows([3]), options=ADOPT)
    sign_log(warehouse.table(table.name))
    assert ids_in(warehouse.table(table.name)) == [1, 2, 3]


def test_a_batch_with_a_key_is_adopted(warehouse: Catalog) -> None:
    """As ever: the table's own dead writer. A union read has its rows before."""
    table = new_table(warehouse)
    table.write(id_rows([1]))
    write_without_commit(table, 0, id_rows([2]))
    assert sorted(table.read(options=UNION).to_arrow()["id"].to_pylist()) == [1, 2]
    table.write(id_rows([3]), options=ADOPT)
    assert ids_in(table) == [1, 2, 3]
    wait_for_log(table, {0: 5})


def test_a_lost_key_is_said_and_a_new_topic_helps(warehouse: Catalog) -> None:
    table = new_table(warehouse)
    table.write(id_rows([1]))
    remove_log_key(table.store.io, table.store.paths.root, table.schema.options[MARKER_KEY_KEY])
    found = warehouse.table(table.name)
    with pytest.raises(CorruptDataError, match=r"key of the log is missing: table=.* log\.marker-key=.*reset_log"):
        found.write(id_rows([2]))
    assert "key of the log is missing" in topic_check(found).fact
    reset_log(found)
    warehouse.table(table.name).write(id_rows([2]))
    assert ids_in(table) == [1, 2]


def test_each_topic_has_a_key_of_its_own(warehouse: Catalog) -> None:
    """That of a table, of its branch, and the one that replaces it. None is shown, or set by a user."""
    table = new_table(warehouse)
    table.write(id_rows([1]))
    create_branch(table.store, "b", log=True)
    branch = warehouse.table(table.name, branch="b")
    branch.write(id_rows([2]))
    reset_log(table)
    keys = [marker_key(each) for each in (table, branch, warehouse.table(table.name))]
    assert len({key.secret for key in keys}) == 3
    assert not any(str(key.secret) in repr(each.log) for key, each in zip(keys, (table, branch), strict=False))
    with pytest.raises(InvalidInputError, match=r"log\.marker-key"):
        warehouse.alter_table(table.name, [SetOption(MARKER_KEY_KEY, "x")])
