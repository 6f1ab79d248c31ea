"""What a catalog gives for its brokers and schema registry: logins, and whatever else no table may say for others.

It is in force for the tables that it opens; it is in no file of those that it makes.
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
        """What a new table stores of its options: nothing that is only its openers'.

        Args:
            options: all of them.
            own: those that the table was given itself; what it may not store is refused when the table is made.
        """
        return {key: value for key, value in options.items() if not is_openers(key) or key in own}

    def opening(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options by which the log of a table that is not there yet is opened."""
        return trusted_options(options, self._defaults)

    def applied(self, files: FileTable) -> FileTable:
        """The table with what is given for its brokers and its registry; nothing is stored."""
        login = login_for(files.store.schema.options, self._defaults)
        return files.with_options(login) if login else files
