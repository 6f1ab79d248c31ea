"""Options that are known and not built: refused where they are set, never taken and ignored."""

import pytest

from filestore.evolution.schema_change import SetComment, SetOption
from filestore.options.not_built import NOT_BUILT, WITHOUT_EFFECT, not_built_of
from filestore.options.option import At
from filestore.options.table_options import TableOptions
from lsm.errors import InvalidInputError
from tests.support.row_options import other_text
from tests.support.tables import memory_catalog, rows

SCHEMA = rows((1, 1)).schema


def a_value(key: str) -> str:
    return other_text(TableOptions.declared[key]) if key in TableOptions.declared else "x"


@pytest.mark.parametrize("key", NOT_BUILT)
def test_options_without_effect_are_refused_where_they_are_set(key: str) -> None:
    """Also by ALTER; a table of another engine that has them can be altered otherwise, and the doctor names them."""
    value = a_value(key)
    says = f"(option has no effect here|table cannot be (read|written)), .*option={key} value={value} fix="
    catalog = memory_catalog()
    with pytest.raises(InvalidInputError, match=says):
        catalog.create_table("db.u", SCHEMA, primary_key=["id"], options={"bucket": "1", key: value})
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    with pytest.raises(InvalidInputError, match=says):
        catalog.alter_table("db.t", [SetOption(key, value)])
    assert [key for key, _ in not_built_of(TableOptions.parse({key: value}, strict=False))] == [key]
    catalog.alter_table("db.t", [SetComment("fine")])
    assert list(not_built_of(table.options)) == []


@pytest.mark.parametrize("key", [key for key in NOT_BUILT if key in TableOptions.declared])
def test_the_default_may_be_said(key: str) -> None:
    option = TableOptions.declared[key]
    if isinstance(option.default, bool):
        TableOptions.parse({key: str(option.default).lower()}, primary_key=["id"])


def test_a_table_that_decides_otherwise_about_rows_is_closed() -> None:
    """What is left open has an effect on waiting, memory and files alone, or makes a read fail."""
    fails = {"scan.ignore-corrupt-files", "scan.ignore-lost-files"}
    for key, found in NOT_BUILT.items():
        option = TableOptions.declared.get(key)
        if key not in WITHOUT_EFFECT and (option is None or option.decides_rows):
            assert found.closed != At.NOWHERE or key in fails, key
