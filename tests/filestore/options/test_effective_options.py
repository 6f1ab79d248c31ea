"""Which value of an option is in force, and who gave it."""

from collections.abc import Mapping
from typing import Any

import pytest

from filestore.options.catalog_options import CatalogOptions, from_environment
from filestore.options.effective import (
    Layer,
    OptionOrigin,
    default_text,
    effective_catalog_options,
    effective_defaults,
    effective_options,
    effective_table_options,
    table_layers,
)
from filestore.options.option import Option
from filestore.options.table_options import TableOptions
from lsm.errors import InvalidInputError
from lsm.secret_names import STARS
from tests.support.tables import KEY_SCHEMA, memory_catalog


def origins(options: Any) -> dict[str, tuple[str | None, str]]:
    return {each.key: (each.value, each.origin.value) for each in options}


@pytest.mark.parametrize(
    "option", [*TableOptions.declared.values(), *CatalogOptions.declared.values()], ids=lambda option: option.key
)
def test_a_default_is_told_as_a_text_that_means_it(option: Option[Any]) -> None:
    text = default_text(option)
    if text is None:
        assert option.default in (None, (), {})
        return
    value = option.read({option.key: text})
    assert value == option.default if value is not None else option.derive is not None


def test_the_strongest_place_that_gives_an_option_wins() -> None:
    """FL-68: each of these gives what the stronger ones leave open."""
    given_by = [OptionOrigin.CATALOG, OptionOrigin.SESSION, OptionOrigin.TABLE, OptionOrigin.REQUEST]
    weakest_first = [
        Layer(origin=origin, options={f"k{place}": origin.value for place in range(4) if place >= number})
        for number, origin in enumerate(given_by)
    ]
    assert origins(effective_options(weakest_first, {})) == {
        f"k{place}": (origin.value, origin.value) for place, origin in enumerate(given_by)
    }


def test_a_table_keeps_what_it_was_made_with_over_the_session_and_a_request_wins_once() -> None:
    """FL-68, FL-83."""
    stored = {"bucket": "4", "log.consistency": "transactional"}
    layers = table_layers(
        stored,
        primary_key=["id"],
        session={"table-storage.bucket": "9", "table-storage.log.retention": "7 d"},
        request={"scan.snapshot-id": "3"},
    )
    found = origins(effective_options(layers, TableOptions.declared))
    assert found["bucket"] == ("4", "table")
    assert found["log.retention"] == ("7 d", "session")
    assert found["scan.snapshot-id"] == ("3", "request")
    assert found["write-buffer-size"] == ("64 mb", "default")
    assert found["snapshot.num-retained.min"] == ("10", "default")


@pytest.mark.parametrize(
    ("stored", "key", "expected"),
    [
        ({}, "num-sorted-run.stop-trigger", ("8", "derived")),
        ({"num-sorted-run.compaction-trigger": "7"}, "num-sorted-run.stop-trigger", ("10", "derived")),
        ({"num-sorted-run.stop-trigger": "20"}, "num-sorted-run.stop-trigger", ("20", "table")),
        ({}, "log.system", ("none", "derived")),
        ({"kafka.bootstrap.servers": "h:9092"}, "log.system", ("kafka", "derived")),
        ({}, "log.changelog-mode", ("upsert", "derived")),
        ({}, "target-file-size", ("128 mb", "derived")),
        ({"fields.v.aggregate-function": "sum"}, "fields.v.aggregate-function", ("sum", "table")),
        ({"log.kafka.sasl.password": "x"}, "log.kafka.sasl.password", (STARS, "table")),
    ],
)
def test_what_follows_from_other_options_is_told_as_such(
    stored: Mapping[str, str], key: str, expected: tuple[str, str]
) -> None:
    """FL-53, FL-54, FL-60: defaults that depend on the key and on servers."""
    assert origins(effective_table_options(stored, primary_key=["id"]))[key] == expected


def test_the_options_of_a_real_table_are_all_there() -> None:
    table = memory_catalog().create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"table-storage.bucket": "2"})
    found = effective_table_options(table.schema.options, primary_key=["id"])
    assert TableOptions.declared.keys() <= {each.key for each in found}
    bucket = next(each for each in found if each.key == "bucket")
    assert (bucket.value, bucket.origin, bucket.immutable) == ("2", OptionOrigin.TABLE, True)
    assert all(each.doc for each in found)


def test_a_catalogs_options_come_from_file_command_line_and_environment() -> None:
    given = [
        Layer(
            origin=OptionOrigin.CONFIG_FILE, options={"s3.endpoint": "http://a", "bucket": "2", "file.format": "orc"}
        ),
        Layer(origin=OptionOrigin.COMMAND_LINE, options={"s3.endpoint": "http://b", "table-default.bucket": "3"}),
    ]
    environment = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "never", "AWS_ENDPOINT_URL": "http://c"}
    found = origins(effective_catalog_options(given, environment))
    assert found["s3.endpoint"] == ("http://b", "command line")
    assert found["s3.access-key"] == ("id", "environment")
    assert found["s3.secret-key"] == (STARS, "environment")
    assert found["metastore"] == ("filesystem", "default")
    assert "bucket" not in found
    tables = origins(effective_defaults(given))
    assert (tables["bucket"], tables["file.format"]) == (("3", "command line"), ("orc", "config file"))


def test_a_password_inside_an_address_is_not_told() -> None:
    for uri in (
        "postgresql://u:never@h/d",
        "postgresql://u:never@:/never@h:5/d",
        "jdbc:postgresql://h/d?user=u&password=never&sslmode=require",
    ):
        given = [
            Layer(origin=OptionOrigin.CATALOG, options={"metastore": "jdbc", "uri": uri, "jdbc.password": "never"})
        ]
        found = effective_catalog_options(given, {})
        assert "never" not in str(found)
        assert origins(found)["uri"] == (uri.replace("never@:/never", STARS).replace("never", STARS), "catalog")


def test_a_key_and_its_secret_come_from_one_place() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c", "AWS_REGION": "r"}
    assert from_environment({"s3.access-key": "x", "s3.secret-key": "y"}, environment) == {"s3.region": "r"}
    assert from_environment({}, environment) == {
        "s3.access-key": "a",
        "s3.secret-key": "b",
        "s3.session-token": "c",
        "s3.region": "r",
    }


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("s3.endpont", "s3.endpoint"),
        ("metastor", "metastore"),
        ("table-default.bucke", "bucket"),
        ("table-storage.log.consistancy", "log.consistency"),
        ("lock.enable", "lock.enabled"),
    ],
)
def test_a_catalog_refuses_unknown_options_with_similar_ones(key: str, near: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"unknown option: option={key} did_you_mean=\['{near}'"):
        CatalogOptions.parse({key: "x"})


def test_two_spellings_of_one_option_must_agree() -> None:
    assert CatalogOptions.parse({"s3.access.key": "a"}).given == {"s3.access-key": "a"}
    with pytest.raises(InvalidInputError, match=r"given twice: option=s3\.access-key"):
        CatalogOptions.parse({"s3.access.key": "a", "s3.access-key": "b"})
    with pytest.raises(InvalidInputError, match="given twice: option=bucket"):
        CatalogOptions.parse({"table-storage.bucket": "1", "bucket": "2"})
