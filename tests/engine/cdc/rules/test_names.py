"""Where a source table goes: the choice, the rules, placeholders."""

import pytest

from engine.cdc.rules.names import NameRule, Naming, SourceTable, name_in_table
from lsm.errors import InvalidInputError

RULES = Naming(
    include=(r"public\..*", r"sales\..*"),
    exclude=(r".*_tmp",),
    rules=(
        NameRule(source=r"public\.orders_(\d+)", to="orders", add={"shard": "{1}"}, key=("shard", "id")),
        NameRule(source=r"(sales)\.(.*)", to="{1}_{2}"),
    ),
)


@pytest.mark.parametrize(
    ("source", "table"),
    [
        ("public.orders_7", "orders"),
        ("public.users", "users"),
        ("sales.users", "sales_users"),
        ("public.users_tmp", None),
        ("audit.users", None),
        ("public.orders_x", "orders_x"),
    ],
)
def test_the_first_rule_that_matches_counts(source: str, table: str | None) -> None:
    found = RULES.target_of(SourceTable.parse(source))
    assert (None if found is None else found.table) == table


def test_constants_and_placeholders() -> None:
    found = RULES.target_of(SourceTable("public", "orders_7"))
    assert found is not None
    assert (found.constants, found.key, found.joins) == ({"shard": "7"}, ("shard", "id"), True)
    with pytest.raises(InvalidInputError, match=r"no such placeholder: names.from=\(.\*\) template=\{9\}"):
        Naming(rules=(NameRule(source="(.*)", to="{9}"),)).target_of(SourceTable("a", "b"))


def test_reserved_names_of_columns_get_a_prefix() -> None:
    assert [name_in_table(name, {"b": "c"}) for name in ("a", "b", "_row_kind")] == ["a", "c", "src__row_kind"]
