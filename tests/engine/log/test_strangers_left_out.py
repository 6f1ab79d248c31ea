"""No reader of a table delivers a record of another program, wherever in the log it lies; none of the table's is lost.

Today's writers commit nothing behind such a record, so the log of a writer of a time before is made by one without its
looks.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadMaxRows

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.cli.app import run_command
from engine.procedures import verify
from engine.request.read_keys import CHANGES_OPTION
from engine.spark.changes_reader import ChangesRequest, ChangesStreamReader, columns_of_changes
from filestore.diff.version_range import Bound
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.log import log_writer
from logstore.log.control_record import HEADER
from logstore.log.log_writer import BucketLogWriter
from logstore.log.marker import encode_marker
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError
from tests.support.logs import wait_for_log
from tests.support.rows import id_rows
from tests.support.streams import Query
from tests.support.tails import write_log_only
from tests.support.warehouses import new_table

pytestmark = pytest.mark.broker

EVIL = {
    "debezium-json": b'{"before":null,"after":{"id":9,"v":"evil"},"op":"c"}',
    "json": b'{"id":9,"v":"evil"}',
}
KINDS = {
    "upsert": {},
    "json": {"log.format": "json"},
    "exact": {"log.changelog-mode": "all", "changelog-producer": "lookup"},
    "without a key": {},
    "eventual": {"log.consistency": "eventual"},
}


def table_of_kind(tmp_path: Path, broker: Broker, kind: str) -> Table:
    warehouse = Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})
    if kind == "without a key":
        return new_table(warehouse, key=(), options={"bucket-key": "id"})
    return new_table(warehouse, options=KINDS[kind])


class Stranger:
    """With the right to write to the topic, and neither the table's files nor its key."""

    def __init__(self, kafka: KafkaProperties, table: Table, way: str) -> None:
        assert table.log is not None
        self.topic, self.way, self.table_id = table.log.topic, way, table.log.table_id
        self.value = EVIL.get(table.log.codec.log_format, EVIL["debezium-json"])
        is_in_transaction = way in ("in a transaction", "around a batch")
        self.producer: Producer = kafka.producer(
            ErrorNotes(), transactional_id=f"stranger.{self.topic}" if is_in_transaction else None
        )
        if is_in_transaction:
            self.producer.init_transactions(20)

    def send(self) -> None:
        """One row; in a transaction that is open behind it, if that is its way."""
        if self.way in ("in a transaction", "around a batch"):
            self.producer.begin_transaction()
        self.producer.produce(self.topic, self.value, key=b'{"id":9}', partition=0, headers=self._headers())
        assert self.producer.flush(20) == 0
        if self.way == "in a transaction":
            self.producer.commit_transaction(20)

    def end(self) -> None:
        if self.way == "around a batch":
            self.producer.commit_transaction(20)

    def _headers(self) -> list[tuple[str, bytes]]:
        if self.way != "with a marker":
            return [("other", b"header")]
        forged = encode_marker(
            query="q", batch=9, row_count=1, start_offset=None, is_final=True, payload=b"", is_pointer=False,
            table_id=self.table_id,
        )  # fmt: skip
        return [(HEADER, forged)]


UNION = {"scan.log.union": "true"}
WAYS = ["plain", "in a transaction", "around a batch", "with a marker"]


@pytest.fixture
def of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers that look neither whether their rows come where their last look left off, nor for open transactions."""
    encode = log_writer.encode_marker
    monkeypatch.setattr(log_writer, "encode_marker", lambda **given: encode(**{**given, "end_offset": None}))
    monkeypatch.setattr(log_writer, "settled_tail", lambda read, place, clock: read())
    monkeypatch.setattr(BucketLogWriter, "_check_unbroken", lambda self, transaction: None)


@pytest.fixture
def behind_the_fence(monkeypatch: pytest.MonkeyPatch) -> Callable[[Stranger], None]:
    """Lets a stranger send between the next batch's fence and its first row."""
    begin = BucketLogWriter.begin

    def sends_next(stranger: Stranger) -> None:
        def intrude(self: BucketLogWriter, **given: Any) -> None:
            monkeypatch.setattr(BucketLogWriter, "begin", begin)
            stranger.send()
            begin(self, **given)

        monkeypatch.setattr(BucketLogWriter, "begin", intrude)

    return sends_next


def ids_of_rows(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stranger_among_rows_of_before_is_left_out_and_counted(
    tmp_path: Path,
    broker: Broker,
    kafka: KafkaProperties,
    of_before: None,
    behind_the_fence: Callable[[Stranger], None],
    kind: str,
    way: str,
) -> None:
    table = table_of_kind(tmp_path, broker, kind)
    query = Query(tmp_path, table.name)
    late = Query(tmp_path, table.name, **{"log.scan": "from-timestamp", "log.scan.timestamp-mills": "0"})
    pieces = Query(tmp_path, table.name, **{"read.stream.maxRowsPerTrigger": "1"})
    stranger = Stranger(kafka, table, way)
    for batch in ([1, 2], [3], [4, 5, 6]):
        behind_the_fence(stranger)
        table.write(id_rows(batch))
        stranger.end()
    table.write(id_rows([7, 8]))
    wait_for_log(table, table.store.log_offsets_at(table.latest_snapshot()) or {})
    assert ids_of_rows(query.available()) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert ids_of_rows(late.available()) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert ids_of_rows(pieces.available()) == [1, 2, 3, 4, 5, 6, 7, 8]
    (found,) = verify(table, rows=True).to_pylist()
    assert "records=3 first_offset=0 " in found["problem"]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("way", ["plain", "in a transaction", "with a marker"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stranger_at_the_end_reaches_no_reader_and_stops_writers(
    tmp_path: Path, broker: Broker, kafka: KafkaProperties, kind: str, way: str
) -> None:
    table = table_of_kind(tmp_path, broker, kind)
    query = Query(tmp_path, table.name)
    table.write(id_rows([1, 2]))
    write_log_only(table, id_rows([3]))
    before = table.log_end_offsets()
    Stranger(kafka, table, way).send()
    wait_for_log(table, {0: before[0] + 1})
    assert ids_of_rows(query.available()) == ([1, 2, 3] if kind == "eventual" else [1, 2])
    if kind != "without a key":
        assert sorted(ids_of_rows(table.read(options=UNION).to_arrow().to_pylist())) == [1, 2, 3]
    assert " records=1 " in str(verify(table, rows=True).to_pylist())
    with pytest.raises(FluvialError):
        table.write(id_rows([4]))
    assert 9 not in ids_of_rows(query.available())


HOSTILE_HEADERS = [
    b"[" * 100_000, b'{"a":' * 100_000, b"[1]", b"5", b"\xff\xfe", b"", b'{"version": 1e999}',
    b'{"version": ' + b"9" * 5000 + b"}",
    b'{"version": 1, "query": "q", "batch": 1e999, "rows": 1, "start": 0, "final": true, "pointer": false}',
    b'{"version": 1, "query": "q", "batch": 2, "rows": 1, "start": 0, "final": true, "pointer": "../../x"}',
]  # fmt: skip
HOSTILE_VALUES = [None, b"", b"\xff", b"[" * 100_000, b'{"after":' * 100_000, b"x" * 900_000, b'{"id":1e999}']


@pytest.mark.parametrize("kind", ["upsert", "without a key", "eventual"])
def test_records_of_any_form_reach_no_reader(
    tmp_path: Path, broker: Broker, kafka: KafkaProperties, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Headers that are no marker, and values that are no row, up to the largest that a topic takes."""
    table = table_of_kind(tmp_path, broker, kind)
    query = Query(tmp_path, table.name)
    servers = {"log.kafka.bootstrap.servers": broker.bootstrap_servers}
    table.write(id_rows([1, 2]))
    before, stranger = table.log_end_offsets(), Stranger(kafka, table, "plain")
    sent = [(header, EVIL["json"]) for header in HOSTILE_HEADERS] + [(None, value) for value in HOSTILE_VALUES]
    for header, value in sent:
        headers = [] if header is None else [(HEADER, header)]
        stranger.producer.produce(stranger.topic, value, key=b"[" * 1000, partition=0, headers=headers)
    assert stranger.producer.flush(60) == 0
    wait_for_log(table, {0: before[0] + len(sent)})
    assert ids_of_rows(query.available()) == [1, 2]
    assert sorted(ids_of_rows(table.read().to_arrow().to_pylist())) == [1, 2]
    refused: list[str] = []
    for read in (
        lambda: changes_by(table, servers, **{"streaming-read-mode": "log"}),
        lambda: [row["id"] for each in table.stream("full", idle_s=0) for row in each.rows.to_pylist()],
        lambda: ids_of_rows(table.read(options=UNION).to_arrow().to_pylist()),
        lambda: rows_of_copy(table),
    ):
        try:
            assert sorted(read()) == [1, 2]
        except CorruptDataError as error:
            refused.append(str(error))
        except InvalidInputError:
            assert kind == "without a key", "it has no union with its log, and no copies"
    assert len(refused) < 4
    assert all(f"topic={stranger.topic} " in each for each in refused)
    assert f" records={len(sent)} " in str(verify(table, rows=True).to_pylist())
    place = [
        "--warehouse",
        str(tmp_path),
        "--catalog-option",
        f"log.kafka.bootstrap.servers={broker.bootstrap_servers}",
    ]
    run_command(["tail", table.name, *place, "--from", "timestamp.2020-01-01"])
    assert "evil" not in capsys.readouterr().out
    with pytest.raises(CorruptDataError):
        table.write(id_rows([4]))


def rows_of_copy(table: Table) -> list[int]:
    with table.live() as live:
        return [row["id"] for row in live.rows()]


def changes_by(table: Table, catalog_options: dict[str, str], **options: str) -> list[int]:
    """Ids that a stream of ``CHANGES`` from the first version on delivers, read from the log."""
    warehouse = str(Path(table.store.paths.root).parents[1])
    request = ChangesRequest(start=Bound(version="1"))
    given = {"warehouse": warehouse, "table": table.name, CHANGES_OPTION: request.to_option(), **options}
    reader = ChangesStreamReader({**given, **catalog_options}, columns_of_changes(table.files, ChangesRequest()))
    here, found = reader.initialOffset(), []
    while (end := reader.latestOffset(here, ReadMaxRows(2**31))) != here:
        for part in reader.partitions(here, end):
            found += [row["id"] for batch in reader.read(part) for row in batch.to_pylist()]
        here = end
    return found


@pytest.mark.sampled(8)
@pytest.mark.parametrize("way", ["plain", "around a batch", "with a marker"])
@pytest.mark.parametrize("kind", KINDS)
def test_consumers_of_sql_and_copies_get_no_strangers_record(
    tmp_path: Path,
    broker: Broker,
    kafka: KafkaProperties,
    of_before: None,
    behind_the_fence: Callable[[Stranger], None],
    kind: str,
    way: str,
) -> None:
    """CHANGES as a batch and as streams of both modes, streams of the system tables, iterators, copies, differences."""
    table = table_of_kind(tmp_path, broker, kind)
    servers = {"log.kafka.bootstrap.servers": broker.bootstrap_servers}
    table.write(id_rows([1]))
    audit = Query(tmp_path, f"{table.name}$audit_log", with_kinds=False)
    stranger = Stranger(kafka, table, way)
    for batch in ([2], [3, 4]):
        behind_the_fence(stranger)
        table.write(id_rows(batch))
        stranger.end()
    table.write(id_rows([5]))
    wait_for_log(table, table.store.log_offsets_at(table.latest_snapshot()) or {})
    whole = [1, 2, 3, 4, 5]
    assert ids_of_rows(audit.available()) == whole
    for mode in ("file", "log"):
        assert changes_by(table, servers, **{"streaming-read-mode": mode}) == whole
    followed = [row for each in table.stream("full", idle_s=0) for row in each.rows["id"].to_pylist()]
    assert sorted(followed) == whole
    assert sorted(ids_of_rows(table.read(options={"incremental-between": "1,3"}).to_arrow().to_pylist())) == [2, 3, 4]
    if kind != "without a key":
        with table.live() as live:
            assert sorted(row["id"] for row in live.rows()) == whole


def test_the_command_line_follows_without_a_strangers_record(
    tmp_path: Path,
    broker: Broker,
    kafka: KafkaProperties,
    of_before: None,
    behind_the_fence: Callable[[Stranger], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = table_of_kind(tmp_path, broker, "upsert")
    table.write(id_rows([1]))
    behind_the_fence(Stranger(kafka, table, "plain"))
    table.write(id_rows([2]))
    servers = f"log.kafka.bootstrap.servers={broker.bootstrap_servers}"
    place = ["--warehouse", str(tmp_path), "--catalog-option", servers]
    assert run_command(["tail", table.name, *place, "--from", "timestamp.2020-01-01"]) == 0
    shown = capsys.readouterr().out
    assert "evil" not in shown
    assert shown.count('"v"') == 2
