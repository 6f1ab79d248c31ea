"""Every statement of the founding documents has a test that shows it, and a verdict without a remainder."""

from collections import Counter

import pytest

from tests.support.requirements import main, numbers_in, requirements, shown_by

SERIES = {"TAG": 66, "SP": 21, "BR": 50, "FL": 191, "LN": 75}


def test_all_statements_are_listed_once_in_order() -> None:
    found = [each.number for each in requirements()]
    wanted = [f"{series}-{number:02d}" for series, count in SERIES.items() for number in range(1, count + 1)]
    assert found == wanted
    assert [number for number, count in Counter(found).items() if count > 1] == []


@pytest.mark.sweep
def test_each_statement_has_a_test_and_no_test_names_another() -> None:
    listed, shown = {each.number for each in requirements()}, shown_by()
    assert sorted(listed - shown.keys()) == []
    assert {number: tests for number, tests in shown.items() if number not in listed} == {}


def test_each_verdict_is_true_or_says_what_a_user_has_instead() -> None:
    for each in requirements():
        kind, mark, reason = each.verdict.partition(": ")
        assert (kind == "true" and not mark) or (kind == "otherwise" and len(reason) > 15), each
        assert "partly" not in each.verdict
        assert each.statement


def test_a_range_names_all_numbers_between_its_ends() -> None:
    assert [*numbers_in("FL-08..FL-10, TAG-65: a text; SP-20 to SP-21.")] == [
        "FL-08",
        "FL-09",
        "FL-10",
        "TAG-65",
        "SP-20",
        "SP-21",
    ]


def test_the_table_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["FL-33"]) == 0
    printed = capsys.readouterr().out
    assert "tracked by default" in printed
    assert "tests/" in printed
    assert main(["FL-999"]) == 1
