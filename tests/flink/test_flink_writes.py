"""A real Flink as a writer of our tables, in turn with us: with its sink of the log, and without."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from engine.broker.broker import Broker
from engine.procedures import reset_log
from engine.table import Table
from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.evolution.schema_change import SetOption
from filestore.options.flink_log import flink_reads_log
from lsm.errors import CorruptDataError
from tests.flink.flink_tables import (
    SMALL_STEPS,
    State,
    by_key,
    flink_table,
    in_table,
    in_tables,
    named_after,
    put_rows,
    topic_in_flink,
    union_of,
)
from tests.flink.test_flink_reads import KINDS
from tests.peers.flink import Change, Flink, replayed, rows_of_changes
from tests.support.clients import quiet_producer
from tests.support.streams import Query, Rows, as_foreign

_CHANGES: Mapping[str, str] = {"log_overwrite": "changes"}
CASES = {"upsert": _CHANGES, "eventual": {}, "json": _CHANGES, "exact": _CHANGES, "deletion-vectors": _CHANGES}


class Turns:
    """One table, its oracle, and four readers: our batch and stream, and Flink's."""

    def __init__(self, catalog: Catalog, flink: Flink, warehouse: Path, table: str = "db.t", **options: str) -> None:
        """Make the table."""
        self.table = flink_table(catalog, table, **options)
        self.name, self.flink = f"{flink.catalog(warehouse)}.{table}", flink
        self.expected: State = {}
        self.ours = Query(warehouse, table)
        self.seen: list[Change] = []

    def put_rows(self, rows: Mapping[int, str]) -> None:
        """Our turn."""
        put_rows(self.table, rows)
        self.changed(rows)

    def insert(self, rows: Mapping[int, str], *, beside_the_log: bool = False, in_batch: bool = False) -> None:
        """Flink's turn: a stream into the log too; a batch that writes files alone, or both."""
        hint = "/*+ OPTIONS('log.system'='none') */" if beside_the_log else ""
        self.flink.sql(insert_into(f"{self.name} {hint}", rows), streaming=not (beside_the_log or in_batch))
        self.changed(rows)

    def changed(self, rows: Mapping[int, str]) -> None:
        """Somebody has written rows: we see these, and once."""
        self.expected |= {(key,): (key, text) for key, text in rows.items()}
        news = self.changes()
        assert sorted((row["id"], row["v"]) for row in news if row["_row_kind"] != "-U") == sorted(rows.items())

    def changes(self) -> Rows:
        """What is new in our stream, which leads to what is in the table and expected."""
        news = self.ours.available()
        self.seen += [(row["_row_kind"], row["id"], row["v"]) for row in news]
        assert in_table(self.table) == self.expected
        assert rows_of_changes(self.seen) == self.expected
        return news


def insert_into(name: str, rows: Mapping[int, str]) -> str:
    """The statement."""
    return f"INSERT INTO {name} VALUES " + ", ".join(f"({key}, '{text}')" for key, text in rows.items())


@pytest.mark.long
def test_flink_and_fluvial_write_in_turn(catalog: Catalog, flink: Flink, broker: Broker, tmp_path: Path) -> None:
    """With Flink's sink of the log where its jobs follow the log, else without; the topic has what each makes of it.

    One job writes into a table of each kind, and one reads them.
    """
    turns = {
        case: Turns(catalog, flink, tmp_path, named_after(case), **KINDS[case], **more) for case, more in CASES.items()
    }
    tables = {case: each.table for case, each in turns.items()}

    def put(rows: Mapping[int, str]) -> None:
        for each in turns.values():
            each.put_rows(rows)

    def insert(rows: Mapping[int, str]) -> None:
        inserts = "; ".join(insert_into(each.name, rows) for each in turns.values())
        flink.sql(f"EXECUTE STATEMENT SET BEGIN {inserts}; END", streaming=True)
        for each in turns.values():
            each.changed(rows)

    put({1: "a", 2: "a", 3: "a"})
    query = union_of({case: f"{each.name} /*+ OPTIONS({SMALL_STEPS}) */" for case, each in turns.items()})
    with flink.stream(query) as stream:
        insert({2: "flink", 4: "flink"})
        put({3: "b", 5: "b"})
        insert({1: "again", 6: "again"})
        put({6: "c", 4: "c"})
        for table in tables.values():
            if not flink_reads_log(table.options):
                table.compact(full=True)
        stream.until(in_tables(tables), (0, 1))
    assert by_key(flink.sql(query), 2) == in_tables(tables)
    topics = union_of({case: topic_in_flink(flink, table, broker) for case, table in tables.items()})
    with flink.stream(topics) as stream:
        found = stream.until(in_tables(tables), (0, 1))
    exact = [(kind, *row) for kind, case, *row in found if case == "exact"]
    assert replayed(exact) == in_table(tables["exact"])


def test_what_flink_writes_beside_the_log_reaches_its_consumers_with_our_next_batch(
    catalog: Catalog, flink: Flink, tmp_path: Path
) -> None:
    """A job that follows the log gets the difference with ``log.overwrite=changes``; control records do it no harm."""
    turns = Turns(catalog, flink, tmp_path)
    turns.put_rows({1: "a", 2: "a"})
    with flink.stream(f"SELECT * FROM {turns.name}") as stream:
        stream.wait(lambda changes: rows_of_changes(changes) == turns.expected)
        turns.insert({2: "flink"}, beside_the_log=True)
        turns.put_rows({3: "b"})  # behind a control record
        stream.wait(lambda changes: (3,) in rows_of_changes(changes))
        turns.table = catalog.alter_table("db.t", [SetOption("log.overwrite", "changes")])
        turns.insert({4: "flink"}, beside_the_log=True)
        turns.put_rows({5: "b"})
        stream.wait(lambda changes: rows_of_changes(changes) == turns.expected)


def test_a_batch_insert_into_the_log_is_read_once_and_one_command_goes_on(
    catalog: Catalog, flink: Flink, broker: Broker, tmp_path: Path
) -> None:
    """It has no checkpoints, so Flink's producer does not wait, and the snapshot may leave out any of its records.

    Whether it did depends on the moment; a record behind its snapshot's offsets makes it certain.
    """
    turns = Turns(catalog, flink, tmp_path)
    turns.put_rows({1: "a", 2: "a"})
    turns.insert({key: "flink" for key in range(2, 40)}, in_batch=True)
    assert turns.table.latest_snapshot().commit_identifier == BATCH_IDENTIFIER
    producer = quiet_producer(broker.bootstrap_servers)
    for bucket in range(2):
        value = b'{"before":null,"after":{"id":39,"v":"flink"},"op":"c"}'
        producer.produce(turns.table.log.topic, value, key=b'{"id":39}', partition=bucket)
    producer.flush()
    with pytest.raises(CorruptDataError, match=r"CALL sys\.reset_log"):
        put_rows(turns.table, {4: "b"})
    reset_log(turns.table)
    turns.table = catalog.table("db.t")
    turns.put_rows({4: "b"})
    turns.insert({5: "again"})
    turns.put_rows({5: "c", 50: "c"})
    with flink.stream(f"SELECT * FROM {turns.name}") as stream:
        stream.wait(lambda changes: rows_of_changes(changes) == turns.expected)


def test_rows_that_a_stream_of_flink_deletes_are_gone_for_every_reader(
    catalog: Catalog, flink: Flink, tmp_path: Path
) -> None:
    """Its sink writes such a row as a record with a key and no value."""
    turns = Turns(catalog, flink, tmp_path)
    turns.put_rows({1: "a", 2: "a", 3: "a"})
    behind = Query(tmp_path, "db.t")
    behind.available()
    with flink.stream(f"SELECT * FROM {turns.name}") as stream:
        stream.wait(lambda changes: rows_of_changes(changes) == turns.expected)
        flink.sql(
            f"INSERT INTO {turns.name} SELECT id, MAX(v) FROM (VALUES (1, 'x'), (2, 'x'), (1, 'y')) AS given(id, v) "
            "GROUP BY id HAVING COUNT(*) < 2",
            streaming=True,
        )
        turns.expected = {(2,): (2, "x"), (3,): (3, "a")}
        at_once = [row for row in turns.changes() if row["_row_kind"] == "-D"]
        assert at_once == [{"id": 1, "v": "x", "_row_kind": "-D"}], "the end of a job is read from its files"
        turns.put_rows({3: "b"})
        late = [row for row in behind.available() if row["_row_kind"] == "-D"]
        assert late == [{"id": 1, "v": None, "_row_kind": "-D"}], "with our next batch it is a range of the log"
        stream.wait(lambda changes: rows_of_changes(changes) == turns.expected)


def test_delete_and_update_by_flink_are_seen_once_and_our_next_write_goes_on(
    catalog: Catalog, flink: Flink, tmp_path: Path
) -> None:
    """Both are of batch mode, and take no hints: `log.system` is left out for their time, and we keep our log."""
    turns = Turns(catalog, flink, tmp_path, log_overwrite="changes")
    turns.put_rows({1: "a", 2: "a", 3: "a"})
    with flink.stream(f"SELECT * FROM {turns.name}") as stream:
        stream.wait(lambda changes: rows_of_changes(changes) == turns.expected)
        flink.sql(f"ALTER TABLE {turns.name} RESET ('log.system')")
        flink.sql(f"DELETE FROM {turns.name} WHERE id = 1")
        flink.sql(f"UPDATE {turns.name} SET v = 'b' WHERE id = 2")
        turns.table = catalog.table("db.t")
        turns.expected = {(2,): (2, "b"), (3,): (3, "a")}
        assert sorted((row["_row_kind"], row["id"]) for row in turns.changes()) == [("+U", 2), ("-D", 1)]
        flink.sql(f"ALTER TABLE {turns.name} SET ('log.system'='kafka')")
        turns.table = catalog.table("db.t")
        turns.put_rows({4: "b"})
        stream.wait(lambda changes: rows_of_changes(changes) == turns.expected)


def test_a_job_begins_behind_our_batch_where_another_engine_left_no_offsets(
    catalog: Catalog, flink: Flink, tmp_path: Path
) -> None:
    """Paimon 1.4 and pypaimon commit without them: a job that begins there reads the log from its first record."""
    turns = Turns(catalog, flink, tmp_path)
    turns.put_rows({1: "a", 2: "a"})
    Table(turns.table.files.with_options({"log.system": "none"})).write(
        pa.table({"id": pa.array([1], pa.int32()), "v": ["java"]})
    )
    as_foreign(turns.table)
    turns.expected |= {(1,): (1, "java")}
    with flink.stream(f"SELECT * FROM {turns.name}") as too_early:
        emitted_again = [("-U", 1, "java"), ("+U", 1, "a")]
        assert too_early.wait(lambda changes: changes[-2:] == emitted_again)
    turns.changes()
    turns.put_rows({2: "b"})
    with flink.stream(f"SELECT * FROM {turns.name}") as stream:
        turns.put_rows({3: "b"})
        stream.wait(lambda changes: rows_of_changes(changes) == turns.expected)


def test_a_log_with_records_of_no_snapshot_is_replaced_by_one_command(
    catalog: Catalog, flink: Flink, broker: Broker, tmp_path: Path
) -> None:
    """As a job leaves it that dies between the two; new jobs find the new log without being changed."""
    turns = Turns(catalog, flink, tmp_path)
    turns.put_rows({1: "a", 2: "a"})
    turns.insert({3: "flink"})
    producer = quiet_producer(broker.bootstrap_servers)
    for bucket in range(2):
        value = b'{"before":null,"after":{"id":1,"v":"lost"},"op":"c"}'
        producer.produce(turns.table.log.topic, value, key=b'{"id":1}', partition=bucket)
    producer.flush()
    with pytest.raises(CorruptDataError, match=r"CALL sys\.reset_log"):
        turns.put_rows({4: "b"})
    reset_log(turns.table)
    turns.table = catalog.table("db.t")
    turns.put_rows({4: "b"})
    turns.insert({5: "flink"})
    turns.put_rows({3: "b"})
    with flink.stream(f"SELECT * FROM {turns.name}") as stream:
        turns.put_rows({6: "b"})
        stream.wait(lambda changes: rows_of_changes(changes) == turns.expected)


def test_a_table_made_by_flink_opens_with_its_log(
    catalog: Catalog, flink: Flink, new_topic: Callable[[int], str], broker: Broker, tmp_path: Path
) -> None:
    """It has Paimon's names only, and a topic that Flink has written to first."""
    topic, name = new_topic(2), f"{flink.catalog(tmp_path)}.db.made"
    catalog.create_database("db")
    flink.sql(
        f"CREATE TABLE {name} (id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket'='2', "
        f"'log.system'='kafka', 'kafka.bootstrap.servers'='{broker.bootstrap_servers}', 'kafka.topic'='{topic}', "
        "'kafka.transaction.timeout.ms'='900000')"
    )
    flink.sql(f"INSERT INTO {name} VALUES (1, 'flink'), (2, 'flink')", streaming=True)
    table = catalog.table("db.made")
    ours = Query(tmp_path, "db.made")
    put_rows(table, {2: "b", 3: "b"})
    assert table.log.topic == topic
    expected = {(1,): (1, "flink"), (2,): (2, "b"), (3,): (3, "b")}
    assert in_table(table) == expected
    assert len(ours.available()) == 3  # begins with the newest snapshot
    with flink.stream(f"SELECT * FROM {name}") as stream:
        put_rows(table, {4: "c"})
        stream.wait(lambda changes: rows_of_changes(changes) == expected | {(4,): (4, "c")})
