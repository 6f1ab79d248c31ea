"""Schemas are registered under subjects, and a registry that refuses one is quoted."""

import json
import pickle
import time
from typing import Any

import pytest

from logstore.format.schema_registry import LOG_REGISTRY, SchemaRegistry
from lsm.errors import InvalidInputError, UnavailableError
from tests.stores.schema_registry import TOKEN, USER_INFO, SchemaRegistryServer


def record(**types: Any) -> str:
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return json.dumps({"type": "record", "name": "r", "fields": fields})


@pytest.mark.long
def test_a_schema_has_one_id_and_is_asked_for_once(schema_registry: SchemaRegistryServer) -> None:
    registry = SchemaRegistry(url=schema_registry.url + "/")
    first = registry.register("a/b c-value", record(id="long"))
    assert registry.register("a/b c-value", record(id="long")) == first
    assert schema_registry.subjects == {"a/b c-value": [first]}
    before = schema_registry.requests["GET schemas"]
    for each in (registry, pickle.loads(pickle.dumps(registry))):
        assert each.schema_text(first) == record(id="long")
    assert schema_registry.requests["GET schemas"] == before + 1
    assert registry.schema_text(10**6) is None


# what becomes of a schema, one after the other, under one subject
HISTORY: list[tuple[str, bool]] = [
    (record(id="long", n="int"), True),
    (record(id="long", n="int"), True),
    (record(id="long", n="long"), True),  # wider
    (record(id="long", n="int"), True),  # a version that there is already: no check
    (record(id="long", n=["null", "long"]), True),  # nullable
    (record(id="long", n=["null", "int"]), False),  # narrower
    (record(id="long", n=["null", "string"]), False),
    (record(id="long"), True),  # dropped
    (record(id="long", more="string"), False),  # without a default
    (json.dumps({"type": "record", "name": "r", "fields": [
        {"name": "key", "type": "long", "aliases": ["id"]},
        {"name": "more", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
         "default": None}]}), True),  # renamed, and one with a default
    (record(key="long", more=["null", "long"]), False),
]  # fmt: skip


def test_the_tests_registry_decides_as_a_real_one(schema_registry: SchemaRegistryServer, apicurio: str) -> None:
    """FL-125: changes that a table can have are compatible; a renamed column is found by its alias."""
    for url in (schema_registry.url, apicurio):
        registry = SchemaRegistry(url=url, keys=LOG_REGISTRY)
        ids: dict[str, int] = {}
        for text, is_taken in HISTORY:
            if is_taken:
                known = registry.register("orders-value", text)
                assert ids.setdefault(text, known) == known
                assert json.loads(registry.schema_text(known) or "") == json.loads(text)
            else:
                with pytest.raises(InvalidInputError, match=r"refuses the table's schema: .*subject=orders-value"):
                    registry.register("orders-value", text)
        assert registry.schema_text(10**6) is None


def test_a_refusal_names_the_subject_and_both_schemas_difference(schema_registry: SchemaRegistryServer) -> None:
    """FL-125."""
    registry = SchemaRegistry(url=schema_registry.url, keys=LOG_REGISTRY)
    row = json.loads(record(id="long", n="string", gone="int"))
    registry.register("t-value", json.dumps(row))
    with pytest.raises(InvalidInputError) as caught:
        registry.register("t-value", record(id="long", n="int", more="int"))
    message = str(caught.value)
    for fact in ("log.schema-registry.url=", "subject=t-value", "version=1", "added=['more']", "missing=['gone']"):
        assert fact in message
    assert """changed=['n: "string" -> "int"']""" in message
    assert "TYPE_MISMATCH" in message
    assert "fix=" in message
    sides = {"before": ["null", row], "after": ["null", {**row, "name": "s"}]}
    registry.register("e-value", record(**sides))
    row["fields"][1]["type"] = "int"
    with pytest.raises(InvalidInputError, match=r"changed=\['n: \"string\" -> \"int\"'\]"):
        registry.register("e-value", record(before=["null", row], after=["null", {**row, "name": "s"}]))


def test_who_may_not_ask_is_told_which_option_to_set() -> None:
    with SchemaRegistryServer(is_closed=True) as server:
        for login in ({"user_info": USER_INFO}, {"token": TOKEN}):
            assert SchemaRegistry(url=server.url, **login).register("t-key", record(id="long")) == 1
        assert TOKEN not in repr(SchemaRegistry(url=server.url, token=TOKEN))
        with pytest.raises(InvalidInputError, match=r"status=401 .*fix=set log\.schema-registry\.basic-auth"):
            SchemaRegistry(url=server.url, keys=LOG_REGISTRY).register("t-key", record(id="long"))


def test_a_registry_that_is_away_is_noticed_within_seconds() -> None:
    began = time.monotonic()
    with pytest.raises(UnavailableError, match=r"log\.schema-registry\.url=http://127\.0\.0\.1:1"):
        SchemaRegistry(url="http://127.0.0.1:1", keys=LOG_REGISTRY).register("t-key", record(id="long"))
    assert time.monotonic() - began < 10


def test_certificates_that_cannot_be_read_are_named() -> None:
    registry = SchemaRegistry(url="https://127.0.0.1:1", ca_file="/none.pem")
    with pytest.raises(InvalidInputError, match=r"log\.schema-registry\.ssl\.ca\.location=/none\.pem"):
        registry.register("t-key", record(id="long"))
