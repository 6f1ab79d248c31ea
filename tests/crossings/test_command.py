"""The command that looks for crossings nobody has tried."""

import json

import pytest

from tests.crossings.__main__ import main


@pytest.mark.sweep
def test_it_says_what_was_done_and_covered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--count", "2", "--first", "7"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["histories"], found["failed"], found["first"], found["next"]) == (2, [], 7, 9)
    pairs, triples = found["covered"]["all"]
    assert triples > pairs > 500
    assert found["covered"]["write"][0] <= pairs


def test_one_history_is_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    text = '{"cell": {"format": "orc"}, "steps": [["write", {"rows": [{"k": 3, "a": 1}]}], ["rows", {}]]}'
    assert main(["--replay", text]) == 0
    assert capsys.readouterr().out == "nothing is wrong\n"
    with pytest.raises(ValueError, match="no such choice: format=csv"):
        main(["--replay", '{"cell": {"format": "csv"}, "steps": []}'])
