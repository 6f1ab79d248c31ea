"""log.changelog-mode=all with changelog-producer=lookup: the log gets what a batch changes, whatever the merge engine.

One process stands for driver and tasks. Consumers believe every word: a -U or -D must be the row reported before.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.log.table_log import TableLog
from engine.runtime.steps import Observer, Step, StepEvent, ignore
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from engine.write.batch_writer import BatchWriter
from filestore.changelog.snapshot_changes import plan_diff, read_changes
from filestore.evolution.schema_change import AddColumn
from filestore.maintenance.orphans import find_orphans
from filestore.snapshot.snapshot import CHANGES_KEY, Snapshot
from filestore.types.data_types import DataType
from lsm.errors import ConflictError, FluvialError
from tests.support.changelogs import ENGINES, SCHEMA, State, apply, row_values
from tests.support.logs import Row, log_changes, write_batch
from tests.support.streams import as_foreign, query
from tests.support.tails import DiedError, adopt, forget_after, write_aborted, write_log_only
from tests.support.warehouses import new_table

pytestmark = pytest.mark.broker

EXACT = {"log.changelog-mode": "all", "changelog-producer": "lookup", "write-only": "true"}


def exact_table(broker: Broker, home: Path, engine: str = "deduplicate", **more: str) -> Table:
    options = {**EXACT, **ENGINES[engine][0], **{key.replace("_", "-"): text for key, text in more.items()}}
    return new_table(home, SCHEMA, broker=broker, key=["p", "id"], options=options)


def data(*rows: tuple[Any, ...]) -> pa.Table:
    """Rows of (kind, id, v, s, g); what is left out is null."""
    names = ("_row_kind", "id", "v", "s", "g")
    filled = [{"p": "a", **dict.fromkeys(names), **dict(zip(names, row, strict=False))} for row in rows]
    return pa.Table.from_pylist(filled, schema=SCHEMA.append(pa.field("_row_kind", pa.string())))


def in_log(table: Table) -> list[tuple[str, int, Any]]:
    """Adds and retracts, with id and v."""
    return [("-" if kind.is_retract else "+", row["id"], row["v"]) for kind, row in log_changes(table)]


def read_log(table: Table) -> list[tuple[Any, ...]]:
    """As a stream that reads the log from its beginning; kinds are paired again."""
    return change_rows(query(table, log__scan="from-timestamp", **{"log_scan.timestamp-mills": "0"}).available())


def change_rows(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    return [(row["_row_kind"], *(row[name] for name in SCHEMA.names)) for row in rows]


def writer(table: Table, user: str = "q", observe: Observer = ignore) -> BatchWriter:
    return BatchWriter(table.files, TableLog.of(table.files), commit_user=user, observe=observe)


def state_of(table: Table) -> State:
    """Every row of the newest snapshot, whichever level it is in."""
    found: State = {}
    latest = table.latest_snapshot()
    for split in plan_diff(table.store, None, latest) if latest else ():
        for batch, _ in read_changes(table.files, split):
            found |= {(row["p"], row["id"]): tuple(row.values()) for row in batch.to_pylist()}
    return found


class Consumer:
    """A stream of the log that believes every word."""

    def __init__(self, table: Table, **options: str) -> None:
        """It begins with the table as it is."""
        self.table = table
        self.state: State = {}
        self.stream = query(table, **options)
        self.read()

    def read(self) -> list[tuple[Any, ...]]:
        """What is new, which must lead to the rows of the table."""
        found = change_rows(self.stream.available())
        apply(self.state, found, drops_equal=False)
        assert self.state == state_of(self.table)
        return [(kind, row_id, v) for kind, _, row_id, v, *_ in found]


# ---- what is reported


def test_the_log_holds_what_each_batch_changes(broker: Broker, tmp_path: Path) -> None:
    """FL-132, FL-135: the input has no -U and no old rows; the row is a sum, and the log has sums."""
    table = exact_table(broker, tmp_path, "aggregation-deletes")
    consumer = Consumer(table)
    table.write(data(("+I", 1, 10), ("+I", 2, 20), ("+I", 2, 2)))
    assert consumer.read() == [("+I", 1, 10), ("+I", 2, 22)]
    table.write(data(("+I", 3, 30), ("-D", 2), ("+U", 1, 5), ("-D", 9)))
    assert in_log(table) == [("+", 1, 10), ("+", 2, 22), ("-", 1, 10), ("+", 1, 15), ("-", 2, 22), ("+", 3, 30)]
    assert consumer.read() == [("-U", 1, 10), ("+U", 1, 15), ("-D", 2, 22), ("+I", 3, 30)]
    table.write(data(("-D", 7), ("-D", 8)))
    assert consumer.read() == [], "nothing changed, nothing is reported"
    assert len(in_log(table)) == 6
    table.compact(full=True)
    assert consumer.read() == []
    assert table.log is not None
    assert [snapshot.properties[CHANGES_KEY] for snapshot in snapshots(table)] == ["log", "log", "log", "none"]


def snapshots(table: Table) -> list[Snapshot]:
    return [table.store.snapshots.read(each) for each in table.store.snapshots.ids()]


def test_streams_need_no_normalizer_and_no_files(broker: Broker, tmp_path: Path) -> None:
    """FL-132, FL-137, FL-138: by log for every engine; log.scan.normalize has nothing to do."""
    table = exact_table(broker, tmp_path, "partial-update")
    Consumer(table, streaming__read__mode="log")
    table.write(data(("+I", 1, 10, None), ("+I", 2, None, "x")))
    plain = Consumer(table)
    normalized = Consumer(table, log_scan_normalize="true")
    table.write(data(("+U", 1, None, "yy"), ("+U", 2, 3, None)))
    expected = [("-U", 1, 10), ("+U", 1, 10), ("-U", 2, None), ("+U", 2, 3)]
    assert plain.read() == normalized.read() == expected
    assert plain.stream.position["offsets"], "it reads the log"


def test_a_writer_of_an_older_schema_tells_the_columns_that_it_does_not_know(broker: Broker, tmp_path: Path) -> None:
    """FL-132: the rows of the table have them, so the log must; its marker names the version of the rows."""
    old = exact_table(broker, tmp_path, "partial-update")
    old.write(data(("+I", 1, 10)))
    catalog = Catalog(str(tmp_path))
    catalog.alter_table(old.name, [AddColumn(path=("w",), type=DataType(root="BIGINT"))])
    table = catalog.table(old.name)
    consumer = query(table)
    consumer.available()
    table.write(data(("+U", 1, None)).append_column("w", pa.array([7], pa.int64())))
    old.write(data(("+U", 1, None, "x")))
    found = [(row["_row_kind"], row["v"], row["s"], row["w"]) for row in consumer.available()]
    assert found == [
        ("-U", 10, None, None),
        ("+U", 10, None, 7),
        ("-U", 10, None, 7),
        ("+U", 10, "x", 7),
    ]
    assert table.log is not None
    marker = table.log.fence_all()[0].marker
    assert marker is not None
    assert marker.schema_id == table.schema.id


deeds = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "compact", "abort", "orphan", "task dies", "driver dies"]),
        st.lists(st.tuples(row_values, st.sampled_from(["+I", "+I", "+U", "-D"])), min_size=1, max_size=8),
    ),
    min_size=3,
    max_size=8,
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ["sequence-field", "sequence-group", "aggregation-retracts", "first-row"])
@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(history=deeds, buckets=st.integers(1, 2))
def test_the_log_folded_is_the_table_whoever_dies(
    engine: str, broker: Broker, history: list[tuple[str, Any]], buckets: int
) -> None:
    """FL-132, FL-135: after each batch; and every snapshot with the log behind it is the table at the end (union)."""
    with tempfile.TemporaryDirectory() as root:
        table = exact_table(broker, Path(root), engine, bucket=str(buckets))
        consumer = Consumer(table)
        takes_deletes = ENGINES[engine][1]
        for number, (deed, made) in enumerate(history):
            rows = pa.Table.from_pylist(
                [{**row, "_row_kind": kind if takes_deletes else "+I"} for row, kind in made],
                schema=SCHEMA.append(pa.field("_row_kind", pa.string())),
            )
            match deed:
                case "compact":
                    table.compact(full=True)
                case "abort":
                    write_aborted(table, rows)
                case "orphan":
                    write_log_only(table, rows)
                    adopt(table, rows)
                case "task dies" | "driver dies":
                    step = Step.LOG_COMMITTED if deed == "task dies" else Step.TASKS_DONE
                    with pytest.raises(DiedError):
                        write_batch(writer(table, observe=dying_at(step)), number, rows)
                    write_batch(writer(table), number, rows)
                case _:
                    write_batch(writer(table), number, rows)
            consumer.read()
        expected = table.read().to_arrow().sort_by("id").sort_by("p")
        for snapshot_id in reversed([0, *table.store.snapshots.ids()]):
            forget_after(table, snapshot_id)
            found = table.read(options={"scan.log.union": "true"}).to_arrow()
            if engine != "first-row":  # of which rows in level 0 are not read
                assert found.sort_by("id").sort_by("p") == expected, f"snapshot={snapshot_id}"


def dying_at(step: Step) -> Observer:
    def observe(event: StepEvent) -> None:
        if event.step is step:
            raise DiedError

    return observe


# ---- others in between


STEPS = [
    Step.BATCH_STARTED,
    Step.PART_STARTED,
    Step.BUCKET_FENCED,
    Step.ROWS_WRITTEN,
    Step.FILES_FLUSHED,
    Step.CHANGES_EMITTED,
    Step.LOG_COMMITTED,
    Step.PART_DONE,
    Step.TASKS_DONE,
]


def at(step: Step, act: Callable[[], object]) -> Observer:
    """Acts once, at the first event of a step."""
    done: list[StepEvent] = []

    def observe(event: StepEvent) -> None:
        if event.step is step and not done:
            done.append(event)
            act()

    return observe


def foreign(table: Table, rows: pa.Table) -> None:
    """Another engine appends: it knows no log."""
    table.write(rows, options={"change-tracking": "false"})
    as_foreign(table)


OTHERS: Mapping[str, Callable[[Table], object]] = {
    "foreign": lambda table: foreign(table, data(("+I", 1, 100), ("+I", 5, 500))),
    "overwrite": lambda table: table.overwrite(data(("+I", 1, 7))),
    "truncate": lambda table: table.overwrite(data(("+I", 1, 7)).slice(0, 0), partition={}),
    "compact": lambda table: table.compact(full=True),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("other", OTHERS)
def test_whoever_writes_without_the_log_meanwhile_no_change_is_told_wrong(
    broker: Broker, tmp_path: Path, other: str
) -> None:
    """FL-132, FL-135: what came before the look is part of what is reported; what came after it makes files tell it.

    At steps of a batch. Sums show every row that was overlooked or counted twice.
    """
    table = exact_table(broker, tmp_path, "aggregation-deletes", streaming_read_overwrite="true")
    consumer = Consumer(table)
    around_the_look = [Step.BATCH_STARTED, Step.FILES_FLUSHED, Step.CHANGES_EMITTED, Step.TASKS_DONE]
    for number, step in enumerate(STEPS if other == "foreign" else around_the_look):
        table.write(data(("+I", 1, 10), ("+I", 2, 20), ("+I", 3, 30)))
        meanwhile = at(step, lambda: OTHERS[other](table))
        write_batch(writer(table, observe=meanwhile), number, data(("+I", 1, 1), ("-D", 2), ("+I", 4, number)))
        is_late = other != "compact" and STEPS.index(step) > STEPS.index(Step.FILES_FLUSHED)
        assert newest(table).properties[CHANGES_KEY] == ("files" if is_late else "log"), step
        consumer.read()
    table.write(data(("+I", 1, 1), ("+I", 4, 5)))
    assert newest(table).properties[CHANGES_KEY] == "log"
    consumer.read()
    assert Consumer(table, scan_mode="from-snapshot", scan_snapshot__id="1").state == consumer.state
    united = table.read(options={"scan.log.union": "true"}).to_arrow()
    assert united.sort_by("id") == table.read().to_arrow().sort_by("id")


def test_a_batch_that_was_overtaken_while_its_writer_was_dead_is_told_by_files(broker: Broker, tmp_path: Path) -> None:
    """FL-135: the marker remembers in which snapshot the changes were looked up."""
    table = exact_table(broker, tmp_path, "aggregation-deletes")
    table.write(data(("+I", 1, 10)))
    consumer = Consumer(table)
    for number, other in enumerate([OTHERS["compact"], OTHERS["foreign"]]):
        with pytest.raises(DiedError):
            write_batch(writer(table, observe=dying_at(Step.TASKS_DONE)), number, data(("+I", 1, 1)))
        other(table)
        consumer.read()
        write_batch(writer(table), number, data(("+I", 1, 1000)))  # what a replay computes does not matter
        assert newest(table).properties[CHANGES_KEY] == ("log" if number == 0 else "files")
        consumer.read()
    assert consumer.state["a", 1][2] == 112


def test_another_writer_of_the_log_is_looked_up_or_stops_the_batch(broker: Broker, tmp_path: Path) -> None:
    """FL-87, FL-132: until the bucket is fenced it may come first; later one of the two gets a conflict.

    The one that got it writes again, and then nothing is missing or reported twice.
    """
    table = exact_table(broker, tmp_path, "aggregation-deletes")
    consumer = Consumer(table)
    expected = 0
    for number, step in enumerate(STEPS):
        refused: list[str] = []

        def other(number: int = number, refused: list[str] = refused) -> None:
            try:
                write_batch(writer(table, user="other"), number, data(("+I", 1, 100)))
            except FluvialError:
                refused.append("other")

        try:
            write_batch(writer(table, observe=at(step, other)), number, data(("+I", 1, 1)))
        except FluvialError:
            refused.append("q")
        last_with_both = STEPS.index(Step.PART_STARTED)
        first_of_ours = STEPS.index(Step.LOG_COMMITTED)
        assert refused == ([] if number <= last_with_both else ["q"] if number < first_of_ours else ["other"]), step
        consumer.read()
        for user in refused:
            write_batch(writer(table, user=user), number, data(("+I", 1, 1 if user == "q" else 100)))
        expected += 101
        consumer.read()
        assert consumer.state == {("a", 1): ("a", 1, expected, None, None)}
        assert {snapshot.properties[CHANGES_KEY] for snapshot in snapshots(table)} == {"log"}
    assert find_orphans(table.store, before_ms=2**62) == [], "files that were numbered again are gone"


def test_a_zombie_and_its_successor_tell_the_changes_once(broker: Broker, tmp_path: Path) -> None:
    """FL-132: a second attempt at every step of a task that lives on; files and offsets are those of one of them."""
    table = exact_table(broker, tmp_path, "aggregation-deletes")
    table.write(data(("+I", 1, 1000)))
    consumer = Consumer(table)
    for number, step in enumerate(STEPS[1:-1]):
        driver = writer(table)
        second: list[list[BucketResult]] = []

        def run(spec: BatchSpec, step: Step = step, second: list[list[BucketResult]] = second) -> list[BucketResult]:
            rows = data(("+I", 1, 1), ("-D", 2)).to_batches()
            zombie = replace(spec, observe=at(step, lambda: second.append(write_part(spec, rows))))
            try:
                first = write_part(zombie, rows)
            except ConflictError:
                assert step not in (Step.PART_STARTED, Step.LOG_COMMITTED, Step.PART_DONE)
            else:
                assert [(each.messages, each.log_slice, each.changelog_base_snapshot) for each in first] == [
                    (each.messages, each.log_slice, each.changelog_base_snapshot) for each in second[0]
                ]
            return second[0]

        driver.write(number, run)
        assert consumer.read() == [("-U", 1, 1000 + number), ("+U", 1, 1001 + number)]
    assert len(in_log(table)) == 1 + 2 * len(STEPS[1:-1])
    assert find_orphans(table.store, before_ms=2**62) == [], "attempts that lost leave no file"


def newest(table: Table) -> Snapshot:
    found = table.latest_snapshot()
    assert found is not None
    return found
