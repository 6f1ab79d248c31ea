"""SELECT over a compacted table, beside the same text over plain Parquet with the same rows, written by Spark.

Both are sorted by key and have the same compression and about the same file sizes. Budget: 1.1 times plain Parquet for
count, sum, filter and join. Planning is measured separately: from the text to the analysed frame. A last line has what
a small statement costs, see ``statement_cost``.
usage: python -m benchmarks sql_scan [--quick | --tiny]
"""

import statistics
import tempfile
import time
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.harness import measure, sized
from benchmarks.statement_cost import statement_cost
from engine import Catalog, session
from engine.dialect.grammar.parser import parse_statements
from engine.dialect.query.query import run_query
from engine.dialect.scope.context import SqlContext

BUDGET = 1.1
PEER = "plain Parquet"
QUERIES = {
    "count": "SELECT count(*) FROM {facts}",
    "sum": "SELECT sum(amount), max(price), count(DISTINCT kind) FROM {facts}",
    "filter": "SELECT count(*), sum(amount) FROM {facts} WHERE id BETWEEN {low} AND {high} AND kind <> 'k3'",
    "join": "SELECT d.name, sum(f.amount) FROM {facts} f JOIN {kinds} d ON f.kind = d.kind GROUP BY d.name",
}
COLUMNS = (
    "id",
    "cast(hash(id, 1) % 1000 as bigint) AS amount",
    "hash(id, 2) / 7.0D AS price",
    "concat('k', abs(hash(id, 3)) % 20) AS kind",
    "concat('text ', hash(id, 4)) AS text",
)


def filled(spark: SparkSession, root: str, rows: int, buckets: int) -> SqlContext:
    """``facts`` and ``kinds``, compacted; beside them the same rows as plain Parquet, as views of the same names."""
    catalog = Catalog(f"{root}/warehouse")
    facts = spark.range(0, rows, 1, 2).selectExpr(*COLUMNS)
    kinds = spark.range(0, 20, 1, 1).selectExpr("concat('k', id) AS kind", "concat('name ', id % 5) AS name")
    options = {"bucket": str(buckets), "file.compression": "zstd"}
    for name, key, frame in (("facts", "id", facts), ("kinds", "kind", kinds)):
        schema = frame.limit(0).toArrow().schema
        table = catalog.create_table(f"default.{name}", schema, primary_key=[key], options=options)
        for part in range(2):
            table.append(frame.filter(f"abs(hash({key})) % 2 = {part}"))
        table.compact(full=True)
        files = [file for split in table.read().plan().splits for file in split.files]
        spread = frame.repartition(len(files), F.col(key)).sortWithinPartitions(key)
        spread.write.option("compression", "zstd").parquet(f"{root}/plain/{name}")
        spark.read.parquet(f"{root}/plain/{name}").createOrReplaceTempView(f"plain_{name}")
    return SqlContext(catalog=catalog, open_spark=lambda: spark)


def median_ms(work: Callable[[], object], times: int) -> float:
    """Median wall time of a call, after one that does not count."""
    work()
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return round(statistics.median(found) * 1000, 1)


def main() -> None:
    rows, repeats, warm_ups, buckets = sized((20_000_000, 7, 3, 4), quick=(4_000_000, 5, 3, 2), tiny=(2_000, 1, 0, 1))
    conf = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.driver.memory": "4g"}
    spark = session("bench", "local[2]", conf)
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        context = filled(spark, root, rows, buckets)
        bounds = {"low": rows // 4, "high": rows // 2}
        for case, text in QUERIES.items():
            (statement,) = parse_statements(text.format(facts="facts", kinds="kinds", **bounds))
            plain = text.format(facts="plain_facts", kinds="plain_kinds", **bounds)
            assert sorted(run_query(context, statement).collect()) == sorted(spark.sql(plain).collect())

            def fluvial(statement=statement) -> object:
                return run_query(context, statement).collect()

            def peer(plain=plain) -> object:
                return spark.sql(plain).collect()

            found = measure("sql_scan", {"fluvial": fluvial, PEER: peer}, rows=rows, repeats=repeats, warm_ups=warm_ups)
            cost = round(1 / found.ratio("fluvial", PEER), 2)
            planning = {
                "planning_ms": median_ms(lambda statement=statement: run_query(context, statement), repeats),
                "peer_planning_ms": median_ms(lambda plain=plain: spark.sql(plain), repeats),
            }
            facts = {"state": case, "cost_to_parquet": cost, "budget": BUDGET, "met": cost <= BUDGET}
            print(found.line(peer=PEER, **facts, **planning), flush=True)
        print(statement_cost(spark, root, sized(41, quick=21, tiny=1)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
