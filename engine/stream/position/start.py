"""The start of a new stream: what the options request, and the resulting position in a table's history.

``log.scan`` is FLIP-188's option (full, latest, from-timestamp), ``scan.mode`` Paimon's; a snapshot id, a tag or a time
alone is enough. Source: Paimon ``CoreOptions.StartupMode``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from engine.request.read_keys import DIFF_KEYS, PLACES
from engine.request.scan_time import scan_time_ms
from engine.stream.position.plan import SnapshotFacts
from filestore.options.option import Option, T
from filestore.options.table_options import TableOptions
from logstore.offsets import LogOffsets
from lsm.errors import InvalidInputError


class StartKind(Enum):
    """The data that a stream delivers first."""

    FULL = "full"  # the rows of a snapshot, then later changes
    CHANGES = "changes"  # only changes after a snapshot
    LATEST = "latest"  # only changes from now on
    TIME = "time"  # changes from a time on
    BEHIND = "behind"  # only changes after a snapshot that was seen elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The requested start."""

    kind: StartKind
    snapshot_id: int | None = None  # FULL: None is the newest; CHANGES: the first wanted; BEHIND: the last unwanted
    tag: str | None = None  # FULL: instead of a snapshot id
    time_ms: int | None = None  # TIME


_KEYS: Final = (
    "scan.mode",
    "log.scan",
    "scan.snapshot-id",
    "scan.tag-name",
    "log.scan.timestamp-mills",
    "scan.timestamp",
)
_OF_BATCH_READS: Final = tuple(key for key in (*PLACES, *DIFF_KEYS[:3]) if key not in _KEYS)
_MODES: Final[Mapping[str, str]] = {
    "latest-full": "full",
    "full": "full",
    "latest": "latest",
    "from-timestamp": "from-timestamp",
    "from-snapshot": "from-snapshot",
    "from-snapshot-full": "from-snapshot-full",
}


def parse_start(options: TableOptions, given: Mapping[str, str]) -> Start:
    """Parse the start options of a stream.

    Args:
        options: the table's options overridden by the reader's.
        given: the reader's own options: if they define a start, the table's only complete it.

    Raises:
        InvalidInputError: a mode that streams do not support, or a missing or superfluous companion option; the table
            has a state of batch reads.
    """
    chosen = _StartOptions(options, given)
    others = [] if chosen.by_reader else [key for key in _OF_BATCH_READS if options.texts_by_key().get(key) is not None]
    if others:
        raise InvalidInputError(
            f"the table's own option chooses a state that streams do not begin with: option={others[0]} "
            f"value={options.texts_by_key()[others[0]]} fix='give the stream a start as log.scan=full, or reset it'"
        )
    snapshot_id, tag, time_ms = (
        chosen.of(TableOptions.scan_snapshot_id),
        chosen.of(TableOptions.scan_tag_name),
        _time_ms(chosen),
    )
    mode = _mode(chosen, snapshot_id=snapshot_id, tag=tag, time_ms=time_ms)
    fact = f"start={mode}"
    if mode == "from-timestamp":
        time_ms = time_ms if time_ms is not None else _time_ms(_StartOptions(options, {}))
        if time_ms is None:
            raise InvalidInputError(f"a time is missing: {fact} fix=set log.scan.timestamp-mills or scan.timestamp")
        _refuse_place(fact, snapshot_id, tag)
        return Start(kind=StartKind.TIME, time_ms=time_ms)
    if time_ms is not None:
        raise InvalidInputError(f"a time has no meaning here: {fact} fix=set log.scan=from-timestamp, or remove it")
    if mode == "latest":
        _refuse_place(fact, snapshot_id, tag)
        return Start(kind=StartKind.LATEST)
    if mode in ("from-snapshot", "from-snapshot-full"):
        snapshot_id = snapshot_id if snapshot_id is not None else options.scan_snapshot_id
        if snapshot_id is None:
            raise InvalidInputError(f"a snapshot id is missing: {fact} fix=set scan.snapshot-id")
    if snapshot_id is not None and tag is not None:
        raise InvalidInputError(
            f"the start is given twice: scan.snapshot-id={snapshot_id} scan.tag-name={tag} fix=remove one"
        )
    if mode == "from-snapshot":
        return Start(kind=StartKind.CHANGES, snapshot_id=snapshot_id)
    return Start(kind=StartKind.FULL, snapshot_id=snapshot_id, tag=tag)


def offsets_of_time(
    facts: SnapshotFacts | None,
    offsets_then: Mapping[int, int],
    offsets_at_latest: Mapping[int, int],
    earliest: Mapping[int, int],
) -> LogOffsets:
    """The log start for a time: not before the snapshot of that time, and not after the newest one.

    Args:
        facts: the newest snapshot before the time; None when there is none.
        offsets_then: by bucket, first record at the time or later.
        offsets_at_latest: offsets of the newest snapshot.
        earliest: by bucket, first available record. Where it equals ``offsets_then``, records of the time may have
            expired: the result is then the snapshot's offset, so that the loss is detected.
    """
    base = facts.offsets if facts is not None else LogOffsets()
    always_first = {bucket: offset for bucket, offset in offsets_then.items() if offset > earliest.get(bucket, 0)}
    return LogOffsets(
        {
            bucket: max(base.get(bucket, 0), min(always_first.get(bucket, 0), offsets_at_latest.get(bucket, 0)))
            for bucket in offsets_then
        }
    )


class _StartOptions:
    """The effective start options: the reader's if they define a start, else the table's."""

    def __init__(self, options: TableOptions, given: Mapping[str, str]) -> None:
        self._options = options
        self._keys = frozenset(_KEYS) & given.keys() or frozenset(_KEYS)
        self.by_reader = frozenset(_KEYS) & given.keys()

    def of(self, option: Option[T]) -> T | None:
        """The option's value; None when it is not effective."""
        return self._options[option] if option.key in self._keys else None


def _refuse_place(fact: str, snapshot_id: int | None, tag: str | None) -> None:
    if snapshot_id is not None or tag is not None:
        raise InvalidInputError(f"a snapshot or tag has no meaning here: {fact} fix=set log.scan=full")


def _mode(chosen: _StartOptions, *, snapshot_id: int | None, tag: str | None, time_ms: int | None) -> str:
    asked, log_scan = chosen.of(TableOptions.scan_mode) or "default", chosen.of(TableOptions.log_scan)
    if asked != "default" and "log.scan" in chosen.by_reader:
        raise InvalidInputError(
            f"the start is given twice: scan.mode={asked} log.scan={log_scan} fix=remove one of them"
        )
    if asked != "default":
        if asked not in _MODES:
            raise InvalidInputError(
                f"streams have no such start: scan.mode={asked} known={', '.join(['default', *_MODES])}"
            )
        return _MODES[asked]
    if "log.scan" not in chosen.by_reader:
        if time_ms is not None:
            return "from-timestamp"
        if snapshot_id is not None or tag is not None:
            return "full" if tag is not None else "from-snapshot-full"
    return str(log_scan or "full")


def _time_ms(chosen: _StartOptions) -> int | None:
    text, number = chosen.of(TableOptions.scan_timestamp), chosen.of(TableOptions.log_scan_timestamp_ms)
    if text is None or number is None:
        return number if text is None else scan_time_ms(text)
    raise InvalidInputError(
        f"the time is given twice: scan.timestamp={text} log.scan.timestamp-mills={number} fix=remove one"
    )
