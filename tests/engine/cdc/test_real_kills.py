"""A job that follows a real database while everything around it is killed: driver, Python worker, broker, connector."""

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.broker.broker import Broker
from engine.cdc.status import latest_offsets
from engine.kafka.offsets import from_json
from logstore.format.connect_types import TypeRules
from tests.stores.debezium import PostgresSource
from tests.stores.following import Follower
from tests.stores.tpcb import BALANCES, make_bank
from tests.support.kills.processes import Tree, killed_at_the_end, name_of, python, send, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # two starts of Spark, on machines with other work

SEED = 18
_TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, a int, p numeric(10,2), c text, e int)",
    "INSERT INTO orders SELECT i, i, i + 0.25, 'c' || i, i FROM generate_series(1, 20) i",
    "CREATE TABLE large (id int PRIMARY KEY, v int, t text, ta text[], ia int[], jb jsonb, by bytea)",
    *(f"ALTER TABLE large ALTER COLUMN {name} SET STORAGE EXTERNAL" for name in ("t", "ta", "ia", "jb", "by")),
    "INSERT INTO large SELECT n, 0, string_agg('t' || i, ''), array_agg('e' || i), array_agg(i), jsonb_agg(i), "
    "convert_to(string_agg('b' || i, ''), 'UTF8') FROM generate_series(1, 700) i, generate_series(1, 3) n GROUP BY n",
    "CREATE TABLE pairs (b text, a bigint, v int, PRIMARY KEY (b, a))",
    "INSERT INTO pairs VALUES ('x', 1, 1), ('x', 2, 2), ('y', 1, 3)",
    "CREATE TABLE parts (id int, k int, v text, PRIMARY KEY (id, k)) PARTITION BY LIST (k)",
    "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1)",
    "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2)",
    "INSERT INTO parts VALUES (1, 1, 'a'), (2, 1, 'b')",
    "CREATE TABLE dated (id int PRIMARY KEY, at timestamp)",
    "INSERT INTO dated VALUES (1, '2026-11-20 12:34:56.123456')",
)
# What PostgreSQL rewrites emits no changes: the rows are published by an update of all of them.
_CHANGES = (
    ("CREATE TABLE late (id int PRIMARY KEY, v text)", "INSERT INTO late VALUES (1, 'late')"),
    ("ALTER TABLE orders ADD COLUMN f int NOT NULL DEFAULT 7", "INSERT INTO orders (id, a) VALUES (101, 1)"),
    (
        "ALTER TABLE orders DROP COLUMN e",
        "UPDATE orders SET a = -a WHERE id < 5",
        "UPDATE parts SET k = 2 WHERE id = 1",
    ),
    (
        "ALTER TABLE orders RENAME COLUMN f TO g",
        "UPDATE orders SET a = a",
        "ALTER TABLE orders ALTER COLUMN a TYPE bigint",
        "INSERT INTO orders (id, a) VALUES (102, 5000000000)",
    ),
    (
        "BEGIN",
        "UPDATE pairs SET a = 3 WHERE a = 1",
        "UPDATE pairs SET a = 1 WHERE a = 2",
        "UPDATE pairs SET a = 2 WHERE a = 3",
        "COMMIT",
        "ALTER TABLE orders ALTER COLUMN p TYPE numeric(12,4)",
        "INSERT INTO orders (id, p) VALUES (103, 1.2345)",
    ),
    ("UPDATE large SET v = 1", "UPDATE large SET v = 2, t = 'short', ia = NULL WHERE id = 1"),
    (
        "ALTER TABLE orders ALTER COLUMN g TYPE text",
        "UPDATE orders SET a = a",
        "INSERT INTO pairs VALUES ('z', 1, 1)",
        "TRUNCATE pairs",
        "INSERT INTO pairs VALUES ('x', 1, 1), ('x', 2, 2)",
        "DELETE FROM large WHERE id = 2",
        "INSERT INTO large (id, v, t) VALUES (2, 5, 'again')",
        "INSERT INTO dated VALUES (2, 'infinity')",
        "INSERT INTO dated VALUES (3, NULL)",
    ),
)


def _more_changes(number: int) -> list[tuple[str, ...]]:
    """As many changes as a further round has strikes; each is one that a killed connector may publish again."""
    return [
        (
            f"ALTER TABLE orders ADD COLUMN r{number} int NOT NULL DEFAULT {number}",
            f"INSERT INTO orders (id, r{number}) VALUES ({200 + number}, 0)",
            "DELETE FROM large WHERE id = 3",
            f"INSERT INTO large (id, v, t) VALUES (3, {number}, 'again')",
        ),
        (f"CREATE TABLE late_{number} (id int PRIMARY KEY, v text)", f"INSERT INTO late_{number} VALUES (1, 'late')"),
        ("UPDATE large SET v = v + 1", "UPDATE parts SET v = v || 'x'", "UPDATE parts SET k = 3 - k WHERE id = 2"),
        (
            "TRUNCATE pairs",
            "INSERT INTO pairs VALUES ('x', 1, 1), ('x', 2, 2)",
            "BEGIN",
            "UPDATE pairs SET a = 3 WHERE a = 1",
            "UPDATE pairs SET a = 1 WHERE a = 2",
            "UPDATE pairs SET a = 2 WHERE a = 3",
            "COMMIT",
        ),
    ]


class Job:
    """``fluvial cdc run`` on a file; started again when it has ended, as a service would be."""

    def __init__(self, home: Path, source: PostgresSource) -> None:
        self.file, self.trees = home / "job.yaml", list[Tree]()
        self._home, self._source = home, source

    def start(self, out_of_range: str = "fail") -> None:
        """Start it."""
        options = {
            "subscribePattern": rf"{self._source.name}\..*(?<!\.message)",
            "kafka.bootstrap.servers": self._source.brokers,
        }
        database = {
            "name": "shop",
            "database": "shop",
            "source": {"options": options},
            "types": {"out-of-range": out_of_range},
            "commit": {"every": "2 seconds", "cut": "transaction", "tag-every": 0},
            "options": {"bucket": "1"},
        }
        conf = {
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        body = {"name": "shop", "warehouse": f"{self._home}/warehouse", "cdc": [database], "spark": {"conf": conf}}
        self.file.write_text(json.dumps(body), encoding="utf-8")
        log = self._home / f"run-{len(self.trees)}.log"
        self.trees.append(Tree(python("engine.cli", "cdc", "run", str(self.file)), log, cwd=self._home))

    def batch(self) -> int:
        """Number of the newest batch; -1 before the first."""
        file = self._home / "warehouse" / "_cdc" / "shop" / "progress.json"
        return int(json.loads(file.read_text())["batch"]) if file.exists() else -1

    def behind(self, follower: Follower) -> int:
        """Records that no batch has."""
        taken = from_json((follower.state.progress() or {}).get("positions", {}))
        latest = latest_offsets(follower.settings.properties, follower.settings.pattern)
        return sum(end - taken.get(each, 0) for each, end in latest.items())

    def awaited(self, more: int = 1) -> None:
        """Wait for so many more batches; whatever has ended is started again."""
        wanted, deadline = self.batch() + more, time.monotonic() + 120
        while self.batch() < wanted:
            assert self.trees[-1].exit_code is None, self.trees[-1].tail()
            assert time.monotonic() < deadline, self.trees[-1].tail()
            time.sleep(0.05)

    def kill_worker(self) -> None:
        """The processes of Python that Spark has started."""
        found = [each for each in self.trees[-1].members() if each.pid != self.trees[-1].process.pid]
        workers = [each for each in found if name_of(each).startswith("python")]
        assert workers
        send(signal.SIGKILL, workers)


@pytest.fixture
def job(tmp_path: Path, postgres_source: PostgresSource) -> Iterator[Job]:
    made = Job(tmp_path, postgres_source)
    with killed_at_the_end(made.trees):
        yield made


@pytest.mark.soak
@pytest.mark.parametrize("rounds", [1, 3])
def test_a_database_is_equal_after_kills_of_all_around_it(
    job: Job,
    postgres_source: PostgresSource,
    broker: Broker,
    tmp_path: Path,
    fluvial: Callable[..., tuple[int, str, str]],
    rounds: int,
) -> None:
    """A, B, D, E: under load, kill -9 of driver, worker, broker and Connect between changes of all kinds.

    Each of them once; three times, as the specification has it, with ``make soak``.
    Each cut has pgbench's sums; a table that cannot be read waits, the others do not; resumed, it lacks nothing.
    """
    source, chance = postgres_source, random.Random(SEED)
    script = make_bank(source, tmp_path, accounts=100)
    source.execute("INSERT INTO pgbench_history VALUES (1, 1, 1, 0, CURRENT_TIMESTAMP)", *_TABLES)
    source.start({"publish.via.partition.root": "true"})
    job.start()
    job.awaited()

    def kill_driver(out_of_range: str = "fail") -> None:
        job.trees[-1].kill()
        job.start(out_of_range)

    def kill_broker() -> None:
        broker.kill()
        broker.start()

    def kill_connector() -> None:
        source.connect.kill()
        source.connect.start()

    def tables() -> dict[str, Any]:
        code, out, error = fluvial("cdc", "status", str(job.file), "--json")
        assert code == 0, error
        return {each["table"]: each for each in json.loads(out)["tables"]}

    strikes: list[Callable[[], None]] = [job.kill_worker, kill_broker, kill_connector]
    more = [*strikes, lambda: kill_driver("null")]
    chance.shuffle(strikes)
    load = source.pgbench_command("-n", "-T", "600", "-c", "2", "-R", "8", "-f", str(script))
    with subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            for number, changes in enumerate(_CHANGES):
                source.execute(*changes)
                if number % 2 and strikes:
                    strikes.pop()()
                job.awaited()
            # a batch that was awaited may have been one without records, after a strike
            until(lambda: tables()["dated"]["state"] == "parked", 60, lambda: str(tables()))
            found = tables()
            assert [name for name, each in found.items() if each["state"] == "parked"] == ["dated"]
            assert "infinity" in found["dated"]["reason"] or "range" in found["dated"]["reason"]
            until(
                lambda: max(each["seconds_behind"] for name, each in tables().items() if name != "dated") < 10,
                60,
                lambda: str(tables()),
            )
            kill_driver("null")
            assert fluvial("cdc", "resume", "dated", str(job.file))[0] == 0
            job.awaited(2)
            for number in range(1, rounds):
                for changes, strike in zip(_more_changes(number), chance.sample(more, len(more)), strict=True):
                    source.execute(*changes)
                    strike()
                    job.awaited(2)
        finally:
            running.kill()
    source.records()
    follower = Follower(source, tmp_path, types=TypeRules(out_of_range="null"))
    until(lambda: job.behind(follower) == 0, 60, lambda: f"{job.behind(follower)} {job.trees[-1].tail()}")
    differences = follower.differences()
    (only,) = differences.pop("dated")
    assert only.key == {"id": "2"}  # type: ignore[attr-defined]
    assert differences == {}
    bank = {name: follower.catalog.table(f"shop.{name}") for name in BALANCES}
    tags = [each for each in bank["pgbench_history"].store.snapshots.tag_names() if each.startswith("cdc-")]
    read = {
        tag: {sum(table.read(tag=tag).to_arrow()[BALANCES[name]].to_pylist()) for name, table in bank.items()}
        for tag in tags
    }
    assert len(tags) >= 3
    assert {tag: sums for tag, sums in read.items() if len(sums) != 1} == {}
