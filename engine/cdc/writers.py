"""The write sessions of a job's active tables: opened with a table's first records, closed when it was idle longest.

Each table's snapshot has the job's position in that table's topics. So a job with a new checkpoint, or a table that
was parked, leaves out what the table has.
"""

import json
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from engine.cdc.planning import Marks, TableWork
from engine.cdc.records.routing import RecordPlace, RefusedRecordError
from engine.cdc.records.scan import raw_record
from engine.cdc.records.table_rows import BadCount, ChangeRows, TooManyBadError, leave_out_all, way_on
from engine.cdc.rules.repeats import Mark
from engine.cdc.settings import CdcSettings
from engine.compaction.spark_units import SparkUnits
from engine.kafka.dead_letters import DeadLetters, RowLetters
from engine.kafka.offsets import (
    OffsetRange,
    Offsets,
    TopicIds,
    TopicPosition,
    from_json,
    to_json,
    topic_ids_of,
    without_topics,
)
from engine.lineage.batch_origin import fitting_job
from engine.lineage.origins import CommitOrigin
from engine.lineage.recording import Recorder
from engine.request.writer_options import SINK_KEYS, WriterOptions
from engine.runtime.steps import Observer, ignore
from engine.table import Table
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from engine.write.emptying import empty_before
from engine.write.session import Upkeep, WriteSession, compact_here
from engine.write.unavailable.filling import Refuse
from filestore.commit.table_commit import CommitResult
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.table_store import TableStore
from logstore.json.reading import BadRecord

CDC_OFFSETS_KEY: Final = "fluvial.cdc-offsets"
CDC_JOB_KEY: Final = "fluvial.cdc-job"
CDC_MARKS_KEY: Final = "fluvial.cdc-marks"
_MOST_OPEN: Final = 64
_LOOKED_BACK: Final = 1000  # snapshots: others may commit, and compactions do


class LocalTables:
    """The runner of a job on one machine: threads of the driver, one table in each."""

    def write(self, spec: BatchSpec, rows: ChangeRows) -> Iterable[BucketResult]:
        """Implements ``Runner.write``."""
        return write_part(replace(spec, refuse=_refused_rows(spec, rows)), rows)

    def compact(self, store: TableStore, tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        """Implements ``Runner.compact``."""
        return compact_here(store, tasks)


class ClusterTables:
    """The runner of a job on a cluster: one task for each table."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def write(self, spec: BatchSpec, rows: ChangeRows) -> Iterable[BucketResult]:
        """Implements ``Runner.write``."""
        answers, bad, held, refused = self._spark.sparkContext.parallelize([(spec, rows)], 1).map(_written).collect()[0]
        rows.bad.count, rows.bad.first = bad
        rows.held.rows, rows.held.broken = held
        if refused is not None:
            raise TooManyBadError(*refused)
        return [BucketResult.from_json(each) for each in answers]

    def compact(self, store: TableStore, tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        """Implements ``Runner.compact``."""
        return SparkUnits(self._spark, store)(tasks)


Written = tuple[list[str], tuple[int, str | None], tuple[int, dict[str, int]], tuple[str, RecordPlace | None] | None]
"""A task's answer: results of buckets, bad records with the first reason, rows with those that broke rules, and the
record at which the table waits."""


def _written(given: tuple[BatchSpec, ChangeRows]) -> Written:
    """Write a share in a task. A failure is returned as a value: an exception would lose the offset of its record."""
    spec, rows = given
    spec = replace(spec.of_task(), refuse=_refused_rows(spec, rows))
    try:
        answers, refused = [each.to_json() for each in write_part(spec, rows)], None
    except TooManyBadError as error:
        answers, refused = [], (str(error), error.at)
    return answers, (rows.bad.count, rows.bad.first), (rows.held.rows, rows.held.broken), refused


def _refused_rows(spec: BatchSpec, rows: ChangeRows) -> Refuse:
    """The function that takes updates whose missing values are not known: it sends dead letters, or stops the table."""
    settings = rows.settings
    letters = (
        None
        if settings.dead_letters is None
        else RowLetters(
            properties=settings.properties, topic=settings.dead_letters, table=spec.table.name, key_names=rows.keys
        )
    )

    def refuse(refused: pa.RecordBatch, reasons: Sequence[str]) -> None:
        key = refused.select(list(rows.keys)).slice(0, 1).to_pylist()[0]
        text = (
            f"an update cannot be completed: table={rows.table} key={key} rows={refused.num_rows} "
            f"reason='{reasons[0]}' fix='fluvial cdc resnapshot {rows.table}, which replaces its rows; or set "
            f"dead-letters to a topic, and: fluvial cdc resume {rows.table}; with REPLICA IDENTITY FULL no update "
            "lacks values'"
        )
        if letters is None:
            raise TooManyBadError(text)
        rows.bad.add(rows.table, settings.max_bad, refused.num_rows, text)
        letters(refused, reasons)

    return refuse


def put_away_unreadable(settings: CdcSettings, work: TableWork, stood: Offsets, allowed: int) -> int:
    """Send the records of a batch that cannot be read to the dead letters, at most so many. Returns: how many.

    Raises:
        RefusedRecordError: there are none, the table cannot do without the record, or too many are bad.
    """
    bad = BadCount(allowed=allowed)
    letters = DeadLetters(settings.properties, settings.dead_letters)
    for at, each in work.unreadable(stood):
        topic, partition, offset = at
        text = f"record cannot be read: topic={topic} partition={partition} offset={offset} reason={each.reason}"
        if not each.is_letter:
            raise RefusedRecordError(f"{text}; or {leave_out_all(work.name)}", at)
        if settings.dead_letters is None:
            raise RefusedRecordError(f"{text} fix='{way_on(work.name, offset)}'", at)
        bad.add(work.name, settings.max_bad, 1, text, at)
        source = OffsetRange(topic=topic, partition=partition, start_offset=offset, end_offset=offset + 1)
        reason = BadRecord(index=0, reason=f"table={work.name} {each.reason}")
        letters.send(raw_record(settings, source, offset), [reason], source)
    letters.flush()
    return bad.count


TableRunner = LocalTables | ClusterTables


@dataclass(slots=True)
class JobPosition:
    """The position up to which a table has the changes of its job."""

    offsets: dict[TopicPosition, int] = field(default_factory=dict)
    marks: Marks = field(default_factory=dict)  # the newest changes of the source
    topic_ids: TopicIds = field(default_factory=dict)  # as far as they are known

    def without(self, topics: Collection[str]) -> "JobPosition":
        """The position without topics that were created again."""
        return JobPosition(
            offsets=without_topics(self.offsets, topics),
            marks={each: mark for each, mark in self.marks.items() if each[0].rpartition("/")[0] not in topics},
            topic_ids={name: each for name, each in self.topic_ids.items() if name not in topics},
        )


@dataclass(frozen=True, slots=True)
class _Open:
    table: Table
    session: WriteSession[ChangeRows]
    position: JobPosition


class Writers:
    """Sessions by table. One table is used by one thread at a time."""

    def __init__(
        self, settings: CdcSettings, runner: TableRunner, *, commit_user: str, run_id: str, observe: Observer = ignore
    ) -> None:
        """``commit_user`` is the id of the query, ``run_id`` the id of this run."""
        self._settings, self._runner, self._observe = settings, runner, observe
        self._user, self._run_id = commit_user, run_id
        self._job = fitting_job(settings.name)
        self._recorder: Recorder | None = None
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def known_position(self, name: str) -> JobPosition | None:
        """The job's position in a table; None: it is not open."""
        found = self._open.get(name)
        return None if found is None else found.position

    def open(self, table: Table, *, made_again: Collection[str] = ()) -> dict[TopicPosition, int]:
        """Open a session at this version of a table. Returns: the job's position in it, without recreated topics."""
        found = self._open.pop(table.name, None)
        if found is None:
            session: WriteSession[ChangeRows] = WriteSession(
                table.files,
                self._runner,
                commit_user=self._user,
                options=WriterOptions.parse({}, SINK_KEYS),
                upkeep=Upkeep.STREAM,
                origin=self._origin,
                run_id=self._run_id,
                observe=self._observe,
            )
            found = _Open(table, session, position_in(table, self._settings.name))
            recorder = Recorder.of(table.store)
            if recorder is not None:
                recorder.opened(self._job)
                self._recorder = recorder
        elif found.table.schema.id != table.schema.id:
            found.session.continue_at(table.files)
            found = _Open(table, found.session, found.position)
        found = replace(found, position=found.position.without(made_again))
        self._open[table.name] = found
        return dict(found.position.offsets)

    def write(self, table: Table, rows: ChangeRows, batch_id: int, work: TableWork, marks: Marks) -> CommitResult:
        """Write the batch of a table, unless it is there. Raises: FluvialError, see ``WriteSession.write``."""
        found = self._open[table.name]
        position = found.position
        ends = {
            **position.offsets,
            **{each: max(end, position.offsets.get(each, 0)) for each, end in work.ends.items()},
        }
        topic_ids = {**position.topic_ids, **work.topic_ids}
        notes = {CDC_JOB_KEY: self._settings.name, CDC_OFFSETS_KEY: json.dumps(to_json(ends, topic_ids))}
        if marks:
            notes[CDC_MARKS_KEY] = json.dumps([[*place, mark.to_json()] for place, mark in sorted(marks.items())])
        done = found.session.write(rows, batch_id=batch_id, notes=notes)
        position.offsets, position.marks, position.topic_ids = ends, marks, topic_ids
        return done

    def truncate(self, table: Table, batch_id: int) -> None:
        """See ``empty_before``."""
        empty_before(table.files, self._user, batch_id)

    def forget(self, name: str) -> None:
        """Close the session of a table that failed; its next batch opens another."""
        found = self._open.pop(name, None)
        if found is not None:
            found.session.close()

    def close_idle(self) -> None:
        """Close sessions beyond the most that stay open; those that were used last stay."""
        while len(self._open) > _MOST_OPEN:
            _, oldest = self._open.popitem(last=False)
            oldest.session.close()

    def close(self) -> None:
        """Wait for running compactions, and close all."""
        for each in self._open.values():
            each.session.close()
        self._open.clear()
        if self._recorder is not None:
            self._recorder.closed(self._job)

    def _origin(self, batch_id: int, rows: ChangeRows | None) -> CommitOrigin:
        """The job and its batch, which is the same for all tables; offsets of topics are beside it in the snapshot."""
        return CommitOrigin(job=self._job, barrier_id=batch_id, run=fitting_job(self._user))


def position_in(table: Table, job: str) -> JobPosition:
    """The position of a job in a table, as the newest snapshot says that it committed; empty: none is known."""
    snapshots = table.store.snapshots
    latest = snapshots.latest_id() or 0
    for snapshot_id in range(latest, max(0, latest - _LOOKED_BACK), -1):
        found = snapshots.find(snapshot_id)
        if found is None:
            break
        if found.properties.get(CDC_JOB_KEY) == job and CDC_OFFSETS_KEY in found.properties:
            marks = json.loads(found.properties.get(CDC_MARKS_KEY, "[]"))
            offsets = json.loads(found.properties[CDC_OFFSETS_KEY])
            return JobPosition(
                offsets=from_json(offsets),
                topic_ids=topic_ids_of(offsets),
                marks={(place, source): Mark.from_json(body) for place, source, body in marks},
            )
    return JobPosition()
