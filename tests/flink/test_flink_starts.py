"""Where a job of a real Flink may begin: at each kind of offset of a topic, and in each mode of a scan of the table."""

import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from engine import Catalog
from engine.broker.broker import Broker
from engine.table import Table
from logstore.kafka.clients import ErrorNotes
from tests.flink.flink_tables import SMALL_STEPS, flink_table, in_table, put_rows, topic_in_flink, union_of
from tests.peers.flink import WAIT_S, Flink, FlinkStream, PeerError, rows_of_changes

LATE = 100
"""Keys from here on are written while the jobs that begin at the end wait for their first row."""
Start = Callable[[Table], str]


def millis(snapshot_id: int) -> Start:
    """The moment after a snapshot, before the records of the next."""
    return lambda table: str(table.store.snapshots.read(snapshot_id).time_ms + 1)


def offsets(snapshot_id: int) -> Start:
    """As the connector of topics takes them."""

    def text(table: Table) -> str:
        found = table.store.snapshots.read(snapshot_id).log_offsets
        return ";".join(f"partition:{bucket},offset:{offset}" for bucket, offset in sorted(found.items()))

    return text


TOPIC: Mapping[str, tuple[Mapping[str, str | Start], set[int]]] = {
    "earliest-offset": ({}, {1, 2, 3}),
    "specific-offsets": ({"scan.startup.specific-offsets": offsets(1)}, {2, 3}),
    "timestamp": ({"scan.startup.timestamp-millis": millis(2)}, {3}),
    "group-offsets": ({"properties.group.id": "flink-starts"}, {2, 3}),
    "latest-offset": ({}, set()),
}
"""By ``scan.startup.mode``: other options, and the keys in the topic that a job gets."""
LOG: Mapping[str, tuple[Mapping[str, str | Start], set[int]]] = {
    "latest-full": ({}, {1, 2, 3}),
    "from-timestamp": ({"scan.timestamp-millis": millis(2)}, {3}),
    "latest": ({}, set()),
}
"""The same by ``scan.mode`` of a table with a log, FLIP-188's ``log.scan``."""
FILES: Mapping[str, tuple[Mapping[str, str | Start], set[int]]] = {
    **LOG,
    "from-snapshot": ({"scan.snapshot-id": "2"}, {2, 3}),
    "from-snapshot-full": ({"scan.snapshot-id": "2"}, {1, 2, 3}),
    "compacted-full": ({}, {1, 2, 3}),
}
"""The same of a job that follows the files."""


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Three commits, some milliseconds apart."""
    found = flink_table(catalog)
    for key in (1, 2, 3):
        put_rows(found, {key: "a", key + 10: "a"})
        time.sleep(0.02)
    return found


def test_a_job_begins_at_each_kind_of_offset(table: Table, catalog: Catalog, flink: Flink, broker: Broker) -> None:
    """What is written later reaches all of them."""
    consumer = table.log.properties.consumer(ErrorNotes(), **{"group.id": "flink-starts"})
    first = table.store.snapshots.read(1).log_offsets
    consumer.commit(offsets=[TopicPartition(table.log.topic, *each) for each in first.items()], asynchronous=False)
    consumer.close()
    name = topic_in_flink(flink, table, broker)
    begin_and_go_on(table, flink, name, {mode: ("scan.startup.mode", *given) for mode, given in TOPIC.items()})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("follows", ["log", "files"])
def test_a_job_begins_in_each_mode_of_a_scan(follows: str, table: Table, flink: Flink, tmp_path: Path) -> None:
    """From a snapshot on a job reads the files, and the connector says so."""
    name = f"{flink.catalog(tmp_path)}.db.t"
    if follows == "files":
        table.compact(full=True)
        flink.sql(f"ALTER TABLE {name} RESET ('log.system')")
    starts = LOG if follows == "log" else FILES
    if follows == "log":
        for mode in FILES.keys() - LOG.keys() - {"compacted-full"}:
            with pytest.raises(PeerError, match="Log system does not support"):
                flink.sql(f"SELECT * FROM {name} /*+ OPTIONS('scan.mode'='{mode}', 'scan.snapshot-id'='2') */")
    begin_and_go_on(table, flink, name, {mode: ("scan.mode", *given) for mode, given in starts.items()})


def begin_and_go_on(
    table: Table, flink: Flink, name: str, starts: Mapping[str, tuple[str, Mapping[str, str | Start], set[int]]]
) -> None:
    """Read the table from each start, in one job: what each gets, and that it gets all that comes."""
    sources = {}
    for mode, (option, more, _) in starts.items():
        given = {key: each if isinstance(each, str) else each(table) for key, each in more.items()}
        texts = ", ".join(f"'{key}'='{text}'" for key, text in {option: mode, **given}.items())
        sources[mode] = f"{name} /*+ OPTIONS({texts}{f', {SMALL_STEPS}' if option == 'scan.mode' else ''}) */"
    first = {(mode, key) for mode, (_, _, keys) in starts.items() for each in keys for key in (each, each + 10)}
    with flink.stream(union_of(sources)) as stream:
        stream.wait(lambda changes: {row[1:3] for row in changes} == first)
        last = write_until_all_follow(table, stream, set(starts))
        found = stream.wait(lambda changes: {row[1] for row in changes if row[2:] == (last, "last")} == set(starts))
    rows = {key: row for key, row in rows_of_changes(found, (0, 1)).items() if int(str(key[1])) < LATE}
    state = in_table(table)
    assert rows == {(mode, key): (mode, *state[(key,)]) for mode, key in first}


def write_until_all_follow(table: Table, stream: FlinkStream, modes: set[str]) -> int:
    """When a source that begins at the end has begun is known by its first row; the key of a row that is after it."""
    deadline = time.monotonic() + WAIT_S
    for key in count(LATE):
        put_rows(table, {key: "late"})
        if {row[1] for row in stream.changes} == modes:
            put_rows(table, {key + 1: "last"})
            return key + 1
        assert time.monotonic() < deadline, modes - {row[1] for row in stream.changes}
        time.sleep(0.1)
    raise AssertionError("not reached")
