"""A YAML file as a tree of values with source locations.

Every scalar stays text until a field converts it, so ``bucket: 4``, ``on: yes`` and ``mode: 0644`` keep their literal
meaning. Trees are merged into new ones, so that a message can name the file and line of any value.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import yaml

from lsm.errors import InvalidInputError

_MOST_VALUES: Final = 200_000  # of one file
_MOST_LEVELS: Final = 60
_MERGE_TAG: Final = "tag:yaml.org,2002:merge"
_CORE: Final = (
    "tag:yaml.org,2002:str",
    "tag:yaml.org,2002:int",
    "tag:yaml.org,2002:float",
    "tag:yaml.org,2002:bool",
    "tag:yaml.org,2002:null",
    "tag:yaml.org,2002:timestamp",
    "tag:yaml.org,2002:seq",
    "tag:yaml.org,2002:map",
    "tag:yaml.org,2002:value",
)
_NAME: Final = "name"
_BLANKS: Final = " fix='indent with blanks, not with tabs'"
_QUOTED: Final = re.compile(r"(?<=')[^']{2,}(?=')|(?<=\")[^\"]{2,}(?=\")")

KeyPath = tuple[str | int, ...]
Content: TypeAlias = "Mapping[str, ConfigNode] | tuple[ConfigNode, ...] | str | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """Source location of a value."""

    file: str
    line: int | None  # None: on the command line

    def __str__(self) -> str:
        return f"file={self.file}" + ("" if self.line is None else f" line={self.line}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigNode:
    """A mapping, a list, a text, or None (an empty scalar, ``~`` or ``null``)."""

    content: Content
    place: SourceLine

    def plain(self) -> Any:
        """The values without locations: dicts, lists, texts and None."""
        if isinstance(self.content, Mapping):
            return {key: node.plain() for key, node in self.content.items()}
        if isinstance(self.content, tuple):
            return [node.plain() for node in self.content]
        return self.content

    def place_of(self, path: KeyPath) -> SourceLine:
        """Location of a key, or of its nearest ancestor with one."""
        below = self._child(path[0]) if path else None
        return self.place if below is None else below.place_of(path[1:])

    def with_items(self, key: str, indices: Sequence[int]) -> "ConfigNode":
        """A copy of the mapping with only some items of one of its lists."""
        assert isinstance(self.content, Mapping)
        items = self.content[key]
        assert isinstance(items.content, tuple)
        kept = ConfigNode(content=tuple(items.content[index] for index in indices), place=items.place)
        return ConfigNode(content={**self.content, key: kept}, place=self.place)

    def _child(self, key: str | int) -> "ConfigNode | None":
        if isinstance(self.content, Mapping):
            return self.content.get(str(key))
        if isinstance(self.content, tuple) and isinstance(key, int) and key < len(self.content):
            return self.content[key]
        return None


def parse_config(text: str, *, name: str) -> ConfigNode:
    """Parse a YAML text.

    Args:
        text: the YAML.
        name: file name for messages.

    Raises:
        InvalidInputError: not YAML, or a duplicate key; the message has file and line.
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return ConfigNode(content=None, place=SourceLine(file=name, line=1))
        if _size_of(node, {}, 0) > _MOST_VALUES:
            raise InvalidInputError(f"too many values, with aliases written out: file={name} most={_MOST_VALUES}")
        return _Reader(name=name, loader=loader).node(node, _line(node), ())
    except yaml.YAMLError as error:
        raise InvalidInputError(f"not a YAML file: file={name} {_place_and_reason(error)}") from None
    except RecursionError:
        raise InvalidInputError(f"values are nested too deeply: file={name} most={_MOST_LEVELS}") from None
    finally:
        loader.dispose()


def _size_of(node: Any, known: dict[int, int], level: int) -> int:
    """The values in a node, as often as aliases and merges repeat them; each node is looked at once.

    Raises: RecursionError: it is nested too deeply.
    """
    if level > _MOST_LEVELS:
        raise RecursionError
    size = known.get(id(node))
    if size is None:
        known[id(node)] = 1  # one in itself is refused where it is read
        parts = node.value if isinstance(node, yaml.CollectionNode) else ()
        children = [item for part in parts for item in (part if isinstance(part, tuple) else (part,))]
        size = known[id(node)] = 1 + sum(_size_of(each, known, level + 1) for each in children)
    return size


def _place_and_reason(error: yaml.YAMLError) -> str:
    """Line and reason of a YAML error, without the text at that line, which may be a secret."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return "reason=it holds a character that YAML does not allow"
    said = " ".join(str(error.problem or error.context).split())
    reason = _QUOTED.sub("…", said.replace(r"'\t'", "a tab")) + (_BLANKS if r"'\t'" in said else "")
    mark = error.problem_mark or error.context_mark
    return f"reason={reason}" if mark is None else f"line={mark.line + 1} column={mark.column + 1} reason={reason}"


def merged(base: ConfigNode, over: ConfigNode) -> ConfigNode:
    """``base`` overlaid with ``over``: mappings key by key, everything else replaced; an empty value removes a key.

    A mapping over a list of items with a ``name`` changes the items it names and appends the others.
    """
    below, above = base.content, over.content
    if not isinstance(above, Mapping):
        return over
    if isinstance(below, tuple) and below and all(_name_of(item) is not None for item in below):
        named = {str(_name_of(item)): item for item in below}
        for name, node in above.items():
            new_item = ConfigNode(content={_NAME: ConfigNode(content=name, place=node.place)}, place=node.place)
            named[name] = merged(named.get(name, new_item), node)
        return ConfigNode(content=tuple(each for each in named.values() if each.content is not None), place=base.place)
    if not isinstance(below, Mapping):
        return over
    both = {**below}
    for key, node in above.items():
        both[key] = merged(below[key], node) if key in below else node
    return ConfigNode(content=both, place=base.place)


def overridden(tree: ConfigNode, path: str, value: ConfigNode, *, free_keys: frozenset[str]) -> ConfigNode:
    """A tree with a value at a dotted path; missing mappings along the path are created.

    Args:
        tree: the original tree.
        path: keys separated by dots. Where a key itself contains dots (table names), the longest existing key is used.
            An item of a list is selected by its index or its ``name``.
        value: the new value.
        free_keys: mappings of options: the rest of the path after one of them is a single key, dots included.

    Raises:
        InvalidInputError: no such item in a list.
    """
    if isinstance(tree.content, tuple):
        index, rest = _item(tree.content, path)
        below = overridden(tree.content[index], rest, value, free_keys=free_keys) if rest else value
        return ConfigNode(content=(*tree.content[:index], below, *tree.content[index + 1 :]), place=tree.place)
    known = tree.content if isinstance(tree.content, Mapping) else {}
    key, rest = _next_key(known, path)
    if not rest:
        return ConfigNode(content={**known, key: value}, place=tree.place)
    below = known.get(key) or ConfigNode(content={}, place=value.place)
    if key in free_keys and not isinstance(below.content, tuple):
        options = below.content if isinstance(below.content, Mapping) else {}
        below = ConfigNode(content={**options, rest: value}, place=below.place)
    else:
        below = overridden(below, rest, value, free_keys=free_keys)
    return ConfigNode(content={**known, key: below}, place=tree.place)


def _item(items: tuple[ConfigNode, ...], path: str) -> tuple[int, str]:
    first, _, rest = path.partition(".")
    names = [_name_of(item) for item in items]
    index = names.index(first) if first in names else int(first) if first.isdecimal() else len(items)
    if index >= len(items):
        raise InvalidInputError(
            f"no such item in a list: item={first} known={', '.join(str(name) for name in names)} "
            "fix=use a name or an index from 0"
        )
    return index, rest


def _next_key(known: Mapping[str, ConfigNode], path: str) -> tuple[str, str]:
    parts = path.split(".")
    for taken in range(len(parts), 0, -1):
        key = ".".join(parts[:taken])
        if key in known:
            return key, ".".join(parts[taken:])
    return parts[0], ".".join(parts[1:])


def _name_of(item: ConfigNode) -> str | None:
    name = item.content.get(_NAME) if isinstance(item.content, Mapping) else None
    return name.content if name is not None and isinstance(name.content, str) else None


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    name: str
    loader: yaml.SafeLoader

    def node(self, node: Any, line: int, around: tuple[Any, ...]) -> ConfigNode:
        """The value of a key in ``line``; ``around`` are the enclosing mappings and lists."""
        if node.tag not in _CORE:
            raise InvalidInputError(
                f"a tag of YAML means nothing here: tag={node.tag} {self._place(line)} fix=remove the tag"
            )
        if any(node is each for each in around):
            raise InvalidInputError(f"an alias refers to its own ancestor: {self._place(line)} fix=write it out")
        if isinstance(node, yaml.SequenceNode):
            items = tuple(self.node(item, _line(item), (*around, node)) for item in node.value)
            return ConfigNode(content=items, place=self._place(line))
        if isinstance(node, yaml.MappingNode):
            return ConfigNode(content=self._mapping(node, (*around, node)), place=self._place(line))
        is_null = node.style is None and node.value in ("", "~", "null")
        return ConfigNode(content=None if is_null else str(node.value), place=self._place(line))

    def _mapping(self, node: Any, around: tuple[Any, ...]) -> dict[str, ConfigNode]:
        odd = next((key for key, _ in node.value if not isinstance(key, yaml.ScalarNode)), None)
        if odd is not None:
            raise InvalidInputError(f"a key is a list or a mapping: {self._place(_line(odd))} fix=write a name")
        written = [(key.value, _line(key)) for key, _ in node.value if key.tag != _MERGE_TAG]
        seen = set()
        for key, line in written:
            if key in seen:
                where = self._place(line)
                raise InvalidInputError(f"the same key twice in one mapping: key={key} {where} fix=remove one")
            seen.add(key)
        self.loader.flatten_mapping(node)
        return {str(key.value): self.node(item, _line(key), around) for key, item in node.value}

    def _place(self, line: int) -> SourceLine:
        return SourceLine(file=self.name, line=line)
