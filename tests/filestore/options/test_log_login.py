"""Who may give which option of a log: a table's files never decide whom their reader trusts."""

import pytest

from filestore.options.log_login import is_openers, login_for, openers_of, trusted_options, with_given
from lsm.errors import InvalidInputError

SERVERS, REGISTRY = "log.kafka.bootstrap.servers", "log.schema-registry.url"
LOGIN = {"log.kafka.security.protocol": "SASL_SSL", "log.kafka.sasl.password": "hush"}
OPENERS = [
    "plugin.library.paths",
    "metadata.broker.list",
    "enable.ssl.certificate.verification",
    "ssl.engine.location",
    "ssl.providers",
    "ssl.ca.location",
    "ssl.key.password",
    "sasl.username",
    "sasl.oauthbearer.token.endpoint.url",
    "security.protocol",
    "https.ca.location",
    "debug",
    "client.dns.lookup",
    "resolve_cb",
    "interceptors",
    "of.a.later.version",
    "Client.Id",
]


@pytest.mark.parametrize("name", OPENERS)
def test_what_is_not_known_to_be_harmless_has_effect_only_when_the_opener_gives_it(name: str) -> None:
    stored = {SERVERS: "a:1", "log.kafka.linger.ms": "7", f"log.kafka.{name}": "of a stranger"}
    assert openers_of(stored) == [f"log.kafka.{name}"]
    assert trusted_options(stored, {}) == {SERVERS: "a:1", "log.kafka.linger.ms": "7"}
    given = {SERVERS: "a:1", f"log.kafka.{name}": "mine"}
    assert trusted_options(stored, given)[f"log.kafka.{name}"] == "mine"


@pytest.mark.parametrize("key", ["basic-auth.user-info", "bearer-auth.token", "ssl.ca.location"])
def test_the_login_of_a_registry_goes_to_the_address_beside_it_only(key: str) -> None:
    given = {REGISTRY: "http://mine", f"log.schema-registry.{key}": "hush"}
    assert trusted_options({REGISTRY: "http://mine"}, given) == given
    assert trusted_options({REGISTRY: "http://theirs"}, given) == {REGISTRY: "http://theirs"}
    with pytest.raises(InvalidInputError, match=f"address=http://theirs fix='give {REGISTRY} beside it'"):
        trusted_options({REGISTRY: "http://theirs"}, {f"log.schema-registry.{key}": "hush"})


def test_a_login_goes_to_the_brokers_that_the_opener_gave_beside_it_only() -> None:
    mine = {SERVERS: "a:1", **LOGIN}
    assert login_for({SERVERS: "a:1"}, mine) == mine
    assert login_for({SERVERS: "b:1"}, mine) == {}
    assert login_for({}, LOGIN) == {}, "two addresses that are missing are not the same one"
    assert trusted_options({SERVERS: "b:1"}, mine) == {SERVERS: "b:1"}
    with pytest.raises(InvalidInputError, match=r"option=log\.kafka\.security\.protocol address=b:1"):
        trusted_options({SERVERS: "b:1"}, LOGIN)
    assert trusted_options({"bucket": "1"}, LOGIN)["bucket"] == "1"  # a table without brokers


def test_another_address_does_not_inherit_the_login_that_was_given_before() -> None:
    mine = {SERVERS: "a:1", **LOGIN, "log.kafka.linger.ms": "1"}
    assert with_given(mine, {SERVERS: "b:1"}) == {SERVERS: "b:1", "log.kafka.linger.ms": "1"}
    assert with_given(mine, {SERVERS: "a:1"}) == mine
    assert with_given(mine, {SERVERS: "b:1", "log.kafka.sasl.username": "b"})["log.kafka.sasl.username"] == "b"


@pytest.mark.parametrize(
    "key", ["log.kafka.topic", "log.kafka.topic-id", "log.kafka.batch.size", "log.format", "bucket"]
)
def test_what_names_or_tunes_a_log_is_its_tables(key: str) -> None:
    assert not is_openers(key)
