"""Dead letters that brokers refuse."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from engine.kafka.dead_letters import DeadLetters
from logstore.kafka.clients import KafkaProperties
from lsm.errors import InvalidInputError

REFUSED = KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "Failed to acquire idempotence PID"))


def wrapped(cause: Exception) -> SystemError:
    """As Python reports an exception that a call left behind."""
    error = SystemError("a call returned a result with an exception set")
    error.__cause__ = cause
    return error


class RefusedProducer:
    """A client that learns in ``flush`` that it may not write; real ones raise any of these forms."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def produce(self, *_args: object, **_options: object) -> None: ...

    def poll(self, _timeout: float) -> int:
        return 0

    def flush(self, _timeout: float) -> int:
        raise self._error


@pytest.mark.parametrize("error", [REFUSED, wrapped(REFUSED), wrapped(wrapped(REFUSED))])
def test_a_refusal_that_only_flush_reports_names_the_missing_right(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KafkaProperties, "producer", lambda *_, **__: RefusedProducer(error))
    letters = DeadLetters(KafkaProperties.parse({"bootstrap.servers": "nowhere:1"}), "letters")
    letters.produce(b"key", b"value", [])
    with pytest.raises(InvalidInputError, match="missing_right='Write on topic letters'"):
        letters.flush()
