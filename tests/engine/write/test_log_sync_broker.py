"""What bypasses a log, on a real broker: consumers of the topic, dead and late writers, a compacted topic."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.write import log_sync
from engine.write.log_sync import LogSync, complete_log
from filestore.changelog.log_gap import log_gap
from filestore.evolution.schema_change import SetOption
from lsm.errors import ConflictError
from tests.stores.schema_registry import SchemaRegistryServer
from tests.support.clients import quiet_admin
from tests.support.logs import changes_by_bucket, folded, log_changes, wait_for_log
from tests.support.rows import id_rows
from tests.support.streams import content, fold, query
from tests.support.tails import DiedError
from tests.support.warehouses import new_table

pytestmark = pytest.mark.broker
CHANGES = {"log.overwrite": "changes"}


def topic_rows(table: Table) -> dict[Any, Any]:
    """What a consumer of the topic has that keeps the newest row of each key."""
    return {(key,): row for key, row in folded(log_changes(table), "id").items()}


def test_a_topic_with_its_overwrites_makes_the_table_and_streams_get_each_once(tmp_path: Path, broker: Broker) -> None:
    table = new_table(tmp_path, broker=broker, options={"bucket": "2", **CHANGES})
    table.write(id_rows(range(10)))
    streams = [query(table), query(table, log_scan="latest")]
    got = [each.available() for each in streams]
    began_ms = table.store.clock.now_ms()
    streams.append(query(table, log_scan="from-timestamp", **{"log_scan.timestamp-mills": str(began_ms)}))
    got.append([])
    table.overwrite(id_rows(range(5, 15), "new"))
    table.write(id_rows(range(14, 17), "last"))
    assert topic_rows(table) == content(table)
    for found, each in zip(got, streams, strict=True):
        found += each.available()
    assert fold(got[0]) == content(table)
    overwrite = 5 + 2 * 5 + 5  # -D, -U and +U, +I
    assert [len(each) for each in got] == [10 + overwrite + 3, overwrite + 3, overwrite + 3]


def test_avro_records_of_an_overwrite(tmp_path: Path, broker: Broker, schema_registry: SchemaRegistryServer) -> None:
    options = {
        "log.kafka.bootstrap.servers": broker.bootstrap_servers,
        "log.schema-registry.url": schema_registry.url,
        "log.format": "avro",
    }
    table = new_table(Catalog(str(tmp_path), options=options), options={"bucket": "2", **CHANGES})
    table.write(id_rows(range(6)))
    table.overwrite(id_rows(range(4, 8), "new"))
    assert topic_rows(table) == content(table)


def test_a_late_writer_of_a_difference_adds_nothing(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One dies between two buckets, one stands still before its second; a third completes the first one's."""
    table = new_table(tmp_path, broker=broker, options={"bucket": "2", **CHANGES})
    table.write(id_rows(range(8)))
    whole = log_sync.BucketLog.commit
    commits: list[Any] = []

    def dies(log: Any, *given: Any, **named: Any) -> Any:
        if commits:
            raise DiedError
        commits.append(whole(log, *given, **named))
        return commits[-1]

    with monkeypatch.context() as patch:
        patch.setattr(log_sync.BucketLog, "commit", dies)
        with pytest.raises(DiedError):
            table.overwrite(id_rows(range(4), "new"))
    wait_for_log(table, {0: commits[0].end_offset} if 0 in changes_by_bucket(table) else {})
    assert log_gap(table.store, table.latest_snapshot()) is not None

    def stands_still(log: Any, *given: Any, **named: Any) -> Any:
        patch.undo()
        assert complete_log(table.files)
        return whole(log, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(log_sync.BucketLog, "commit", stands_still)
        assert table.log is not None
        late = LogSync(table.files, table.log)
        with pytest.raises(ConflictError):
            late.complete(table.latest_snapshot())
    assert log_gap(table.store, table.latest_snapshot()) is None
    before = log_changes(table)
    assert len(before) == 8 + 4 + 4
    assert not complete_log(table.files)
    table.write(id_rows([9], "last"))
    assert len(log_changes(table)) == len(before) + 1
    assert topic_rows(table) == content(table)


def test_a_compacted_topic_takes_differences_and_no_control_record(
    tmp_path: Path, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table(tmp_path, broker=broker, options={"bucket": "1"})
    table.write(id_rows([1, 2]))
    assert table.log is not None
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ResourceType.TOPIC, table.log.topic, incremental_configs=[entry])
    admin = quiet_admin(broker.bootstrap_servers)
    for future in admin.incremental_alter_configs([wanted]).values():
        future.result(30)
    table.overwrite(id_rows([3], "new"))
    table.write(id_rows([4], "last"))
    assert "does not say that the table has left it" in caplog.text
    table.write(id_rows([5], "last"))
    assert caplog.text.count("does not say") == 1
    with_changes = Table(table.files)
    Catalog(str(tmp_path)).alter_table(table.name, [SetOption(key="log.overwrite", text="changes")])
    with_changes.overwrite(id_rows([6], "new"))
    assert topic_rows(table) == content(table)
