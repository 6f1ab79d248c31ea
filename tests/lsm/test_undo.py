"""What is undone after which error: files that may be visible stay."""

from contextlib import suppress

import pytest

from lsm.errors import (
    CommittedError,
    ConflictError,
    CorruptDataError,
    FluvialError,
    InvalidInputError,
    OutcomeUnknownError,
    TakenOverError,
    UnavailableError,
)
from lsm.undo import following_a_commit, undoing, undoing_unless_visible

PROOFS = [
    ConflictError,
    UnavailableError,
    InvalidInputError,
    CorruptDataError,
    FluvialError,
    OSError,
    FileNotFoundError,
]
NO_PROOFS = [OutcomeUnknownError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, RuntimeError, TypeError]


class _BranchGoneError(OutcomeUnknownError):
    pass


@pytest.mark.parametrize("error", [*PROOFS, *NO_PROOFS, _BranchGoneError])
def test_work_that_no_one_sees_is_undone_once_whatever_stops_it(error: type[BaseException]) -> None:
    undone: list[str] = []
    raised = error("why")
    with pytest.raises(error) as found, undoing(lambda: undone.append("deleted")):
        raise raised
    assert found.value is raised
    assert undone == ["deleted"]


@pytest.mark.parametrize("error", [*PROOFS, *NO_PROOFS, _BranchGoneError])
def test_a_publication_is_undone_only_by_an_error_that_proves_that_nothing_is_visible(
    error: type[BaseException],
) -> None:
    undone: list[str] = []
    raised = error("why")
    with pytest.raises(error) as found, undoing_unless_visible(lambda: undone.append("deleted")):
        raise raised
    assert found.value is raised
    assert undone == (["deleted"] if error in PROOFS else [])


def test_named_errors_keep_everything() -> None:
    undone: list[str] = []
    for error in (OutcomeUnknownError, _BranchGoneError, KeyboardInterrupt):
        with suppress(error), undoing(lambda: undone.append("deleted"), unless=OutcomeUnknownError):
            raise error
    assert undone == ["deleted"]  # by the interrupt


@pytest.mark.parametrize("context", [undoing, undoing_unless_visible])
def test_what_finishes_is_not_undone_wherever_it_leaves_the_block(context: object) -> None:
    undone: list[str] = []

    def leaves(way: str) -> str:
        for _ in range(2):
            with context(lambda: undone.append("deleted")):  # type: ignore[operator]
                if way == "return":
                    return way
                if way == "continue":
                    continue
            if way == "break":
                break
        return "end"

    assert [leaves(way) for way in ("return", "continue", "break", "end")] == ["return", "end", "end", "end"]
    assert undone == []


@pytest.mark.parametrize("error", PROOFS)
def test_what_fails_behind_a_commit_never_says_that_nothing_is_visible(error: type[Exception]) -> None:
    message = r"rows are visible: snapshot=3 .*why"
    with pytest.raises(CommittedError, match=message), following_a_commit("rows are visible: snapshot=3"):
        raise error("why")


@pytest.mark.parametrize("error", [CommittedError, TakenOverError, KeyboardInterrupt, RuntimeError])
def test_what_says_enough_behind_a_commit_is_raised_as_it_is(error: type[BaseException]) -> None:
    raised = error("why")
    with pytest.raises(error) as found, following_a_commit("rows are visible"):
        raise raised
    assert found.value is raised
