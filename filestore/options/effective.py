"""Which value of every option is in force, and where it came from.

Weakest first: the default; what follows from other options; the environment; the catalog (its options are given by a
configuration file or the command line); the session; the table; the read or write. An option that was stored with a
table when it was made is the table's, wherever it came from then: catalog and session set defaults of new tables only.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Any, Final

from filestore.options.catalog_options import CatalogOptions, from_environment
from filestore.options.option import Option
from filestore.options.parsing import duration_ms, size_bytes
from filestore.options.secrets import shown_value
from filestore.options.table.common import MIB
from filestore.options.table_options import TableOptions, canonical_options
from lsm.errors import InvalidInputError


class OptionOrigin(StrEnum):
    """Where a value comes from."""

    DEFAULT = "default"
    DERIVED = "derived"  # follows from other options
    ENVIRONMENT = "environment"
    CONFIG_FILE = "config file"
    COMMAND_LINE = "command line"
    CATALOG = "catalog"
    SESSION = "session"
    TABLE = "table"
    REQUEST = "request"  # of one read or write


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Options that one place gives."""

    origin: OptionOrigin
    options: Mapping[str, str] = field(repr=False)  # may hold secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveOption:
    """One option as it is in force."""

    key: str
    value: str | None  # text, secrets starred; None: not set
    origin: OptionOrigin
    doc: str  # one line; empty for keys behind a free prefix
    immutable: bool  # cannot change once the table has rows, or the catalog is made


def effective_options(layers: Sequence[Layer], declared: Mapping[str, Option[Any]]) -> list[EffectiveOption]:
    """Every declared option and every other one that a layer gives, by key.

    Args:
        layers: weakest first; a later one wins; by today's keys.
        declared: the options there are, with their defaults.
    """
    found: dict[str, tuple[str | None, OptionOrigin]] = {
        key: (default_text(option), OptionOrigin.DEFAULT) for key, option in declared.items()
    }
    for layer in layers:
        found.update({key: (text, layer.origin) for key, text in layer.options.items()})
    return [
        EffectiveOption(
            key=key,
            value=None if text is None else shown_value(key, text),
            origin=origin,
            doc=declared[key].doc if key in declared else "",
            immutable=key in declared and declared[key].is_immutable,
        )
        for key, (text, origin) in sorted(found.items())
    ]


def table_layers(
    stored: Mapping[str, str],
    *,
    primary_key: Sequence[str],
    session: Mapping[str, str] | None = None,
    request: Mapping[str, str] | None = None,
) -> list[Layer]:
    """The layers of a table's options.

    Args:
        stored: the options in its schema file.
        primary_key: its key columns; defaults depend on there being any.
        session: of a session, with its prefix or without: in force for a table that is being made.
        request: of one read or write.
    """
    given = [
        Layer(origin=OptionOrigin.SESSION, options=canonical_options(session or {})),
        Layer(origin=OptionOrigin.TABLE, options=canonical_options(stored)),
        Layer(origin=OptionOrigin.REQUEST, options=canonical_options(request or {})),
    ]
    texts = {key: text for layer in given for key, text in layer.options.items()}
    options = TableOptions.described(texts, primary_key=primary_key)
    return [Layer(origin=OptionOrigin.DERIVED, options=_derived(options)), *given]


def effective_catalog_options(given: Sequence[Layer], environment: Mapping[str, str]) -> list[EffectiveOption]:
    """``effective_options`` of a catalog.

    Args:
        given: what it was opened with, in any spelling, by who gave it; defaults of tables are left out.
        environment: asked for what reaches an object store.
    """
    layers = [replace(each, options=CatalogOptions.parse(each.options).given) for each in given]
    known = {key: text for layer in layers for key, text in layer.options.items()}
    surroundings = Layer(origin=OptionOrigin.ENVIRONMENT, options=from_environment(known, environment))
    return effective_options([surroundings, *layers], CatalogOptions.declared)


def effective_defaults(given: Sequence[Layer]) -> list[EffectiveOption]:
    """``effective_options`` of a table that would be made in a catalog, without a key; see above."""
    return effective_options(
        [replace(each, options=CatalogOptions.parse(each.options).table_defaults) for each in given],
        TableOptions.declared,
    )


def effective_table_options(stored: Mapping[str, str], *, primary_key: Sequence[str]) -> list[EffectiveOption]:
    """``effective_options`` of a table as it is stored; see ``table_layers``."""
    return effective_options(table_layers(stored, primary_key=primary_key), TableOptions.declared)


def default_text(option: Option[Any]) -> str | None:
    """The default as a user would write it; None: there is none, or none that is not derived."""
    value = option.default
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ",".join(value) or None
    if isinstance(value, Mapping):
        return ",".join(f"{level}:{word}" for level, word in value.items()) or None
    if option.parse.kind == size_bytes.kind:
        return _amount(value, _SIZES)
    if option.parse.kind == duration_ms.kind:
        return _amount(value, _DURATIONS)
    return str(value)


_SIZES: Final = ((1024**3, "gb"), (MIB, "mb"), (1024, "kb"), (1, "b"))
_DURATIONS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))


def _amount(value: int, units: Sequence[tuple[int, str]]) -> str:
    factor, unit = next((each for each in units if value and value % each[0] == 0), units[-1])
    return f"{value // factor} {unit}"


def _derived(options: TableOptions) -> dict[str, str]:
    """Options whose default depends on others, as they are when they are not set."""
    derived: Mapping[str, Callable[[], str]] = {
        "file.format": lambda: options.file_format,
        "log.changelog-mode": lambda: options.log_changelog_mode,
        "log.system": lambda: options.log_system,
        "num-levels": lambda: str(options.level_count or options.run_count_trigger + 1),
        "num-sorted-run.stop-trigger": lambda: str(options.run_count_stop_trigger),
        "target-file-size": lambda: _amount(options.target_file_size_bytes, _SIZES),
    }
    found = {}
    for key, value in derived.items():
        with suppress(InvalidInputError):  # a text that cannot be read is shown as it is
            found[key] = value()
    return {key: text for key, text in found.items() if default_text(TableOptions.declared[key]) != text}
