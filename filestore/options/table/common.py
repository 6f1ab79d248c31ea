"""Bounds that several options have."""

from typing import Final

from filestore.options.parsing import integer

MIB: Final = 1024 * 1024
DAY_MS: Final = 86_400_000
INT_MAX: Final = 2**31 - 1
COUNT: Final = integer(1)
NUMBER: Final = integer(0)
