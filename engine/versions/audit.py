"""Write, audit, publish: rows are written to a branch, checked there, and reach main in one commit or not at all."""

import logging
import uuid
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from engine.versions.branches import create_branch, delete_branch
from filestore.branch.branches import list_branches
from filestore.branch.merge import MergeResult, merge_branch
from filestore.table import FileTable
from filestore.table_store import TableStore
from lsm.errors import FluvialError, InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from engine.versions.expectations import Check, Outcome

logger = logging.getLogger("fluvial.audit")

T = TypeVar("T")


class AuditBranch(Generic[T]):
    """A branch for the length of a ``with`` block. What the opened table can do, this can do on the branch."""

    def __init__(
        self,
        main: FileTable,
        opened: Callable[[FileTable], T],
        *,
        name: str | None = None,
        tag: str | None = None,
        snapshot_id: int | None = None,
        log: bool = False,
        replace: bool = False,
        keep: bool | None = None,
    ) -> None:
        """Made by ``Table.audit_branch``; nothing is done before the block begins.

        Args:
            main: opened on its main branch.
            opened: makes a table of the files of one.
            name: of the branch; None: one that is not in use.
            tag: of main, to begin at.
            snapshot_id: of main, to begin at. None of both: the newest.
            log: whether the branch has a log of its own.
            replace: delete a branch of this name first.
            keep: whether the branch stays when the block ends. None: only when a publication was tried and failed.
        """
        self._main = main
        self._opened = opened
        self._name = name or f"audit-{uuid.uuid4().hex[:8]}"
        self._tag, self._snapshot_id = tag, snapshot_id
        self._log, self._replace, self._keep = log, replace, keep
        self._table: T | None = None
        self._has_failed = False

    def __enter__(self) -> Self:
        """Make the branch. Raises: InvalidInputError, as ``create_branch``."""
        main = self._main
        if self._replace and any(each.name == self._name for each in list_branches(main.store)):
            delete_branch(main.store, self._name)
        start = self._snapshot_id
        if start is None and self._tag is None:
            start = main.store.snapshots.latest_id()
        create_branch(main.store, self._name, tag=self._tag, snapshot_id=start, log=self._log)
        self._table = self._opened(main.on_branch(self._name))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete the branch, unless it is to be looked at."""
        if self._keep or (self._keep is None and self._has_failed):
            return
        try:
            delete_branch(self._main.store, self._name)
        except FluvialError:
            if error is None:
                raise
            logger.warning(
                "branch stays, it could not be deleted: table=%s branch=%s", self._main.name, self._name, exc_info=True
            )

    def __getattr__(self, name: str) -> Any:
        """Whatever the opened table has: ``append``, ``write``, ``overwrite``, ``read``, ``dataframe``, ``store``."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.table, name)

    @property
    def branch(self) -> str:
        """Name of the branch."""
        return self._name

    @property
    def table(self) -> T:
        """The table on the branch, for ``sink`` and whatever else takes a table.

        Raises:
            InvalidInputError: the block has not begun.
        """
        if self._table is None:
            raise InvalidInputError(f"a branch to audit is there in a with block: branch={self._name} fix=use with")
        return self._table

    def check(self, expect: "Sequence[str | Check]", *, spark: "SparkSession | None" = None) -> "list[Outcome]":
        """Check expectations on the branch as it is now, without publishing. See ``publish``."""
        from engine.versions.expectations import check_expectations  # the parser is slow to import

        return check_expectations(self._fresh(), expect, spark=spark)

    def publish(
        self, expect: "Sequence[str | Check]" = (), *, spark: "SparkSession | None" = None, force: bool = False
    ) -> MergeResult:
        """Bring the branch into main by one commit, if its rows are as expected.

        Args:
            expect: conditions in SQL that must be true for every row (``amount >= 0``) or as aggregates
                (``count(*) > 0``), and functions of the table on the branch.
            spark: computes them; None: this process does, see ``expectations``.
            force: keys that main changed differently meanwhile get the branch's row.

        Raises:
            ExpectationError: some failed; nothing is published.
            ConflictError: main changed the same keys differently, or the branch was written while it was checked;
                nothing is published.
            InvalidInputError: an expectation that cannot be understood.
        """
        try:
            return publish(self._main.store, self._fresh(), self._name, expect, spark=spark, force=force)
        except BaseException:
            self._has_failed = True
            raise

    def _fresh(self) -> Any:
        """The table with the schema that the branch has by now."""
        _ = self.table
        return self._opened(self._main.on_branch(self._name))


def publish(
    main: TableStore,
    branch: Any,
    name: str,
    expect: "Sequence[str | Check]",
    *,
    spark: "SparkSession | None" = None,
    force: bool = False,
) -> MergeResult:
    """Merge a branch into main, if its rows are as expected; see ``AuditBranch.publish``.

    Args:
        main: opened on its main branch.
        branch: the table, opened on the branch.
        name: of the branch.
        expect: see there.
        spark: see there.
        force: see there.
    """
    checked = branch.store.snapshots.latest_id()
    if expect:
        from engine.versions.expectations import check_expectations, refuse_failures

        if checked is None:
            raise InvalidInputError(f"the branch is empty, there is nothing to check: table={branch.name}")
        refuse_failures(branch.name, check_expectations(branch, expect, snapshot_id=checked, spark=spark))
    return merge_branch(main, name, force=force, only_at=checked)
