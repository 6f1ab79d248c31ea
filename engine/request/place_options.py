"""What ``format("fluvial")`` is given besides options of the table: where the table is, and which of its rows."""

from typing import Final

from filestore.options.option import NOTHING, ROWS, At, Option, OptionValues
from filestore.options.parsing import text
from filestore.options.table.common import NUMBER


class PlaceOptions(OptionValues):
    """Where the table is."""

    warehouse = Option("warehouse", text, None, "Directory or URL of the tables.", NOTHING, at=At.READ | At.WRITE)
    table = Option("table", text, None, "database.table, or database.table$branch_b.", NOTHING, at=At.READ | At.WRITE)
    table_id = Option(
        "table.id", text, None, "The table must have this id; a frame keeps it, so a new table of its name is refused.",
        NOTHING, at=At.READ | At.WRITE,
    )  # fmt: skip
    path = Option("path", text, None, "Taken, and not needed: Spark passes it on.", NOTHING, at=At.READ | At.WRITE)


class RowOptions(OptionValues):
    """Which rows and columns are read."""

    columns = Option(
        "columns", text, None, "Columns to read, with commas between them; default: all.", ROWS, at=At.READ
    )
    filter = Option("filter", text, None, "SQL condition that the rows meet.", ROWS, at=At.READ)
    schema_id = Option(
        "schema.id", NUMBER, None,
        "Columns are those of this version of the schema; a frame keeps it. Streams continue with newer ones.",
        ROWS, at=At.READ,
    )  # fmt: skip


TABLE_ID: Final = PlaceOptions.table_id.key
SCHEMA_ID: Final = RowOptions.schema_id.key
TABLE_PLACE_KEYS: Final = tuple(PlaceOptions.declared)
ROW_KEYS: Final = tuple(RowOptions.declared)
