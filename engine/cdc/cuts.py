"""Batches with ``commit.cut=transaction`` end behind whole transactions, and leave a tag over all tables there.

What earlier batches held back comes first. The tag is ``cdc-<lsn>``, by ``engine.cuts``.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from engine.cdc.records.scan import RangeScan
from engine.cdc.rules.transactions import CutDecision, awaited_tables, decide_cut
from engine.cdc.settings import CdcSettings
from engine.cdc.state import StateFiles
from engine.cuts.tags import CutRecord, read_cut, tag_cut
from engine.kafka.offsets import OffsetRange
from filestore.table_store import TableStore

logger = logging.getLogger("fluvial.cdc")
_MOST_NAMED: Final = 10

ScanAll = Callable[[Iterable[OffsetRange]], list[RangeScan]]


def with_held(ranges: Sequence[OffsetRange], before: CutDecision | None) -> list[OffsetRange]:
    """The ranges of a batch from where the last one really ended, also of partitions without new records."""
    again = {each.topic for each in ranges if each.begins_again}
    held = {} if before is None else {each: end for each, end in before.ends.items() if each[0] not in again}
    found = [
        replace(each, start_offset=min(each.start_offset, held.pop((each.topic, each.partition), each.start_offset)))
        for each in ranges
    ]
    for (topic, partition), start in held.items():
        assert before is not None
        end = before.until[topic, partition]
        found.append(OffsetRange(topic=topic, partition=partition, start_offset=start, end_offset=end))
    return found


def cut_scans(
    settings: CdcSettings, state: StateFiles, scans: list[RangeScan], batch_id: int, *, scan_all: ScanAll, now_ms: int
) -> tuple[list[RangeScan], CutDecision]:
    """The ranges up to where the batch ends; partitions that end early are looked at again.

    Args:
        settings: of the job.
        state: where decisions are kept.
        scans: of the batch's ranges, with what was held back.
        batch_id: of the batch.
        scan_all: looks at ranges.
        now_ms: epoch milliseconds.

    Raises:
        FluvialError: see ``scan_range``.
    """
    known = state.cuts()
    decision = known.get(batch_id)
    if decision is None:
        decision = _decided(settings, scans, batch_id, known.get(batch_id - 1), now_ms)
        state.put_cut(decision)
    whole = [each for each in scans if _position(each) not in decision.ends]
    early = [
        replace(each.source, end_offset=decision.ends[_position(each)])
        for each in scans
        if _position(each) in decision.ends and decision.ends[_position(each)] > each.source.start_offset
    ]
    return [*whole, *scan_all(early)], decision


def tag_of_batch(decision: CutDecision, scans: Sequence[RangeScan]) -> str | None:
    """The name of a batch's tag; None: it splits a transaction, or a connector still takes its first look."""
    found = [each for scan in scans for each in scan.tables.values()]
    if not decision.is_clean or decision.newest is None or any(each.has_snapshot for each in found):
        return None
    lsn = max((each.newest_lsn for each in found if each.newest_lsn is not None), default=None)
    return f"cdc-{decision.batch_id if lsn is None else lsn}"


def tag_batch_cut(
    stores: Mapping[str, TableStore], tag: str, *, commit_user: str, batch_id: int, retained_ms: int | None
) -> bool:
    """Tag the newest snapshot of every table; a replay completes what is missing.

    Args:
        stores: the tables by name.
        tag: its name.
        commit_user: of the query.
        batch_id: the batch that all tables have.
        retained_ms: how long the tags live; None: until they are deleted.

    Returns:
        False when a table has no snapshot yet: then there is no tag.

    Raises:
        FluvialError: see ``tag_cut``.
    """
    found = {name: read_cut(store, tag) for name, store in stores.items()}
    record = next((each for each in found.values() if each is not None), None)
    if record is None:
        newest = {name: store.snapshots.latest_id() for name, store in stores.items()}
        tables = {name: snapshot_id for name, snapshot_id in newest.items() if snapshot_id is not None}
        if not tables or len(tables) < len(newest):
            return False
        some = next(iter(stores.values()))
        record = CutRecord(id=some.names.uuid(), tables=tables, batches={commit_user: batch_id})
    missing = {name: store for name, store in stores.items() if name in record.tables and found[name] is None}
    tag_cut(missing, tag, record, retained_ms=retained_ms)
    logger.info("all tables are tagged after a transaction of the source: tag=%s batch=%d", tag, batch_id)
    return True


def _decided(
    settings: CdcSettings, scans: Sequence[RangeScan], batch_id: int, before: CutDecision | None, now_ms: int
) -> CutDecision:
    ended = [each for scan in scans for each in scan.ended]
    topic = settings.transactions or (ended[0].position[0] if ended else "")
    seen = frozenset(run.table for scan in scans for run in scan.runs)
    decision = decide_cut(
        batch_id,
        {_position(each): each.runs for each in scans if each.runs},
        ended,
        range_ends={_position(each): each.source.end_offset for each in scans},
        is_awaited=awaited_tables(settings.pattern, topic, seen),
        before=before,
        now_ms=now_ms,
        max_wait_ms=settings.max_wait_s * 1000,
    )
    new = sorted(decision.loose.keys() - (before.loose.keys() if before is not None else ()))
    if new:
        logger.warning(
            "transactions of the source are incomplete for too long, so they are taken in parts, and no cut gets a tag "
            "until they are whole: job=%s batch=%d transactions=%s max-wait=%gs "
            "fix='set provide.transaction.metadata=true, and let the pattern match all their tables'",
            settings.name, batch_id, ",".join(new[:_MOST_NAMED]), settings.max_wait_s,
        )  # fmt: skip
    return decision


def _position(scan: RangeScan) -> tuple[str, int]:
    return scan.source.topic, scan.source.partition
