"""Every statement of the founding documents has a test that shows it, and a verdict without a remainder."""

from collections import Counter
from pathlib import Path

import pytest

from tests.support.requirements import DOCUMENTS, main, numbers_in, requirements, shown_by

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
        assert each.written == " ".join(each.written.split()) != ""


def test_the_words_of_a_document_are_literal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Here of a document that has all but those of one statement."""
    for series, number in DOCUMENTS.items():
        words = [each.written for each in requirements() if each.number.startswith(f"{series}-")]
        (tmp_path / f"{number}_x.txt").write_text("\n".join(words).replace(" ", "\n  "), encoding="utf-8")
    assert main(["--documents", str(tmp_path)]) == 0
    short = (tmp_path / "003_x.txt").read_text(encoding="utf-8").replace("Hudi", "another")
    (tmp_path / "003_x.txt").write_text(short, encoding="utf-8")
    assert main(["--documents", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "not in the documents: FL-191"


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
