"""Operations on a table with a log: writers of batches and of streams, readers of the union, and retention.

Each batch has a row in both buckets, so that its log has two transactions and may end between them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaException, TopicPartition

from engine.request.writer_options import WriterOptions
from engine.simulation import model
from engine.simulation.model import Effect, unchanged
from engine.simulation.operations import TABLE, LogRead, Session, SimulatedOperation, arrow_rows
from engine.table import Table
from engine.types.rows import ROW_KIND_COLUMN
from engine.write.session import KeepingRunner, Upkeep, WriteSession
from filestore.hashing.buckets import bucket_ids
from filestore.types.data_types import parse_data_type
from logstore.kafka.clients import ErrorNotes

LOG_BUCKETS: Final = 2
LOG_TOPIC: Final = "simulated"
TWIN: Final = "log-twin"
KEPT: Final = "log-kept"
"""Two batches of a query, the second by the writers that the first has left."""
SINKS: Final = ("log-sink", TWIN, KEPT)
ADOPTERS: Final = ("log-adopt",)
"""Not beside a sink: they publish what it has left in the log, and it would come back."""
WITHOUT_LOG: Final = ("log-overwrite", "log-untracked")
"""Their rows are in no log, and so its fold is another one."""
DELETED: Final = 2


@cache
def key_pair(number: int) -> tuple[int, int]:
    """Keys of an operation, one in each bucket."""
    found: dict[int, list[int]] = {0: [], 1: []}
    for key in count(100):
        (bucket,) = bucket_ids([pa.array([key], pa.int64())], [parse_data_type("BIGINT")], LOG_BUCKETS)
        found[int(bucket)].append(key)
        if min(map(len, found.values())) > number:
            break
    return found[0][number], found[1][number]


def rows_of(name: str, number: int) -> Mapping[int, int]:
    """The rows that an operation adds, with values that no other one adds; {}: none, or in no log."""
    match name:
        case "log-write" | "log-sink" | "log-adopt":
            return {key: number for key in key_pair(number)}
        case "log-kept":
            return {key: number for rows in kept_batches(number) for key in rows}
        case "log-twin":
            return {key: 77 for key in key_pair(40)}
        case "log-upsert":
            return {1: 1000 + number, 3: 1000 + number}
        case _:
            return {}


def kept_batches(number: int) -> Sequence[Mapping[int, int]]:
    """The rows of the two batches of ``log-kept``."""
    return [{key: number for key in key_pair(each)} for each in (number, 20 + number)]


def _on_table(change: Callable[[model.ModelTable], model.ModelTable | None]) -> Effect:
    return model.on_table(TABLE, change)


def _write(rows: Mapping[int, int], **options: str) -> Callable[[Session], object]:
    given = {key.replace("_", "."): value for key, value in options.items()}
    return lambda session: Table(session.table()).write(arrow_rows(rows), options=given)


def _adopt(rows: Mapping[int, int]) -> Callable[[Session], object]:
    """As a writer that takes over what dead ones left in the log."""

    def run(session: Session) -> object:
        files = session.table()
        options = WriterOptions({"log.on-orphan-batch": "adopt"})
        return _session(session, files.store.new_commit_user(), options, Upkeep.BATCH, rows)

    return run


def _delete(session: Session) -> object:
    rows = arrow_rows({DELETED: 0}).append_column(ROW_KIND_COLUMN, pa.array(["-D"]))
    return Table(session.table()).write(rows)


def _stream(user: str | None, batch: int, rows: Mapping[int, int]) -> Callable[[Session], object]:
    """A batch of a streaming query, each time by another run of it; a repair takes over what others left, too."""

    def run(session: Session) -> object:
        given = {"write-only": "true", **({"log.on-orphan-batch": "adopt"} if session.is_repair else {})}
        name = user or f"sink-{session.actor.index}"
        return _session(session, name, WriterOptions(given), Upkeep.STREAM, rows, batch)

    return run


def _keep(number: int) -> Callable[[Session], object]:
    def run(session: Session) -> object:
        given = {"write-only": "true", **({"log.on-orphan-batch": "adopt"} if session.is_repair else {})}
        with _writing(session, f"kept-{session.actor.index}", WriterOptions(given), Upkeep.STREAM) as writing:
            for batch, rows in enumerate(kept_batches(number), 2 * number):
                done = writing.write(arrow_rows(rows).to_batches(), batch_id=batch)
        return done

    return run


def _writing(session: Session, user: str, options: WriterOptions, upkeep: Upkeep) -> WriteSession[Any]:
    return WriteSession(
        session.table(), KeepingRunner(), commit_user=user, options=options, upkeep=upkeep, origin=lambda *_: None
    )


def _session(
    session: Session, user: str, options: WriterOptions, upkeep: Upkeep, rows: Mapping[int, int], *batch: int
) -> object:
    writing = _writing(session, user, options, upkeep)
    batches = arrow_rows(rows).to_batches() if rows else []
    with writing:
        return writing.write(batches, batch_id=batch[0]) if batch else writing.write(batches)


def _read(session: Session) -> object:
    began = session.actor.scheduler.step
    read = Table(session.table()).read(options={"scan.log.union": "true"})
    rows = [row for batch in read.to_batches() for row in batch.to_pylist()]  # to_arrow reads by threads
    offsets = dict(read.served.log_offsets or {})
    values = tuple(sorted((row["id"], row["v"]) for row in rows))
    found = LogRead(began, session.actor.scheduler.step, offsets, values)
    session.reads.append(found)
    return found


def _trim(session: Session) -> object:
    """Retention deletes records that the newest snapshot holds."""
    table = Table(session.table())
    snapshot = table.latest_snapshot()
    if snapshot is not None and table.log is not None:
        admin = table.log.properties.admin(ErrorNotes())
        spots = [TopicPartition(table.log.topic, bucket, offset) for bucket, offset in snapshot.log_offsets.items()]
        for future in admin.delete_records(spots).values():
            with suppress(KafkaException):
                future.result()
    return snapshot


def finish(session: Session) -> None:
    """Publish what dead writers have left in the log, without any other row."""
    _adopt({})(session)


def log_operations(number: int) -> list[SimulatedOperation]:
    """All operations on a table with a log; see ``operations.operation``."""
    new = {key: 5000 + number for key in key_pair(number)}

    def logged(name: str, run: Callable[[Session], object], *, repeated: bool = False) -> SimulatedOperation:
        rows = rows_of(name, number)
        return SimulatedOperation(
            name=name, effect=_on_table(model.put(rows)), run=run, publishes_rows=True, is_repeated=repeated,
            rows=rows, keyed_only=name == "log-upsert",
        )  # fmt: skip

    return [
        logged("log-write", _write(rows_of("log-write", number))),
        logged("log-upsert", _write(rows_of("log-upsert", number))),
        logged("log-sink", _stream(None, number, rows_of("log-sink", number)), repeated=True),
        logged(TWIN, _stream("twin", 0, rows_of(TWIN, number)), repeated=True),
        logged(KEPT, _keep(number), repeated=True),
        logged("log-adopt", _adopt(rows_of("log-adopt", number))),
        SimulatedOperation(
            name="log-delete", effect=_on_table(model.put({}, removed=frozenset({DELETED}))), run=_delete,
            publishes_rows=True, keyed_only=True,
        ),
        SimulatedOperation(
            name="log-overwrite", effect=_on_table(model.overwrite(new)), publishes_rows=True,
            run=lambda session: Table(session.table()).overwrite(arrow_rows(new)),
        ),
        SimulatedOperation(
            name="log-untracked", effect=_on_table(model.put(new)), publishes_rows=True,
            run=_write(new, **{"change-tracking": "false"}),
        ),
        SimulatedOperation(name="log-read", effect=unchanged, run=_read),
        SimulatedOperation(name="log-trim", effect=unchanged, run=_trim),
    ]  # fmt: skip


BESIDE_A_LOG: Final = frozenset(
    {"compact", "compact-full", "compact-dedicated", "expire", "expire-some", "clean", "tag", "tag-newest", "savepoint"}
)
"""Operations on files that a table with a log allows as well."""
