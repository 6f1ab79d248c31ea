"""Options with which a table would not equal its source, or its changes not those of the source: they are refused."""

from collections.abc import Iterator
from typing import Any, Final

from filestore.options.option import Option
from filestore.options.table.groups import POSTPONE_BUCKET
from filestore.options.table_options import TableOptions
from lsm.errors import InvalidInputError

_LATER: Final = "; a pipeline of fluvial run can write the table's changes into one that has it"


def check_equal_options(options: TableOptions, *, table: str = "", where: str = "options") -> None:
    """Refuse options of a table that a job cannot keep equal to its source.

    Args:
        options: of the table, or of the job for it.
        table: which the source has filled, in the message; "": none is there yet.
        where: the options are given.

    Raises: InvalidInputError naming option, value and fix.
    """
    for option, why, instead in _unequal(options):
        then = f"; then: fluvial cdc resnapshot {table} --drop" if table else ""
        raise InvalidInputError(
            f"a table with this option does not equal its source: {f'table={table} ' if table else ''}"
            f"option={option.key} value={options.texts_by_key().get(option.key, option.default)} reason='{why}' "
            f"fix='take it out of {where}{instead}{then}'"
        )


def _unequal(options: TableOptions) -> Iterator[tuple[Option[Any], str, str]]:
    """The options, why each one is refused, and what to do instead."""
    if options.rowkind_field is not None:
        yield TableOptions.rowkind_field, "kinds are those of the changes, and the column is a value like others", ""
    if options.merge_engine != "deduplicate":
        yield TableOptions.merge_engine, "an update replaces the row, with its nulls", _LATER
    if options.ignore_delete:
        yield (
            TableOptions.ignore_delete,
            "rows that the source has deleted stay like others",
            "; deletes: soft marks them",
        )
    if options.sequence_field_sort_order != "ascending":
        yield TableOptions.sequence_field_sort_order, "the oldest change of a row would win", ""
    if options.bucket == POSTPONE_BUCKET:
        yield TableOptions.bucket, "its rows are seen when a compaction gives them buckets", ", or set another number"
    if options.changelog_producer == "input":
        yield (
            TableOptions.changelog_producer,
            "changes of a row with a key come without the row before, and may come twice",
            ", or set lookup",
        )
    if options.log_system == "kafka" and options.has_key and options.log_takes_old_rows:
        yield (
            TableOptions.log_changelog_mode,
            "changes of a row with a key come without the row before, and may come twice",
            ", or set changelog-producer=lookup beside it",
        )
