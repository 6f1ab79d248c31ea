"""The space of tables: parameters with their values, what they mean for a table, and which go together.

The first value of a parameter is the simplest: what a shrunken history has where it does not matter. A rule says what
the product refuses, and in which words; all other cells are tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from lsm.aggregate.aggregates import FieldAggregate
from lsm.merge.partial_update import SequenceGroup
from tests.crossings.covering import Cell, Rule, Space

NAN: Final = float("nan")
TYPES: Final[Mapping[str, tuple[pa.DataType, tuple[Any, ...]]]] = {
    "BIGINT": (pa.int64(), (0, 1, 2, -(2**63), 2**63 - 1)),
    "TINYINT": (pa.int8(), (0, 1, -128, 127)),
    "SMALLINT": (pa.int16(), (0, 1, -(2**15), 2**15 - 1)),
    "INT": (pa.int32(), (0, 1, -(2**31), 2**31 - 1)),
    "BOOLEAN": (pa.bool_(), (False, True)),
    "FLOAT": (pa.float32(), (0.0, -0.0, NAN, 0.5, float("inf"))),
    "DOUBLE": (pa.float64(), (0.0, -0.0, NAN, 0.1, float("-inf"))),
    "STRING": (pa.string(), ("", "a", "a%", "é\U0010ffff", "a" * 17)),
    "BYTES": (pa.binary(), (b"", b"a", b"\xff" * 17, b"\x00")),
    "DECIMAL(9,2)": (pa.decimal128(9, 2), (Decimal("0.00"), Decimal("-0.01"), Decimal("9999999.99"))),
    "DECIMAL(38,10)": (pa.decimal128(38, 10), (Decimal("0E-10"), Decimal("9" * 28 + ".0000000001"))),
    "DATE": (pa.date32(), (date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29))),
    "TIME": (pa.time32("ms"), (time(0), time(23, 59, 59, 999000))),
    "TIMESTAMP(3)": (
        pa.timestamp("ms"),
        (datetime(1970, 1, 1), datetime(2024, 2, 29, 0, 0, 0, 1000), datetime(1969, 12, 31, 23, 59, 59, 999000)),
    ),
    "TIMESTAMP(6)": (
        pa.timestamp("us"),
        (datetime(1970, 1, 1), datetime(2024, 2, 29, 0, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ),
    "TIMESTAMP_LTZ(6)": (
        pa.timestamp("us", tz="UTC"),
        (
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(2024, 2, 29, 0, 0, 0, 1, tzinfo=UTC),
            datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        ),
    ),
    "ARRAY": (pa.list_(pa.string()), ([], [None], ["a", ""], ["é"])),
    "MAP": (pa.map_(pa.string(), pa.int32()), ([], [("a", None)], [("", 1), ("b", 2)])),
    "ROW": (
        pa.struct([("x", pa.int32()), ("y", pa.list_(pa.decimal128(9, 2)))]),
        ({"x": None, "y": None}, {"x": 1, "y": []}, {"x": 2, "y": [None, Decimal("0.10")]}),
    ),
}
"""Types of the column ``b``, with the values that histories name by their place."""

KEYS: Final[Mapping[str, tuple[pa.DataType, tuple[Any, ...]]]] = {
    "BIGINT": (pa.int64(), (0, 1, -1, 2**63 - 1, 7, 8)),
    "INT": (pa.int32(), (0, 1, -1, 2, 3, 4)),
    "STRING": (pa.string(), ("", "a", "a ", "é", "a" * 20, "b")),
    "BYTES": (pa.binary(), (b"", b"a", b"\xff", b"\x00", b"a" * 20, b"b")),
    "DATE": (pa.date32(), tuple(date(2024, 2, day) for day in range(24, 30))),
    "DECIMAL(38,2)": (pa.decimal128(38, 2), tuple(Decimal(each).scaleb(-2) for each in (0, 1, -1, 10**37, 5, 6))),
    "TIMESTAMP(6)": (pa.timestamp("us"), tuple(datetime(1970, 1, 1, 0, 0, 0, each) for each in range(6))),
    "BOOLEAN, INT": (pa.int32(), (0, 1, -1, 2, 3, 4)),  # a second key column in front
}
WIDTHS: Final = {"few": 0, "none": 0, "40": 40, "1000": 1_000, "4100": 4_100, "5000": 5_000}
"""Columns beside the few; ``none``: not even these, the key alone."""

PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    # what decides about rows
    "rows": ("keyed", "append", "counted"),
    "engine": ("deduplicate", "partial-update", "aggregation", "first-row"),
    "producer": ("none", "lookup", "input", "full-compaction"),
    "format": ("parquet", "orc", "avro"),
    "vectors": ("off", "on", "wide", "merge-on-read"),
    "bucket": ("1", "3", "dynamic", "postponed"),
    "partition": ("none", "p", "p,q"),
    "sequence": ("none", "g", "g,h", "g descending"),
    "deletes": ("taken", "ignored", "no -U", "removing"),
    "functions": ("default", "sum", "count", "extremes", "first", "listed"),
    "groups": ("none", "plain", "summed", "removing"),
    "kinds": ("given", "column"),
    "expiry": ("none", "BIGINT", "INT", "TIMESTAMP"),
    "log": ("none", "debezium-json", "json", "debezium-avro", "avro"),
    "consistency": ("transactional", "eventual"),
    "log mode": ("auto", "upsert", "all"),
    "style": ("universal", "leveled"),
    "write-only": ("no", "yes"),
    "levels": ("same", "mixed"),
    "equal updates": ("kept", "dropped"),
    # what must not
    "type": tuple(TYPES),
    "key": tuple(KEYS),
    "columns": ("few", "none", "40"),
    "file rows": ("many", "1"),
    "split": ("large", "1 b"),
    "buffer": ("large", "1 b"),
    "trigger": ("5", "2"),
    "thin": ("no", "yes"),
    "index": ("none", "bloom", "in manifest"),
    "statistics": ("truncate(16)", "none", "counts", "full"),
    "changelog format": ("same", "other"),
    "kept changelogs": ("with snapshots", "longer"),
    "overwrite": ("dynamic", "static"),
    "upgrade": ("yes", "no"),
    "log.overwrite": ("none", "changes"),
    "streams": ("log", "file"),
    "manifests": ("many", "merged"),
    "bucket function": ("default", "mod"),
    "iceberg": ("no", "2", "3"),
    "lookup": ("as needed", "forced"),
    "new columns": ("refused", "added"),
    "partition expiry": ("none", "p=a"),
}
ROW_DECIDING: Final = frozenset(list(PARAMETERS)[:20])
"""Each triple of these occurs; of the others, and between both, each pair."""


def _no_columns(values: str, columns: str) -> bool:
    return columns == "none" and values not in ("none", "default", "given")


RULES: Final = (
    Rule(
        name="only a key has a merge engine",
        parameters=("rows", "engine"),
        refuses=lambda rows, engine: rows != "keyed" and engine != "deduplicate",
        message="merge-engine needs a primary key",
    ),
    Rule(
        name="only a key has a changelog",
        parameters=("rows", "producer"),
        refuses=lambda rows, producer: rows != "keyed" and producer != "none",
        message="changelog-producer needs a primary key",
    ),
    Rule(
        name="only a key has a sequence",
        parameters=("rows", "sequence"),
        refuses=lambda rows, sequence: rows != "keyed" and sequence != "none",
        message="sequence.field needs a primary key",
    ),
    Rule(
        name="the first row has no sequence",
        parameters=("engine", "sequence"),
        refuses=lambda engine, sequence: engine == "first-row" and sequence != "none",
        message="first-row keeps the first arrival and has no sequence.field",
    ),
    Rule(
        name="the changelog of first rows is looked up",
        parameters=("engine", "producer"),
        refuses=lambda engine, producer: engine == "first-row" and producer in ("input", "full-compaction"),
        message="first-row allows changelog-producer none or lookup",
    ),
    Rule(
        name="one kind of sequence",
        parameters=("groups", "sequence"),
        refuses=lambda groups, sequence: groups != "none" and sequence != "none",
        message="sequence groups and sequence.field exclude each other",
    ),
    Rule(
        name="only partial updates have groups",
        parameters=("groups", "engine"),
        refuses=lambda groups, engine: groups != "none" and engine != "partial-update",
        message="sequence groups need merge-engine=partial-update",
    ),
    Rule(
        name="only keys are postponed",
        parameters=("rows", "bucket"),
        refuses=lambda rows, bucket: rows != "keyed" and bucket == "postponed",
        message="only rows with a key wait for buckets",
    ),
    Rule(
        name="postponed rows have no changelog as they come",
        parameters=("bucket", "producer"),
        refuses=lambda bucket, producer: bucket == "postponed" and producer == "input",
        message="rows that wait for buckets have no changelog as they come",
    ),
    Rule(
        name="equal rows meet in a bucket",
        parameters=("rows", "bucket"),
        refuses=lambda rows, bucket: rows == "counted" and bucket == "dynamic",
        message="equal rows must meet in one bucket",
    ),
    Rule(
        name="counted rows are not deleted by vectors",
        parameters=("rows", "vectors"),
        refuses=lambda rows, vectors: rows == "counted" and vectors != "off",
        message="deletion-vectors.enabled=true",
    ),
    Rule(
        name="counted rows come and go",
        parameters=("rows", "deletes"),
        refuses=lambda rows, deletes: rows == "counted" and deletes in ("ignored", "no -U"),
        message="row-counts=true",
    ),
    Rule(
        name="counted rows have kinds beside them",
        parameters=("rows", "kinds"),
        refuses=lambda rows, kinds: rows == "counted" and kinds == "column",
        message="a row and its delete would not be equal",
    ),
    Rule(
        name="first rows are not replaced",
        parameters=("engine", "vectors"),
        refuses=lambda engine, vectors: engine == "first-row" and vectors != "off",
        message="no row of a first-row table is ever replaced",
    ),
    Rule(
        name="vectors show rows at once",
        parameters=("rows", "producer", "vectors"),
        refuses=lambda rows, producer, vectors: rows == "keyed" and producer == "full-compaction" and vectors != "off",
        message="a table with deletion vectors emits changes when they become visible",
    ),
    Rule(
        name="a delete removes or is retracted",
        parameters=("engine", "groups", "deletes"),
        refuses=lambda engine, groups, deletes: (
            engine == "partial-update" and groups != "none" and deletes == "removing"
        ),
        message="partial-update.remove-record-on-delete conflicts",
    ),
    Rule(
        name="a delete removes by a group or is ignored",
        parameters=("engine", "groups", "deletes"),
        refuses=lambda engine, groups, deletes: (
            engine == "partial-update" and groups == "removing" and deletes == "ignored"
        ),
        message="a delete cannot both remove the row and be ignored",
    ),
    Rule(
        name="a delete removes or is ignored",
        parameters=("engine", "functions", "deletes"),
        refuses=lambda engine, functions, deletes: (
            engine == "aggregation" and functions in ("extremes", "first", "listed") and deletes == "removing"
        ),
        message="a delete cannot both remove the row and be ignored",
    ),
    Rule(
        name="only rows with a key expire",
        parameters=("rows", "expiry"),
        refuses=lambda rows, expiry: rows == "append" and expiry != "none",
        message="record-level.expire-time needs a primary key",
    ),
    Rule(
        name="a log has a partition for each bucket",
        parameters=("log", "bucket"),
        refuses=lambda log, bucket: log != "none" and bucket in ("dynamic", "postponed"),
        message="a log has one partition for every bucket",
    ),
    Rule(
        name="deletes without values are known by their keys",
        parameters=("log", "rows"),
        refuses=lambda log, rows: log in ("avro", "json") and rows != "keyed",
        message="needs a primary key, as its deletes are known by their keys",
    ),
    Rule(
        name="Avro has no -U",
        parameters=("log", "log mode"),
        refuses=lambda log, mode: log == "avro" and mode == "all",
        message="log.format=avro has no -U",
    ),
    Rule(
        name="JSON has no -U",
        parameters=("log", "log mode", "rows"),
        refuses=lambda log, mode, rows: log == "json" and mode == "all" and rows == "keyed",
        message="log.format=json has no -U",
    ),
    Rule(
        name="an eventual log has keys",
        parameters=("log", "consistency", "rows"),
        refuses=lambda log, consistency, rows: log != "none" and consistency == "eventual" and rows != "keyed",
        message="log.consistency=eventual needs a primary key",
    ),
    Rule(
        name="an eventual log has upserts",
        parameters=("log", "consistency", "log mode"),
        refuses=lambda log, consistency, mode: log != "none" and consistency == "eventual" and mode == "all",
        message="log.consistency=eventual needs upsert changes",
    ),
    Rule(
        name="an eventual log has rows",
        parameters=("log", "consistency", "rows", "engine"),
        refuses=lambda log, consistency, rows, engine: (
            log != "none" and consistency == "eventual" and rows == "keyed" and engine != "deduplicate"
        ),
        message="log.consistency=eventual needs records that replace those before them",
    ),
    Rule(
        name="upserts have keys",
        parameters=("log", "log mode", "rows"),
        refuses=lambda log, mode, rows: log != "none" and mode == "upsert" and rows != "keyed",
        message="log.changelog-mode=upsert needs a primary key",
    ),
    Rule(
        name="a log does not wait for compactions",
        parameters=("log", "log mode", "producer"),
        refuses=lambda log, mode, producer: log != "none" and mode == "all" and producer == "full-compaction",
        message="changes go to the log with every batch",
    ),
    Rule(
        name="an eventual log is ahead of overwrites",
        parameters=("log", "log.overwrite", "consistency"),
        refuses=lambda log, overwrite, consistency: (
            log != "none" and overwrite == "changes" and consistency == "eventual"
        ),
        message="the log cannot get what overwrites change",
    ),
    Rule(
        name="overwrites go to a log that has the table's rows",
        parameters=("log", "log.overwrite", "rows", "engine", "sequence", "deletes", "log mode", "producer"),
        refuses=lambda log, overwrite, rows, engine, sequence, deletes, mode, producer: (
            log != "none"
            and overwrite == "changes"
            and rows == "keyed"
            and not (mode == "all" and producer == "lookup")
            and (engine != "deduplicate" or sequence != "none" or deletes == "ignored")
        ),
        message="the log cannot get what overwrites change",
    ),
    Rule(
        name="Iceberg reads Parquet",
        parameters=("iceberg", "format"),
        refuses=lambda iceberg, format: iceberg != "no" and format != "parquet",
        message="Iceberg readers find columns by ids",
    ),
    Rule(
        name="Iceberg sees vectors of its third version",
        parameters=("iceberg", "vectors", "rows"),
        refuses=lambda iceberg, vectors, rows: (
            iceberg != "no" and vectors != "off" and rows == "append" and not (iceberg == "3" and vectors == "wide")
        ),
        message="rows are deleted by vectors that Iceberg readers would not see",
    ),
    Rule(
        name="no bloom filter of long decimals",
        parameters=("index", "key"),
        refuses=lambda index, key: index != "none" and key.startswith("DECIMAL"),
        message="columns of this type cannot have a bloom filter",
    ),
    Rule(
        name="columns of functions exist",
        parameters=("engine", "functions", "columns"),
        refuses=lambda engine, functions, columns: engine == "aggregation" and _no_columns(functions, columns),
        message="no such column",
    ),
    *(
        Rule(
            name=f"columns of {name} exist",
            parameters=(name, "columns"),
            refuses=_no_columns,
            message="no such column",
        )
        for name in ("sequence", "groups", "kinds", "expiry")
    ),
)

WIDE: Final = Space(
    parameters={
        "columns": ("1000", "4100", "5000"),
        **{
            name: PARAMETERS[name]
            for name in ("rows", "engine", "format", "vectors", "statistics", "log", "index", "producer")
        },
    },
    rules=[
        each
        for each in RULES
        if {*each.parameters} <= {"rows", "engine", "format", "vectors", "log", "index", "producer"}
    ],
)
"""Tables of more columns than others have: few histories, because each takes seconds."""

SPACE: Final = Space(parameters=PARAMETERS, rules=RULES, triples_of=ROW_DECIDING)
SIMPLEST: Final[Cell] = {name: values[0] for name, values in PARAMETERS.items()}

EXPIRES_AFTER_S: Final = 100
SLOTS: Final = ("p", "q", "f", "k", "a", "b", "c", "d", "g", "h", "t", "op")
"""The columns that a table may begin with. Values: see ``value_of``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a cell means: how its table is made, and what the oracle has to know of it."""

    cell: Cell
    types: Mapping[str, pa.DataType]  # by column
    key: tuple[str, ...]
    partition: tuple[str, ...]
    options: Mapping[str, str] = field(repr=False)
    sequence: tuple[str, ...] = ()
    aggregates: Mapping[str, FieldAggregate] = field(default_factory=dict)
    aggregate_of_others: FieldAggregate = field(default_factory=FieldAggregate)  # of columns that come later
    groups: tuple[SequenceGroup, ...] = ()
    removing: tuple[str, ...] = ()  # columns of the groups of which a delete removes the row

    @property
    def has_key(self) -> bool:
        """Whether rows are known by a key."""
        return bool(self.key)

    @property
    def formats(self) -> frozenset[str]:
        """Of any of its files."""
        other, cell = _OTHERS[self.cell["format"]], self.cell
        return frozenset(
            {cell["format"]}
            | {other for name, value in (("levels", "mixed"), ("changelog format", "other")) if cell[name] == value}
        )

    @property
    def has_log(self) -> bool:
        """Whether there is a log."""
        return self.cell["log"] != "none"

    @property
    def is_exact_log(self) -> bool:
        """Whether the log has each change with what it replaces, as the table merged it."""
        return self.has_log and self.has_key and self.cell["log mode"] == "all" and self.cell["producer"] == "lookup"

    @property
    def log_is_as_given(self) -> bool:
        """Whether the writer itself has to give what each row replaces."""
        return self.has_log and self.has_key and self.cell["log mode"] == "all" and not self.is_exact_log

    @property
    def is_late(self) -> bool:
        """Whether rows may be seen only after a compaction."""
        return self.is_compacted_late or self.cell["bucket"] == "postponed"

    @property
    def is_compacted_late(self) -> bool:
        """Whether rows that have a bucket may be seen only after a compaction."""
        return (self.has_key and self.cell["vectors"] in ("on", "wide")) or self.cell["engine"] == "first-row"

    @property
    def takes(self) -> tuple[str, ...]:
        """The kinds that a write may have."""
        cell = self.cell
        if cell["rows"] == "append":
            return ("+I", "-D", "-U") if cell["deletes"] == "ignored" else ("+I",)
        if cell["deletes"] == "ignored" or cell["rows"] == "counted":
            return ("+I", "+U", "-U", "-D")
        match cell["engine"]:
            case "first-row":
                return ("+I", "+U")
            case "partial-update":
                if self.groups:
                    return ("+I", "+U", "-U", "-D")
                return ("+I", "+U", "-D") if cell["deletes"] == "removing" else ("+I", "+U")
        return ("+I", "+U", "-U", "-D")

    @property
    def schema(self) -> pa.Schema:
        """Of the new table."""
        needed = {*self.key, *(self.partition if self.has_key else ())}
        return pa.schema([pa.field(name, kind, nullable=name not in needed) for name, kind in self.types.items()])


def shape_of(cell: Cell) -> Shape:
    """What a cell means, also of one that is refused."""
    types, key, partition = _columns(cell)
    sequence = () if cell["sequence"] == "none" else tuple(cell["sequence"].split(" ")[0].split(","))
    options: dict[str, str] = {
        "bucket": cell["bucket"],
        **_row_options(cell, sequence),
        **_file_options(cell, types),
        **_log_options(cell),
    }
    for choice in cell.items():
        options |= _MEANT.get(choice, {})
    aggregates, more = _functions(cell, {*key, *partition, *sequence}, types)
    groups, also = _groups(cell)
    options |= more | also
    if cell["groups"] == "summed":
        aggregates = {"a": FieldAggregate(function="sum")}
    return Shape(
        cell=cell, types=types, key=key, partition=partition, options=options, sequence=sequence,
        aggregates=aggregates, aggregate_of_others=_default_function(cell), groups=groups,
        removing=("g",) if cell["groups"] == "removing" else (),
    )  # fmt: skip


def _columns(cell: Cell) -> tuple[dict[str, pa.DataType], tuple[str, ...], tuple[str, ...]]:
    partition = () if cell["partition"] == "none" else tuple(cell["partition"].split(","))
    types: dict[str, pa.DataType] = {}
    for name in partition:
        types[name] = pa.string() if name == "p" else pa.int32()
    key = ["k"]
    if "," in cell["key"]:
        types["f"] = pa.bool_()
        key = ["f", "k"]
    types["k"] = KEYS[cell["key"]][0]
    if cell["columns"] != "none":
        types |= {"a": pa.int32(), "b": TYPES[cell["type"]][0], "c": pa.string(), "d": pa.int32()}
        types |= {"g": pa.int32(), "h": pa.int32()}
        if cell["expiry"] != "none":
            types["t"] = {"BIGINT": pa.int64(), "INT": pa.int32(), "TIMESTAMP": pa.timestamp("ms")}[cell["expiry"]]
        if cell["kinds"] == "column":
            types["op"] = pa.string()
        types |= {f"x{number}": pa.int32() for number in range(WIDTHS[cell["columns"]])}
    return types, (*partition, *key) if cell["rows"] == "keyed" else (), partition


_OTHERS: Final = {"parquet": "avro", "orc": "parquet", "avro": "orc"}
_MEANT: Final[Mapping[tuple[str, str], Mapping[str, str]]] = {
    ("bucket", "dynamic"): {"bucket": "-1"},
    ("bucket", "postponed"): {"bucket": "-2"},
    ("sequence", "g descending"): {"sequence.field.sort-order": "descending"},
    ("rows", "counted"): {"row-counts": "true"},
    ("deletes", "ignored"): {"ignore-delete": "true"},
    ("deletes", "no -U"): {"ignore-update-before": "true"},
    ("kinds", "column"): {"rowkind.field": "op"},
    ("equal updates", "dropped"): {"changelog-producer.row-deduplicate": "true"},
    ("lookup", "forced"): {"force-lookup": "true"},
    ("new columns", "added"): {"write.merge-schema": "true", "write.merge-schema.type-widening": "true"},
    ("partition expiry", "p=a"): {
        "partition.expiration-time": "1 d",
        "partition.timestamp-formatter": "yyyy-MM-dd'a'",
        "partition.timestamp-pattern": "2023-11-01$p",
    },
    ("overwrite", "static"): {"dynamic-partition-overwrite": "false"},
    ("vectors", "on"): {"deletion-vectors.enabled": "true"},
    ("vectors", "wide"): {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"},
    ("vectors", "merge-on-read"): {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"},
    ("style", "leveled"): {"compaction.style": "leveled", "level0_file_num_compaction_trigger": "2"},
    ("kept changelogs", "longer"): {"changelog.num-retained.min": "100", "changelog.num-retained.max": "200"},
    ("write-only", "yes"): {"write-only": "true"},
    ("file rows", "1"): {"target-file-row-num": "1"},
    ("split", "1 b"): {"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"},
    ("buffer", "1 b"): {"write-buffer-size": "1 b"},
    ("trigger", "2"): {"num-sorted-run.compaction-trigger": "2", "compaction.min.file-num": "2"},
    ("thin", "yes"): {"data-file.thin-mode": "true"},
    ("upgrade", "no"): {"overwrite-upgrade": "false"},
    ("manifests", "merged"): {"manifest.merge-min-count": "2"},
    ("index", "bloom"): {"file-index.in-manifest-threshold": "1 b"},
    ("index", "in manifest"): {"file-index.in-manifest-threshold": "1 mb"},
    ("statistics", "none"): {"metadata.stats-mode": "none"},
    ("statistics", "counts"): {"metadata.stats-mode": "counts"},
    ("statistics", "full"): {"metadata.stats-mode": "full"},
    ("iceberg", "2"): {"metadata.iceberg.storage": "table-location", "metadata.iceberg.format-version": "2"},
    ("iceberg", "3"): {"metadata.iceberg.storage": "table-location", "metadata.iceberg.format-version": "3"},
}
"""Options of a choice, where they do not depend on others."""


def _row_options(cell: Cell, sequence: tuple[str, ...]) -> dict[str, str]:
    engine, has_buckets = cell["engine"], cell["bucket"] in ("1", "3")
    options = {"merge-engine": engine} if engine != "deduplicate" else {}
    if cell["producer"] != "none":
        options["changelog-producer"] = cell["producer"]
    if sequence:
        options["sequence.field"] = ",".join(sequence)
    if cell["rows"] == "append" and has_buckets:
        options["bucket-key"] = "k"
    if cell["deletes"] == "removing" and engine in ("partial-update", "aggregation"):
        options[f"{engine}.remove-record-on-delete"] = "true"
    if cell["expiry"] != "none":
        options |= {"record-level.expire-time": f"{EXPIRES_AFTER_S} s", "record-level.time-field": "t"}
    if cell["bucket function"] == "mod" and cell["key"] in ("BIGINT", "INT") and cell["rows"] != "counted":
        options |= {"bucket-function.type": "mod", **({"bucket-key": "k"} if has_buckets else {})}
    return options


def _file_options(cell: Cell, types: Mapping[str, pa.DataType]) -> dict[str, str]:
    options, other = {"file.format": cell["format"]}, _OTHERS[cell["format"]]
    if cell["levels"] == "mixed" and cell["iceberg"] == "no":
        options["file.format.per.level"] = f"0:{other}"
    if cell["changelog format"] == "other":
        options["changelog-file.format"] = other
    if cell["index"] != "none":
        options["file-index.bloom-filter.columns"] = "k,a" if "a" in types else "k"
    return options


def _log_options(cell: Cell) -> dict[str, str]:
    if cell["log"] == "none":
        return {"log.system": "none"}
    options = {"log.system": "kafka", "log.format": cell["log"], "write.backpressure": "off"}
    if cell["consistency"] == "eventual":
        options["log.consistency"] = "eventual"
    if cell["log mode"] != "auto":
        options["log.changelog-mode"] = cell["log mode"]
    if cell["log.overwrite"] == "changes":
        options["log.overwrite"] = "changes"
    if cell["streams"] == "file":
        options["streaming-read-mode"] = "file"
    return options


_FUNCTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {},
    "sum": {"a": "sum", "d": "sum"},
    "count": {"a": "count"},
    "extremes": {"a": "max", "d": "min"},
    "first": {"a": "first_value", "b": "first_non_null_value", "c": "listagg"},
    "listed": {"b": "collect", "c": "listagg"},  # the former of arrays
}
_KEEPS: Final = frozenset({"max", "min", "first_value", "first_non_null_value", "listagg", "collect"})


def _default_function(cell: Cell) -> FieldAggregate:
    """Sums and counts come out the same whenever compactions run, retractions too, beside last values alone."""
    has_last_values = cell["engine"] == "aggregation" and cell["functions"] in ("sum", "count")
    return FieldAggregate(function="last_value") if has_last_values else FieldAggregate()


def _functions(
    cell: Cell, used: set[str], types: Mapping[str, pa.DataType]
) -> tuple[dict[str, FieldAggregate], dict[str, str]]:
    if cell["engine"] != "aggregation":
        return {}, {}
    options: dict[str, str] = {}
    default = _default_function(cell)
    if default != FieldAggregate():
        options["fields.default-aggregate-function"] = default.function
    found = {name: default for name in types if name not in used}
    for name, function in _FUNCTIONS[cell["functions"]].items():
        ignores = function in _KEEPS
        if function == "collect" and cell["type"] != "ARRAY":
            continue
        found[name] = FieldAggregate(function=function, ignore_retract=ignores)
        options[f"fields.{name}.aggregate-function"] = function
        if cell["functions"] == "listed":
            more, option = (
                ({"distinct": True}, "distinct") if name == "b" else ({"delimiter": "; "}, "list-agg-delimiter")
            )
            found[name] = replace(found[name], **more)
            options[f"fields.{name}.{option}"] = "true" if name == "b" else "; "
        if ignores:
            options[f"fields.{name}.ignore-retract"] = "true"
    return found, options


def _groups(cell: Cell) -> tuple[tuple[SequenceGroup, ...], dict[str, str]]:
    if cell["groups"] == "none":
        return (), {}
    groups = (
        SequenceGroup(sequence_names=("g",), field_names=("a", "b")),
        SequenceGroup(sequence_names=("h",), field_names=("c",)),
    )
    options = {"fields.g.sequence-group": "a,b", "fields.h.sequence-group": "c"}
    more = {
        "summed": {"fields.a.aggregate-function": "sum"},
        "removing": {"partial-update.remove-record-on-sequence-group": "g"},
    }
    return groups, options | more.get(cell["groups"], {})


def value_of(shape: Shape, slot: str, given: Any) -> Any:
    """A value as Arrow takes it, of the small one that a history names it by.

    Keys and values of the column ``b`` are places in the lists of their type; ``t`` is seconds since the history began.
    """
    if given is None:
        return None
    if slot == "k":
        return KEYS[shape.cell["key"]][1][given]
    if slot == "b":
        values = TYPES[shape.cell["type"]][1]
        if shape.cell["type"].startswith("TIMESTAMP") and "orc" in shape.formats:
            values = values[:-1]  # its range is smaller
        return values[given % len(values)]
    if slot == "t":
        moment = BEGAN_MS + given * 1000
        match shape.cell["expiry"]:
            case "BIGINT":
                return moment
            case "INT":
                return moment // 1000
        return datetime.fromtimestamp(moment / 1000, UTC).replace(tzinfo=None)
    return given


BEGAN_MS: Final = 1_700_000_000_000
