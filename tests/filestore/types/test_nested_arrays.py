"""Nested columns in whatever layout they come: what an array shows is stored, and nothing that it does not show."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from filestore.evolution.schema_change import AddColumn
from filestore.table import FileTable
from lsm.errors import InvalidInputError
from tests.support.tables import memory_catalog

INT = pa.int32()
FORMATS = ("parquet", "orc", "avro")


def required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def array_of(kind: pa.DataType, file_format: str, *, has_key: bool = True, **options: str) -> FileTable:
    """A table ``id, c``."""
    return memory_catalog().create_table(
        "db.t",
        pa.schema([required("id", INT), ("c", kind)]),
        primary_key=["id"] if has_key else [],
        options={"bucket": "1" if has_key else "-1", "file.format": file_format, **options},
    )


def given(array: pa.Array) -> pa.Table:
    return pa.table({"id": pa.array(range(len(array)), INT), "c": array})


def column_of(table: FileTable) -> list[Any]:
    return [row["c"] for row in sorted(table.read().to_arrow().to_pylist(), key=lambda row: row["id"])]


def check_stored(array: pa.Array, kind: pa.DataType, file_format: str, *, has_key: bool = True) -> None:
    """The values are those of the array when written, and when files were merged."""
    table, expected = array_of(kind, file_format, has_key=has_key), array.to_pylist()
    table.write(given(array))
    assert column_of(table) == expected
    table.write(pa.table({"id": pa.array([10_000], INT), "c": pa.nulls(1, kind)}))
    table.compact(full=True)
    assert column_of(table) == [*expected, None]


class Layouts:
    """Arrays of a type in layouts that Arrow allows and few writers make; NOT NULL parts are null below nulls only."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def kind(self, depth: int) -> pa.DataType:
        """A nested type."""
        which = self._random.integers(3) if depth else 3
        if which == 0:
            count = self._random.integers(1, 3)
            return pa.struct([pa.field(f"f{at}", self.kind(depth - 1), nullable=self._flips()) for at in range(count)])
        if which == 1:
            return pa.list_(pa.field("element", self.kind(depth - 1), nullable=self._flips()))
        if which == 2:
            return pa.map_(pa.string(), pa.field("value", self.kind(depth - 1), nullable=self._flips()))
        return (pa.int32(), pa.string())[self._random.integers(2)]

    def array(self, kind: pa.DataType, count: int) -> pa.Array:
        """A slice of (n,) values."""
        return self._whole(kind, count + 3).slice(2, count)

    def _flips(self) -> bool:
        return bool(self._random.integers(2))

    def _whole(self, kind: pa.DataType, count: int) -> pa.Array:
        if pa.types.is_struct(kind):
            return self._struct(kind, count)
        if pa.types.is_list(kind):
            return self._list(kind.value_field, count)
        if pa.types.is_map(kind):
            offsets, rest = self._offsets(count), 2
            values = self._whole(kind.item_type, int(offsets[-1]) + rest)
            keys = pa.array([f"k{at}" for at in range(len(values))])
            mask = self._mask(values, kind.item_field, offsets[:-1], offsets[1:])
            return pa.MapArray.from_arrays(pa.array(offsets, INT), keys, values, mask=mask)
        numbers = [None if self._random.random() < 0.3 else int(each) for each in self._random.integers(0, 100, count)]
        if pa.types.is_string(kind):
            texts = [None if each is None else f"s{each}" for each in numbers]
            kinds = [pa.string(), pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
            return pa.array(texts, kinds[self._random.integers(4)])
        found = pa.array(numbers, (pa.int32(), pa.int64(), pa.int8())[self._random.integers(3)])
        return pc.run_end_encode(found) if self._random.random() < 0.2 else found

    def _struct(self, kind: pa.StructType, count: int) -> pa.Array:
        mask, parts, fields = self._random.random(count) < 0.3, [], []
        for field in kind:
            part = self._whole(field.type, count)
            if not field.nullable:
                mask |= ~is_there(part)
            parts.append(part)
            fields.append(pa.field(field.name, part.type, nullable=field.nullable or self._flips()))
        return pa.StructArray.from_arrays(parts, fields=fields, mask=pa.array(mask))

    def _list(self, element: pa.Field, count: int) -> pa.Array:
        values = self._whole(element.type, 2 * count + 3)
        which = self._random.integers(5)
        if which == 4:
            values = values.slice(1, 2 * count)
            starts = np.arange(0, 2 * count, 2)
            mask = self._mask(values, element, starts, starts + 2)
            return pa.FixedSizeListArray.from_arrays(values, 2, mask=mask)
        of_offsets = pa.int64() if which % 2 else INT
        if which < 2:  # in any order, some values in several lists, some in none
            starts, sizes = self._random.integers(0, 2 * count, count), self._random.integers(0, 3, count)
            views = pa.LargeListViewArray if which else pa.ListViewArray
            mask = self._mask(values, element, starts, starts + sizes)
            return views.from_arrays(pa.array(starts, of_offsets), pa.array(sizes, of_offsets), values, mask=mask)
        offsets = self._offsets(count)
        lists = pa.LargeListArray if which % 2 else pa.ListArray
        mask = self._mask(values, element, offsets[:-1], offsets[1:])
        return lists.from_arrays(pa.array(offsets, of_offsets), values, mask=mask)

    def _offsets(self, count: int) -> np.ndarray:
        return np.concatenate([[1], 1 + np.cumsum(self._random.integers(0, 3, count))])

    def _mask(self, values: pa.Array, field: pa.Field, starts: np.ndarray, ends: np.ndarray) -> pa.Array:
        """Some nulls; wherever a NOT NULL part would be null, too."""
        lacking = np.r_[0, np.cumsum(~is_there(values))] * (not field.nullable)
        return pa.array((self._random.random(len(starts)) < 0.3) | (lacking[ends] > lacking[starts]))


def is_there(array: pa.Array) -> np.ndarray:
    decoded = pc.run_end_decode(array) if pa.types.is_run_end_encoded(array.type) else array
    found: np.ndarray = decoded.is_valid().to_numpy(zero_copy_only=False)
    return found


@pytest.mark.parametrize("seed", range(24))
def test_a_nested_column_is_what_its_array_shows_in_whatever_layout(seed: int) -> None:
    """Views overlap, offsets begin anywhere, nulls have anything below them: in every format, at every depth."""
    layouts = Layouts(seed)
    kind = layouts.kind(1 + seed % 4)
    array = layouts.array(kind, 6)
    for file_format in FORMATS:
        check_stored(array, kind, file_format, has_key=bool(seed % 2))


STARTS, SIZES = [0, 0, 1, 7, 9, 9], [3, 2, 1, 2, 0, 0]
LAPPING = pa.ListViewArray.from_arrays(pa.array(STARTS, INT), pa.array(SIZES, INT), pa.array(range(9), INT))
LARGE = pa.LargeListViewArray.from_arrays(pa.array(STARTS), pa.array(SIZES), pa.array(range(9), INT))
DISORDERED = pa.ListViewArray.from_arrays(
    pa.array([2, 0, 0], INT), pa.array([1, 2, 0], INT), pa.array([10, 11, 12], INT)
)
WITH_NULLS = pa.array([[1], None, [], [4, 5], [6]], pa.list_view(INT))
OF_VIEWS = pa.ListViewArray.from_arrays(pa.array([3, 0, 0], INT), pa.array([3, 2, 4], INT), LAPPING)
LISTS = pa.list_(INT)
VIEWS = {
    "whole": (WITH_NULLS, LISTS),
    "slice": (WITH_NULLS.slice(1, 3), LISTS),
    "none": (WITH_NULLS.slice(2, 0), LISTS),
    "overlapping": (LAPPING, LISTS),
    "slice of overlapping": (LAPPING.slice(1, 3), LISTS),
    "out of order": (DISORDERED, LISTS),
    "slice of out of order": (DISORDERED.slice(1), LISTS),
    "large": (LARGE.slice(1, 4), LISTS),
    "of other numbers": (pa.array([[1], None, [2, 3]], pa.list_view(pa.int8())), LISTS),
    "of texts": (pa.array([["a"], [None, "b"], None], pa.list_view(pa.string_view())).slice(1), pa.list_(pa.string())),
    "of views": (OF_VIEWS.slice(0, 2), pa.list_(LISTS)),
    "in a struct": (pa.StructArray.from_arrays([LAPPING], ["l"]).slice(1, 3), pa.struct([("l", LISTS)])),
    "in a list": (pa.ListArray.from_arrays(pa.array([1, 3, 6], INT), LAPPING), pa.list_(LISTS)),
    "in a fixed list": (pa.FixedSizeListArray.from_arrays(LAPPING, 2).slice(1), pa.list_(LISTS)),
    "in a map": (
        pa.MapArray.from_arrays(pa.array([1, 2, 4], INT), pa.array(list("abcdef")), LAPPING),
        pa.map_(pa.string(), LISTS),
    ),
}


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_lists_are_stored_as_they_read(name: str, file_format: str) -> None:
    """Arrow's cast to a list takes their offsets, and neither their sizes nor their order."""
    array, kind = VIEWS[name]
    check_stored(array, kind, file_format)


def test_a_column_that_is_made_of_a_view_is_an_array() -> None:
    table = memory_catalog().create_table("db.t", pa.schema([("id", INT), ("c", LAPPING.type)]))
    assert str(table.schema.field("c").type) == "ARRAY<INT>"
    table.write(given(LAPPING.slice(1, 4)))
    assert column_of(table) == LAPPING.to_pylist()[1:5]


POINT = pa.struct(
    [
        required("x", INT),
        required("name", pa.struct([required("first", pa.string())])),
        required("tags", pa.list_(required("element", pa.decimal128(9, 2)))),
        required("counts", pa.map_(pa.string(), required("value", pa.timestamp("us")))),
        required("raw", pa.binary()),
    ]
)
HERE = pa.array(
    [{"x": 1, "name": {"first": "a"}, "tags": [3], "counts": [("k", 0)], "raw": b"r"}],
    pa.struct(
        [
            ("x", INT),
            ("name", pa.struct([("first", pa.string())])),
            ("tags", pa.list_(pa.decimal128(9, 2))),
            ("counts", pa.map_(pa.string(), pa.timestamp("us"))),
            ("raw", pa.binary()),
        ]
    ),
)
(VALUE,) = HERE.to_pylist()


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize(
    ("engine", "third", "options"),
    [
        ("deduplicate", None, {}),
        ("deduplicate", None, {"changelog-producer": "lookup"}),
        ("deduplicate", None, {"deletion-vectors.enabled": "true"}),
        ("deduplicate", None, {"changelog-producer": "full-compaction"}),
        ("partial-update", VALUE, {}),
        ("first-row", VALUE, {}),
        ("aggregation", VALUE, {"fields.c.aggregate-function": "last_non_null_value"}),
    ],
)
def test_a_null_struct_of_required_parts_goes_through_every_merge(
    file_format: str, engine: str, third: Any, options: dict[str, str]
) -> None:
    """Given, missing, merged, of a column that came later: whoever makes the null, files take it."""
    catalog = memory_catalog()
    schema = pa.schema([required("id", INT), ("c", POINT)])
    options = {"bucket": "1", "file.format": file_format, "merge-engine": engine, **options}
    table = catalog.create_table("db.t", schema, primary_key=["id"], options=options)
    table.write(pa.table({"id": pa.array([1, 2, 3], INT), "c": pa.concat_arrays([HERE, pa.nulls(1, HERE.type), HERE])}))
    table.write(pa.table({"id": pa.array([2, 3], INT), "c": pa.nulls(2, HERE.type)}))
    table.write(pa.table({"id": pa.array([4], INT)}))
    table.compact(full=True)
    assert column_of(table) == [VALUE, None, third, None]
    catalog.alter_table("db.t", [AddColumn(path=("late",), type=table.schema.field("c").type)])
    table = catalog.table("db.t")
    table.write(pa.table({"id": pa.array([5], INT), "late": HERE}))
    table.compact(full=True)
    rows = sorted(table.read().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [row["c"] for row in rows] == [VALUE, None, third, None, None]
    assert [row["late"] for row in rows] == [None, None, None, None, VALUE]
    found = table.read().to_arrow()
    assert found.cast(found.schema).equals(found)  # Arrow refuses it where a required part is null, also below a null
    found.validate(full=True)


def in_struct(part: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([part], ["p"])


def in_list(part: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, 1], INT), part)


def in_map(part: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(pa.array([0, 1], INT), pa.array(["k"]), part)


PLACES = [(in_struct, "p"), (in_list, "element"), (in_map, "value")]
Place = tuple[Callable[[pa.Array], pa.Array], str]


@pytest.mark.parametrize("outer", PLACES)
@pytest.mark.parametrize("inner", PLACES)
@pytest.mark.parametrize("is_declared", [True, False])
def test_a_required_part_that_is_null_is_refused_where_all_around_itis_there(
    outer: Place, inner: Place, is_declared: bool
) -> None:
    """Also where the array says that it has none; the name says at which depth. Nothing is written."""
    parts, fields = [pa.nulls(1, INT), pa.array([1], INT)], [required("a", INT), pa.field("b", INT)]
    kind = outer[0](inner[0](pa.StructArray.from_arrays(parts, fields=fields))).type
    given_fields = fields if is_declared else [pa.field("a", INT), fields[1]]
    array = outer[0](inner[0](pa.StructArray.from_arrays(parts, fields=given_fields)))
    table = array_of(kind, "parquet")
    with pytest.raises(InvalidInputError, match=rf"null in a NOT NULL column: column=c\.{outer[1]}\.{inner[1]}\.a "):
        table.write(given(array))
    assert table.store.snapshots.latest_id() is None
