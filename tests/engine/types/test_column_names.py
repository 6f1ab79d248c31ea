"""When two names of columns are one."""

import pytest

from engine.types.column_names import CaseRule
from filestore.types.data_types import DataField, parse_data_type
from lsm.errors import InvalidInputError

NAMES = ("id", "Total", "a", "A")


@pytest.mark.parametrize(
    ("given", "loose", "strict"),
    [
        ("id", "id", "id"),
        ("ID", "id", None),
        ("total", "Total", None),
        ("A", "A", "A"),  # the same one comes before one that differs in case
        ("x", None, None),
    ],
)
def test_a_name_is_found(given: str, loose: str | None, strict: str | None) -> None:
    assert CaseRule().found(given, NAMES) == loose
    assert CaseRule(is_case_sensitive=True).found(given, NAMES) == strict
    assert CaseRule().meant(given, NAMES) == (loose or given)


@pytest.mark.parametrize(
    ("given", "loose", "strict"),
    [
        (["ID", "total"], ["id", "Total"], ["ID", "total"]),
        (["a", "A", "new"], ["a", "A", "new"], ["a", "A", "new"]),
        (["ID", "id"], r"two columns of the rows are one of the table: columns=\['ID', 'id'\] column=id", ["ID", "id"]),
        (["n", "N"], r"named twice in the rows, because case does not count: columns=\['n', 'N'\]", ["n", "N"]),
    ],
)
def test_columns_of_rows_get_the_names_of_the_table(
    given: list[str], loose: list[str] | str, strict: list[str]
) -> None:
    assert CaseRule(is_case_sensitive=True).as_spelled(given, NAMES) == strict
    if isinstance(loose, str):
        with pytest.raises(InvalidInputError, match=loose):
            CaseRule().as_spelled(given, NAMES)
    else:
        assert CaseRule().as_spelled(given, NAMES) == loose


def test_two_that_differ_in_case_are_none() -> None:
    assert CaseRule().found("İd", ("x", "y")) is None
    assert CaseRule().found("aB", ("AB", "ab")) is None


def test_doubled_names_are_refused_at_any_depth() -> None:
    fields = [
        DataField(id=0, name="a", type=parse_data_type("INT")),
        DataField(
            id=1,
            name="s",
            type=parse_data_type(
                {
                    "type": "ARRAY",
                    "element": {
                        "type": "ROW",
                        "fields": [{"id": 2, "name": "x", "type": "INT"}, {"id": 3, "name": "X", "type": "INT"}],
                    },
                }
            ),
        ),
    ]
    CaseRule(is_case_sensitive=True).check_fields(fields)
    with pytest.raises(InvalidInputError, match=r"named twice in the fields of s, .*columns=\['x', 'X'\]"):
        CaseRule().check_fields(fields)
    with pytest.raises(InvalidInputError, match=r"named twice in the columns of the table, .*columns=\['a', 'A'\]"):
        CaseRule().check_fields(fields[:1], others=["A"])
    with pytest.raises(InvalidInputError, match="a column is named twice in the clause: column=a"):
        CaseRule(is_case_sensitive=True).check_distinct(["a", "b", "a"], "the clause")
