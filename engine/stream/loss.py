"""The action of a stream when needed data was removed: ``log.on-offset-lost``.

``fail`` stops and reports the missing data. ``resnapshot`` continues without a gap. If the last delivered snapshot
still exists, it delivers the exact difference between that and the newest one; else it delivers all rows of the newest
snapshot, and does not retract rows that were deleted in between. ``earliest`` continues with the remaining data, and
so skips rows.
"""

import logging
from dataclasses import replace

from engine.log.retention import OffsetLostError
from engine.stream.history import TableHistory
from engine.stream.log import StreamLog
from engine.stream.options import OnLoss, StreamOptions
from engine.stream.position.plan import ReadTarget, counted
from engine.stream.position.position import Phase, Position
from filestore.snapshot.lost_files import SnapshotExpiredError
from lsm.errors import CorruptDataError

logger = logging.getLogger("fluvial.stream")


def after_loss(
    here: Position,
    loss: OffsetLostError | SnapshotExpiredError,
    options: StreamOptions,
    history: TableHistory,
    log: StreamLog | None,
    target: ReadTarget,
) -> Position:
    """The position from which the stream continues; nothing is delivered on the way there.

    Raises:
        CorruptDataError: the stream stops. Names what is missing, the snapshot, and the possible fixes.
    """
    name = options.table.name
    facts = f"{loss} table={name} delivered_snapshot={here.snapshot_id} latest_snapshot={target.snapshot_id}"
    match options.on_loss:
        case OnLoss.FAIL:
            raise CorruptDataError(
                f"{facts} fix=set log.on-offset-lost=resnapshot (the newest snapshot, or the difference to it) or "
                "earliest (the remaining data, with a gap), or start with a new checkpoint; keep log and snapshots "
                "longer than a stream's longest pause"
            ) from loss
        case OnLoss.RESNAPSHOT:
            _check_whole(facts, options, history, log, target)
            found = _resnapshot(here, history, target)
        case OnLoss.EARLIEST:
            found = _earliest(here, history, log, options, target)
    logger.warning("a stream continues after a loss: policy=%s %s position=%s", options.on_loss.value, facts, found)
    return replace(found, is_jump=True)


def _check_whole(
    facts: str, options: StreamOptions, history: TableHistory, log: StreamLog | None, target: ReadTarget
) -> None:
    """Refuse eventual mode: records that were removed before their commit are in no snapshot, so none replaces them."""
    if log is None or not history.is_eventual:
        return
    then = history.facts(target.snapshot_id).offsets if target.snapshot_id else {}
    try:
        log.check_kept(options.table.store, then, log.earliest())
    except OffsetLostError as error:
        raise CorruptDataError(
            f"{facts} cause=the newest snapshot may not have the lost records either "
            "fix=restart the query once their writer has committed; keep the log longer than a commit takes"
        ) from error


def _resnapshot(here: Position, history: TableHistory, target: ReadTarget) -> Position:
    newest_id = target.snapshot_id
    offsets = history.facts(newest_id).offsets
    if _is_exactly_at_snapshot(here, history) and here.snapshot_id < newest_id:
        return counted(here.before_splits(Phase.FILES, here.snapshot_id, offsets, next_id=newest_id), history)
    return at_whole_snapshot(here, newest_id, history)


def at_whole_snapshot(here: Position, snapshot_id: int, history: TableHistory) -> Position:
    """Before the rows of a whole snapshot; after it when the snapshot has none."""
    offsets = history.facts(snapshot_id).offsets
    if history.reads_by_difference:
        return counted(here.before_splits(Phase.FILES, 0, offsets, next_id=snapshot_id), history)
    moment_ms = history.moment_of(snapshot_id)
    found = counted(here.before_splits(Phase.SNAPSHOT, snapshot_id, offsets, moment_ms=moment_ms), history)
    return found if found.of else here.behind(snapshot_id, offsets)


def _is_exactly_at_snapshot(here: Position, history: TableHistory) -> bool:
    """Whether exactly an existing snapshot was delivered."""
    if here.phase is not Phase.LOG or not history.exists(here.snapshot_id):
        return False
    then = history.facts(here.snapshot_id).offsets
    return here.offsets.is_at(then)


def _earliest(
    here: Position, history: TableHistory, log: StreamLog | None, options: StreamOptions, target: ReadTarget
) -> Position:
    earliest_id = options.table.store.snapshots.earliest_id() or target.snapshot_id
    snapshot_id = max(here.snapshot_id, earliest_id - 1)
    offsets = here.offsets.joined({} if log is None else log.earliest())
    if here.phase is Phase.LOG and snapshot_id == here.snapshot_id and offsets == here.offsets:
        # not even the changes of the oldest snapshot can be emitted: they are part of the gap
        snapshot_id, offsets = earliest_id, offsets.joined(history.facts(earliest_id).offsets)
    return here.behind(snapshot_id, offsets)
