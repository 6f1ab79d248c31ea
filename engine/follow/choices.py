"""What a program asks for that follows a table: where it starts, which rows it wants, when it ends."""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypedDict

import pyarrow as pa

from engine.checkpoint.checkpoint_files import read_checkpoint
from engine.follow.position import FollowPosition
from engine.follow.reading import BatchReading, not_repeated
from engine.request.branch_choice import on_named_branch
from engine.request.commit_handle import CommitHandle
from engine.request.option_check import check_belongs
from engine.request.read_keys import STREAM_KEYS
from engine.stream.options import StreamOptions
from engine.stream.position.place import share_name
from engine.stream.position.position import Phase, Position
from engine.stream.position.start import Start, StartKind
from engine.types.rows import ROW_KIND_COLUMN
from filestore.options.references import with_secrets
from filestore.options.table_options import canonical_options
from filestore.scan.row_expiry import RowExpiry
from filestore.table import FileTable
from lsm.errors import InvalidInputError

StartPlace = str | int | datetime | os.PathLike[str] | CommitHandle | FollowPosition | None
"""``full`` (None), ``latest``, a snapshot id, a time, a tag, a commit handle, a position, a Spark checkpoint (path)."""

BATCH_ROWS: Final = 1_000_000
"""Rows of the log between two positions of a stream, at most: what a restart reads again to find its place."""
_LIMIT: Final = "read.stream.maxRowsPerTrigger"
_NUMBERED: Final = re.compile(r"(?P<kind>snapshot|timestamp|tag|handle|checkpoint)\.(?P<of>.+)", re.DOTALL)


class StreamChoices(TypedDict, total=False):
    """Named arguments of ``Table.stream``; each may be left out."""

    consumer: str | None  # name under which the table keeps the progress, so that expiry waits
    columns: Sequence[str] | None  # of the table, in the wanted order; None: all
    filter: str | None  # SQL text; on value columns a row that stops matching is deleted
    follow: bool  # False: end at the table's state of now
    share: tuple[int, int] | None  # (i, n): of n programs this is the i-th, from 0; each gets buckets of its own
    max_rows: int | None  # of one batch of rows; None: as they are read
    timeout_s: float | None  # end after this time
    idle_s: float | None  # end when nothing came for this time
    options: Mapping[str, str] | None  # of streams, such as log.on-offset-lost, log.scan.normalize


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowRequest:
    """Checked choices of one stream."""

    stream: StreamOptions
    start: StartPlace
    position: FollowPosition | None  # None: the stream's options say where it begins
    follow: bool = True
    share: tuple[int, int] = (0, 1)
    max_rows: int | None = None
    timeout_s: float | None = None
    idle_s: float | None = None

    @property
    def reading(self) -> BatchReading:
        """How this stream reads its batches."""
        return BatchReading.of(self.stream, self.share)

    def at(self, position: FollowPosition | None) -> "FollowRequest":
        """A copy of the request that continues at a position."""
        return replace(self, position=position)

    @classmethod
    def parse(cls, table: FileTable, start: StartPlace, choices: StreamChoices) -> "FollowRequest":
        """Understand where to start and what is wanted.

        Raises:
            InvalidInputError: names the choice, and the fix.
        """
        options = with_secrets(canonical_options(choices.get("options") or {}))
        table = on_named_branch(table, options)
        given, position = _start_options(start)
        if position is not None:
            _check_alone(start, options)
        consumer = choices.get("consumer")
        share = _checked_share(choices.get("share"))
        if consumer is not None:
            given["consumer-id"] = consumer
        twice = sorted(options.keys() & given.keys())
        if twice:
            raise InvalidInputError(
                f"an option is given twice: {twice[0]}={options[twice[0]]} start={start} fix=remove one of them"
            )
        given = {**options, **given}
        limited = given if any(key.startswith("read.stream.max") for key in given) else {**given, _LIMIT: _limit(table)}
        check_belongs(limited, STREAM_KEYS, "stream option")
        opened = table.with_options(limited)
        schema = _stream_schema(opened, choices.get("columns"))
        found = StreamOptions.parse(opened, given, schema, filter=choices.get("filter"))
        if found.consumer_id is not None:
            found = replace(found, consumer_id=share_name(found.consumer_id, share))
        if isinstance(start, CommitHandle) or (isinstance(start, str) and start.startswith("handle.")):
            assert found.at_least is not None
            found = replace(found, start=Start(kind=StartKind.BEHIND, snapshot_id=found.at_least.snapshot_id))
        max_rows = choices.get("max_rows")
        if max_rows is not None and max_rows < 1:
            raise InvalidInputError(f"a batch has at least one row: max_rows={max_rows} fix=give 1 or more, or None")
        request = cls(
            stream=found,
            start=start,
            position=position,
            follow=choices.get("follow", True),
            share=share,
            max_rows=max_rows,
            timeout_s=choices.get("timeout_s"),
            idle_s=choices.get("idle_s"),
        )
        request._check_position()
        return request

    def _check_position(self) -> None:
        """Refuse a position whose rows this stream would count otherwise. Raises: InvalidInputError."""
        position = self.position
        if position is None or position.to is None:
            return
        if position.reading is not None:
            position.reading.check_repeated_by(self.stream, self.share)
        elif position.asked != _asked_before(self) or not _is_repeated(position.at, position.to, self.stream):
            raise not_repeated(self.stream.table.name, "cause='it was written by a former version of Fluvial'")


def _asked_before(request: FollowRequest) -> str:
    """The digest of a request that former versions wrote into positions within a batch."""
    stream = request.stream
    wanted = (request.share, stream.filter, stream.normalizes, stream.log is None)
    return hashlib.blake2s(repr(wanted).encode(), digest_size=6).hexdigest()


def _is_repeated(start: Position, end: Position, stream: StreamOptions) -> bool:
    """Whether a batch has the rows that it had for a former version: plain records, or a snapshot of a table as it was.

    Of other batches it is not known which columns and options they were read with.
    """
    if end.is_range:
        return not stream.normalizes
    is_snapshot = start.phase is Phase.SNAPSHOT and end.newest_id == start.snapshot_id and end.offsets == start.offsets
    store = stream.table.store
    return is_snapshot and end.schema_id == store.schema.id and RowExpiry.of(store.schema, store.options) is None


def _stream_schema(table: FileTable, columns: Sequence[str] | None) -> pa.Schema:
    """The wanted columns and the row kind; a delete may have its key only."""
    names = list(table.schema.column_names if columns is None else columns)
    keys = table.schema.primary_keys
    given = table.schema.arrow_schema_of(names)
    fields = [field if field.name in keys else field.with_nullable(True) for field in given]
    return pa.schema([*fields, pa.field(ROW_KIND_COLUMN, pa.string(), nullable=False)])


def _limit(table: FileTable) -> str:
    return str(table.options.read_stream_max_rows_per_trigger or BATCH_ROWS)


def _checked_share(share: tuple[int, int] | None) -> tuple[int, int]:
    index, count = share or (0, 1)
    if not 0 <= index < count:
        raise InvalidInputError(
            f"no such share: share=({index}, {count}) fix='give (i, n): i from 0 to n - 1, of n programs'"
        )
    return index, count


def _check_alone(start: StartPlace, options: Mapping[str, str]) -> None:
    others = sorted(key for key in options if key.startswith(("scan.", "log.scan")) and key != "log.scan.normalize")
    if others:
        raise InvalidInputError(
            f"the start is given twice: start={str(start)[:80]} {others[0]}={options[others[0]]} fix=remove one of them"
        )


def _start_options(start: StartPlace) -> tuple[dict[str, str], FollowPosition | None]:
    """Options of a stream that begins there, or its position."""
    match start:
        case None:
            return {}, None
        case FollowPosition():
            return {}, start
        case CommitHandle():
            return {"scan.at-least": str(start)}, None
        case datetime():
            return {"scan.timestamp": start.isoformat()}, None
        case bool():
            raise InvalidInputError(f"no start of a stream: start={start}")
        case int():
            return {"scan.snapshot-id": str(start)}, None
        case str():
            return _start_of_word(start)
        case _:
            return {}, checkpoint_position(os.fspath(start))


def _start_of_word(start: str) -> tuple[dict[str, str], FollowPosition | None]:
    if start.lstrip().startswith("{"):
        return {}, FollowPosition.parse(start)
    if start in ("full", "latest"):
        return {"scan.mode": start}, None  # unlike log.scan it goes with a time that the table has
    if start.isdecimal():
        return {"scan.snapshot-id": start}, None
    found = _NUMBERED.fullmatch(start)
    if found is None:
        return {"scan.tag-name": start}, None
    if found["kind"] == "checkpoint":
        return {}, checkpoint_position(found["of"])
    key = {
        "snapshot": "scan.snapshot-id",
        "timestamp": "scan.timestamp",
        "tag": "scan.tag-name",
        "handle": "scan.at-least",
    }[found["kind"]]
    return {key: found["of"]}, None


def checkpoint_position(location: str) -> FollowPosition:
    """Where a Spark query that reads the table stands: the end of its newest committed batch.

    Raises:
        InvalidInputError: not a checkpoint on this machine, nothing is committed, or its source is not one table.
    """
    state = read_checkpoint(location)
    if state is None or state.batch_id is None:
        raise InvalidInputError(
            f"no committed batch of a streaming query: checkpoint={location} fix=look at the path, or start with 'full'"
        )
    found = []
    for source in state.offsets:
        try:
            found.append(FollowPosition.parse(json.dumps(source)))
        except InvalidInputError:
            continue
    if len(found) != 1:
        raise InvalidInputError(
            f"the checkpoint is not of a query with one Fluvial table as its source: checkpoint={location} "
            f"tables={len(found)} fix=give the position of one of them as text"
        )
    return found[0]
