"""Threads and processes that change single rows of one table, and others that insert beside them: none fails."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from engine.dialect.session import SqlSession
from tests.engine.dialect.conftest import Warehouse
from tests.engine.dialect.dml.test_waiting_rows import newest_rows, waiting

pytestmark = pytest.mark.spark

_UPDATE: Final = "UPDATE db.waiting SET n = n + 1 WHERE id = {}"
_MERGE: Final = (
    "MERGE INTO db.waiting t USING (SELECT {}L AS id) q ON t.id = q.id WHEN MATCHED THEN UPDATE SET n = t.n + 1"
)
_INSERT: Final = "INSERT INTO db.waiting VALUES ({}, 0, 'new')"
_THREADS, _PROCESSES, _ROUNDS = 8, 4, 2
KINDS: Final = {
    "fixed": {"write-only": "false", "bucket": "2", "deletion-vectors.enabled": "false"},
    "dynamic": {"write-only": "false", "bucket": "-1", "deletion-vectors.enabled": "false"},
    "vectors": {"write-only": "false", "bucket": "1"},
}
_PROCESS: Final = """
import sys, engine
from engine import Catalog
spark = engine.session("beside", "local[1]", {"spark.ui.enabled": "false", "spark.log.level": "OFF"})
print("ready", flush=True)
sys.stdin.readline()
for text in sys.argv[2:]:
    engine.sql(spark, text, Catalog(sys.argv[1]))
spark.stop()
"""


def statements(number: int) -> list[str]:
    """What one writer does: changes of single keys that all have, a row of its own."""
    found = []
    for turn in range(_ROUNDS):
        found.append((_UPDATE, _MERGE)[(number + turn) % 2].format(number % 3))
        found.append(_INSERT.format(1000 + number * _ROUNDS + turn))
    return found


def check(warehouse: Warehouse, table: object, writers: int) -> None:
    """Each statement is in the table once."""
    rows = {number: n for number, n, _ in newest_rows(table)}  # type: ignore[arg-type]
    assert sum(rows[key] for key in range(3)) == writers * _ROUNDS
    assert {number for number in rows if number >= 1000} == {1000 + each for each in range(writers * _ROUNDS)}


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_eight_threads(warehouse: Warehouse, kind: str) -> None:
    table, sql = waiting(warehouse, **KINDS[kind])
    sql.execute("INSERT INTO db.waiting SELECT id, 0, 'a' FROM range(10)")

    def write(number: int) -> None:
        for text in statements(number):
            SqlSession(warehouse.context).execute(text)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(write, range(_THREADS)))
    check(warehouse, table, _THREADS)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_four_processes(warehouse: Warehouse, kind: str) -> None:
    table, sql = waiting(warehouse, **KINDS[kind])
    sql.execute("INSERT INTO db.waiting SELECT id, 0, 'a' FROM range(10)")
    root = Path(__file__).parents[4]
    place = warehouse.context.catalog.warehouse
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _PROCESS, place, *statements(number)],
            env={**os.environ, "PYTHONPATH": f"{root}:{root / 'engine' / 'plugin'}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(_PROCESSES)
    ]
    for each in running:  # start only when all are ready, or the first ones run without contention
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    with ThreadPoolExecutor(_PROCESSES) as pool:
        errors = [said[1] for said in pool.map(lambda each: each.communicate("go\n"), running)]
    assert [each.returncode for each in running] == [0] * _PROCESSES, "\n".join(text[-2000:] for text in errors)
    check(warehouse, table, _PROCESSES)
