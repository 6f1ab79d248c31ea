"""Options whose values are never shown on a screen, in a log or in a system table."""

from collections.abc import Mapping
from typing import Any, Final

from filestore.options.catalog_options import CATALOG_ALIASES, CatalogOptions
from filestore.options.option import Option
from filestore.options.table.columns import FieldOptions
from filestore.options.table_options import TableOptions
from lsm.secret_names import STARS, shown_text

_OF_LOG: Final = ("log.", "kafka.")


def without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """The same options, sorted, with stars for what must not be seen."""
    return {key: shown_value(key, value) for key, value in sorted(options.items())}


def shown_value(key: str, value: str) -> str:
    """The value with stars for what must not be seen: all of it, or the password inside an address.

    A declared option says whether it is a secret; others are known by the names that secrets have.
    """
    option = _declared(key)
    if option is not None and option.is_secret:
        return STARS
    return shown_text(key, value, is_declared=option is not None)


def secrets_of_log(options: Mapping[str, Any]) -> list[str]:
    """The options of a table's log that are a secret or hold one, such as a password in an address; sorted.

    Under our names, and under those that Paimon's connector for Flink stores.
    """
    texts = {key: str(value) for key, value in options.items() if key.startswith(_OF_LOG)}
    return sorted(key for key, value in texts.items() if shown_value(key, value) != value)


def _declared(key: str) -> Option[Any] | None:
    if key.startswith("fields.") and key not in TableOptions.declared:
        return next((each for suffix, each in FieldOptions.declared.items() if key.endswith(f".{suffix}")), None)
    return TableOptions.declared.get(key) or CatalogOptions.declared.get(CATALOG_ALIASES.get(key, key))
