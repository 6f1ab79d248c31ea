"""Which older states can be the newest again: literal cases, and random histories beside a dictionary of field ids."""

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from filestore.evolution.older_states import folding_changes, obstacles
from filestore.evolution.schema_change import (
    AddColumn,
    ChangeComment,
    ChangeDefault,
    ChangeNullability,
    ChangeType,
    DropColumn,
    MoveColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetComment,
    SetOption,
    apply_changes,
)
from filestore.maintenance.rewriting import restore
from filestore.refs.versions import find_version, parse_version
from filestore.schema.column_options import COLUMN_LISTS, renamed_in_options
from filestore.schema.column_paths import ColumnPosition
from filestore.schema.schema_store import new_schema
from filestore.schema.table_schema import TableSchema
from filestore.tag.savepoints import create_savepoint
from filestore.tag.tags import create_tag
from filestore.types.data_types import DataType, parse_data_type, parse_field
from lsm.errors import InvalidInputError
from tests.support.tables import check_metadata, expire_all_but, memory_catalog

INT, BIGINT, STRING = (parse_data_type(text) for text in ("INT", "BIGINT", "STRING"))
POINT = {"type": "ROW", "fields": [{"id": 0, "name": "x", "type": "INT"}, {"id": 0, "name": "y", "type": "INT"}]}
COLUMNS: Mapping[str, Any] = {
    "d": "STRING NOT NULL",
    "id": "BIGINT NOT NULL",
    "n": "INT",
    "price": "DECIMAL(10, 2)",
    "word": "VARCHAR(10)",
    "p": POINT,
    "l": {"type": "ARRAY", "element": POINT},
    "m": {"type": "MAP", "key": "STRING", "value": POINT},
}
FIELDS = [parse_field({"id": 0, "name": name, "type": kind}) for name, kind in COLUMNS.items()]


def parted_schema(**options: str) -> TableSchema:
    texts = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    return new_schema(
        FIELDS,
        primary_key=["d", "id"],
        partition_by=["d"],
        options={"bucket": "1", "alter-column-null-to-not-null.disabled": "false", **texts},
        time_ms=0,
    )


KNOWN = parted_schema()

HARMLESS: Sequence[Sequence[SchemaChange]] = [
    [SetOption("snapshot.num-retained.max", "100"), SetOption("tag.default-time-retained", "1 d")],
    [SetOption("num-sorted-run.compaction-trigger", "9"), SetOption("file.format", "avro"), SetOption("bucket", "4")],
    [SetComment("a table"), ChangeComment(("n",), "a number"), ChangeDefault(("n",), "7")],
    [AddColumn(path=("new",), type=INT), AddColumn(path=("p", "z"), type=INT)],
    [RenameColumn(("n",), "number"), RenameColumn(("p", "x"), "east"), MoveColumn(("m",), ColumnPosition())],
    [ChangeType(("n",), BIGINT), ChangeType(("price",), parse_data_type("DECIMAL(12, 2)"))],
    [ChangeType(("word",), STRING), ChangeType(("l", "element", "x"), BIGINT), ChangeType(("m", "value", "y"), BIGINT)],
    [ChangeNullability(("n",), False), ChangeNullability(("n",), True)],
]


@pytest.mark.parametrize("changes", HARMLESS, ids=str)
def test_what_changes_no_value_is_no_obstacle(changes: Sequence[SchemaChange]) -> None:
    now = apply_changes(KNOWN, changes)
    assert (obstacles(KNOWN, now), folding_changes(KNOWN, now)) == ((), ())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (DropColumn(("n",)), "column n was dropped"),
        (DropColumn(("p", "x")), "column p.x was dropped"),
        (DropColumn(("l", "element", "y")), "column l.element.y was dropped"),
        (ChangeType(("n",), STRING), "column n is STRING now, it was INT"),
        (ChangeType(("n",), parse_data_type("SMALLINT")), "column n is SMALLINT now, it was INT"),
        (ChangeType(("word",), parse_data_type("VARCHAR(5)")), "column word is VARCHAR(5) now, it was VARCHAR(10)"),
        (ChangeType(("m", "value", "x"), STRING), "column m.value.x is STRING now, it was INT"),
        (ChangeNullability(("n",), False), "column n is NOT NULL now"),
        (
            SetOption("partition.default-name", "none"),
            "partition.default-name is none now, it was __DEFAULT_PARTITION__",
        ),
        (SetOption("partition.legacy-name", "false"), "partition.legacy-name is False now, it was True"),
    ],
    ids=str,
)
def test_what_old_files_cannot_make_up_for_is_named(change: SchemaChange, reason: str) -> None:
    now = apply_changes(KNOWN, [change])
    assert obstacles(KNOWN, now) == (reason,)
    again = apply_changes(now, [AddColumn(path=("n",), type=INT)]) if change == DropColumn(("n",)) else now
    assert obstacles(KNOWN, again) == (reason,), "a new column of the same name is another column"


PARTIAL: Mapping[str, str] = {"merge-engine": "partial-update", "fields.n.sequence-group": "word"}
NAMING: Mapping[str, Mapping[str, str]] = {
    "bucket-key": {"bucket-key": "id"},
    "sequence.field": {"sequence.field": "n"},
    "rowkind.field": {"rowkind.field": "word"},
    "record-level.time-field": {"record-level.time-field": "n", "record-level.expire-time": "1 d"},
    "watermark.column": {"watermark.column": "n"},
    "row-counts.index-key": {"row-counts.index-key": "n"},
    "partial-update.remove-record-on-sequence-group": {
        **PARTIAL,
        "partial-update.remove-record-on-sequence-group": "n",
    },
}
"""Options of which the value names columns, in a table that has them."""


@pytest.mark.parametrize("key", sorted(COLUMN_LISTS))
def test_an_option_that_names_columns_means_them_by_whatever_name(key: str) -> None:
    """A table goes back to a state from before its columns were renamed, whichever option names them."""
    then = replace(KNOWN, options={**KNOWN.options, **NAMING[key]})
    names = {"id": "ident", "n": "number", "word": "letters"}
    fields = [replace(each, name=names.get(each.name, each.name)) for each in then.fields]
    now = replace(
        then,
        fields=tuple(fields),
        primary_keys=("d", "ident"),
        options=renamed_in_options(then.options, names),
    )
    assert now.options != then.options
    assert (obstacles(then, now), folding_changes(then, now)) == ((), ())


def test_keys_and_fixed_options_that_others_changed_are_named() -> None:
    """Fluvial refuses these changes; another engine may not."""
    now = replace(
        KNOWN,
        partition_keys=(),
        primary_keys=("id", "d"),
        options={**KNOWN.options, "merge-engine": "first-row", "bucket-function.type": "mod"},
    )
    assert obstacles(KNOWN, now) == (
        "the primary key is id,d now, it was d,id",
        "the partition is none now, it was d",
        "the bucket key is id,d now, it was id",
        "bucket-function.type is mod now, it was default",
        "merge-engine is first-row now, it was deduplicate",
    )


@pytest.mark.parametrize(
    ("options", "changes", "expected"),
    [
        ({}, [SetOption("sequence.field", "n")], ("sequence.field is n now, it was not set",)),
        ({"sequence.field": "n"}, [RenameColumn(("n",), "k")], ()),
        ({"sequence.field": "n"}, [RemoveOption("sequence.field")], ("sequence.field is not set now, it was n",)),
        ({}, [SetOption("ignore-delete", "true")], ("ignore-delete is True now, it was False",)),
        (
            {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
            [SetOption("fields.n.aggregate-function", "max")],
            ("fields.n.aggregate-function is max now, it was sum",),
        ),
        (
            {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
            [
                AddColumn(path=("k",), type=INT),
                SetOption("fields.k.aggregate-function", "max"),
                SetOption("fields.n.stats-mode", "none"),
            ],
            (),
        ),
        (
            {"merge-engine": "partial-update", "fields.n.sequence-group": "price,word"},
            [
                AddColumn(path=("k",), type=INT),
                SetOption("fields.n.sequence-group", "price,word,k"),
                RenameColumn(("n",), "t"),
                RenameColumn(("price",), "n"),
                RenameColumn(("t",), "price"),
            ],
            (),
        ),
    ],
    ids=str,
)
def test_options_that_fold_rows_are_compared_by_the_columns_that_they_mean(
    options: dict[str, str], changes: Sequence[SchemaChange], expected: tuple[str, ...]
) -> None:
    then = new_schema(FIELDS, primary_key=["d", "id"], options={"bucket": "1", **options}, time_ms=0)
    assert folding_changes(then, apply_changes(then, changes)) == expected


def test_a_compacted_state_can_be_restored_whatever_folds_rows_by_now() -> None:
    """And another one not: its rows would be others."""
    catalog = memory_catalog()
    schema = pa.schema([("id", pa.int64()), ("a", pa.int32()), ("b", pa.int32())])
    table = catalog.create_table("db.t", schema, primary_key=["id"], options={"bucket": "1"})
    for a, b in ((5, 1), (3, 2)):
        table.write(pa.table({"id": [1], "a": [a], "b": [b]}, schema=schema))
    saved = create_savepoint(table.store)
    catalog.alter_table("db.t", [SetOption("sequence.field", "a")])
    table = catalog.table("db.t")
    table.write(pa.table({"id": [1], "a": [9], "b": [3]}, schema=schema))
    with pytest.raises(
        InvalidInputError, match=r"snapshot=2 schema=0 newest_schema=1 cause='sequence.field is a now, it was not set'"
    ):
        restore(table.store, table.store.snapshots.read(2))
    restore(table.store, saved.snapshot)
    assert table.read().to_arrow().to_pylist() == [{"id": 1, "a": 3, "b": 2}]


# ---- histories

RANKS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
OPTIONS = ("snapshot.num-retained.max", "num-sorted-run.compaction-trigger", "tag.num-retained-max")


@dataclass(frozen=True)
class State:
    """What a table held: rows by key and field id, and the type of each field."""

    rows: Mapping[int, Mapping[int, int | None]]
    kinds: Mapping[int, str]


class SchemaHistory:
    """A table that is written, altered and taken back, beside what each of its states held."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.catalog = memory_catalog()
        has_key = self.random.random() < 0.8
        columns = [("id", pa.int64()), ("a", pa.int8()), ("b", pa.int16())]
        self.table = self.catalog.create_table(
            "db.t",
            pa.schema(columns),
            primary_key=["id"] if has_key else [],
            options={"bucket": self.random.choice("12"), **({} if has_key else {"bucket-key": "id"}),
                     "num-sorted-run.compaction-trigger": "3", "file.format": self.random.choice(["avro", "parquet"]),
                     "manifest.merge-min-count": "3"},
        )  # fmt: skip
        self.has_key = has_key
        self.rows: dict[int, dict[int, int | None]] = {}
        self.states: dict[str, State] = {}
        self.serial = 0
        self.seen = dict.fromkeys(("restored", "refused", "altered"), 0)
        self.write()

    @property
    def kinds(self) -> dict[int, str]:
        return {field.id: field.type.root for field in self.table.schema.fields}

    def run(self, steps: int) -> None:
        actions: Sequence[Callable[[], None]] = [
            self.write, self.write, self.compact, self.alter, self.alter, self.alter, self.drop_or_narrow,
            self.tag, self.save, self.expire, self.back, self.back,
        ]  # fmt: skip
        for _ in range(steps):
            self.random.choice(actions)()
        self.check()
        check_metadata(self.table)

    def write(self) -> None:
        self.serial += 1
        keys = self.random.sample(range(1, 6), 2) if self.has_key else [10 * self.serial, 10 * self.serial + 1]
        names = {field.id: field.name for field in self.table.schema.fields}
        given = {key: {each: self.serial if name != "id" else key for each, name in names.items()} for key in keys}
        data = [{names[each]: value for each, value in row.items()} for row in given.values()]
        self.table.write(pa.Table.from_pylist(data, schema=self.table.schema.arrow_schema))
        self.rows.update(given)
        self.note()

    def compact(self) -> None:
        if self.table.compact(full=True) is not None:
            self.note()

    def alter(self) -> None:
        fields = [field for field in self.table.schema.fields if field.name != "id"]
        field = self.random.choice(fields) if fields else None
        self.serial += 1
        wider = field is not None and RANKS[RANKS.index(field.type.root) + 1 :]
        changes: list[SchemaChange] = [
            AddColumn(path=(f"c{self.serial}",), type=DataType(root="TINYINT")),
            SetOption(self.random.choice(OPTIONS), str(20 + self.serial)),
        ]
        if field is not None:
            changes += [RenameColumn((field.name,), f"c{self.serial}"), MoveColumn((field.name,), ColumnPosition())]
        if field is not None and wider:
            changes += [ChangeType((field.name,), DataType(root=wider[0]))]
        self.change(self.random.choice(changes))

    def drop_or_narrow(self) -> None:
        fields = [field for field in self.table.schema.fields if field.name != "id"]
        if not fields or self.random.random() < 0.7:
            return
        field = self.random.choice(fields)
        narrower = RANKS[: RANKS.index(field.type.root)]
        if narrower and self.random.random() < 0.5:
            self.change(ChangeType((field.name,), DataType(root=narrower[-1])))
        else:
            self.change(DropColumn((field.name,)))

    def change(self, change: SchemaChange) -> None:
        self.catalog.alter_table("db.t", [change])
        self.table = self.catalog.table("db.t")
        self.seen["altered"] += 1
        self.check()

    def tag(self) -> None:
        self.serial += 1
        latest = self.table.store.snapshots.latest_id()
        create_tag(self.table.store, f"t{self.serial}")
        self.states[f"t{self.serial}"] = self.states[str(latest)]

    def save(self) -> None:
        saved = create_savepoint(self.table.store, compact=self.has_key and self.random.random() < 0.7)
        self.states[f"savepoint.{saved.id}"] = State(dict(self.rows), self.kinds)
        self.note()

    def expire(self) -> None:
        for each in expire_all_but(self.table, self.random.randint(1, 4)):
            self.states.pop(str(each), None)

    def back(self) -> None:
        word = self.random.choice(sorted(self.states))
        state, store = self.states[word], self.table.store
        wanted = find_version(store, parse_version(store, word)).snapshot
        is_lost = any(
            each not in self.kinds or RANKS.index(self.kinds[each]) < RANKS.index(root)
            for each, root in state.kinds.items()
        )
        if is_lost:
            with pytest.raises(InvalidInputError, match="the older rows are not rows of the table"):
                restore(store, wanted)
            self.seen["refused"] += 1
            return
        restore(store, wanted)
        self.rows = {key: dict(row) for key, row in state.rows.items()}
        self.seen["restored"] += 1
        self.note()

    def note(self) -> None:
        """Every snapshot since the last note holds the rows of now."""
        for each in reversed(self.table.store.snapshots.ids()):
            if str(each) in self.states:
                break
            self.states[str(each)] = State(dict(self.rows), self.kinds)
        self.check()

    def check(self) -> None:
        names = {field.id: field.name for field in self.table.schema.fields}
        found = {row["id"]: row for row in self.table.read().to_arrow().to_pylist()}
        assert found == {key: {names[each]: row.get(each) for each in names} for key, row in self.rows.items()}


def schema_history(seed: int, *, steps: int = 18) -> Mapping[str, int]:
    """One random history; what happened in it, and how often."""
    made = SchemaHistory(seed)
    try:
        made.run(steps)
    except BaseException as error:
        error.add_note(f"seed={seed}")
        raise
    return made.seen


@pytest.mark.sweep
def test_a_table_goes_back_across_all_that_changes_no_value() -> None:
    """Issue 16 point 1: random histories of writes, changes of the schema, tags, savepoints, expiry and going back."""
    seen = {"restored": 0, "refused": 0, "altered": 0}
    for seed in range(int(os.environ.get("FLUVIAL_MODEL_EXAMPLES", "40"))):
        found = schema_history(seed)
        seen = {name: count + found[name] for name, count in seen.items()}
    assert min(seen.values()) > 5, seen
