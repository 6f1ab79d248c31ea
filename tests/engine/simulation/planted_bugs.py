"""Guards of the protocol, each taken away by a patch, with the histories that need it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest

from engine.simulation.explorer import CRASH, PAUSE, dead_behind, every_place
from engine.simulation.history import run_history
from engine.simulation.pause_matrix import forks
from engine.simulation.plan import HistoryPlan
from engine.simulation.scheduler import Fault, Intervention, Seam
from engine.simulation.schedules import PlacedSchedule
from filestore import table_store
from filestore.branch import branches, key_merge, main_replacement
from filestore.commit import conflicts, expired_commits, history, table_commit
from filestore.io.memory_files import MemoryFiles
from filestore.layout import branch_state
from filestore.maintenance import orphans, rollback, snapshot_expiry
from filestore.refs import deciding, file_references, keeping, live_references, pending_tags, unused_files
from filestore.refs.live_references import LiveReference, ReferenceKind
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from filestore.snapshot.snapshot_store import RemovedSnapshots, SnapshotStore
from filestore.table_store import TableStore
from lsm.errors import FluvialError

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedBug:
    """A guard that is taken away."""

    name: str
    patch: Patch
    plans: Callable[[], Iterable[HistoryPlan]]
    most: int  # histories


def returning(target: Any, name: str, value: Any = None) -> Patch:
    """Makes a function or method return a value, whatever it is asked."""
    return lambda patch: patch.setattr(target, name, lambda *_, **__: value)


def plan(*actors: str, setup: str = "keyed", **more: Any) -> HistoryPlan:
    return HistoryPlan(actors=tuple(tuple(each.split()) for each in actors), setup=setup, **more)


def at(
    history_plan: HistoryPlan, *wanted: str, of: tuple[str, ...] = (), choices: tuple[Intervention, ...] = (PAUSE,)
) -> Callable[[], Iterator[HistoryPlan]]:
    """Interventions where paths contain one of these texts; () is everywhere."""

    def is_wanted(operation: str, path: str) -> bool:
        return (not wanted or any(each in path for each in wanted)) and (not of or operation in of)

    return lambda: every_place(history_plan, choices, is_wanted=is_wanted)


def publishing(history_plan: HistoryPlan, *choices: Intervention) -> Callable[[], Iterator[HistoryPlan]]:
    return at(history_plan, "/snapshot/snapshot-", of=("create_exclusive",), choices=choices or (PAUSE,))


def published_dead_behind(history_plan: HistoryPlan) -> Iterator[HistoryPlan]:
    return dead_behind(publishing(history_plan)())


def lost_twice(history_plan: HistoryPlan) -> Iterator[HistoryPlan]:
    """The answer of a publication is lost, and what is asked next fails."""
    alone = run_history(history_plan)
    assert isinstance(alone.schedule, PlacedSchedule)
    for step in published_steps(alone.schedule.reached):
        for following in range(1, 8):
            lost, refused = Intervention(fault=Fault.LOST_ANSWER), Intervention(fault=Fault.REFUSED)
            yield HistoryPlan(
                actors=history_plan.actors,
                setup=history_plan.setup,
                choices=((0, step, lost), (0, step + following, refused)),
            )


def published_steps(reached: list[Seam]) -> list[int]:
    return [
        each.own_step for each in reached if each.operation == "create_exclusive" and "/snapshot/snapshot-" in each.path
    ]


def every_claim_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SnapshotStore, "claimed_up_to", lambda store: store.claims.highest_id() or FIRST_SNAPSHOT_ID)


def only_the_pending_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keeping, "_let_go", lambda store, path, *_, **__: pending_tags.remove_leftover(store, path))


def without_age(patch: pytest.MonkeyPatch) -> None:
    known = orphans._old_file
    patch.setattr(orphans, "_old_file", lambda store, path, before_ms: known(store, path, 2**60))


def overwriting(patch: pytest.MonkeyPatch) -> None:
    def create(self: MemoryFiles, path: str, body: bytes) -> bool:
        self._put(path, body)
        return True

    patch.setattr(MemoryFiles, "create_exclusive", create)


def deleting_what_may_be_visible(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def undoing(undo: Callable[[], object]) -> Iterator[None]:
        try:
            yield
        except FluvialError:
            undo()
            raise

    patch.setattr("filestore.table.undoing_unless_visible", undoing)


def trusting_the_hint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SnapshotStore, "latest_id", lambda self: self._hint(self._paths.latest_hint))


def forgetting_lost_attempts(patch: pytest.MonkeyPatch) -> None:
    """A commit neither looks for its attempt of unknown outcome nor for its own identifier."""
    returning(table_commit.TableCommit, "_settle")(patch)
    returning(history.CommitHistory, "find")(patch)


def only_the_nearest(patch: pytest.MonkeyPatch) -> None:
    known = deciding.Deciders.sides
    patch.setattr(deciding.Deciders, "sides", lambda self: (islice(side, 1) for side in known(self)))


def trusting_names_of_tags(patch: pytest.MonkeyPatch) -> None:
    known = file_references._is_live

    def is_live(store: TableStore, reference: LiveReference) -> bool:
        is_there = reference.kind is ReferenceKind.TAG and store.io.exists(store.paths.tag(reference.name))
        return is_there or known(store, reference)

    patch.setattr(file_references, "_is_live", is_live)


def deleting_by_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(table_store, "delete_own", lambda io, directory, path, names, *, is_own: io.delete(path))


def with_unlimited_rollbacks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rollback, "begin_run", lambda _, mine, **__: mine)


def without_a_seal(patch: pytest.MonkeyPatch) -> None:
    returning(main_replacement, "seal")(patch)
    returning(main_replacement, "is_sealed", value=True)(patch)


def with_unlimited_operations(patch: pytest.MonkeyPatch) -> None:
    for module in (branches, branch_state):
        patch.setattr(module, "begin_work", nothing_is_in_progress)


def nothing_is_in_progress(io: Any, paths: Any, work: branch_state.Work) -> bool:
    branch_state.replace_work(io, paths, work)
    return True


BUGS = (
    PlantedBug(
        name="sequence numbers of another writer",
        patch=returning(conflicts, "sequence_conflict"),
        plans=publishing(plan("upsert", "upsert")),
        most=3,
    ),
    PlantedBug(
        name="inputs of a compaction that another commit took",
        patch=returning(conflicts, "find_conflict"),
        plans=publishing(plan("compact-full", "overwrite")),
        most=3,
    ),
    PlantedBug(
        name="a batch that is committed already",
        patch=returning(history.CommitHistory, "find"),
        plans=at(plan("stream", setup="append"), of=("answer",), choices=(Intervention(crash=True),)),
        most=2,
    ),
    PlantedBug(
        name="a snapshot names its parent",
        patch=lambda patch: patch.setattr(Snapshot, "parent", None),
        plans=lambda: dead_behind(publishing(plan("stream", "write write expire", setup="append"))()),
        most=1,
    ),
    PlantedBug(
        name="reading the note of an expired batch",
        patch=returning(expired_commits.ExpiredCommits, "newest"),
        plans=at(plan("stream", "write write expire", setup="append"), of=("answer",), choices=(CRASH,)),
        most=2,
    ),
    PlantedBug(
        name="noting a batch before its snapshot expires",
        patch=returning(expired_commits.ExpiredCommits, "note"),
        plans=at(plan("stream", "write write expire", setup="append"), of=("answer",), choices=(CRASH,)),
        most=2,
    ),
    PlantedBug(
        name="expiry claims before it looks for tags",
        patch=returning(SnapshotStore, "claim_up_to"),
        plans=at(plan("expire", "tag"), "/tag", "/branch", "/snapshot/", of=("list_names", "delete", "read_bytes")),
        most=20,
    ),
    PlantedBug(
        name="a claim counts while its snapshot is there",
        patch=every_claim_counts,
        plans=lambda: dead_behind(at(plan("expire", "drop create write"), "/expiry/", of=("replace",))()),
        most=2,
    ),
    PlantedBug(
        name="a tag asks for the claim of its snapshot",
        patch=returning(keeping, "check_unclaimed"),
        plans=at(plan("tag", "expire"), "/tag", of=("write_new",)),
        most=2,
    ),
    PlantedBug(
        name="a tag keeps its files before it has its name",
        patch=returning(live_references, "pending_references", []),
        plans=at(plan("tag", "expire"), "/tag", of=("create_exclusive",)),
        most=2,
    ),
    PlantedBug(
        name="a tag that goes looks for its replacement",
        patch=returning(unused_files, "check_gone"),
        plans=at(plan("replace-tag", "delete-tag", setup="versioned"), "/tag/tag-old", of=("replace",)),
        most=1,
    ),
    PlantedBug(
        name="an expiry looks again at what it had spared",
        patch=returning(snapshot_expiry._Expiry, "released", []),
        plans=at(plan("write expire", "delete-tag", setup="tagged"), "/manifest/", of=("delete",)),
        most=20,
    ),
    PlantedBug(
        name="a tag that is refused lets go of what was spared for it",
        patch=only_the_pending_file,
        plans=at(plan("tag", "expire"), "/expiry"),
        most=5,
    ),
    PlantedBug(
        name="a branch that was deleted looks again at what it had spared",
        patch=returning(branches, "delete_released"),
        plans=at(plan("delete-branch", "write expire", setup="versioned"), "/manifest/", of=("delete",)),
        most=20,
    ),
    PlantedBug(
        name="a savepoint keeps its files before it is there",
        patch=returning(live_references, "pending_references", []),
        plans=at(plan("savepoint", "write compact-full expire"), "/savepoint", of=("create_exclusive",)),
        most=2,
    ),
    PlantedBug(
        name="the age of orphans",
        patch=without_age,
        plans=publishing(plan("write", "clean")),
        most=3,
    ),
    PlantedBug(
        name="what is half deleted decides about no file",
        patch=only_the_nearest,
        plans=at(plan("delete-branch write expire", "delete-tag", setup="versioned"), "/manifest/", of=("delete",)),
        most=20,
    ),
    PlantedBug(
        name="a fork is no neighbour of a tag",
        patch=returning(deciding.DecidingReferences, "_ends", value=True),
        plans=lambda: forks(["compact-full"], steps=1),
        most=1,
    ),
    PlantedBug(
        name="a fork is no neighbour of a savepoint",
        patch=returning(deciding.DecidingReferences, "_ends", value=True),
        plans=lambda: (each for each in forks(["overwrite"], steps=1) if each.setup == "saved"),
        most=1,
    ),
    PlantedBug(
        name="references that went while they were looked up",
        patch=lambda patch: patch.setattr(file_references.FileReferences, "lost", frozenset()),
        plans=at(plan("delete-branch expire-some delete-tag", "write expire", setup="versioned"), "/changelog"),
        most=20,
    ),
    PlantedBug(
        name="a tag that moved is no broken one",
        patch=trusting_names_of_tags,
        plans=at(plan("expire-some", "replace-tag write expire", setup="versioned"), "/manifest/", of=("read_bytes",)),
        most=20,
    ),
    PlantedBug(
        name="references of orphans",
        patch=returning(file_references.FileReferences, "data", set()),
        plans=lambda: [plan("clean")],
        most=1,
    ),
    PlantedBug(
        name="tags of what expires",
        patch=returning(snapshot_expiry, "other_references", []),
        plans=lambda: [plan("compact-full expire", setup="versioned")],
        most=1,
    ),
    PlantedBug(
        name="operations that need the snapshots of a branch",
        patch=returning(snapshot_expiry, "keeps_snapshots", False),
        plans=at(
            plan("fast-forward", "write-branch write-branch expire-branch", setup="versioned"),
            "/branch-dev/snapshot/snapshot",
        ),
        most=40,
    ),
    PlantedBug(
        name="a commit proves its history beside an expiry",
        patch=returning(table_commit, "confirm"),
        plans=publishing(plan("write", "write write expire")),
        most=2,
    ),
    PlantedBug(
        name="a commit proves its history beside a rollback",
        patch=returning(table_commit, "confirm"),
        plans=publishing(plan("compact-full", "rollback")),
        most=2,
    ),
    PlantedBug(
        name="a commit looks whether a rollback removes its parent",
        patch=returning(RemovedSnapshots, "has", value=False),
        plans=at(plan("rollback", "write"), "/snapshot/snapshot-", of=("move_into",)),
        most=1,
    ),
    PlantedBug(
        name="a rollback looks for what came before its notes",
        patch=returning(rollback, "_announce"),
        plans=at(plan("rollback", "write"), "/rollback/RUN", of=("create_exclusive",)),
        most=1,
    ),
    PlantedBug(
        name="one rollback at a time",
        patch=with_unlimited_rollbacks,
        plans=at(plan("rollback", "rollback write write"), "/snapshot/snapshot-", of=("move_into",)),
        most=1,
    ),
    PlantedBug(
        name="what is deleted by name is what was looked at",
        patch=deleting_by_name,
        plans=at(plan("expire", "drop create write write"), "/snapshot/snapshot-", of=("delete",)),
        most=2,
    ),
    PlantedBug(
        name="a commit proves its table",
        patch=returning(table_commit, "confirm"),
        plans=publishing(plan("overwrite", "rename")),
        most=2,
    ),
    PlantedBug(
        name="a snapshot names its table",
        patch=returning(SnapshotStore, "is_of_other_table", value=False),
        plans=lambda: published_dead_behind(plan("write", "drop create")),
        most=1,
    ),
    PlantedBug(
        name="exclusive creation",
        patch=overwriting,
        plans=publishing(plan("write", "write")),
        most=3,
    ),
    PlantedBug(
        name="files of a commit that may be visible stay",
        patch=deleting_what_may_be_visible,
        plans=lambda: lost_twice(plan("write")),
        most=8,
    ),
    PlantedBug(
        name="a commit looks for its own lost attempt",
        patch=forgetting_lost_attempts,
        plans=publishing(plan("write", setup="append"), Intervention(fault=Fault.LOST_ANSWER)),
        most=3,
    ),
    PlantedBug(
        name="one operation on a branch at a time",
        patch=with_unlimited_operations,
        plans=at(plan("fast-forward", "delete-branch", setup="versioned")),
        most=120,
    ),
    PlantedBug(
        name="an expiry respects what another one has claimed",
        patch=returning(file_references, "_is_live", value=True),
        plans=at(
            plan("write-branch write-branch expire-branch", "expire", setup="versioned"),
            "/manifest/manifest-list",
            of=("delete",),
        ),
        most=20,
    ),
    PlantedBug(
        name="main is sealed before its savepoints are looked for",
        patch=without_a_seal,
        plans=at(plan("replace-main", "savepoint", setup="versioned"), "/MAIN-BRANCH", of=("replace",)),
        most=2,
    ),
    PlantedBug(
        name="a tag looks for a seal",
        patch=returning(pending_tags, "is_gone", value=False),
        plans=at(plan("replace-main", "tag", setup="versioned"), "/MAIN-BRANCH", of=("replace",)),
        most=2,
    ),
    PlantedBug(
        name="a created snapshot is looked for among the removed ones",
        patch=returning(table_commit, "check_not_removed"),
        plans=at(plan("write", "rollback write write", setup="append"), "/snapshot/snapshot-", of=("read_bytes",)),
        most=20,
    ),
    PlantedBug(
        name="rows that both sides of a merge changed",
        patch=returning(key_merge._Merge, "_note"),
        plans=lambda: [plan("upsert upsert-branch merge", setup="versioned")],
        most=1,
    ),
    PlantedBug(
        name="a hint that is not the newest",
        patch=trusting_the_hint,
        plans=at(plan("write", "write write"), "/LATEST", of=("replace",), choices=(Intervention(crash=True),)),
        most=2,
    ),
)
