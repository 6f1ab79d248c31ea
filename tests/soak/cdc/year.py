"""A year in the life of a database: migrations of every kind under changes and kills, tables equal at each stop.

A parked table's message names a command, and the year does what it says; none of them may fail.
"""

import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from engine.broker.broker import Broker
from engine.cdc.rules.names import Naming
from engine.cli.commands.verify import shown_differences
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from tests.stores.debezium import PostgresSource
from tests.stores.following import Follower
from tests.stores.postgres import Postgres

_VALUES: Final = {
    "smallint": "(random() * 100)::int", "integer": "(random() * 1000)::int", "bigint": "(random() * 5e9)::bigint",
    "numeric": "round((random() * 1000)::numeric, 2)", "real": "(random() * 10)::real",
    "double precision": "random() * 10", "text": "repeat('t' || (random() * 99)::int, 1 + (random() * 300)::int)",
    "character varying": "'v' || (random() * 99)::int", "boolean": "random() < 0.5",
    "timestamp without time zone": "timestamp '2026-01-01' + (random() * 1e7)::int * interval '1 second'",
    "ARRAY": "ARRAY[(random() * 9)::int, NULL]",
}  # fmt: skip
_NEW_COLUMNS: Final = (
    "int", "int NOT NULL DEFAULT 7", "double precision DEFAULT 0.5", "text DEFAULT 'none'", "numeric(10,2)",
    "timestamp(3)", "boolean NOT NULL DEFAULT true", "int[]", "real", "varchar(9)",
)  # fmt: skip
_WIDER: Final = {"smallint": "integer", "integer": "bigint", "real": "double precision", "character varying": "text"}
_RESNAPSHOT: Final = re.compile(r"fluvial cdc resnapshot (\w+)((?: --[a-z-]+)*)")


@dataclass(slots=True)
class YearFacts:
    """What has happened."""

    migrations: Counter[str] = field(default_factory=Counter)
    strikes: Counter[str] = field(default_factory=Counter)
    mended: Counter[str] = field(default_factory=Counter)  # tables that waited, by the command that their message named
    stops: int = 0


class Year:
    """One database, its connector, and a job in this process, which dies at steps of its batches."""

    def __init__(self, source: PostgresSource, server: Postgres, broker: Broker, directory: Path, *, seed: int) -> None:
        """Make the tables, and start the connector and the job."""
        self.source, self.facts = source, YearFacts()
        self._server, self._broker, self._chance, self._number = server, broker, random.Random(seed), 0
        self._signals = f"{source.name}-signals"
        LogTopics(KafkaProperties.parse({"bootstrap.servers": source.brokers})).create_topic(
            self._signals, bucket_count=1
        )
        self._strikes: list[str] = []
        source.execute("CREATE SEQUENCE ids")
        for _ in range(3):
            self._create_table()
        source.execute(
            "CREATE TABLE bag (id int, v int, t text)", "ALTER TABLE bag REPLICA IDENTITY FULL",
            "INSERT INTO bag SELECT i % 3, i % 2, 'x' FROM generate_series(1, 9) i",
            "CREATE TABLE parts (id int, k int, v text, PRIMARY KEY (id, k)) PARTITION BY LIST (k)",
            *(f"CREATE TABLE parts_{k} PARTITION OF parts FOR VALUES IN ({k})" for k in (1, 2)),
        )  # fmt: skip
        source.start(
            {
                "publish.via.partition.root": "true",
                "signal.enabled.channels": "source,kafka",
                "signal.kafka.topic": self._signals,
                "signal.kafka.bootstrap.servers": source.brokers,
                "signal.kafka.groupId": self._signals,
                "signal.poll.interval.ms": "200",
                "signal.consumer.auto.commit.interval.ms": "100",  # a killed connector takes few signals again
            }
        )
        self.follower = Follower(source, directory, naming=Naming(exclude=(r"public\.parts_\d+",)))
        self.stop()

    @property
    def kinds(self) -> dict[str, Callable[[], None]]:
        """The kinds of migrations."""
        found = {
            name.removeprefix("_do_"): getattr(self, name) for name in sorted(dir(self)) if name.startswith("_do_")
        }
        return dict(found)

    def drawn(self, count: int) -> list[str]:
        """So many migrations, each kind before one comes again."""
        found: list[str] = []
        while len(found) < count:
            found += self._chance.sample(sorted(self.kinds), len(self.kinds))
        return found[:count]

    def weeks(self, kinds: Sequence[str], *, stop_every: int = 5) -> None:
        """Migrations under changes of rows; every few of them something is killed, and all is compared."""
        for number, kind in enumerate(kinds, start=1):
            self._load()
            print(f"  {number}: {kind}", file=sys.stderr, flush=True)
            self.kinds[kind]()
            self.facts.migrations[kind] += 1
            self._load()
            if number % stop_every == 0 or number == len(kinds):
                self._strike()
                self.stop()

    def stop(self) -> None:
        """Take what was published, do what parked tables say, drop tables whose source is gone, and compare all."""
        self.source.records()
        self.follower.step(dies_after=self._chance.choice((None, 1, 3, 8, 20)))
        for _ in range(3):
            if not self._mended():
                break
        for name, each in self.follower.verified().items():
            if "renamed or dropped" in each.problem:
                self.follower.catalog.drop_table(each.table)
                self.facts.mended[f"drop {name}"[:4]] += 1
        waiting = self._waiting()
        assert waiting == {}, waiting
        found = self._differences()
        assert found == {}, "\n".join([str(found)[:4000], *self._history(found)])
        self.facts.stops += 1

    def _differences(self) -> dict[str, Any]:
        """Of each table that is not equal, columns with both values, or the problem."""
        return {
            name: each.problem
            if each.comparison is None
            else [(one.kind, one.key, one.columns) for one in shown_differences(each.comparison, "postgresql")][:5]
            for name, each in self.follower.verified().items()
            if not each.is_equal
        }

    def _history(self, found: dict[str, Any]) -> Iterator[str]:
        """For whom looks into a difference: records of the first key of each table, truncates, the table's state."""
        records = self.source.records()
        for name, differences in found.items():
            yield f"{name}: {self.follower.state.table(name)}"
            key = differences[0][1].get("id") if isinstance(differences, list) else None
            for each in records:
                if each.topic != f"{self.source.name}.public.{name}" or each.value is None:
                    continue
                change = json.loads(each.value)["payload"]
                rows = [row for row in (change["before"], change["after"]) if row is not None]
                if key is not None and (change["op"] == "t" or any(str(row["id"]) == key for row in rows)):
                    place = {part: change["source"].get(part) for part in ("snapshot", "txId", "lsn")}
                    yield f"  {name}/{each.offset} {change['op']} {place} {change['transaction']}"

    def _waiting(self) -> dict[str, str]:
        state = self.follower.state
        parked = {name: state.table(name).parked for name in state.tables()}
        return {name: each.reason for name, each in parked.items() if each is not None}

    def _mended(self) -> bool:
        """Do what the messages of parked tables say. Returns: whether any was parked."""
        waiting = self._waiting()
        for name, reason in waiting.items():
            if (excluded := re.search(r"columns: \{exclude: \['(.*?)'\]\}", reason)) is not None:
                self._exclude(excluded[1])
            command = _RESNAPSHOT.search(reason)
            if command is None:
                assert f"fluvial cdc resume {name}" in reason, reason
                self.follower.state.ask("resume", name, at_ms=time.time_ns() // 1_000_000)
                self.follower.step()
                self.facts.mended["resume"] += 1
                continue
            options = command[2].split()
            self.follower.resnapshot(
                command[1], self._signals, drops="--drop" in options, are_writers_stopped="--writers-stopped" in options
            )
            self.facts.mended[f"resnapshot {' '.join(options)}"] += 1
        return bool(waiting)

    def _exclude(self, pattern: str) -> None:
        settings = self.follower.settings
        object.__setattr__(settings, "excluded", (*settings.excluded, pattern))
        self.follower.step(dies_after=0)

    def _strike(self) -> None:
        """Kill one of those around the job, in the middle of changes, and start it again."""
        self._strikes = self._strikes or self._chance.sample(("connector", "broker", "database"), 3)
        name = self._strikes.pop()
        print(f"  strike: {name}", file=sys.stderr, flush=True)
        if name == "connector":
            self.source.connect.kill()
            self._load()
            self.source.connect.start()
        elif name == "broker":
            self._broker.kill()
            self._load()
            self._broker.start()
        else:
            self._server.kill()
            self._server.start()
            self.source.reconnect()
            self._load()
        self.facts.strikes[name] += 1

    def _tables(self) -> list[str]:
        """Tables with the key ``id`` of one number, whose columns change."""
        return self._names("t%")

    def _names(self, pattern: str) -> list[str]:
        found = self.source.rows(
            f"SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE '{pattern}' ORDER BY 1"
        )
        return [name for (name,) in found]

    def _table(self) -> str:
        return self._chance.choice(self._tables())

    def _columns(self, table: str) -> dict[str, str]:
        """Columns that are no part of a key and not generated, with their types."""
        found = self.source.rows(
            f"SELECT column_name, data_type FROM information_schema.columns WHERE table_name = '{table}' "
            "AND is_generated = 'NEVER' AND column_name NOT IN (SELECT column_name FROM "
            f"information_schema.key_column_usage WHERE table_name = '{table}') ORDER BY ordinal_position"
        )
        return dict(found)

    def _column(self, *types: str) -> tuple[str, str] | None:
        """A table and a column of one of these types; None: there is none."""
        found = [
            (table, name)
            for table in self._tables()
            for name, kind in self._columns(table).items()
            if kind in types and not self._is_needed(table, name)
        ]
        return self._chance.choice(found) if found else None

    def _is_needed(self, table: str, column: str) -> bool:
        """Whether a generated column is computed from it."""
        return bool(
            self.source.rows(
                "SELECT 1 FROM information_schema.column_column_usage "
                f"WHERE table_name = '{table}' AND column_name = '{column}'"
            )
        )

    def _load(self) -> None:
        """Inserts, updates and deletes in every table."""
        partitions = [int(name.rpartition("_")[2]) for name in self._names("parts\\_%")]
        there, moved = self._chance.choice(partitions), self._chance.choice(partitions)
        self.source.execute(
            "INSERT INTO bag (id, v, t) VALUES (1, 1, 'x'), (1, 1, 'x')",
            "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)", "UPDATE bag SET v = v + 1 WHERE id = 2",
            f"INSERT INTO parts SELECT nextval('ids'), {there}, 'p' FROM generate_series(1, 3)",
            f"UPDATE parts SET k = {moved}, v = v || 'm' WHERE id % 3 = 1", "DELETE FROM parts WHERE id % 5 = 1",
        )  # fmt: skip
        for table in self._tables():
            columns = self._columns(table)
            names = ", ".join(["id", *columns])
            values = ", ".join(["nextval('ids')", *(_VALUES[kind] for kind in columns.values())])
            self.source.execute(f"INSERT INTO {table} ({names}) SELECT {values} FROM generate_series(1, 3)")
            if columns:
                name = self._chance.choice(sorted(columns))
                self.source.execute(f"UPDATE {table} SET {name} = {_VALUES[columns[name]]} WHERE id % 3 = 1")
            self.source.execute(f"DELETE FROM {table} WHERE id % 7 = {self._chance.randrange(7)}")

    def _create_table(self) -> str:
        self._number += 1
        name = f"t{self._number}"
        self.source.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, a int, s smallint, p numeric(10,2), r real, t text)",
            f"ALTER TABLE {name} ALTER COLUMN t SET STORAGE EXTERNAL",
        )
        return name

    def _altered(self, table: str, *changes: str) -> None:
        self.source.execute(*(f"ALTER TABLE {table} {each}" for each in changes))

    def _published(self, table: str) -> None:
        """PostgreSQL publishes nothing for the rows that it rewrites: an update of them all does."""
        self.source.execute(f"UPDATE {table} SET id = id")

    def _next(self) -> str:
        self._number += 1
        return f"c{self._number}"

    def _do_add_column(self) -> None:
        self._altered(self._table(), f"ADD COLUMN {self._next()} {self._chance.choice(_NEW_COLUMNS)}")

    def _do_add_several_columns(self) -> None:
        table = self._table()
        for _ in range(10):
            self._altered(table, f"ADD COLUMN {self._next()} {self._chance.choice(_NEW_COLUMNS)}")
            self._load()

    def _do_drop_column(self) -> None:
        if (found := self._column(*_VALUES)) is not None:
            self._altered(found[0], f"DROP COLUMN {found[1]}")

    def _do_drop_and_add_column(self) -> None:
        if (found := self._column(*_VALUES)) is not None:
            for _ in range(3):
                kind = self._chance.choice(_NEW_COLUMNS)
                self._altered(found[0], f"DROP COLUMN {found[1]}", f"ADD COLUMN {found[1]} {kind}")
                self._load()
            self._published(found[0])

    def _do_rename_column(self) -> None:
        if (found := self._column(*_VALUES)) is not None:
            self._altered(found[0], f"RENAME COLUMN {found[1]} TO {self._next()}")
            self._published(found[0])

    def _do_widen_column(self) -> None:
        if (found := self._column(*_WIDER)) is not None:
            kind = self._columns(found[0])[found[1]]
            self._altered(found[0], f"ALTER COLUMN {found[1]} TYPE {_WIDER[kind]}")

    def _do_widen_decimal(self) -> None:
        if (found := self._column("numeric")) is not None:
            self._altered(found[0], f"ALTER COLUMN {found[1]} TYPE numeric(14,4)")

    def _do_narrow_column(self) -> None:
        if (found := self._column("bigint", "double precision")) is not None:
            kind = {"bigint": "int", "double precision": "real"}[self._columns(found[0])[found[1]]]
            self._altered(found[0], f"ALTER COLUMN {found[1]} TYPE {kind} USING ({found[1]} / 1e9)::{kind}")
            self._published(found[0])

    def _do_retype_column(self) -> None:
        if (found := self._column("integer", "numeric", "boolean", "real")) is not None:
            name = found[1]
            self._altered(
                found[0], f"ALTER COLUMN {name} DROP DEFAULT", f"ALTER COLUMN {name} TYPE text USING {name}::text"
            )
            self._published(found[0])

    def _do_widen_key(self) -> None:
        table = self._create_table()
        self._load()
        self._altered(table, "ALTER COLUMN id TYPE bigint")

    def _do_change_key(self) -> None:
        table = self._create_table()
        self._load()
        self._altered(
            table, f"DROP CONSTRAINT {table}_pkey", "ADD COLUMN k int NOT NULL DEFAULT 1", "ADD PRIMARY KEY (id, k)"
        )

    def _do_rename_table(self) -> None:
        self._number += 1
        table, name = self._table(), f"t{self._number}"
        self._altered(table, f"RENAME TO {name}")
        self._load()
        self._by_hand(name)

    def _do_make_table_again(self) -> None:
        table = self._table()
        self.source.execute(f"DROP TABLE {table}", f"CREATE TABLE {table} (id int PRIMARY KEY, z int, t text)")
        self._load()
        self._by_hand(table)

    def _by_hand(self, table: str) -> None:
        """What no message names, for nothing is published of it: docs/cdc.md does."""
        self.source.records()
        self.follower.step()
        self._mended()
        self.follower.resnapshot(table, self._signals, drops=True)

    def _do_create_table(self) -> None:
        self._create_table()

    def _do_drop_table(self) -> None:
        if len(self._tables()) > 2:
            self.source.execute(f"DROP TABLE {self._table()}")

    def _do_add_and_drop_partitions(self) -> None:
        """PostgreSQL publishes nothing of a partition that goes: its rows are deleted first."""
        self._number += 1
        old, new = self._names("parts\\_%")[0], f"parts_{self._number}"
        self.source.execute(f"CREATE TABLE {new} PARTITION OF parts FOR VALUES IN ({self._number})")
        self._load()
        self.source.execute(f"DELETE FROM {old}", f"DROP TABLE {old}")

    def _do_truncate(self) -> None:
        self.source.execute(f"TRUNCATE {self._table()}")

    def _do_generated_column(self) -> None:
        """In changes it never is; in rows of a snapshot, which the table then is made of, it is."""
        if (found := self._column("integer")) is not None:
            self._altered(found[0], f"ADD COLUMN {self._next()} int GENERATED ALWAYS AS ({found[1]} + 1) STORED")

    def _do_column_without_key(self) -> None:
        self._altered("bag", f"ADD COLUMN {self._next()} int", f"ADD COLUMN {self._next()} int NOT NULL DEFAULT 3")

    def _do_move_keys(self) -> None:
        self.source.execute(f"UPDATE {self._table()} SET id = nextval('ids')")

    def _do_large_values(self) -> None:
        for table in self._tables():
            columns = self._columns(table)
            texts, arrays = ([name for name in columns if columns[name] == kind] for kind in ("text", "ARRAY"))
            if texts:
                self.source.execute(f"UPDATE {table} SET {texts[0]} = repeat('large', 2000) WHERE id % 2 = 0")
            if arrays:
                large = "(SELECT array_agg(i * 7919) FROM generate_series(1, 3000) i)"
                self.source.execute(f"UPDATE {table} SET {arrays[0]} = {large} WHERE id % 2 = 1")
            self._published(table)


def facts_of(year: Year) -> Iterator[tuple[str, Any]]:
    """For a line of JSON."""
    yield "stops", year.facts.stops
    for name in ("migrations", "strikes", "mended"):
        yield name, dict(getattr(year.facts, name).most_common())
