"""A position within a batch names what it counts: a later reading repeats it exactly, or is refused by name."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.follow.choices import FollowRequest, _asked_before
from engine.follow.position import FollowPosition
from engine.follow.reading import WAY
from engine.stream.position.position import Phase
from filestore.evolution.schema_change import (
    AddColumn,
    ChangeType,
    DropColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetOption,
)
from filestore.options.table.rows import MergeOptions
from filestore.types.data_types import parse_data_type
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError
from tests.support.faults import ManualClock
from tests.support.rows import id_rows, write_changes
from tests.support.streams import Rows, ids, query
from tests.support.warehouses import ID_SCHEMA, new_table

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int32()), ("t", pa.int64())])
EXPIRY = {"record-level.expire-time": "100 s", "record-level.time-field": "t"}
NORMALIZED = {"log.scan.normalize": "true"}


def at_clock(table: Table, clock: ManualClock) -> Table:
    """The table in a world whose time a test moves."""
    return Table(replace(table.files, store=replace(table.store, clock=clock)))


def taken(table: Table, place: str | None, batches: int | None = None, **choices: Any) -> tuple[Rows, str]:
    """Rows of some batches of a stream, of all without a number, and the position behind them, as text."""
    found: Rows = []
    with table.stream(place, follow=False, **choices) as stream:
        for number, changes in enumerate(stream, 1):
            found += changes.rows.to_pylist()
            place = str(changes.position)
            if number == batches:
                break
    assert place is not None
    return found, place


def within(table: Table, place: str | None, rows: int, **choices: Any) -> tuple[Rows, str]:
    """The first rows of what follows, and the position behind them, which lies within a batch."""
    found: Rows = []
    with table.stream(place, follow=False, max_rows=1, **choices) as stream:
        while len(found) < rows:
            changes = next(stream)
            found += changes.rows.to_pylist()
    assert changes.position.to is not None
    return found, str(changes.position)


# ---- the law


@dataclass
class ReadWorld:
    """A table, its time, and the names that its columns have now, by those that they had first."""

    catalog: Catalog
    name: str
    clock: ManualClock
    names: dict[str, str] = field(default_factory=lambda: {name: name for name in SCHEMA.names})
    added: int = 0

    @property
    def table(self) -> Table:
        """Opened now."""
        return at_clock(self.catalog.table(self.name), self.clock)

    def write(self, *changes: tuple[Any, ...]) -> None:
        """Commit kinds, ids, values and ages in seconds."""
        now_s = self.clock.ms // 1000
        columns = [self.names[name] for name in SCHEMA.names if name in self.names]
        rows = []
        for kind, *row in changes:
            values = dict(zip(SCHEMA.names, [*row[:-1], now_s - row[-1]], strict=True))
            rows.append((kind, {self.names[name]: values[name] for name in SCHEMA.names if name in self.names}))
        assert columns
        write_changes(self.table, *rows)

    def turn(self, event: tuple[str, Any]) -> None:
        """Something happens while no program reads."""
        match event:
            case "time", seconds:
                self.clock.sleep(seconds)
            case "compact", full:
                self.table.compact(full=full)
            case "add", _:
                self.added += 1
                self._alter(AddColumn(path=(f"new{self.added}",), type=parse_data_type("BIGINT")))
            case "drop", _:
                if "b" in self.names:
                    self._alter(DropColumn(path=(self.names.pop("b"),)))
            case "rename", _:
                self._alter(RenameColumn(path=(self.names["a"],), name=f"{self.names['a']}a"))
                self.names["a"] += "a"
            case "widen", _:
                if "b" in self.names:
                    self._alter(ChangeType(path=(self.names["b"],), type=parse_data_type("BIGINT")))
            case "option", hours:
                self._alter(SetOption("snapshot.time-retained", f"{hours} h"))

    def _alter(self, change: SchemaChange) -> None:
        self.catalog.alter_table(self.name, [change])

    def choices(self, asked: dict[str, Any], chosen: Sequence[str] | None) -> dict[str, Any]:
        """What a program asks for, in today's names."""
        found = dict(asked)
        if "filter" in found:
            found["filter"] = found["filter"].format(**self.names)
        if chosen is not None:
            found["columns"] = [self.names[name] for name in chosen if name in self.names]
        return found

    def shown(self, rows: Rows) -> list[dict[str, Any]]:
        """Rows under the names that the columns had first."""
        first = {name: known for known, name in self.names.items()} | {"_row_kind": "_row_kind"}
        return [{first[name]: value for name, value in row.items() if name in first} for row in rows]


SETUPS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "files": ({}, {}),
    "expiring files": (EXPIRY, {}),
    "small splits": ({"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b", **EXPIRY}, {}),
    "differences": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true", **EXPIRY},
        {},
    ),
    "filtered differences": (EXPIRY, {"filter": "{a} >= 3"}),
    "vectors": ({"deletion-vectors.enabled": "true", **EXPIRY}, {}),
    "log": ({"log.system": "kafka", **EXPIRY}, {}),
    "normalized log": ({"log.system": "kafka", **EXPIRY}, {"options": NORMALIZED}),
    "filtered log": ({"log.system": "kafka", **EXPIRY}, {"filter": "{a} >= 3"}),
    "filtered keys of a log": ({"log.system": "kafka", **EXPIRY}, {"filter": "{id} >= 3", "share": (1, 2)}),
    "eventual log": ({"log.system": "kafka", "log.consistency": "eventual", **EXPIRY}, {"options": NORMALIZED}),
}
EVENTS: tuple[tuple[str, Any], ...] = (
    ("time", 20),
    ("commit", 3),
    ("columns", 2),
    ("add", None),
    ("time", 60),
    ("rename", None),
    ("compact", False),
    ("widen", None),
    ("columns", 1),
    ("option", 7),
    ("drop", None),
    ("compact", True),
    ("add", None),
    ("time", 1000),
    ("columns", 4),
)


def some_changes(choose: random.Random, most: int) -> list[tuple[Any, ...]]:
    """Kinds, ids, values and ages of some rows; of each id one."""
    return [
        (choose.choice(["+I", "+I", "+U", "-D"]), key, choose.randrange(6), choose.randrange(3), choose.choice(AGES))
        for key in choose.sample(range(12), most)
    ]


AGES: Final = (0, 50, 90, 200)


@pytest.mark.sampled(4)
@pytest.mark.broker
@pytest.mark.parametrize("begins", ["with a snapshot", "behind one"])
@pytest.mark.parametrize("setup", SETUPS)
def test_a_batch_read_with_a_restart_after_any_row_is_the_batch_read_without(
    setup: str, begins: str, broker: Broker, tmp_path: Path
) -> None:
    """Whatever happens between two programs: time passes and rows expire, columns are added, dropped, renamed, widened,
    or are not asked for any more, options change that decide nothing, other commits and compactions come. After each
    such event programs go on from behind some rows of the batch, by positions of the programs before."""
    choose = random.Random(f"{setup} {begins}")
    options, asked = SETUPS[setup]
    given = {"bucket": "2", **options}
    if given.pop("log.system", None):
        given["log.kafka.bootstrap.servers"] = broker.bootstrap_servers
    catalog, clock = Catalog(str(tmp_path)), ManualClock()
    world = ReadWorld(catalog, new_table(catalog, SCHEMA, options=given).name, clock)
    world.write(*(("+I", *change[1:]) for change in some_changes(choose, 10)))
    _, place = taken(world.table, None, 1 if begins == "with a snapshot" else None, **world.choices(asked, None))
    if begins != "with a snapshot":
        world.write(*some_changes(choose, 8))
        world.write(*some_changes(choose, 8))
    whole, places = rows_and_places(world, place, asked, None)
    assert len(whole) > 1
    known = dict(zip(range(1, len(whole)), places, strict=False))
    events = list(EVENTS)
    choose.shuffle(events)
    for kind, how in events:
        chosen = None
        if kind == "columns":
            chosen = choose.sample(SCHEMA.names, how)
        elif kind == "commit":
            world.write(*some_changes(choose, how))
        else:
            world.turn((kind, how))
        found: dict[int, str] = {}
        for count in choose.sample(sorted(known), min(3, len(known))):
            rest, behind = rows_and_places(world, known[count], asked, chosen)
            assert len(rest) >= len(whole) - count
            for row, expected in zip(rest, whole[count:], strict=False):
                assert row == {name: expected[name] for name in row}, (kind, how, count)
            found |= dict(zip(range(count + 1, len(whole)), behind, strict=False))
        known |= found  # of programs that came later


def rows_and_places(
    world: ReadWorld, place: str, asked: dict[str, Any], chosen: Sequence[str] | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Every row that follows a place, and the position behind it."""
    rows: Rows = []
    places = []
    with world.table.stream(place, follow=False, max_rows=1, **world.choices(asked, chosen)) as stream:
        for changes in stream:
            if changes.rows.num_rows:
                rows += changes.rows.to_pylist()
                places.append(str(changes.position))
    return world.shown(rows), places


# ---- what the law found first, and its kin


def later(table: Table, seconds: int) -> Table:
    """The same table after some time, opened by another program."""
    return at_clock(table, ManualClock(table.store.clock.now_ms() + seconds * 1000))


@pytest.fixture
def expiring(catalog: Catalog) -> Table:
    """Ten rows that expire after 100 seconds, ten that do not."""
    made = new_table(catalog, SCHEMA, options={"bucket": "2", **EXPIRY})
    made = at_clock(made, ManualClock())
    now_s = made.store.clock.now_ms() // 1000
    write_changes(made, *(("+I", each, 0, 0, now_s + (10**6) * (each % 2)) for each in range(20)))
    return made


@pytest.mark.parametrize("commits", [0, 1])
@pytest.mark.parametrize("reads", [1, 10, 19])
def test_rows_that_expire_while_a_program_is_away_move_no_others(expiring: Table, reads: int, commits: int) -> None:
    """The moment of expiry is that of the first reading, also when the snapshot is not the newest one any more."""
    found, place = within(expiring, None, reads)
    expiring = later(expiring, 1000)
    for number in range(commits):
        write_changes(expiring, ("+I", 100 + number, 0, 0, None))
    found += taken(expiring, place)[0]
    assert ids(found) == [*range(20), *(100 + number for number in range(commits))]


def test_rows_that_had_expired_do_not_come_back_when_the_snapshot_is_an_old_one(expiring: Table) -> None:
    expiring = later(expiring, 1000)
    found, place = within(expiring, None, 3)
    write_changes(expiring, ("+I", 100, 0, 0, None))
    found += taken(expiring, place)[0]
    assert ids(found) == [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 100]


def test_the_splits_of_a_snapshot_are_read_at_one_moment(expiring: Table) -> None:
    """A query of Spark keeps it in its checkpoint."""
    name = expiring.name
    catalog = Catalog(Path(expiring.store.paths.root).parents[1])
    stream = query(catalog.table(name), read_stream_maxRowsPerTrigger="1")
    assert stream.plan()
    moment = stream.position["moment"]
    stream.commit()
    stream.start()
    assert stream.plan()
    assert stream.position.get("moment", moment) == moment


@pytest.fixture
def two_values(catalog: Catalog, broker: Broker) -> Table:
    """Snapshot 2 changes only ``b`` of ids 1 and 2, and only ``a`` of 3 and 4."""
    made = new_table(catalog, SCHEMA, broker=broker)
    write_changes(made, *(("+I", each, 0, 0, 0) for each in (1, 2, 3, 4)))
    write_changes(made, ("+U", 1, 0, 5, 0), ("+U", 2, 0, 5, 0), ("+U", 3, 7, 0, 0), ("+U", 4, 7, 0, 0))
    return made


REST = [("-U", 3, 0), ("+U", 3, 7), ("-U", 4, 0), ("+U", 4, 7)]


@pytest.mark.broker
@pytest.mark.parametrize(
    "choices",
    [
        {"options": NORMALIZED},
        {"options": {"streaming-read-mode": "file"}, "filter": "a >= 0 or b >= 0"},
        {"filter": "a >= 0 and id > 0"},
    ],
    ids=["normalized", "filtered files", "filtered log"],
)
@pytest.mark.parametrize("change", ["columns", "drop", "add and drop", "rename"])
def test_columns_that_were_compared_are_compared_until_the_batch_is_complete(
    catalog: Catalog, two_values: Table, choices: dict[str, Any], change: str
) -> None:
    _, place = taken(two_values, "snapshot.1", 2, **choices)
    assert FollowPosition.parse(place).to is None
    found, place = within(two_values, place, 4, **choices)
    assert ids(found) == [1, 1, 2, 2]
    names = ["id", "a"]
    if "drop" in change and "b" not in choices.get("filter", ""):
        more = [AddColumn(path=("c",), type=parse_data_type("INT"))] if "add" in change else []
        catalog.alter_table(two_values.name, [DropColumn(path=("b",)), *more])
        names = []  # all that there are now
    elif change == "rename":
        catalog.alter_table(two_values.name, [RenameColumn(path=("b",), name="c")])
        choices = {**choices, "filter": choices["filter"].replace("b", "c")} if "filter" in choices else choices
    chosen: dict[str, Any] = {"columns": names} if names else {}
    rest, _ = taken(catalog.table(two_values.name), place, **choices, **chosen)
    assert [(row["_row_kind"], row["id"], row["a"]) for row in rest] == REST


def test_a_name_that_another_column_has_now_is_not_compared_instead(catalog: Catalog) -> None:
    """Without a log a dropped column's name can be given again."""
    made = new_table(catalog, SCHEMA)
    write_changes(made, *(("+I", each, 0, 0, 0) for each in (1, 2, 3)))
    _, place = taken(made, None)
    choices: dict[str, Any] = {"filter": "a >= 0"}
    made.overwrite(pa.table({"id": [1, 2, 3], "a": [0, 0, 7], "b": [5, 5, 0], "t": [0, 0, 0]}))
    found, place = within(made, place, 4, **choices)
    assert ids(found) == [1, 1, 2, 2]
    catalog.alter_table(made.name, [DropColumn(path=("b",)), AddColumn(path=("b",), type=parse_data_type("STRING"))])
    rest, _ = taken(catalog.table(made.name), place, **choices)
    assert [(row["_row_kind"], row["id"], row["a"], row["b"]) for row in rest] == [
        ("-U", 3, 0, None),
        ("+U", 3, 7, None),
    ]


def test_partitions_that_are_not_tracked_any_more_belong_to_the_batch_that_has_begun(catalog: Catalog) -> None:
    made = new_table(catalog, SCHEMA, key=["id", "a"], partition_by=["a"], options={"merge-engine": "aggregation"})
    write_changes(made, ("+I", 0, 0, 0, 0))
    _, place = taken(made, None)
    write_changes(made, *(("+I", each, each % 2, 0, 0) for each in range(1, 9)))
    found, place = within(made, place, 2)
    text = json.dumps([{"a": str(found[0]["a"])}])
    catalog.alter_table(made.name, [SetOption("change-tracking.untracked-partitions", text)])
    rest, _ = taken(catalog.table(made.name), place)
    assert ids(found + rest) == [*range(1, 9)]


# ---- what cannot be repeated is refused


@pytest.fixture
def merging(catalog: Catalog) -> Table:
    """A batch of differences lies between snapshots 1 and 2."""
    options = {"merge-engine": "aggregation", "fields.a.aggregate-function": "max"}
    made = new_table(catalog, SCHEMA, options=options)
    write_changes(made, *(("+I", each, 1, 1, 1) for each in range(6)))
    write_changes(made, *(("+I", each, each, 1, 1) for each in range(6)))
    return made


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("sequence.field", "t"),
        ("fields.a.aggregate-function", "min"),
        ("fields.default-aggregate-function", "last_value"),
        ("record-level.expire-time", "1 d"),
        ("ignore-update-before", "true"),
    ],
)
def test_an_option_that_decides_which_rows_there_are_stays_until_the_batch_is_complete(
    catalog: Catalog, merging: Table, key: str, text: str
) -> None:
    _, place = taken(merging, "snapshot.1", 2)
    whole, _ = taken(merging, place)
    found, inside = within(merging, place, 3)
    before = merging.schema.options.get(key)
    more = [SetOption("record-level.time-field", "t")] if key.startswith("record-level") else []
    catalog.alter_table(merging.name, [*more, SetOption(key, text)])
    named = "fields" if key.startswith("fields") else key.replace(".", r"\.")
    with pytest.raises(InvalidInputError, match=rf"option={named}.* cause='it decides .* fix="):
        catalog.table(merging.name).stream(inside)
    undone = [RemoveOption(each.key) for each in more]
    undone.append(RemoveOption(key) if before is None else SetOption(key, before))  # type: ignore[arg-type]
    catalog.alter_table(merging.name, [*reversed(undone)])
    assert found + taken(catalog.table(merging.name), inside)[0] == whole
    at = json.dumps(json.loads(inside)["at"])
    assert taken(catalog.table(merging.name), at)[0] == whole  # the way out that the message names


def test_an_option_under_another_name_of_its_column_is_the_same(catalog: Catalog) -> None:
    made = new_table(catalog, SCHEMA, options={"merge-engine": "partial-update", "sequence.field": "t"})
    write_changes(made, *(("+I", each, 1, 1, 1) for each in range(4)))
    found, place = within(made, None, 2)
    catalog.alter_table(made.name, [RenameColumn(path=("t",), name="moment")])
    found += taken(catalog.table(made.name), place)[0]
    assert ids(found) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("choices", "named"),
    [
        ({"filter": "id < 9"}, "filter="),
        ({"share": (0, 2)}, "share=0/2 then=0/1"),
        ({"options": NORMALIZED}, "kinds=normalized then=none"),
        ({"filter": "a = 1"}, "filter="),
    ],
)
@pytest.mark.broker
def test_other_rows_are_refused_within_a_batch(
    catalog: Catalog, broker: Broker, choices: dict[str, Any], named: str
) -> None:
    made = new_table(catalog, SCHEMA, broker=broker)
    write_changes(made, *(("+I", each, 1, 1, 1) for each in range(4)))
    _, place = within(made, None, 2)
    with pytest.raises(InvalidInputError, match=rf"asked for other rows: .*{named}"):
        made.stream(place, **choices)


def uneven(catalog: Catalog) -> Table:
    """Three files, of which the first is as large as both others."""
    made = new_table(catalog, ID_SCHEMA, key=(), options={"bucket-key": "id", "file.compression": "none"})
    for first, count in ((0, 4000), (4000, 2000), (6000, 2000)):
        made.write(id_rows(range(first, first + count), None))
    return made


def split_sizes(catalog: Catalog, table: Table, target: int) -> Table:
    options = {"source.split.target-size": f"{target} b", "source.split.open-file-cost": "1 b"}
    return catalog.alter_table(table.name, [SetOption(key, text) for key, text in options.items()])


def test_as_many_splits_with_other_boundaries_are_other_splits(catalog: Catalog) -> None:
    """Two splits of the first two files and the third, then of the first and the other two: positions count splits."""
    made = uneven(catalog)
    sizes = [file.size_bytes for split in made.files.new_scan().plan().splits for file in split.files]
    made = split_sizes(catalog, made, sizes[0] + sizes[1])
    stream = query(made, with_kinds=False, read_stream_maxRowsPerTrigger="1")
    assert ids(stream.batch()) == [*range(6000)]
    whole = made.stream(None, options={"read.stream.maxRowsPerTrigger": "1"})
    next(whole)
    between = str(next(whole).position)
    _, inside = within(made, None, 5)
    made = split_sizes(catalog, made, max(sizes[0], sizes[1] + sizes[2]))
    assert len(made.files.new_scan().plan().splits) == 2
    stream.start()
    with pytest.raises(CorruptDataError, match=r"splits of a snapshot differ .*splits=2 before=2 plan="):
        stream.batch()
    for place in (between, inside):
        with pytest.raises(CorruptDataError, match=r"splits of a snapshot differ .* fix=read with the same"):
            taken(made, place)
    made = split_sizes(catalog, made, sizes[0] + sizes[1])
    assert len(taken(made, inside)[0]) == 8000 - 5


def test_a_column_of_another_meaning_is_refused(catalog: Catalog, merging: Table) -> None:
    """Values that are equal as one type may differ as another."""
    found, place = within(merging, taken(merging, "snapshot.1", 2)[1], 2)
    assert len(found) == 2
    catalog.alter_table(merging.name, [ChangeType(path=("b",), type=parse_data_type("STRING"))])
    with pytest.raises(InvalidInputError, match=r"column=b type=INT new_type=STRING.* schema=\d+ then=0"):
        taken(catalog.table(merging.name), place)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"way": WAY + 1}, "reads in another order"),
        ({"steps": "00"}, "cause='other options of the table"),
        ({"schema": 77}, "no such version of the schema"),
        ({"columns": "0-2,9"}, "columns=0-2,9"),
        ({"columns": "0-99999999"}, "not a position of a stream"),
        ({"columns": "x"}, "not a position of a stream"),
    ],
)
def test_a_reading_that_is_not_ours_is_refused(merging: Table, change: dict[str, Any], said: str) -> None:
    """Positions come back from browsers."""
    _, place = within(merging, None, 2)
    body = json.loads(place)
    body["reading"] |= change
    with pytest.raises(InvalidInputError, match=said):
        taken(merging, json.dumps(body))


def test_a_batch_with_fewer_rows_than_were_delivered_is_an_error(merging: Table) -> None:
    _, place = within(merging, None, 2)
    body = json.loads(place) | {"rows": 70}
    with pytest.raises(CorruptDataError, match="delivered=70 found=6"):
        taken(merging, json.dumps(body))


def test_every_option_of_merging_counts_as_one_that_decides(catalog: Catalog, merging: Table) -> None:
    """A new one cannot be forgotten: those that can be altered are looked at, whatever they are called."""
    altered = {key for key, option in MergeOptions.declared.items() if not option.is_immutable}
    assert {"sequence.field", "ignore-delete", "record-level.expire-time"} <= altered
    for key in sorted(altered - {"record-level.time-field", "sequence.field.sort-order"}):
        text = {"sequence.field": "t", "fields.default-aggregate-function": "max"}.get(key, "true")
        table = merging.files.with_options({key: text if "expire" not in key else "1 d"})
        reading = FollowRequest.parse(table, None, {}).reading
        assert reading.options != FollowRequest.parse(merging.files, None, {}).reading.options


# ---- positions of a former version


def former(place: str, request: FollowRequest) -> str:
    """A position within a batch as it was written before readings had names."""
    body = json.loads(place)
    del body["reading"]
    for each in ("at", "to"):
        body[each].pop("plan", None)
        body[each].pop("moment", None)
    return json.dumps(body | {"of": _asked_before(request)})


@pytest.mark.broker
@pytest.mark.parametrize("log", [False, True])
def test_a_former_position_goes_on_where_its_batch_is_known_to_be_the_same(
    catalog: Catalog, broker: Broker, log: bool
) -> None:
    """A snapshot of a table whose schema and options are as they were, and records of a log as they are."""
    made = new_table(catalog, SCHEMA, broker=broker if log else None)
    write_changes(made, *(("+I", each, 1, 1, 1) for each in range(4)))
    request = FollowRequest.parse(made.files, None, {})
    found, place = within(made, None, 2)
    assert ids(found + taken(made, former(place, request))[0]) == [0, 1, 2, 3]
    _, behind = taken(made, None)
    write_changes(made, *(("+I", each, 1, 1, 1) for each in range(4, 8)))
    found, place = within(made, behind, 2)
    if log:
        catalog.alter_table(made.name, [AddColumn(path=("c",), type=parse_data_type("INT"))])
        assert ids(found + taken(catalog.table(made.name), former(place, request))[0]) == [4, 5, 6, 7]
    else:
        with pytest.raises(InvalidInputError, match=r"former version of Fluvial.* fix="):
            made.stream(former(place, request))


@pytest.mark.parametrize("change", ["expiry", "altered", "share"])
def test_a_former_position_is_refused_where_its_batch_may_be_another_one(catalog: Catalog, change: str) -> None:
    made = new_table(catalog, SCHEMA, options=EXPIRY if change == "expiry" else {})
    write_changes(made, *(("+I", each, 1, 1, 10**10) for each in range(4)))
    request = FollowRequest.parse(made.files, None, {})
    _, place = within(made, None, 2)
    if change == "altered":
        made = catalog.alter_table(made.name, [SetOption("source.split.target-size", "1 b")])
    with pytest.raises(InvalidInputError, match=r"former version of Fluvial.* \"at\""):
        made.stream(former(place, request), **({"share": (0, 2)} if change == "share" else {}))  # type: ignore[arg-type]


def test_a_former_position_between_batches_is_a_place_like_any_other(catalog: Catalog) -> None:
    """It counts splits and no rows."""
    options = {"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b", "bucket": "2", **EXPIRY}
    made = new_table(catalog, SCHEMA, options=options)
    write_changes(made, *(("+I", each, 1, 1, 10**10) for each in range(9)))
    limited: dict[str, Any] = {"options": {"read.stream.maxRowsPerTrigger": "1"}}
    found, place = taken(made, None, 2, **limited)
    body = json.loads(place)
    assert body["phase"] == Phase.SNAPSHOT.value
    del body["plan"], body["moment"]
    found += taken(made, json.dumps(body), **limited)[0]
    assert ids(found) == [*range(9)]


def test_a_position_of_another_table_is_refused_by_name(catalog: Catalog, merging: Table) -> None:
    _, place = within(merging, None, 2)
    other = new_table(catalog, SCHEMA)
    write_changes(other, *(("+I", each, 1, 1, 1) for each in range(6)))
    with pytest.raises(FluvialError, match=r"rolled back|fields"):
        taken(other, place)
