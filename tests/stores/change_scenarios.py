"""What is done to a database, so that Debezium publishes each kind of record (samples: tests/golden/debezium).

A scenario is what was there before the connector started (its records are a snapshot's) and what came after.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """SQL before and after the start of a connector, and the connector's own settings."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)


_PG_COLUMNS: Final = """
 id int PRIMARY KEY, b boolean, i2 smallint, i4 integer, i8 bigint, f4 real, f8 double precision,
 n numeric(10,2), n38 numeric(38,10), nbig numeric(50,4), nfree numeric, m money,
 t text, vc varchar(20), ch char(5), uu uuid, en mood, js json, jb jsonb, by bytea, b1 bit(1), b8 bit(8), vb varbit(12),
 ip inet, mac macaddr, cidr cidr, ir int4range, tr tstzrange, pt point,
 d date, tm time, tm3 time(3), tz timetz, ts timestamp, ts3 timestamp(3), tstz timestamptz, iv interval,
 ia int[], ta text[], ba boolean[], na numeric(10,2)[], da date[], tsa timestamp[], tza timestamptz[], ua uuid[],
 ia2 int[][]
"""
_PG_ROW: Final = """INSERT INTO types VALUES (1, true, -32768, 2147483647, -9223372036854775808, 1.5, -0.1,
 -12345678.90, 1234567890123456789012345678.0123456789, 1234567890123456789012345678901234567890123456.7891,
 123456789012345678901234567890.123456789, '-1234.56', E'a "q" \\u00e9 \\U0001F600\\t', 'varying', 'ab',
 '123e4567-e89b-12d3-a456-426614174000', 'happy', '{"a" : 1}', '{"b": [1, null]}', '\\x00ff10', B'1', B'10000001',
 B'101', '10.0.0.1/24', '08:00:2b:01:02:03', '10.0.0.0/8', '[1,5)', '[2026-01-01 00:00+00,)', '(1.5,-2)',
 '2026-11-20', '12:34:56.123456', '12:34:56.789', '12:34:56.123456+02', '2026-11-20 12:34:56.123456',
 '2026-11-20 12:34:56.789', '2026-11-20 12:34:56.123456+02', '1 year 2 months 3 days 04:05:06.789',
 '{1,null,3}', '{"x",null,"y z"}', '{true,null,false}', '{1.50,null,-2.25}', '{2026-11-20,null}',
 '{"2026-11-20 12:34:56.123456"}', '{"2026-11-20 12:34:56.123456+02"}', '{123e4567-e89b-12d3-a456-426614174000}',
 '{{1,2},{3,4}}')"""
_PG_TYPES: Final = Scenario(
    before=(
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        f"CREATE TABLE types ({_PG_COLUMNS})",
        _PG_ROW,
    ),
    after=(
        "INSERT INTO types (id) VALUES (2)",
        """INSERT INTO types (id, f4, f8, n38, nfree, t, by, d, tm, ts, tstz, ia, ta) VALUES
           (3, 'NaN', '-Infinity', -0.0000000001, 1e-20, '', '', '0001-01-01', '24:00:00', '0001-01-01 00:00:00',
            '9999-12-31 23:59:59.999999+00', '{}', '{}')""",
        """INSERT INTO types (id, d, ts, tstz) VALUES (4, 'infinity', 'infinity', 'infinity'),
           (5, '-infinity', '-infinity', '-infinity')""",
        """INSERT INTO types (id, t, ta, d, ts, tm) VALUES (6, '__debezium_unavailable_value',
           '{__debezium_unavailable_value}', '1969-12-31', '1969-12-31 23:59:59.999999', '23:59:59.999999')""",
        "UPDATE types SET i4 = 1 WHERE id = 1",
        "DELETE FROM types WHERE id = 2",
    ),
)
_PG_MODES: Final = Scenario(
    before=_PG_TYPES.before,
    after=_PG_TYPES.after[1:2],
    settings={
        "decimal.handling.mode": "string",
        "time.precision.mode": "connect",
        "interval.handling.mode": "string",
        "hstore.handling.mode": "map",
        "binary.handling.mode": "base64",
        "unavailable.value.placeholder": "__gone__",
    },
)
_PG_LARGE: Final = Scenario(
    before=(
        "CREATE TABLE large (id int PRIMARY KEY, v int, t text, ta text[], ia int[], jb jsonb, by bytea)",
        *(f"ALTER TABLE large ALTER COLUMN {name} SET STORAGE EXTERNAL" for name in ("t", "ta", "ia", "jb", "by")),
    ),
    after=(
        """INSERT INTO large SELECT 1, 0, string_agg('t' || i, ''), array_agg('e' || i), array_agg(i),
           jsonb_agg(i), convert_to(string_agg('b' || i, ''), 'UTF8') FROM generate_series(1, 700) i""",
        "UPDATE large SET v = 1",
        "UPDATE large SET v = 2, t = 'short', ia = NULL",
        "ALTER TABLE large REPLICA IDENTITY FULL",
        "UPDATE large SET v = 3",
    ),
)
_PG_CHANGES: Final = Scenario(
    before=(
        "CREATE TABLE orders (id int PRIMARY KEY, a int, p numeric(10,2), c text)",
        "INSERT INTO orders VALUES (1, 1, 1.50, 'one'), (2, 2, 2.50, 'two')",
        "CREATE TABLE pairs (b text, a bigint, v int, PRIMARY KEY (b, a))",
        "CREATE TABLE nokey (v int, t text)",
        "ALTER TABLE nokey REPLICA IDENTITY FULL",
        'CREATE TABLE "Täble-1 x" (id int PRIMARY KEY, _row_kind text, "Köl x" int)',
    ),
    after=(
        "INSERT INTO pairs VALUES ('x', 1, 1), ('x', 2, 2)",
        "BEGIN",
        "UPDATE pairs SET a = 3 WHERE a = 1",
        "UPDATE pairs SET a = 1 WHERE a = 2",
        "COMMIT",
        "INSERT INTO nokey VALUES (1, 'a'), (1, 'a'), (2, NULL)",
        "UPDATE nokey SET v = 3 WHERE v = 2",
        "DELETE FROM nokey WHERE ctid = (SELECT min(ctid) FROM nokey)",
        """INSERT INTO "Täble-1 x" VALUES (1, '-D', 7)""",
        "ALTER TABLE orders ADD COLUMN e int NOT NULL DEFAULT 7",
        "INSERT INTO orders VALUES (3, 3, 3.50, 'three')",
        "ALTER TABLE orders ALTER COLUMN a TYPE bigint",
        "ALTER TABLE orders ALTER COLUMN p TYPE numeric(12,4)",
        "INSERT INTO orders VALUES (4, 5000000000, 4.1234, 'four')",
        "ALTER TABLE orders DROP COLUMN c",
        "UPDATE orders SET e = 8 WHERE id = 1",
        "ALTER TABLE orders ADD COLUMN c int DEFAULT 5",
        "ALTER TABLE orders RENAME COLUMN e TO f",
        "INSERT INTO orders VALUES (5, 5, 5, 9)",
        "ALTER TABLE orders ALTER COLUMN c TYPE text",
        "INSERT INTO orders (id) VALUES (6)",
        "TRUNCATE orders",
        "INSERT INTO orders VALUES (7, 7, 7, 7, 'seven')",
        "CREATE TABLE late (id int PRIMARY KEY)",
        "INSERT INTO late VALUES (1)",
        "CREATE TABLE parts (id int, k int, v text, PRIMARY KEY (id, k)) PARTITION BY LIST (k)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1)",
        "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2)",
        "INSERT INTO parts VALUES (1, 1, 'a')",
        "UPDATE parts SET k = 2",
    ),
    settings={"heartbeat.interval.ms": "100"},
)
_MARIADB_TYPES: Final = Scenario(
    before=(
        """CREATE TABLE types (id INT PRIMARY KEY, t1 TINYINT(1), ti TINYINT, tu TINYINT UNSIGNED, su SMALLINT UNSIGNED,
           mu MEDIUMINT UNSIGNED, iu INT UNSIGNED, bi BIGINT, bu BIGINT UNSIGNED, f FLOAT, d DOUBLE, n DECIMAL(10,2),
           n65 DECIMAL(65,30), b1 BIT(1), b9 BIT(9), c CHAR(5), v VARCHAR(20), t TEXT, vb VARBINARY(8), bl BLOB,
           en ENUM('a','b'), st SET('x','y','z'), js JSON, y YEAR, da DATE, dt DATETIME, dt6 DATETIME(6),
           ts TIMESTAMP(6) NULL, tm TIME, tm6 TIME(6))""",
        """INSERT INTO types VALUES (1, 1, -128, 255, 65535, 16777215, 4294967295, -9223372036854775808,
           18446744073709551615, 1.5, -0.1, -12345678.90, 1234567890.123456789012345678901234567890, b'1', b'100000001',
           'ab', 'é 😀', 'text', x'00ff', x'00ff10', 'b', 'x,z', '{"a": 1}', 2026, '2026-11-20', '2026-11-20 12:34:56',
           '2026-11-20 12:34:56.123456', '2026-11-20 12:34:56.123456', '12:34:56', '-838:59:59.999999')""",
    ),
    after=(
        "INSERT INTO types (id) VALUES (2)",
        "SET sql_mode = ''",
        "INSERT INTO types (id, da, dt, tm) VALUES (3, '0000-00-00', '0000-00-00 00:00:00', '24:00:00')",
        "UPDATE types SET iu = 1 WHERE id = 1",
        "DELETE FROM types WHERE id = 2",
        "ALTER TABLE types ADD COLUMN e INT NOT NULL DEFAULT 7, MODIFY COLUMN v TEXT",
        "INSERT INTO types (id, e) VALUES (4, 8)",
        "TRUNCATE TABLE types",
        "INSERT INTO types (id, bu) VALUES (5, 9223372036854775808)",
    ),
    settings={"bigint.unsigned.handling.mode": "precise"},
)
_PG_CONTRIB: Final = Scenario(
    before=(
        "CREATE EXTENSION hstore",
        "CREATE EXTENSION citext",
        "CREATE TABLE contrib (id int PRIMARY KEY, v int, h hstore, c citext, x xml, ha hstore[], ca citext[])",
        "ALTER TABLE contrib ALTER COLUMN h SET STORAGE EXTERNAL",
        "INSERT INTO contrib VALUES (1, 1, 'a=>1,b=>NULL', 'Ab', '<a>1</a>', NULL, '{Ab}')",
    ),
    after=(
        "INSERT INTO contrib (id, v, h) SELECT 2, 0, hstore(array_agg('k' || i), array_agg('v' || i)) "
        "FROM generate_series(1, 500) i",
        "UPDATE contrib SET v = 1 WHERE id = 2",
    ),
)
POSTGRES: Final = {"types": _PG_TYPES, "modes": _PG_MODES, "large": _PG_LARGE, "changes": _PG_CHANGES}
MARIADB: Final = {"mariadb-types": _MARIADB_TYPES}


def _hstores(settings: Mapping[str, str]) -> Scenario:
    """Values of contrib's types, and bytes, that are stored apart and left alone."""
    names = ("h", "ha", "c", "ca", "b")
    many = "(SELECT hstore(array_agg('k' || i), array_agg('value ' || i)) FROM generate_series(1, 130) i)"
    return Scenario(
        before=(
            "CREATE EXTENSION hstore",
            "CREATE EXTENSION citext",
            "CREATE TABLE hstores (id int PRIMARY KEY, v int, h hstore, ha hstore[], c citext, ca citext[], b bytea)",
            *(f"ALTER TABLE hstores ALTER COLUMN {name} SET STORAGE EXTERNAL" for name in names),
            "INSERT INTO hstores VALUES (1, 1, 'a=>1,b=>NULL', ARRAY['a=>1'::hstore], 'Ab', '{Ab}', '\\x00ff')",
        ),
        after=(
            f"INSERT INTO hstores VALUES (2, 1, {many}, ARRAY[{many}], repeat('C', 2100), "
            "ARRAY[repeat('C', 2100)]::citext[], decode(repeat('ab', 2100), 'hex'))",
            "INSERT INTO hstores VALUES (3, 1, 'a=>1', '{}', '', '{}', '')",
            "INSERT INTO hstores VALUES (4, 1)",
            "UPDATE hstores SET v = 2",
            "UPDATE hstores SET h = NULL WHERE id = 1",
        ),
        settings={"column.propagate.source.type": ".*", **settings},
    )


POSTGRES_CONTRIB: Final = {
    "contrib": _PG_CONTRIB,
    "hstores-json": _hstores({"hstore.handling.mode": "json", "binary.handling.mode": "base64"}),
    "hstores-map": _hstores({"hstore.handling.mode": "map", "binary.handling.mode": "hex"}),
}
"""Needs a PostgreSQL with its contrib extensions and libxml, which that of the tests has not."""
