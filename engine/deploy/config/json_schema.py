"""The JSON Schema of job files, for editors: completion, descriptions and validation.

A job file allows more than its values' types: short forms, numbers for text, references for numbers, and empty
sections. Files that lie over a job file are described too: without ``name`` a file is one of them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from engine.deploy.config import written_forms as forms
from engine.deploy.config.cdc_config import CDC_WORDS
from engine.deploy.config.config_layers import INCLUDE, PROFILES
from engine.deploy.config.job_config import LOG_PREFIX, JobConfig
from engine.deploy.config.operation_config import FORMATS, LOG_LEVELS, POLICIES
from engine.deploy.config.pipeline_config import AVAILABLE_NOW, INTERVAL, KAFKA
from engine.deploy.config.written_forms import or_nothing
from engine.kafka.options import SOURCE_CLIENT_PREFIX, SourceValues
from engine.request.branch_choice import BRANCH_KEY
from engine.request.writer_options import SINK_KEYS, WriterOptions
from filestore.options.catalog_options import CatalogOptions
from filestore.options.option import Option
from filestore.options.rules import FREE_PREFIXES
from filestore.options.table_options import TableOptions

# ---- The JSON Schema of files that lie over a job file: overlays, included files, profiles
# Nothing is required in them, an empty value removes a key, and a mapping over a list changes the items that it names.


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


# ---- The JSON Schema of job files, for editors: completion, descriptions and validation


SCHEMA_FILE: Final = "fluvial.schema.json"
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_OPTIONS_REF: Final = "options-of"
_Options = Sequence[Option[Any]]
_TABLE: Final[_Options] = [*TableOptions.declared.values()]
_SINK: Final[_Options] = [WriterOptions.declared[key] for key in SINK_KEYS]
_SINK_NAMES: Final = forms.option_names((*SINK_KEYS, BRANCH_KEY), FREE_PREFIXES)
_SOURCE_NAMES: Final = forms.option_names(SourceValues.declared, (SOURCE_CLIENT_PREFIX,), cases=True)
_TABLE_NAMES: Final = forms.option_names(forms.TABLE_KEYS, forms.TABLE_PREFIXES)
_OPTIONS: Final[Mapping[str, forms.SchemaForm]] = {
    "TableDefaults": forms.options(_TABLE, None),
    "TableOptions": {"allOf": [{"$ref": "#/$defs/TableDefaults"}], "propertyNames": _TABLE_NAMES},
    "SinkOptions": forms.options(_SINK, _SINK_NAMES),
    "SourceOptions": forms.options([*SourceValues.declared.values()], None),
    "CatalogOptions": forms.options(
        [*CatalogOptions.declared.values()], forms.option_names(forms.CATALOG_KEYS, forms.CATALOG_PREFIXES)
    ),
    "LogOptions": forms.options(
        [],
        forms.option_names(
            forms.behind(LOG_PREFIX, forms.CATALOG_KEYS), forms.behind(LOG_PREFIX, forms.CATALOG_PREFIXES)
        ),
    ),
}
"""Options, defined once for all sections; without names whatever is free."""
_DECLARED: Final[Mapping[tuple[str, str], str]] = {
    ("TableConfig", "options"): "TableOptions",
    ("CdcConfig", "options"): "TableDefaults",
    ("OneTableConfig", "options"): "TableDefaults",
    ("PipelineConfig", "options"): "SinkOptions",
    ("TargetConfig", "options"): "SinkOptions",
    ("SourceConfig", "options"): "SourceOptions",
    ("JobConfig", "catalog"): "CatalogOptions",
    ("JobConfig", "log"): "LogOptions",
}
"""Which options, by section and key."""
_VALUES: Final[Mapping[tuple[str, str], forms.SchemaForm]] = {
    ("OnFailureConfig", "policy"): forms.one_of_words(POLICIES, cases=False),
    ("LoggingConfig", "level"): forms.one_of_words(LOG_LEVELS),
    ("LoggingConfig", "levels"): {"type": "object", "additionalProperties": forms.one_of_words(LOG_LEVELS)},
    ("LoggingConfig", "format"): forms.one_of_words(FORMATS, cases=False),
    ("TriggerConfig", "processing-time"): {"type": "string", "pattern": rf"^(?:{INTERVAL})$|\$\{{"},
    ("ColumnConfig", "type"): forms.COLUMN_TYPE,
    ("PipelineConfig", "target"): forms.NAMED_TABLE,
    ("TargetConfig", "table"): forms.NAMED_TABLE,
    **{("CdcConfig", key): forms.one_of_words(words, cases=False) for key, words in CDC_WORDS.items()},
}
"""Values by section and key, where they are less than any text."""
_SHORT_FORMS: Final[Mapping[str, forms.SchemaForm]] = {
    "ColumnConfig": forms.COLUMN_TYPE,
    "TransformConfig": {"type": "string"},
    "ExpectConfig": {"type": "string"},
    "TargetConfig": forms.NAMED_TABLE,
    "TriggerConfig": forms.one_of_words([AVAILABLE_NOW], cases=False),
    "OnFailureConfig": forms.one_of_words(POLICIES, cases=False),
}
"""Sections with a short form as plain text."""
_SINGLE: Final = frozenset(
    {
        ("PipelineConfig", "transform"),
        ("PipelineConfig", "targets"),
        ("TargetConfig", "transform"),
        ("TableConfig", "expect"),
    }
)
"""Lists that may be written as their only item."""


def _one_of_keys(*keys: str) -> forms.SchemaForm:
    return {"allOf": [{"anyOf": [{"required": [key]} for key in keys]}]}


_DEMANDS: Final[Mapping[str, Callable[[], forms.SchemaForm]]] = {
    "PipelineConfig": lambda: _one_of_keys("target", "targets"),
    "TransformConfig": lambda: _one_of_keys("sql", "python"),
    "SourceConfig": lambda: {
        "if": {"properties": {"format": {"const": KAFKA}}},
        "then": {"properties": {"options": {"propertyNames": _SOURCE_NAMES}}},
    },
}
"""What a section needs besides its required keys."""


class _AsWritten(GenerateJsonSchema):
    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        return {"type": forms.SCALAR}

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        limits = {"minimum": schema.get("ge"), "exclusiveMinimum": schema.get("gt"), "maximum": schema.get("le")}
        return forms.INTEGER | {name: limit for name, limit in limits.items() if limit is not None}

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return dict(forms.DURATION)  # all of them are seconds

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        section = schema["cls"].__name__
        for name, described in made.get("properties", {}).items():
            described.pop("title", None)
            described.pop("default", None)
            place = (section, name)
            if place in _VALUES:
                kept = {"description": described["description"]} if "description" in described else {}
                described.clear()
                described.update(kept, **_VALUES[place])
            if place in _DECLARED:
                kept = {"description": described["description"]} if "description" in described else {}
                described.clear()
                described.update(kept, **{_OPTIONS_REF: _DECLARED[place]})
            if place in _SINGLE:
                whole = {key: described.pop(key) for key in ("type", "items")}
                described["anyOf"] = [whole, whole["items"]]
            if name not in made.get("required", ()):
                made["properties"][name] = forms.or_nothing(described)
        made |= _DEMANDS.get(section, dict)()
        if section in _SHORT_FORMS:
            text = _SHORT_FORMS[section]
            made = {"title": made.pop("title"), "description": made.pop("description"), "anyOf": [text, made]}
        return made


def job_schema() -> dict[str, Any]:
    """The JSON Schema."""
    made = JobConfig.model_json_schema(by_alias=True, schema_generator=_AsWritten)
    files = {"type": "string"}
    made["properties"][INCLUDE] = {
        "description": "Files that this one overrides, relative to it.",
        "anyOf": [files, {"type": "array", "items": files}],
    }
    part = part_of_job(made)
    made["properties"][PROFILES] = {
        "description": "Overrides by profile name: fluvial run FILE --profile NAME.",
        "type": ["object", "null"],
        "additionalProperties": {"anyOf": [{"$ref": "#/$defs/JobPart"}, {"type": "null"}]},
    }
    definitions = {**_OPTIONS, **with_parts(made)} | {"JobPart": {"title": "Part of a Fluvial job file", **part}}
    names = sorted(made["properties"])
    whole = {"properties": made["properties"], "required": made["required"], **_one_of_keys("pipelines", "cdc")}
    over = {"properties": part["properties"] | {PROFILES: made["properties"][PROFILES]}}
    schema = {
        "title": "Fluvial job file",
        "description": made["description"],
        "type": "object",
        "properties": {name: _for_editors(each, definitions) for name, each in made["properties"].items()},
        "propertyNames": {"enum": names},
        # required keys may be in the included files, or in those below an overlay, which has no name
        "if": {"required": ["name"], "not": {"required": [INCLUDE]}},
        "then": whole,
        "else": over,
        "$defs": definitions,
    }
    return {"$schema": _DIALECT, **_with_references(schema)}


def _with_references(node: Any) -> Any:
    """References to options, which pydantic does not know."""
    if isinstance(node, list):
        return [_with_references(each) for each in node]
    if not isinstance(node, Mapping):
        return node
    made = {key: _with_references(each) for key, each in node.items() if key != _OPTIONS_REF}
    return made if _OPTIONS_REF not in node else {**made, "$ref": f"#/$defs/{node[_OPTIONS_REF]}"}


def _for_editors(described: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """A description for both kinds of files; their forms are below ``then`` and ``else``."""
    if "description" in described:
        return {"description": described["description"]}
    choices = [described, *described.get("anyOf", ())]
    [name] = [each["$ref"].rpartition("/")[2] for each in choices if "$ref" in each]
    return {"description": definitions[name]["description"]}


def schema_text() -> str:
    """The schema as JSON text."""
    return json.dumps(job_schema(), indent=2, ensure_ascii=False) + "\n"
