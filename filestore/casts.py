"""Values of a column whose type was changed later, as Paimon's readers show them.

Integers wrap and floats saturate when they are narrowed, as in Java; digits beyond a DECIMAL's scale are rounded half up and
what does not fit its precision becomes null; finer clocks are cut. Session time zones are taken as UTC.
Source: Paimon CastExecutors and the rules in its ``casting`` package.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.datatypes import (
    BYTES_ROOTS,
    INTEGER_ROOTS,
    MAX_LENGTH,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    DataType,
    arrow_type,
    timestamp_unit,
)
from filestore.paths import java_text
from lsm.errors import InvalidInputError

_FLOAT_ROOTS: Final = ("FLOAT", "DOUBLE")
_TRUE_WORDS: Final = ("t", "true", "y", "yes", "1")
_FALSE_WORDS: Final = ("f", "false", "n", "no", "0")
_WIDEST_DECIMAL: Final = 38
