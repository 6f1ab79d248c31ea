"""The JSON Schema that editors use is the one of the models: it accepts what a run accepts, and rejects mistakes."""

import importlib
import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from engine.cli.job_commands.init import write_example
from engine.deploy.config.cdc_config import CdcConfig
from engine.deploy.config.job_config import JobConfig, load_job
from engine.deploy.config.json_schema import SCHEMA_FILE, job_schema, schema_text
from engine.dialect.grammar.type_grammar import TYPE_WORDS
from lsm.errors import InvalidInputError

ROOT = Path(__file__).resolve().parents[4]
SCHEMA = job_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
CONF = Path(__file__).resolve().parents[4] / "conf"


def test_the_committed_schema_is_that_of_the_models() -> None:
    """Renew: fluvial validate --schema > conf/fluvial.schema.json"""
    assert (CONF / SCHEMA_FILE).read_text() == schema_text()


def test_every_key_of_a_job_file_is_described() -> None:
    schema = job_schema()
    sections = [
        schema,
        *(section["anyOf"][-1] if "anyOf" in section else section for section in schema["$defs"].values()),
    ]
    sections = [section for section in sections if "properties" in section]
    missing = [
        name
        for section in sections
        for name, described in section["properties"].items()
        if "description" not in described and "$ref" not in str(described)
    ]
    assert missing == []


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_has_known_keys_only_and_a_whole_job_refers_to_the_schema(path: Path) -> None:
    text = path.read_text()
    assert set(yaml.safe_load(text)) <= set(job_schema()["properties"])
    is_whole = "\nname:" in text
    assert (f"$schema={SCHEMA_FILE}" in text.splitlines()[0]) == is_whole


def problems(job: Any) -> list[str]:
    return [f"{each.json_path}: {each.message[:200]}" for each in VALIDATOR.iter_errors(job)]


def written_jobs() -> dict[str, str]:
    """Every job file and part of one that is shown to users."""
    shown = {path.name: path.read_text() for path in CONF.glob("*.yaml")}
    for page in (ROOT / "docs").glob("*.md"):
        for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)):
            found = yaml.safe_load(block)
            is_excerpt = "pipelines:\n- name" in block and "checkpoint:" not in block
            if isinstance(found, dict) and set(found) <= set(SCHEMA["properties"]) and not is_excerpt:
                shown[f"{page.name} {number}"] = block
    return shown


WRITTEN = written_jobs()


@pytest.mark.sweep
def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert len(WRITTEN) > 5


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_what_users_are_shown_is_accepted(name: str) -> None:
    assert problems(yaml.safe_load(WRITTEN[name])) == []


def test_what_init_writes_is_accepted_and_refers_to_nothing_that_is_not_there(tmp_path: Path) -> None:
    job, _ = write_example(tmp_path / "demo", bootstrap_servers="localhost:9092")
    assert problems(yaml.safe_load(job.read_text())) == []


ORDERS = yaml.safe_load((CONF / "orders.yaml").read_text())
OVERLAY = yaml.safe_load((CONF / "orders-prod.yaml").read_text())


def set_to(*path: Any, to: Any) -> Callable[[Any], None]:
    def change(job: Any) -> None:
        for key in path[:-1]:
            job = job[key]
        job[path[-1]] = to

    return change


def without(*path: Any) -> Callable[[Any], None]:
    def change(job: Any) -> None:
        for key in path[:-1]:
            job = job[key]
        del job[path[-1]]

    return change


TABLE, PIPELINE = ("tables", "shop.orders"), ("pipelines", 0)
MUTANTS: dict[str, Callable[[Any], None]] = {
    "a key": set_to("pipeline", to=[]),
    "a key of a pipeline": set_to(*PIPELINE, "triger", to="available-now"),
    "a key of a source": set_to(*PIPELINE, "source", "fromat", to="kafka"),
    "a key of a table": set_to(*TABLE, "primary-key", to=["id"]),
    "a key of health": set_to("health", "prt", to=8090),
    "a trigger": set_to(*PIPELINE, "trigger", to="sometimes"),
    "an interval": set_to(*PIPELINE, "trigger", to={"processing-time": "5 parsecs"}),
    "a duration": set_to("stop-timeout", to="5 parsecs"),
    "a size": set_to(*PIPELINE, "limits", to={"bytes": "64 pounds"}),
    "a limit": set_to(*PIPELINE, "limits", to={"records": "many"}),
    "a limit of nothing": set_to(*PIPELINE, "limits", to={"records": 0}),
    "a level": set_to("logging", "level", to="loud"),
    "a level of a logger": set_to("logging", "levels", "fluvial.job", to="loud"),
    "a form of messages": set_to("logging", "format", to="xml"),
    "a policy": set_to("on-failure", "policy", to="retry"),
    "a short policy": set_to("on-failure", to="retry"),
    "a port": set_to("metrics", "port", to="x"),
    "a port too high": set_to("metrics", "port", to=70000),
    "a type": set_to(*TABLE, "columns", "id", to="STRNG"),
    "a type in a mapping": set_to(*TABLE, "columns", "amount", to={"type": "DECIMALS(10, 2)"}),
    "an option of a table": set_to(*TABLE, "options", "buckets", to=4),
    "a word of an option": set_to(*TABLE, "options", "merge-engine", to="dedupe"),
    "a boolean of an option": set_to(*TABLE, "options", "write-only", to="yes please"),
    "a duration of an option": set_to(*TABLE, "options", "snapshot.time-retained", to="2 fortnights"),
    "an option of the source": set_to(*PIPELINE, "source", "options", "value.formt", to="json"),
    "a word of the source": set_to(*PIPELINE, "source", "options", "value.format", to="debezium"),
    "an option of the sink": set_to(*PIPELINE, "options", "write-onyl", to=True),
    "an option of the catalog": set_to("catalog", to={"metastor": "jdbc"}),
    "an option of logs": set_to("log", "kafka_bootstrap_servers", to="localhost:9092"),
    "no target": without(*PIPELINE, "target"),
    "no source": without(*PIPELINE, "source"),
    "no checkpoint": without(*PIPELINE, "checkpoint"),
    "no columns": without(*TABLE, "columns"),
    "no warehouse": without("warehouse"),
    "no pipelines": without("pipelines"),
    "a target without a database": set_to(*PIPELINE, "target", to="orders"),
    "a transform of a transform": set_to(*PIPELINE, "transform", to=[["SELECT 1"]]),
    "a transform of nothing": set_to(*PIPELINE, "transform", to=[{}]),
    "pipelines by name": set_to("pipelines", to={"orders": {}}),
    "a profile": set_to("profiles", "once", "pipelines", "orders", "trigger", to="sometimes"),
    "a key of a profile": set_to("profiles", "once", "pipelins", to={}),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mistake_is_rejected_by_the_schema_and_by_a_run(mutant: str, tmp_path: Path) -> None:
    job = deepcopy(ORDERS)
    MUTANTS[mutant](job)
    assert problems(job)
    if "profile" in mutant or "option" in mutant or "of the source" in mutant:
        return  # found when the options are parsed, and the profile is used
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(job))
    with pytest.raises(InvalidInputError):
        load_job(str(file), environment={})


OVERLAY_MUTANTS: dict[str, Callable[[Any], None]] = {
    "a key": set_to("pipelins", to={}),
    "a trigger": set_to("pipelines", "orders", "trigger", to="sometimes"),
    "a type": set_to("tables", "shop.orders", "columns", to={"id": "STRNG"}),
    "an option": set_to("tables", "shop.orders", "options", "buckets", to=16),
    "an option of the source": set_to("pipelines", "orders", "source", "options", "value.formt", to="json"),
    "a level": set_to("logging", "level", to="loud"),
    "a whole pipeline in a list": set_to("pipelines", to=[{"name": "orders"}]),
}


@pytest.mark.parametrize("mutant", OVERLAY_MUTANTS)
def test_a_mistake_in_an_overlay_is_rejected(mutant: str) -> None:
    overlay = deepcopy(OVERLAY)
    OVERLAY_MUTANTS[mutant](overlay)
    assert problems(overlay)


ACCEPTED: dict[str, Callable[[Any], None]] = {
    "an empty section": set_to("health", to=None),
    "a reference for a number": set_to("metrics", "port", to="${PORT}"),
    "a reference for a word": set_to("logging", "level", to="${LEVEL:-info}"),
    "a level in capitals": set_to("logging", "level", to="INFO"),
    "a step alone": set_to(*PIPELINE, "transform", to={"python": "jobs:clean"}),
    "targets": lambda job: (without(*PIPELINE, "target")(job), set_to(*PIPELINE, "targets", to="shop.orders")(job))[0],
    "an option of a column": set_to(*TABLE, "options", "fields.amount.aggregate-function", to="sum"),
    "an option of brokers": set_to(*TABLE, "options", "log.kafka.security.protocol", to="SSL"),
    "an option of another source": set_to(*PIPELINE, "source", to={"format": "rate", "options": {"rowsPerSecond": 3}}),
    "options in another case": set_to(*PIPELINE, "source", "options", "MAXOFFSETSPERTRIGGER", to=7),
    "a removed option": set_to(*TABLE, "options", "bucket", to=None),
    "defaults of tables": set_to("catalog", to={"table-default.bucket": 4, "bucket": 2, "s3.endpoint": "x"}),
    "an included file": lambda job: (without("warehouse")(job), set_to("include", to="base.yaml")(job))[0],
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_other_spellings_are_accepted(name: str) -> None:
    job = deepcopy(ORDERS)
    ACCEPTED[name](job)
    assert problems(job) == []


@pytest.mark.parametrize("word", TYPE_WORDS)
def test_every_type_is_accepted(word: str) -> None:
    job = deepcopy(ORDERS)
    job["tables"]["shop.orders"]["columns"]["id"] = {"MAP": "MAP<INT, STRING>", "ROW": "row<a INT>"}.get(
        word, f"{word} "
    )
    assert problems(job) == []


def test_the_page_of_job_files_has_a_file_with_every_key() -> None:
    """Those of whole databases have a page of their own."""
    text = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs/deploy.md").read_text(), re.DOTALL | re.MULTILINE)[0]
    assert problems(yaml.safe_load(text.replace("${WAREHOUSE:-/data/lake}", "/data/lake"))) == []
    models: set[Any] = {JobConfig}
    while True:
        inner = {
            each
            for model in models
            for field in model.model_fields.values()
            for each in re.findall(r"config\.(\w+_config)\.(\w+)", str(field.annotation))
        }
        found = models | {
            getattr(importlib.import_module(f"engine.deploy.config.{room}"), name) for room, name in inner
        }
        found.discard(CdcConfig)
        if found == models:
            break
        models = found
    keys = {field.alias or name for model in models for name, field in model.model_fields.items()}
    assert len(keys) > 40
    assert keys - {*re.findall(r"[\w-]+(?=:)", text)} - {"cdc", "target", "type"} == set()
