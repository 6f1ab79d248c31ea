"""Common base of the sections of a job file: known keys, units and error messages."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from engine.deploy.config.config_file import ConfigNode, KeyPath
from engine.deploy.config.written_forms import SIZE
from filestore.options.parsing import duration_ms, size_bytes
from lsm.nearest_names import did_you_mean
from lsm.secret_names import is_secret_name, shown_address

_WORDS: Final = {
    "missing": ("a value is missing", "write the key"),
    "model_type": ("a mapping belongs here", "write key: value under it"),
    "dict_type": ("a mapping belongs here", "write key: value under it"),
    "mapping_type": ("a mapping belongs here", "write key: value under it"),
    "tuple_type": ("a list belongs here", "write [a, b]"),
    "string_type": ("a text belongs here", "write one value"),
    "string_too_short": ("a value is missing", "write one"),
    "int_parsing": ("a whole number belongs here", "write digits only"),
    "bool_parsing": ("true or false belongs here", "write one of them"),
}
"""By pydantic error type: the fact and fix in terms of a job file."""

_OF_STRUCTURE: Final = frozenset({"model_type", "dict_type", "mapping_type", "tuple_type"})
_MAX_SHOWN: Final = 80
_HIDDEN: Final = "******"


def problem(fact: str, *, key: str | None = None, facts: str = "") -> PydanticCustomError:
    """An error in a section, or in one of its keys.

    Args:
        fact: the problem, in lower case.
        key: key in the section; None: the section itself.
        facts: ``key=value`` pairs with the value, followed by ``fix=`` or a hint.
    """
    return PydanticCustomError("job", "{fact}", {"fact": fact, "key": key, "facts": facts})


def hint(name: str, known: Iterable[str]) -> str:
    """A hint with the nearest known name, or with all of them."""
    names = sorted(known)
    return did_you_mean(name, names).lstrip() or f"known={', '.join(names)}"


def explained(error: ValidationError, tree: ConfigNode, secrets: Iterable[str]) -> str:
    """All problems of a job, a line for each: with key, file, line, value and fix."""
    problems = []
    for found in error.errors(include_url=False):
        context = found.get("ctx", {})
        key = context.get("key")
        path = tuple(part for part in found["loc"] if part != "[key]") + ((key,) if key else ())
        fact, fix = _WORDS.get(found["type"], (found["msg"], ""))
        facts = context.get("facts", "") or f"{_shown(found, path)} fix={fix or 'change the value'}".strip()
        text = f"{fact[0].lower()}{fact[1:]}: key={dotted(path)} {tree.place_of(path)} {facts}"
        problems.append(" ".join(text.split()))
    text = "\n".join(problems)
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text


def dotted(path: KeyPath) -> str:
    """A path in messages: ``pipelines[0].target``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _shown(found: Any, path: KeyPath) -> str:
    """The value of a known key, for a message; for an unknown key only its type and the keys in it."""
    value = found.get("input")
    if found["type"] == "missing" or value is None:
        return ""
    if isinstance(value, Mapping):
        return f"given=mapping keys={','.join(map(str, value))[:_MAX_SHOWN] or 'none'}"
    if isinstance(value, list | tuple):
        return f"given=list items={len(value)}"
    if found["type"] in _OF_STRUCTURE or any(is_secret_name(str(each)) for each in path):
        return "given=text"
    text = shown_address(str(value))
    return f"value={text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + '…'}"


def _table_name(name: str) -> str:
    if not re.fullmatch(r"[^.]+\.[^.]+", name):
        raise problem("a table is named database.table", facts=f"given={name} fix=write database.table")
    return name


def _seconds(given: object) -> object:
    if not isinstance(given, str):
        return given
    try:
        return duration_ms(given) / 1000
    except ValueError:
        raise problem("not a duration", facts=f"given={given} example=30 seconds") from None


def _bytes(given: object) -> object:
    if not isinstance(given, str):
        return given
    try:
        return size_bytes(given)
    except ValueError:
        raise problem("not a size", facts=f"given={given} example=64 mb") from None


def _given_options(given: object) -> object:
    """Options without the empty ones, which remove what a file below has."""
    return {key: value for key, value in given.items() if value is not None} if isinstance(given, Mapping) else given


Options = Annotated[Mapping[str, str], BeforeValidator(_given_options)]
TableName = Annotated[str, AfterValidator(_table_name)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
SizeBytes = Annotated[int, BeforeValidator(_bytes), WithJsonSchema(SIZE)]


class Section(BaseModel):
    """A mapping with known keys; an unknown key is an error with the nearest known one.

    An empty value is equivalent to an absent key, so that a section may be emptied by comments.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        known = {field.alias or name for name, field in cls.model_fields.items()}
        for key in given:
            if key not in known:
                raise problem("unknown key", key=key, facts=hint(key, known))
        return {key: value for key, value in given.items() if value is not None}


def one_of(value: str, known: Sequence[str], *, what: str) -> str:
    """Checks that a word is known. Raises: PydanticCustomError with the nearest."""
    if value not in known:
        raise problem(f"unknown {what}", facts=f"given={value} {hint(value, known)}")
    return value
