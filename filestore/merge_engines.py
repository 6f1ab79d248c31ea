"""From a table's options to the function that folds the rows of one key, and what a merge engine asks of its users.

Source: paimon-format.md section 6.5; FL-186, FL-187.
"""

from collections.abc import Iterable

import pyarrow as pa

from filestore.options import TableOptions
from filestore.table_schema import TableSchema
from lsm.errors import InvalidInputError
from lsm.merge_function import Deduplicate, FirstRow, MergeFunction


def merge_function(schema: TableSchema, options: TableOptions) -> MergeFunction:
    """The function that ``merge-engine`` names."""
    if options.merge_engine == "deduplicate":
        return Deduplicate(ignore_delete=options.ignore_delete)
    if options.merge_engine == "first-row":
        return FirstRow(ignore_delete=options.ignore_delete)
    raise InvalidInputError(f"merge engine is not supported: merge-engine={options.merge_engine}")


def columns_to_merge(schema: TableSchema, options: TableOptions, wanted: Iterable[str]) -> frozenset[str]:
    """The columns that have to be read so that these come out right."""
    return frozenset({*wanted, *schema.trimmed_primary_keys, *options.sequence_fields})


def check_retracts(schema: TableSchema, options: TableOptions, *, deletes_only: bool) -> None:
    """Refuse retracts that no later merge could digest. Raises: InvalidInputError naming the option."""


def hides_old_values(
    batch: pa.RecordBatch, kinds: pa.Array, schema: TableSchema, options: TableOptions
) -> pa.RecordBatch:
    """Null out what a delete must not bring back."""
    return batch
