"""Changed schemas: what is refused, what ids columns get, and that old rows are read as new columns."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.catalog.catalog import FileCatalog
from filestore.evolution.schema_change import (
    FIXED_BY_LOG,
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
from filestore.io.file_io import LocalFileIO
from filestore.options.option import Stored
from filestore.options.table_options import TableOptions
from filestore.scan.live_files import LiveFiles
from filestore.schema.column_paths import ColumnPosition
from filestore.schema.schema_store import new_schema
from filestore.schema.table_schema import TableSchema
from filestore.table import FileTable
from filestore.types.data_types import STRING, DataField, DataType
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError
from tests.support.tables import KEY_SCHEMA, key_table

INT, BIGINT = DataType(root="INT"), DataType(root="BIGINT")
POINT = DataType(root="ROW", fields=(DataField(id=0, name="x", type=INT), DataField(id=1, name="y", type=INT)))


def schema_with(*, options: dict[str, str] | None = None, primary_key: tuple[str, ...] = ("id", "dt")) -> TableSchema:
    fields = [
        DataField(id=0, name="id", type=BIGINT),
        DataField(id=0, name="dt", type=STRING),
        DataField(id=0, name="a", type=INT),
        DataField(id=0, name="p", type=POINT),
        DataField(id=0, name="ps", type=DataType(root="ARRAY", element=POINT)),
    ]
    return new_schema(
        fields, primary_key=primary_key, partition_by=("dt",), options={"bucket": "2", **(options or {})}, time_ms=7
    )


def changed(schema: TableSchema, *changes: SchemaChange, **arguments: Any) -> TableSchema:
    return apply_changes(schema, changes, **arguments)


def names(schema: TableSchema) -> list[str]:
    return list(schema.column_names)


def test_a_new_column_gets_ids_above_all_ever_used_depth_first() -> None:
    schema = schema_with()
    assert schema.highest_field_id == 8  # id dt a p(x y) ps(x y)
    after = changed(schema, DropColumn(("ps",)), AddColumn(path=("q",), type=POINT), AddColumn(path=("r",), type=INT))
    assert [(each.id, each.name) for each in after.fields[-2:]] == [(9, "q"), (12, "r")]
    assert [each.id for each in after.field("q").type.fields] == [10, 11]
    assert (after.id, after.highest_field_id, after.time_ms) == (1, 12, 7)


def test_columns_inside_others_are_added_renamed_moved_and_dropped() -> None:
    after = changed(
        schema_with(),
        AddColumn(path=("p", "z"), type=INT, position=ColumnPosition()),
        RenameColumn(("ps", "element", "x"), "east"),
        ChangeType(("p", "x"), BIGINT),
        DropColumn(("ps", "element", "y")),
        MoveColumn(("p", "y"), ColumnPosition("z")),
    )
    assert str(after.field("p").type) == "ROW<z INT, y INT, x BIGINT>"
    assert str(after.field("ps").type) == "ARRAY<ROW<east INT>>"
    assert after.field("p").type.fields[0].id == 9


def test_order_comments_defaults_and_nullability() -> None:
    after = changed(
        schema_with(options={"alter-column-null-to-not-null.disabled": "false"}),
        MoveColumn(("a",), ColumnPosition()),
        MoveColumn(("id",), ColumnPosition("p")),
        ChangeComment(("a",), "how many"),
        ChangeDefault(("a",), "5"),
        ChangeNullability(("a",), nullable=False),
        SetComment("things"),
    )
    assert names(after) == ["a", "dt", "p", "id", "ps"]
    assert (str(after.field("a").type), after.field("a").description) == ("INT NOT NULL", "how many")
    assert (after.field("a").default_value, after.comment) == ("5", "things")
    assert changed(after, ChangeComment(("a",), None), SetComment(None)).comment is None


def test_nothing_new_is_no_new_version() -> None:
    schema = schema_with()
    assert (
        changed(schema, SetOption("bucket", "2"), RemoveOption("log.scan"), MoveColumn(("id",), ColumnPosition()))
        is schema
    )


def test_options_that_name_a_column_follow_its_new_name() -> None:
    schema = schema_with(
        options={"merge-engine": "aggregation", "fields.a.aggregate-function": "sum", "bucket-key": "id"}
    )
    after = changed(schema, RenameColumn(("a",), "b"), RenameColumn(("id",), "key"))
    assert after.primary_keys == ("key", "dt")
    assert after.options["bucket-key"] == "key"
    assert after.options["fields.b.aggregate-function"] == "sum"
    assert "fields.a.aggregate-function" not in after.options


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (AddColumn(path=("a",), type=INT), "exists already"),
        (AddColumn(path=("n",), type=replace(INT, nullable=False)), "must be nullable"),
        (AddColumn(path=("_KEY_id",), type=INT), "reserved"),
        (AddColumn(path=("n",), type=INT, default="five"), "not a value"),
        (AddColumn(path=("n",), type=POINT, default="5"), "no default"),
        (AddColumn(path=("a", "n"), type=INT), "has no fields"),
        (AddColumn(path=("n",), type=INT, position=ColumnPosition("zz")), "no such column"),
        (DropColumn(("id",)), "the primary key"),
        (DropColumn(("dt",)), "the partitions"),
        (DropColumn(("dtt",)), "did_you_mean=dt"),
        (RenameColumn(("dt",), "day"), "directories use their names"),
        (RenameColumn(("a",), "p"), "exists already"),
        (ChangeType(("id",), INT), "key, partition or bucket column"),
        (ChangeType(("a",), DataType(root="DATE")), "cannot be read as the new type"),
        (ChangeType(("p",), INT), "is changed by its parts"),
        (ChangeNullability(("a",), nullable=False), "may hold nulls"),
        (ChangeNullability(("id",), nullable=True), "never null"),
        (MoveColumn(("a",), ColumnPosition("a")), "behind itself"),
        (SetOption("bucket", "-1"), "once there are rows"),
        (SetOption("merge-engine", "first-row"), "once there are rows"),
        (SetOption("primary-key", "a"), "keys and partitions cannot change"),
        (SetOption("log.kafka.bootstrap.servers", "b:1"), "gets its log at creation"),
        (SetOption("writ-buffer-size", "1 mb"), "write-buffer-size"),
        (SetOption("write-buffer-size", "much"), "write-buffer-size"),
        (SetOption("warehouse", "/x"), "belongs_to='the catalog'"),
        (SetOption("num-sorted-run.stop-trigger", "2"), "stop-trigger"),
    ],
)
def test_refused_changes_name_the_reason(change: SchemaChange, reason: str) -> None:
    """FL-84."""
    with pytest.raises(InvalidInputError, match=reason):
        changed(schema_with(), change)


def test_files_do_not_depend_on_options_before_the_first_row() -> None:
    assert changed(schema_with(), SetOption("bucket", "3"), has_rows=False).options["bucket"] == "3"


def test_partitions_are_rescaled_by_overwriting_them() -> None:
    """FL-84: the number of buckets may change where there is no log; rows need the new one, overwrites bring it."""
    schema = pa.schema([("p", pa.string()), *KEY_SCHEMA])
    table = key_table(schema=schema, primary_key=["p", "id"], partition_by=["p"], bucket="2")

    def part(name: str, *ids: int) -> pa.Table:
        return pa.table({"p": [name] * len(ids), "id": list(ids), "v": list(ids)}, schema=schema)

    table.write(pa.concat_tables([part("a", *range(20)), part("b", *range(20))]))
    table.store.schemas.create(replace(changed(table.schema, SetOption("bucket", "5")), id=1))
    wider = FileTable.open(
        table.name, table.store.paths.root, io=table.store.io, clock=table.store.clock, names=table.store.names
    )
    with pytest.raises(InvalidInputError, match="live=2 now=5 fix='overwrite the partition"):
        wider.write(part("a", 99))
    wider.overwrite(part("a", *range(30)))
    wider.write(part("a", 99))
    live = LiveFiles.latest(wider.store)
    assert {wider.store.partition_values(name): total for name, total in live.partition_total_buckets().items()} == {
        ("a",): 5,
        ("b",): 2,
    }
    assert wider.read().to_arrow().num_rows == 31 + 20
    assert wider.read().to_arrow(filter="p = 'a' and id = 7").num_rows == 1


def test_only_wider_types_when_casts_are_off() -> None:
    schema = schema_with(options={"disable-explicit-type-casting": "true"})
    assert str(changed(schema, ChangeType(("a",), BIGINT)).field("a").type) == "BIGINT"
    with pytest.raises(InvalidInputError, match="only wider"):
        changed(schema, ChangeType(("a",), DataType(root="TINYINT")))


LOG = {"log.system": "kafka", "log.kafka.bootstrap.servers": "b:1"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (SetOption("bucket", "9"), r"while the table has a log.*fix=.CALL sys.rescale"),
        (RemoveOption("log.system"), "while the table has a log"),
        (SetOption("log.format", "json"), "while the table has a log"),
        (RenameColumn(("id",), "key"), "keep their names"),
        (RenameColumn(("p", "x"), "east"), "keep their names"),
        (ChangeType(("a",), DataType(root="DOUBLE")), "records in the log"),
        (AddColumn(path=("gone",), type=INT), "was another column's"),
        (RenameColumn(("a",), "gone"), "was another column's"),
    ],
)
def test_a_log_keeps_its_records_readable(change: SchemaChange, reason: str) -> None:
    """FL-84: a log has one partition for every bucket; names in records never change their meaning."""
    first = changed(schema_with(options=LOG), AddColumn(path=("gone",), type=INT), has_rows=False)
    second = changed(first, DropColumn(("gone",)), history=[schema_with(options=LOG)])
    with pytest.raises(InvalidInputError, match=reason):
        changed(second, change, has_rows=False, history=[schema_with(options=LOG), first])


def test_an_option_that_never_changes_may_be_set_to_the_value_in_force() -> None:
    keyed = schema_with(options=LOG)
    declared = TableOptions.declared
    fixed = {key for key, option in declared.items() if option.is_immutable} | FIXED_BY_LOG | {"bucket"}
    fixed = {key for key in fixed if key not in declared or declared[key].stored is Stored.BY_USERS}
    values = {key: keyed.table_options[TableOptions.declared[key]] for key in fixed if key in TableOptions.declared}
    values |= {"primary-key": keyed.primary_keys, "partition": keyed.partition_keys}
    texts = {
        key: ",".join(value) if isinstance(value, tuple) else str(value).lower()
        for key, value in values.items()
        if value not in (None, ())
    }
    assert {"bucket", "log.key.format", "log.system", "merge-engine", "primary-key"} <= texts.keys()
    for key, text in texts.items():
        assert changed(keyed, SetOption(key, text)) is keyed, key
    with pytest.raises(InvalidInputError, match="while the table has a log"):
        changed(keyed, SetOption("log.changelog-mode", "all"))


@pytest.mark.parametrize(("before", "after"), [(None, "lookup"), ("input", "lookup"), ("lookup", "none")])
def test_who_looks_up_the_changes_of_a_log_stays(before: str | None, after: str) -> None:
    """FL-132: records of mode all are rows as they were written, or as they are after merging, and never both."""
    producer = {} if before is None else {"changelog-producer": before}
    every = schema_with(options={**LOG, "log.changelog-mode": "all", **producer})
    with pytest.raises(InvalidInputError, match=rf"while the table has a log.* wanted={after}"):
        changed(every, SetOption("changelog-producer", after), has_rows=False)
    upserts = schema_with(options={**LOG, **producer})
    assert changed(upserts, SetOption("changelog-producer", after)).options["changelog-producer"] == after
    assert changed(every, SetOption("changelog-producer.row-deduplicate", "true"))


def test_a_log_allows_new_names_and_wider_types() -> None:
    schema = schema_with(options=LOG)
    after = changed(schema, RenameColumn(("a",), "b"), ChangeType(("b",), BIGINT), AddColumn(path=("c",), type=INT))
    assert changed(after, RenameColumn(("b",), "a"), history=[schema]).field("a").id == schema.field("a").id


# The catalog publishes versions


def catalog_with_table(tmp_path: Path, io: LocalFileIO | None = None) -> FileCatalog:
    catalog = FileCatalog(str(tmp_path), io=io)
    catalog.create_table("db.t", [DataField(id=0, name="a", type=INT), DataField(id=0, name="b", type=STRING)])
    return catalog


class Racing(LocalFileIO):
    """Somebody else publishes the version first, or the answer is lost."""

    def __init__(self) -> None:
        self.other: bytes | None = None
        self.loses_answer = False

    def create_exclusive(self, path: str, body: bytes) -> bool:
        if self.other is not None and "/schema/" in path:
            assert super().create_exclusive(path, self.other)
            self.other = None
        done = super().create_exclusive(path, body)
        if self.loses_answer:
            raise OutcomeUnknownError("lost")
        return done


def test_changes_of_two_writers_both_hold(tmp_path: Path) -> None:
    io = Racing()
    catalog = catalog_with_table(tmp_path, io)
    other = apply_changes(catalog.table("db.t").schema, [AddColumn(path=("theirs",), type=INT)])
    io.other = other.to_json().encode()
    after = catalog.alter_table("db.t", [AddColumn(path=("ours",), type=INT)])
    assert (after.id, names(after)) == (2, ["a", "b", "theirs", "ours"])
    assert after.field("ours").id == 3
    assert catalog.table("db.t").schema == after


def test_a_lost_answer_is_looked_up(tmp_path: Path) -> None:
    io = Racing()
    catalog = catalog_with_table(tmp_path, io)
    io.loses_answer = True
    assert catalog.alter_table("db.t", [AddColumn(path=("c",), type=INT)]).id == 1


def test_changes_that_are_never_first_give_up(tmp_path: Path) -> None:
    class Behind(LocalFileIO):
        def create_exclusive(self, path: str, body: bytes) -> bool:
            return "schema-0" in path and super().create_exclusive(path, body)

    with pytest.raises(ConflictError, match="schema change races"):
        catalog_with_table(tmp_path, Behind()).alter_table("db.t", [AddColumn(path=("c",), type=INT)])


def test_a_renamed_table_keeps_rows_and_refuses_those_who_know_its_old_name(tmp_path: Path) -> None:
    catalog = catalog_with_table(tmp_path)
    old = catalog.table("db.t")
    old.write(pa.table({"a": [1], "b": ["x"]}))
    catalog.create_database("other")
    catalog.rename_table("db.t", "other.u")
    assert catalog.table("other.u").read().to_arrow().to_pylist() == [{"a": 1, "b": "x"}]
    assert not catalog.table_exists("db.t")
    with pytest.raises(InvalidInputError, match="table is gone"):
        old.write(pa.table({"a": [2], "b": ["y"]}))
    assert catalog.table("other.u").read().to_arrow().num_rows == 1


@pytest.mark.parametrize("new_name", ["db.taken", "nowhere.u", "db.a/b"])
def test_a_name_that_cannot_be_given_changes_nothing(tmp_path: Path, new_name: str) -> None:
    catalog = catalog_with_table(tmp_path)
    catalog.create_table("db.taken", [DataField(id=0, name="a", type=INT)])
    with pytest.raises(InvalidInputError):
        catalog.rename_table("db.t", new_name)
    assert catalog.list_tables("db") == ["t", "taken"]


def test_a_writer_that_does_not_know_a_new_column_keeps_it(tmp_path: Path) -> None:
    """It writes nulls; and what it compacts keeps the columns that the files have and it has not."""
    catalog = FileCatalog(str(tmp_path))
    columns = pa.schema([("id", pa.int64()), ("a", pa.int32())])
    catalog.create_table("db.t", columns, primary_key=["id"], options={"bucket": "1", "sequence.field": "a"})
    old = catalog.table("db.t")
    catalog.alter_table("db.t", [AddColumn(path=("c",), type=STRING), RenameColumn(("a",), "version")])
    catalog.table("db.t").write(pa.table({"id": [1, 2], "version": [1, 1], "c": ["x", "y"]}))
    old.write(pa.table({"id": [2, 3], "a": pa.array([2, 2], pa.int32())}))
    assert old.compact(full=True) is not None
    rows = catalog.table("db.t").read().to_arrow().to_pylist()
    assert rows == [
        {"id": 1, "version": 1, "c": "x"},
        {"id": 2, "version": 2, "c": None},
        {"id": 3, "version": 2, "c": None},
    ]


# Any history of changes and writes, against columns that remember their values


@dataclass(eq=False)
class Column:
    name: str
    is_text: bool
    is_wide: bool = False
    values: dict[int, Any] = field(default_factory=dict)  # by row


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    step = st.one_of(
        st.tuples(st.just("write")),
        st.tuples(st.just("write")),
        st.tuples(st.just("compact")),
        st.tuples(st.just("add"), st.booleans(), st.integers(0, 5)),
        st.tuples(st.just("drop"), st.integers(0, 5)),
        st.tuples(st.just("rename"), st.integers(0, 5)),
        st.tuples(st.just("widen"), st.integers(0, 5)),
        st.tuples(st.just("move"), st.integers(0, 5), st.integers(0, 5)),
        st.tuples(st.just("reuse"), st.integers(0, 5)),
    )
    return draw(st.lists(step, min_size=3, max_size=9))


class Model:
    """What the table is after a history; each method takes a step and gives the change that the table shall take."""

    def __init__(self) -> None:
        self.key = Column("id", is_text=False, is_wide=True)
        self.columns = [self.key, Column("c0", is_text=False), Column("c1", is_text=True)]
        self.serial = 2
        self.free = ["c0"]
        self.row_count = 0

    @property
    def others(self) -> list[Column]:
        return [each for each in self.columns if each is not self.key]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [{each.name: each.values.get(row) for each in self.columns} for row in range(self.row_count)]

    def write(self) -> dict[str, list[Any]]:
        rows = (self.row_count, self.row_count + 1)
        for each in self.columns:
            each.values |= {row: row if each is self.key else _value(each, row) for row in rows}
        self.row_count += 2
        return {each.name: [each.values[row] for row in rows] for each in self.columns}

    def add(self, is_text: bool, place: int) -> SchemaChange:
        after = self.columns[place % len(self.columns)]
        column = Column(self._fresh(), is_text=is_text)
        self.columns.insert(self.columns.index(after) + 1, column)
        return AddColumn(path=(column.name,), type=STRING if is_text else INT, position=ColumnPosition(after.name))

    def drop(self, which: int) -> SchemaChange | None:
        if not self.others:
            return None
        gone = self.others[which % len(self.others)]
        self.columns.remove(gone)
        self.free.append(gone.name)
        return DropColumn((gone.name,))

    def rename(self, which: int) -> SchemaChange:
        renamed = self.columns[which % len(self.columns)]
        change = RenameColumn((renamed.name,), self._fresh())
        renamed.name = change.name
        return change

    def widen(self, which: int) -> SchemaChange | None:
        narrow = [each for each in self.others if not each.is_text and not each.is_wide]
        if not narrow:
            return None
        wide = narrow[which % len(narrow)]
        wide.is_wide = True
        return ChangeType((wide.name,), BIGINT)

    def move(self, which: int, place: int) -> SchemaChange | None:
        moved, after = self.columns[which % len(self.columns)], self.columns[place % len(self.columns)]
        if moved is after:
            return None
        self.columns.remove(moved)
        self.columns.insert(self.columns.index(after) + 1, moved)
        return MoveColumn((moved.name,), ColumnPosition(after.name))

    def reuse(self, which: int) -> SchemaChange | None:
        name = self.free[which % len(self.free)]
        if name in [each.name for each in self.columns]:
            return None
        self.columns.append(Column(name, is_text=True))
        return AddColumn(path=(name,), type=STRING)

    def _fresh(self) -> str:
        self.serial += 1
        return f"c{self.serial}"


@pytest.mark.sweep
@settings(max_examples=25, deadline=None)
@given(histories())
def test_old_and_new_rows_are_read_as_the_columns_are_now(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[Any, ...]]
) -> None:
    """A dropped name that comes back is a new column: nothing of the old one appears in it."""
    catalog, model = FileCatalog(str(tmp_path_factory.mktemp("history"))), Model()
    fields = [
        DataField(id=0, name=each.name, type=STRING if each.is_text else BIGINT if each.is_wide else INT)
        for each in model.columns
    ]
    catalog.create_table("db.t", fields, primary_key=["id"], options={"bucket": "1"})
    for step, *arguments in [*history, ("write",)]:
        table = catalog.table("db.t")
        if step == "write":
            table.write(pa.table(model.write(), schema=table.schema.arrow_schema))
        elif step == "compact":
            table.compact(full=True)
        elif (change := getattr(model, step)(*arguments)) is not None:
            catalog.alter_table("db.t", [change])
    table = catalog.table("db.t")
    assert list(table.schema.column_names) == [each.name for each in model.columns]
    assert len({each.id for each in table.schema.fields}) == len(model.columns)
    found = table.read().to_arrow().to_pylist()
    assert sorted(found, key=lambda row: row[model.key.name]) == model.rows
    for name in [each.name for each in model.others if not each.is_text][:1]:
        wanted = [row for row in model.rows if row[name] is not None and row[name] > 2]
        filtered = table.read().to_arrow(filter=f"{name} > 2").to_pylist()
        assert sorted(filtered, key=lambda row: row[model.key.name]) == wanted


def _value(column: Column, row: int) -> Any:
    if column.is_text:
        return f"{column.name}-{row}"
    return row + (2**40 if column.is_wide else 0)
