"""The client options of a catalog for its brokers and schema registry: logins, and options no table may set.

They apply to all tables that the catalog opens, and are stored in no file of a table.
"""

from collections.abc import Mapping

from filestore.options.log_login import is_openers, login_for, trusted_options
from filestore.table import FileTable


class CatalogLogin:
    """The login among the options that a catalog was opened with."""

    def __init__(self, defaults: Mapping[str, str]) -> None:
        """Keep the login; ``defaults``: of the catalog's tables."""
        self._defaults = defaults

    def stored(self, options: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
        """The options that a new table stores: without those that only its openers may give.

        Args:
            options: all options of the table.
            own: options that the user gave for this table; those that a table may not store are refused.
        """
        return {key: value for key, value in options.items() if not is_openers(key) or key in own}

    def opening(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options by which the log of a table that is not there yet is opened."""
        return trusted_options(options, self._defaults)

    def applied(self, files: FileTable) -> FileTable:
        """The table with what is given for its brokers and its registry; nothing is stored."""
        login = login_for(files.store.schema.options, self._defaults)
        return files.with_options(login) if login else files
