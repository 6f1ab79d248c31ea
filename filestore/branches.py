"""Branches: the same table with snapshots, schemas and tags of its own.

Data files and manifests are shared, so making a branch copies a tag, its snapshot and the schemas up to it, and no
rows. Another engine's expiry of main looks at main's tags only: the tag that a branch was made from stays as long as
the branch, and one is made for a branch that begins at a plain snapshot. A branch is there from the moment that all of
it is. Source: paimon-format.md section 9 (Paimon BranchManager); BR-05 to BR-08, BR-17 to BR-25, BR-33 to BR-35, BR-41.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from filestore.branch_log import is_log_option, off_main_log, write_branch_log
from filestore.branch_state import (
    OPERATION_FILE,
    Operation,
    Origin,
    Work,
    begin_work,
    end_work,
    is_hidden,
    read_origin,
    read_work,
    write_origin,
)
from filestore.options import canonical_options, check_option
from filestore.paths import MAIN_BRANCH, TablePaths
from filestore.roots import branch_names, on_branch
from filestore.schema import SchemaStore
from filestore.snapshots import Snapshot
from filestore.table import Table
from filestore.table_schema import TableSchema
from filestore.tags import delete_tag, hold_snapshot, read_tag
from lsm.errors import ConflictError, InvalidInputError

OWN_TAG_PREFIX: Final = "branch-"
"""Of the name of the tag that is made for a branch which begins at a plain snapshot; the branch's name follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A branch and where it began."""

    name: str
    tag: str | None  # of main
    snapshot_id: int | None  # None: made empty


def create_branch(
    table: Table,
    name: str,
    *,
    tag: str | None = None,
    snapshot_id: int | None = None,
    options: Mapping[str, str] | None = None,
    log: Mapping[str, str] | None = None,
    ignore_if_exists: bool = False,
) -> Branch:
    """Make a branch of main; when this dies, run it again.

    Args:
        table: opened on its main branch.
        name: without ``.`` and ``/``, not a number and not ``main``.
        tag: of main, to begin at.
        snapshot_id: of main, to begin at; a tag ``branch-<name>`` is made for it. None of both: the branch is empty.
        options: of the branch, where they differ from main's.
        log: the options that say where the branch's own log is, of an empty topic; None: it has no log, see
            ``branch_log``.
        ignore_if_exists: return the branch that is there, wherever it began.

    Raises:
        InvalidInputError: a name that no branch can have or that is taken, or no such tag or snapshot.
        ConflictError: the tag was deleted, or the snapshot expired, at this moment; or somebody else makes or deletes a
            branch of this name.
    """
    check_branch_name(name)
    _check_on_main(table)
    if tag is not None and snapshot_id is not None:
        raise InvalidInputError(
            f"a branch begins at a tag or a snapshot: branch={name} tag={tag} snapshot={snapshot_id}"
        )
    there = on_branch(table, name)
    if _exists(table, name):
        if ignore_if_exists:
            return read_branch(table, name)
        raise InvalidInputError(
            f"branch exists already: table={table.name} branch={name} fix=choose another name, or delete it first"
        )
    arguments = {"tag": tag, "snapshot": snapshot_id, "options": dict(options or {}), "has_log": log is not None}
    work = Work(operation=Operation.CREATE, arguments=arguments)
    _check_no_leftovers(table, there.paths, work)
    if not begin_work(table.io, there.paths, work):
        _remove_files(table, there.paths)
    try:
        origin = _origin(table, name, tag, snapshot_id, options or {})
        _fill(table, there.paths, origin, log)
    except (InvalidInputError, ConflictError):
        _remove_files(table, there.paths)
        if snapshot_id is not None and table.snapshots.find_tag(_own_tag(name)) is not None:
            delete_tag(table, _own_tag(name))
        end_work(table.io, there.paths)
        raise
    end_work(table.io, there.paths)
    return Branch(name=name, tag=origin.tag, snapshot_id=origin.snapshot_id)


def list_branches(table: Table) -> list[Branch]:
    """All branches but main, by name. Raises: CorruptDataError for one that cannot be read."""
    names = (name for name in branch_names(table) if name != table.main_branch and _exists(table, name))
    return [_branch(table, name) for name in sorted(names)]


def read_branch(table: Table, name: str) -> Branch:
    """One branch. Raises: InvalidInputError naming the branches there are."""
    if name == table.main_branch or not _exists(table, name):
        raise InvalidInputError(
            f"no such branch: table={table.name} branch={name} branches={[each.name for each in list_branches(table)]}"
        )
    return _branch(table, name)


def check_branch_name(name: str) -> None:
    """Refuse what cannot name a branch. Raises: InvalidInputError. Source: BR-41; Paimon BranchManager."""
    if name.strip().isdigit():
        raise InvalidInputError(f"a branch cannot be named by a number: branch={name!r} fix=add a word")
    if name == MAIN_BRANCH:
        raise InvalidInputError(f"this is what the main branch is called: branch={name!r} fix=choose another name")
    bad = sorted({char for char in name if char in "./\\$*?:" or not char.isprintable()})
    if not name.strip() or name != name.strip() or bad:
        raise InvalidInputError(
            f"not a name of a branch: branch={name!r} forbidden={bad} fix=use letters, digits, _ and -"
        )


# ---- making one


def _origin(table: Table, name: str, tag: str | None, snapshot_id: int | None, options: Mapping[str, str]) -> Origin:
    """Where a branch begins. A plain snapshot gets a tag first."""
    owns_tag = snapshot_id is not None
    if snapshot_id is not None:
        tag = _own_tag(name)
        hold_snapshot(table, tag, snapshot_id)
    snapshot = None if tag is None else read_tag(table, tag).snapshot
    schema = table.schema_of(table.schemas.ids()[-1] if snapshot is None else snapshot.schema_id)
    changed = _changed_options(schema, options)
    return Origin(
        tag=tag,
        snapshot_id=None if snapshot is None else snapshot.id,
        owns_tag=owns_tag,
        schema_id=schema.id,
        first_schema_id=schema.id + bool(changed),
        options=changed,
        created_ms=table.clock.now_ms(),
    )


def _own_tag(name: str) -> str:
    return f"{OWN_TAG_PREFIX}{name}"


def _changed_options(schema: TableSchema, options: Mapping[str, str]) -> Mapping[str, str]:
    given = canonical_options(options)
    for key, text in given.items():
        check_option(key, text)
        if is_log_option(key):
            raise InvalidInputError(f"a branch has a log of its own or none: option={key}={text} fix=remove it")
    return {key: text for key, text in given.items() if schema.options.get(key) != text}


def _fill(table: Table, there: TablePaths, origin: Origin, log: Mapping[str, str] | None) -> None:
    """Everything that a branch consists of: files that protect others first, what makes it readable last."""
    io, ours = table.io, table.paths
    write_origin(io, there, origin)
    if log is not None:
        write_branch_log(io, there, log)
    if origin.tag is not None and origin.snapshot_id is not None:
        with suppress(FileNotFoundError):
            body = _off_log(io.read_bytes(ours.tag(origin.tag)), None if log is None else table.options.bucket)
            io.replace(there.tag(origin.tag), body)
            io.replace(there.snapshot(origin.snapshot_id), _without_retention(body))
        _check_tag_still_there(table, origin)
    for schema_id in (each for each in table.schemas.ids() if each <= origin.schema_id):
        io.replace(there.schema(schema_id), io.read_bytes(ours.schema(schema_id)))
    if origin.first_schema_id > origin.schema_id:
        schema = table.schema_of(origin.schema_id)
        first = replace(
            schema,
            id=origin.first_schema_id,
            options={**schema.options, **origin.options},
            time_ms=origin.created_ms,
        )
        io.replace(there.schema(first.id), first.to_json().encode())


def _off_log(body: bytes, bucket_count: int | None) -> bytes:
    """A snapshot's file without main's log; the rest stays as it is.

    Args:
        body: of a snapshot or tag of main.
        bucket_count: of the branch's own log; None: it has none.
    """
    if bucket_count is None:
        return _without(body, "logOffsets")
    known = orjson.loads(off_main_log(Snapshot.from_json(body), bucket_count=bucket_count).to_json())
    return orjson.dumps({**orjson.loads(body), **known}, option=orjson.OPT_INDENT_2)


def _without_retention(body: bytes) -> bytes:
    return _without(body, "tagCreateTime", "tagTimeRetained")


def _without(body: bytes, *keys: str) -> bytes:
    known: dict[str, Any] = orjson.loads(body)
    if not any(key in known for key in keys):
        return body
    return orjson.dumps({key: each for key, each in known.items() if key not in keys}, option=orjson.OPT_INDENT_2)


def _check_tag_still_there(table: Table, origin: Origin) -> None:
    """Whether the branch had its copy of the tag before the tag, and what only it used, was deleted."""
    kept = table.snapshots.find_tag(origin.tag or "")
    if kept is None or kept.id != origin.snapshot_id:
        raise ConflictError(
            f"the tag was deleted while a branch was made from it: table={table.name} tag={origin.tag} "
            f"snapshot={origin.snapshot_id} fix=begin at another one"
        )


def _check_no_leftovers(table: Table, there: TablePaths, work: Work) -> None:
    """A directory of this name is empty, or was left by the same call."""
    found = [each for each in table.io.list_names(there.branch_root) if not each.startswith(".")]
    if found and read_work(table.io, there) != work:
        raise ConflictError(
            f"directory of a branch that is not there: table={table.name} branch={there.branch} found={found[:5]} "
            f"operation={read_work(table.io, there)} fix=wait for whoever is at work on it; else delete the branch"
        )


def _remove_files(table: Table, there: TablePaths) -> None:
    """The branch's own directory, but what says that an operation is at work."""
    for name in table.io.list_names(there.branch_root):
        if name != OPERATION_FILE:
            table.io.delete_tree(f"{there.branch_root}/{name}")


# ---- looking


def _exists(table: Table, name: str) -> bool:
    paths = table.paths.with_branch(name)
    return bool(SchemaStore(table.io, paths).ids()) and not is_hidden(table.io, paths)


def _branch(table: Table, name: str) -> Branch:
    there = on_branch(table, name)
    origin = read_origin(table.io, there.paths)
    if origin is not None:
        return Branch(name=name, tag=origin.tag, snapshot_id=origin.snapshot_id)
    tags = [(snapshot.id, tag) for tag in there.snapshots.tag_names() if (snapshot := there.snapshots.find_tag(tag))]
    first, tag = min(tags, default=(None, None))  # another engine's: it begins with the tag that it was made from
    return Branch(name=name, tag=tag, snapshot_id=first)


def _check_on_main(table: Table) -> None:
    if table.paths.branch != table.main_branch:
        raise InvalidInputError(
            f"branches are made from main: table={table.name} opened_on={table.paths.branch} fix=open the table on main"
        )
