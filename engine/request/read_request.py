"""Which state of a table a batch read asks for: places in its history, the tail of its log, freshness.

Options that the reader was given come before those of the table. Start options that a table has for its streams
(``scan.mode``, ``log.scan.timestamp-mills``) say nothing about batch reads, unless the reader itself gives them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from engine.request.commit_handle import CommitHandle
from engine.request.scan_time import scan_time_ms
from filestore.options.table_options import TableOptions
from filestore.refs.versions import Version, parse_version
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError

PLACES: Final = (
    "scan.snapshot-id",
    "scan.tag-name",
    "scan.version",
    "scan.savepoint-id",
    "scan.watermark",
    "scan.timestamp",
    "log.scan.timestamp-mills",
)
"""Options that choose a place in the table's history."""
_STREAMS_ONLY: Final = ("log.scan.timestamp-mills",)
_UNION: Final = "scan.log.union"
_OFFSETS: Final = "scan.log.offsets"
_STALENESS: Final = "scan.max-staleness"

# Paimon's scan.mode: the places of which one must be given; () is none.
_MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "full": (),
    "latest-full": (),
    "latest": (),
    "from-timestamp": ("scan.timestamp", "log.scan.timestamp-mills"),
    "from-snapshot": PLACES[:5],
    "from-snapshot-full": PLACES[:5],
}
_FIXED: Final = PLACES[:5]  # these are snapshots, with nothing of the log behind them


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What a user asked for; of version, word, time and offsets at most one."""

    version: Version | None = None
    word: str | None = None  # for a version, to be understood with the table
    time_ms: int | None = None
    between: tuple[str, str] | None = None  # the difference of two states, as words
    union: bool = False  # add the tail of the log
    log_offsets: Mapping[int, int] | None = None  # where the tail ends, next offsets by bucket
    max_staleness_ms: int | None = None  # of the newest state only
    at_least: CommitHandle | None = None
    at_least_timeout_s: float = 60.0

    @classmethod
    def parse(cls, options: TableOptions, given: Mapping[str, str]) -> "ReadRequest":
        """Understand the options of a batch read.

        Args:
            options: of the table with the reader's on top.
            given: the keys that the reader itself was given.

        Raises:
            InvalidInputError: a mode that batch reads do not have; options that are missing or contradict each other.
        """
        places = _places(options, given)
        _check_mode(str(options.scan_mode) if "scan.mode" in given else "default", places)
        offsets = options.scan_log_offsets
        if len(places) + (offsets is not None) > 1:
            told = " ".join(f"{key}={value}" for key, value in (*places.items(), (_OFFSETS, offsets)) if value)
            raise InvalidInputError(f"only one place of the table's history can be read: {told} fix=remove the others")
        handle = options.scan_at_least
        between = None if given.keys().isdisjoint(DIFF_KEYS) else wanted_diff(options)
        if between is not None and (places or offsets is not None):
            raise InvalidInputError(
                f"a difference is no state: {' '.join(key for key in DIFF_KEYS if key in given)} "
                f"{' '.join(places)} fix=remove one"
            )
        return cls(
            between=between,
            version=_version(places),
            word=places.get("scan.version"),
            time_ms=scan_time_ms(places.get("scan.timestamp"), places.get("log.scan.timestamp-mills")),
            union=_union(options, given, places),
            log_offsets=None if offsets is None else _parsed_offsets(offsets),
            max_staleness_ms=_staleness(options, given, places),
            at_least=None if handle is None else CommitHandle.parse(handle),
            at_least_timeout_s=options.scan_at_least_timeout_ms / 1000,
        )

    def version_in(self, store: TableStore) -> Version | None:
        """The version of the table that is asked for; None: the newest, or one that only the log knows."""
        if self.word is not None:
            return parse_version(store, self.word)
        return self.version if self.time_ms is None else Version(time_ms=self.time_ms)


def _places(options: TableOptions, given: Mapping[str, str]) -> dict[str, Any]:
    chosen = [key for key in PLACES if key in given]
    wanted = chosen or [key for key in PLACES if key not in _STREAMS_ONLY]
    found = {key: options[TableOptions.declared[key]] for key in wanted}
    return {key: value for key, value in found.items() if value is not None}


def _check_mode(mode: str, places: Mapping[str, Any]) -> None:
    if mode == "default":
        return
    if mode not in _MODES:
        raise InvalidInputError(
            f"batch reads have no such mode: scan.mode={mode} known={', '.join(['default', *_MODES])}"
        )
    fitting = _MODES[mode]
    others = [key for key in places if key not in fitting]
    if others:
        raise InvalidInputError(
            f"an option has no meaning in this mode: scan.mode={mode} {others[0]}={places[others[0]]} fix=remove one"
        )
    if fitting and not places:
        raise InvalidInputError(f"a place is missing: scan.mode={mode} fix=set {' or '.join(fitting)}")


def _union(options: TableOptions, given: Mapping[str, str], places: Mapping[str, Any]) -> bool:
    union = options.scan_log_union
    if options.scan_log_offsets is not None and not union:
        raise InvalidInputError(f"an end of the log without the log: option={_OFFSETS} fix=set {_UNION}=true")
    fixed = [key for key in _FIXED if key in places]
    if union and fixed:
        if _UNION in given:
            raise InvalidInputError(
                f"a snapshot is read as it is, without the log: {fixed[0]}={places[fixed[0]]} {_UNION}=true "
                f"fix=name a time by scan.timestamp, or the end of the log by {_OFFSETS}"
            )
        return False
    return union


def _staleness(options: TableOptions, given: Mapping[str, str], places: Mapping[str, Any]) -> int | None:
    limit: int | None = options.scan_max_staleness_ms
    if limit is None or not (places or options.scan_log_offsets is not None):
        return limit
    if _STALENESS in given:
        raise InvalidInputError(
            f"an older state cannot be fresh: {_STALENESS}={given[_STALENESS]} {next(iter(places), _OFFSETS)} "
            "fix=remove one"
        )
    return None


def _version(places: Mapping[str, Any]) -> Version | None:
    found = Version(
        snapshot_id=places.get("scan.snapshot-id"),
        tag=places.get("scan.tag-name"),
        savepoint_id=places.get("scan.savepoint-id"),
        watermark=places.get("scan.watermark"),
    )
    return None if found == Version() else found


def _parsed_offsets(text: str) -> dict[int, int]:
    try:
        offsets = {int(bucket): offset for bucket, offset in orjson.loads(text).items()}
    except (ValueError, AttributeError):
        offsets = {-1: -1}
    if any(type(offset) is not int or offset < 0 or bucket < 0 for bucket, offset in offsets.items()):
        raise InvalidInputError(
            f'not offsets by bucket: {_OFFSETS}={text} example=\'{{"0": 12, "1": 30}}\' (the next offset of each)'
        )
    return offsets


BETWEEN: Final = "incremental-between"
BETWEEN_TIMES: Final = "incremental-between-timestamp"
TO_TAG: Final = "incremental-to-auto-tag"
DIFF_KEYS: Final = (BETWEEN, BETWEEN_TIMES, TO_TAG, "incremental-between-scan-mode")


def wanted_diff(options: TableOptions) -> tuple[str, str] | None:
    """The two states whose difference options ask for, as words; the first is "" for the tag before the second.

    Raises: InvalidInputError: several are asked for, one is not two states, or another way of finding changes.
    """
    found = {key: options[TableOptions.declared[key]] for key in (BETWEEN, BETWEEN_TIMES, TO_TAG)}
    given = {key: value for key, value in found.items() if value is not None}
    if not given:
        return None
    if len(given) > 1:
        raise InvalidInputError(f"only one difference can be read: {given} fix=remove the others")
    mode = options.incremental_between_scan_mode
    if mode not in ("auto", "diff"):
        raise InvalidInputError(
            f"the difference is always the net one: incremental-between-scan-mode={mode} "
            "fix=set it to diff; what each commit changed is read by a stream"
        )
    [(key, text)] = given.items()
    if key == TO_TAG:
        return "", text
    words = [word.strip() for word in text.split(",")]
    if len(words) != 2 or not all(words):
        raise InvalidInputError(f"not two states: {key}={text} example='{key}' = '1,eod'")
    if key == BETWEEN_TIMES:
        words = [f"timestamp.{word}" for word in words]
    return words[0], words[1]
