"""Undo on error: what a block made goes again when the block fails.

Work that no one can see yet is undone whatever stops it (``undoing``). Where a block publishes, only an error that
proves that nothing is visible may delete files (``undoing_unless_visible``): a file that is left over costs space, one
that is deleted behind a published snapshot costs rows.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lsm.errors import CommittedError, FluvialError, OutcomeUnknownError, TakenOverError

Errors = type[BaseException] | tuple[type[BaseException], ...]


@contextmanager
def undoing(undo: Callable[[], object], *, unless: Errors = ()) -> Iterator[None]:
    """Call ``undo`` when the block does not finish, also when interrupted; then the error reaches the caller.

    Args:
        undo: deletes what the block made. It is called once; what it raises replaces the error.
        unless: errors after which everything stays as it is.
    """
    try:
        yield
    except unless:
        raise
    except BaseException:
        undo()
        raise


@contextmanager
def undoing_unless_visible(undo: Callable[[], object]) -> Iterator[None]:
    """Call ``undo`` when the block, which publishes, fails by an error that says that nothing is visible.

    After ``OutcomeUnknownError``, an interrupt or an error of unknown meaning every file stays: a snapshot may refer to
    it. Orphan cleaning deletes it if none does.
    """
    try:
        yield
    except OutcomeUnknownError:
        raise
    except (FluvialError, OSError):
        undo()
        raise


@contextmanager
def following_a_commit(fact: str) -> Iterator[None]:
    """What follows a commit: when it fails, the error says that the change is visible, and never that it was refused.

    Args:
        fact: what is visible, with ``key=value`` pairs.

    Raises:
        CommittedError: a step of the block failed.
        TakenOverError: this run has ended, whatever it has committed.
    """
    try:
        yield
    except (CommittedError, TakenOverError):
        raise
    except (FluvialError, OSError) as error:
        raise CommittedError(f"{fact} error=what follows the commit failed: {error}") from error
