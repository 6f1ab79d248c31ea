"""Columns that are computed from others: each function against a value that can be seen, and a job with them."""

import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from engine.cdc.records.computed import computed_column, computed_type, inputs
from filestore.types.data_types import data_type_of
from lsm.errors import InvalidInputError
from tests.support.cdc_job import memory_job
from tests.support.change_events import SourceTable, int32, int64, text

MOMENT = datetime.datetime(2026, 11, 23, 9, 5, 7, 123456)
ROW = {"i": 7, "t": " Añb ", "at": MOMENT, "d": MOMENT.date(), "n": Decimal("1.50"), "no": None, "Köl x": 2}
KINDS = {
    "i": pa.int32(), "t": pa.string(), "at": pa.timestamp("us"), "d": pa.date32(), "n": pa.decimal128(10, 2),
    "no": pa.string(), "Köl x": pa.int64(),
}  # fmt: skip
ARRAYS = {name: pa.array([ROW[name], None], kind) for name, kind in KINDS.items()}
TYPES = {name: data_type_of(kind) for name, kind in KINDS.items()}


@pytest.mark.parametrize(
    ("expression", "kind", "value"),
    [
        ("date(at)", "DATE", datetime.date(2026, 11, 23)),
        ("cast(at AS DATE)", "DATE", datetime.date(2026, 11, 23)),
        ("year(at)", "INT", 2026),
        ("month(d)", "INT", 11),
        ("day(at)", "INT", 23),
        ("hour(at) * 60 + minute(at)", "INT", 545),
        ("upper(trim(t))", "STRING", "AÑB"),
        ("lower(t) || '-' || i", "STRING", " añb -7"),
        ("concat(d, '/', i)", "STRING", "2026-11-23/7"),
        ("substring(t, 2, 2)", "STRING", "Añ"),
        ("length(t)", "INT", 5),
        ("coalesce(no, t, 'none')", "STRING", " Añb "),
        ("cast(i AS BIGINT) + 3000000000", "BIGINT", 3_000_000_007),
        ("cast(i AS STRING)", "STRING", "7"),
        ("cast(n AS DECIMAL(12, 4))", "DECIMAL(12, 4)", Decimal("1.5000")),
        ("(`Köl x` - 5) * i", "BIGINT", -21),
        ("t || no", "STRING", None),
    ],
)
def test_an_expression_has_a_type_and_values(expression: str, kind: str, value: object) -> None:
    found = computed_type(expression, TYPES)
    assert str(found) == kind
    computed = computed_column(expression, ARRAYS, found).to_pylist()
    assert computed == [value, "none" if "coalesce" in expression else None]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("count(i)", "not supported in a computed column: columns.compute=count(i) found=COUNT(i)"),
        ("i IN (SELECT 1)", "not supported in a computed column"),
        ("1 + 1", "a computed column has no column in it"),
        ("upper(", "not an expression: columns.compute=upper("),
        ("upper(i)", "a column cannot be computed: columns.compute=upper(i)"),
        ("n || 'x'", "no text: type=DECIMAL(10, 2) fix='cast it to STRING'"),
    ],
)
def test_what_cannot_be_computed_is_refused(expression: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        computed_type(expression, TYPES)
    assert message in str(caught.value)


@pytest.mark.parametrize("expression", ["i * 2000000000", "cast(t AS INT)"])
def test_values_that_overflow_or_cannot_be_cast_are_errors(expression: str) -> None:
    """Never another number, never a null that looks like the source's."""
    with pytest.raises(InvalidInputError, match="a column cannot be computed"):
        computed_column(expression, ARRAYS, computed_type(expression, TYPES))


def test_inputs_are_the_columns_of_an_expression() -> None:
    assert inputs("concat(`Köl x`, upper(a) || b, a)") == {"Köl x", "a", "b"}


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_tables_that_have_the_columns_have_the_computed_one(deletes: str, tmp_path: Path) -> None:
    """Also where an update left a large value out, from which it is computed, and where only a key is deleted."""
    docs = SourceTable("docs", [int32("id"), text("body"), int32("n")])
    others = SourceTable("others", [int64("id")])
    computed = {"head": "substring(body, 1, 3)", "twice": "n * 2"}
    with memory_job(tmp_path, computed=computed, deletes=deletes) as job:
        job.batch(docs.read({"id": 1, "body": "long one", "n": 1}), others.read({"id": 1}))
        assert [each.name for each in job.catalog.table("shop.others").schema.fields][:1] == ["id"]
        assert "head" not in job.catalog.table("shop.others").schema.column_names
        left_out = "__debezium_unavailable_value"
        job.batch(
            docs.update({"id": 1, "body": left_out, "n": 2}),
            docs.insert({"id": 2, "body": None, "n": None}),
            docs.insert({"id": 3, "body": "gone", "n": 3}),
            docs.delete({"id": 3, "body": None, "n": None}),
        )
        rows = [(row["id"], row["head"], row["twice"]) for row in job.rows("docs")]
        assert rows == [(1, "lon", 4), (2, None, None), *([(3, "gon", 6)] if deletes == "soft" else [])]
        report = job.batch(docs.update({"id": 1, "body": "x", "n": 2_000_000_000}))
        assert "columns.compute=n * 2 reason=overflow" in str(report.tables["docs"].parked)


def test_a_computed_column_in_a_key_is_one_of_the_key(tmp_path: Path) -> None:
    """A delete has its key only: another column could not say which row it means."""
    docs = SourceTable("docs", [int32("id"), text("dt")])
    with memory_job(tmp_path, computed={"dt": "id + 1"}) as job:
        assert "a computed column cannot have this name: table=docs column=dt" in str(
            job.batch(docs.read({"id": 1, "dt": "x"})).tables["docs"].parked
        )
