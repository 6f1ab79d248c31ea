"""The table that the options of ``format("fluvial")`` name."""

from collections.abc import Mapping

from engine.catalog import Catalog
from engine.request.branch_choice import branch_named
from engine.request.place_options import TABLE_PLACE_KEYS
from engine.table import Table
from filestore.options.catalog_options import is_catalog_option
from lsm.errors import InvalidInputError


def is_place_key(key: str) -> bool:
    """Whether an option says where the table is: ``warehouse``, ``table``, or an option of the catalog."""
    return key in TABLE_PLACE_KEYS or is_catalog_option(key)


def named_table(options: Mapping[str, str]) -> Table:
    """Open the table that ``warehouse``, ``table`` and ``branch`` name, in the catalog that the others describe.

    Raises:
        InvalidInputError: an option is missing, two branches are named, or there is no such table or branch.
    """
    name, warehouse = options.get("table"), options.get("warehouse")
    if not name or not warehouse:
        raise InvalidInputError(
            'a table is named by two options: fix=.option("warehouse", "/data/warehouse").option("table", "db.t")'
        )
    base, branch = branch_named(name, options)
    return named_catalog(warehouse, options).table(base, branch=branch)


def named_catalog(warehouse: str, options: Mapping[str, str]) -> Catalog:
    """The catalog of a warehouse that is reached by those of the options that are a catalog's."""
    return Catalog(warehouse, options={key: value for key, value in options.items() if is_catalog_option(key)})
