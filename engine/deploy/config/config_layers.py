"""One tree from several files: included files, the file itself, its profile, overlays, and single values.

Each layer overrides the earlier ones, see ``config_file.merged``. References are resolved last, so a replaced reference
need not exist.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from engine.deploy.config.config_file import ConfigNode, SourceLine, merged, overridden, parse_config
from engine.deploy.config.references import References
from filestore.options.references import text_of_file
from lsm.errors import InvalidInputError
from lsm.secret_names import without_value

INCLUDE: Final = "include"
PROFILES: Final = "profiles"


def read_layers(path: str, references: References) -> ConfigNode:
    """A file merged over its includes, in order; references in other values are not resolved.

    Raises:
        InvalidInputError: a file is missing, not YAML, not a mapping, or includes itself.
    """
    return _with_includes(_read(Path(path), None), Path(path), references, ())


def parse_layers(text: str, *, name: str, references: References) -> ConfigNode:
    """Read layers from text, as ``read_layers`` does from files; includes are relative to ``name``."""
    return _with_includes(parse_config(text, name=name), Path(name), references, ())


def with_profile(tree: ConfigNode, name: str | None) -> ConfigNode:
    """The tree without its ``profiles``, merged with the named one.

    Raises:
        InvalidInputError: the profile is unknown.
    """
    content = dict(tree.content) if isinstance(tree.content, Mapping) else {}
    profiles = content.pop(PROFILES, None)
    rest = ConfigNode(content=content, place=tree.place)
    if name is None:
        return rest
    known = profiles.content if profiles is not None and isinstance(profiles.content, Mapping) else {}
    if name not in known:
        place = tree.place if profiles is None else profiles.place
        raise InvalidInputError(
            f"no such profile: profile={name} key={PROFILES} {place} known={', '.join(sorted(known)) or 'none'} "
            f"fix=write it under {PROFILES}, or use a known one"
        )
    profile = known[name]
    return rest if profile.content is None else merged(rest, profile)


def with_overrides(tree: ConfigNode, overrides: Sequence[str], *, free_keys: frozenset[str]) -> ConfigNode:
    """The tree with single values replaced, by ``a.b=c`` texts in order; each value is parsed as YAML.

    Raises:
        InvalidInputError: a text has another form, or names an unknown item of a list.
    """
    for given in overrides:
        path, equals, value = given.partition("=")
        if not equals or not path.strip():
            raise InvalidInputError(
                f"an override is written key.key=value: given={without_value(given)} fix=--set name=other"
            )
        source = f"--set {path.strip()}"
        read = parse_config(value, name=source)
        node = _on_command_line(read, SourceLine(file=source, line=None))
        tree = overridden(tree, path.strip(), node, free_keys=free_keys)
    return tree


def _on_command_line(node: ConfigNode, place: SourceLine) -> ConfigNode:
    if isinstance(node.content, Mapping):
        return ConfigNode(
            content={key: _on_command_line(each, place) for key, each in node.content.items()}, place=place
        )
    if isinstance(node.content, tuple):
        return ConfigNode(content=tuple(_on_command_line(each, place) for each in node.content), place=place)
    return ConfigNode(content=node.content, place=place)


def _with_includes(tree: ConfigNode, file: Path, references: References, includers: tuple[Path, ...]) -> ConfigNode:
    if not isinstance(tree.content, Mapping):
        raise InvalidInputError(
            f"a job file is a mapping with name, warehouse and pipelines: {tree.place} fix=start with name: my-job"
        )
    content = dict(tree.content)
    included = content.pop(INCLUDE, None)
    rest = ConfigNode(content=content, place=tree.place)
    if included is None:
        return rest
    base = ConfigNode(content={}, place=tree.place)
    for node in included.content if isinstance(included.content, tuple) else (included,):
        if not isinstance(node.content, str):
            raise InvalidInputError(f"a file or a list of files belongs here: key={INCLUDE} {node.place} fix=a path")
        path = file.parent / references.text(node.content, node.place)
        around = (*includers, file.resolve())
        if path.resolve() in around:
            raise InvalidInputError(
                f"a file includes itself: key={INCLUDE} value={node.content} {node.place} fix=remove it"
            )
        base = merged(base, _with_includes(_read(path, node.place), path, references, around))
    return ConfigNode(content=merged(base, rest).content, place=tree.place)


def _read(path: Path, place: SourceLine | None) -> ConfigNode:
    try:
        text = path.read_text(encoding="utf-8") if place is None else text_of_file(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        asked = "" if place is None else f" key={INCLUDE} included_by=({place})"
        raise InvalidInputError(
            f"job file cannot be read: file={path}{asked} reason={reason} fix=correct the path"
        ) from error
    return parse_config(text, name=str(path))
