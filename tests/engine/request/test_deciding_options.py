"""Each option that decides about rows decides: a literal case shows other rows with it and without it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.procedures import create_savepoint, create_tag, expire_partitions
from engine.request.read_keys import BATCH_KEYS
from engine.request.writer_options import BATCH_WRITE_KEYS
from engine.spark.read_options import ReadOptions
from engine.spark.write_options import WriteOptions
from filestore.branch.branches import create_branch
from filestore.evolution.schema_change import DropColumn, SetOption
from filestore.options.not_built import NOT_BUILT
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from lsm.errors import FluvialError
from tests.support.logs import log_changes
from tests.support.row_options import row_deciding_options
from tests.support.streams import query
from tests.support.tails import write_log_only

ROOT: Final = Path(__file__).resolve().parents[3]
SERVERS: Final = {"log.kafka.bootstrap.servers": "memory:9092"}
ITEM: Final = pa.struct([("a", pa.int32()), ("b", pa.int32())])
SCHEMA: Final = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), pa.field("p", pa.string(), nullable=False), ("v", pa.int64()),
     ("w", pa.int64()), ("s", pa.string()), ("t", pa.timestamp("ms")), ("u", pa.timestamp("ms")), ("n", pa.list_(ITEM))]
)  # fmt: skip
LONG_AGO: Final = datetime(2001, 1, 1)
LATE: Final = datetime(2999, 1, 1)
Options = Mapping[str, str]
Change = Mapping[str, Any]


def add(k: int, v: int | None = None, *, kind: str = "+I", p: str = "a", **more: Any) -> Change:
    """A change of a row."""
    return {"_row_kind": kind, "k": k, "p": p, "v": v, **more}


def gone(k: int, v: int | None = None, **more: Any) -> Change:
    """A row is deleted."""
    return add(k, v, kind="-D", **more)


def changes_of(*changes: Change) -> pa.Table:
    """Changes as a writer gives them."""
    columns = {name: [each.get(name) for each in changes] for name in SCHEMA.names}
    kinds = [each["_row_kind"] for each in changes]
    rows = pa.table(columns, schema=SCHEMA)
    return rows if {*kinds} == {"+I"} else rows.append_column("_row_kind", pa.array(kinds))


def in_case(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a case compares of a row."""
    kind = (row["_row_kind"],) if "_row_kind" in row else ()
    return (*kind, row["k"], row["v"])


@dataclass(frozen=True, slots=True)
class Place:
    """A catalog, with brokers in this process."""

    catalog: Catalog
    cluster: MemoryCluster

    def table(self, options: Options, *changes: Change, key: tuple[str, ...] = ("k",), parts: str = "") -> Table:
        """The table ``d.t`` with these rows, a bucket where none is said."""
        given = {"bucket": "1"} if key else {}
        made = self.catalog.create_table(
            "d.t", SCHEMA, primary_key=key, partition_by=parts.split(), options={**given, **options}
        )
        return self.write(made, changes) if changes else made

    def write(self, table: Table, changes: tuple[Change, ...], **options: str) -> Table:
        """One batch."""
        table.write(changes_of(*changes), options={key.replace("_", "."): text for key, text in options.items()})
        return table


Seen = Callable[[Place, Options], Any]


@dataclass(frozen=True, slots=True)
class Case:
    """What a reader gets without an option and with it."""

    key: str
    value: str
    see: Seen
    without: Any
    given: Any  # with it
    beside: Options = field(default_factory=dict)  # of both


def of_table(
    *batches: tuple[Change, ...], key: tuple[str, ...] = ("k",), parts: str = "", column: str | None = None
) -> Seen:
    """The rows of a table with an option, after some batches."""

    def see(place: Place, options: Options) -> Any:
        table = place.table(options, key=key, parts=parts)
        for each in batches:
            place.write(table, each)
        return rows_read(table, column)

    return see


def rows_read(table: Table, column: str | None = None, **given: str) -> list[Any]:
    """The rows of a batch read."""
    found = table.read(options=given).to_arrow().to_pylist()
    return sorted((row["k"], row[column]) if column else in_case(row) for row in found)


def change_stream(
    first: tuple[Change, ...], *later: tuple[Change, ...], key: tuple[str, ...] = ("k",), act: str = "write"
) -> Seen:
    """What a stream delivers of batches after the first, of a table with an option."""

    def see(place: Place, options: Options) -> Any:
        table = place.table(options, *first, key=key)
        stream = query(table)
        stream.available()
        for each in later:
            place.write(table, each) if act == "write" else table.overwrite(changes_of(*each))
        return [in_case(row) for row in stream.available()]

    return see


def stream_rows(*batches: tuple[Change, ...], late: tuple[Change, ...] = (), **stored: str) -> Seen:
    """What a stream that is given an option delivers of some batches, and of one that comes after its start."""

    def see(place: Place, options: Options) -> Any:
        table = place.table(dotted(stored))
        for each in batches:
            place.write(table, each)
        stream = query(table, **{key.replace(".", "_").replace("-", "__"): text for key, text in options.items()})
        found = stream.available()
        if late:
            place.write(table, late)
            found += stream.available()
        return [in_case(row) for row in found]

    return see


def dotted(options: Mapping[str, str]) -> dict[str, str]:
    return {key.replace("__", "-").replace("_", "."): text for key, text in options.items()}


def sizes(*batches: tuple[Change, ...]) -> Seen:
    """How many rows each micro-batch of a stream has that is given an option."""

    def see(place: Place, options: Options) -> Any:
        table = place.table({})
        for each in batches:
            place.write(table, each)
        stream = query(table, **{key.replace(".", "_").replace("-", "__"): text for key, text in options.items()})
        return [len(rows) for rows in iter(stream.batch, None)]

    return see


def read_rows(prepare: Callable[[Table], object] = lambda table: None, *, log: bool = False) -> Seen:
    """What a batch read that is given an option gets of three snapshots: k=1, 2, 3."""

    def see(place: Place, options: Options) -> Any:
        table = place.table(SERVERS if log else {}, add(1, 10))
        place.write(table, (add(2, 20),))
        prepare(table)
        place.write(table, (add(3, 30),))
        time_ms = table.store.snapshots.read(2).time_ms
        given = {key: text.replace("TIME", str(time_ms)) for key, text in options.items()}
        found = table.read(options=given).to_arrow()
        return sorted(map(in_case, found.to_pylist())) if "v" in found.column_names else found.column_names

    return see


def stored_read(prepare: Callable[[Table], object]) -> Seen:
    """The same of a table that has the option."""

    def see(place: Place, options: Options) -> Any:
        table = place.table({}, add(1, 10), parts="p", key=("p", "k"))
        prepare(table)
        place.catalog.alter_table("d.t", [SetOption(key, text) for key, text in options.items()])
        return rows_read(place.catalog.table("d.t"))

    return see


def on_dev(table: Table) -> None:
    """A branch with a row of its own in partition a, and one in b."""
    create_branch(table.store, "dev", snapshot_id=1)
    dev = table.files.on_branch("dev")
    Table(dev).write(changes_of(add(7, 70), add(8, 80, p="b")))


def write_rows(frame: Callable[[Table], pa.Table], column: str = "v") -> Seen:
    """What a writer that is given an option leaves."""

    def see(place: Place, options: Options) -> Any:
        table = place.table({}, add(1, 10))
        table.write(frame(table), options=dict(options))
        found = place.catalog.table("d.t").read().to_arrow()
        return found[column].to_pylist() if column in found.column_names else found.column_names

    return see


def single_row(**columns: pa.Array) -> pa.Table:
    return pa.table({"k": pa.array([2], pa.int64()), "p": pa.array(["a"]), **columns})


def overwritten(place: Place, options: Options) -> Any:
    table = place.table(options, add(1, 10), add(2, 20, p="b"), parts="p", key=("p", "k"))
    table.overwrite(changes_of(add(3, 30)))
    return rows_read(table)


def expired(*days: str, at_most: bool = False) -> Seen:
    """Which partitions are left of some days, after an expiry that a table's options describe."""

    def see(place: Place, options: Options) -> Any:
        table = place.table(options, *(add(1, 1, p=day) for day in days), parts="p", key=("p", "k"))
        expire_partitions(table)
        return sorted(row["p"] for row in table.read().to_arrow().to_pylist())

    return see


def tracked(place: Place, options: Options) -> Any:
    """Changes of two partitions, of a writer or table with an option."""
    table = place.table({}, add(1, 10), parts="p", key=("p", "k"))
    stream = query(table)
    stream.available()
    if "change-tracking.untracked-partitions" in options:
        place.catalog.alter_table("d.t", [SetOption(key, text) for key, text in options.items()])
        table = place.catalog.table("d.t")
        options = {}
    table.write(changes_of(add(2, 20)), options=dict(options))
    table.write(changes_of(add(3, 30, p="b")))
    return [in_case(row) for row in stream.available()]


def of_topic(*later: tuple[Change, ...], act: str = "write") -> Seen:
    """What a stream of the log delivers of a table with an option."""
    inner = change_stream((add(1, 10),), *later, act=act)
    return lambda place, options: inner(place, {**SERVERS, **options})


def topic_of_overwrite(place: Place, options: Options) -> Any:
    """The values that the topic has of a row and of an overwrite by another one; of a delete, negated."""
    table = place.table({**SERVERS, **options}, add(1, 10))
    table.overwrite(changes_of(add(2, 20)))
    return [row["v"] * (-1 if kind.is_retract else 1) for kind, row in log_changes(table)]


def of_log(late: tuple[Change, ...] = (), **stored: str) -> Seen:
    """What a stream with an option delivers of a table with a log: k=1, its update to 11, and one more batch."""

    def see(place: Place, options: Options) -> Any:
        table = place.table({**SERVERS, **dotted(stored)}, add(1, 10))
        place.write(table, (add(1, 11),))
        time_ms = table.store.snapshots.read(2).time_ms
        given = {key: text.replace("TIME", str(time_ms)) for key, text in options.items()}
        stream = query(table, **{key.replace(".", "_").replace("-", "__"): text for key, text in given.items()})
        found = stream.available()
        place.write(table, late or (add(1, 12),))
        return [in_case(row) for row in [*found, *stream.available()]]

    return see


def tail(place: Place, options: Options) -> Any:
    """A batch read of a table whose newest batch is in the log alone."""
    table = place.table(SERVERS, add(1, 10))
    write_log_only(table, changes_of(add(2, 20)))
    return rows_read(table, None, **options)


def lost(place: Place, options: Options) -> Any:
    """A union read of a log of which records are gone."""
    table = place.table(SERVERS, add(1, 10))
    write_log_only(table, changes_of(add(2, 20)))
    assert table.log is not None
    place.cluster.delete_records(table.log.topic, {0: 3})
    return rows_read(table, None, **{"scan.log.union": "true", **options})


def dropped(place: Place, options: Options) -> Any:
    """A running stream of a column that is dropped."""
    table = place.table({}, add(1, 10))
    stream = query(table, **{key.replace(".", "_").replace("-", "__"): text for key, text in options.items()})
    stream.available()
    place.catalog.alter_table("d.t", [DropColumn(path=("v",))])
    now = place.catalog.table("d.t")
    now.write(changes_of(add(2)).drop(["v"]))
    return [in_case(row) for row in stream.available()]


def consumed(place: Place, options: Options) -> Any:
    """What a second stream with the same options gets, after the first has read what there was."""
    table = place.table({}, add(1, 10))
    given = {key.replace(".", "_").replace("-", "__"): text for key, text in options.items()}
    query(table, **given).available()
    place.write(table, (add(2, 20),))
    return [in_case(row) for row in query(table, **given).available()]


def by_spark(place: Place, options: Options) -> Any:
    """Columns and filter of a reader of ``format("fluvial")``."""
    table = place.table({}, add(1, 10))
    given = ReadOptions.parse({"warehouse": place.catalog.warehouse, "table": table.name, **options}, BATCH_KEYS)
    return (given.columns, given.filter)


def part_of_writer(place: Place, options: Options) -> Any:
    """The partition that a writer of ``format("fluvial")`` replaces."""
    table = place.table({}, add(1, 10), parts="p", key=("p", "k"))
    place_of = {"warehouse": place.catalog.warehouse, "table": table.name}
    return WriteOptions.parse({**place_of, **options}, BATCH_WRITE_KEYS).partition


def savepoint(table: Table) -> None:
    create_savepoint(table)


UPDATE: Final = ((add(1, 10),), (add(1, 11),))
SUM: Final = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
PARTIAL: Final = {"merge-engine": "partial-update"}
GROUP: Final = {**PARTIAL, "fields.v.sequence-group": "w"}
LOOKUP: Final = {"changelog-producer": "lookup"}
NESTED: Final = {"merge-engine": "aggregation", "fields.n.aggregate-function": "nested_update"}
ALL_THREE: Final = [(1, 10), (2, 20), (3, 30)]
FIRST_TWO: Final = ALL_THREE[:2]
COMPACTED_LATER: Final = {"log_changelog__mode": "all", "changelog__producer": "lookup", "write__only": "true"}
BEHIND: Final = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}
ONE_TWO_ONE: Final = sizes((add(0),), (add(1), add(2)), (add(3),))
REFUSED: Final = "refused"

CASES: Final = [
    # what a table is
    Case("primary-key", "k", of_table(*UPDATE, key=()), [(1, 10), (1, 11)], [(1, 11)]),
    Case("bucket", "-2", of_table((add(1, 10),)), [(1, 10)], []),
    Case("row-counts", "true", of_table((add(1, 10), add(1, 10)), (gone(1, 10),), key=()), REFUSED, [(1, 10)]),
    Case("merge-engine", "partial-update", of_table((add(1, 10, w=1),), (add(1, None, w=2),)), [(1, None)], [(1, 10)]),
    Case("sequence.field", "v", of_table((add(1, 11),), (add(1, 10),)), [(1, 10)], [(1, 11)]),
    Case("sequence.field.sort-order", "descending", of_table(*UPDATE), [(1, 11)], [(1, 10)], {"sequence.field": "v"}),
    Case("rowkind.field", "s", of_table((add(1, 10, s="+I"),), (add(1, 10, s="-D"),)), [(1, 10)], []),
    Case("ignore-delete", "true", of_table((add(1, 10),), (gone(1),)), [], [(1, 10)]),
    Case("ignore-update-before", "true", of_table((add(1, 10),), (add(1, 10, kind="-U"),)), [], [(1, 10)]),
    Case("fields.default-aggregate-function", "sum", of_table(*UPDATE), [(1, 11)], [(1, 21)],
         {"merge-engine": "aggregation", "fields.s.aggregate-function": "last_value",
          "fields.p.aggregate-function": "last_value", "fields.t.aggregate-function": "last_value",
          "fields.u.aggregate-function": "last_value", "fields.n.aggregate-function": "last_value"}),
    Case("partial-update.remove-record-on-delete", "true", of_table((add(1, 10),), (gone(1),)), REFUSED, [], PARTIAL),
    Case("partial-update.remove-record-on-sequence-group", "v", of_table((add(1, 10, w=1),), (gone(1, 11),)),
         [(1, 11)], [], GROUP),
    Case("aggregation.remove-record-on-delete", "true", of_table(*UPDATE, (gone(1, 1),)), [(1, 20)], [], SUM),
    Case("record-level.expire-time", "1 h", of_table((add(1, 10, t=LONG_AGO), add(2, 20, t=LATE))),
         [(1, 10), (2, 20)], [(2, 20)], {"record-level.time-field": "t"}),
    Case("record-level.time-field", "u", of_table((add(1, 10, t=LONG_AGO, u=LATE),)), [], [(1, 10)],
         {"record-level.expire-time": "1 h", "record-level.time-field": "t"}),
    Case("fields.*.aggregate-function", "sum", of_table(*UPDATE), [(1, 11)], [(1, 21)],
         {"merge-engine": "aggregation"}),
    Case("fields.*.ignore-retract", "true", of_table(*UPDATE, (gone(1, 1),)), [(1, 20)], [(1, 21)], SUM),
    Case("fields.*.sequence-group", "w", of_table((add(1, 11, w=1),), (add(1, 10, w=2),), column="w"),
         [(1, 2)], [(1, 1)], PARTIAL),
    # changelogs and logs
    Case("change-tracking", "false", tracked, [("+I", 2, 20), ("+I", 3, 30)], [("+I", 3, 30)]),
    Case("change-tracking.untracked-partitions", '[{"p": "a"}]', tracked, [("+I", 2, 20), ("+I", 3, 30)],
         [("+I", 3, 30)]),
    Case("changelog-producer", "lookup", change_stream(*UPDATE), [("+I", 1, 11)], [("-U", 1, 10), ("+U", 1, 11)]),
    Case("changelog-producer.row-deduplicate", "true", change_stream((add(1, 10),), (add(1, 10),)),
         [("-U", 1, 10), ("+U", 1, 10)], [], LOOKUP),
    Case("log.changelog-mode", "all", of_topic((add(1, 11),)), [("+I", 1, 11)], [("-U", 1, 10), ("+U", 1, 11)], LOOKUP),
    Case("log.overwrite", "changes", topic_of_overwrite, [10], [10, -10, 20]),
    Case("log.scan", "latest", of_log(), [("+I", 1, 11), ("+I", 1, 12)], [("+I", 1, 12)]),
    Case("log.scan.timestamp-mills", "1", of_log(), [("+I", 1, 11), ("+I", 1, 12)],
         [("+I", 1, 10), ("+I", 1, 11), ("+I", 1, 12)]),
    Case("log.scan.normalize", "true", of_log(), [("+I", 1, 11), ("+I", 1, 12)],
         [("+I", 1, 11), ("-U", 1, 11), ("+U", 1, 12)]),
    Case("streaming-read-mode", "file", of_log(**COMPACTED_LATER),
         [("+I", 1, 11), ("-U", 1, 11), ("+U", 1, 12)], []),
    # states
    Case("branch", "dev", read_rows(on_dev), ALL_THREE, [(1, 10), (7, 70), (8, 80)]),
    Case("scan.branch", "dev", read_rows(on_dev), ALL_THREE, [(1, 10), (7, 70), (8, 80)]),
    Case("scan.snapshot-id", "2", read_rows(), ALL_THREE, FIRST_TWO),
    Case("scan.tag-name", "x", read_rows(lambda table: create_tag(table, "x")), ALL_THREE, FIRST_TWO),
    Case("scan.savepoint-id", "1", read_rows(savepoint), ALL_THREE, FIRST_TWO),
    Case("scan.version", "2", read_rows(), ALL_THREE, FIRST_TWO),
    Case("scan.timestamp", "TIME", read_rows(), ALL_THREE, FIRST_TWO),
    Case("incremental-between", "1,2", read_rows(), ALL_THREE, [(2, 20)]),
    Case("incremental-between-timestamp", "1,TIME", read_rows(), ALL_THREE, FIRST_TWO),
    Case("incremental-to-auto-tag", "x", read_rows(lambda table: create_tag(table, "x")), ALL_THREE, FIRST_TWO),
    Case("incremental-between-scan-mode", "delta", read_rows(), [(2, 20)], REFUSED, {"incremental-between": "1,2"}),
    Case("scan.mode", "latest", stream_rows((add(1, 10),), late=(add(2, 20),)), [("+I", 1, 10), ("+I", 2, 20)],
         [("+I", 2, 20)]),
    Case("scan.log.union", "true", tail, [(1, 10)], [(1, 10), (2, 20)]),
    Case("scan.log.offsets", '{"0": 0}', tail, [(1, 10), (2, 20)], [], {"scan.log.union": "true"}),
    Case("scan.max-staleness", "1 ms", tail, [(1, 10)], [(1, 10), (2, 20)]),
    Case("scan.fallback-branch", "dev", stored_read(on_dev), [(1, 10)], [(1, 10), (8, 80)]),
    Case("scan.primary-branch", "dev", stored_read(on_dev), [(1, 10)], [(1, 10), (7, 70), (8, 80)]),
    Case("read.changelog", "true", read_rows(), ALL_THREE, [("+I", *row) for row in ALL_THREE]),
    Case("columns", "k", by_spark, ((), None), (("k",), None)),
    Case("filter", "k > 1", by_spark, ((), None), ((), "k > 1")),
    # batches and places of streams
    Case("read.stream.maxRowsPerTrigger", "1", ONE_TWO_ONE, [4], [1, 2, 1], BEHIND),
    Case("read.stream.maxBytesPerTrigger", "1 b", ONE_TWO_ONE, [4], [1, 2, 1], BEHIND),
    Case("read.stream.maxFilesPerTrigger", "1", ONE_TWO_ONE, [4], [1, 2, 1], BEHIND),
    Case("read.stream.on-dropped-column", "null", dropped, REFUSED, [("+I", 2, None)]),
    Case("consumer-id", "c", consumed, [("+I", 1, 10), ("+I", 2, 20)], [("+I", 2, 20)]),
    Case("consumer.ignore-progress", "true", consumed, [("+I", 2, 20)], [("+I", 1, 10), ("+I", 2, 20)],
         {"consumer-id": "c"}),
    # writers
    Case("dynamic-partition-overwrite", "false", overwritten, [(2, 20), (3, 30)], [(3, 30)]),
    Case("write.merge-schema", "true", write_rows(lambda table: single_row(x=pa.array([5])), "x"), REFUSED, [None, 5]),
    Case("partition", "p=a", part_of_writer, None, {"p": "a"}),
    Case("read.snapshot-id", "0", write_rows(lambda table: single_row(v=pa.array([20]))), [10, 20], REFUSED),
    # partitions
    Case("partition.expiration-time", "7 d", expired("2001-01-01", "2999-01-01"), REFUSED, ["2999-01-01"]),
    Case("partition.expiration-strategy", "update-time", expired("2001-01-01"), [], ["2001-01-01"],
         {"partition.expiration-time": "7 d"}),
    Case("partition.expiration-max-num", "1", expired("2001-01-01", "2001-01-02"), [], ["2001-01-02"],
         {"partition.expiration-time": "7 d"}),
    Case("partition.timestamp-formatter", "dd.MM.yyyy", expired("01.01.2001"), ["01.01.2001"], [],
         {"partition.expiration-time": "7 d"}),
    Case("partition.timestamp-pattern", "$p-01", expired("2001-01"), ["2001-01"], [],
         {"partition.expiration-time": "7 d"}),
]  # fmt: skip


SHOWN_IN: Final = {
    "deletion-vectors.enabled": "tests/crossings/space.py",
    "deletion-vectors.merge-on-read": "tests/engine/dialect/dml/test_waiting_rows.py",
    "fields.*.count-limit": "tests/filestore/schema/test_merge_engines.py",
    "fields.*.distinct": "tests/filestore/schema/test_merge_engines.py",
    "fields.*.list-agg-delimiter": "tests/filestore/schema/test_merge_engines.py",
    "fields.*.nested-key": "tests/filestore/schema/test_merge_engines.py",
    "fields.*.ts-field": "tests/filestore/schema/test_merge_engines.py",
    "force-lookup": "tests/filestore/compact/test_whole_rows.py",
    "full-compaction.delta-commits": "tests/engine/follow/test_awaited_changes.py",
    "log.consistency": "tests/crossings/space.py",
    "log.on-offset-lost": "tests/engine/follow/test_stream.py",
    "log.on-orphan-batch": "tests/engine/log/test_signed_markers.py",
    "log.scan.remove-normalize": "tests/engine/stream/test_normalizer.py",
    "log.system": "tests/engine/log/test_foreign_in_exact_log.py",
    "lookup-wait": "tests/engine/spark/writer/test_format_writer.py",
    "partition.expiration-check-interval": "tests/engine/write/test_housekeeping.py",
    "read.metadata-columns": "tests/engine/read/test_pieces.py",
    "scan.at-least": "tests/engine/read/test_read_state.py",
    "scan.start-from-job": "tests/engine/lineage/test_alignment.py",
    "scan.watermark": "tests/engine/request/test_stored_options.py",
    "schema.id": "tests/engine/spark/test_altered_frames.py",
    "source.checkpoint-align.enabled": "tests/engine/lineage/test_alignment.py",
    "source.checkpoint-align.snapshots": "tests/engine/lineage/test_alignment.py",
    "streaming-read-append-overwrite": "tests/engine/stream/test_modes.py",
    "streaming-read-overwrite": "tests/engine/stream/test_modes.py",
    "type": "tests/filestore/schema/test_schema.py",
    "watermark.column": "tests/engine/dialect/ddl/test_tables.py",
    "watermark.expression": "tests/engine/dialect/ddl/test_tables.py",
    "write.merge-schema.explicit-cast": "tests/filestore/evolution/test_schema_merge.py",
    "write.merge-schema.type-widening": "tests/engine/write/test_schema_evolution.py",
    "write.round-values": "tests/engine/write/test_round_values.py",
    "write.stream.commit-user": "tests/engine/write/test_schema_evolution_spark.py",
}
"""What needs more than a literal case, and a file of tests that shows it."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    cluster = MemoryCluster()
    with serving(SERVERS["log.kafka.bootstrap.servers"], MemoryEnvironment(cluster)):
        yield Place(Catalog(str(tmp_path)), cluster)


def outcome(case: Case, place: Place, options: Options) -> Any:
    try:
        return case.see(place, {**case.beside, **options})
    except FluvialError:
        return REFUSED


@pytest.mark.parametrize("is_given", [False, True], ids=["without", "given"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.key}={case.value}")
def test_an_option_decides(case: Case, is_given: bool, place: Place) -> None:
    options = {case.key.replace("*", "v"): case.value} if is_given else {}
    assert outcome(case, place, options) == (case.given if is_given else case.without)


def test_each_option_that_decides_about_rows_has_a_case() -> None:
    """Or nothing is built for it, and giving it is refused; or a file of tests shows it."""
    assert {*row_deciding_options()} - {*NOT_BUILT} == {*(case.key for case in CASES), *SHOWN_IN}
    texts = {key: (ROOT / path).read_text(encoding="utf-8") for key, path in SHOWN_IN.items()}
    words = {key: (key, key.replace("-", "__").replace(".", "_"), key.split("*.")[-1]) for key in SHOWN_IN}
    assert [key for key, text in texts.items() if not any(word in text for word in words[key])] == []
