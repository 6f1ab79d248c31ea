"""Findings about a table: what costs time, space or safety, and which option or command changes it.

``diagnose`` decides on values alone; ``examine`` collects them from a table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from engine.lineage.recording import LineageSize, lineage_size
from engine.monitor.holders import Holder, held_symptom, holders_of
from engine.monitor.symptom import Severity, Symptom
from engine.monitor.table_probe import BucketHealth, TableHealth, TableProbe
from engine.monitor.topic_state import (
    TopicState,
    login_symptom,
    places_not_read,
    topic_state,
    topic_symptom,
    unreached_brokers,
)
from engine.runtime.units import age_text, count_text, many_text, size_text
from engine.table import Table
from filestore.compact.attempts import Deaths, deaths_of
from filestore.compact.awaited import emits_by_compaction
from filestore.evolution.stored_login import StoredLogin, find_logins
from filestore.iceberg.places import IcebergState, iceberg_state
from filestore.maintenance.history_repair import read_history
from filestore.options.not_built import NOT_BUILT, not_built_of
from filestore.options.table.common import DAY_MS
from filestore.refs.live_references import branch_names
from filestore.scan.snapshot_files import manifests_of
from filestore.snapshot.commit_times import time_ahead_ms

_FULL_TARGET_BYTES: Final = 64 * 2**20  # below this a bucket is not worth a task of its own
_HUGE_BYTES: Final = 16 * 2**30
_BIG_LINEAGE_BYTES: Final = 2**30
_MANY_FILES: Final = 500
_SKEW: Final = 8
_STALE_LOG_MS: Final = 300_000
_LATE_EXPIRY_MS: Final = 30_000  # a running stream looks every ten seconds, and has more snapshots until then


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The input of the checks."""

    health: TableHealth
    has_key: bool
    write_only: bool
    compaction_trigger: int
    stop_trigger: int
    snapshot_count: int
    oldest_snapshot_age_ms: int
    most_snapshots: int  # snapshot.num-retained.max
    fewest_snapshots: int  # snapshot.num-retained.min
    longest_ms: int  # snapshot.time-retained
    surplus_ms: int  # from the commit that was one too many to the newest; 0: there are not too many
    holders: tuple[Holder, ...]
    manifest_count: int
    manifest_merge_count: int
    options_without_effect: tuple[str, ...] = ()
    fork_ids: tuple[int, ...] = ()  # snapshots beside the history
    missing_ids: tuple[int, ...] = ()  # snapshots lost inside it
    has_wrong_hint: bool = False
    ahead_ms: int | None = None  # of the newest snapshot before this machine's clock
    dead_compactions: tuple[Deaths, ...] = ()
    topic: TopicState | None = None  # of the log; None: there is none
    logins: tuple[StoredLogin, ...] = ()  # files of the table that hold what they should not
    outside: Mapping[str, str] = field(default_factory=dict)  # options with places that are not read, and why
    iceberg: IcebergState | None = None  # None: it has no Iceberg metadata
    lineage: LineageSize | None = None  # of the catalog; None: it records none, or its store is elsewhere
    emits_by_compaction: str | None = None  # the changelog-producer by which followers wait; None: they do not


def examine(table: Table, *, brokers_away: str | None = None) -> Examined:
    """Collect the facts about a table. Raises: UnavailableError, CorruptDataError.

    Args:
        table: the table.
        brokers_away: why the brokers of its log did not answer just now; None: they are asked.
    """
    store, options = table.store, table.options
    unreached = unreached_brokers(table) if brokers_away is None else brokers_away
    health = TableProbe(table, asks_log=unreached is None).look()
    history = read_history(store)
    ids = [each.id for each in history.chain]
    oldest = history.chain[0] if history.chain else None
    snapshot = health.snapshot
    return Examined(
        health=health if unreached is None else replace(health, log_problem=unreached),
        has_key=store.has_key,
        write_only=options.write_only,
        compaction_trigger=options.run_count_trigger,
        stop_trigger=options.run_count_stop_trigger,
        snapshot_count=len(ids),
        oldest_snapshot_age_ms=0 if oldest is None else max(0, health.time_ms - oldest.time_ms),
        most_snapshots=options.snapshot_num_retained_max,
        fewest_snapshots=options.snapshot_num_retained_min,
        longest_ms=options.snapshot_time_retained_ms,
        surplus_ms=_surplus_ms([each.time_ms for each in history.chain], options.snapshot_num_retained_max),
        holders=tuple(holders_of(table.store, health.time_ms)),
        manifest_count=0 if snapshot is None else len(manifests_of(store, snapshot)),
        manifest_merge_count=options.manifest_merge_min_count,
        options_without_effect=tuple(key for key, _ in not_built_of(options) if key in NOT_BUILT),
        fork_ids=tuple(each.id for each in history.forks),
        missing_ids=history.missing_ids,
        has_wrong_hint=history.has_wrong_hint,
        ahead_ms=time_ahead_ms(snapshot, health.time_ms),
        dead_compactions=tuple(deaths_of(store).values()),
        topic=topic_state(table, unreached),
        logins=tuple(find_logins(store, branch_names(store))),
        outside=places_not_read(store),
        iceberg=iceberg_state(store),
        lineage=lineage_size(store),
        emits_by_compaction=options.changelog_producer if emits_by_compaction(store) else None,
    )


def diagnose(seen: Examined) -> list[Symptom]:
    """The result of every check, worst first."""
    found = [check(seen) for check in _CHECKS]
    return sorted(found, key=lambda each: -each.severity)


def _read_amplification(seen: Examined) -> Symptom:
    runs = seen.health.max_runs
    mean = seen.health.sum("sorted_runs") / max(len(seen.health.buckets), 1)
    trigger = seen.compaction_trigger
    values = {"max_sorted_runs": runs, "mean_sorted_runs": round(mean, 1), "compaction_trigger": trigger}
    fact = f"a read merges up to {runs} sorted runs of a bucket, {mean:.1f} on average"
    if not seen.has_key or runs < trigger:
        return Symptom(check="read amplification", severity=Severity.OK, fact=fact, values=values)
    severity = Severity.CRITICAL if runs >= seen.stop_trigger else Severity.WARNING
    if runs <= trigger and not seen.write_only:
        severity = Severity.NOTE
    if seen.write_only:
        fix = "writers do not compact (write-only=true): run fluvial compact --watch, or set write-only=false"
    else:
        fix = (
            "run fluvial compact; if it comes back, give writers more time between batches, or more buckets. "
            f"Expected: at most {trigger} runs"
        )
    if runs >= seen.stop_trigger:
        fact += f"; writers wait at {seen.stop_trigger} (num-sorted-run.stop-trigger)"
    return Symptom(check="read amplification", severity=severity, fact=fact, fix=fix, values=values)


def _compaction_debt(seen: Examined) -> Symptom:
    debt, size = seen.health.compaction_debt, seen.health.sum("size_bytes")
    behind = sum(each.compaction_debt > 0 for each in seen.health.buckets)
    values = {"compaction_debt": debt, "buckets": behind}
    if not debt:
        return Symptom(
            check="compaction debt", severity=Severity.OK, fact="no bucket waits for a compaction", values=values
        )
    fact = f"{many_text(behind, 'bucket')} waiting for a compaction, which reads {size_text(debt)} of {size_text(size)}"
    return Symptom(
        check="compaction debt",
        severity=Severity.NOTE,
        fact=fact,
        fix="fluvial compact pays it now; writers with write-only=false pay it between batches",
        values=values,
    )


def _changes(seen: Examined) -> Symptom:
    producer, rows = seen.emits_by_compaction, seen.health.sum("unemitted_row_count")
    values = {"changelog_producer": producer, "unemitted_row_count": rows}
    if producer is None:
        return Symptom(check="changes", severity=Severity.OK, fact="followers wait for no compaction", values=values)
    fact = f"followers get changes from compactions (changelog-producer={producer}): {many_text(rows, 'row')} waiting"
    if not rows and not seen.write_only:
        return Symptom(check="changes", severity=Severity.OK, fact=fact, values=values)
    if seen.write_only:
        fix = "writers do not compact (write-only=true): run fluvial compact --watch, or set write-only=false"
        return Symptom(check="changes", severity=Severity.WARNING, fact=fact, fix=fix, values=values)
    fix = f"they come with fluvial compact{' --full' if producer == 'full-compaction' else ''}, or further commits"
    return Symptom(check="changes", severity=Severity.NOTE, fact=fact, fix=fix, values=values)


def _space(seen: Examined) -> Symptom:
    rows = seen.health.sum("row_count")
    bottom = sum(each.bottom_row_count for each in seen.health.buckets)
    percent = round(100 * (rows - bottom) / bottom) if bottom else 0
    values = {"row_count": rows, "bottom_row_count": bottom, "percent": percent}
    fact = f"rows above the last level are {percent} % of those in it: older versions take at most that much space"
    if not seen.has_key or percent <= 200:
        return Symptom(check="space amplification", severity=Severity.OK, fact=fact, values=values)
    fix = "fluvial compact --full; compaction.max-size-amplification-percent sets when it happens automatically"
    return Symptom(check="space amplification", severity=Severity.WARNING, fact=fact, fix=fix, values=values)


def _tombstones(seen: Examined) -> Symptom:
    rows, deletes = seen.health.sum("row_count"), seen.health.sum("delete_count")
    percent = round(100 * deletes / rows) if rows else 0
    values = {"delete_count": deletes, "row_count": rows, "percent": percent}
    fact = f"{count_text(deletes)} of {count_text(rows)} rows in files are deletes ({percent} %)"
    if percent < 30:
        return Symptom(check="tombstones", severity=Severity.OK, fact=fact, values=values)
    fix = "fluvial compact --full drops them all; expected: files and reads smaller by about that share"
    return Symptom(check="tombstones", severity=Severity.WARNING, fact=fact, fix=fix, values=values)


def _small_files(seen: Examined) -> Symptom:
    files, small = seen.health.sum("file_count"), seen.health.sum("small_file_count")
    buckets = len(seen.health.buckets)
    mean = seen.health.sum("size_bytes") // max(buckets, 1)
    values = {"file_count": files, "small_file_count": small, "mean_bucket_bytes": mean}
    fact = f"{count_text(small)} of {count_text(files)} files are below an eighth of target-file-size"
    if files < _MANY_FILES:
        fact = f"{many_text(files, 'file')}: with fewer than {_MANY_FILES}, their size costs little"
        return Symptom(check="small files", severity=Severity.OK, fact=fact, values=values)
    if small * 2 < files:
        return Symptom(check="small files", severity=Severity.OK, fact=fact, values=values)
    fix = "fluvial compact --full merges the files of each bucket"
    if mean < _FULL_TARGET_BYTES and buckets > 1:
        fix = (
            f"{many_text(buckets, 'bucket')} hold {size_text(mean)} each: fewer buckets (bucket) or coarser "
            f"partitions; expected: some {size_text(_FULL_TARGET_BYTES)} or more in a bucket"
        )
    return Symptom(check="small files", severity=Severity.WARNING, fact=fact, fix=fix, values=values)


def _bucket_sizes(seen: Examined) -> Symptom:
    sizes = [each.size_bytes for each in seen.health.buckets]
    if not sizes:
        return Symptom(check="bucket sizes", severity=Severity.OK, fact="no data")
    largest = max(seen.health.buckets, key=lambda each: each.size_bytes)
    middle = int(median(sizes))
    values = {"largest": _name(largest), "largest_bytes": largest.size_bytes, "median_bytes": middle}
    fact = (
        f"the largest bucket ({_name(largest)}) has {size_text(largest.size_bytes)}, the median one {size_text(middle)}"
    )
    if largest.size_bytes > _HUGE_BYTES:
        fix = "more buckets (bucket), so that more tasks share the work; rescale the partition"
        return Symptom(check="bucket sizes", severity=Severity.WARNING, fact=fact, fix=fix, values=values)
    if largest.size_bytes > _SKEW * max(middle, _FULL_TARGET_BYTES // _SKEW):
        fix = "one task does most of the work: choose a bucket-key with more even values, or finer partitions"
        return Symptom(check="bucket sizes", severity=Severity.WARNING, fact=fact, fix=fix, values=values)
    return Symptom(check="bucket sizes", severity=Severity.OK, fact=fact, values=values)


def _log_lag(seen: Examined) -> Symptom:
    health = seen.health
    if health.log_problem is not None:
        fix = None if "fix=" in health.log_problem else "look at the brokers, and at log.kafka.bootstrap.servers"
        if fix is not None and seen.topic is not None and seen.topic.problems:
            fix = "see the check of the topic"
        return Symptom(check="log", severity=Severity.CRITICAL, fact=health.log_problem, fix=fix)
    if health.log_lag is None:
        return Symptom(check="log", severity=Severity.OK, fact="the table has no log")
    records = sum(health.log_lag.values())
    values = {"log_lag": records, "buckets": sum(lag > 0 for lag in health.log_lag.values())}
    fact = f"the log is {count_text(records)} rows ahead of the newest snapshot"
    if not records or (health.age_ms or 0) < _STALE_LOG_MS:
        return Symptom(check="log", severity=Severity.OK, fact=fact, values=values)
    fact += f", which is {age_text(health.age_ms or 0)} old"
    fix = "a writer ended between log and commit: start its query again (or see log.on-orphan-batch)"
    return Symptom(check="log", severity=Severity.WARNING, fact=fact, fix=fix, values=values)


def _topic(seen: Examined) -> Symptom:
    return topic_symptom(seen.topic, brokers_answer=seen.health.log_problem is None)


def _held_snapshots(seen: Examined) -> Symptom:
    return held_symptom(seen.holders, longest_ms=seen.longest_ms)


def _retention(seen: Examined) -> Symptom:
    values = {"snapshot_count": seen.snapshot_count, "oldest_age_ms": seen.oldest_snapshot_age_ms}
    fact = f"{many_text(seen.snapshot_count, 'snapshot')}, the oldest {age_text(seen.oldest_snapshot_age_ms)} old"
    too_many = seen.surplus_ms > _LATE_EXPIRY_MS
    too_old = seen.oldest_snapshot_age_ms > 2 * seen.longest_ms and seen.snapshot_count > seen.fewest_snapshots
    if not too_many and not too_old:
        return Symptom(check="retention", severity=Severity.OK, fact=fact, values=values)
    limit = (
        f"snapshot.num-retained.max={seen.most_snapshots}"
        if too_many
        else f"snapshot.time-retained={age_text(seen.longest_ms)}"
    )
    fix = f"expire snapshots: {limit} is not kept to; expected: files that only old snapshots need are deleted"
    return Symptom(check="retention", severity=Severity.WARNING, fact=fact, fix=fix, values=values)


def _manifests(seen: Examined) -> Symptom:
    values = {"manifest_count": seen.manifest_count, "merge_min_count": seen.manifest_merge_count}
    fact = f"planning a read opens {many_text(seen.manifest_count, 'manifest')}"
    if seen.manifest_count <= 4 * seen.manifest_merge_count:
        return Symptom(check="manifests", severity=Severity.OK, fact=fact, values=values)
    fix = "a lower manifest.merge-min-count or manifest.full-compaction-threshold-size merges them sooner"
    return Symptom(check="manifests", severity=Severity.NOTE, fact=fact, fix=fix, values=values)


def _options(seen: Examined) -> Symptom:
    keys = seen.options_without_effect
    values = {"options": ", ".join(keys)}
    if not keys:
        return Symptom(
            check="options", severity=Severity.OK, fact="every option that is set has an effect", values=values
        )
    fact = f"without effect here: {', '.join(f'{key} ({NOT_BUILT[key].instead})' for key in keys)}"
    return Symptom(check="options", severity=Severity.NOTE, fact=fact, fix="reset them, or ignore this", values=values)


def _history(seen: Examined) -> Symptom:
    values = {"forks": len(seen.fork_ids), "missing": len(seen.missing_ids), "wrong_hint": seen.has_wrong_hint}
    if seen.fork_ids:
        fact = f"a paused writer left snapshots beside the history: {', '.join(map(str, seen.fork_ids[:5]))}"
        severity, fix = Severity.CRITICAL, "look at them with verify; repair keeps each as a tag, and removes it"
    elif seen.has_wrong_hint:
        fact, severity, fix = "a hint names another snapshot than the first or last", Severity.WARNING, "run repair"
    elif seen.missing_ids:
        fact = f"{many_text(len(seen.missing_ids), 'snapshot')} inside the history cannot be read any more"
        severity, fix = Severity.WARNING, "look at the table with verify; time travel to them is not possible"
    else:
        fact = f"{many_text(seen.snapshot_count, 'snapshot follows', 'snapshots follow')} each other without a gap"
        return Symptom(check="history", severity=Severity.OK, fact=fact, values=values)
    return Symptom(check="history", severity=severity, fact=fact, fix=fix, values=values)


def _clock(seen: Examined) -> Symptom:
    if seen.ahead_ms is None:
        return Symptom(check="clock", severity=Severity.OK, fact="the newest snapshot is not in the future")
    fact = f"the newest snapshot is {age_text(seen.ahead_ms)} ahead of this machine's clock"
    fix = "correct the clock of this machine, or of the one that committed it; the next commit has the true time again"
    values = {"ahead_ms": seen.ahead_ms}
    return Symptom(check="clock", severity=Severity.WARNING, fact=fact, fix=fix, values=values)


def _stored_login(seen: Examined) -> Symptom:
    return login_symptom(seen.logins, seen.outside)


def _lineage(seen: Examined) -> Symptom:
    if seen.lineage is None:
        return Symptom(check="lineage", severity=Severity.OK, fact="no store of lineage grows in the warehouse")
    size, retained_ms = seen.lineage.size_bytes, seen.lineage.retained_ms
    values = {"size_bytes": size, "retained_ms": retained_ms}
    kept = "without limit" if retained_ms is None else f"for {age_text(retained_ms)}"
    fact = f"lineage is kept {kept}: {size_text(size)}"
    if retained_ms is not None or size < _BIG_LINEAGE_BYTES:
        return Symptom(check="lineage", severity=Severity.OK, fact=fact, values=values)
    fix = "set lineage.data.time-retained of the catalog"
    return Symptom(check="lineage", severity=Severity.NOTE, fact=fact, fix=fix, values=values)


def _dead_compactions(seen: Examined) -> Symptom:
    recent = [each for each in seen.dead_compactions if seen.health.time_ms - each.last_ms < DAY_MS]
    count = sum(each.count for each in recent)
    values = {"deaths": count, "buckets": ", ".join(sorted({str(each.bucket) for each in recent}))}
    if not recent:
        fact = "no compaction was killed within a day"
        return Symptom(check="dead compactions", severity=Severity.OK, fact=fact, values=values)
    severity = Severity.WARNING if any(each.is_final for each in recent) else Severity.NOTE
    fact = f"{many_text(count, 'compaction was killed', 'compactions were killed')} within a day, probably for memory"
    fix = "give what compacts more memory, or set a smaller sort-spill-buffer-size; then run fluvial compact --full"
    return Symptom(check="dead compactions", severity=severity, fact=fact, fix=fix, values=values)


def _iceberg(seen: Examined) -> Symptom:
    if seen.iceberg is None:
        return Symptom(check="iceberg", severity=Severity.OK, fact="the table has no Iceberg metadata")
    values = {"shown": seen.iceberg.shown, "behind": seen.iceberg.behind, "directory": seen.iceberg.directory}
    fact = f"Iceberg readers find {seen.iceberg}"
    if not seen.iceberg.behind:
        return Symptom(check="iceberg", severity=Severity.OK, fact=fact, values=values)
    fix = "the next commit catches up; if it does not, the warning fluvial.iceberg of the writer says why"
    return Symptom(check="iceberg", severity=Severity.WARNING, fact=fact, fix=fix, values=values)


_CHECKS: Final[tuple[Callable[[Examined], Symptom], ...]] = (
    _read_amplification,
    _compaction_debt,
    _dead_compactions,
    _changes,
    _space,
    _tombstones,
    _small_files,
    _bucket_sizes,
    _log_lag,
    _topic,
    _held_snapshots,
    _retention,
    _manifests,
    _history,
    _clock,
    _stored_login,
    _iceberg,
    _lineage,
    _options,
)


def _surplus_ms(times_ms: Sequence[int], most: int) -> int:
    return max(0, times_ms[-1] - times_ms[most]) if len(times_ms) > most else 0


def _name(bucket: BucketHealth) -> str:
    return f"{bucket.partition}/{bucket.bucket}" if bucket.partition is not None else str(bucket.bucket)
