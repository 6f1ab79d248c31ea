"""What rows must be like is found out in Arrow as in Spark, and said with counts and examples."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog, Table
from engine.versions.expectations import ExpectationError, check_expectations, refuse_failures
from lsm.errors import InvalidInputError

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("amount", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("state", pa.string()),
        ("share", pa.float64()),
    ]
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Six orders in several files: one amount is negative, one null."""
    made = Catalog(str(tmp_path_factory.mktemp("warehouse"))).create_table("db.t", SCHEMA, primary_key=["id"])
    amounts = [Decimal("1.50"), Decimal("2.00"), Decimal("-3.00"), None, Decimal("10.00"), Decimal("0.00")]
    for first in (0, 3):
        made.write(
            pa.table(
                {
                    "id": list(range(first, first + 3)),
                    "amount": pa.array(amounts[first : first + 3], pa.decimal128(10, 2)),
                    "day": [dt.date(2026, 11, 20 + each) for each in range(first, first + 3)],
                    "state": ["new", None, "paid"],
                    "share": [0.5, 0.25, None],
                }
            )
        )
    return made


ROWS = [
    ("amount >= 0", 2, [2, 3]),  # null is not true
    ("amount >= 0 OR amount IS NULL", 1, [2]),
    ("id < 100", 0, []),
    ("state IN ('new', 'paid') AND day > DATE '2026-11-19'", 2, [1, 4]),
    ("state LIKE 'n%'", 4, [1, 2, 4]),
]
AGGREGATES = [
    ("count(*) > 0", True),
    ("count(*) = 6 AND count(amount) = 5", True),
    ("count(DISTINCT state) = 2", True),
    ("count(DISTINCT id) = count(*)", True),
    ("sum(amount) = 10.50", True),
    ("sum(amount) < 10", False),
    ("min(amount) >= 0", False),
    ("max(day) >= '2026-11-25'", True),
    ("max(day) BETWEEN DATE '2026-11-01' AND DATE '2026-11-24'", False),
    ("avg(share) = 0.375", True),
    ("sum(share) / count(*) > 0.2 AND NOT max(id) = 4", True),
    ("-min(id) + 2 * max(id) - 1 = 9", True),
    ("sum(id) / (count(*) - 6) > 1", False),  # null
    ("max(state) IS NULL OR max(state) <> 'paid'", False),
]


def test_a_condition_must_be_true_for_every_row(table: Table) -> None:
    """Idea 11."""
    found = check_expectations(table, [text for text, _, _ in ROWS])
    for outcome, (text, failed, examples) in zip(found, ROWS, strict=True):
        assert (outcome.expectation, outcome.passed, outcome.failed_count) == (text, failed == 0, failed)
        assert outcome.row_count == 6
        assert [each["id"] for each in outcome.examples] == examples
    assert check_expectations(table, ["amount >= 0"], snapshot_id=1)[0].failed_count == 1


@pytest.mark.parametrize(("text", "passed"), AGGREGATES)
def test_a_condition_on_aggregates_must_be_true_once(table: Table, text: str, passed: bool) -> None:
    """Idea 11."""
    [outcome] = check_expectations(table, [text])
    assert outcome.passed is passed
    assert outcome.facts


def test_functions_get_the_table(table: Table) -> None:
    """Idea 11: False and AssertionError are failures; everything is reported at once."""

    def has_rows(given: Any) -> bool:
        return bool(given.read().to_arrow().num_rows == 6)

    def is_paid(given: Any) -> None:
        states = given.read().to_arrow()["state"].to_pylist()
        if states.count("paid") < 6:
            raise AssertionError("only two are paid")

    outcomes = check_expectations(table, [has_rows, lambda given: False, is_paid, "amount > -3", "sum(id) > 100"])
    assert [each.passed for each in outcomes] == [True, False, False, False, False]
    with pytest.raises(ExpectationError) as raised:
        refuse_failures(table.name, outcomes)
    first, *reported = str(raised.value).splitlines()
    assert first == "expectations failed, nothing was published: table=db.t failed=4 of=5"
    assert reported == [
        "  <lambda>: is not true",
        "  is_paid: is not true, only two are paid",
        "  amount > -3: 2 of 6 rows fail, such as {'id': 2, 'amount': Decimal('-3.00')}, {'id': 3, 'amount': None}",
        "  sum(id) > 100: is not true, SUM(id) = 15",
    ]
    refuse_failures(table.name, outcomes[:1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("amount >=", "not a condition: expect='amount >='"),
        ("nonsense > 1", "nonsense"),
        ("length(state) > 2", "this can be checked by Spark only: .*fix=give spark"),
        ("sum(amount * 2) > 0", "this can be checked by Spark only: .*fix=give spark"),
        ("count(*) + 1", "not a condition"),
    ],
)
def test_what_cannot_be_found_out_here_says_so(table: Table, text: str, words: str) -> None:
    """Idea 11."""
    with pytest.raises(InvalidInputError, match=words):
        check_expectations(table, [text])


@pytest.mark.spark
def test_spark_finds_the_same_and_more(spark: SparkSession, table: Table) -> None:
    """Idea 11: one query for all conditions."""
    more = [("length(state) > 3", 4), ("id * 2 < 10 - share", 2)]
    texts = [text for text, _, _ in ROWS] + [text for text, _ in AGGREGATES if "count(*) - 6" not in text]
    here = check_expectations(table, texts)
    there = check_expectations(table, [*texts, *(text for text, _ in more)], spark=spark)
    assert [each.passed for each in there[: len(texts)]] == [each.passed for each in here]
    assert [each.failed_count for each in there] == [each.failed_count for each in here] + [count for _, count in more]
    assert [each["id"] for each in there[1].examples] == [2]
    with pytest.raises(InvalidInputError, match=r"expectations cannot be checked: table=db.t"):
        check_expectations(table, ["nonsense(id) > 1"], spark=spark)
