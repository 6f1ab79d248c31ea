"""Exit codes of ``fluvial``."""

from typing import Final

EXIT_FAILED: Final = 1
EXIT_INVALID: Final = 2  # change the request
EXIT_CHANGES: Final = 3  # of ``plan --detailed-exitcode``
EXIT_PARKED: Final = 3  # of ``cdc run`` with an end: tables wait
EXIT_INTERRUPTED: Final = 130
EXIT_TERMINATED: Final = 143  # of ``run``
