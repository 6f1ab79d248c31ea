"""Options of a database's tables: those with which a table would not equal its source are refused before a run."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from engine.deploy.config.cdc_config import CdcConfig

UNEQUAL = {
    "rowkind.field": "kind", "merge-engine": "aggregation", "ignore-delete": "true", "bucket": "-2",
    "sequence.field.sort-order": "descending", "changelog-producer": "input",
}  # fmt: skip
EQUAL = {
    "merge-engine": "deduplicate", "changelog-producer": "lookup", "bucket": "-1", "ignore-delete": "false",
    "sequence.field": "n", "deletion-vectors.enabled": "true",
}  # fmt: skip


def config(**more: Any) -> CdcConfig:
    source = {"options": {"subscribePattern": "shop.*"}}
    return CdcConfig.model_validate({"name": "shop", "database": "shop", "source": source, **more})


@pytest.mark.parametrize("key", UNEQUAL)
@pytest.mark.parametrize("where", ["options", "each.orders"])
def test_an_option_with_which_no_table_equals_its_source_is_refused_by_name(key: str, where: str) -> None:
    options = {key: UNEQUAL[key]}
    given = {"options": options} if where == "options" else {"each": {"orders": {"options": options}}}
    with pytest.raises(ValidationError) as raised:
        config(**given)
    (error,) = raised.value.errors()
    facts = str(error["ctx"]["facts"])
    assert f"option={key} value={UNEQUAL[key]}" in facts
    assert re.search(f"fix='take it out of {where}", facts)


@pytest.mark.parametrize("key", EQUAL)
def test_other_options_are_taken(key: str) -> None:
    assert config(options={key: EQUAL[key]}).options == {key: EQUAL[key]}
