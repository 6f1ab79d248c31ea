"""The contents of a new branch: its origin, and the files that are copied from main.

Source: Paimon BranchManager.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson

from filestore.layout.branch_log import is_log_option, write_branch_log
from filestore.layout.branch_state import BranchOrigin, creation_id, write_origin
from filestore.layout.paths import TablePaths
from filestore.maintenance.rollback_run import is_tag_leaving
from filestore.options.flink_log import without_log_system
from filestore.options.table_options import TableOptions, canonical_options, check_option
from filestore.refs.pending_tags import is_leaving
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.change_tracking import off_main_log
from filestore.snapshot.left_logs import leaving_log
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from filestore.tag.tags import hold_snapshot, read_tag
from lsm.errors import ConflictError, InvalidInputError


def create_origin(
    store: TableStore, name: str, tag: str | None, snapshot_id: int | None, options: Mapping[str, str]
) -> BranchOrigin:
    """The origin of a new branch. Creates a tag first if it starts at a plain snapshot."""
    owns_tag = snapshot_id is not None
    if snapshot_id is not None:
        tag = own_tag(name)
        hold_snapshot(store, tag, snapshot_id)
    snapshot = None if tag is None else read_tag(store, tag).snapshot
    schema = store.schema_of(store.schemas.ids()[-1] if snapshot is None else snapshot.schema_id)
    changed = _changed_options(schema, options)
    is_of_main = store.paths.branch == store.main_branch
    return BranchOrigin(
        parent=None if is_of_main else store.paths.branch,
        parent_id="" if is_of_main else creation_id(store.io, store.paths),
        tag=tag,
        snapshot_id=None if snapshot is None else snapshot.id,
        owns_tag=owns_tag,
        schema_id=schema.id,
        first_schema_id=schema.id + bool(changed),
        options=changed,
        created_ms=store.clock.now_ms(),
        id=store.names.uuid(),
    )


def own_tag(name: str) -> str:
    """Name of the tag created for a branch that starts at a plain snapshot."""
    return f"branch-{name}"


def _changed_options(schema: TableSchema, options: Mapping[str, str]) -> Mapping[str, str]:
    given = canonical_options(options)
    for key, text in given.items():
        check_option(key, text)
        if is_log_option(key):
            raise InvalidInputError(f"a branch has its own log or none: option={key}={text} fix=remove it")
    return {key: text for key, text in given.items() if schema.options.get(key) != text}


def fill_branch(store: TableStore, there: TablePaths, origin: BranchOrigin, log: Mapping[str, str] | None) -> None:
    """Write all files of a branch: those that protect others first, those that make it readable last."""
    io, main_paths = store.io, store.paths
    write_origin(io, there, origin)
    if log is not None:
        write_branch_log(io, there, log)
    if origin.tag is not None and origin.snapshot_id is not None:
        with suppress(FileNotFoundError):
            body = without_main_log(
                io.read_bytes(main_paths.tag(origin.tag)), store.options, None if log is None else store.options.bucket
            )
            io.replace(there.tag(origin.tag), body)
            io.replace(there.snapshot(origin.snapshot_id), _without_retention(body))
        _check_tag_still_exists(store, origin)
    for schema_id in (each for each in store.schemas.ids() if each <= origin.schema_id):
        io.replace(there.schema(schema_id), _off_log_of_main(io.read_bytes(main_paths.schema(schema_id))))
    if origin.first_schema_id > origin.schema_id:
        schema = store.schema_of(origin.schema_id)
        first = replace(
            schema, id=origin.first_schema_id, options={**schema.options, **origin.options}, time_ms=origin.created_ms
        )
        io.replace(there.schema(first.id), first.to_json(on_branch=True).encode())


def _off_log_of_main(body: bytes) -> bytes:
    """A schema file of main, changed for a branch: Flink must not continue with main's log."""
    schema = orjson.loads(body)
    options = schema.get("options") or {}
    bare = without_log_system(options)
    return body if bare == options else orjson.dumps({**schema, "options": bare}, option=orjson.OPT_INDENT_2)


def without_main_log(body: bytes, main: TableOptions, bucket_count: int | None) -> bytes:
    """A snapshot file without the offsets of main's log, which a property keeps; otherwise unchanged.

    Args:
        body: contents of a snapshot or tag file of main.
        main: the options of main, which name its log.
        bucket_count: bucket count of the branch's own log; None: it has none.
    """
    snapshot = Snapshot.from_json(body)
    left = leaving_log(snapshot, main.log_topic_id if main.log_system != "none" else None, main.log_generation)
    if bucket_count is None:
        bare = _without(body, "logOffsets")
        kept = {"properties": {**snapshot.properties, **left}}
        return orjson.dumps({**orjson.loads(bare), **kept}, option=orjson.OPT_INDENT_2) if left else bare
    known: dict[str, Any] = orjson.loads(off_main_log(snapshot, bucket_count=bucket_count).to_json())
    known["properties"] = {**known.get("properties", {}), **left}
    return orjson.dumps({**orjson.loads(body), **known}, option=orjson.OPT_INDENT_2)


def _without_retention(body: bytes) -> bytes:
    return _without(body, "tagCreateTime", "tagTimeRetained")


def _without(body: bytes, *keys: str) -> bytes:
    known: dict[str, Any] = orjson.loads(body)
    if not any(key in known for key in keys):
        return body
    return orjson.dumps({key: each for key, each in known.items() if key not in keys}, option=orjson.OPT_INDENT_2)


def _check_tag_still_exists(store: TableStore, origin: BranchOrigin) -> None:
    """Check that the tag was copied before it, and the files that only it used, were deleted."""
    name = origin.tag or ""
    kept = store.snapshots.find_tag(name)
    if kept is None or kept.id != origin.snapshot_id or is_tag_leaving(store, name) or is_leaving(store, name):
        raise ConflictError(
            f"the tag was deleted while a branch was created from it: table={store.name} tag={origin.tag} "
            f"snapshot={origin.snapshot_id} fix=start at another one"
        )
