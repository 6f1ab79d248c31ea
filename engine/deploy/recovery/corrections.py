"""The statements that correct the rows of a branch; each is run exactly once, also if its process dies.

Each statement writes under a job name of its own. Its snapshot has this name, so a repetition finds the snapshot.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from engine.catalog import Catalog
from engine.dialect.grammar.parser import parse_statements
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from engine.lineage.origins import JOB_KEY, CommitOrigin
from engine.runtime.spark_settings import spark_setting
from filestore.layout.branch_names import on_branch_name
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHANGES: Final = (exp.Insert, exp.Update, exp.Delete, exp.Merge)


def statements_of(text: str) -> list[str]:
    """The statements of a text. Raises: InvalidInputError."""
    return [each.text.strip() for each in parse_statements(text)]


def check_corrections(statements: Sequence[str], table: str, branch: str) -> None:
    """Refuse statements that do anything but change rows of the table's branch. Raises: InvalidInputError."""
    wanted = on_branch_name(table, branch)
    for text in statements:
        for each in parse_statements(text):
            written = _written(each.tree)
            if written != wanted:
                raise InvalidInputError(
                    f"a correction changes the rows of the branch: statement={text!r} writes={written} "
                    f"fix='INSERT, UPDATE, DELETE or MERGE INTO {wanted}'"
                )


def correct_rows(catalog: Catalog, spark: "SparkSession", statement: str, store: TableStore, job: str) -> str:
    """Run a statement, unless a snapshot of the branch is its result.

    Args:
        catalog: of the tables.
        spark: runs it.
        statement: one that ``check_corrections`` takes.
        store: of the table, on the branch.
        job: a name that no other statement has.

    Returns:
        A fact about it.

    Raises:
        InvalidInputError: it cannot be run; nothing is changed.
    """
    done = _snapshot_of(store, job)
    if done is not None:
        return f"done before, snapshot={done.id}"
    with spark_setting(spark, JOB_KEY, job):
        SqlSession(SqlContext(catalog=catalog, open_spark=lambda: spark)).execute(statement)
    done = _snapshot_of(store, job)
    return "no row is different" if done is None else f"snapshot={done.id}"


def _written(tree: object) -> str | None:
    """The table that a statement changes; None: none."""
    if not isinstance(tree, _CHANGES):
        return None
    target = tree.this
    target = target.this if isinstance(target, exp.Schema) else target
    return ".".join(part.name for part in target.parts) if isinstance(target, exp.Table) else None


def _snapshot_of(store: TableStore, job: str) -> Snapshot | None:
    for snapshot_id in reversed(store.snapshots.line().ids):
        snapshot = store.snapshots.find(snapshot_id)
        origin = None if snapshot is None else CommitOrigin.of(snapshot)
        if origin is not None and origin.job == job:
            return snapshot
    return None
