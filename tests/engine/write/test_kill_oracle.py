"""The oracle of the kill rounds finds what it is there for."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.kills.job import forget_unplanned
from tests.support.kills.oracle import Change, Source, check_agreement, check_log, check_table, last_changes

Log = dict[int, list[Change]]


def repeat(log: Log) -> None:
    log[0].append(log[0][-1])


def lose(log: Log) -> None:
    log[0].pop()


def reorder(log: Log) -> None:
    log[1].insert(0, log[1].pop())


def move(log: Log) -> None:
    last = max((change for changes in log.values() for change in changes), key=lambda change: change.v)
    log[last.id % 2].remove(last)
    log[1 - last.id % 2].append(last)


def turn(log: Log) -> None:
    log[0][0] = replace(log[0][0], is_delete=not log[0][0].is_delete)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    source = Source(tmp_path / "input", 1, keys=6)
    source.feed(3)
    return source


def log_records_of(source: Source) -> Log:
    salted = [replace(change, salt="a") for change in source.changes]
    return {bucket: [change for change in salted if change.id % 2 == bucket] for bucket in range(2)}


def test_a_log_and_a_table_as_the_source_says_are_right(source: Source) -> None:
    log = log_records_of(source)
    rows = [{"id": key, "v": row.v, "batch": row.batch, "salt": "a"} for key, row in source.table().items()]
    check_log(source, log)
    check_table(source, rows)
    check_agreement(rows, log)
    assert last_changes(source.changes) == source.table()
    for wrong in (rows[1:], [*rows, rows[0]], [{**rows[0], "v": -1}, *rows[1:]]):
        with pytest.raises(AssertionError):
            check_table(source, wrong)
    with pytest.raises(AssertionError):
        check_agreement([{**row, "salt": "b"} for row in rows], log)


@pytest.mark.parametrize("damage", [repeat, lose, reorder, move, turn])
def test_a_damaged_log_is_found(source: Source, damage: Callable[[Log], None]) -> None:
    log = log_records_of(source)
    damage(log)
    with pytest.raises(AssertionError):
        check_log(source, log)


@pytest.mark.parametrize(("planned", "kept"), [((), ()), ((0, 1), (0, 1)), ((0, 1, 2), (0, 1, 2)), ((7,), (0, 1, 2))])
def test_a_file_that_no_batch_was_planned_with_comes_in_a_batch_of_its_own(
    tmp_path: Path, planned: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    offsets, files = tmp_path / "offsets", tmp_path / "sources" / "0"
    for directory in (offsets, files):
        directory.mkdir(parents=True)
    for batch in planned:
        (offsets / str(batch)).touch()
    for batch in ("0", "1.compact", "2"):
        (files / batch).touch()
        (files / f".{batch}.crc").touch()
    forget_unplanned(tmp_path)
    assert sorted(each.name for each in files.iterdir() if each.name[0] != ".") == [
        {0: "0", 1: "1.compact", 2: "2"}[each] for each in kept
    ]
    assert len([*files.glob(".*.crc")]) == len(kept)


def test_a_checkpoint_that_is_not_there_yet_has_nothing_to_forget(tmp_path: Path) -> None:
    forget_unplanned(tmp_path / "none")
