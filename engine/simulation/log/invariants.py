"""What must hold between a table and its log at the end of a history, and for every read on the way."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from engine.simulation.log.operations import DELETED, LOG_TOPIC, TWIN, WITHOUT_LOG
from engine.simulation.model import Deed, frozen, on_table, put
from engine.simulation.operations import TABLE, LogRead
from engine.simulation.stored_state import Root, StoredTable
from logstore.kafka.memory.cluster import MemoryCluster

_MARKER: Final = "fluvial"
_DELETES: Final = ("d",)

RowValues = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class LogChange:
    """One committed record."""

    bucket: int
    offset: int
    is_add: bool
    key: int
    value: int
    ends_batch: bool  # it has the marker of a whole batch


class StoredLog:
    """The committed records of a log, also those that retention has deleted, in the order of each bucket."""

    def __init__(self, cluster: MemoryCluster) -> None:
        cluster.settle()
        self.changes: list[LogChange] = []
        for bucket, partition in enumerate(cluster.topic(LOG_TOPIC).partitions):
            for each in partition.committed(0):
                if not each.given.value:
                    continue  # a control record: the table has changed without its log
                body: dict[str, Any] = orjson.loads(each.given.value)
                is_add = body["op"] not in _DELETES
                row = body["after"] if is_add else body["before"]
                ends = any(name == _MARKER and _is_final(value) for name, value in each.given.headers)
                self.changes.append(LogChange(bucket, each.offset, is_add, row["id"], row["v"], ends))

    def rows(self, ends: Mapping[int, int] | None, *, has_key: bool) -> RowValues:
        """The rows that the log makes, by key, up to these ends of its buckets; None: all."""
        until = [each for each in self.changes if ends is None or each.offset < ends.get(each.bucket, 0)]
        if not has_key:
            return tuple(sorted((each.key, each.value) for each in until if each.is_add))
        known: dict[int, int] = {}
        for each in until:
            if each.is_add:
                known[each.key] = each.value
            else:
                known.pop(each.key, None)
        return frozen(known)

    def added(self, key: int, value: int) -> list[LogChange]:
        """The records that add a row."""
        return [each for each in self.changes if each.is_add and (each.key, each.value) == (key, value)]


def deeds_by_log(log: StoredLog, deeds: Sequence[Deed], end: int) -> list[Deed]:
    """The operations of a history, those without an answer as the log knows them.

    What a dead or refused writer has in the log is published by the writer that takes it over, perhaps a part of a
    batch, and nothing else of it ever is: so each row that is there was written at some moment, and no other row.

    Args:
        log: at the end.
        deeds: as their callers saw them.
        end: step behind the history.
    """
    found: list[Deed] = []
    for deed in _one_of_twins(deeds):
        if deed.name == "log-delete" and not deed.is_acknowledged:
            deleted = any(not each.is_add and each.key == DELETED for each in log.changes)
            found.append(replace(deed, may_be_done=deleted, published=None))
        elif deed.name in WITHOUT_LOG or not deed.name.startswith("log-") or not deed.rows:
            found.append(deed if deed.name != "log-delete" else replace(deed, published=None))
            continue
        elif deed.is_acknowledged:
            # who was taken for dead finds that another writer has published some of its buckets, and adds the others
            found += [
                replace(deed, effect=on_table(TABLE, put({key: value})), published=None, rows={key: value})
                for key, value in deed.rows.items()
            ]
            continue
        for key, value in deed.rows.items():
            if log.added(key, value):
                effect = on_table(TABLE, put({key: value}))
                found.append(
                    replace(
                        deed, effect=effect, is_acknowledged=True, may_be_done=False, published=None,
                        ended=max(end, deed.ended), rows={key: value},
                    )
                )  # fmt: skip
    return found


def _one_of_twins(deeds: Sequence[Deed]) -> Iterator[Deed]:
    """Runs of one query with one batch are one operation, whichever of them did it."""
    twins = [deed for deed in deeds if deed.name == TWIN]
    yield from (deed for deed in deeds if deed.name != TWIN)
    if twins:
        moments = [deed.published for deed in twins if deed.published is not None]
        yield replace(
            twins[0],
            ended=max(deed.ended for deed in twins),
            is_acknowledged=any(deed.is_acknowledged for deed in twins),
            may_be_done=any(deed.may_be_done for deed in twins),
            published=moments[0] if len(moments) == 1 else None,
            began=min(deed.began for deed in twins),
        )


def log_problems(
    log: StoredLog,
    table: StoredTable,
    snapshots: Sequence[Root],
    deeds: Sequence[Deed],
    reads: Iterable[LogRead],
    *,
    has_key: bool,
) -> Iterator[str]:
    """What is wrong between a log and its table. All that was in the log alone has been published before.

    Args:
        log: at the end.
        table: at the end.
        snapshots: those of the table that are whole, oldest first.
        deeds: the operations of the history.
        reads: of files and log, on the way.
        has_key: of the table.
    """
    yield from _rows_that_are_not_once(log, deeds)
    yield from _wrong_offsets(log, snapshots)
    if any(deed.name in WITHOUT_LOG and (deed.is_acknowledged or deed.may_be_done) for deed in deeds):
        return
    for root in snapshots:
        wanted = log.rows(_offsets(root), has_key=has_key)
        found = tuple(table.rows(root.snapshot))
        if found != wanted:
            yield f"a snapshot is not its log: {root} offsets={_offsets(root)} rows={found} log={wanted}"
    everything = log.rows(None, has_key=has_key)
    if snapshots and tuple(table.rows(snapshots[-1].snapshot)) != everything:
        rows = table.rows(snapshots[-1].snapshot)
        yield f"the table is not the whole log: rows={rows} log={everything}"
    for read in reads:
        wanted = log.rows(read.offsets, has_key=has_key)
        if read.rows != wanted:
            yield f"a union read is wrong: offsets={dict(read.offsets)} rows={read.rows} expected={wanted}"
        yield from _rows_that_a_read_lacks(log, deeds, read)


def _rows_that_are_not_once(log: StoredLog, deeds: Sequence[Deed]) -> Iterator[str]:
    acknowledged: dict[tuple[int, int], bool] = {}
    for deed in deeds:
        for row in deed.rows.items():
            acknowledged[row] = acknowledged.get(row, False) or deed.is_acknowledged
    for (key, value), is_acknowledged in acknowledged.items():
        found = log.added(key, value)
        if len(found) > 1 or (is_acknowledged and not found):
            places = [f"{each.bucket}@{each.offset}" for each in found]
            yield f"a row is in the log {len(found)} times: row=({key}, {value}) places={places}"


def _wrong_offsets(log: StoredLog, snapshots: Sequence[Root]) -> Iterator[str]:
    """A snapshot ends behind the last record of a batch, and none before the one that it follows."""
    ends = {(each.bucket, each.offset + 1) for each in log.changes if each.ends_batch}
    before: Mapping[int, int] = {}
    for root in snapshots:
        offsets = _offsets(root)
        wrong = {bucket: at for bucket, at in offsets.items() if at and (bucket, at) not in ends}
        if wrong:
            yield f"a snapshot does not end with a batch of the log: {root} offsets={wrong}"
        if any(offsets.get(bucket, 0) < at for bucket, at in before.items()):
            yield f"a snapshot goes back in the log: {root} offsets={offsets} before={before}"
        before = offsets


def _rows_that_a_read_lacks(log: StoredLog, deeds: Sequence[Deed], read: LogRead) -> Iterator[str]:
    for deed in deeds:
        if not deed.is_acknowledged or deed.ended >= read.began:
            continue
        for key, value in deed.rows.items():
            if any(each.offset >= read.offsets.get(each.bucket, 0) for each in log.added(key, value)):
                yield f"a union read lacks what was acknowledged: row=({key}, {value}) offsets={dict(read.offsets)}"


def _offsets(root: Root) -> dict[int, int]:
    return {int(bucket): at for bucket, at in root.snapshot.get("logOffsets", {}).items()}


def _is_final(header: bytes) -> bool:
    return bool(orjson.loads(header.partition(b"\n")[0])["final"])
