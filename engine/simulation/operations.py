"""Real operations of users and jobs, by name, with the effect that each has on the model.

All work on the table ``d.t``, which begins with three snapshots: see ``setups``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from engine.procedures.maintenance.rewriting import rescale
from engine.simulation import model
from engine.simulation.model import Effect, ModelTable, on_either, unchanged
from engine.simulation.scheduler import Actor
from engine.simulation.seams import is_name_of
from engine.table import Table
from engine.write.batch_part import write_part
from engine.write.batch_writer import BatchWriter
from filestore.branch.branches import create_branch, delete_branch
from filestore.branch.fast_forward import fast_forward
from filestore.branch.main_replacement import replace_main
from filestore.branch.merge import merge_branch
from filestore.catalog.catalog import FileCatalog
from filestore.commit.table_commit import replace_compacted
from filestore.compact.compactor import pick_tasks, run_task
from filestore.evolution.schema_change import AddColumn
from filestore.maintenance.history_repair import complete_rollback
from filestore.maintenance.orphans import delete_orphans, find_orphans
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.maintenance.rollback_run import find_run
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.options.log_place import SERVERS_KEY
from filestore.refs.savepoint_files import FIRST_SAVEPOINT_ID
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from filestore.tag.automatic_tags import BATCH_PREFIX, create_batch_tag
from filestore.tag.savepoints import create_savepoint, delete_savepoint
from filestore.tag.tags import create_tag, delete_tag, expired_tags, rename_tag, replace_tag
from filestore.types.data_types import parse_data_type
from lsm.errors import InvalidInputError
from lsm.row_kind import RowKind

TABLE: Final = "d.t"
RENAMED: Final = "d.u"
BRANCH: Final = "dev"
TAG: Final = "old"
REPLACE_MAIN: Final = "replace-main"
SIMULATED_SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
FIRST: Final = {1: 10}
SECOND: Final = {1: 10, 2: 20}
THIRD: Final = {1: 10, 2: 20, 3: 30}
ON_BRANCH: Final = {**THIRD, 4: 40}
_DONE_ALL: Final = 2**62
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class LogRead:
    """What a reader of files and log got."""

    began: int  # step
    ended: int
    offsets: Mapping[int, int]  # ends of the log by bucket
    rows: tuple[tuple[int, int], ...]  # by key


@dataclass(slots=True)
class Session:
    """What an operation works with: the catalog as its process sees it."""

    catalog: FileCatalog
    actor: Actor
    began_ms: int  # when the history began; what is older may be cleaned
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # of new tables
    primary_key: Sequence[str] = ("id",)
    is_repair: bool = False  # behind the history
    kafka_address: str = ""  # of tables with a log
    reads: "list[LogRead]" = field(default_factory=list)  # of the history

    def table(self, branch: str | None = None) -> FileTable:
        """The table, opened now; what is repeated behind a rename finds it by its new name."""
        name = RENAMED if self.is_repair and not self.catalog.table_exists(TABLE) else TABLE
        found = self.catalog.table(name, branch=branch)
        return found.with_options({SERVERS_KEY: self.kafka_address}) if self.kafka_address else found


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOperation:
    """One operation of an actor."""

    name: str
    effect: Effect
    run: Callable[[Session], object]
    otherwise: tuple[Effect, ...] = ()  # effects that it may have instead
    is_repeated: bool = False  # after a crash or an unknown outcome, as its documentation asks for or allows
    publishes_rows: bool = False  # its effect is that of one snapshot, and of that moment
    repeats_apart: bool = False  # each repetition has an effect of its own: on what has the name by then
    removes_table: bool = False  # others may find no table, or not its files
    keyed_only: bool = False  # for tables with a primary key
    rows: Mapping[int, int] = field(default_factory=dict)  # that it adds to a log, and no other operation does


def _on_table(change: Callable[[ModelTable], ModelTable | None]) -> Effect:
    return on_either((TABLE, RENAMED), change)


def arrow_rows(rows: Mapping[int, int]) -> pa.Table:
    """ModelRows as the table holds them."""
    return pa.table({"id": list(rows), "v": list(rows.values())}, schema=SIMULATED_SCHEMA)


def _write(rows: Mapping[int, int], *, branch: str | None = None) -> Callable[[Session], object]:
    return lambda session: session.table(branch).write(arrow_rows(rows))


def _delete(key: int) -> Callable[[Session], object]:
    kinds = pa.array([int(RowKind.DELETE)], pa.int8())
    return lambda session: session.table().write(arrow_rows({key: 0}), kinds)


def _stream(number: int, rows: Mapping[int, int]) -> Callable[[Session], object]:
    def run(session: Session) -> object:
        writer = BatchWriter(session.table(), None, commit_user=f"stream-{session.actor.index}-{number}")
        return writer.write(number, lambda spec: write_part(spec, arrow_rows(rows).to_batches()))

    return run


def _compact(*, full: bool) -> Callable[[Session], object]:
    return lambda session: session.table().compact(full=full)


def _compact_dedicated(session: Session) -> object:
    """As the job that compacts: it looks once, works for long and commits once."""
    store = session.table().store
    live = LiveFiles.latest(store)
    tasks = pick_tasks(store, live, keys=list(live.buckets()), full=True)
    with live.reading():
        messages = [message for task in tasks if not (message := run_task(store, task)).is_empty]
    if not messages:
        return None
    return replace_compacted(store, messages, live.ref)


def _rescale(session: Session) -> object:
    return rescale(Table(session.table()), 2)


def _tag(name: str, snapshot: int) -> Callable[[Session], object]:
    return lambda session: create_tag(session.table().store, name, snapshot_id=snapshot)


def _write_next_day(rows: Mapping[int, int]) -> Callable[[Session], object]:
    def run(session: Session) -> object:
        table = session.table()
        table.store.clock.sleep(_DAY_S)
        return table.write(arrow_rows(rows))

    return run


def _tag_batch(session: Session) -> object:
    """As a batch job behind its commit, which deletes the tags that are too many."""
    store = session.table().store
    latest = store.snapshots.latest()
    return None if latest is None else create_batch_tag(store, latest)


def _expire_tags(session: Session) -> object:
    store = session.table().store
    return [delete_tag(store, each.name) for each in expired_tags(store) if each.name.startswith(BATCH_PREFIX)]


def _expire(keep: int, *, branch: str | None = None) -> Callable[[Session], object]:
    retention = Retention(min_count=keep, max_count=keep, age_ms=0, limit=_DONE_ALL)
    return lambda session: [*expire_snapshots(session.table(branch).store, retention)]


def _clean(session: Session) -> object:
    store = session.table().store
    found = find_orphans(store, before_ms=session.began_ms)
    delete_orphans(store, found, progress=lambda done, of: None)
    return found


def _roll_back(snapshot_id: int) -> Callable[[Session], object]:
    def run(session: Session) -> object:
        store = session.table().store
        begun = find_run(store)
        if begun is not None and is_name_of(session.actor.index, begun.run):  # its process has ended
            complete_rollback(store, run=begun.run)
        target = store.snapshots.find(snapshot_id)
        if target is None:
            raise InvalidInputError(f"no such snapshot: snapshot={snapshot_id}")
        roll_back(store, plan_rollback(store, target))
        return target

    return run


def _create(session: Session) -> object:
    return session.catalog.create_table(
        TABLE, SIMULATED_SCHEMA, primary_key=session.primary_key, options=session.options
    )


def file_operations(number: int) -> list[SimulatedOperation]:
    """All operations on files; ``number`` makes rows and names of this one its own."""
    new, value = {100 + number: number}, {1: 1000 + number}
    make = SimulatedOperation
    return [
        make(name="write", effect=_on_table(model.put(new)), run=_write(new), publishes_rows=True),
        make(
            name="upsert", effect=_on_table(model.put(value)), run=_write(value), publishes_rows=True,
            keyed_only=True,
        ),
        make(
            name="delete", effect=_on_table(model.put({}, removed=frozenset({2}))), run=_delete(2),
            publishes_rows=True, keyed_only=True,
        ),
        make(
            name="overwrite", effect=_on_table(model.overwrite(new)),
            run=lambda session: session.table().overwrite(arrow_rows(new), {}), publishes_rows=True,
        ),
        make(
            name="stream", effect=_on_table(model.put(new)), run=_stream(number, new), publishes_rows=True,
            is_repeated=True,
        ),
        make(name="compact", effect=unchanged, run=_compact(full=False)),
        make(name="compact-full", effect=unchanged, run=_compact(full=True)),
        make(name="compact-dedicated", effect=unchanged, run=_compact_dedicated),
        make(name="rescale", effect=unchanged, run=_rescale, is_repeated=True, keyed_only=True),
        make(name="tag", effect=_on_table(model.tag(f"t{number}", 2, SECOND)), run=_tag(f"t{number}", 2)),
        make(name="tag-newest", effect=_on_table(model.tag(f"n{number}", 3, THIRD)), run=_tag(f"n{number}", 3)),
        make(
            name="replace-tag", effect=_on_table(model.tag(TAG, 3, THIRD, replaces=True)),
            run=lambda session: replace_tag(session.table().store, TAG, snapshot_id=3),
        ),
        make(
            name="rename-tag", effect=_on_table(model.tag_renamed(TAG, f"r{number}")),
            otherwise=(_on_table(model.tag_renamed(TAG, f"r{number}", keeps=True)),),
            run=lambda session: rename_tag(session.table().store, TAG, f"r{number}"),
        ),
        make(
            name="delete-tag", effect=_on_table(model.untag(TAG)),
            run=lambda session: delete_tag(session.table().store, TAG),
        ),
        make(
            name="savepoint", effect=_on_table(model.save),
            run=lambda session: create_savepoint(session.table().store),
        ),
        make(
            name="delete-savepoint", effect=_on_table(model.unsave(THIRD)),
            run=lambda session: delete_savepoint(session.table().store, FIRST_SAVEPOINT_ID),
        ),
        make(name="write-next-day", effect=_on_table(model.put(new)), run=_write_next_day(new), publishes_rows=True),
        make(name="tag-batch", effect=unchanged, run=_tag_batch),
        make(name="expire-tags", effect=unchanged, run=_expire_tags),
        make(
            name="branch", effect=_on_table(model.branch_off(f"b{number}", SECOND)),
            run=lambda session: create_branch(session.table().store, f"b{number}", snapshot_id=2), is_repeated=True,
        ),
        make(
            name="write-branch", effect=_on_table(model.put(new, branch=BRANCH)), run=_write(new, branch=BRANCH),
            publishes_rows=True,
        ),
        make(
            name="upsert-branch", effect=_on_table(model.put(value, branch=BRANCH)), run=_write(value, branch=BRANCH),
            publishes_rows=True, keyed_only=True,
        ),
        make(
            name="merge", effect=_on_table(model.merge(BRANCH)),
            run=lambda session: merge_branch(session.table().store, BRANCH), is_repeated=True,
        ),
        make(
            name="fast-forward", effect=_on_table(model.merge(BRANCH)),
            run=lambda session: fast_forward(session.table().store, BRANCH), is_repeated=True,
        ),
        make(
            name=REPLACE_MAIN, effect=_on_table(model.main_replaced(BRANCH)),
            run=lambda session: replace_main(session.table().store, BRANCH), is_repeated=True, removes_table=True,
        ),
        make(
            name="delete-branch", effect=_on_table(model.branch_deleted(BRANCH)),
            run=lambda session: delete_branch(session.table().store, BRANCH), is_repeated=True, removes_table=True,
        ),
        make(name="expire", effect=unchanged, run=_expire(1)),
        make(name="expire-some", effect=unchanged, run=_expire(2)),
        make(name="expire-branch", effect=unchanged, run=_expire(1, branch=BRANCH)),
        make(name="clean", effect=unchanged, run=_clean),
        make(
            name="rollback", effect=_on_table(model.rolled_back(2, SECOND)), run=_roll_back(2), is_repeated=True,
            removes_table=True, otherwise=(_on_table(model.rolled_back(2, SECOND, compactions=1)),),
        ),
        make(
            name="drop", effect=model.drop(TABLE), run=lambda session: session.catalog.drop_table(TABLE),
            is_repeated=True, repeats_apart=True, removes_table=True,
        ),
        make(name="create", effect=model.create(TABLE), run=_create),
        make(
            name="rename", effect=model.rename(TABLE, RENAMED),
            run=lambda session: session.catalog.rename_table(TABLE, RENAMED), removes_table=True,
        ),
        make(
            name="alter", effect=unchanged,
            run=lambda session: session.catalog.alter_table(
                TABLE, [AddColumn(path=(f"c{number}",), type=parse_data_type("INT"))]
            ),
        ),
    ]  # fmt: skip


WITH_BRANCH: Final = frozenset(
    {"write-branch", "upsert-branch", "merge", "fast-forward", REPLACE_MAIN, "delete-branch", "expire-branch"}
)
"""Operations that need the branch of the setup."""


WITH_TAG: Final = frozenset({"replace-tag", "rename-tag", "delete-tag"})
"""Operations that need the tag of the setup."""


WITH_SAVEPOINT: Final = frozenset({"delete-savepoint"})
"""Operations that need the savepoint of the setup."""


WITH_BATCH_TAGS: Final = frozenset({"tag-batch", "expire-tags"})
"""Operations that need automatic tags."""


ON_BRANCHES: Final = frozenset({"branch", "merge", "fast-forward", REPLACE_MAIN, "delete-branch"})
"""Operations on whole branches: what is left of an interrupted one is completed by running it again."""
