"""The options of single columns of a table."""

from filestore.options.option import ROWS, STORAGE, Option, OptionValues
from filestore.options.parsing import any_text, boolean, names, statistics, text
from filestore.options.table.common import COUNT


class FieldOptions(OptionValues):
    """Options of a column, ``fields.<column>.<key>``, or of several: ``fields.<column>,<column>.sequence-group``."""

    aggregate_function = Option("aggregate-function", text, None, "How values of the column are aggregated.", ROWS)
    ignore_retract = Option("ignore-retract", boolean, False, "Deletes and update-befores leave the value alone.", ROWS)
    sequence_group = Option("sequence-group", names, (), "Columns that these columns order.", ROWS)
    distinct = Option("distinct", boolean, False, "Aggregate every value once.", ROWS)
    list_agg_delimiter = Option(
        "list-agg-delimiter", any_text, None, "Between the values of listagg; default: comma.", ROWS
    )
    nested_key = Option("nested-key", names, (), "Key of the rows of nested_update.", ROWS)
    count_limit = Option("count-limit", COUNT, None, "Most rows of nested_update.", ROWS)
    ts_field = Option("ts-field", text, None, "Field that orders the rows of nested_update.", ROWS)
    stats_mode = Option("stats-mode", statistics, None, "Statistics of the column.", STORAGE)
