"""The JSON Schema of files that lie over a job file: overlays, included files, profiles.

Nothing is required in them, an empty value removes a key, and a mapping over a list changes the items that it names.
"""

from collections.abc import Mapping
from typing import Any, Final

from engine.deploy.config.written_forms import or_nothing

_SUFFIX: Final = "Part"
_REFS: Final = "#/$defs/"
_NAMED: Final = ("PipelineConfig", "CdcConfig")
"""Items of lists that have a name."""


def with_parts(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The definitions of a job, and after them those of its parts, which refer to each other."""
    definitions: Mapping[str, Any] = schema["$defs"]
    parts = {f"{name}{_SUFFIX}": _part(definition) for name, definition in definitions.items()}
    return {**definitions, **parts}


def part_of_job(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a file that says a part of a job."""
    found = _part({key: value for key, value in schema.items() if key not in ("$defs", "$schema", "if", "then")})
    return {key: found[key] for key in ("type", "properties", "additionalProperties")}


def _part(node: Any) -> Any:
    if isinstance(node, list):
        return [_part(each) for each in node]
    if not isinstance(node, Mapping):
        return node
    made = {key: _part(value) for key, value in node.items() if not _is_demand(key, value)}
    reference = node.get("$ref")
    if isinstance(reference, str):
        made["$ref"] = f"{reference}{_SUFFIX}"
    if "properties" in node:
        made["properties"] = {name: _removable(_part(each)) for name, each in node["properties"].items()}
    values = made.get("additionalProperties")
    if isinstance(values, Mapping):
        made["additionalProperties"] = _removable(values)
    if node.get("type") == "array":
        whole = dict(node)
        item = node.get("items", {}).get("$ref", "").removeprefix(_REFS)
        if item in _NAMED:
            named = {"type": "object", "additionalProperties": _removable({"$ref": f"{_REFS}{item}{_SUFFIX}"})}
            return {"anyOf": [whole, named]}
        return whole  # a list replaces the one below it
    return made


def _is_demand(key: str, value: Any) -> bool:
    return key == "required" or (key == "allOf" and all("required" in str(each) for each in value))


def _removable(form: Mapping[str, Any]) -> dict[str, Any]:
    return dict(form) if {"type": "null"} in form.get("anyOf", ()) else or_nothing(form)
