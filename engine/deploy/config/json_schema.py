"""The JSON Schema of job files, for editors: completion, descriptions and validation.

A job file allows more than its values' types: short forms, numbers for text, references for numbers, and empty
sections.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from engine.deploy.config.config_layers import INCLUDE, PROFILES
from engine.deploy.config.job_config import JobConfig
from engine.kafka.options import SourceValues
from engine.request.writer_options import SINK_KEYS, WriterOptions
from filestore.options.catalog_options import CatalogOptions
from filestore.options.option import Option
from filestore.options.parsing import boolean
from filestore.options.table_options import TableOptions

SCHEMA_FILE: Final = "fluvial.schema.json"
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SCALAR: Final = ["string", "number", "boolean"]
_DECLARED: Final[Mapping[tuple[str, str], Sequence[Option[Any]]]] = {
    ("TableConfig", "options"): [*TableOptions.declared.values()],
    ("PipelineConfig", "options"): [WriterOptions.declared[key] for key in SINK_KEYS],
    ("TargetConfig", "options"): [WriterOptions.declared[key] for key in SINK_KEYS],
    ("SourceConfig", "options"): [*SourceValues.declared.values()],
    ("JobConfig", "catalog"): [*CatalogOptions.declared.values()],
}
"""Options by section and key, for completion; others are taken too: free keys, defaults of tables, other sources."""
_SHORT_FORMS: Final = ("ColumnConfig", "TransformConfig", "TargetConfig", "TriggerConfig", "OnFailureConfig")
"""Sections with a short form as plain text."""


class _AsWritten(GenerateJsonSchema):
    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        return {"type": _SCALAR}

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        return {"type": ["integer", "string"]}

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return {"type": ["number", "string"]}

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        for name, described in made.get("properties", {}).items():
            described.pop("title", None)
            described.pop("default", None)
            declared = _DECLARED.get((schema["cls"].__name__, name))
            if declared is not None:
                described["properties"] = {option.key: _option(option) for option in declared}
            if name not in made.get("required", ()):
                made["properties"][name] = _or_nothing(described)
        if schema["cls"].__name__ in _SHORT_FORMS:
            text = {"type": "string"}
            made = {"title": made.pop("title"), "description": made.pop("description"), "anyOf": [text, made]}
        return made


def job_schema() -> dict[str, Any]:
    """The JSON Schema."""
    made = JobConfig.model_json_schema(by_alias=True, schema_generator=_AsWritten)
    files = {"type": "string"}
    made["properties"] |= {
        INCLUDE: {
            "description": "Files that this one overrides, relative to it.",
            "anyOf": [files, {"type": "array", "items": files}],
        },
        PROFILES: {
            "description": "Overrides by profile name: fluvial run FILE --profile NAME.",
            "type": ["object", "null"],
            "additionalProperties": {"type": ["object", "null"]},
        },
    }
    # required keys may be in the included files
    made["if"] = {"not": {"required": [INCLUDE]}}
    made["then"] = {"required": made.pop("required")}
    made["title"] = "Fluvial job file"
    return {"$schema": _DIALECT, **made}


def schema_text() -> str:
    """The schema as JSON text."""
    return json.dumps(job_schema(), indent=2, ensure_ascii=False) + "\n"


def _option(option: Option[Any]) -> dict[str, Any]:
    """What editors show of an option, and the words that it takes; a reference may be there instead."""
    described = {"description": f"{option.doc} ({option.parse.kind})", "type": _SCALAR}
    words = ["true", "false"] if option.parse.kind == boolean.kind else option.parse.kind.split(" | ")
    return described | ({"examples": words} if len(words) > 1 else {})


def _or_nothing(described: dict[str, Any]) -> dict[str, Any]:
    """An empty value is allowed, too."""
    description = {"description": described.pop("description")} if "description" in described else {}
    if "anyOf" in described:
        options = [each for each in described.pop("anyOf") if each != {"type": "null"}]
        return {**description, **described, "anyOf": [*options, {"type": "null"}]}
    return {**description, "anyOf": [described, {"type": "null"}]}
