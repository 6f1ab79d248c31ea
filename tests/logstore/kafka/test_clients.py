"""Laws of client options and of errors in our words."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from engine.broker.broker import Broker
from logstore.kafka.clients import ErrorNotes, KafkaProperties, error_of_kafka
from logstore.kafka.topics import LogTopics
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError, UnavailableError

SERVERS = {"bootstrap.servers": "localhost:9092"}
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="s\\"1=;";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required\n  password=\'x\' username="a" password="b";'


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"security.protocol": "SASL_SSL", "client.id": "me"}, {"security.protocol": "SASL_SSL", "client.id": "me"}),
        ({"max.request.size": "5"}, {"message.max.bytes": "5"}),
        ({"fetch.max.wait.ms": "7"}, {"fetch.wait.max.ms": "7"}),
        ({"sasl.jaas.config": PLAIN}, {"sasl.username": "ann", "sasl.password": 's"1=;'}),
        ({"sasl.jaas.config": SCRAM}, {"sasl.username": "a", "sasl.password": "b"}),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "---"}, {"ssl.ca.pem": "---"}),
        (
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k.p12", "ssl.keystore.password": "p"},
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "p"},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
    ],
)
def test_java_options_are_passed_on_or_translated(given: dict[str, str], made: dict[str, str]) -> None:
    """FL-54: options of the client pass through under ``log.kafka.``."""
    assert KafkaProperties.parse({**SERVERS, **given}).by_name == {**SERVERS, **made}


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("acks", "1", "set by Fluvial itself: option=log.kafka.acks fix=remove it"),
        ("isolation.level", "read_uncommitted", "set by Fluvial itself"),
        ("transactional.id", "mine", "set by Fluvial itself"),
        ("key.serializer", "org.Foo", "see log.format"),
        ("buffer.memory", "1", "bounded by Fluvial"),
        ("partitioner.class", "org.Foo", "a bucket is a partition"),
        ("sasl.kerberos.service.name", "kafka", "Kerberos is not supported by the Python client"),
        ("sasl.mechanism", "GSSAPI", "Kerberos is not supported by the Python client"),
        ("sasl.jaas.config", "com.sun.security.auth.module.Krb5LoginModule required;", "set log.kafka.sasl.username"),
        ("ssl.truststore.location", "/t.jks", "set log.kafka.ssl.ca.location"),
        ("ssl.keystore.location", "/k.jks", "-deststoretype PKCS12"),
    ],
)
def test_what_only_the_java_client_can_do_is_refused_with_a_way_out(name: str, value: str, hint: str) -> None:
    with pytest.raises(InvalidInputError, match=hint):
        KafkaProperties.parse({**SERVERS, name: value})


def test_servers_are_wanted_by_the_name_of_their_option() -> None:
    """FL-54"""
    with pytest.raises(InvalidInputError, match=r"option=log\.kafka\.bootstrap\.servers"):
        KafkaProperties.parse({})


@pytest.mark.parametrize("make", ["producer", "consumer", "admin"])
def test_an_unknown_option_is_refused_with_the_one_that_was_meant(make: str) -> None:
    properties = KafkaProperties.parse({**SERVERS, "sasl.user": "ann"})
    arguments: dict[str, Any] = {"transactional_id": None} if make == "producer" else {}
    with pytest.raises(
        InvalidInputError, match=r"option=log\.kafka\.sasl\.user .*did_you_mean=\['log\.kafka\.sasl\.username'"
    ):
        getattr(properties, make)(ErrorNotes(), **arguments)


def test_a_bad_value_of_an_option_is_the_users() -> None:
    with pytest.raises(InvalidInputError, match=r"log\.kafka\.linger\.ms"):
        KafkaProperties.parse({**SERVERS, "linger.ms": "soon"}).producer(ErrorNotes(), transactional_id=None)


def test_properties_travel_to_tasks_and_keep_passwords_to_themselves() -> None:
    properties = KafkaProperties.parse({**SERVERS, "sasl.jaas.config": PLAIN})
    assert pickle.loads(pickle.dumps(properties)) == properties
    assert "ann" not in repr(properties)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._FENCED, ConflictError),
        (KafkaError.INVALID_PRODUCER_EPOCH, ConflictError),
        (KafkaError.PRODUCER_FENCED, ConflictError),
        (KafkaError._TRANSPORT, UnavailableError),
        (KafkaError._TIMED_OUT, UnavailableError),
        (KafkaError._MSG_TIMED_OUT, UnavailableError),
        (KafkaError.NOT_ENOUGH_REPLICAS, UnavailableError),
        (KafkaError.MSG_SIZE_TOO_LARGE, InvalidInputError),
        (KafkaError.INVALID_RECORD, InvalidInputError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, InvalidInputError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, CorruptDataError),
        (KafkaError._UNKNOWN_PARTITION, CorruptDataError),
    ],
)
def test_every_error_becomes_the_one_that_says_what_to_do(code: int, kind: type[Exception]) -> None:
    for error in (KafkaError(code, "because"), KafkaException(KafkaError(code, "because"))):
        ours = error_of_kafka(error, "it failed: topic=t", ErrorNotes())
        assert type(ours) is kind
        assert str(ours).startswith(f"it failed: topic=t kafka_error={KafkaError(code).name()}: because")


def test_a_lost_exception_of_a_fenced_client_is_a_conflict() -> None:
    assert isinstance(error_of_kafka(SystemError("returned a result"), "it failed:", ErrorNotes()), ConflictError)


def test_what_the_connection_said_decides_over_a_mere_timeout() -> None:
    """A wrong password shows as a timeout of the call; its cause comes beside it."""
    notes = ErrorNotes()
    timeout = KafkaError(KafkaError._TIMED_OUT, "timed out")
    notes(KafkaError(KafkaError._AUTHENTICATION, "Authentication failed"))
    notes(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    error = error_of_kafka(timeout, "it failed:", notes)
    assert isinstance(error, InvalidInputError)
    assert "client_said=_AUTHENTICATION: Authentication failed" in str(error)


@pytest.mark.broker
def test_the_wrong_protocol_is_told_from_a_broker_that_is_away(broker: Broker) -> None:
    options = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SSL"}
    # whichever of two things the client sees first: not the answer of TLS, or the connection closed on its greeting
    says = r"client_said=_TRANSPORT: .*(connecting to a PLAINTEXT broker listener\?|SSL connection closed by peer)"
    with pytest.raises(UnavailableError, match=says):
        LogTopics(KafkaProperties.parse(options), timeout_s=1).find_topic("t")


@pytest.mark.broker
def test_the_client_prints_nothing_of_its_own(
    kafka: KafkaProperties, new_topic: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Cluster 8: 20 lines of FATAL in ten seconds of writers that took turns, past its log_level."""
    topic = new_topic()
    first, second = (kafka.producer(ErrorNotes(), transactional_id=f"fenced-{topic}") for _ in range(2))
    for each in (first, second):
        each.init_transactions(30)
    first.begin_transaction()
    first.produce(topic, b"x", partition=0)
    with pytest.raises(KafkaException, match="fenced"):
        first.flush(10)
    del first
    assert capfd.readouterr().err == ""
