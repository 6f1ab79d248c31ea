"""``make demo-flink``: Debezium topics → PySpark → tables → a join and an aggregate in Flink, killed on both sides.

Everything runs on this machine. What Flink has in its table at the end is compared with a dumb oracle: the changes,
applied one after the other to two dicts.
"""

import argparse
import json
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Producer

from engine import Catalog
from engine.broker.broker import Broker
from engine.table import Table
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from tests.peers.flink import Flink, FlinkJob
from tests.support.clients import quiet_producer
from tests.support.kills.processes import REPOSITORY, Tree

SCHEMAS: Final = {
    "customers": pa.schema([("id", pa.int64()), ("country", pa.string())]),
    "orders": pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("amount", pa.decimal128(10, 2))]),
}
TOTALS: Final = """CREATE TABLE IF NOT EXISTS lake.shop.totals (
  country STRING, orders BIGINT, amount DECIMAL(38, 2), PRIMARY KEY (country) NOT ENFORCED
) WITH ('bucket'='1')"""
QUERY: Final = """INSERT INTO lake.shop.totals
SELECT country, COUNT(*), SUM(amount)
FROM lake.shop.orders JOIN lake.shop.customers ON customer = customers.id GROUP BY country"""
Totals = dict[str, tuple[int, Decimal]]

_COUNTRIES: Final = ("AT", "BR", "CN", "DE", "EG", "FR")
_DELETES: Final = 0.1
_PARTITIONS: Final = 2
_PATIENCE_S: Final = 240.0


@dataclass
class ShopSource:
    """A database of customers and orders that changes at random, and publishes each change as Debezium does."""

    brokers: str
    chance: random.Random
    customers: dict[int, str] = field(default_factory=dict)
    orders: dict[int, tuple[int, Decimal]] = field(default_factory=dict)

    def create_topics(self) -> None:
        """As its connector would."""
        topics = LogTopics(KafkaProperties.parse({"bootstrap.servers": self.brokers}))
        for name in SCHEMAS:
            topics.create_topic(f"source.shop.{name}", bucket_count=_PARTITIONS, config={})

    def change(self, count: int) -> None:
        """Make so many changes, one in eight of a customer, one in ten a deletion."""
        producer = quiet_producer(self.brokers)
        for _ in range(count):
            is_customer = self.chance.random() < 1 / 8
            name, rows, keys = ("customers", self.customers, 20) if is_customer else ("orders", self.orders, 300)
            key = self.chance.randrange(keys)
            before = self._row(name, key)
            if self.chance.random() < _DELETES:
                rows.pop(key, None)
            elif is_customer:
                self.customers[key] = self.chance.choice(_COUNTRIES)
            else:
                self.orders[key] = (self.chance.randrange(20), Decimal(self.chance.randrange(10**6)) / 100)
            after = self._row(name, key)
            if before is not None or after is not None:
                self._publish(producer, name, key, before, after)
        producer.flush()

    def totals(self) -> Totals:
        """What Flink must come to."""
        found: Totals = {}
        for customer, amount in self.orders.values():
            country = self.customers.get(customer)
            if country is not None:
                count, total = found.get(country, (0, Decimal(0)))
                found[country] = (count + 1, total + amount)
        return found

    def _row(self, name: str, key: int) -> dict[str, Any] | None:
        if name == "customers":
            return {"id": key, "country": self.customers[key]} if key in self.customers else None
        if key not in self.orders:
            return None
        customer, amount = self.orders[key]
        return {"id": key, "customer": customer, "amount": f"{amount:.2f}"}

    def _publish(self, producer: Producer, name: str, key: int, before: Any, after: Any) -> None:
        op = "c" if before is None else "d" if after is None else "u"
        value = {"before": before, "after": after, "op": op, "ts_ms": 0, "source": {"table": name}}
        topic = f"source.shop.{name}"
        producer.produce(topic, json.dumps(value), json.dumps({"id": key}), partition=key % _PARTITIONS)


@dataclass
class WholeWay:
    """All that runs between the source and the totals, and can be killed."""

    home: Path
    brokers: str
    clusters: Iterator[Flink]
    tables: dict[str, Table] = field(default_factory=dict)
    spark: Tree | None = None
    flink: Flink | None = None
    job: FlinkJob | None = None

    def create_tables(self) -> None:
        """Two tables with a log; nothing in them is for Flink alone."""
        catalog = Catalog(f"{self.home}/warehouse", options={"log.kafka.bootstrap.servers": self.brokers})
        for name, schema in SCHEMAS.items():
            options = {"bucket": "2"}
            self.tables[name] = catalog.create_table(f"shop.{name}", schema, primary_key=["id"], options=options)

    def start_spark(self) -> None:
        """The job continues where its checkpoints are."""
        where = (f"{self.home}/warehouse", self.brokers, f"{self.home}/checkpoints")
        command = [sys.executable, "-m", "tests.flink.whole_way_job", *where]
        self.spark = Tree(command, self.home / "spark.log", cwd=REPOSITORY)

    def start_flink(self) -> None:
        """A cluster, on which the job continues from its newest checkpoint."""
        self.flink = next(self.clusters)
        catalog = f"CREATE CATALOG lake WITH ('type'='paimon', 'warehouse'='{self.home}/warehouse')"
        self.job = self.flink.begin([catalog, TOTALS, QUERY], self.home / "flink-checkpoints")

    def kill_spark(self) -> None:
        """With -9, all its processes."""
        assert self.spark is not None
        self.spark.kill()
        self.spark = None

    def kill_flink(self) -> None:
        """With -9, its whole cluster."""
        assert self.flink is not None
        self.flink.kill()
        self.flink = self.job = None

    def snapshots(self, name: str) -> int:
        """How many the table has."""
        return self.tables[name].store.snapshots.latest_id() or 0

    def totals(self) -> Totals:
        """What Flink has written; nothing before its first snapshot."""
        path = self.home / "warehouse" / "shop.db" / "totals" / "schema" / "schema-0"
        if not path.exists():
            return {}
        rows = Catalog(f"{self.home}/warehouse").table("shop.totals").read().to_arrow().to_pylist()
        return {row["country"]: (row["orders"], row["amount"]) for row in rows}

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait. Raises: AssertionError, PeerError: one of the jobs has ended by itself, or it takes too long."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            assert self.spark is None or self.spark.exit_code is None, self.spark.tail()
            if self.job is not None:
                self.job.check()
            assert time.monotonic() < deadline, f"not in time: totals={self.totals()}"
            time.sleep(0.2)


@contextmanager
def whole_way(home: Path, brokers: str, clusters: Iterator[Flink]) -> Iterator[WholeWay]:
    """Tables, and whatever is started on them; it ends with the block, but for the second of two clusters."""
    way = WholeWay(home, brokers, clusters)
    way.create_tables()
    try:
        yield way
    finally:
        if way.spark is not None:
            way.spark.kill()
        if way.job is not None:
            way.job.cancel()


def run_whole_way(way: WholeWay, source: ShopSource, changes: int, say: Callable[[str], None]) -> None:
    """Change, kill and start again, until Flink has what the oracle has.

    Args:
        way: with its tables, and two clusters to come.
        source: has published nothing yet.
        changes: in each of five parts.
        say: takes a line about each step.
    """
    source.create_topics()
    source.change(changes)
    say("1. PySpark writes two Debezium topics into two tables; Flink joins and aggregates them into a third one")
    way.start_spark()
    way.start_flink()
    way.until(lambda: way.totals() == source.totals())
    say(f"   equal to the oracle: {_shown(source.totals())}")
    before = way.snapshots("orders")
    source.change(changes)
    way.until(lambda: way.snapshots("orders") > before)
    way.kill_spark()
    source.change(changes)
    say("2. kill -9 of PySpark, in the middle of changes; then of Flink")
    way.kill_flink()
    before = way.snapshots("orders")
    way.start_spark()
    source.change(changes)
    say("3. both start again, from their checkpoints")
    way.start_flink()
    way.until(lambda: way.snapshots("orders") > before)
    source.change(changes)
    way.until(lambda: way.totals() == source.totals())
    say(f"   equal to the oracle: {_shown(source.totals())}")


def _shown(totals: Totals) -> str:
    return ", ".join(f"{country} {count} orders {amount}" for country, (count, amount) in sorted(totals.items()))


def main(home: Path, changes: int, seed: int) -> None:
    """Run it with servers of its own."""
    shutil.rmtree(home, ignore_errors=True)
    (home / "flink").mkdir(parents=True)
    print(f"Two minutes on a quiet machine. Tables and logs are in {home}; PySpark's is spark.log.", flush=True)
    with Broker(home / "broker") as broker:
        clusters = (Flink(home / "flink") for _ in range(2))
        with whole_way(home, broker.bootstrap_servers, clusters) as way:
            source = ShopSource(broker.bootstrap_servers, random.Random(seed))
            run_whole_way(way, source, changes, lambda line: print(line, flush=True))
        if way.flink is not None:
            way.flink.close()
    print("Done. What Flink has written, and what it was made of:")
    print(f"  .venv/bin/fluvial read shop.totals --warehouse {home}/warehouse")
    print(f"  .venv/bin/fluvial inspect shop.orders --warehouse {home}/warehouse")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.flink.whole_way", description="Debezium to a Flink query.")
    parser.add_argument("--dir", default=".demo/flink", help="directory of the demo (default: %(default)s)")
    parser.add_argument("--changes", type=int, default=2000, help="in each of five parts (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the changes (default: %(default)s)")
    given = parser.parse_args()
    main(Path(given.dir).absolute(), given.changes, given.seed)
