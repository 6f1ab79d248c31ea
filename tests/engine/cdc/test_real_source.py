"""Tables that follow real databases by Debezium are equal to them, value by value, as ``fluvial cdc verify`` says."""

from pathlib import Path

import pyarrow as pa
import pytest

from engine.cdc.records.scan import split_of
from engine.cdc.rules.names import NameRule, Naming
from engine.cdc.rules.names import SourceTable as Source
from engine.cdc.samples import samples
from engine.cdc.settings import TableSettings
from engine.cdc.survey import survey
from engine.cdc.verify.database import SourceDatabase
from engine.deploy.cdc_job import past_values
from logstore.format.connect_types import TypeRules
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from tests.stores.change_scenarios import MARIADB, POSTGRES
from tests.stores.debezium import ChangeSource, PostgresSource
from tests.stores.following import Follower
from tests.stores.tpcb import make_bank
from tests.support.kills.processes import until

KEEPS_NULLS = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.replace.null.with.default": "false",
}


def test_every_type_of_postgres(postgres_source: ChangeSource, tmp_path: Path) -> None:
    """Only what the connector cannot say differs: infinity. Its nested arrays, points and bits have no common text.

    G: ``plan`` has printed each column that comes to differ, before there was a table.
    """
    scenario = POSTGRES["types"]
    postgres_source.execute(*scenario.before, "ALTER TABLE types DROP COLUMN ia2")
    postgres_source.start()
    follower = Follower(postgres_source, tmp_path, types=TypeRules(out_of_range="null"))
    postgres_source.records()
    settings = follower.settings
    planned = survey(samples(settings, count=50), settings, split_of(settings))
    assert planned.is_possible
    printed = {each.name for table in planned.tables if table.table == "types" for each in table.columns if each.note}
    follower.catch_up()
    assert follower.differences() == {}
    postgres_source.execute(*scenario.after)
    report = follower.catch_up()
    assert [each.parked for each in report.tables.values() if each.parked] == []
    found = follower.verified()["types"].comparison
    assert found is not None
    assert {each.key["id"] for each in found.differences} == {"4", "5"}
    names = [each.name for each in found.pair.columns]
    assert {"d", "ts", "tstz"} <= printed
    for each in found.differences:
        sides = zip(names, each.source[0], each.table[0], strict=True)
        infinite = {(name, there, here) for name, there, here in sides if there != here}
        sign = "" if each.key["id"] == "4" else "-"
        assert infinite == {(name, f"{sign}infinity", None) for name in ("d", "ts", "tstz")}
    assert set(found.pair.left_out) == {"b8", "pt", "vb"}


def test_large_values_that_an_update_left_alone(postgres_source: ChangeSource, tmp_path: Path) -> None:
    """Text, arrays, JSON and bytes that are stored apart come as placeholders: the table keeps what it has."""
    scenario = POSTGRES["large"]
    postgres_source.execute(*scenario.before)
    postgres_source.start()
    follower = Follower(postgres_source, tmp_path)
    for statement in scenario.after:
        postgres_source.execute(statement)
        follower.catch_up()
        assert follower.differences() == {}, statement


def test_a_row_that_is_deleted_softly_keeps_values_that_are_not_null(
    postgres_source: ChangeSource, tmp_path: Path
) -> None:
    """PostgreSQL logs the key of a deleted row; the connector writes zeros and defaults for columns that are NOT NULL.

    Where a column of them orders rows, such a delete waits: its zero is older than the row.
    """
    columns = (
        "id int PRIMARY KEY, a int NOT NULL, t text NOT NULL, u timestamptz NOT NULL, d numeric(9,2) NOT NULL "
        "DEFAULT 7, n int, b bool NOT NULL, j jsonb NOT NULL, f float8 NOT NULL, e date NOT NULL, k uuid NOT NULL, "
        "y bytea NOT NULL, l int[] NOT NULL, i interval NOT NULL, c time NOT NULL, z timetz NOT NULL, "
        "m numeric NOT NULL, g bit(3) NOT NULL, s timestamp NOT NULL, w inet NOT NULL, r real NOT NULL"
    )
    values = (
        "5, 'x', '2024-01-02 03:04:05Z', 3, NULL, true, '{\"a\": 1}', 1.5, '2024-01-02', "
        "'719c9828-997b-4bea-8755-fd8d79907542', 'abc', '{1}', '1 day', '01:02:03', '01:02:03Z', 12.34, B'101', "
        "'2024-01-02 03:04:05', '10.0.0.1', 2.5"
    )
    tables = ("kept", "seq")
    for name in tables:
        postgres_source.execute(f"CREATE TABLE {name} ({columns})", f"INSERT INTO {name} VALUES (1, {values})")
    postgres_source.start()
    follower = Follower(postgres_source, tmp_path / "soft", deletes="soft")
    ordered = Follower(
        postgres_source, tmp_path / "hard", tables={"seq": TableSettings(options={"sequence.field": "u"})}
    )
    follower.catch_up()
    ordered.catch_up()
    before = follower.catalog.table("shop.kept").read().to_arrow().to_pylist()
    for name in tables:
        postgres_source.execute(f"DELETE FROM {name}")
    follower.catch_up()
    assert follower.catalog.table("shop.kept").read().to_arrow().to_pylist() == [before[0] | {"_deleted": True}]
    reports = ordered.catch_up().tables
    assert "sequence.field=u key={'id': 1} deletes=1" in str(reports["seq"].parked)
    assert reports["kept"].parked is None
    assert ordered.catalog.table("shop.kept").read().to_arrow().num_rows == 0


def test_keys_that_move_and_rows_without_keys(postgres_source: ChangeSource, tmp_path: Path) -> None:
    """A swap of keys in one transaction, a key that changes, equal rows without a key, a truncate."""
    postgres_source.execute(
        "CREATE TABLE pairs (b text, a bigint, v int, PRIMARY KEY (b, a))",
        "CREATE TABLE nokey (v int, t text)",
        "ALTER TABLE nokey REPLICA IDENTITY FULL",
        "INSERT INTO pairs VALUES ('x', 1, 1), ('x', 2, 2), ('y', 1, 3)",
        "INSERT INTO nokey VALUES (1, 'a'), (1, 'a'), (2, NULL)",
    )
    postgres_source.start()
    follower = Follower(postgres_source, tmp_path)
    follower.catch_up()
    assert follower.differences() == {}
    postgres_source.execute(
        "BEGIN",
        "UPDATE pairs SET a = 3 WHERE b = 'x' AND a = 1",
        "UPDATE pairs SET a = 1 WHERE b = 'x' AND a = 2",
        "UPDATE pairs SET a = 2 WHERE b = 'x' AND a = 3",
        "COMMIT",
        "DELETE FROM pairs WHERE b = 'y'",
        "INSERT INTO pairs VALUES ('y', 1, 4)",
        "DELETE FROM nokey WHERE ctid = (SELECT min(ctid) FROM nokey)",
        "UPDATE nokey SET v = 3 WHERE v = 2",
    )
    follower.catch_up()
    assert follower.differences() == {}
    postgres_source.execute(
        "INSERT INTO pairs VALUES ('z', 1, 1)", "TRUNCATE pairs", "INSERT INTO pairs VALUES ('z', 2, 2)"
    )
    follower.catch_up()
    assert follower.differences() == {}
    assert follower.verified()["pairs"].comparison.table_rows == 1  # type: ignore[union-attr]


def test_shards_and_partitions_become_one_table_each(postgres_source: ChangeSource, tmp_path: Path) -> None:
    """F: keys of two shards collide, none is lost or merged; rows that move between partitions' topics are one row."""
    naming = Naming(
        rules=(
            NameRule(source=r"public\.orders_(\d+)", to="orders", add={"shard": "{1}"}, key=("shard", "id")),
            NameRule(source=r"public\.parts(_\d+)?", to="parts", key=("id",)),
        )
    )
    postgres_source.execute(
        *(f"CREATE TABLE orders_{n} (id int PRIMARY KEY, v text)" for n in (1, 2)),
        *(f"INSERT INTO orders_{n} SELECT i, '{n}-' || i FROM generate_series(1, 20) i" for n in (1, 2)),
        "CREATE TABLE parts (id int, k int, v text, PRIMARY KEY (id, k)) PARTITION BY LIST (k)",
        *(f"CREATE TABLE parts_{k} PARTITION OF parts FOR VALUES IN ({k})" for k in (1, 2)),
        "INSERT INTO parts SELECT i, 1 + i % 2, 'p' || i FROM generate_series(1, 20) i",
    )
    postgres_source.start({"publish.via.partition.root": "false"})
    follower = Follower(postgres_source, tmp_path, naming=naming)
    follower.catch_up()
    assert follower.differences() == {}
    for first in (1, 11):
        postgres_source.execute(
            f"UPDATE parts SET k = 3 - k, v = v || 'x' WHERE id BETWEEN {first} AND {first + 9}",
            f"UPDATE parts SET k = 3 - k WHERE id BETWEEN {first} AND {first + 4}",
            f"UPDATE orders_2 SET v = v || 'x' WHERE id BETWEEN {first} AND {first + 9}",
            f"DELETE FROM orders_1 WHERE id BETWEEN {first} AND {first + 2}",
            f"INSERT INTO orders_1 VALUES ({first}, 'again')",
        )
        report = follower.catch_up()
        assert {name: each.parked for name, each in report.tables.items() if each.parked} == {}
        assert follower.differences() == {}
    found = {each.source.name: each.comparison for each in follower.verified().values()}
    rows = {name: (each.source_rows, each.table_rows) for name, each in found.items() if each is not None}
    assert rows == {"orders_1": (16, 16), "orders_2": (20, 20), "parts": (20, 20)}


def test_a_load_of_pgbench(postgres_source: PostgresSource, tmp_path: Path) -> None:
    """TPC-B's tables, one of them without a key, after its transactions; the connector is killed in the middle."""
    script = make_bank(postgres_source, tmp_path, accounts=500)
    postgres_source.start()
    follower = Follower(postgres_source, tmp_path)
    postgres_source.pgbench("-n", "-t", "100", "-f", str(script))
    follower.catch_up()
    postgres_source.connect.kill()
    postgres_source.pgbench("-n", "-t", "100", "-c", "2", "-f", str(script))
    postgres_source.connect.start()
    follower.catch_up()
    assert follower.differences() == {}  # it published again what it had not noted: known by its transactions
    rows = {name: each.comparison.source_rows for name, each in follower.verified().items() if each.comparison}
    assert rows == {"pgbench_accounts": 500, "pgbench_branches": 1, "pgbench_history": 300, "pgbench_tellers": 10}


def test_every_type_of_mariadb(mariadb_source: ChangeSource, tmp_path: Path) -> None:
    """Only what the connector cannot say differs: its zero dates are null."""
    (scenario,) = MARIADB.values()
    mariadb_source.execute(
        *scenario.before,
        "CREATE TABLE nulls (id INT PRIMARY KEY, a INT DEFAULT 7, t TEXT DEFAULT 'x', at DATETIME DEFAULT NOW())",
        "INSERT INTO nulls VALUES (1, NULL, NULL, NULL), (2, 1, 'y', NOW())",
    )
    mariadb_source.start({**scenario.settings, **KEEPS_NULLS})
    follower = Follower(mariadb_source, tmp_path)
    follower.catch_up()
    assert follower.differences() == {}
    mariadb_source.execute(*scenario.after[:5], "UPDATE nulls SET a = NULL, t = NULL, at = NULL")
    follower.catch_up()
    (only,) = follower.differences()["types"]
    assert only.key == {"id": "3"}  # type: ignore[attr-defined]
    mariadb_source.execute(*scenario.after[5:])
    follower.catch_up()
    assert follower.differences() == {}


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_mariadb_through_changes_of_columns_and_kills_of_its_connector(
    mariadb_source: ChangeSource, tmp_path: Path
) -> None:
    """H: what B has of it: tables are equal after each change, keyless rows are not repeated by a killed connector."""
    mariadb_source.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, a INT, p DECIMAL(10,2), c TEXT, e INT)",
        "INSERT INTO orders VALUES (1, 1, 1.50, 'one', 1), (2, 2, 2.50, 'two', 2)",
        "CREATE TABLE pairs (b VARCHAR(9), a BIGINT, v INT, PRIMARY KEY (b, a))",
        "INSERT INTO pairs VALUES ('x', 1, 1), ('x', 2, 2)",
        "CREATE TABLE nokey (v INT, t TEXT)",
        "CREATE TABLE made (id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, s INT AS (a + 2) STORED, "
        "en ENUM('a', 'c,d'))",
        "INSERT INTO made (id, a, en) VALUES (1, 1, 'c,d'), (2, 2, 'a')",
    )
    mariadb_source.start()
    follower = Follower(mariadb_source, tmp_path)
    follower.catch_up()
    rows = 0
    for number, changes in enumerate(
        (
            ("CREATE TABLE late (id INT PRIMARY KEY)", "INSERT INTO late VALUES (1)"),
            ("UPDATE made SET a = 7 WHERE id = 1", "INSERT INTO made (id, a, en) VALUES (3, 3, 'c,d')"),
            ("ALTER TABLE orders ADD COLUMN f INT NOT NULL DEFAULT 7", "INSERT INTO orders (id, a) VALUES (3, 3)"),
            ("ALTER TABLE orders MODIFY a BIGINT, MODIFY p DECIMAL(12,4)", "UPDATE orders SET p = 1.2345 WHERE id = 1"),
            ("ALTER TABLE orders DROP COLUMN e", "UPDATE orders SET a = 5000000000 WHERE id = 2"),
            ("ALTER TABLE orders RENAME COLUMN f TO g", "UPDATE orders SET a = a + 1"),
            ("ALTER TABLE orders MODIFY g TEXT", "UPDATE orders SET a = a + 1"),
            (
                "BEGIN",
                "UPDATE pairs SET a = 3 WHERE a = 1",
                "UPDATE pairs SET a = 1 WHERE a = 2",
                "UPDATE pairs SET a = 2 WHERE a = 3",
                "COMMIT",
            ),
            ("DELETE FROM pairs WHERE a = 1", "INSERT INTO pairs VALUES ('x', 1, 9)"),
            ("TRUNCATE TABLE pairs", "INSERT INTO pairs VALUES ('y', 1, 1)"),
        )
    ):
        mariadb_source.execute(*changes)
        rows += 200
        mariadb_source.execute("INSERT INTO nokey VALUES " + ", ".join(f"({row}, 'n{number}')" for row in range(200)))
        if number in (1, 5):
            mariadb_source.connect.kill()
            mariadb_source.execute("INSERT INTO nokey VALUES (-1, 'while it was away')")
            mariadb_source.connect.start()
            rows += 1
        report = follower.catch_up()
        assert {name: str(each.parked) for name, each in report.tables.items() if each.parked} == {}, changes
        if number % 2:
            assert follower.differences() == {}, changes
    assert follower.differences() == {}
    assert follower.catalog.table("shop.nokey").read().to_arrow().num_rows == rows


def test_a_key_that_changes_beside_a_large_value(postgres_source: ChangeSource, tmp_path: Path) -> None:
    """The value is not in the log, and the placeholder comes in an event of a new row: it is that of the old key."""
    postgres_source.execute(
        "CREATE TABLE moved (id int PRIMARY KEY, v int, t text, by bytea)",
        "ALTER TABLE moved ALTER COLUMN t SET STORAGE EXTERNAL",
        "ALTER TABLE moved ALTER COLUMN by SET STORAGE EXTERNAL",
        "INSERT INTO moved SELECT i, i, repeat('t' || i, 2000), convert_to(repeat('b' || i, 2000), 'UTF8')"
        " FROM generate_series(1, 4) i",
    )
    postgres_source.start()
    follower = Follower(postgres_source, tmp_path)
    follower.catch_up()
    postgres_source.execute("UPDATE moved SET id = id + 10")
    follower.catch_up()
    assert follower.differences() == {}
    postgres_source.execute(
        "UPDATE moved SET t = repeat('new', 2000) WHERE id = 11",
        "UPDATE moved SET id = 21, v = 9 WHERE id = 11",
        "UPDATE moved SET id = 31 WHERE id = 21",
        "UPDATE moved SET v = 10 WHERE id = 31",
        "INSERT INTO moved VALUES (21, 0, '__debezium_unavailable_value', NULL)",
    )
    report = follower.catch_up()
    assert [each.parked for each in report.tables.values() if each.parked] == []
    assert follower.differences() == {}


def test_columns_that_change_while_a_job_follows(postgres_source: ChangeSource, tmp_path: Path) -> None:
    """Tables are equal after each change of columns; the one that is dropped and made again is another column."""
    postgres_source.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, a int, p numeric(10,2), c text)",
        "INSERT INTO orders VALUES (1, 1, 1.50, 'one'), (2, 2, 2.50, 'two')",
    )
    postgres_source.start()
    follower = Follower(postgres_source, tmp_path)
    follower.catch_up()
    for number, change in enumerate(
        (
            "ADD COLUMN e int NOT NULL DEFAULT 7",
            "ALTER COLUMN a TYPE bigint",
            "ALTER COLUMN p TYPE numeric(12,4)",
            "DROP COLUMN c",
            "ADD COLUMN c int DEFAULT 5",
        ),
        start=3,
    ):
        postgres_source.execute(
            f"ALTER TABLE orders {change}", f"INSERT INTO orders (id, a) VALUES ({number}, {number})"
        )
        report = follower.catch_up()
        assert {name: str(each.parked) for name, each in report.tables.items() if each.parked} == {}, change
        assert follower.differences() == {}, change


@pytest.mark.long
def test_columns_that_change_in_a_topic_of_several_partitions(postgres_source: ChangeSource, tmp_path: Path) -> None:
    """Each partition has records of some of the parts only, all in one batch, and then batch by batch."""
    postgres_source.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t SELECT i, i FROM generate_series(1, 20) i"
    )
    postgres_source.start({"topic.creation.default.partitions": "3"})
    follower = Follower(postgres_source, tmp_path)
    follower.catch_up()
    first = ["ADD b text", "ADD c int", "DROP a", "ADD d int", "ADD a int", "ALTER b TYPE varchar(9)", "DROP c"]
    then = ["ALTER d TYPE bigint", "ADD e text", "DROP d", "ADD c int"]
    for number, change in enumerate([*first, *then]):
        rows = [f"INSERT INTO t (id) VALUES ({each})" for each in range(100 + 2 * number, 102 + 2 * number)]
        postgres_source.execute(f"ALTER TABLE t {change}", *rows)
        if number >= len(first):
            report = follower.catch_up()
            assert [each.parked for each in report.tables.values() if each.parked] == []
            assert follower.differences() == {}, change
    postgres_source.execute("UPDATE t SET a = id, c = id, e = 'x'")
    follower.catch_up()
    assert follower.differences() == {}
    assert {len(each.runs) for each in follower.state.table("t").sequences.values()} == {3}


def test_columns_with_defaults(postgres_source: ChangeSource, tmp_path: Path) -> None:
    """A null stays a null; rows from before a column have its default if a record says it, else null, until they are
    published."""
    postgres_source.execute(
        "CREATE TABLE nulls (id int PRIMARY KEY, a int DEFAULT 7, t text DEFAULT 'x', at timestamptz DEFAULT now())",
        "CREATE TABLE nokey (a int DEFAULT 7, t text DEFAULT 'x')",
        "ALTER TABLE nokey REPLICA IDENTITY FULL",
        "INSERT INTO nulls VALUES (1, NULL, NULL, NULL)",
        "INSERT INTO nokey VALUES (NULL, 'a'), (7, 'a'), (NULL, NULL)",
    )
    postgres_source.start(KEEPS_NULLS)
    follower = Follower(postgres_source, tmp_path)
    follower.catch_up()
    assert follower.differences() == {}
    postgres_source.execute(
        "INSERT INTO nulls VALUES (2, 1, 'y', now()), (3, NULL, NULL, NULL)",
        "UPDATE nulls SET a = NULL, t = NULL, at = NULL WHERE id = 2",
        "DELETE FROM nokey WHERE a IS NULL AND t IS NULL",
        "UPDATE nokey SET a = NULL",
    )
    follower.catch_up()
    assert follower.differences() == {}
    postgres_source.execute(
        "ALTER TABLE nulls ADD b int NOT NULL DEFAULT 5, ADD c timestamptz NOT NULL DEFAULT now(), "
        "ADD u uuid NOT NULL DEFAULT gen_random_uuid(), ADD d int NOT NULL DEFAULT (1 + 1)",
        "INSERT INTO nulls (id) VALUES (4)",
    )
    follower.catch_up()
    found = follower.verified()["nulls"].comparison
    assert found is not None
    at = [each.name for each in found.pair.columns].index("b")
    assert [(each.table[0][at], set(each.table[0][at + 1 :])) for each in found.differences] == [("5", {None})] * 3
    postgres_source.execute("UPDATE nulls SET id = id")
    follower.catch_up()
    assert follower.differences() == {}


def test_generated_columns_and_rows_alone(postgres_source: ChangeSource, tmp_path: Path) -> None:
    """The catalog names the generated ones, which are computed here; the connector takes the envelope off one table."""
    postgres_source.execute(
        "CREATE TABLE made (id int PRIMARY KEY, a int, g int GENERATED ALWAYS AS (a * 2) STORED)",
        "INSERT INTO made VALUES (1, 1), (2, 2)",
        "CREATE TABLE flat (id int PRIMARY KEY, v int, t text)",
        "ALTER TABLE flat ALTER COLUMN t SET STORAGE EXTERNAL",
        "INSERT INTO flat SELECT i, i, repeat('t', 3000) FROM generate_series(1, 4) i",
    )
    unwrap = {
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.predicate": "flat",
        "predicates": "flat",
        "predicates.flat.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.flat.pattern": r".*\.flat",
    }
    postgres_source.start(unwrap)
    with SourceDatabase.reading(postgres_source.url) as database:
        generated = database.generated()
        assert database.lacks([Source("public", "made"), Source("public", "gone")]) == {Source("public", "gone")}
    assert generated == {"public.made.g"}
    follower = Follower(
        postgres_source, tmp_path, generated=generated, computed={"g": "a * 2"}, flattened=(r"public\.flat",)
    )
    follower.catch_up()
    assert follower.differences() == {}
    postgres_source.execute(
        "UPDATE made SET a = 5 WHERE id = 1",
        "INSERT INTO made VALUES (3, 3)",
        "UPDATE flat SET v = 9 WHERE id < 3",
        "DELETE FROM flat WHERE id = 2",
        "UPDATE flat SET id = 7, t = 'moved' WHERE id = 3",
    )
    report = follower.catch_up()
    assert [each.parked for each in report.tables.values() if each.parked] == []
    assert follower.differences() == {}
    found = follower.verified()["made"].comparison
    assert found is not None
    assert "g" in [each.name for each in found.pair.columns]


def _with_signals(source: PostgresSource) -> tuple[str, dict[str, str]]:
    """A topic of signals, and the connector's settings for it."""
    topic = f"{source.name}-signals"
    LogTopics(KafkaProperties.parse({"bootstrap.servers": source.brokers})).create_topic(topic, bucket_count=1)
    return topic, {
        "signal.enabled.channels": "source,kafka",
        "signal.kafka.topic": topic,
        "signal.kafka.bootstrap.servers": source.brokers,
        "signal.kafka.groupId": topic,
        "signal.poll.interval.ms": "200",
    }


@pytest.mark.long
def test_a_table_that_was_renamed_and_one_that_was_made_again(postgres_source: PostgresSource, tmp_path: Path) -> None:
    """Nothing is published of either: ``verify`` says what to do about the first, the page about the second."""
    topic, settings = _with_signals(postgres_source)
    postgres_source.execute(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)" for name in ("old", "again")),
        *(f"INSERT INTO {name} SELECT i, i FROM generate_series(1, 9) i" for name in ("old", "again")),
    )
    postgres_source.start(settings)
    follower = Follower(postgres_source, tmp_path)
    follower.catch_up()
    postgres_source.execute(
        "ALTER TABLE old RENAME TO new", "DROP TABLE again", "CREATE TABLE again (id text PRIMARY KEY, w int)",
        "INSERT INTO again VALUES ('a', 1)",
    )  # fmt: skip
    follower.catch_up()
    found = follower.verified()
    assert "drop this table; if it was renamed" in found["old"].problem
    assert "there is no such table, and 9 rows in the database: fix='fluvial cdc resnapshot public.new" in str(found)
    follower.catalog.drop_table("shop.old")
    follower.resnapshot("public.new", topic, drops=False)
    until(lambda: follower.catch_up() is not None and "new" not in follower.differences(), 60, lambda: "no snapshot")
    follower.resnapshot("again", topic, drops=True)
    postgres_source.execute("UPDATE new SET v = v + 1", "INSERT INTO again VALUES ('b', 2)")
    follower.catch_up()
    assert follower.differences() == {}


@pytest.mark.long
def test_a_table_that_has_drifted_is_replaced_by_a_snapshot(postgres_source: PostgresSource, tmp_path: Path) -> None:
    """The connector takes the signal, and publishes all rows; changes of large and small values go on meanwhile."""
    topic, settings = _with_signals(postgres_source)
    postgres_source.execute(
        "CREATE TABLE docs (id int PRIMARY KEY, v int, t text)",
        "ALTER TABLE docs ALTER COLUMN t SET STORAGE EXTERNAL",
        "INSERT INTO docs SELECT i, i, repeat('t' || i, 2000) FROM generate_series(1, 20) i",
        "CREATE TABLE others (id int PRIMARY KEY)",
    )
    postgres_source.start(settings)
    follower = Follower(postgres_source, tmp_path)
    follower.catch_up()
    docs = follower.catalog.table("shop.docs")
    rows = docs.read().to_arrow().slice(0, 3)
    docs.write(rows.append_column("_row_kind", pa.array(["-D"] * 3)))
    docs.write(pa.table({"id": pa.array([99], pa.int32()), "v": pa.array([1], pa.int32()), "t": ["no such row"]}))
    assert len(follower.differences()["docs"]) == 4
    meanwhile = ("UPDATE docs SET v = v + 100 WHERE id > 10", "INSERT INTO others VALUES (1)")
    follower.resnapshot("docs", topic, drops=False, meanwhile=meanwhile)
    postgres_source.execute("UPDATE docs SET v = v + 100 WHERE id < 5", "DELETE FROM docs WHERE id = 20")
    follower.catch_up()
    assert follower.differences() == {}


PAST = {  # by column: its type, and what is said of its default behind ADD COLUMN
    "a": ("int DEFAULT 5", "DROP DEFAULT"),
    "b": ("int NOT NULL DEFAULT 5", "SET DEFAULT 9"),
    "c": ("int NOT NULL DEFAULT 5", "DROP DEFAULT"),
    "d": ("timestamptz DEFAULT now()", "SET DEFAULT now()"),
    "e": ("timestamp DEFAULT now()", "DROP DEFAULT"),
    "f": ("text DEFAULT 'it''s {\"a\", b}'", "SET DEFAULT 'x'"),
    "g": ("boolean DEFAULT true", "SET DEFAULT false"),
    "h": ("numeric(10,2) DEFAULT 1.50", "SET DEFAULT 2"),
    "i": ("date DEFAULT current_date", "DROP DEFAULT"),
    "j": ("double precision DEFAULT 0.1", "SET DEFAULT 7"),
    "k": ("uuid DEFAULT '123e4567-e89b-12d3-a456-426614174000'", "DROP DEFAULT"),
    "l": ("int", "DROP DEFAULT"),
}


def test_the_catalog_of_postgres_says_what_rows_from_before_a_column_have(
    postgres_source: PostgresSource, tmp_path: Path
) -> None:
    """No record has it: the default of each column was another one, or none, when its first record was written."""
    postgres_source.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    postgres_source.start(KEEPS_NULLS)
    follower = Follower(
        postgres_source, tmp_path, past=past_values(postgres_source.url), types=TypeRules(lossy="refuse"),
        connector=KEEPS_NULLS,
    )  # fmt: skip
    follower.catch_up()
    with postgres_source.connect.frozen():
        for name, (kind, later) in PAST.items():
            postgres_source.execute(f"ALTER TABLE t ADD COLUMN {name} {kind}", f"ALTER TABLE t ALTER {name} {later}")
        postgres_source.execute("INSERT INTO t (id, b, c) VALUES (3, 1, 1)", "UPDATE t SET a = 1 WHERE id = 2")
    report = follower.catch_up()
    assert report.tables["t"].parked is None
    assert follower.differences() == {}
