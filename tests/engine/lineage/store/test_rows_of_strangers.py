"""Rows of a lineage store that another user writes: each command that reads them takes them for data.

They open no place, end in no raw error, and take no memory beyond their size.
"""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import Catalog
from engine.cli.app import run_command
from engine.lineage.lineage import lineage_of
from engine.lineage.store.entities import DataLineage, JobStartup, LineageRecords, TableLineage, time_of
from engine.lineage.store.sql_tables import METADATA
from tests.support.rows import id_rows
from tests.support.warehouses import digests_below, new_table

FILE = ".fluvial/lineage.sqlite"
SYSTEM = [f"paimon.{name}" for name in (
    "source_job_lineage", "sink_job_lineage", "source_snapshot_lineage", "sink_snapshot_lineage", "job_startup",
)]  # fmt: skip
VALUES: list[Any] = [
    *(None, b"\xff\x00", -1, 0, 2**63 - 1, 1.5, float("inf"), "", " ", "x" * 100_000, "a\x00b", "\x1b[31m"),
    *("../../victim", "{victim}", "file://{victim}", "http://127.0.0.1:1/x", "db.t", "t$branch_b", "*", "'; DROP", "`"),
    *("${{file:{victim}}}", "<script>alert(1)</script>", "{{", "[" * 5000, '{{"a": 1}}', "stated:", "outside"),
    *("2023-99-99 00:00:00", "99999-01-01 00:00:00", "0000-00-00 00:00:00", "9" * 400),
]
COMMANDS: list[list[str]] = [
    ["lineage"],
    ["lineage", "db.t"],
    ["lineage", "db.t", "--json"],
    ["lineage", "db.t", "--snapshot", "1"],
    ["lineage", "db.t", "--html", "{mine}/page.html"],
    *(["read", name] for name in SYSTEM),
    ["delete-table-lineage", "--job", "j"],
    ["delete-data-lineage", "--job", "j"],
    ["repair-lineage", "db.t"],
    ["state-lineage", "--job", "j2", "--reads", "db.t", "--writes", "db.u"],
    ["doctor", "db.t"],
    ["top", "--once"],
    ["metrics", "db.t"],
]


COLUMNS = [(table.name, column.name) for table in METADATA.sorted_tables for column in table.columns]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with lineage of each kind, and a file beside it that is another's."""
    home = tmp_path_factory.mktemp("shared")
    catalog = Catalog(str(home / "w"))
    for name in ("db.t", "db.u"):
        new_table(catalog, name=name).write(id_rows([1, 2]))
    found = lineage_of(catalog)
    assert found is not None
    at = time_of(1_700_000_000_000)
    found.store(
        LineageRecords(
            source_tables=(TableLineage("j", "db", "t", at),),
            sink_tables=(TableLineage("j", "db", "u", at),),
            source_snapshots=(DataLineage("j", 1, "db", "t", 1, at, "run", "id"),),
            sink_snapshots=(DataLineage("j", 1, "db", "u", 1, at, "run", "id"),),
            startups=(JobStartup("j", "db", "t", 1, "run"),),
        )
    )
    (home / "victim").write_text("secret-of-another")
    return home


class Store:
    """The file of lineage, as another user changes it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        with self.opened() as connection:
            self._rows = {
                table.name: connection.execute(f'SELECT * FROM "{table.name}"').fetchall()
                for table in METADATA.sorted_tables
            }

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.home / "w" / FILE)) as connection, connection:
            yield connection

    def put(self, table: str, column: str, value: Any) -> bool:
        """In all rows; False: the column does not take it."""
        if isinstance(value, str):
            value = value.format(victim=self.home / "victim")
        try:
            with self.opened() as connection:
                connection.execute(f'UPDATE OR REPLACE "{table}" SET "{column}" = ?', [value])
        except sqlite3.IntegrityError:
            return False
        return True

    def restore(self) -> None:
        with self.opened() as connection:
            for table, rows in self._rows.items():
                connection.execute(f'DELETE FROM "{table}"')
                marks = ", ".join("?" for _ in rows[0]) if rows else ""
                connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows) if rows else None


@pytest.fixture
def store(shared: Path) -> Iterator[Store]:
    found = Store(shared)
    yield found
    found.restore()


@pytest.mark.sampled(6)
@pytest.mark.sweep
@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_no_value_of_a_column_leads_anywhere(
    table: str, column: str, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(f"{table} {column}")
    before = digests_below(store.home / "w" / "db.db") | {"": (store.home / "victim").read_text()}
    raw = {}
    for value in rng.sample(VALUES, 10):
        if not store.put(table, column, value):
            continue
        words = rng.choice(COMMANDS)
        run_command([*(word.format(mine=tmp_path) for word in words), "--warehouse", str(store.home / "w")])
        said = "".join(capsys.readouterr())
        if "unexpected:" in said or "secret-of-another" in said:
            raw[f"{value!r:.30} {words}"] = said[-300:]
        store.restore()
    assert raw == {}
    assert digests_below(store.home / "w" / "db.db") | {"": (store.home / "victim").read_text()} == before
