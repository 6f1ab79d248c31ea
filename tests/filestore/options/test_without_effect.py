"""Every option of Paimon is honoured, harmless or refused by name; one that no one knows yet is as its name says."""

from pathlib import Path
from typing import Final

import pytest

from filestore.options.not_built import ALL, NOT_BUILT, WITHOUT_EFFECT, check_closed, not_built_of
from filestore.options.option import At
from filestore.options.rules import ALIASES
from filestore.options.table_options import TableOptions
from lsm.errors import InvalidInputError

GOLDEN: Final = Path(__file__).parents[2] / "golden"
PAIMON: Final = (GOLDEN / "paimon-2.0.0-options.txt").read_text(encoding="utf-8").split()
# of Paimon 1.4.2 for Java, with their older names, and of pypaimon 2.1.0: those that are not in 2.0.0
OTHERS: Final = (GOLDEN / "paimon-other-options.txt").read_text(encoding="utf-8").split()


def closed_to(key: str, value: str = "x") -> At:
    options, found = TableOptions.parse({key: value}, strict=False), At.NOWHERE
    says: list[str] = []
    for at in (At.BATCH_READ, At.STREAM_READ, At.WRITE):
        try:
            check_closed(options, at)
        except InvalidInputError as error:
            found |= at
            says.append(str(error))
    assert [each for each in says if f"option={key} value={value}" not in each] == []
    return found


def test_each_option_of_paimon_is_of_one_class() -> None:
    assert len(PAIMON) == 330
    names = (*PAIMON, *OTHERS)
    assert [key for key in names if not any(key in each for each in (TableOptions.declared, ALIASES, NOT_BUILT))] == []
    assert [key for key in WITHOUT_EFFECT if key not in names and not key.startswith("fields.#.")] == []
    assert [key for key in WITHOUT_EFFECT if key in TableOptions.declared or key in ALIASES] == []


@pytest.mark.parametrize("key", sorted(WITHOUT_EFFECT))
def test_a_table_with_a_harmless_option_is_open_and_the_option_is_named(key: str) -> None:
    key = key.replace("#", "com.example.Call")
    assert closed_to(key) == At.NOWHERE
    assert [found for found, _ in not_built_of(TableOptions.parse({key: "x"}, strict=False))] == [key]


@pytest.mark.parametrize(
    ("key", "closed"),
    [
        ("fields.v.of-the-future", ALL),
        ("merge-engine.of-the-future", ALL),
        ("sequence.of-the-future", ALL),
        ("data-file.of-the-future", ALL),
        ("data-of-the-future", ALL),
        ("manifest.of-the-future", ALL),
        ("primary-key.of-the-future", ALL),
        ("bucket-of-the-future", ALL),
        ("deletion-vectors.of-the-future", ALL),
        ("row-tracking.of-the-future", ALL),
        ("partial-update.of-the-future", ALL),
        ("pk-of-the-future", ALL),
        ("record-level.of-the-future", ALL),
        ("scan.of-the-future", At.READ),
        ("incremental-of-the-future", At.READ),
        ("streaming-read-of-the-future", At.STREAM_READ),
        ("changelog-producer.of-the-future", At.STREAM_READ | At.WRITE),
        ("postpone.of-the-future", At.BATCH_READ | At.WRITE),
        ("partition.of-the-future", At.WRITE),
        ("of-the-future", At.NOWHERE),
        ("lookup.of-the-future", At.NOWHERE),
        ("snapshot.of-the-future", At.NOWHERE),
        ("file-index.bloom-filter.columns", At.NOWHERE),
        ("log.kafka.of-the-future", At.NOWHERE),
    ],
)
def test_an_option_that_no_one_knows_closes_a_table_as_its_name_begins(key: str, closed: At) -> None:
    assert closed_to(key) == closed
