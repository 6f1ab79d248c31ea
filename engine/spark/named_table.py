"""The table that the options of ``format("fluvial")`` name."""

from collections.abc import Mapping

from engine.catalog import Catalog
from engine.request.branch_choice import branch_named
from engine.request.place_options import TABLE_ID, TABLE_PLACE_KEYS
from engine.table import Table
from filestore.options.catalog_options import is_catalog_option
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError


def is_place_key(key: str) -> bool:
    """Whether an option says where the table is: ``warehouse``, ``table``, or an option of the catalog."""
    return key in TABLE_PLACE_KEYS or is_catalog_option(key)


def named_table(options: Mapping[str, str]) -> Table:
    """Open the table that ``warehouse``, ``table`` and ``branch`` name, in the catalog that the others describe.

    Raises:
        InvalidInputError: an option is missing, two branches are named, there is no such table or branch, or it has
            another ``table.id``.
    """
    name, warehouse = options.get("table"), options.get("warehouse")
    if not name or not warehouse:
        raise InvalidInputError(
            'a table is named by two options: fix=.option("warehouse", "/data/warehouse").option("table", "db.t")'
        )
    base, branch = branch_named(name, options)
    table = named_catalog(warehouse, options).table(base, branch=branch)
    check_table_id(table.store, options)
    return table


def check_table_id(store: TableStore, options: Mapping[str, str]) -> None:
    """Look whether a name leads to the table that it led to before, on whichever branch.

    Raises: InvalidInputError: the table was created again since.
    """
    wanted = options.get(TABLE_ID)
    if wanted is not None and wanted not in (store.table_id(), store.table_id_of(None)):
        raise store.as_opened.gone(store.io)


def named_catalog(warehouse: str, options: Mapping[str, str]) -> Catalog:
    """The catalog of a warehouse that is reached by those of the options that are a catalog's."""
    return Catalog(warehouse, options={key: value for key, value in options.items() if is_catalog_option(key)})
