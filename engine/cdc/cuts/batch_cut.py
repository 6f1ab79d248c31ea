"""The cut of one batch: what earlier batches held back comes first, then it is decided where this one ends."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from engine.cdc.records.scan import RangeScan
from engine.cdc.rules.transactions import CutDecision, awaited_tables, decide_cut
from engine.cdc.settings import CdcSettings
from engine.cdc.state import StateFiles
from engine.kafka.offsets import OffsetRange

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
