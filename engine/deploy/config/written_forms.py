"""Values as a job file may spell them, as parts of a JSON Schema: words, amounts, numbers, names of options.

Every scalar may be or hold a reference such as ``${NAME}`` instead, and numbers and booleans may be texts.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from engine.dialect.grammar.type_grammar import TYPE_WORDS
from filestore.options.catalog_options import CATALOG_ALIASES, STORE_PREFIX, TABLE_DEFAULT_PREFIX, CatalogOptions
from filestore.options.option import Option
from filestore.options.parsing import DURATION_UNITS, SIZE_UNITS, boolean, duration_ms, size_bytes, some_bytes
from filestore.options.rules import ALIASES, FREE_PREFIXES
from filestore.options.table_options import SESSION_PREFIX, TableOptions

SchemaForm = dict[str, Any]

SCALAR: Final = ["string", "number", "boolean"]
_REFERENCE: Final = r"\$\{"
_SCAN_MODE: Final = "log.scan.startup.mode"
FIELDS_PREFIX: Final = "fields."


def _escaped(character: str) -> str:
    return f"\\{character}" if character in r"\^$.|?*+()[]{}" else character


def any_case(word: str) -> str:
    """A pattern for a word in any case; the regular expressions of JSON Schema have no flags."""
    return "".join(f"[{each.upper()}{each.lower()}]" if each.isalpha() else _escaped(each) for each in word)


def one_of_words(words: Iterable[str], *, cases: bool = True) -> SchemaForm:
    """A word, by default in any case."""
    known = [*words]
    texts = "|".join(any_case(each) if cases else "".join(map(_escaped, each)) for each in known)
    return {"type": SCALAR, "pattern": rf"^\s*(?:{texts})\s*$|{_REFERENCE}", "examples": known}


def amount(units: Iterable[str]) -> SchemaForm:
    """A number with a unit."""
    words = "|".join(any_case(each) for each in units if each)
    return {"type": ["number", "string"], "pattern": rf"^\s*\d+\s*(?:{words})?\s*$|{_REFERENCE}"}


DURATION: Final = amount(DURATION_UNITS)
SIZE: Final = amount(SIZE_UNITS)
INTEGER: Final[SchemaForm] = {"type": ["integer", "string"], "pattern": rf"^\s*[+-]?\d+\s*$|{_REFERENCE}"}
NAMED_TABLE: Final[SchemaForm] = {"type": "string", "pattern": rf"^[^.]+\.[^.]+$|{_REFERENCE}"}
COLUMN_TYPE: Final[SchemaForm] = {
    "type": "string",
    "pattern": rf"^\s*(?:{'|'.join(any_case(each) for each in TYPE_WORDS)})(?![A-Za-z0-9_])|{_REFERENCE}",
}


def option_form(option: Option[Any]) -> SchemaForm:
    """The description of an option for editors, and the values that it takes."""
    kind = option.parse.kind
    words = kind.split(" | ")
    form: SchemaForm = {"type": SCALAR}
    if kind == boolean.kind:
        form = one_of_words(("true", "false"))
    elif kind in (size_bytes.kind, some_bytes.kind) or kind == duration_ms.kind:
        form = {**(DURATION if kind == duration_ms.kind else SIZE), "type": SCALAR}
    elif len(words) > 1 and all(each and not set(each) & set(" ()<>") for each in words):
        form = one_of_words(words)
    return {"description": f"{option.doc} ({kind})", **form}


def options(declared: Iterable[Option[Any]], names: SchemaForm | None) -> SchemaForm:
    """A mapping of options: completion for those that are declared; an empty value removes one."""
    made: SchemaForm = {
        "type": "object",
        "properties": {option.key: or_nothing(option_form(option)) for option in declared},
        "additionalProperties": {"type": [*SCALAR, "null"]},
    }
    return made if names is None else made | {"propertyNames": names}


def option_names(keys: Iterable[str], prefixes: Iterable[str] = (), *, cases: bool = False) -> SchemaForm:
    """Keys of options: the known ones, and patterns for all keys that begin with a prefix."""
    known, free = sorted({*keys}), [f"^{''.join(map(_escaped, each))}." for each in prefixes]
    names = [{"enum": known}] if not cases else [{"pattern": f"^(?:{'|'.join(map(any_case, known))})$"}]
    return {"anyOf": [*names, *({"pattern": each} for each in free)]}


TABLE_KEYS: Final = (*TableOptions.declared, *ALIASES, _SCAN_MODE)
TABLE_PREFIXES: Final = (*FREE_PREFIXES, FIELDS_PREFIX, SESSION_PREFIX)
CATALOG_KEYS: Final = (*CatalogOptions.declared, *CATALOG_ALIASES, *TABLE_KEYS)
CATALOG_PREFIXES: Final = (*TABLE_PREFIXES, TABLE_DEFAULT_PREFIX, STORE_PREFIX)


def behind(prefix: str, keys: Iterable[str]) -> list[str]:
    """Keys that begin with a prefix, without it."""
    return [key.removeprefix(prefix) for key in keys if key.startswith(prefix)]


def or_nothing(described: Mapping[str, Any]) -> SchemaForm:
    """An empty value is allowed, too."""
    form = dict(described)
    description = {"description": form.pop("description")} if "description" in form else {}
    if "anyOf" in form:
        choices = [each for each in form.pop("anyOf") if each != {"type": "null"}]
        return {**description, **form, "anyOf": [*choices, {"type": "null"}]}
    return {**description, "anyOf": [form, {"type": "null"}]}
