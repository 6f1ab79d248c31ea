"""The JSON Schema that editors use is the one of the models, and the examples refer to it."""

from pathlib import Path

import pytest
import yaml

from engine.deploy.config.json_schema import SCHEMA_FILE, job_schema, schema_text

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
