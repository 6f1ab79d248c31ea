"""What one small statement costs through ``spark.sql``, beside the same one on a Parquet table of Spark's own.

The tables have ten rows, so that nothing but the statement's own cost is seen. Processor time is that of this process
and of the JVM; round trips are the calls from here into the JVM for one statement. An INSERT makes a snapshot, which
Spark's does not: the line also has what the same commit costs without a statement, by ``Table.write``. The budget is
for processor time, which other work on the machine changes least, without that commit. A ``point`` query asks for
another id each time; ``fresh`` is the first SELECT behind a commit, which is not counted.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import engine
from benchmarks.harness import commit, machine, sized
from engine import Catalog
from engine.spark_internals.session import jvm_of

BUDGET_MS = 20
STATEMENTS = {
    "point": "SELECT id, v FROM {} WHERE id = $id",
    "select": "SELECT id, v FROM {} WHERE id > 3",
    "insert": "INSERT INTO {} VALUES (1, 'x')",
    "describe": "DESCRIBE {}",
}
_ROWS = 10
_WARM_UPS = sized(5, quick=5, tiny=0)  # before the rounds that count: the JVM compiles
_COMMIT = "Table.write"
_RELEASE = "m\n"  # of an object that is not needed any more, at any time
_CPU_CLOCK = 2  # of a whole process, in the number of its clock


def statement_cost(spark: SparkSession, root: str, repeats: int) -> str:
    """One JSON line; ``added_ms`` is what a statement costs more than Spark's, in wall time (median of the rounds)."""
    catalog = Catalog(f"{root}/statements")
    engine.install(spark, catalog, "bench")
    try:
        spark.sql("CREATE DATABASE bench.d")
        spark.sql("CREATE TABLE bench.d.t (id BIGINT, v STRING)")
        spark.sql(f"CREATE TABLE bench_parquet (id BIGINT, v STRING) USING parquet LOCATION '{root}/parquet'")
        for name in ("bench.d.t", "bench_parquet"):
            spark.sql(f"INSERT INTO {name} SELECT id, 'v' FROM range(0, {_ROWS}, 1, 1)")
        works = {
            case: {name: _work(spark, text.format(name)) for name in ("bench.d.t", "bench_parquet")}
            for case, text in STATEMENTS.items()
        }
        by_name = {name: lambda name=name: spark.table(name).collect() for name in ("bench.d.t", "bench_parquet")}
        pairs = {case: works[case] for case in ("select", "point", "describe")} | {"by_name": by_name}
        cases = {case: _case(spark, pair, repeats) for case, pair in pairs.items()}
        cases["fresh"] = _case(spark, works["select"], repeats, before=works["insert"])
        rows = pa.table({"id": [1], "v": ["x"]})
        commit_only = {_COMMIT: lambda: catalog.table("d.t").write(rows)}
        cases["insert"] = _case(spark, works["insert"] | commit_only, repeats)
    finally:
        spark.sql("DROP TABLE IF EXISTS bench_parquet")
        engine.uninstall(spark, "bench")
    facts = {"benchmark": "sql_statement", "commit": commit(), "machine": machine(), "repeats": repeats}
    facts |= {"rows": _ROWS, "peer": "Spark's Parquet table"}
    return json.dumps({**facts, **cases})


def _work(spark: SparkSession, text: str) -> Callable[[], object]:
    ids = count()
    return lambda: spark.sql(text.replace("$id", str(next(ids) % _ROWS))).collect()


def _case(
    spark: SparkSession,
    pair: Mapping[str, Callable[[], object]],
    repeats: int,
    before: Mapping[str, Callable[[], object]] | None = None,
) -> dict[str, Any]:
    """``before``: what is done before each, and not counted."""
    walls: dict[str, list[float]] = {name: [] for name in pair}
    processor: dict[str, list[float]] = {name: [] for name in pair}
    trips = {}
    for work in [each for each in pair.values() for _ in range(_WARM_UPS)]:
        work()
    for _ in range(repeats):
        for name, work in pair.items():
            if before is not None:
                before[name]()
            start, used_before = time.perf_counter(), _processor_s(spark)
            work()
            walls[name].append(time.perf_counter() - start)
            processor[name].append(_processor_s(spark) - used_before)
    for name, work in pair.items():
        if before is not None:
            before[name]()
        with _counted_trips(spark) as calls:
            work()
        trips[name] = sum(calls)
    own, peer, *commits = pair
    wall, used = (
        {name: statistics.median(found) * 1000 for name, found in each.items()} for each in (walls, processor)
    )
    committed = sum(used[name] for name in commits)
    added = used[own] - used[peer]
    shares = {"commit_ms": round(wall[_COMMIT], 1), "commit_processor_ms": round(committed, 1)} if commits else {}
    return {
        "ms": round(wall[own], 1),
        "spark_ms": round(wall[peer], 1),
        "added_ms": round(wall[own] - wall[peer], 1),
        "processor_ms": round(used[own], 1),
        "spark_processor_ms": round(used[peer], 1),
        "added_processor_ms": round(added, 1),
        **shares,
        "round_trips": trips[own],
        "spark_round_trips": trips[peer],
        "budget": BUDGET_MS,
        "met": added - committed <= BUDGET_MS,
    }


def _processor_s(spark: SparkSession) -> float:
    """Of this process and of the JVM, by the clock that Linux keeps for each process."""
    return time.process_time() + time.clock_gettime(~_jvm_process(spark) << 3 | _CPU_CLOCK)


def _jvm_process(spark: SparkSession) -> int:
    return int(spark.sparkContext._gateway.proc.pid)


@contextmanager
def _counted_trips(spark: SparkSession) -> Iterator[list[int]]:
    """Calls from here into the JVM; what the JVM asks back is answered by more of them."""
    gateway, _ = jvm_of(spark)
    calls = [0]
    client = gateway._gateway_client
    send = client.send_command

    def sent(command: str, *arguments: Any, **named: Any) -> Any:
        calls[0] += not command.startswith(_RELEASE)
        return send(command, *arguments, **named)

    client.send_command = sent
    try:
        yield calls
    finally:
        client.send_command = send
