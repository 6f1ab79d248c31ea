"""What is taken for a refusal, and when a wait ends for it; with real brokers: tests/engine/log/test_secure_log.py."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from logstore.kafka.clients import REFUSALS_TO_BELIEVE, ErrorNotes, error_of_kafka
from logstore.kafka.refusals import Right, topic_right
from lsm.errors import ConflictError, InvalidInputError, UnavailableError

TIMEOUT = KafkaError(KafkaError._TIMED_OUT, "timed out")
LOGIN = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: invalid credentials")
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "3/3 brokers are down")
NO_GROUP = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "FindCoordinator response error")
IDS = Right(operation="Write", resource="transactional-id", name="fluvial.u.", is_prefix=True)


def notes_of(*errors: KafkaError) -> ErrorNotes:
    notes = ErrorNotes()
    for error in errors:
        notes(error)
    return notes


def test_a_wait_ends_when_all_brokers_keep_refusing_the_login() -> None:
    with pytest.raises(KafkaException, match="invalid credentials"):
        notes_of(DOWN, *[LOGIN] * REFUSALS_TO_BELIEVE).check_accepted()


@pytest.mark.parametrize(
    "said",
    [
        [DOWN, *[LOGIN] * (REFUSALS_TO_BELIEVE - 1)],  # a new password has not reached the broker yet
        [LOGIN] * REFUSALS_TO_BELIEVE,  # another broker may accept it
        [DOWN, *[KafkaError(KafkaError._TRANSPORT, "refused")] * REFUSALS_TO_BELIEVE],  # away is not refused
        [DOWN, *[NO_GROUP] * REFUSALS_TO_BELIEVE],
    ],
)
def test_a_wait_continues_while_it_may_succeed(said: list[KafkaError]) -> None:
    notes_of(*said).check_accepted()


def test_a_certificate_is_refused_under_whatever_code_the_client_reports_it() -> None:
    for code in (KafkaError._SSL, KafkaError._TRANSPORT):
        untrusted = KafkaError(code, "error:0A000086:SSL routines::certificate verify failed")
        error = error_of_kafka(TIMEOUT, "it failed:", notes_of(untrusted))
        assert isinstance(error, InvalidInputError)
        assert "fix=set log.kafka.ssl.ca.location" in str(error)


def test_a_refusal_before_a_success_is_not_the_cause_of_a_later_error() -> None:
    notes = notes_of(DOWN, LOGIN)
    notes.forget()
    assert isinstance(error_of_kafka(TIMEOUT, "it failed:", notes), UnavailableError)


def test_a_group_that_may_not_be_used_is_no_cause_because_none_is_needed() -> None:
    assert isinstance(error_of_kafka(TIMEOUT, "it failed:", notes_of(NO_GROUP)), UnavailableError)


@pytest.mark.parametrize(
    ("code", "missing", "command"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "'Write on topic t'", "--operation Write --topic t"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "'Write on transactional-id fluvial.u.*'",
            "--operation Write --transactional-id fluvial.u. --resource-pattern-type prefixed",
        ),
    ],
)
def test_a_missing_right_is_named_with_the_command_that_grants_it(code: int, missing: str, command: str) -> None:
    notes = ErrorNotes()
    notes.user = "ann"
    error = error_of_kafka(KafkaError(code, "denied"), "it failed:", notes, needs=[topic_right("Write", "t"), IDS])
    assert isinstance(error, InvalidInputError)
    assert str(error).endswith(
        f" missing_right={missing} user=ann fix=kafka-acls --add --allow-principal User:ann {command}"
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [(KafkaError.CLUSTER_AUTHORIZATION_FAILED, InvalidInputError), (KafkaError._FENCED, ConflictError)],
)
def test_the_clients_lost_exception_is_what_caused_it(code: int, kind: type[Exception]) -> None:
    lost = SystemError("a callback returned a result with an exception set")
    lost.__cause__ = KafkaException(KafkaError(code, "fatal"))
    assert isinstance(error_of_kafka(lost, "it failed:", ErrorNotes()), kind)


@pytest.mark.parametrize(
    ("last", "fix"),
    [
        (DOWN, "fix=check log.kafka.security.protocol:"),
        (
            KafkaError(KafkaError._TRANSPORT, "SSL handshake failed: connecting to a PLAINTEXT broker listener?"),
            "fix=check log.kafka.security.protocol and the port",
        ),
        (KafkaError(KafkaError._TRANSPORT, "Connection refused"), "fix=check that the broker of"),
    ],
)
def test_brokers_that_do_not_answer_are_retried_with_the_likely_option(last: KafkaError, fix: str) -> None:
    error = error_of_kafka(TIMEOUT, "it failed:", notes_of(last))
    assert isinstance(error, UnavailableError)
    assert fix in str(error)
