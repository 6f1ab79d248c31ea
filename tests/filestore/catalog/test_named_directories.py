"""Which directory a table has where a name changes and no directory does: laws over random stories."""

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from filestore.catalog.sql_names import NamedDirectories
from lsm.errors import ConflictError, InvalidInputError

EMPTY = NamedDirectories(listed=frozenset(), noted={})


def test_a_renamed_table_keeps_its_directory_and_one_of_its_old_name_is_put_beside_it_and_not_listed() -> None:
    renamed = EMPTY.with_table("a").renamed("a", "b", stays=True)
    assert renamed == NamedDirectories(listed=frozenset({"b"}), noted={"b": "a"})
    assert renamed.directory("a") == "a-2"  # before it is made, too
    both = renamed.with_table("a")
    assert both == NamedDirectories(listed=frozenset({"b"}), noted={"b": "a", "a": "a-2"})
    assert both.without("a") == NamedDirectories(listed=frozenset({"a"}), noted={"a": "a-2"})
    assert both.without("a-2") == renamed
    assert both.without("no such") == both


def test_a_table_that_has_the_name_of_its_directory_again_has_no_note() -> None:
    start = EMPTY.with_table("a").with_table("x")
    assert start.renamed("a", "b", stays=True).renamed("b", "c", stays=True).renamed("c", "a", stays=True) == start
    moved = start.renamed("a", "b", stays=True).renamed("b", "c", stays=False)
    assert moved == NamedDirectories(listed=frozenset({"c", "x"}), noted={})


def test_two_tables_that_swap_their_names_are_both_hidden_until_they_swap_back() -> None:
    start = EMPTY.with_table("a").with_table("b")
    swapped = start.renamed("a", "t", stays=True).renamed("b", "a", stays=True).renamed("t", "b", stays=True)
    assert swapped == start.swapped("a", "b") == NamedDirectories(listed=frozenset(), noted={"a": "b", "b": "a"})
    assert swapped.swapped("b", "a") == start
    assert swapped.without("a") == NamedDirectories(
        listed=frozenset({"a"}), noted={"a": "b"}
    )  # as OR REPLACE leaves it
    back = swapped.renamed("a", "t", stays=True).renamed("b", "a", stays=True).renamed("t", "b", stays=True)
    assert back == start


def test_a_name_that_an_engine_lists_for_the_files_of_another_table_is_no_table() -> None:
    """As Paimon's repair does, which lists what has files."""
    repaired = NamedDirectories(listed=frozenset({"a", "b"}), noted={"b": "a"})
    assert repaired.names == {"b"}
    assert repaired.with_table("c").listed == {"b", "c"}
    assert repaired.without("a").names == {"a"}  # from now on the directory is its own


def test_wrong_names_are_refused() -> None:
    start = EMPTY.with_table("a").with_table("b").renamed("b", "c", stays=True)
    with pytest.raises(ConflictError, match="taken"):
        start.renamed("a", "c", stays=True)
    for change in (lambda: start.renamed("b", "d", stays=True), lambda: start.swapped("a", "b")):
        with pytest.raises(InvalidInputError, match="no such table"):
            change()
    assert start.with_table("c") == start


def test_no_two_tables_share_a_directory_and_java_never_finds_another_one_under_a_name() -> None:
    """The oracle: which table is in which directory, changed by hand; Java looks in the directory of a listed name."""
    chance = random.Random(3)
    for _ in range(300):
        state, owners, numbers = EMPTY, {}, iter(range(1000))  # owners: table by directory
        for _ in range(25):
            old, new = chance.choice("abc"), chance.choice(["a", "b", "c", "a-2"])
            before = dict(owners)
            deed = chance.randrange(4)
            with suppress(ConflictError, InvalidInputError):
                if deed == 0 and new not in state.names:
                    owners[state.directory(new)] = (next(numbers), new)
                    state = state.with_table(new)
                elif deed == 1 and old in state.names:
                    owners.pop(state.directory(old))
                    state = state.without(state.directory(old))
                elif deed == 2:
                    directory = state.directory(old)
                    state = state.renamed(old, new, stays=True)
                    owners[directory] = (before[directory][0], new)
                elif deed == 3 and old != new:
                    first, second = state.directory(old), state.directory(new)
                    state = state.swapped(old, new)
                    owners[first], owners[second] = (before[first][0], new), (before[second][0], old)
            assert {name: state.directory(name) for name in state.names} == {
                name: directory for directory, (_, name) in owners.items()
            }
            assert all(owners.get(name, (0, name))[1] == name for name in state.listed)
            assert all(owners[name][1] != name for name in state.names - state.listed)
            assert all(name != directory for name, directory in state.noted.items())


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.with_table("d"),
        lambda state: state.without("a"),
        lambda state: state.renamed("a", "d", stays=True),
    ],
)
def test_without_notes_nothing_is_hidden(change: Callable[[NamedDirectories], NamedDirectories]) -> None:
    changed = change(EMPTY.with_table("a").with_table("b"))
    assert changed.listed == changed.names
