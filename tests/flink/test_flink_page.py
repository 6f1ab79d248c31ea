"""docs/flink.md names tests for what it says: they are there, and what they show is on the page."""

import re
from itertools import takewhile
from pathlib import Path

from filestore.options.flink_log import flink_reads_log
from filestore.options.table_options import TableOptions
from tests.flink import test_flink_reads, test_flink_starts, test_flink_versions, test_flink_writes, test_whole_way

DOCS = Path(__file__).parents[2] / "docs"
PAGE, OPTIONS = ((DOCS / name).read_text(encoding="utf-8") for name in ("flink.md", "options.md"))


def rows_below(heading: str) -> list[list[str]]:
    """Cells of the table with this header, without backticks and links."""
    lines = PAGE[PAGE.index(heading) :].splitlines()[2:]
    table = takewhile(lambda line: line.startswith("|"), lines)
    texts = [re.sub(r" \(\[.*?\]\(.*?\)\)", "", line.replace("`", "")) for line in table]
    return [[cell.strip() for cell in text.strip("|").split("|")] for text in texts]


def test_the_page_has_each_case_and_says_what_flink_follows() -> None:
    found = rows_below("| table | `log.format`")
    assert [row[4] for row in found] == list(test_flink_reads.KINDS)
    assert {row[6] for row in found} - {""} == set(test_flink_reads.TOPICS)
    for option, log_format, mode, followed, case, _, _ in found:
        given = test_flink_reads.KINDS[case]
        texts = {key.replace("__", "-").replace("_", "."): text for key, text in given.items()}
        options = TableOptions.parse(texts, primary_key=["id"])
        name, _, value = option.partition("=")
        held = options[TableOptions.declared[name]]
        assert (",".join(held) if isinstance(held, tuple) else str(held).lower()) == value
        assert (options.log_format, options.log_changelog_mode) == (log_format, mode)
        assert followed == ("log" if flink_reads_log(options) else "files"), case


def test_every_test_that_the_page_names_is_there_and_every_test_is_named() -> None:
    modules = (test_flink_reads, test_flink_starts, test_flink_versions, test_flink_writes, test_whole_way)
    there = {name for module in modules for name in vars(module) if name.startswith("test_")}
    assert set(re.findall(r"`(test_\w+)`", PAGE)) == there


def test_each_option_of_flip_188_is_one_that_is_declared() -> None:
    declared = set(re.findall(r"^\| `(\S+)` \|", OPTIONS, re.MULTILINE))
    found = rows_below("| FLIP-188 | here")
    assert len(found) == 10
    for theirs, here, _ in found:
        names = theirs.split(", ") if here.startswith("the same") else [here]
        assert {name for name in names if not name.endswith("*")} <= declared
