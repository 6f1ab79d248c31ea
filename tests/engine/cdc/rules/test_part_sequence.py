"""Schema parts in order of offsets: which columns a table gets, and that a replay finds the same ones."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cdc.rules.part_sequence import PartColumn, PartSequence, SeenPart, pass_through
from filestore.evolution.schema_change import AddColumn, ChangeType, DropColumn
from filestore.types.data_types import STRING, DataField, DataType
from lsm.errors import InvalidInputError

INT, BIGINT = DataType(root="INT"), DataType(root="BIGINT")
TYPES = {"int": INT, "bigint": BIGINT, "string": STRING}


class GrowingTable:
    """A table that passes through parts."""

    def __init__(self, **rules: str) -> None:
        self.rules: Mapping[str, str] = rules
        self.sequence = PartSequence()
        self.columns: dict[str, DataType] = {}

    def meet(self, offset: int, columns: Mapping[str, str], position: str = "t/0") -> Mapping[str, str]:
        """Pass through a part; gives the columns of its rows."""
        digest = ",".join(f"{name} {kind}" for name, kind in sorted(columns.items()))
        parts = tuple(PartColumn(name=name, type=TYPES[kind]) for name, kind in columns.items())
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
        self.sequence = step.sequence
        return self.plan(offset, position)

    def plan(self, offset: int, position: str = "t/0") -> Mapping[str, str]:
        """The columns of the row at an offset."""
        names, (code,) = self.sequence.run_of_rows(position, [offset])  # type: ignore[arg-type]
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
