"""What brokers do to a topic: rows are aborted, and what is old goes."""

from uuid import uuid4

from engine import Table
from engine.broker.broker import Broker
from tests.support.clients import quiet_producer
from tests.support.logs import wait_for_log


def abort_in_log(table: Table, bucket: int = 0, count: int = 3) -> None:
    """Rows at the end of a bucket's log that are there and aborted, so that no reader sees them."""
    log = table.log
    assert log is not None
    end = table.log_end_offsets()[bucket]
    servers = log.properties.by_name["bootstrap.servers"]
    producer = quiet_producer(servers, transactional__id=f"aborted-{uuid4().hex}")
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(log.topic, b'{"op": "c"}', partition=bucket)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)
    wait_for_log(table, {bucket: end + count + 1})


class ForgetfulBroker(Broker):
    """Looks every moment for what is older than a topic keeps, and deletes it at once."""

    def _prepare(self) -> int:
        port = super()._prepare()
        with self._file("server.properties").open("a", encoding="utf-8") as properties:
            properties.write("log.retention.check.interval.ms=200\nlog.initial.task.delay.ms=200\n")
        return port
