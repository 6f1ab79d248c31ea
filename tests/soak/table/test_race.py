"""Many processes on one table, for a minute in all: what holds for hours, by ``make soak-table``."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import Table
from tests.soak.table.actors import open_table
from tests.soak.table.kinds import GROUPS, KINDS, WIDTH
from tests.soak.table.processes import RaceError
from tests.soak.table.race import OTHERS, Race, Round

ROOT = Path(__file__).parents[3]


def test_a_round_is_run_again_by_what_it_says() -> None:
    planned = Round.planned(7, seconds=20)
    assert set(planned.others) < set(OTHERS)
    assert str(planned) == (
        f"--seed 7 --kind {[*KINDS][7 % len(KINDS)]} --with '{','.join(planned.others)}' --seconds 20 --pace 0.01"
    )
    assert {Round.planned(seed, seconds=1).kind for seed in range(len(KINDS))} == {*KINDS}
    assert {each for seed in range(20) for each in Round.planned(seed, seconds=1).others} == {*OTHERS}


@pytest.mark.long
@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_processes_that_are_killed_and_frozen_lose_nothing_of_a_table(tmp_path: Path, kind: str) -> None:
    """public-reports.md 1: two writers, a compaction, an expiry and a tagger lost files of the newest snapshot.

    A minute of all kinds together; each seed has three others of the processes that may take part.
    """
    facts = Race(tmp_path, Round.planned([*KINDS].index(kind), kind=kind, seconds=60 / len(KINDS))).run()
    assert facts.deeds["writer: write"]
    assert facts.strikes.total()


@pytest.mark.sweep
def test_a_round_in_which_nothing_was_written_yet_lasts_longer(tmp_path: Path) -> None:
    """A busy machine may not even start its processes in so short a time."""
    planned = Round.planned(1, kind="keyed", others=(), with_strikes=False, seconds=0.01)
    assert Race(tmp_path, planned).run().deeds["writer: write"]


@pytest.mark.sweep
def test_a_race_without_kills_leaves_nothing_over(tmp_path: Path) -> None:
    Race(tmp_path / "race", Round.planned(1, kind="keyed", others=(), with_strikes=False, seconds=2.0)).run()


def _a_file(table: Table) -> None:
    (path, *_) = sorted(Path(table.store.paths.root).glob("bucket-*/data-*"))
    path.unlink()


def _rows_of_a_writer(table: Table) -> None:
    table.overwrite(table.read().to_arrow(filter=f"id >= {GROUPS * WIDTH}"))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("rob", "problem"), [(_a_file, "verify: "), (_rows_of_a_writer, "rows are wrong: of=snapshot")]
)
def test_a_lost_file_and_lost_rows_are_found(tmp_path: Path, rob: Callable[[Table], None], problem: str) -> None:
    """Which is what the race is for."""

    class Robbed(Race):
        def _compare(self) -> None:
            rob(open_table(self.home))
            super()._compare()

    planned = Round.planned(1, kind="keyed", others=(), with_strikes=False, seconds=6.0)
    with pytest.raises(RaceError, match=problem):
        Robbed(tmp_path / "race", planned).run()


@pytest.mark.sweep
def test_the_command_prints_one_line_and_what_it_does(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.soak.table", "--minutes", "0", "--seconds", "1", "--calm", "--with", ""]
    environment = {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    told = json.loads(line)
    assert {"benchmark": "soak-table", "first": 1, "rounds": 1, "failed": []}.items() <= told.items()
    assert {"writer: write", "tagger: tag"} <= told["deeds"].keys()
    assert f"round: --seed 1 --kind {[*KINDS][1]} --with ''" in done.stderr
    assert [*tmp_path.glob("fluvial-race-*")] == []
