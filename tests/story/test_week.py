"""Each mistake of a first week is answered by one line that says what to do, with its exit code, and soon."""

import shlex
import time
from pathlib import Path

import pytest

from engine.cli.app import run_command
from tests.story.place import prepare
from tests.story.week import LONG, SHORT, steps

SOON_S = 20.0  # of a machine that is busy with other tests; alone each takes less than one


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("story")
    prepare(home)
    return home


@pytest.mark.parametrize(("line", "code", "words"), steps(SHORT), ids=lambda value: str(value)[:60])
def test_a_mistake_is_answered_in_one_line(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    line: str,
    code: int,
    words: str,
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("FLUVIAL_WAREHOUSE", "lake")
    start_s = time.monotonic()
    assert run_command(shlex.split(line)[1:]) == code
    said = capfd.readouterr().err
    assert words in said
    assert said.count("\n") <= 3  # a statement is shown with a mark below it
    assert said.startswith("error: ")
    assert "Traceback" not in said
    assert time.monotonic() - start_s < SOON_S


def test_the_lines_are_all_different_and_many() -> None:
    lines = [line for line, _, _ in steps(SHORT + LONG.lstrip())]
    assert len(lines) == len({*lines}) > 51
