"""Schema parts in order of offsets: which columns a table gets, and that a replay finds the same ones."""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cdc.rules.part_sequence import PartColumn, PartSequence, SeenPart, pass_through
from filestore.evolution.schema_change import AddColumn, ChangeType, DropColumn
from filestore.types.data_types import STRING, DataField, DataType
from lsm.errors import CorruptDataError, InvalidInputError

INT, BIGINT = DataType(root="INT"), DataType(root="BIGINT")
TYPES = {"int": INT, "bigint": BIGINT, "string": STRING}


class GrowingTable:
    """A table that passes through parts."""

    def __init__(self, **rules: str) -> None:
        self.rules: Mapping[str, str] = rules
        self.sequence = PartSequence()
        self.columns: dict[str, DataType] = {}
        self.digests: dict[tuple[str, int], str] = {}
        self.rows: list[dict[str, Any]] = []

    def meet(self, offset: int, columns: Mapping[str, str], position: str = "t/0") -> Mapping[str, str]:
        """Pass through a part; gives the columns of its rows."""
        digest = ",".join(f"{name} {kind}" for name, kind in sorted(columns.items()))
        parts = tuple(PartColumn(name=name, type=TYPES[kind]) for name, kind in columns.items())
        self.digests[position, offset] = digest
        seen = SeenPart(position=position, offset=offset, digest=digest, columns=parts)
        fields = [DataField(id=0, name=name, type=kind) for name, kind in self.columns.items()]
        step = pass_through(self.sequence, seen, fields, keys=["id"], renamed={}, rules=self.rules)
        for change in step.changes:
            if isinstance(change, AddColumn):
                assert change.path[0] not in self.columns
                self.columns[change.path[0]] = change.type
            elif isinstance(change, ChangeType):
                self.columns[change.path[0]] = change.type
            elif isinstance(change, DropColumn):
                del self.columns[change.path[0]]
                for row in self.rows:
                    row.pop(change.path[0], None)
        self.sequence = step.sequence
        return self.plan(offset, position)

    def plan(self, offset: int, position: str = "t/0") -> Mapping[str, str]:
        """The columns of the row at an offset."""
        newest = max(at for where, at in self.digests if where == position and at <= offset)
        digest = self.digests[position, newest]
        names, (code,) = self.sequence.run_of_rows(position, digest, np.array([offset]))
        return self.sequence.plans[names[code]]


def test_a_column_that_comes_back_is_another_one() -> None:
    """DROP and ADD of one name: old rows of the source are null, so the kept values must not appear under it."""
    world = GrowingTable()
    world.meet(0, {"id": "int", "c": "int"})
    world.meet(10, {"id": "int"})
    assert world.meet(20, {"id": "int", "c": "int"}) == {"id": "id", "c": "c_2"}
    assert [world.plan(at).get("c") for at in (0, 9, 10, 19, 20, 99)] == ["c", "c", None, None, "c_2", "c_2"]
    assert world.meet(0, {"id": "int", "c": "int"}) == {"id": "id", "c": "c"}  # a replay


def test_partitions_of_one_table_pass_through_the_same_parts() -> None:
    world = GrowingTable()
    for position in ("t/0", "t/1"):
        for number, columns in enumerate(({"id": "int", "c": "int"}, {"id": "int"}, {"id": "int", "c": "int"})):
            world.meet(number * 7, columns, position)
    assert list(world.columns) == ["id", "c", "c_2"]
    assert world.plan(14, "t/0") == world.plan(14, "t/1") == {"id": "id", "c": "c_2"}


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from(list(TYPES))), min_size=1, max_size=6))
def test_a_replay_changes_nothing_and_no_two_columns_share_one(parts: Sequence[dict[str, str]]) -> None:
    world = GrowingTable()
    plans = [world.meet(10 * number, {"id": "int", **part}) for number, part in enumerate(parts)]
    columns = dict(world.columns)
    sequence = PartSequence.from_json(world.sequence.to_json())
    assert sequence == world.sequence
    for number, part in enumerate(parts):
        assert world.meet(10 * number, {"id": "int", **part}) == plans[number]
    assert world.columns == columns
    for plan, part in zip(plans, parts, strict=True):
        assert len(set(plan.values())) == len(plan) == len(part) + 1  # each column has a place of its own


def test_rules_by_kind_of_change() -> None:
    base, changed = {"id": "int", "a": "int"}, {"id": "int", "a": "string", "b": "int"}
    world = GrowingTable(add="ignore", retype="ignore")
    world.columns = {"id": INT, "a": INT}
    world.meet(0, base)
    assert world.meet(1, changed) == {"id": "id"}
    for kind in ("add", "retype", "drop", "widen"):
        world = GrowingTable(**{kind: "fail"})
        world.columns = {"id": INT, "a": INT, "d": INT}
        world.meet(0, {"id": "int", "a": "int", "d": "int"})
        with pytest.raises(InvalidInputError, match=f"kind={kind} .*topic=t/0 offset=2 schema-changes.{kind}=fail"):
            world.meet(2, {"id": "int", "a": "bigint" if kind == "widen" else "string", "b": "int"})
    world = GrowingTable(drop="drop")
    world.meet(0, base)
    world.meet(1, {"id": "int"})
    assert list(world.columns) == ["id"]
    with pytest.raises(InvalidInputError, match="the type of a key column has changed: column=id"):
        world.meet(2, {"id": "string"})


Row = dict[str, Any]
SourceStep = tuple[str, str, str]
STEPS = st.tuples(
    st.sampled_from(["add", "drop", "retype", "row"]), st.sampled_from("xyz"), st.sampled_from(list(TYPES))
)


class SourceWorld:
    """The oracle: a table of PostgreSQL under ALTER TABLE, and the records that a connector makes of it."""

    def __init__(self) -> None:
        self.columns: dict[str, str] = {"id": "int"}
        self.rows: dict[int, Row] = {}
        self.records: list[tuple[dict[str, str], Row]] = []

    def step(self, kind: str, name: str, wanted: str) -> None:
        """One statement, and a row behind it: what comes between two rows is not known to a connector.

        A change of a type that needs other values leaves nothing of the old ones.
        """
        known = self.columns.get(name)
        if kind == "drop" or (kind == "retype" and known is not None and (known, wanted) not in KEPT):
            self.columns.pop(name, None)
            for row in self.rows.values():
                row.pop(name, None)
        if (kind == "add" and known is None) or (kind == "retype" and known is not None):
            self.columns[name] = wanted
        row = {each: f"{each}{len(self.records)}" for each in self.columns}
        self.rows[len(self.records)] = row
        self.records.append((dict(self.columns), dict(row)))


KEPT = {(name, name) for name in TYPES} | {("int", "bigint"), ("bigint", "int")}


def taken_over(world: SourceWorld, ends: Sequence[int], *, drop: str = "keep") -> tuple[list[Row], list[str]]:
    """The rows of a table by the names of the source, after batches that end there; and the table's columns."""
    table = GrowingTable(drop=drop)
    for begin, end in zip([0, *ends], [*ends, len(world.records)], strict=True):
        table.sequence = PartSequence.from_json(json.loads(json.dumps(table.sequence.to_json())))
        table.sequence = table.sequence.behind({"t/0": begin})
        for offset in range(begin, end):
            table.meet(offset, world.records[offset][0])
        for offset in range(begin, end):
            plan = table.plan(offset)
            row = {plan[name]: value for name, value in world.records[offset][1].items() if name in plan}
            table.rows.append(row)
    live = {column: name for name, column in table.sequence.live.items()}
    found = [{live[column]: value for column, value in row.items() if column in live} for row in table.rows]
    return found, list(table.columns)


@settings(max_examples=300)
@given(st.lists(STEPS, min_size=1, max_size=60), st.randoms(use_true_random=False), st.sampled_from(["keep", "drop"]))
def test_any_parts_in_any_batches_give_the_rows_of_the_source(
    steps: Sequence[SourceStep], random: Random, drop: str
) -> None:
    """ALTER TABLE between rows, all in one batch or cut anywhere: one table, equal to the source."""
    world = SourceWorld()
    for kind, name, wanted in [*steps, ("row", "x", "int")]:
        world.step(kind, name, wanted)
    count = len(world.records)
    ends = sorted(random.sample(range(count + 1), random.randint(0, min(count, 12))))
    rows, columns = taken_over(world, [], drop=drop)
    assert rows == list(world.rows.values())
    assert taken_over(world, ends, drop=drop) == (rows, columns)


@pytest.mark.parametrize("batch", [1, 3, 400])
def test_hundreds_of_parts_in_a_batch_and_hundreds_of_batches(batch: int) -> None:
    """A migration script that drops and adds columns: more runs, names and plans than a state keeps."""
    world = SourceWorld()
    for number in range(200):
        world.step("add", f"c{number % 7}", ("int", "string")[number % 2])
        world.step("drop", f"c{number % 5}", "")
    rows, columns = taken_over(world, range(batch, len(world.records), batch))
    assert rows == list(world.rows.values())
    assert (rows, columns) == taken_over(world, [])


def test_a_state_of_the_version_before_uses_no_name_of_a_run_twice() -> None:
    """It kept 8 runs and no numbers: the number behind the last name counts, wherever it is kept."""
    table = GrowingTable()
    for number in range(14):
        table.meet(number, {"id": "int", **({"x": "int"} if number % 2 == 0 else {})})
    body = table.sequence.to_json()
    body["runs"] = {"t/0": body["runs"]["t/0"][-8:]}
    former = {name: value for name, value in body.items() if name not in ("used", "numbers")}
    table.sequence = PartSequence.from_json(former)
    assert table.meet(14, {"id": "int", "x": "int"}) == {"id": "id", "x": "x_8"}
    assert table.sequence.live["x"] == "x_8"
    first = PartSequence.from_json({**former, "runs": {"t/0": body["runs"]["t/0"][-2:], "t/1": []}})
    assert first.numbers == {"t/0": {"id int": 7, "id int,x int": 7}, "t/1": {}}  # fewer: none was left out


def test_a_record_before_all_known_runs_is_no_record_of_the_first() -> None:
    table = GrowingTable()
    for number in range(20):
        table.meet(number, {"id": "int", f"c{number}": "int"})
    table.sequence = table.sequence.behind({"t/0": 19})
    assert table.plan(19) == {"id": "id", "c19": "c19"}
    with pytest.raises(CorruptDataError, match="the columns of a record are not known any more: at=t/0 offset=3 "):
        table.plan(3)


def test_tables_of_one_topic_with_parts_of_their_own_find_their_columns() -> None:
    """Several source tables routed into one topic: the run of a row is one of its own part."""
    table = GrowingTable()
    table.meet(0, {"id": "int", "a": "int"})
    table.meet(1, {"id": "int", "a": "int", "b": "int"})
    names, found = table.sequence.run_of_rows("t/0", table.digests["t/0", 0], np.array([0, 2, 9]))
    assert [table.sequence.plans[names[each]] for each in found] == [{"id": "id", "a": "a"}] * 3
