"""One history of statements on a table, each against a second table of plain Parquet that is rewritten by SELECT."""

import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import engine
from engine import Catalog
from lsm.errors import FluvialError
from tests.statements.drawing import EARLY, STRUCT, Column, Draw

KINDS: Final[Mapping[str, str]] = {
    "key": "'bucket' = '2'",
    "dynamic": "'file.format' = 'parquet'",
    "partitioned key": "'bucket' = '1'",
    "vectors": "'bucket' = '1', 'deletion-vectors.enabled' = 'true'",
    "none": "'file.format' = 'parquet'",
    "none with vectors": "'deletion-vectors.enabled' = 'true'",
    "row counts": "'row-counts' = 'true', 'bucket' = '1'",
    "partitions": "'file.format' = 'parquet'",
}
FORMATS: Final = ("parquet", "parquet", "orc", "avro")
_KEYED: Final = ("key", "dynamic", "partitioned key", "vectors")
_CHANGED: Final = (*_KEYED, "none with vectors", "row counts")


class Difference(AssertionError):
    """The table is not what the oracle is."""


class Undecided(Exception):
    """The oracle fails, for a cast that the statement need not compute: what is right is not known."""


@dataclass
class History:
    """A table, its oracle, and what was done."""

    spark: SparkSession
    catalog: Catalog
    home: Path
    kind: str
    seed: int
    done: list[str] = field(default_factory=list)
    version: int = 0

    def __post_init__(self) -> None:
        self.draw = Draw(self.seed)
        self.columns = self.draw.columns()
        self.format = self.draw.pick(FORMATS)
        if "orc" in self.file_format:
            self.draw.left_out = frozenset({EARLY})
        self.table = f"st.t{self.seed}_{self.kind.replace(' ', '_')}"
        self.name = f"fluvial.{self.table}"

    # ---- the table and the oracle

    def begin(self) -> None:
        """Make both, empty."""
        is_split = self.kind.startswith("partition")
        key = ", PRIMARY KEY (id, p) NOT ENFORCED" if is_split else ", PRIMARY KEY (id) NOT ENFORCED"
        columns = ", ".join(f"{each.name} {each.type}" for each in self.columns)
        self.run(
            f"CREATE TABLE {self.name} ({columns}{key if self.kind in _KEYED else ''})"
            f"{' PARTITIONED BY (p)' if is_split else ''} "
            f"WITH ({KINDS[self.kind]}{self.file_format})"
        )
        self.become(f"{self.draw.rows(self.columns, [])}")

    @property
    def file_format(self) -> str:
        """Of the files, where the kind leaves it open."""
        return "" if "file.format" in KINDS[self.kind] else f", 'file.format' = '{self.format}'"

    def become(self, query: str, view: str = "o") -> None:
        """The oracle has the rows of a query from now on."""
        self.version += 1
        path = str(self.home / f"{self.kind.replace(' ', '_')}_{self.seed}_{self.version}")
        self.spark.sql(query).write.parquet(path)
        schema = ", ".join(f"{each.name} {each.type.replace('VARCHAR(5)', 'STRING')}" for each in self.columns)
        self.spark.read.schema(schema).parquet(path).createOrReplaceTempView(view)

    def run(self, text: str, arguments: Mapping[str, object] | None = None) -> None:
        """Run a statement of the table by the door that is drawn."""
        self.done.append(text + (f"  -- p = {dict(arguments)}" if arguments else ""))
        if arguments or self.draw.chance(0.6):
            self.spark.sql(text, args=dict(arguments or {})).collect()
        else:
            engine.sql(self.spark, text.replace(self.name, self.table), self.catalog).collect()

    def change(self, text: str, becomes: str, arguments: Mapping[str, object] | None = None) -> None:
        """Run a statement, and let the oracle become what it means."""
        try:
            rows = self.spark.sql(becomes, args=dict(arguments or {}))
            rows.createOrReplaceTempView("becomes")
            self.become("SELECT * FROM becomes", "next")
        except PySparkException as error:
            try:
                self.run(text, arguments)
            except (PySparkException, FluvialError):
                self.done[-1] += "  -- refused, as by Spark"
                return
            raise Undecided(str(error)[:300]) from error
        try:
            self.run(text, arguments)
        except (PySparkException, FluvialError) as error:
            if "CAST_INVALID_INPUT" in str(error):  # whether a cast is computed for a row is the plan's
                raise Undecided(str(error)[:300]) from error
            raise self.difference(f"refused: {type(error).__name__} {str(error)[:600]}") from error
        self.spark.table("next").createOrReplaceTempView("o")

    def difference(self, words: str) -> Difference:
        """An error that can be replayed."""
        shown = "\n  ".join(self.done)
        replay = f"python -m tests.statements --only '{self.kind}' --first {self.seed} --count 1"
        return Difference(f"{words}\n  {shown}\n{replay}")

    # ---- what is compared

    def doors(self) -> dict[str, Callable[[str, Mapping[str, object]], DataFrame]]:
        """Ways to read rows by a condition."""
        spark = self.spark
        source = spark.read.format("fluvial").option("warehouse", self.catalog.warehouse).option("table", self.table)
        return {
            "spark.sql": lambda where, args: spark.sql(f"SELECT * FROM {self.name} WHERE {where}", args=dict(args)),
            "spark.table": lambda where, _: spark.table(self.name).where(where),
            "format": lambda where, _: source.load().where(where),
            "engine.sql": lambda where, _: engine.sql(spark, f"SELECT * FROM {self.table} WHERE {where}", self.catalog),
        }

    def compare(self) -> None:
        """All rows, and those of two random conditions, each by one door."""
        wanted: list[tuple[str, dict[str, object]]] = [("true", {}), self.condition(), self.condition()]
        for (where, args), expected in zip(wanted, self.expected(wanted), strict=True):
            doors = self.doors()
            door = "spark.sql" if args else self.draw.pick(sorted(doors))
            found = outcome(doors[door], where, args)
            if expected == "error":  # of a cast: whether it is computed for a row is the plan's
                continue
            if found == "error":
                expected = outcome(self.spark.sql, f"SELECT * FROM o WHERE {where}", args)
            if found != expected:
                raise self.difference(f"{door} WHERE {where} {args}\n  expected {expected}\n  found    {found}")

    def expected(self, wanted: "list[tuple[str, dict[str, object]]]") -> "list[list[str] | str]":
        """The oracle's rows of some conditions, in one query, if none of them is an error.

        One that is an error where each row computes it is an error also where Spark's own files leave such rows out.
        """
        marks = ", ".join(f"{where.replace(':p', f':p{at}')} AS k{at}" for at, (where, _) in enumerate(wanted))
        given = {f"p{at}": args["p"] for at, (_, args) in enumerate(wanted) if args}
        try:
            rows = [row.asDict(recursive=True) for row in self.spark.sql(f"SELECT *, {marks} FROM o", given).collect()]
        except PySparkException:
            marked = [outcome(self.spark.sql, f"SELECT *, {where} AS k FROM o", args) for where, args in wanted]
            return [
                "error" if found == "error" else outcome(self.spark.sql, f"SELECT * FROM o WHERE {where}", args)
                for found, (where, args) in zip(marked, wanted, strict=True)
            ]
        names = [each.name for each in self.columns]
        return [
            sorted(repr(_ordered({name: row[name] for name in names})) for row in rows if row[f"k{at}"])
            for at in range(len(wanted))
        ]

    # ---- statements

    def step(self) -> None:
        """One statement, of those that the kind of table has."""
        steps = [self.insert, self.insert, self.overwrite, self.compact, self.insert_some]
        if self.kind in _CHANGED:
            steps += [self.delete, self.delete, self.replace_where, self.update, self.update, self.update]
        if self.kind in _KEYED:
            steps += [self.merge, self.merge]
        self.draw.random.choice(steps)()

    def source(self) -> None:
        """The view ``s``: some rows, of keys that are there and new ones."""
        keys = self.draw.random.sample(range(12), self.draw.random.randint(0, 5))
        query = self.draw.rows(self.columns, keys)
        self.spark.sql(query).createOrReplaceTempView("s")
        self.done.append(f"CREATE OR REPLACE TEMPORARY VIEW s AS {query}")

    @property
    def kept(self) -> str:
        """The rows that an INSERT of ``s`` leaves."""
        return "SELECT * FROM o WHERE id NOT IN (SELECT id FROM s)" if self.kind in _KEYED else "SELECT * FROM o"

    def insert(self) -> None:
        self.source()
        meant = f"{self.kept} UNION ALL SELECT * FROM s"
        way = self.draw.pick(["sql", "by name", "append", "save", "insertInto"])
        if way == "sql":
            return self.change(f"INSERT INTO {self.name} SELECT * FROM s", meant)
        if way == "by name":
            turned = ", ".join(each.name for each in reversed(self.columns))
            return self.change(f"INSERT INTO {self.name} BY NAME SELECT {turned} FROM s", meant)
        rows, self.done = self.spark.table("s"), [*self.done, way]
        self.become(meant, "next")
        source = rows.write.format("fluvial").option("warehouse", self.catalog.warehouse).option("table", self.table)
        {
            "append": lambda: rows.writeTo(self.name).append(),
            "save": lambda: source.mode("append").save(),
            "insertInto": lambda: rows.write.insertInto(self.name),
        }[way]()
        return self.spark.table("next").createOrReplaceTempView("o")

    def insert_some(self) -> None:
        """Some columns; the others are null."""
        self.source()
        others = {each.name for each in self.draw.random.sample(self.columns[2:], 2)}
        listed = ", ".join(each.name for each in self.columns if each.name not in others)
        values = ", ".join(
            f"CAST(NULL AS {each.type}) AS {each.name}" if each.name in others else each.name for each in self.columns
        )
        self.change(
            f"INSERT INTO {self.name} ({listed}) SELECT {listed} FROM s",
            f"{self.kept} UNION ALL SELECT {values} FROM s",
        )

    def overwrite(self) -> None:
        self.source()
        if self.kind.startswith("partition") and self.draw.chance(0.6):
            part = self.draw.random.randint(0, 2)
            others = ", ".join(each.name for each in self.columns if each.name != "p")
            values = ", ".join(f"{part} AS p" if each.name == "p" else each.name for each in self.columns)
            return self.change(
                f"INSERT OVERWRITE {self.name} PARTITION (p = {part}) SELECT {others} FROM s",
                f"SELECT * FROM o WHERE p <> {part} UNION ALL SELECT {values} FROM s",
            )
        return self.change(f"INSERT OVERWRITE {self.name} SELECT * FROM s", "SELECT * FROM s")

    def compact(self) -> None:
        self.run(f"ALTER TABLE {self.name} COMPACT")

    def condition(self) -> tuple[str, dict[str, Any]]:
        """A condition, and its parameter."""
        where = self.draw.condition(self.columns)
        return where, {"p": self.draw.parameter} if ":p" in where else {}

    def delete(self) -> None:
        where, args = self.condition()
        self.change(
            f"DELETE FROM {self.name} WHERE {where}", f"SELECT * FROM o WHERE NOT coalesce({where}, false)", args
        )

    def replace_where(self) -> None:
        """A row of a key that stays would be refused; so is a condition that has no meaning."""
        where = self.draw.plain_condition(self.columns)
        self.source()
        stays = f"id IN (SELECT id FROM o WHERE NOT coalesce({where}, false))"
        meets = f"SELECT * FROM s WHERE ({where}){f' AND NOT {stays}' if self.kind in _KEYED else ''}"
        meeting = self.spark.table("s")
        with suppress(PySparkException):
            meeting = self.spark.sql(meets)
        meeting.createOrReplaceTempView("meeting")
        self.change(
            f"INSERT INTO {self.name} REPLACE WHERE {where} SELECT * FROM meeting",
            f"SELECT * FROM o WHERE NOT coalesce({where}, false) UNION ALL SELECT * FROM meeting",
        )

    def update(self) -> None:
        where, args = self.condition()
        sets = self.draw.assigned(self.columns)
        values = ", ".join(changed(each, sets, where) for each in self.columns)
        assigned = ", ".join(f"{name} = {value}" for name, value in sets.items())
        self.change(f"UPDATE {self.name} SET {assigned} WHERE {where}", f"SELECT {values} FROM o", args)

    def merge(self) -> None:
        """Up to two clauses of each kind; the oracle is an outer join."""
        self.source()
        draw, matched, missing, rest = self.draw, [], [], []
        own = [Column(f"t.{each.name}", each.type) for each in self.columns]
        for _ in range(draw.random.randint(0, 2)):
            condition = draw.plain_condition(own)
            matched.append((condition, draw.pick(["UPDATE SET *", "DELETE", "UPDATE"]), draw.assigned(self.columns)))
        for _ in range(draw.random.randint(0, 1)):
            rest.append((draw.plain_condition(own), draw.pick(["DELETE", "UPDATE"]), draw.assigned(self.columns)))
        if draw.chance(0.7) or not (matched or rest):
            missing.append(draw.plain_condition([Column(f"s.{each.name}", each.type) for each in self.columns]))
        text = [f"MERGE INTO {self.name} t USING s ON t.id = s.id{' AND t.p = s.p' * self.kind.startswith('part')}"]
        for condition, what, sets in matched:
            text.append(f"WHEN MATCHED AND {condition} THEN {clause(what, sets)}")
        text += [f"WHEN NOT MATCHED AND {condition} THEN INSERT *" for condition in missing]
        for condition, what, sets in rest:
            text.append(f"WHEN NOT MATCHED BY SOURCE AND {condition} THEN {clause(what, sets)}")
        self.change(" ".join(text), merged(self.columns, matched, missing, rest))


def clause(what: str, sets: Mapping[str, str]) -> str:
    """The action of a MERGE."""
    if what != "UPDATE":
        return what
    return "UPDATE SET " + ", ".join(f"{name} = {of_target(value)}" for name, value in sets.items())


def of_target(value: str) -> str:
    """A value with its columns named as the target's."""
    return re.sub(r"\b(id|c\d)\b", r"t.\1", value)


def merged(columns: list[Column], matched: list[Any], missing: list[str], rest: list[Any]) -> str:
    """What a MERGE means, by SELECT."""
    actions = [(f"s.is_there IS NOT NULL AND ({condition})", what, sets) for condition, what, sets in matched]
    actions += [(f"s.is_there IS NULL AND ({condition})", what, sets) for condition, what, sets in rest]

    def value(each: Column) -> str:
        def by(what: str, sets: Mapping[str, str]) -> str:
            if what == "UPDATE SET *":
                return f"s.{each.name}"
            is_set = what == "UPDATE" and any(name.split(".")[0] == each.name for name in sets)
            return new_value(each, sets, "t.") if is_set else f"t.{each.name}"

        cases = " ".join(f"WHEN {condition} THEN {by(what, sets)}" for condition, what, sets in actions)
        return f"CASE {cases} ELSE t.{each.name} END AS {each.name}" if cases else f"t.{each.name}"

    gone = " ".join(f"WHEN {condition} THEN {str(what == 'DELETE').lower()}" for condition, what, _ in actions)
    kept = (
        f"SELECT {', '.join(map(value, columns))} FROM o t LEFT JOIN (SELECT *, true AS is_there FROM s) s "
        f"ON t.id = s.id{f' WHERE NOT (CASE {gone} ELSE false END)' if gone else ''}"
    )
    new = [f"SELECT s.* FROM s WHERE id NOT IN (SELECT id FROM o) AND ({condition})" for condition in missing]
    return " UNION ALL ".join([kept, *new])


def new_value(column: Column, sets: Mapping[str, str], prefix: str = "") -> str:
    """What an assignment gives to a column: a field of a null struct makes the struct."""
    ((name, value),) = sets.items()
    value = of_target(value) if prefix else value
    if column.type == STRUCT and "." in name:
        own = prefix + column.name
        return f"named_struct('x', CAST({value} AS INT), 'y', {own}.y, 'z', {own}.z)"
    return f"CAST({value} AS {column.type})"


def changed(column: Column, sets: Mapping[str, str], where: str) -> str:
    """A column of an UPDATE's result."""
    if not any(name.split(".")[0] == column.name for name in sets):
        return column.name
    return f"CASE WHEN {where} THEN {new_value(column, sets)} ELSE {column.name} END AS {column.name}"


def outcome(read: Callable[[str, Mapping[str, object]], DataFrame], *given: Any) -> "list[str] | str":
    """The rows in an order of their own; "error" for any error: whose it is differs by door."""
    try:
        return sorted(repr(_ordered(row.asDict(recursive=True))) for row in read(*given).collect())
    except (PySparkException, FluvialError):
        return "error"


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    return [_ordered(each) for each in value] if isinstance(value, list) else value


def play(spark: SparkSession, catalog: Catalog, kind: str, seed: int, steps: int = 8) -> int:
    """One history; the number of statements. Raises: Difference."""
    with tempfile.TemporaryDirectory() as home:
        history = History(spark, catalog, Path(home), kind, seed)
        spark.conf.set("spark.sql.codegen.wholeStage", str(history.draw.chance(0.2)).lower())
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "STATIC")  # through every door
        history.begin()
        with suppress(Undecided):
            for _ in range(steps):
                history.step()
                history.compare()
        spark.sql(f"DROP TABLE {history.name}")
        return len(history.done)
