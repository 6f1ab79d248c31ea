"""copy, by Python, SQL and the shell."""

from collections.abc import Callable

import pytest

from engine import Catalog, Table
from engine.procedures import PROCEDURES, copy
from lsm.errors import InvalidInputError
from tests.engine.procedures.conftest import Call
from tests.support.rows import row_set


def test_a_copy_has_the_same_columns_options_and_rows(
    new_table: Callable[..., Table], catalog: Catalog, call: Call
) -> None:
    source = new_table(target_file_size="1 mb")
    (done,) = call("copy", source_table="shop.orders", target_table="copies.orders")
    assert (done["rows"], done["snapshot_id"]) == (3, 1)
    made = catalog.table("copies.orders")
    assert row_set(made) == row_set(source)
    assert [(each.name, each.type) for each in made.schema.fields] == [
        (each.name, each.type) for each in source.schema.fields
    ]
    assert (made.schema.primary_keys, made.schema.partition_keys) == (("dt", "id"), ("dt",))
    assert dict(made.schema.options) == dict(source.schema.options)
    (some,) = call("copy", source_table="shop.orders", target_table="copies.some", where="id > 2")
    assert some["rows"] == 1
    (none,) = call("copy", source_table="shop.orders", target_table="copies.none", where="id > 20")
    assert (none["rows"], none["snapshot_id"]) == (0, None)
    assert row_set(catalog.table("copies.none")) == set()


def test_nothing_is_made_when_it_cannot_be_copied(new_table: Callable[..., Table], catalog: Catalog) -> None:
    new_table()
    with pytest.raises(InvalidInputError):
        copy(catalog, "shop.orders", "copies.orders", where="idd > 2")
    with pytest.raises(InvalidInputError, match="exists"):
        copy(catalog, "shop.orders", "shop.orders")

    def die(done: int, of: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        PROCEDURES["copy"].run(catalog, {"source_table": "shop.orders", "target_table": "copies.orders"}, die)
    assert "copies" not in catalog.list_databases() or catalog.list_tables("copies") == []


def test_the_rows_of_a_copy_are_visible_where_readers_wait_for_a_compaction(
    new_table: Callable[..., Table], catalog: Catalog
) -> None:
    """With deletion vectors nothing of level 0 is read: a copy compacts what it wrote, as every batch write does."""
    source = new_table(**{"deletion-vectors.enabled": "true"})
    copy(catalog, "shop.orders", "copies.orders")
    assert row_set(catalog.table("copies.orders")) == row_set(source) != set()
