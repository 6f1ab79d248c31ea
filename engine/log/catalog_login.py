"""A catalog's login to the brokers: in force for the tables that it opens, its secrets in none that it makes."""

from collections.abc import Mapping

from filestore.options.log_login import SERVERS_KEY, login_for, login_of
from filestore.options.secrets import shown_value
from filestore.table import FileTable
from lsm.secret_names import STARS


class CatalogLogin:
    """The login among the options that a catalog was opened with."""

    def __init__(self, defaults: Mapping[str, str]) -> None:
        """Keep the login; ``defaults``: of the catalog's tables."""
        self._servers = defaults.get(SERVERS_KEY)
        self._defaults = defaults

    def stored(self, options: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
        """What a new table stores of its options.

        Args:
            options: all of them.
            own: those that the table was given itself, which it keeps.
        """
        if options.get(SERVERS_KEY) != self._servers:
            return dict(options)
        secrets = {key for key, value in login_of(self._defaults).items() if shown_value(key, value) == STARS}
        return {key: value for key, value in options.items() if key not in secrets or key in own}

    def applied(self, files: FileTable) -> FileTable:
        """The table with this login, if its log is at the brokers that the login is for; nothing is stored."""
        login = login_for(files.store.schema.options.get(SERVERS_KEY), self._defaults)
        return files.with_options(login) if login else files
