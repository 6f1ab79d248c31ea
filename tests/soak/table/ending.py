"""What must hold of a table when all processes have ended."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from engine import Table
from engine import procedures as sys_
from filestore.branch.branches import list_branches
from filestore.maintenance.history_repair import FORK_TAG_PREFIX
from filestore.maintenance.orphans import delete_orphans, find_orphans
from filestore.refs.savepoint_files import list_savepoints
from filestore.tag.tags import list_tags
from tests.soak.table.actors import look
from tests.soak.table.journal import Deed
from tests.soak.table.kinds import Kind, Seen
from tests.soak.table.oracle import ANY, FOREVER, Oracle, State
from tests.soak.table.processes import RaceError
from tests.support.roots import used_files

_PROBE: Final = 8
"""A writer of its own, behind the race."""


def differences_at_the_end(kind: Kind, oracle: Oracle, table: Table, end: Deed) -> Iterator[str]:
    """What rows, tags, savepoints and branches should not be.

    Args:
        kind: of the table.
        oracle: knows what was done.
        table: nobody works on it, and it is repaired.
        end: the last look at it.
    """

    def wanted(snapshot_id: int) -> State | None:
        chapter = oracle.chapter_at(end.began, end.began)
        return None if chapter is None else oracle.state(snapshot_id, began=end.began, ended=end.began)

    def compared(what: str, seen: dict[int, Seen], state: State | None, *, is_settled: bool = False) -> Iterator[str]:
        if state is not None:
            for each in state.differences(kind, seen, is_settled=is_settled):
                yield f"rows are wrong: of={what} {each}"

    newest = end.facts["id"] or 0
    yield from compared(f"snapshot {newest}", end.facts["seen"], wanted(newest), is_settled=True)
    tags, savepoints = oracle.tags(), oracle.savepoints()
    there = {tag.name: tag.snapshot.id for tag in list_tags(table.store)}
    for name, snapshot_id in there.items():
        seen = _seen(kind, table, tag=name)
        if not name.startswith(FORK_TAG_PREFIX):  # which has what no one acknowledged
            yield from compared(f"tag {name}", seen, wanted(snapshot_id))
        if name in tags and not {snapshot_id, ANY} & tags[name]:
            yield f"a tag is where it should not be: tag={name} snapshot={snapshot_id} allowed={tags[name]}"
    gone = {name: each for name, each in tags.items() if None not in each and name not in there}
    yield from (f"a tag is lost: tag={name} snapshot={each}" for name, each in gone.items())
    numbers = {each.id for each in list_savepoints(table.store)}
    for number in numbers:
        _seen(kind, table, version=f"savepoint.{number}")
    lost = {number: each for number, each in savepoints.items() if None not in each and number not in numbers}
    yield from (f"a savepoint is lost: savepoint={number} snapshot={each}" for number, each in lost.items())
    for branch in list_branches(table.store):
        on_branch = Table(table.files.on_branch(branch.name))
        yield from compared(f"branch {branch.name}", _seen(kind, on_branch), oracle.branch_state(branch.name))


def check_cleaning(kind: Kind, table: Table) -> list[str]:
    """Cleaning leaves what is used, and all of it; then the table goes on, and gives up all but its newest rows.

    Returns:
        The files without a use that there were.

    Raises:
        RaceError: something else.
    """
    before = _seen(kind, table)
    unused = _clean(table)
    table.write(kind.rows(_PROBE, 1))
    table.compact(full=True)
    for branch in list_branches(table.store):
        sys_.delete_branch(table, branch.name)
    for savepoint in list_savepoints(table.store):
        sys_.delete_savepoint(table, savepoint.id)
    for tag in list_tags(table.store):
        sys_.delete_tag(table, tag.name)
    sys_.expire_snapshots(table, retain_max=1, retain_min=1)
    _clean(table)
    after = _seen(kind, table)
    probe = {group: seen for group, seen in after.items() if group not in before}
    if {**before, **probe} != after or len(probe) != 1 or len(table.store.snapshots.ids()) != 1:
        raise RaceError(f"the table does not go on: before={before} after={after}")
    return unused


def _seen(kind: Kind, table: Table, **where: Any) -> dict[int, Seen]:
    facts: dict[str, Any] = {}
    look(kind, table, facts, **where)
    return facts["seen"]  # type: ignore[no-any-return]


def _clean(table: Table) -> list[str]:
    orphans = find_orphans(table.store, before_ms=FOREVER)
    delete_orphans(table.store, orphans, progress=lambda done, of: None)
    for each in sys_.verify(table, rows=True).to_pylist():
        raise RaceError(f"verify behind cleaning: {each}")
    root = Path(table.store.paths.root)
    there = {str(path) for path in root.rglob("*") if path.is_file() and _is_content(path.relative_to(root))}
    used = used_files(table.files)
    if there != used:
        raise RaceError(f"files: unused={sorted(there - used)[:5]} lost={sorted(used - there)[:5]}")
    return [each.path for each in orphans]


def _is_content(path: Path) -> bool:
    return path.parts[0] in ("manifest", "index") or any(each.startswith("bucket-") for each in path.parts)
