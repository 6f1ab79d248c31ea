"""One micro-batch of a job: what ``foreachBatch`` calls with the ranges that the source planned.

1. Scan each range for tables, schema parts and truncates (``scan``); keep its records while they fit into memory.
2. Create each table, or apply the schema parts to it (``planning``, ``tables``).
3. Write and commit the tables in parallel threads (``writers``), each with this batch's id. So a replay writes only the
   tables that lack the batch.
4. Park each table that fails: its next offset is saved (``state``), and other tables are unaffected.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from engine.catalog import Catalog
from engine.cdc.cuts import cut_scans, tag_batch_cut, tag_of_batch, with_held
from engine.cdc.planning import (
    Marks,
    TableWork,
    TopicMadeAgainError,
    parked_at,
    with_writers_stopped,
    work_by_table,
)
from engine.cdc.records.routing import RefusedRecordError
from engine.cdc.records.scan import Budget, RangeScan, position_of, scan_range
from engine.cdc.records.table_rows import BadCount, ChangeRows
from engine.cdc.report import BatchReport, TableReport
from engine.cdc.rules.names import check_nameable
from engine.cdc.rules.transactions import CutDecision
from engine.cdc.settings import CUT, ISOLATE, CdcSettings
from engine.cdc.state import (
    RESNAPSHOT,
    AwaitedSnapshot,
    CdcTableState,
    Parked,
    Request,
    StateFiles,
    at_beginnings,
    backlog,
    can_answer,
    left_out,
)
from engine.cdc.tables import CdcTables, PastValues, SkippedTableError, with_deleted
from engine.cdc.writers import JobPosition, LocalTables, TableRunner, Writers, position_in, put_away_unreadable
from engine.kafka.offsets import OffsetRange, TopicPosition, without_topics
from engine.lineage.lineage import Collected, collecting, store_collected
from engine.runtime.expected_rows import report_broken
from engine.runtime.metrics import record_changes
from engine.runtime.steps import Observer, ignore
from engine.table import Table
from filestore.predicate.row_rules import RowRule
from logstore.log.kept_consumers import IdleConsumers
from lsm.errors import ConflictError, FluvialError, OutcomeUnknownError, TakenOverError, UnavailableError

logger = logging.getLogger("fluvial.cdc")

_HOUR_S: Final = 3600.0
_OF_THE_JOB: Final = (TakenOverError, OutcomeUnknownError, UnavailableError, ConflictError)
"""Errors that another try may not have, or that end the run: they say nothing about one table."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A table that can be written."""

    work: TableWork
    table: Table
    rows: ChangeRows
    marks: Marks


class CdcBatches:
    """The batches of one run of one query."""

    def __init__(
        self,
        catalog: Catalog,
        settings: CdcSettings,
        state: StateFiles,
        *,
        commit_user: str,
        run_id: str,
        runner: TableRunner | None = None,
        threads: int = 2,
        observe: Observer = ignore,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        past: PastValues | None = None,
    ) -> None:
        """Nothing is read.

        Args:
            catalog: of the tables.
            settings: of the job.
            state: its files.
            commit_user: the id of the query, which its checkpoint keeps.
            run_id: of this start.
            runner: where tables are written; None: in threads of this process.
            threads: ranges and tables at a time.
            observe: called with each step of each table.
            now_ms: the clock.
            past: asks the source what rows have in columns that were added after them; None: there is no connection.
        """
        self._settings = replace(settings, added=with_deleted(settings))
        self._state, self._now_ms = state, now_ms
        self._tables = CdcTables(catalog, self._settings, past)
        self._writers = Writers(
            self._settings, runner or LocalTables(), commit_user=commit_user, run_id=run_id, observe=observe
        )
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="fluvial-cdc")
        self._consumers = IdleConsumers(threads)
        self._keeps = runner is None or isinstance(runner, LocalTables)
        self._bad: dict[str, deque[tuple[float, int]]] = {}
        self._last: BatchReport | None = None
        self._user = commit_user
        self._tagged_ms = float("-inf")
        state.let_go_unnamed(settings.naming)

    def write(self, ranges: Sequence[OffsetRange], batch_id: int) -> BatchReport:
        """Bring every table to the ends of these ranges, except parked ones.

        Raises:
            FluvialError: of the job as a whole, as brokers that are away; of a table with ``on-table-failure=stop``.
        """
        asked = self._state.requests()
        for each in asked:
            if each.action == RESNAPSHOT:
                self._await_snapshot(each, ranges, batch_id)
        requests = [
            each
            for each in asked
            if each.action != RESNAPSHOT and can_answer(self._state.table(each.table).parked, ranges)
        ]
        budget = Budget(self._settings.memory_bytes) if self._keeps else None
        if self._settings.cut == CUT:
            ranges = with_held(ranges, self._state.cuts().get(batch_id - 1))
        scans = self._scans([each for each in ranges if each.start_offset < each.end_offset], budget)
        decision = None
        if self._settings.cut == CUT:
            scans, decision = cut_scans(
                self._settings, self._state, scans, batch_id,
                scan_all=lambda early: self._scans(early, budget), now_ms=self._now_ms(),
            )  # fmt: skip
        works = work_by_table(scans, self._settings.naming)
        for name in sorted({each.table for each in requests}):
            self._let_go_on(name, ranges, works, [each for each in requests if each.table == name])
        reports = self._written_together(works.values(), batch_id, requests)
        self._writers.close_idle()
        if decision is not None and not requests:
            self._tag(decision, scans)
        held = {} if decision is None else dict(decision.ends)
        report = BatchReport(
            batch_id=batch_id,
            time_ms=self._now_ms(),
            tables={each.table: each for each in reports if each is not None},
            positions={(each.topic, each.partition): each.end_offset for each in ranges} | held,
        )
        for table in report.tables.values():
            record_changes(
                self._tables.full_name(table.table),
                records=table.records,
                bad=table.bad,
                schema_id=table.schema_id,
                lag_seconds=None if table.newest_ms is None else max(0, report.time_ms - table.newest_ms) / 1000,
            )
        self._last = report.after(self._last or BatchReport.from_json(self._state.progress()))
        self._state.put_progress(self._last.to_json())
        for each in asked:
            if each.action == RESNAPSHOT or each in requests:
                self._state.answered(each)
        return report

    def close(self) -> None:
        """Stop the threads that write tables, and close sessions and consumers."""
        self._writers.close()
        self._pool.shutdown()
        self._consumers.close()

    def _tag(self, decision: CutDecision, scans: Sequence[RangeScan]) -> None:
        """Leave a tag over all tables, unless one waits."""
        tag, names = tag_of_batch(decision, scans), self._state.tables()
        is_due = self._now_ms() - self._tagged_ms >= self._settings.tag_every_s * 1000
        if tag is None or not is_due or any(self._state.table(name).parked is not None for name in names):
            return
        tables = {self._tables.full_name(name): self._tables.open(name) for name in names if self._tables.exists(name)}
        is_tagged = tag_batch_cut(
            {name: table.store for name, table in tables.items()},
            tag,
            commit_user=self._user,
            batch_id=decision.batch_id,
            retained_ms=self._settings.tag_retained_ms,
        )
        if is_tagged:
            self._tagged_ms = self._now_ms()

    def _scans(
        self, ranges: Iterable[OffsetRange], budget: Budget | None, skipped: tuple[OffsetRange, ...] = ()
    ) -> list[RangeScan]:
        ranges = self._tables.without_logs(ranges, self._state.tables)
        return self._all(lambda each: scan_range(self._settings, each, budget, self._consumers, skipped), ranges)

    def _all(self, do: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Do all, in threads; the first error counts once all have ended."""
        futures = [self._pool.submit(do, each) for each in items]
        failures = [error for each in futures if (error := each.exception()) is not None]
        if failures:
            raise failures[0]
        return [each.result() for each in futures]

    def _await_snapshot(self, request: Request, ranges: Sequence[OffsetRange], batch_id: int) -> None:
        """Park a table until a snapshot of the connector comes; its rows stay as they are until then."""
        parked = Parked(
            since_ms=self._now_ms(),
            reason="waits for a snapshot of the connector, which replaces its rows",
            batch_id=batch_id,
            offsets=request.offsets,
            awaits=AwaitedSnapshot(drops=request.drops),
            sources=self._state.table(request.table).known_sources,
            topic_ids={each.topic: each.topic_id for each in ranges if each.topic_id},
        )
        self._state.park(request.table, parked)

    def _let_go_on(
        self, name: str, ranges: Sequence[OffsetRange], works: dict[str, TableWork], requests: Sequence[Request]
    ) -> None:
        """Give a parked table all its records up to this batch's ends."""
        parked = self._state.table(name).parked
        if parked is None:
            logger.warning("the table is not parked, nothing to do: table=%s actions=%s", name, requests)
            return
        parked = at_beginnings(parked, {each.topic: each.topic_id for each in ranges if each.topic_id})
        waiting = backlog(parked, ranges, requests)
        scans = self._scans(waiting, None, left_out(parked, requests))
        found = work_by_table(scans, self._settings.naming).get(name)
        works[name] = found or TableWork(name=name)

    def _written_together(
        self, works: Iterable[TableWork], batch_id: int, requests: Sequence[Request]
    ) -> list[TableReport | None]:
        """All tables; their lineage is stored in one transaction, also when one of them ends the batch."""
        collected: Collected = []

        def one(work: TableWork) -> TableReport | None:
            with collecting(collected):
                return self._one(work, batch_id, requests)

        try:
            return self._all(one, works)
        finally:
            store_collected(collected)

    def _one(self, work: TableWork, batch_id: int, requests: Sequence[Request]) -> TableReport | None:
        """Write one table of a batch, from its schema to its commit; a failure parks the table."""
        name, state = work.name, self._state.table(work.name)
        goes_on = any(each.table == name for each in requests)
        if state.parked is not None:
            state = replace(state, parked=state.parked.met(work.starts, work.topic_ids))
            self._state.put(name, state)
        if state.parked is not None and not goes_on and not work.begins_awaited(state.parked):
            return TableReport.parked_table(name, state.parked)
        stood: dict[TopicPosition, int] = {}
        awaited = state.parked.awaits if state.parked is not None and work.has_awaited(state.parked) else None
        try:
            if awaited is not None and state.parked is not None:
                work = work.from_awaited(state.parked)
            if awaited is not None and awaited.drops:
                self._writers.forget(self._tables.full_name(name))
                self._tables.drop(name)
                self._state.put(name, CdcTableState(key=state.key, parked=state.parked, key_types=state.key_types))
                state = self._state.table(name)
            check_nameable(name, tuple(each.source for each in work.shares))
            position = self._position(work.name)
            continued = state.parked if goes_on or awaited is not None else None
            stood = dict(position.offsets)
            waited = {} if state.parked is None else state.parked.topic_ids  # also of a table without any rows yet
            again = work.made_again({**waited, **position.topic_ids}, position.offsets, continued)
            position, state = position.without(again), state.each_sequence(lambda own: own.without(again))
            known = position.marks
            work, marks = self._without_repeats(work, position, state, is_awaited=awaited is not None)
            work = work.behind(position.offsets)
            put_away = self._counted(
                name, put_away_unreadable(self._settings, work, position.offsets, self._allowed(name))
            )
            if not work.met and not self._tables.exists(name):  # nothing but truncates, or nothing at all
                self._state.park(name, None)
                return None
            table = self._tables.prepare(name, state, work.met, position.offsets, partial(self._state.put, name))
            stood = self._writers.open(table, made_again=again)
            work = work.knowing(self._state.table(name).sources, stood)
            if awaited is None:
                work = self._replaced_by_snapshots(work, table, known, stood)
            if awaited is not None or work.is_truncated(stood, self._settings):
                self._writers.truncate(table, batch_id)
            report = self._written(self._ready(work, table, stood, marks), batch_id)
            report = replace(report, bad=report.bad + put_away)
            self._state.park(name, None)
        except SkippedTableError as error:
            logger.warning("%s", error)
            return None
        except _OF_THE_JOB:
            self._writers.forget(self._tables.full_name(name))
            raise
        except Exception as error:
            self._writers.forget(self._tables.full_name(name))
            if self._settings.on_table_failure != ISOLATE or isinstance(error, OSError):
                raise
            return self._parked(work, error, batch_id, stood)
        return report

    def _without_repeats(
        self, work: TableWork, position: JobPosition, state: CdcTableState, *, is_awaited: bool
    ) -> tuple[TableWork, Marks]:
        """The work without changes that the table has, because the connector published them again."""
        found, marks = work.without_repeats(position.marks, position.offsets)
        for share in found.shares:
            for each in share.repeated:
                logger.info(
                    "the connector publishes changes again, those that the table has are left out: table=%s at=%s "
                    "offset=%d", work.name, share.scan.position, each.offset,
                )  # fmt: skip
        if is_awaited and state.parked is not None:
            marks = found.awaiting(marks, state.parked, state.known_sources)
        return found, marks

    def _position(self, name: str) -> JobPosition:
        """The job's position in a table, before the batch."""
        full_name = self._tables.full_name(name)
        if not self._tables.exists(name):  # also one that was dropped meanwhile
            self._writers.forget(full_name)
            return JobPosition()
        found = self._writers.known_position(full_name)
        return position_in(self._tables.open(name), self._settings.name) if found is None else found

    def _replaced_by_snapshots(
        self, work: TableWork, table: Table, marks: Marks, stood: Mapping[TopicPosition, int]
    ) -> TableWork:
        """The work where a connector publishes all rows again: they replace those of a table without a key."""
        for share in work.shares:
            if (begin := share.begun_again(marks, stood)) >= 0:
                effect = (
                    f"rows that the source has deleted meanwhile stay: fix='fluvial cdc resnapshot {work.name}'"
                    if table.schema.primary_keys
                    else "the table has no key, so its rows are replaced"
                )
                logger.warning(
                    "the connector publishes all rows again: table=%s at=%s offset=%d %s",
                    work.name, share.scan.position, begin, effect,
                )  # fmt: skip
        return work if table.schema.primary_keys else work.replaced_by_snapshot(marks, stood)

    def _parked(
        self, work: TableWork, error: Exception, batch_id: int, stood: Mapping[TopicPosition, int]
    ) -> TableReport:
        before = (known := self._state.table(work.name).parked) and at_beginnings(known, work.topic_ids)
        reason = str(error) if isinstance(error, FluvialError) else f"unexpected: {type(error).__name__}: {error}"
        if work.is_counted or not self._state.table(work.name).key:
            reason = with_writers_stopped(reason)
        if isinstance(error, TopicMadeAgainError):
            stood = without_topics(stood, error.topics)
        offsets = stood if before is None else {**before.offsets, **stood}
        if before is not None and before.awaits is not None and work.has_awaited(before):
            parked = replace(before, reason=reason, awaits=replace(before.awaits, is_met=True))
        else:
            at = error.at if isinstance(error, RefusedRecordError) else None
            parked = parked_at(work, reason=reason, batch_id=batch_id, now_ms=self._now_ms(), offsets=offsets, at=at)
            if before is not None:
                parked = replace(parked, sources=tuple(dict.fromkeys((*before.sources, *parked.sources))))
        self._state.park(work.name, parked)
        logger.error(
            "a table is parked, other tables continue: table=%s batch=%d reason=%s%s",
            work.name, batch_id, reason, "" if "fix=" in reason else f" fix='fluvial cdc resume {work.name}'",
            exc_info=not isinstance(error, FluvialError),
        )  # fmt: skip
        return TableReport.parked_table(work.name, parked)

    def _ready(self, work: TableWork, table: Table, stood: Mapping[TopicPosition, int], marks: Marks) -> Ready:
        sources = work.sources(stood, self._state.table(work.name), self._settings)
        rows = ChangeRows(
            settings=self._settings,
            table=work.name,
            fields=tuple(table.schema.fields),
            keys=tuple(table.schema.primary_keys),
            sequence=table.options.sequence_fields,
            sources=sources,
            bad=BadCount(allowed=self._allowed(work.name)),
            rules=tuple(
                (each, RowRule.parse(each.name, each.condition, table.schema))
                for each in self._settings.table(work.name).expect
            ),
            has_updates=any(share.found.has_updates for share in work.shares),
            kept={position_of(share.scan.source): share.scan.chunks for share in work.shares},
        )
        return Ready(work=work, table=table, rows=rows, marks=marks)

    def _written(self, ready: Ready, batch_id: int) -> TableReport:
        done = self._writers.write(ready.table, ready.rows, batch_id, ready.work, ready.marks)
        return TableReport(
            table=ready.work.name,
            snapshot_id=None if done.snapshot is None else done.snapshot.id,
            schema_id=ready.table.schema.id,
            records=ready.work.record_count,
            newest_ms=ready.work.newest_ms,
            newest_lsn=ready.work.newest_lsn,
            bad=self._counted(ready.work.name, ready.rows.bad.count),
            broken=self._reported(ready, batch_id),
            offsets=ready.work.ends,
        )

    def _reported(self, ready: Ready, batch_id: int) -> dict[str, int]:
        """Rows that broke a rule, by rule; a batch that was written before is not looked at again."""
        held, rules = ready.rows.held, [rule for rule, _ in ready.rows.rules]
        broken = {rule.name: held.broken.get(rule.name, 0) for rule in rules}
        report_broken(ready.table.name, rules, list(broken.values()), held.rows, batch_id)
        return {name: count for name, count in broken.items() if count}

    def _counted(self, name: str, count: int) -> int:
        if count:
            self._bad.setdefault(name, deque()).append((time.monotonic(), count))
        return count

    def _allowed(self, name: str) -> int:
        """The number of bad records that a table may still have in this hour."""
        recent = self._bad.get(name, deque())
        while recent and time.monotonic() - recent[0][0] > _HOUR_S:
            recent.popleft()
        return max(0, self._settings.max_bad - sum(count for _, count in recent))
