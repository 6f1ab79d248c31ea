"""What holds snapshots and their files back from expiry: tags, savepoints, branches, consumers, unfinished operations.

Each is named once: the tag of a savepoint, or of a branch, counts as the savepoint or the branch.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from engine.monitor.symptom import Severity, Symptom
from engine.runtime.units import age_text, many_text
from filestore.layout.branch_state import keeps_snapshots, read_work
from filestore.options.table.common import DAY_MS
from filestore.refs.branch_origins import start_of
from filestore.refs.live_references import ReferenceKind, branch_names, on_branch, pending_references
from filestore.refs.savepoint_files import list_savepoints
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from filestore.tag.tags import list_tags

_FIXES: Final = {
    "tag": "delete the tag when it is not needed; tags created with a time to live expire automatically",
    "savepoint": "delete the savepoint when it is not needed",
    "branch": "delete the branch when it is not needed, or merge it or fast-forward main to it",
    "consumer": "a reader that does not come back: delete the consumer, or set consumer.expiration-time",
    "pending tag": "a process died while it created a tag: remove orphan files deletes it when it is old enough",
}

_PLURALS: Final = {"branch": "branches"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """What keeps an old snapshot and its files."""

    kind: str  # consumer, tag, savepoint, branch, pending tag or operation
    name: str
    snapshot_id: int | None  # None: every snapshot
    age_ms: int | None  # of that snapshot; None: it does not exist, or not yet
    has_end: bool  # expires automatically
    is_broken: bool = False  # its own files are missing, so no file can be deleted


def holders_of(store: TableStore, now_ms: int) -> Iterator[Holder]:
    """What holds snapshots of a branch of a table back. Raises: CorruptDataError for a tag that cannot be decoded."""

    def holder(kind: str, name: str, snapshot_id: int, snapshot: Snapshot | None, *, has_end: bool = False) -> Holder:
        return Holder(
            kind=kind,
            name=name,
            snapshot_id=snapshot_id,
            age_ms=None if snapshot is None else max(0, now_ms - snapshot.time_ms),
            has_end=has_end,
            is_broken=kind in ("tag", "savepoint") and snapshot is not None and _is_broken(store, snapshot),
        )

    expires = store.options.consumer_expiration_time_ms is not None
    for name, next_id in sorted(store.consumers.next_snapshots().items()):
        yield holder("consumer", name, next_id, store.snapshots.find(next_id), has_end=expires)
    savepoints = list_savepoints(store)
    for savepoint in savepoints:
        yield holder("savepoint", str(savepoint.id), savepoint.saved_snapshot_id, savepoint.snapshot)
    named = {savepoint.tag_name for savepoint in savepoints}
    if store.paths.branch == store.main_branch:
        for branch in sorted({*branch_names(store)} - {store.main_branch}):
            tag, first = start_of(store, branch)
            if first is not None:
                there = on_branch(store, branch)
                known = there.snapshots.find(first) or (there.snapshots.find_tag(tag) if tag is not None else None)
                named |= set() if tag is None else {tag}
                yield holder("branch", branch, first, known)
    for each in list_tags(store):
        if each.name not in named:
            yield holder("tag", each.name, each.snapshot.id, each.snapshot, has_end=each.retained_ms is not None)
    for reference in pending_references(store):
        if reference.kind is ReferenceKind.PENDING:
            yield holder("pending tag", reference.name, reference.snapshot_id, reference.snapshot)
    if keeps_snapshots(store.io, store.paths):
        work = read_work(store.io, store.paths)
        yield Holder(kind="operation", name=str(work), snapshot_id=None, age_ms=None, has_end=True)


def _is_broken(store: TableStore, snapshot: Snapshot) -> bool:
    lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
    return not all(store.io.exists(store.paths.manifest(name)) for name in lists)


def held_symptom(holders: Sequence[Holder], *, longest_ms: int) -> Symptom:
    """The finding about what holds snapshots back.

    Args:
        holders: see ``holders_of``.
        longest_ms: age up to which snapshots are kept anyway.
    """
    values = {"holders": [asdict(each) for each in holders]}

    def symptom(severity: Severity, fact: str, fix: str | None = None) -> Symptom:
        return Symptom(check="held snapshots", severity=severity, fact=fact, fix=fix, values=values)

    for each in holders:
        if each.is_broken:
            fact = f"{each.kind} {each.name} has lost its own files, so no snapshot can expire"
            return symptom(Severity.CRITICAL, fact, f"restore its files, or delete the {each.kind}")
    for each in holders:
        if each.kind == "operation":
            fact = f"an operation keeps every snapshot: {each.name}"
            return symptom(Severity.NOTE, fact, "wait for it; if its process died, run it again, or run repair")
    old = [each for each in holders if (each.age_ms or 0) > max(longest_ms, DAY_MS)]
    if not old:
        kinds = Counter(each.kind for each in holders)
        counts = [many_text(count, kind, _PLURALS.get(kind)) for kind, count in sorted(kinds.items())]
        fact = f"{', '.join(counts)} hold snapshots, none too old" if counts else "nothing holds snapshots back"
        return symptom(Severity.OK, fact)
    old.sort(key=lambda each: -(each.age_ms or 0))
    worst = old[0]
    fact = (
        f"{worst.kind} {worst.name} holds snapshot {worst.snapshot_id} of {age_text(worst.age_ms or 0)} ago "
        f"and the files that only it needs; {many_text(len(old), 'holder is', 'holders are')} that old"
    )
    if len(old) > 1:
        others = ", ".join(f"{each.kind} {each.name} ({age_text(each.age_ms or 0)})" for each in old[1:5])
        fact += f", also {others}"
    if any(each.kind == "consumer" and not each.has_end for each in old):
        return symptom(Severity.WARNING, fact, _FIXES["consumer"])
    return symptom(Severity.NOTE, fact, _FIXES[worst.kind])
