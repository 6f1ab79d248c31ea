"""Options that decide about rows, as the tests of their combinations ask for them."""

from collections.abc import Mapping
from typing import Any, Final

from engine.kafka.options import SourceValues
from engine.request.place_options import PlaceOptions, RowOptions
from engine.request.writer_options import WriterOptions
from filestore.options.catalog_options import CatalogOptions
from filestore.options.option import Option, OptionValues
from filestore.options.table.columns import FieldOptions
from filestore.options.table_options import TableOptions

OPTION_CLASSES: Final[Mapping[type[OptionValues], str]] = {
    TableOptions: "",
    FieldOptions: "fields.*.",
    WriterOptions: "",
    RowOptions: "",
    PlaceOptions: "",
    CatalogOptions: "",
    SourceValues: "",
}
"""Every class of declarations, with what stands before its keys."""
OF_A_TABLE: Final = (TableOptions, FieldOptions, WriterOptions, RowOptions)
"""Those whose options meet in the reads and writes of one table."""


def row_deciding_options(*classes: type[OptionValues]) -> Mapping[str, Option[Any]]:
    """Options that decide which rows or changes readers get, by key, ``fields.*.`` before those of columns.

    Args:
        classes: that declare them; none: those of a table, its writers and its readers.
    """
    return {
        OPTION_CLASSES[each] + key: option
        for each in classes or OF_A_TABLE
        for key, option in each.declared.items()
        if option.decides_rows
    }


def other_text(option: Option[Any]) -> str:
    """A value of an option that is not its default."""
    words = option.parse.kind.split(" | ")
    texts = ("true", "false") if words == ["boolean"] else words if len(words) > 1 else _TEXTS[words[0].split(",")[0]]
    return next(each for each in texts if option.read({option.key: each}) != option.default)


_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("x",), "names": ("v",), "integer": ("2", "3"), "duration": ("7 min",), "size": ("7 mb",),
    "column=unit pairs": ("v=us",),
}  # fmt: skip
