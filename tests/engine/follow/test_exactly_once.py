"""Position and result in one transaction of a database: a program killed anywhere applies each change once."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sql

from engine import Catalog
from tests.engine.stream.test_law import HISTORIES
from tests.support.markdown import ROOT
from tests.support.streams import content, rows
from tests.support.warehouses import ID_SCHEMA

JOB = Path(__file__).with_name("copy_job.py")


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_killed_program_applies_each_change_once(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Killed again and again, at any delivery, before, within and after its transaction; then it ends by itself."""
    url = f"sqlite:///{tmp_path}/copy.db" if kind == "sqlite" else request.getfixturevalue("postgres")
    table = Catalog(str(tmp_path / "w")).create_table("db.t", ID_SCHEMA, primary_key=["id"])
    table.write(rows(range(7)))
    table.write(rows([2, 3, 11], "new"))
    database = sql.create_engine(url)
    with database.begin() as connection:
        for line in (
            "DROP TABLE IF EXISTS follow_copy",
            "DROP TABLE IF EXISTS follow_place",
            "CREATE TABLE follow_copy (id BIGINT PRIMARY KEY, v TEXT)",
            "CREATE TABLE follow_place (place TEXT, received BIGINT)",
            "INSERT INTO follow_place VALUES ('snapshot.1', 0)",
        ):
            connection.execute(sql.text(line))
    command = [sys.executable, str(JOB), str(tmp_path / "w"), "db.t", url]
    chance = random.Random(None if HISTORIES else kind)
    kills = [(str(chance.randint(1, 3)), chance.choice(["before", "within", "after"])) for _ in range(3)]
    for number, deadly in enumerate((*kills, ("0", "never"))):
        if number == 2:
            table.write(rows([0, 4, 5, 6], kind="-D"))
        done = subprocess.run([*command, *deadly], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode in ((0,) if deadly[1] == "never" else (0, -9)), done.stderr
    with database.connect() as connection:
        copied = {
            (row.id,): dict(row._mapping) for row in connection.execute(sql.text("SELECT id, v FROM follow_copy"))
        }
        received = connection.execute(sql.text("SELECT received FROM follow_place")).scalar()
    database.dispose()
    assert copied == content(table)
    assert received == 7 + 3 + 4
