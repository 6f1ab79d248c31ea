"""A batch job of Flink writes the log without waiting for the broker: its snapshot may leave records of it out."""

from pathlib import Path

import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.procedures import reset_log
from filestore.commit.committable import BATCH_IDENTIFIER
from lsm.errors import CorruptDataError
from tests.engine.stream.conftest import NewTable
from tests.support.clients import quiet_producer
from tests.support.streams import as_foreign, content, fold, ids, query, rows

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("known", [0, 1, 3])
def test_what_it_wrote_is_read_once_whatever_its_offsets_say(
    known: int, new_table: NewTable, broker: Broker, tmp_path: Path
) -> None:
    """The next writer says what to do when records are in no snapshot, and it is enough."""
    table = new_table(bucket="1")
    table.write(rows([1, 2]))
    stream, limited = query(table), query(table, read_stream_maxRowsPerTrigger="1")
    found = stream.available()
    assert len(limited.available()) == 2
    before = table.latest_snapshot()
    assert before is not None
    assert table.log is not None
    producer = quiet_producer(broker.bootstrap_servers)
    for key in (2, 3, 4):
        value = b'{"before":null,"after":{"id":%d,"v":"flink"},"op":"c"}' % key
        producer.produce(table.log.topic, value, key=b'{"id":%d}' % key, partition=0)
    producer.flush()
    end = table.log.end_offsets()[0]
    Table(table.files.with_options({"log.system": "none"})).write(rows([2, 3, 4], "flink"))
    offsets = before.log_offsets if not known else {0: end - 3 + known}
    as_foreign(table, commitIdentifier=BATCH_IDENTIFIER, logOffsets={str(n): each for n, each in offsets.items()})
    news = stream.available()
    assert ids(news) == ids(limited.available()) == [2, 3, 4]
    if known < 3:
        with pytest.raises(CorruptDataError, match=r"CALL sys\.reset_log"):
            table.write(rows([4, 5], "later"))
        reset_log(table)
        table = Catalog(str(tmp_path)).table(table.name)
    table.write(rows([4, 5], "later"))
    last = stream.available()
    assert ids(last) == ids(limited.available()) == [4, 5]
    assert fold(found + news + last) == content(table)
