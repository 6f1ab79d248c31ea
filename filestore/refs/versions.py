"""Versions: textual references to states of a table, and their resolution to snapshots.

``5`` and ``snapshot.5`` are snapshots, ``savepoint.3`` a savepoint, ``timestamp.2026-01-31T12:00:00`` and
``watermark.1767225600000`` points in time, ``latest`` the newest snapshot, and any other word a tag. A branch and
a dot as prefix (``dev.eod``, ``dev.5``) refer to another branch. A number is always a snapshot: tag names cannot be
numbers. Source: Paimon TimeTravelUtil.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from filestore.layout.branch_state import main_branch
from filestore.layout.paths import MAIN_BRANCH
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError
from lsm.nearest_names import names_text

LATEST: Final = "latest"
_NEVER: Final = -(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A requested state: at most one of the positions is set; without any it is the newest snapshot."""

    branch: str | None = None  # None: the branch of the opened table
    snapshot_id: int | None = None
    tag: str | None = None
    savepoint_id: int | None = None
    time_ms: int | None = None  # epoch milliseconds
    watermark: int | None = None  # epoch milliseconds

    def __post_init__(self) -> None:
        """Raises: InvalidInputError for a position that is no number, as programs may give it."""
        for kind, value in (("snapshot", self.snapshot_id), ("savepoint", self.savepoint_id)):
            if value is not None and type(value) is not int:
                raise InvalidInputError(f"a {kind} is named by its number: {kind}={value!r} fix=give an integer")

    def __str__(self) -> str:
        positions = {
            "snapshot": self.snapshot_id,
            "savepoint": self.savepoint_id,
            "timestamp": self.time_ms,
            "watermark": self.watermark,
        }
        text = next((f"{kind}.{value}" for kind, value in positions.items() if value is not None), self.tag or LATEST)
        return text if self.branch is None else f"{self.branch}.{text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVersion:
    """The snapshot that a version resolves to."""

    branch: str
    snapshot: Snapshot
    how: str  # explanation of the choice, for messages


def parse_version(store: TableStore, text: str) -> Version:
    """Parse the text of a version.

    A tag of the table's branch takes precedence over ``branch.version``, since both may contain dots.

    Raises: InvalidInputError naming the existing tags and branches.
    """
    from filestore.refs.live_references import branch_names, on_branch

    version = _plain(text)
    if version is not None and (version.tag is None or store.io.exists(store.paths.tag(version.tag))):
        return version
    if text == LATEST:
        return Version()
    branches = branch_names(store)
    for branch in branches:
        rest = text.removeprefix(f"{branch}.")
        if rest != text and rest:
            there = main_branch(store.io, store.paths.root) if branch == MAIN_BRANCH else branch
            return replace(parse_version(on_branch(store, there), rest), branch=branch)
    store.check_is_there()
    if text in branches:
        raise InvalidInputError(
            f"a branch alone is no version: table={store.name} version={text!r} "
            f"fix='write {text}.{LATEST} for its newest state, or {text} with a dot and a tag or snapshot id'"
        )
    tags = names_text("tags", text, store.snapshots.tag_names())
    raise InvalidInputError(
        f"no such version: table={store.name} version={text!r} {tags} {names_text('branches', text, branches)} "
        f"fix=give a snapshot id or a tag, optionally prefixed by a branch and a dot"
    )


def find_version(store: TableStore, version: Version) -> FoundVersion:
    """The snapshot of a version.

    Raises: InvalidInputError naming the existing ones when there is no such snapshot.
    """
    from filestore.refs.live_references import on_branch

    branch = store.paths.branch if version.branch is None else version.branch
    if version.branch == MAIN_BRANCH:  # whatever its name is by now
        branch = main_branch(store.io, store.paths.root)
    there = on_branch(store, branch)
    snapshot, how = _find(there, version)
    return FoundVersion(branch=branch, snapshot=snapshot, how=how)


def snapshot_of(store: TableStore, text: str) -> FoundVersion:
    """Parse and resolve the text of a version. Raises: InvalidInputError."""
    return find_version(store, parse_version(store, text))


def _plain(text: str) -> Version | None:
    """Parse a version without a branch; None when the text is not one."""
    if _is_number(text):
        return Version(snapshot_id=int(text))
    kind, _, value = text.partition(".")
    if kind == "snapshot" and _is_number(value):
        return Version(snapshot_id=int(value))
    if kind == "savepoint" and _is_number(value):
        return Version(savepoint_id=int(value))
    if kind == "timestamp" and value:
        return Version(time_ms=_time_ms(value))
    if kind == "watermark" and _is_number(value.removeprefix("-")):
        return Version(watermark=int(value))
    return Version(tag=text) if text and "/" not in text else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _time_ms(text: str) -> int:
    from filestore.types.text_values import LiteralMismatchError, parse_moment

    if _is_number(text):
        return int(text)
    try:
        return parse_moment(text.replace("T", " ", 1)) // 1_000_000
    except LiteralMismatchError as error:
        raise InvalidInputError(
            f"not a time: version=timestamp.{text} fix='write 2024-01-31 12:30:00 (UTC) or epoch milliseconds'"
        ) from error


def _find(store: TableStore, version: Version) -> tuple[Snapshot, str]:
    from filestore.refs.savepoint_files import read_savepoint

    if version.tag is not None:
        return store.snapshots.tag(version.tag), f"the tag {version.tag} was asked for"
    if version.savepoint_id is not None:
        return read_savepoint(store, version.savepoint_id).snapshot, "a savepoint was asked for"
    if version.time_ms is not None:
        found = as_of(store, version.time_ms)
    elif version.watermark is not None:
        found = at_watermark(store, version.watermark)
    elif version.snapshot_id is not None:
        snapshot = store.snapshots.find_committed(version.snapshot_id)
        found = None if snapshot is None else (snapshot, "a snapshot was asked for")
    else:
        snapshot = store.snapshots.latest()
        found = None if snapshot is None else (snapshot, "the newest snapshot was asked for")
    if found is None:
        branch = "" if store.paths.branch == MAIN_BRANCH else f"branch={store.paths.branch} "
        raise InvalidInputError(
            f"no such snapshot: table={store.name} {branch}version={version} "
            f"earliest={store.snapshots.earliest_id()} {_earliest_time(store) if version.time_ms is not None else ''}"
            f"latest={store.snapshots.latest_id()} "
            f"{names_text('tags', str(version), store.snapshots.tag_names())}"
        )
    return found


def _earliest_time(store: TableStore) -> str:
    earliest = store.snapshots.earliest_id()
    found = None if earliest is None else store.snapshots.find(earliest)
    if found is None:
        return ""
    return f"earliest_time='{datetime.fromtimestamp(found.time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}' "


def as_of(store: TableStore, time_ms: int) -> tuple[Snapshot, str] | None:
    """The last snapshot committed at or before a time; the closest tag or savepoint if all have expired.

    Returns:
        The snapshot and an explanation; None: none is that old.
    """
    found = store.snapshots.as_of(time_ms, now_ms=store.clock.now_ms())
    if found is not None:
        return found, "the last snapshot of that time"
    older = [each for each in _kept(store) if each[1].time_ms <= time_ms]
    if not older:
        return None
    (kind, name), snapshot = max(older, key=lambda each: each[1].id)
    return snapshot, f"the snapshots of that time have expired, this is the closest {kind} before it: {name}"


def at_watermark(store: TableStore, watermark: int) -> tuple[Snapshot, str] | None:
    """The first snapshot with complete rows up to an event time; a tag or savepoint if that one has expired.

    Args:
        store: the table; commits propagate the highest watermark, so it never decreases.
        watermark: epoch milliseconds.

    Returns:
        The snapshot and an explanation; None: no watermark is that late.
    """
    ids = store.snapshots.line().ids
    at = bisect_left(ids, watermark, key=lambda each: _watermark_ms(store, each))
    found = next((each for each in map(store.snapshots.find, ids[at:]) if each is not None), None)
    if found is None or (at == 0 and found.id > FIRST_SNAPSHOT_ID):  # the first one with it may have expired
        known = [each for each in _kept(store) if _watermark_of(each[1]) >= watermark]
        if known:
            (kind, name), snapshot = min(known, key=lambda each: each[1].id)
            if found is None or snapshot.id < found.id:
                return snapshot, f"earlier snapshots have expired, this is the first {kind} with that watermark: {name}"
    return None if found is None else (found, "the first snapshot with that watermark")


def before_watermark(store: TableStore, watermark: int) -> Snapshot | None:
    """The last snapshot with a watermark not later than this; None: there is none. See ``at_watermark``."""
    ids = store.snapshots.line().ids
    end = bisect_left(ids, watermark + 1, key=lambda each: _watermark_ms(store, each))
    return store.snapshots.find(ids[end - 1]) if end else None


def _watermark_ms(store: TableStore, snapshot_id: int) -> int:
    snapshot = store.snapshots.find(snapshot_id)
    return _NEVER if snapshot is None else _watermark_of(snapshot)


def _watermark_of(snapshot: Snapshot) -> int:
    return _NEVER if snapshot.watermark is None else snapshot.watermark


def _kept(store: TableStore) -> Iterator[tuple[tuple[str, str], Snapshot]]:
    """Savepoints and tags with kind and name; without the tags of savepoints."""
    from filestore.refs.savepoint_files import list_savepoints

    savepoints = list_savepoints(store)
    for savepoint in savepoints:
        yield ("savepoint", str(savepoint.id)), savepoint.snapshot
    for name, snapshot in store.snapshots.tagged():
        if not any(each.tag_name == name for each in savepoints):
            yield ("tag", name), snapshot
