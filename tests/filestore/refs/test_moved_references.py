"""References that move while what deletes files lists them: tags and branches that get another name, main that ends."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import pytest

from filestore.branch.branches import create_branch, rename_branch
from filestore.branch.main_replacement import replace_main
from filestore.maintenance.orphans import delete_orphans, find_orphans
from filestore.refs.live_references import all_references
from filestore.table import FileTable
from filestore.tag.savepoints import create_savepoint, delete_savepoint
from filestore.tag.tags import create_tag, delete_tag, list_tags, rename_tag
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError, UnavailableError
from tests.support.faults import Disks, Nth
from tests.support.tables import content, copied, expire_all_but, key_table, reopened, rows

LOOKS = ("list_names", "stamp")


def table_with_references() -> FileTable:
    """Tags, a savepoint and a branch, each the only one that keeps files of its own."""
    table = key_table(bucket="1", **{"write-only": "true"})
    for number in (1, 2):
        table.write(rows((1, number)))
        table.compact(full=True)
        create_tag(table.store, f"t{number}")
    table.write(rows((1, 3)))
    create_savepoint(table.store, compact=False)
    create_branch(table.store, "b", snapshot_id=table.store.snapshots.latest_id())
    table.on_branch("b").write(rows((2, 2)))
    table.write(rows((1, 9)))
    table.compact(full=True)
    return table


def states(table: FileTable) -> list[dict[int, int | None]]:
    """What branches and tags hold, whatever their names are."""
    table = reopened(table, table.store.io)
    branches = [table.on_branch(name) for name in sorted({each.branch for each in all_references(table.store)})]
    tags = (content(each, tag=tag.name) for each in branches for tag in list_tags(each.store))
    return [*map(content, branches), *tags]


def clean(table: FileTable) -> None:
    delete_orphans(table.store, find_orphans(table.store, before_ms=10**15), progress=lambda done, of: None)


DELETERS: Mapping[str, Callable[[FileTable], object]] = {
    "expiry": lambda table: expire_all_but(table, 1),
    "tag": lambda table: delete_tag(table.store, "t1"),
    "savepoint": lambda table: delete_savepoint(table.store, 1),
    "cleaning": clean,
}
MOVERS: Mapping[str, Callable[[FileTable], object]] = {
    "tag": lambda table: rename_tag(table.store, "t2", "a"),
    "branch": lambda table: rename_branch(table.store, "b", "a"),
    "main": lambda table: replace_main(table.store, "b"),
}


@pytest.mark.sampled(4)
@pytest.mark.sweep
@pytest.mark.parametrize("mover", MOVERS)
@pytest.mark.parametrize("deleter", DELETERS)
def test_what_moves_while_it_is_listed_keeps_its_files(deleter: str, mover: str) -> None:
    """public-reports.md 1: a tag that was renamed between a listing and the look at it lost its files."""
    before = table_with_references()
    moved, disks = copied(before), Disks()
    MOVERS[mover](moved)
    known = states(moved)
    for nth in range(1, 10_000):
        table = copied(before)
        io = Nth(table.store.io, nth, partial(MOVERS[mover], reopened(table, table.store.io)), of=LOOKS)
        with suppress(ConflictError, InvalidInputError, OutcomeUnknownError, UnavailableError):
            DELETERS[deleter](reopened(table, io))  # type: ignore[arg-type]
        if io.left > 0:
            break
        if disks.is_new(table.store.io):
            left = states(table)
            assert len(left) >= len(known) - (deleter in ("tag", "savepoint")), nth
            assert all(each in known for each in left), nth
    assert nth > 10
