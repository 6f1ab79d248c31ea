"""The command that runs histories with new seeds."""

import json
import os
import signal

import pytest

from tests.histories.__main__ import ended_by_signals, histories_of, main


def test_each_kind_has_each_seed_and_a_failure_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """What failed is named so that it can be repeated."""
    seen: list[tuple[str, int]] = []

    def fails_at_8(seed: int) -> None:
        seen.append(("b", seed))
        assert seed != 8, "a row is gone"

    found = histories_of({"a": lambda seed: seen.append(("a", seed)), "b": fails_at_8}, first=7, count=3, seconds=60.0)
    assert seen == [("a", 7), ("b", 7), ("a", 8), ("b", 8), ("a", 9), ("b", 9)]
    assert {key: found[key] for key in ("histories", "by_kind", "failed", "first", "next")} == {
        "histories": 6, "by_kind": {"a": 3, "b": 3}, "failed": ["b 8"], "first": 7, "next": 10,
    }  # fmt: skip
    assert "failed: b 8\nTraceback" in capsys.readouterr().err
    assert histories_of({"a": seen.append}, first=7, count=3, seconds=0.0)["histories"] == 0


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_what_was_done(ending: signal.Signals) -> None:
    def ended_at_8(seed: int) -> None:
        if seed == 8:
            os.kill(os.getpid(), ending)

    before = signal.getsignal(ending)
    with ended_by_signals():
        found = histories_of({"a": ended_at_8}, first=7, count=3, seconds=60.0)
    assert signal.getsignal(ending) is before
    assert (found["histories"], found["failed"], found["next"]) == (1, [], 8)


@pytest.mark.sweep
def test_one_history_is_repeated_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "references pl", "--first", "3", "--count", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["by_kind"] == {"references plain": 1}
    with pytest.raises(SystemExit):
        main(["--only", "referenz"])
