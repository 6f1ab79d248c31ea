"""The options of a batch read as one value: which state, how fresh, what to wait for, which columns are added.

Options that the reader was given come before those of the table: a state that it names takes the place of the table's.
``log.scan`` says where streams start, with its time; without it that time is one of batch reads, too, as in Paimon.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from engine.request.option_check import check_belongs, unknown_option
from engine.request.read_keys import (
    BATCH_KEYS,
    BETWEEN,
    BETWEEN_TIMES,
    DIFF_KEYS,
    OFFSETS,
    PLACES,
    SNAPSHOT_PLACES,
    TIMESTAMP,
    TO_TAG,
)
from engine.types.row_changes import MetadataColumn
from filestore.options.not_built import check_closed
from filestore.options.option import At
from filestore.options.references import with_secrets
from filestore.options.table_options import TableOptions, canonical_options
from filestore.refs.versions import Version
from filestore.table import FileTable
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    from engine.request.commit_handle import CommitHandle

_UNION: Final = "scan.log.union"
_STALENESS: Final = "scan.max-staleness"
_METADATA: Final = "read.metadata-columns"

# Paimon's scan.mode: the places of which one must be given; () is none.
_MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "full": (),
    "latest-full": (),
    "latest": (),
    "from-timestamp": ("scan.timestamp", "log.scan.timestamp-mills"),
    "from-snapshot": SNAPSHOT_PLACES,
    "from-snapshot-full": SNAPSHOT_PLACES,
}


def is_mode(word: str) -> bool:
    """Whether ``scan.mode`` of a batch read may have a value."""
    return word == "default" or word in _MODES


_UNKNOWN_IN_FILES: Final = {
    MetadataColumn.LOG_OFFSET: "rows of files have no offset",
    MetadataColumn.LOG_TIMESTAMP: "rows of files have no time of their own",
}


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest state."""


@dataclass(frozen=True, slots=True)
class AtVersion:
    """A snapshot by its number, tag, savepoint or watermark."""

    version: Version


@dataclass(frozen=True, slots=True)
class AtWord:
    """A version as one word, which means something only together with the table's tags and branches."""

    word: str


@dataclass(frozen=True, slots=True)
class AtTime:
    """The state of a time."""

    time_ms: int  # epoch milliseconds


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """What the log held before these offsets."""

    next_offsets: Mapping[int, int]  # by bucket


@dataclass(frozen=True, slots=True)
class Between:
    """The difference of two states, each as one word."""

    before: str  # "": the tag before the other one
    after: str


Place = Newest | AtVersion | AtWord | AtTime | AtOffsets | Between
"""The ways of naming a state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What a batch read was asked for."""

    place: Place = field(default_factory=Newest)
    place_of_table: str | None = None  # the option of the table that says so; None: it is the newest, or the reader's
    reads_log: bool = False  # scan.log.union: the tail of the log is merged over the files
    max_staleness_ms: int | None = None  # of the newest state only; None: no limit
    fails_on_lost_log: bool = True  # log.on-offset-lost; False: the files alone, when records of the log are gone
    at_least: "CommitHandle | None" = None  # a commit that must be visible first
    at_least_timeout_s: float = 60.0
    read_branches: Mapping[str, str] = field(default_factory=dict)  # by option: others of which partitions are taken
    has_row_kinds: bool = False  # read.changelog
    metadata_columns: tuple[MetadataColumn, ...] = ()

    @classmethod
    def parse(cls, options: TableOptions, given: Mapping[str, str]) -> "ReadRequest":
        """Understand the options of a batch read.

        Args:
            options: of the table.
            given: those that the reader itself was given.

        Raises:
            InvalidInputError: an option or a mode that batch reads do not have, a value that cannot be read, options
                that are missing or contradict each other.
        """
        check_belongs(given, BATCH_KEYS, "read option")
        check_closed(options, At.BATCH_READ)
        is_stored = given.keys().isdisjoint({"scan.mode", OFFSETS, *PLACES, *DIFF_KEYS})
        if is_stored:
            _check_stored(options)
        options = options.with_texts(given)
        places = _places(options, given)
        _check_mode(str(options.scan_mode) if is_stored or "scan.mode" in given else "default", places)
        place = _place(options, given, places)
        return cls(
            place=place,
            place_of_table=next((key for key in places if key not in given), None),
            reads_log=_reads_log(options, given, places),
            max_staleness_ms=_staleness_ms(options, given, places),
            fails_on_lost_log=options.log_on_offset_lost == "fail",
            at_least=_handle(options.scan_at_least),
            at_least_timeout_s=options.scan_at_least_timeout_ms / 1000,
            read_branches=options.read_branches,
            has_row_kinds=options.read_changelog,
            metadata_columns=_batch_metadata(options),
        )


def _handle(text: str | None) -> "CommitHandle | None":
    if text is None:
        return None
    from engine.request.commit_handle import CommitHandle

    return CommitHandle.parse(text)


def open_for_read(table: FileTable, given: Mapping[str, str]) -> tuple[FileTable, ReadRequest]:
    """The table on the branch that options name and with them in force, and what they ask for.

    Args:
        table: with its own options.
        given: of this reader, on top of them; see ``BATCH_KEYS``.

    Raises:
        InvalidInputError: an unknown option, one that cannot be read, or options that contradict each other.
    """
    from engine.request.branch_choice import on_named_branch

    if given:
        given = with_secrets(canonical_options(given))
        table = on_named_branch(table, given)
    request = ReadRequest.parse(table.options, given)
    return table.with_options(given) if given else table, request


def metadata_columns(options: TableOptions) -> tuple[MetadataColumn, ...]:
    """The columns of ``read.metadata-columns``. Raises: InvalidInputError for one that does not exist."""
    names: tuple[str, ...] = options.read_metadata_columns
    for name in names:
        if name not in {*MetadataColumn}:
            raise unknown_option(name, [each.value for each in MetadataColumn], f"column of {_METADATA}")
    return tuple(map(MetadataColumn, names))


def wanted_difference(options: TableOptions) -> Between | None:
    """The two states whose difference options ask for; None: for none.

    Raises: InvalidInputError: several are asked for, one is not two states, or another way of finding changes.
    """
    found = {key: options[TableOptions.declared[key]] for key in (BETWEEN, BETWEEN_TIMES, TO_TAG)}
    asked = {key: value for key, value in found.items() if value is not None}
    if not asked:
        return None
    if len(asked) > 1:
        raise InvalidInputError(f"only one difference can be read: {asked} fix=remove the others")
    assert options.incremental_between_scan_mode in ("auto", "diff"), "others are refused where the text is read"
    [(key, text)] = asked.items()
    if key == TO_TAG:
        return Between("", text)
    words = [word.strip() for word in text.split(",")]
    if len(words) != 2 or not all(words):
        raise InvalidInputError(f"not two states: {key}={text} example='{key}' = '1,eod'")
    before, after = (f"timestamp.{word}" for word in words) if key == BETWEEN_TIMES else words
    return Between(before, after)


def _check_stored(options: TableOptions) -> None:
    """Refuse a state that a table has for batch reads and that these do not have. Raises: InvalidInputError."""
    wanted = {key: options[TableOptions.declared[key]] for key in (BETWEEN, BETWEEN_TIMES, TO_TAG)}
    wanted = {key: value for key, value in wanted.items() if value is not None}
    if options.scan_mode not in ("default", *_MODES):
        wanted["scan.mode"] = options.scan_mode
    for key, value in wanted.items():
        raise InvalidInputError(
            f"the table's own option chooses rows that a read has to ask for itself: option={key} value={value} "
            "fix='give the read a state, such as scan.mode=latest, or reset it'"
        )


def _places(options: TableOptions, given: Mapping[str, str]) -> dict[str, Any]:
    """The values of the places that count: the reader's, else the table's, of which a given mode takes its own."""
    mode = options.scan_mode if "scan.mode" in given else "default"
    wanted = [key for key in PLACES if key in given]
    if not wanted and given.keys().isdisjoint({OFFSETS, *DIFF_KEYS}):
        of_streams = options.scan_mode == "default" and options.gives(TableOptions.log_scan)
        starts_streams = of_streams or options.scan_mode not in ("default", "from-timestamp")
        wanted = [key for key in PLACES if mode == "default" or key in _MODES.get(mode, ())]
        wanted = [key for key in wanted if key != TIMESTAMP or not starts_streams]
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


def _place(options: TableOptions, given: Mapping[str, str], places: Mapping[str, Any]) -> Place:
    from engine.request.scan_time import scan_time_ms

    offsets = options.scan_log_offsets
    if len(places) + (offsets is not None) > 1:
        found = " ".join(f"{key}={value}" for key, value in (*places.items(), (OFFSETS, offsets)) if value)
        raise InvalidInputError(f"only one place of the table's history can be read: {found} fix=remove the others")
    between = None if given.keys().isdisjoint(DIFF_KEYS) else wanted_difference(options)
    if between is not None:
        if places or offsets is not None:
            raise InvalidInputError(
                f"a difference is no state: {' '.join(key for key in DIFF_KEYS if key in given)} "
                f"{' '.join(places)} fix=remove one"
            )
        return between
    if offsets is not None:
        return AtOffsets(_parsed_offsets(offsets))
    if "scan.version" in places:
        return AtWord(places["scan.version"])
    if "scan.timestamp" in places:
        return AtTime(scan_time_ms(places["scan.timestamp"]))
    if "log.scan.timestamp-mills" in places:
        return AtTime(places["log.scan.timestamp-mills"])
    version = Version(
        snapshot_id=places.get("scan.snapshot-id"),
        tag=places.get("scan.tag-name"),
        savepoint_id=places.get("scan.savepoint-id"),
        watermark=places.get("scan.watermark"),
    )
    return Newest() if version == Version() else AtVersion(version)


def _reads_log(options: TableOptions, given: Mapping[str, str], places: Mapping[str, Any]) -> bool:
    union = options.scan_log_union
    if options.scan_log_offsets is not None and not union:
        raise InvalidInputError(f"an end of the log without the log: option={OFFSETS} fix=set {_UNION}=true")
    fixed = [key for key in SNAPSHOT_PLACES if key in places]
    if union and fixed:
        if _UNION in given:
            raise InvalidInputError(
                f"a snapshot is read as it is, without the log: {fixed[0]}={places[fixed[0]]} {_UNION}=true "
                f"fix=name a time by scan.timestamp, or the end of the log by {OFFSETS}"
            )
        return False
    return union


def _staleness_ms(options: TableOptions, given: Mapping[str, str], places: Mapping[str, Any]) -> int | None:
    limit: int | None = options.scan_max_staleness_ms
    if limit is None or not (places or options.scan_log_offsets is not None):
        return limit
    if _STALENESS in given:
        raise InvalidInputError(
            f"an older state cannot be fresh: {_STALENESS}={given[_STALENESS]} {next(iter(places), OFFSETS)} "
            "fix=remove one"
        )
    return None


def _batch_metadata(options: TableOptions) -> tuple[MetadataColumn, ...]:
    columns = metadata_columns(options)
    for column in columns:
        if column in _UNKNOWN_IN_FILES:
            raise InvalidInputError(
                f"a batch read does not know this column: {_METADATA}={column} "
                f"cause={_UNKNOWN_IN_FILES[column]} fix=use {MetadataColumn.SNAPSHOT_ID}, or read a stream"
            )
    return columns


def _parsed_offsets(text: str) -> dict[int, int]:
    try:
        offsets = {int(bucket): offset for bucket, offset in orjson.loads(text).items()}
    except (ValueError, AttributeError):
        offsets = {-1: -1}
    if any(type(offset) is not int or offset < 0 or bucket < 0 for bucket, offset in offsets.items()):
        raise InvalidInputError(
            f'not offsets by bucket: {OFFSETS}={text} example=\'{{"0": 12, "1": 30}}\' (the next offset of each)'
        )
    return offsets
