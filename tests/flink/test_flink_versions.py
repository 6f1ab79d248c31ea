"""What a real Flink sees of a table whose schema, brokers, buckets and history change."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from engine.broker.broker import Broker
from engine.procedures import create_branch, create_tag, expire_snapshots, rescale
from filestore.evolution.schema_change import AddColumn, SetOption
from filestore.types.data_types import DataType
from tests.flink.flink_tables import SMALL_STEPS, by_key, flink_table, in_table, put_rows
from tests.peers.flink import Flink, replayed, rows_of_changes


def test_a_job_goes_on_while_columns_are_added_files_are_compacted_and_snapshots_expire(
    catalog: Catalog, flink: Flink, tmp_path: Path
) -> None:
    """On the log it needs no snapshot; on the files a consumer keeps those that it has still to read."""
    table, name = flink_table(catalog, consumer_expiration__time="1 d"), f"{flink.catalog(tmp_path)}.db.t"
    put_rows(table, {1: "a", 2: "a"})
    files = f"'log.system'='none', 'consumer-id'='flink', {SMALL_STEPS}"
    with (
        flink.stream(f"SELECT * FROM {name}") as on_log,
        flink.stream(f"SELECT * FROM {name} /*+ OPTIONS({files}) */") as on_files,
    ):
        for stream in (on_log, on_files):
            stream.wait(lambda changes: rows_of_changes(changes) == in_table(table))
        catalog.alter_table("db.t", [AddColumn(path=("more",), type=DataType(root="INT"))])
        table = catalog.table("db.t")
        table.write(
            pa.table({"id": pa.array([2, 3], pa.int32()), "v": ["b", "b"], "more": pa.array([1, 1], pa.int32())})
        )
        table.compact(full=True)
        expire_snapshots(table, retain_max=1, retain_min=1)
        put_rows(table, {4: "c"})
        columns_of_the_job = {key: row[:2] for key, row in in_table(table).items()}
        for stream in (on_log, on_files):
            stream.wait(lambda changes: rows_of_changes(changes) == columns_of_the_job)
    assert "flink" in table.store.consumers.next_snapshots()


def test_a_moved_broker_and_a_new_topic_are_found_by_the_next_job(
    catalog: Catalog, flink: Flink, broker: Broker, tmp_path: Path
) -> None:
    """ALTER by either side: there is one name for it, so both use it."""
    table, name = flink_table(catalog), f"{flink.catalog(tmp_path)}.db.t"
    put_rows(table, {1: "a"})
    address = broker.bootstrap_servers.replace("127.0.0.1", "localhost")
    flink.sql(f"ALTER TABLE {name} SET ('kafka.bootstrap.servers'='{address}')")
    table = catalog.table("db.t")
    assert table.options.log_kafka["bootstrap.servers"] == address
    catalog.alter_table("db.t", [SetOption("log.kafka.bootstrap.servers", broker.bootstrap_servers)])
    assert address not in str(flink.sql(f"SHOW CREATE TABLE {name}"))
    rescale(catalog.table("db.t"), bucket_num=3)
    table = catalog.table("db.t")
    with flink.stream(f"SELECT * FROM {name}") as stream:
        stream.wait(lambda changes: rows_of_changes(changes) == in_table(table))
        put_rows(table, {key: "b" for key in range(9)})
        stream.wait(lambda changes: rows_of_changes(changes) == in_table(table))


@pytest.mark.long
def test_a_rescale_under_jobs_that_run(catalog: Catalog, flink: Flink, tmp_path: Path) -> None:
    """A job on the files goes on. One on the log stays at the old topic, which ends whole; the next job goes on."""
    files, log = flink_table(catalog, "db.files", log_format="json"), flink_table(catalog, "db.log")
    names = {each.name: f"{flink.catalog(tmp_path)}.{each.name}" for each in (files, log)}
    for table in (files, log):
        put_rows(table, {key: "a" for key in range(6)})
    with (
        flink.stream(f"SELECT * FROM {names[files.name]} /*+ OPTIONS({SMALL_STEPS}) */") as on_files,
        flink.stream(f"SELECT * FROM {names[log.name]}") as on_log,
    ):
        put_rows(log, {3: "b"})
        before = in_table(log)
        for stream, table in ((on_files, files), (on_log, log)):
            stream.wait(lambda changes, table=table: rows_of_changes(changes) == in_table(table))  # type: ignore[misc]
            rescale(table, bucket_num=3)
        files, log = catalog.table("db.files"), catalog.table("db.log")
        for table in (files, log):
            put_rows(table, {key: "c" for key in range(4, 9)})
        found = on_files.wait(lambda changes: rows_of_changes(changes) == in_table(files))
        assert replayed(found) == in_table(files)
        with flink.stream(f"SELECT * FROM {names[log.name]}") as next_job:
            next_job.wait(lambda changes: rows_of_changes(changes) == in_table(log))
            put_rows(log, {60: "d"})
            next_job.wait(lambda changes: rows_of_changes(changes) == in_table(log))
        assert rows_of_changes(on_log.wait(lambda _: True)) == before


def test_tags_snapshots_and_branches_are_read_by_their_names(catalog: Catalog, flink: Flink, tmp_path: Path) -> None:
    """And times: a name, an id and a moment are the same state."""
    table, name = flink_table(catalog), f"{flink.catalog(tmp_path)}.db"
    put_rows(table, {1: "a"})
    create_tag(table, "first")
    create_branch(table, "b", tag="first")
    put_rows(table, {1: "b", 2: "b"})
    put_rows(catalog.table("db.t", branch="b"), {5: "branch"})
    first = {(1,): (1, "a")}
    before_ms = table.store.snapshots.read(2).time_ms - 1
    moment = dt.datetime.fromtimestamp(before_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    for hint in ("'scan.tag-name'='first'", "'scan.snapshot-id'='1'", f"'scan.timestamp-millis'='{before_ms}'"):
        assert by_key(flink.sql(f"SELECT * FROM {name}.t /*+ OPTIONS({hint}) */")) == first, hint
    flink.sql(f"USE CATALOG {flink.catalog(tmp_path)}")  # Flink asks the catalog in use for what a table was
    try:
        assert by_key(flink.sql(f"SELECT * FROM db.t FOR SYSTEM_TIME AS OF TIMESTAMP '{moment}'")) == first
    finally:
        flink.sql("USE CATALOG default_catalog")
    between = "'incremental-between'='1,2'"
    assert by_key(flink.sql(f"SELECT * FROM {name}.t /*+ OPTIONS({between}) */")) == {(1,): (1, "b"), (2,): (2, "b")}
    assert flink.sql(f"SELECT tag_name, snapshot_id FROM {name}.`t$tags`") == [("+I", "first", 1)]
    of_branch = f"{name}.`t$branch_b`"
    assert by_key(flink.sql(f"SELECT * FROM {of_branch}")) == first | {(5,): (5, "branch")}
    with flink.stream(f"SELECT * FROM {of_branch} /*+ OPTIONS('continuous.discovery-interval'='100ms') */") as stream:
        stream.wait(lambda changes: rows_of_changes(changes) == first | {(5,): (5, "branch")})
        put_rows(catalog.table("db.t", branch="b"), {6: "branch"})
        stream.wait(lambda changes: (6,) in rows_of_changes(changes))
    assert set(rows_of_changes(stream.changes)) == {(1,), (5,), (6,)}  # none of main's log
