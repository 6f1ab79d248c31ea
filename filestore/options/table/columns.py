"""The options of single columns of a table."""

from filestore.options.option import Option, OptionValues
from filestore.options.parsing import any_text, boolean, names, statistics, text
from filestore.options.table.common import COUNT


class FieldOptions(OptionValues):
    """Options of a column, ``fields.<column>.<key>``, or of several: ``fields.<column>,<column>.sequence-group``."""

    aggregate_function = Option("aggregate-function", text, None, "How values of the column are aggregated.")
    ignore_retract = Option("ignore-retract", boolean, False, "Deletes and update-befores leave the value alone.")
    sequence_group = Option("sequence-group", names, (), "Columns that these columns order.")
    distinct = Option("distinct", boolean, False, "Aggregate every value once.")
    list_agg_delimiter = Option("list-agg-delimiter", any_text, None, "Between the values of listagg; default: comma.")
    nested_key = Option("nested-key", names, (), "Key of the rows of nested_update.")
    count_limit = Option("count-limit", COUNT, None, "Most rows of nested_update.")
    ts_field = Option("ts-field", text, None, "Field that orders the rows of nested_update.")
    stats_mode = Option("stats-mode", statistics, None, "Statistics of the column.")
