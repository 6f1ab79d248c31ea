"""A command's help is made once for each state of the code and each width, and never an old one."""

import os
from pathlib import Path

import pytest

from engine.cli import app
from engine.cli.app import run_command, shown_help
from tests.support.commands import parse_command


class Maker:
    """Prints a text that says how often it was made."""

    def __init__(self, code: int = 0) -> None:
        self.count, self.code = 0, code

    def __call__(self) -> int:
        self.count += 1
        print(f"help {self.count}")
        return self.code


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLUVIAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path / "cache"


def test_a_help_is_made_once_for_each_command_and_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make = Maker()
    for arguments in (["read", "--help"], ["read", "--help"], ["read", "-h"]):
        assert shown_help(arguments, make) == 0
    assert capsys.readouterr().out == "help 1\n" * 3
    shown_help(["tag", "create", "--help"], make)
    monkeypatch.setenv("COLUMNS", "60")
    shown_help(["read", "--help"], make)
    assert capsys.readouterr().out == "help 2\nhelp 3\n"


def test_it_is_made_again_when_any_file_of_the_code_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "site"
    for package in ("engine", "filestore", "logstore", "lsm"):
        (root / package / "inner").mkdir(parents=True)
        (root / package / "inner" / "a.py").write_text("")
    monkeypatch.setattr(app, "__file__", str(root / "engine" / "cli" / "kept_help.py"))
    make, file = Maker(), root / "lsm" / "inner" / "a.py"
    shown_help(["read", "--help"], make)
    after = file.stat().st_mtime_ns + 1
    for change in (
        lambda: os.utime(file, ns=(after, after)),
        lambda: (root / "engine" / "b.py").write_text(""),
        lambda: (root / "engine" / "b.py").unlink(),
        lambda: None,
    ):
        change()
        shown_help(["read", "--help"], make)
    assert capsys.readouterr().out.split() == ["help", "1", "help", "2", "help", "3", "help", "4", "help", "4"]


def test_errors_and_a_broken_cache_are_not_kept(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, make = Maker(code=2), Maker()
    assert [shown_help(["raed", "--help"], wrong) for _ in range(2)] == [2, 2]
    assert wrong.count == 2
    shown_help(["read", "--help"], make)
    (file,) = (cache / "help").iterdir()
    for broken in ("", "[]", '{"stamp": 1}', "{"):
        file.write_text(broken)
        shown_help(["read", "--help"], make)
    assert make.count == 5
    file.unlink()
    (cache / "help").rmdir()
    (cache / "help").write_text("a file")
    assert shown_help(["read", "--help"], make) == 0
    assert capsys.readouterr().out.endswith("help 6\n")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--help"],
        ["read"],
        ["read", "a.t"],
        ["--debug", "read", "--help"],
        ["../x", "--help"],
        ["read", "a.t", "-h"],
    ],
)
def test_other_arguments_are_for_the_command(arguments: list[str]) -> None:
    assert shown_help(arguments, Maker()) is None


def test_what_is_printed_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_command(["describe", "a.t"]) == ["describe"]  # a command keeps the first help option it was asked for
    for arguments in (["tag", "create", "--help"], ["describe", "-h"]):
        assert run_command(arguments) == 0
        wanted = capsys.readouterr().out
        for _ in range(2):
            assert shown_help(arguments, lambda given=arguments: run_command(given)) == 0  # type: ignore[misc]
            assert capsys.readouterr().out == wanted
