"""Which state of a table a batch read gets: one function for each way of naming a state."""

from typing import TYPE_CHECKING

from engine.read.read_state import ReadState, Served, StateSource
from engine.request.read_request import AtOffsets, AtTime, AtVersion, AtWord, Between, Newest, ReadRequest
from filestore.refs.versions import Version, find_version, parse_version
from filestore.table import FileTable
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    from engine.request.commit_handle import CommitHandle
    from filestore.diff.table_diff import TableDiff


def find_state(table: FileTable, request: ReadRequest) -> ReadState:
    """The state that a request means, now.

    Args:
        table: with the reader's options in force.
        request: what the reader asks for.

    Raises:
        InvalidInputError: there is no such snapshot, tag or log; the log cannot be merged over the files; the table's
            own option names another branch.
        UnavailableError: a commit to wait for did not come, or the brokers do not answer.
        CorruptDataError: needed records have expired from the log, and ``log.on-offset-lost`` is fail.
    """
    table.store.check_branch()
    if request.at_least is not None:
        from engine.read.log_state import wait_for_commit

        wait_for_commit(table, request.at_least, timeout_s=request.at_least_timeout_s, in_log=request.reads_log)
        found = _found(table, request)
        if found.table.store.paths.branch == table.store.paths.branch:
            _check_reaches(found, request, request.at_least)
        return found
    return _found(table, request)


def _check_reaches(state: ReadState, request: ReadRequest, handle: "CommitHandle") -> None:
    """Refuse a state that was asked for by name and is older than the commit that the reader must see."""
    newest_id = state.snapshot.id if state.snapshot is not None else 0
    if isinstance(request.place, Newest) or newest_id >= handle.snapshot_id:
        return
    ends = request.place.next_offsets if isinstance(request.place, AtOffsets) else {}
    if ends and all(ends.get(bucket, 0) >= end for bucket, end in handle.log_offsets.items()):
        return
    raise InvalidInputError(
        f"the state that is asked for is older than the commit that must be visible: table={state.table.name} "
        f"snapshot={newest_id} scan.at-least={handle} fix='remove scan.at-least, or read the newest state'"
    )


def _found(table: FileTable, request: ReadRequest) -> ReadState:
    if isinstance(request.place, Between):
        return difference(table, request.place)
    if not (request.reads_log or request.max_staleness_ms is not None or isinstance(request.place, AtOffsets)):
        return find_snapshot(table, request)
    from engine.read.log_state import at_offsets, at_time_with_log, newest_fresh, newest_with_log

    match request.place:
        case AtOffsets(next_offsets):
            return at_offsets(table, next_offsets)
        case AtTime(time_ms) if request.reads_log:
            return at_time_with_log(table, time_ms)
        case Newest() if request.reads_log:
            return newest_with_log(table, fails_on_loss=request.fails_on_lost_log)
        case Newest() if request.max_staleness_ms is not None:
            return newest_fresh(table, request.max_staleness_ms, fails_on_loss=request.fails_on_lost_log)
        case _:
            return find_snapshot(table, request)


def find_snapshot(table: FileTable, request: ReadRequest) -> ReadState:
    """The snapshot that a request names, or the newest one, without the log. Raises: InvalidInputError."""
    match request.place:
        case AtTime(time_ms):
            return at_version(table, Version(time_ms=time_ms))
        case AtVersion(version):
            return at_version(table, version)
        case AtWord(word):
            return at_version(table, parse_version(table.store, word))
        case _:
            return ReadState.of_files(table, table.store.snapshots.latest(), "the newest snapshot was asked for")


def at_version(table: FileTable, version: Version) -> ReadState:
    """The snapshot of a version, seen with its own schema. Raises: InvalidInputError."""
    found = find_version(table.store, version)
    read = table.read_found(found)
    return ReadState.of_files(read.table, read.snapshot, found.how)


def difference(table: FileTable, place: Between) -> ReadState:
    """What differs between two states. Raises: InvalidInputError."""
    diff = open_difference(table, place)
    then = diff.before
    before = "the empty table" if then is None else f"snapshot {then.id} of {diff.shown.before.store.paths.branch}"
    served = Served(
        table=diff.table.name,
        source=StateSource.DIFFERENCE,
        snapshot_id=diff.after.id,
        as_of_ms=diff.after.time_ms,
        reason=" ".join([f"what differs from {before}", *map(str, diff.columns)]),
    )
    return ReadState(table=diff.table, snapshot=diff.after, diff=diff, served=served)


def open_difference(table: FileTable, place: Between) -> "TableDiff":
    """The two states. Raises: InvalidInputError when one does not exist."""
    from filestore.diff.table_diff import open_diff

    return open_diff(table, place.before or _tag_before(table, place.after), place.after)


def _tag_before(table: FileTable, name: str) -> str:
    """The automatic tag before one; ``0`` when it is the first."""
    from filestore.options.tag_schedule import TagSchedule
    from filestore.tag.neighbours import previous_tag

    schedule = TagSchedule.of(table.options)
    table.store.snapshots.tag(name)
    end = None if schedule is None else schedule.end_of(name)
    if schedule is None or end is None:
        return previous_tag(table.store, name) or "0"
    names_by_end = {
        each_end: each for each in table.store.snapshots.tag_names() if (each_end := schedule.end_of(each)) is not None
    }
    earlier = [each for each in names_by_end if each < end]
    return names_by_end[max(earlier)] if earlier else "0"
