"""A catalog's logins to brokers and schema registries.

They are in force for the tables that it opens; their secrets are in none that it makes.
"""

from collections.abc import Mapping

from filestore.options.log_login import login_for
from filestore.options.secrets import shown_value
from filestore.table import FileTable
from lsm.secret_names import STARS


class CatalogLogin:
    """The login among the options that a catalog was opened with."""

    def __init__(self, defaults: Mapping[str, str]) -> None:
        """Keep the login; ``defaults``: of the catalog's tables."""
        self._defaults = defaults

    def stored(self, options: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
        """What a new table stores of its options: no secret of this login.

        Args:
            options: all of them.
            own: those that the table was given itself; a secret among them is refused when the table is made.
        """
        login = login_for(options, self._defaults)
        secrets = {key for key, value in login.items() if shown_value(key, value) == STARS}
        return {key: value for key, value in options.items() if key not in secrets or key in own}

    def applied(self, files: FileTable) -> FileTable:
        """The table with the logins that are for its brokers and its registry; nothing is stored."""
        login = login_for(files.store.schema.options, self._defaults)
        return files.with_options(login) if login else files
