"""``DataFrame.mergeInto`` with every clause, on each kind of table: the rows are those of a merge in plain Python."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from engine import Catalog

Row = tuple[Any, ...]
"""``id``, ``p``, ``n``, and the fields ``x`` and ``y`` of the struct ``s``; None: a null struct."""

KEY = "(id INT PRIMARY KEY NOT ENFORCED, p INT, n BIGINT, s STRUCT<x: INT, y: STRING>) WITH ('bucket' = '2'{})"
PLAIN = "(id INT, p INT, n BIGINT, s STRUCT<x: INT, y: STRING>) {}"
KINDS: Final = {
    "key": KEY.format(""),
    "key, dynamic buckets": KEY.format("").replace("'2'", "'-1'"),
    "key, deletion vectors": KEY.format(", 'deletion-vectors.enabled' = 'true'"),
    "key, orc": KEY.format(", 'file.format' = 'orc'"),
    "key, partitions": "(id INT, p INT, n BIGINT, s STRUCT<x: INT, y: STRING>, PRIMARY KEY (id, p) NOT ENFORCED) "
    "PARTITIONED BY (p) WITH ('bucket' = '1')",
    "no key": PLAIN.format(""),
    "no key, deletion vectors": PLAIN.format("WITH ('deletion-vectors.enabled' = 'true')"),
    "no key, row counts": PLAIN.format("WITH ('row-counts' = 'true')"),
    "no key, partitions": PLAIN.format("PARTITIONED BY (p)"),
}
ROWS: Final[Sequence[Row]] = (
    (1, 1, 10, (1, "a")),
    (2, 2, None, (2, None)),
    (3, 1, 30, None),
    (4, 2, 40, (None, "d")),
    (5, 1, 50, (5, "e")),
)
NEWS: Final[Sequence[Row]] = (
    (2, 2, 21, (20, "new")),
    (3, 1, None, (30, "new")),
    (4, 2, 41, None),
    (5, 1, 50, (5, "e")),
    (6, 2, 60, (6, "f")),
    (7, 1, None, None),
)


@dataclass(frozen=True)
class Clause:
    """One WHEN: which rows it takes, and what becomes of one (None: it is deleted)."""

    of: str  # matched, new or rest
    gives: Callable[[Row | None, Row | None], Row | None]
    sets: dict[str, str] | str  # columns by expression, "all" or "delete"; ``t`` is the table
    if_text: str | None = None
    if_: Callable[[Row | None, Row | None], bool | None] = lambda old, new: True


def _n(row: Row | None) -> Any:
    assert row is not None
    return row[2]


def _with(row: Row | None, **fields: Any) -> Row:
    assert row is not None
    found = dict(zip(("id", "p", "n", "s"), row, strict=True)) | fields
    return tuple(found.values())


UPDATE_ALL = Clause("matched", lambda old, new: new, "all")
INSERT_ALL = Clause("new", lambda old, new: new, "all")
MERGES: Final[dict[str, Sequence[Clause]]] = {
    "update all, insert all": (UPDATE_ALL, INSERT_ALL),
    "only insert": (INSERT_ALL,),
    "clauses in order": (
        Clause("matched", lambda old, new: None, "delete", "q.n > 40 AND q.id < 5", lambda old, new: _over(new, 40, 5)),
        Clause(
            "matched",
            lambda old, new: _with(old, n=-1),
            {"n": "-1"},
            "t.s IS NULL OR q.n = 21",
            lambda old, new: _no_struct(old) or _n(new) == 21,
        ),
        Clause("matched", lambda old, new: _with(old, n=-2), {"n": "-2"}),
        Clause(
            "new",
            lambda old, new: (*(new or ())[:2], 0, None),
            {"id": "q.id", "p": "q.p", "n": "0"},
            "q.n IS NULL",
            lambda old, new: _n(new) is None,
        ),
        Clause("new", lambda old, new: new, "all", "q.id > 100", lambda old, new: False),
    ),
    "fields of structs": (
        Clause(
            "matched",
            lambda old, new: _with(old, s=(-5, (old or ())[3][1] if (old or ())[3] else None)),
            {"s.x": "-5"},
        ),
    ),
    "rows without a match": (
        Clause("matched", lambda old, new: _with(old, n=(_n(old) or 0) + 1), {"n": "coalesce(t.n, 0) + 1"}),
        Clause("rest", lambda old, new: None, "delete", "t.n > 10", lambda old, new: (_n(old) or 0) > 10),
        Clause("rest", lambda old, new: _with(old, n=None, s=None), {"n": "NULL", "s": "NULL"}),
    ),
    "delete": (Clause("matched", lambda old, new: None, "delete"),),
    "delete the rest": (Clause("rest", lambda old, new: None, "delete"),),
}


def _over(row: Row | None, least: int, below: int) -> bool:
    return row is not None and row[2] is not None and row[2] > least and row[0] < below


def _no_struct(row: Row | None) -> bool:
    return row is not None and row[3] is None


def merged(clauses: Sequence[Clause]) -> list[Row]:
    """The rows afterwards."""
    found: list[Row] = []

    def add(of: str, old: Row | None, new: Row | None) -> None:
        taken = next((each for each in clauses if each.of == of and each.if_(old, new)), None)
        row = old if taken is None else taken.gives(old, new)
        if row is not None:
            found.append(row)

    for old in ROWS:
        new = next((each for each in NEWS if each[0] == old[0]), None)
        add("rest" if new is None else "matched", old, new)
    for new in NEWS:
        if all(old[0] != new[0] for old in ROWS):
            add("new", None, new)
    return sorted(found, key=str)


def source(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    return spark.createDataFrame([*rows], "id INT, p INT, n BIGINT, s STRUCT<x: INT, y: STRING>").alias("q")


def merge_by(frame: DataFrame, table: str, clauses: Sequence[Clause], *, evolves: bool = False) -> None:
    def of(text: str) -> Column:
        return F.expr(text.replace("t.", f"{table}."))

    writer = frame.mergeInto(table, of("t.id = q.id AND t.p = q.p"))
    for each in clauses:
        when = {"matched": writer.whenMatched, "new": writer.whenNotMatched, "rest": writer.whenNotMatchedBySource}
        taken: Any = when[each.of](None if each.if_text is None else of(each.if_text))
        if isinstance(each.sets, dict):
            given = {name: of(text) for name, text in each.sets.items()}
            writer = taken.insert(given) if each.of == "new" else taken.update(given)
        elif each.sets == "delete":
            writer = taken.delete()
        else:
            writer = taken.insertAll() if each.of == "new" else taken.updateAll()
    (writer.withSchemaEvolution() if evolves else writer).merge()


def state_of_rows(spark: SparkSession, table: str) -> list[Row]:
    plain = [(row.id, row.p, row.n, None if row.s is None else tuple(row.s)) for row in spark.table(table).collect()]
    return sorted(plain, key=str)


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_merge_of_a_frame_gives_the_rows_of_a_plain_merge(spark: SparkSession, shop: Catalog, kind: str) -> None:
    table = f"fluvial.shop.merges_{[*KINDS].index(kind)}"
    for what, clauses in MERGES.items():
        spark.sql(f"CREATE OR REPLACE TABLE {table} {KINDS[kind]}")
        source(spark, ROWS[2:]).writeTo(table).append()
        source(spark, ROWS[:2]).writeTo(table).append()
        before = spark.sql(f"SELECT max(snapshot_id) FROM {table}$snapshots").first()
        merge_by(source(spark, NEWS), table, clauses)
        assert state_of_rows(spark, table) == merged(clauses), what
        assert before is not None
        versions = spark.sql(
            f"SELECT count(*) FROM {table}$snapshots WHERE snapshot_id > {before[0]} AND commit_kind <> 'COMPACT'"
        ).first()
        assert versions is not None
        assert versions[0] == 1, what
    twice = source(spark, [NEWS[0], (2, 2, 22, None)])
    with pytest.raises(Exception, match="MERGE_CARDINALITY_VIOLATION"):
        merge_by(twice, table, (UPDATE_ALL,))
    assert state_of_rows(spark, table) == merged(clauses)
    merge_by(twice, table, (Clause("matched", lambda old, new: None, "delete"),))  # whichever it is, the row goes
    assert state_of_rows(spark, table) == [row for row in merged(clauses) if row[0] != 2]
    more = source(spark, NEWS[-2:]).withColumn("more", F.lit(9)).alias("q")
    merge_by(more, table, (UPDATE_ALL, INSERT_ALL), evolves=True)
    assert {row.id: row.more for row in spark.table(table).collect()}[6] == 9
