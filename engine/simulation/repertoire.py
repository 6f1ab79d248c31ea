"""All operations by name, and which of them a setup allows."""

from typing import Final

from engine.simulation.log.operations import BESIDE_A_LOG, log_operations
from engine.simulation.operations import (
    WITH_BATCH_TAGS,
    WITH_BRANCH,
    WITH_SAVEPOINT,
    WITH_TAG,
    SimulatedOperation,
    file_operations,
)
from engine.simulation.setups import Setup
from lsm.errors import InvalidInputError

LOG_OPERATION_NAMES: Final = tuple(each.name for each in log_operations(0))
OPERATION_NAMES: Final = (*(each.name for each in file_operations(0)), *LOG_OPERATION_NAMES)
_KEYED: Final = frozenset(each.name for each in (*file_operations(0), *log_operations(0)) if each.keyed_only)


def operation(name: str, number: int) -> SimulatedOperation:
    """An operation by its name. Raises: InvalidInputError naming all.

    Args:
        name: see ``OPERATION_NAMES``.
        number: of the operation in its history, from 0.
    """
    make = log_operations if name in LOG_OPERATION_NAMES else file_operations
    found = next((each for each in make(number) if each.name == name), None)
    if found is None:
        raise InvalidInputError(f"no such operation: operation={name} operations={list(OPERATION_NAMES)}")
    return found


def fits_setup(setup: Setup, name: str) -> bool:
    """Whether an operation can be carried out on a setup."""
    if setup.has_log != (name in LOG_OPERATION_NAMES) and not (setup.has_log and name in BESIDE_A_LOG):
        return False
    lacks = {
        *(() if setup.has_key else _KEYED),
        *(() if setup.has_branch else WITH_BRANCH),
        *(() if setup.tagged is not None else WITH_TAG),
        *(() if setup.has_savepoint else WITH_SAVEPOINT),
        *(() if setup.has_batch_tags else WITH_BATCH_TAGS),
    }
    return name not in lacks
