"""A YAML file as plain values in which every scalar stays text, with the line of each key for messages.

Text stays text until a field wants something else, so ``bucket: 4``, ``on: yes`` and ``mode: 0644`` mean what they say.
``${NAME}`` and ``${NAME:-default}`` come from the environment (``$${`` is a plain ``${``).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from lsm.errors import InvalidInputError

_REFERENCE: Final = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_MERGE_TAG: Final = "tag:yaml.org,2002:merge"

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """What a file says: mappings, lists, text and None (an empty scalar, ``~`` or ``null``)."""

    name: str
    value: Any
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def line(self, path: KeyPath) -> int:
        """Line of a key, or of the nearest thing around it that is written in the file."""
        return next((self.lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.lines), 1)


def parse_config(text: str, *, name: str, environment: Mapping[str, str]) -> ConfigFile:
    """The values of a YAML text.

    Args:
        text: the YAML.
        name: what messages call the file.
        environment: what ``${NAME}`` refers to.

    Raises:
        InvalidInputError: not YAML, a key twice in one mapping, or a variable that is not set; file and line are named.
    """
    loader = yaml.SafeLoader(text)
    reader = _Reader(name=name, environment=environment, loader=loader)
    try:
        node = loader.get_single_node()
        value = None if node is None else reader.value(node, ())
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise InvalidInputError(f"not a YAML file: file={name} reason={reason}") from error
    finally:
        loader.dispose()
    return ConfigFile(name=name, value=value, lines=reader.lines)


def override(tree: dict[str, Any], path: str, value: object, *, free_keys: frozenset[str]) -> None:
    """Put a value at a dotted path, in place; mappings on the way are made where they are missing.

    Args:
        tree: of ``ConfigFile.value``.
        path: keys with dots between. Where a key itself has dots (table names), the longest key that exists is
            taken. An item of a list is meant by its number or by its ``name``.
        value: what to put there.
        free_keys: mappings of options: what follows them in the path is one key, dots and all.

    Raises:
        InvalidInputError: no such item in a list.
    """
    holder: Any = tree
    rest = path
    while True:
        key, rest = _next_key(holder, rest)
        if not rest:
            holder[key] = value
            return
        below = holder.get(key) if isinstance(holder, dict) else holder[key]
        if not isinstance(below, dict | list):
            below = {}
            holder[key] = below
        if key in free_keys and isinstance(below, dict):
            below[rest] = value
            return
        holder = below


def _next_key(holder: Any, path: str) -> tuple[Any, str]:
    if isinstance(holder, list):
        first, _, rest = path.partition(".")
        names = [item.get("name") if isinstance(item, dict) else None for item in holder]
        index = names.index(first) if first in names else int(first) if first.isdecimal() else len(holder)
        if index >= len(holder):
            known = ", ".join(str(name) for name in names)
            raise InvalidInputError(f"no such item in a list: item={first} known={known}")
        return index, rest
    parts = path.split(".")
    for taken in range(len(parts), 0, -1):
        key = ".".join(parts[:taken])
        if key in holder:
            return key, ".".join(parts[taken:])
    return parts[0], ".".join(parts[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    name: str
    environment: Mapping[str, str]
    loader: yaml.SafeLoader
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def value(self, node: Any, path: KeyPath) -> object:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if node.style is None and node.value in ("", "~", "null"):
            return None
        return self._resolved(str(node.value), self._where(node))

    def _mapping(self, node: Any, path: KeyPath) -> dict[str, object]:
        written = [key.value for key, _ in node.value if key.tag != _MERGE_TAG]
        for key in written:
            if written.count(key) > 1:
                raise InvalidInputError(f"the same key twice in one mapping: key={key} {self._where(node)}")
        self.loader.flatten_mapping(node)
        result: dict[str, object] = {}
        for key, item in node.value:
            name = str(key.value)
            self.lines[(*path, name)] = key.start_mark.line + 1
            result[name] = self.value(item, (*path, name))
        return result

    def _where(self, node: Any) -> str:
        return f"file={self.name} line={node.start_mark.line + 1}"

    def _resolved(self, text: str, where: str) -> str:
        def value_of(match: re.Match[str]) -> str:
            escape, name, default = match.groups()
            if escape:
                return match.group(0)[1:]
            found = self.environment.get(name)
            if not found and default is not None:
                return str(default)
            if found is None:
                raise InvalidInputError(
                    f"environment variable is not set: name={name} {where} fix=export it or write ${{{name}:-default}}"
                )
            return found

        return _REFERENCE.sub(value_of, text)
