"""The inputs of Spark's own tests of SQL, run once on tables of Parquet and once on ours: the results are equal.

``python -m tests.peers.spark_inputs``, maybe with ``--only subquery/``, prints counts as one line of JSON and each
statement that differs; it fails when one does that no reason is known for. The inputs are in the jar of Spark's tests,
which is fetched as other jars are. Their temporary views of constants become tables, so that queries read tables.
"""

import argparse
import hashlib
import json
import re
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import VariantVal

import engine
from engine import Catalog
from engine.broker.jars import fetch_jars

_ROOT: Final = Path(__file__).parents[2]
_COORDINATES: Final = ("org.apache.spark:spark-sql_2.13:4.2.0@tests.jar",)
_INPUTS: Final = "sql-tests/inputs/"
_DATABASE: Final = "golden"
_VIEW: Final = re.compile(
    r"^\s*create\s+(?:or\s+replace\s+)?temp(?:orary)?\s+view\s+(\w+)\s*(\([\w\s,`]+\))?\s+as\s+(.*)$", re.I | re.S
)
_DROP_VIEW: Final = re.compile(r"^\s*drop\s+view\s+(?:if\s+exists\s+)?(\w+)\s*$", re.I)
_TOUCHES: Final = re.compile(r"create\s+table|insert\s+into|temp(orary)?\s+view|testdata|tenk1|onek|aggtest", re.I)
_STORAGE: Final = re.compile(
    r"^\s*(explain|analyze|desc|describe|show\s+(create|table|tblproperties|partitions)|cache|uncache|refresh|set|reset"
    r"|add|list|use|clear)\b",
    re.I,
)
"""Statements about how a table is stored, or about the session."""


def spark_tests_jars() -> tuple[Path, ...]:
    """The jar of Spark's tests, fetched at the first call."""
    return fetch_jars(_COORDINATES, _ROOT / "conf" / "spark-tests-jars.lock")


def texts() -> dict[str, str]:
    """The inputs that touch tables or views, by name."""
    (jar,) = spark_tests_jars()
    with zipfile.ZipFile(jar) as inside:
        names = [each for each in inside.namelist() if each.startswith(_INPUTS) and each.endswith(".sql")]
        found = {name.removeprefix(_INPUTS): inside.read(name).decode() for name in names}
    return {name: text for name, text in sorted(found.items()) if _TOUCHES.search(text)}


def statements_of(name: str, inputs: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The settings and the statements of an input."""
    lines = inputs[name].splitlines()
    settings: dict[str, str] = {}
    code: list[str] = []
    for line in lines:
        word = line.strip()
        if word.startswith("--IMPORT "):
            code.append(";".join([*statements_of(word.removeprefix("--IMPORT ").strip(), inputs)[1], ""]))
        elif word.startswith("--SET "):
            for pair in word.removeprefix("--SET ").split(","):
                key, _, value = pair.partition("=")
                settings[key.strip()] = value.strip()
        elif word.startswith("--QUERY-DELIMITER") or not word.startswith("--"):
            code.append(line)
    found: list[str] = []
    for number, part in enumerate(re.split(r"--QUERY-DELIMITER-(?:START|END)[^\n]*", "\n".join(code))):
        found += [part] if number % 2 else re.split(r"(?<=[^\\]);", part)
    return settings, [each.strip().removesuffix(";") for each in found if each.strip()]


@dataclass
class Side:
    """One catalog of the session: where the statements of an input run."""

    spark: SparkSession
    catalog: str
    tables: set[str] = field(default_factory=set)  # that views have become

    @classmethod
    def fresh(cls, spark: SparkSession, catalog: str, settings: Mapping[str, str]) -> "Side":
        """In a session of its own, with an empty database."""
        session = spark.newSession()
        for key, value in settings.items():
            session.conf.set(key, value)
        with suppress(PySparkException):
            session.sql(f"DROP DATABASE IF EXISTS {catalog}.{_DATABASE} CASCADE")
        session.sql(f"CREATE DATABASE IF NOT EXISTS {catalog}.{_DATABASE}")
        session.sql(f"USE {catalog}.{_DATABASE}")
        return cls(session, catalog)

    def run(self, text: str, *, is_table: bool | None = None) -> tuple[Any, bool]:
        """What a statement gives, and whether a view became a table.

        Args:
            text: the statement.
            is_table: whether a view becomes a table; None: where that works.
        """
        view, drop = _VIEW.match(text), _DROP_VIEW.match(text)
        if view is not None and is_table is not False:
            name, columns, query = view.groups()
            query = f"SELECT * FROM ({query}) AS q{columns}" if columns else query
            found = self._outcome(f"CREATE TABLE {name} AS {query}")
            if is_table or isinstance(found, list):
                self.tables.add(name.lower())
                return found, True
        if drop is not None and drop[1].lower() in self.tables:
            self.tables.discard(drop[1].lower())
            return self._outcome(f"DROP TABLE {drop[1]}"), False
        return self._outcome(re.sub(r"\busing\s+(parquet|json|orc|csv)\b", "", text, flags=re.I)), False

    def _outcome(self, text: str) -> Any:
        try:
            frame = self.spark.sql(text)
            names = [f"{each.name} {each.dataType.simpleString()}" for each in frame.schema.fields]
            rows = sorted(str([_plain(value) for value in row]) for row in frame.collect())
        except PySparkException as error:
            return f"error {error.getCondition() or type(error).__name__}"
        except Py4JJavaError as error:
            return f"error {error.java_exception.getClass().getName()}"
        except (ValueError, OverflowError):  # Python has no such time
            return "error of Python's times"
        return [str(names), *(row.replace(self.catalog, "catalog") for row in rows)] if rows else [str(names)]

    def end(self) -> None:
        """Drop everything."""
        self.spark.sql("USE spark_catalog.default")
        with suppress(PySparkException):
            self.spark.sql(f"DROP DATABASE IF EXISTS {self.catalog}.{_DATABASE} CASCADE")


def _plain(value: Any) -> Any:
    """A value as it is compared: a VARIANT's bytes say in which order its names were seen."""
    if isinstance(value, VariantVal):
        return value.toJson()
    return f"{value:.10g}" if isinstance(value, float) else value


def difference(text: str, ours: Any, theirs: Any) -> str | None:
    """How the results of a statement differ; None: not."""
    if isinstance(ours, list) != isinstance(theirs, list):
        return "refused" if isinstance(theirs, list) else "accepted"
    if not isinstance(ours, list):
        return None if ours == theirs else "error"
    writes = re.match(
        r"\s*(execute immediate\s+')?(insert|create|drop|alter|truncate|update|delete|merge|with.*insert)",
        text,
        re.I | re.S,
    )
    return None if ours == theirs or writes else "rows"


@dataclass(frozen=True)
class Played:
    """One statement on both sides."""

    text: str
    how: str | None  # it differs; None: not
    ours: Any
    theirs: Any
    reason: str | None  # why it differs


def played(spark: SparkSession, name: str, inputs: Mapping[str, str]) -> Iterator[Played]:
    """Each statement of an input."""
    settings, texts = statements_of(name, inputs)
    plain = Side.fresh(spark, "spark_catalog", settings)
    expected = [(plain.run(text), text) for text in texts]
    plain.end()
    ours = Side.fresh(spark, "fluvial", settings)
    is_missing = False
    for (theirs, is_table), text in expected:
        found, _ = ours.run(text, is_table=is_table)
        if not _STORAGE.match(text):
            how = difference(text, found, theirs)
            reason = None if how is None else reason_of(name, text, how)
            if how is not None and reason is None and is_missing and found in [f"error {each}" for each in _MISSING]:
                reason = "what it names was refused before, with a reason"
            is_missing |= how == "refused" and reason is not None
            yield Played(text, how, found, theirs, reason)
    ours.end()


_MISSING: Final = ("TABLE_OR_VIEW_NOT_FOUND", "UNRESOLVED_ROUTINE", "MISSING_CATALOG_ABILITY.TABLE_VALUED_FUNCTIONS")
"""Errors about names of what was not made."""
_HOW: Final = "refused|error"
REASONS: Final[Sequence[tuple[str, str, str, str]]] = (
    (".*", _HOW, r"^(create|alter|drop)\b.*\bview\b", "the catalog stores no views: docs/spark-sql.md"),
    (".*", _HOW, r"^alter table.*\bpartition\b|^msck|^load data", "partitions come and go with their rows"),
    (".*", "refused", r"\bset serdeproperties\b|\bstored as\b|\brow format\b", "Hive's tables only"),
    (".*", "refused", r"^create table.*\bpassword\b", "a secret is no property of a table"),
    (".*", "refused", r"^create table.*(\blocation '|'path')", "tables lie below the catalog's external-paths.allowed"),
    (".*", "refused", r"^create table.*\bclustered by\b", "buckets are by the option bucket"),
    (".*", "refused", r"^create table.*\bcollat(e|ion)\b", "a table compares bytes: docs/spark-sql.md"),
    (".*", "refused", r"^create table.*\bdefault \w+\(", "a default is a constant: docs/spark-statements.md"),
    (".*", "refused", r"partitioned by \(b, c\).*as binary\)", "no partitions by BINARY or TIMESTAMP"),
    (".*", "refused", r"set tblproperties.*\"type\"", "type is an option: what kind of table it is"),
    (".*", "accepted", r"^alter table.*\b(rename|change|first|after|drop)\b", "tables of Spark's own cannot"),
    (
        ".*",
        "accepted",
        r"^(execute immediate 'alter|delete|update|merge|replace table)",
        "tables of Spark's own cannot",
    ),
    ("change-column", "refused|error", r"^alter table test_change", "its columns were renamed and moved before"),
    ("identifier-clause", "rows", r"identifier\(|\bc[12] from tab\b|tab_renamed", "statements before differed"),
    ("identifier-clause", "refused", r"truncate table identifier|\(identifier\(", "docs/spark-statements.md"),
    (
        "identifier-clause",
        "error",
        r"^repair table|'a\.b\.c|/\*\+ identifier",
        "another catalog has another word for it",
    ),
    ("view-with-default", "rows|refused", r"\bfrom v\b", "v is the view before: the catalog stores none"),
    ("execute-immediate", "error", r"'insert.* into res_id", "a change of rows gives its counts"),
    (".*", "refused", r"^(alter|comment on) (schema|database)\b", "a database has no properties"),
    (".*", _HOW, r"^(create|drop|describe|show)\b.*\b(function|views)\b", "the catalog stores no functions and views"),
    (".*", "refused", r"^create table.*timestamp(_ntz)?\b.*partitioned by", "no partitions by BINARY or TIMESTAMP"),
    ("charvarchar", "rows", r"\bchar_tbl4\b", "CHAR is not padded: docs/spark-sql.md"),
    ("sql-on-files", _HOW, r"`\$\{spark\.sql\.warehouse\.dir\}", "files below the directory of Spark's own tables"),
    ("subquery/subquery-nested-data", "rows", r"lateral \(select xm\[", "a name that Spark gives has no catalog in it"),
    ("metadata_column", "refused", r"_metadata", "a row is of several files: docs/spark-statements.md"),
    (".*", "rows", r"\blimit\s+\d+(?!.*\border by\b)|\blimit\b[^()]*\)", "LIMIT takes any rows without an order"),
    (".*", "rows", r"\b(collect_list|collect_set|first|last|any_value)\s*\(", "its order is that of the files"),
)
"""Patterns of inputs, of how they differ, and of statements; and why."""


def reason_of(name: str, text: str, how: str) -> str | None:
    """Why a statement differs; None: it should not."""
    for input_pattern, hows, pattern, reason in REASONS:
        if re.match(input_pattern, name) and how in hows.split("|") and re.search(pattern, text, re.I | re.S):
            return reason
    return None


def _mixed(name: str) -> bytes:
    """An order in which each part of a run has something of all."""
    return hashlib.sha256(name.encode()).digest()


def main(arguments: list[str]) -> int:
    """Returns 1 if a statement differs without a reason."""
    parser = argparse.ArgumentParser(prog="python -m tests.peers.spark_inputs", description=__doc__)
    parser.add_argument("--only", default="", help="inputs whose name begins so")
    parser.add_argument("--seconds", type=float, default=1e9, help="how long (default: all)")
    given = parser.parse_args(arguments)
    until_s = time.monotonic() + given.seconds
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as home:
        conf = {
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.ui.enabled": "false",
            "spark.log.level": "OFF",
            "spark.sql.shuffle.partitions": "2",
        }
        spark = engine.session("inputs", "local[2]", conf | {"spark.sql.warehouse.dir": f"{home}/spark"})
        engine.install(spark, Catalog(f"{home}/warehouse"))
        inputs = texts()
        for name in sorted((each for each in inputs if each.startswith(given.only)), key=_mixed):
            if time.monotonic() > until_s:
                break
            counts["inputs"] += 1
            for each in played(spark, name, inputs):
                how, reason = each.how, each.reason
                counts["equal" if how is None else f"{how} ({reason})" if reason else how] += 1
                if how is not None and reason is None:
                    sides = f"  ours   {str(each.ours)[:500]}\n  theirs {str(each.theirs)[:500]}\n"
                    print(f"{name}: {how}\n{each.text[:600]}\n{sides}", flush=True)
        spark.stop()
    print(json.dumps(counts))
    return 1 if {"refused", "accepted", "rows", "error"} & {*counts} else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
