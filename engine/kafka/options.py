"""Options of the source ``fluvial-kafka``, parsed once into a frozen value.

Names are those of Spark's own Kafka connector where it has the option. One default differs: a new query starts at the
earliest record, because skipping existing records is rarely intended when filling a table.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Self, TypeVar

from engine.kafka.offsets import LATEST_OFFSET, TopicPosition, parse_positions
from engine.request.option_check import unknown_option
from logstore.format.schema_registry import SchemaRegistry
from logstore.kafka.clients import OPTION_PREFIX, KafkaProperties
from logstore.kafka.topics import LogTopics
from lsm.errors import FluvialError, InvalidInputError

CLIENT_PREFIX: Final = "kafka."
EARLIEST_WORD: Final = "earliest"
LATEST_WORD: Final = "latest"

_NAMES: Final = (
    "subscribe",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "value.format",
    "key.columns",
    "update-before",
    "epoch-units",
    "decimals",
    "new-fields",
    "on-bad-record",
    "dead-letter.topic",
    "schema.registry.url",
    "schema.registry.basic.auth.user.info",
)


_E = TypeVar("_E", bound=Enum)


class ValueFormat(Enum):
    """Format of record values."""

    RAW = "raw"  # unchanged bytes
    DEBEZIUM_JSON = "debezium-json"  # envelopes: before, after, op
    DEBEZIUM_AVRO = "debezium-avro"  # the same in Avro, with schemas in a registry
    JSON = "json"  # the row; a null value deletes the row of the key


class DecimalForm(Enum):
    """Encoding of decimals in envelopes without a schema part (Debezium's ``decimal.handling.mode``)."""

    NUMBER = "number"  # or a number as text
    BASE64 = "base64"  # precise: unscaled bytes


class OnNewFields(Enum):
    """What to do about fields in schema parts that have no column."""

    IGNORE = "ignore"
    FAIL = "fail"


class OnBadRecord(Enum):
    """What to do with a record that cannot be decoded."""

    FAIL = "fail"
    DEAD_LETTER = "dead-letter"


StartPositions = str | Mapping[TopicPosition, int]
"""``earliest``, ``latest``, or offsets (-1 = latest, -2 = earliest)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSourceOptions:
    """Topics, positions, format and error handling of the source."""

    topics: tuple[str, ...]
    properties: KafkaProperties
    starting_offsets: StartPositions = EARLIEST_WORD
    ending_offsets: StartPositions = LATEST_WORD  # of a batch query
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    value_format: ValueFormat = ValueFormat.RAW
    key_columns: tuple[str, ...] = ()  # needed when deletes have a key only
    has_update_before: bool = False  # an update is -U and +U
    epoch_units: Mapping[str, str] = field(default_factory=dict)  # by column: unit of its numbers, D s ms us ns
    has_base64_decimals: bool = False
    on_new_fields: OnNewFields = OnNewFields.IGNORE
    on_bad_record: OnBadRecord = OnBadRecord.FAIL
    dead_letter_topic: str | None = None
    registry: SchemaRegistry | None = None

    @property
    def starts_at_latest(self) -> bool:
        """Whether the start depends on the time of the query's start: at the end of a partition."""
        wanted = self.starting_offsets
        return wanted == LATEST_WORD if isinstance(wanted, str) else LATEST_OFFSET in wanted.values()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse options as Spark passes them, with keys in any case.

        Raises:
            InvalidInputError: an option is unknown, missing, or has an invalid value.
        """
        given = {key.lower(): value for key, value in options.items()}
        known = {name.lower(): name for name in _NAMES}
        for key in given:
            if key not in known and not key.startswith(CLIENT_PREFIX):
                raise unknown_option(key, (*_NAMES, f"{CLIENT_PREFIX}*"), "option of the source")
        topics = _words(given.get("subscribe", ""))
        if not topics:
            raise InvalidInputError("no topic to read: option=subscribe example=orders,payments")
        bad = _one_of(given, "on-bad-record", OnBadRecord, OnBadRecord.FAIL)
        dead_letter_topic = given.get("dead-letter.topic")
        if (bad is OnBadRecord.DEAD_LETTER) != (dead_letter_topic is not None):
            raise InvalidInputError(
                f"options belong together: on-bad-record={bad.value} dead-letter.topic={dead_letter_topic} "
                f"fix=set on-bad-record={OnBadRecord.DEAD_LETTER.value} and dead-letter.topic, or neither"
            )
        if dead_letter_topic in topics:
            raise InvalidInputError(
                f"the dead-letter topic is a topic of the source: option=dead-letter.topic value={dead_letter_topic}"
            )
        value_format = _one_of(given, "value.format", ValueFormat, ValueFormat.RAW)
        return cls(
            topics=topics,
            properties=_properties(given),
            starting_offsets=_positions(given, "startingOffsets", EARLIEST_WORD),
            ending_offsets=_positions(given, "endingOffsets", LATEST_WORD),
            max_offsets_per_trigger=_count(given, "maxOffsetsPerTrigger"),
            fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
            value_format=value_format,
            key_columns=_words(given.get("key.columns", "")),
            has_update_before=_flag(given, "update-before", default=False),
            epoch_units=_pairs(given, "epoch-units"),
            has_base64_decimals=_one_of(given, "decimals", DecimalForm, DecimalForm.NUMBER) is DecimalForm.BASE64,
            on_new_fields=_one_of(given, "new-fields", OnNewFields, OnNewFields.IGNORE),
            on_bad_record=bad,
            dead_letter_topic=dead_letter_topic,
            registry=_registry(given, value_format),
        )


def with_source_option_names(error: FluvialError) -> FluvialError:
    """An error of Fluvial's Kafka client, with the option names of the source."""
    return type(error)(str(error).replace(OPTION_PREFIX, CLIENT_PREFIX))


def check_reachable(properties: KafkaProperties) -> None:
    """Fail within seconds when no broker answers. Raises: UnavailableError, InvalidInputError."""
    try:
        LogTopics(properties).check_reachable()
    except FluvialError as error:
        raise with_source_option_names(error) from None


def _properties(given: Mapping[str, str]) -> KafkaProperties:
    client = {key.removeprefix(CLIENT_PREFIX): value for key, value in given.items() if key.startswith(CLIENT_PREFIX)}
    try:
        return KafkaProperties.parse(client)
    except InvalidInputError as error:
        raise with_source_option_names(error) from None


def _registry(given: Mapping[str, str], value_format: ValueFormat) -> SchemaRegistry | None:
    url = given.get("schema.registry.url")
    if (url is None) == (value_format is ValueFormat.DEBEZIUM_AVRO):
        raise InvalidInputError(
            f"options belong together: value.format={value_format.value} schema.registry.url={url} "
            f"fix=set value.format={ValueFormat.DEBEZIUM_AVRO.value} and schema.registry.url, or neither"
        )
    return None if url is None else SchemaRegistry(url=url, user_info=given.get("schema.registry.basic.auth.user.info"))


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _positions(given: Mapping[str, str], name: str, default: str) -> StartPositions:
    text = given.get(name.lower(), default).strip()
    if text.lower() in (EARLIEST_WORD, LATEST_WORD):
        return text.lower()
    return parse_positions(text, option=name)


def _pairs(given: Mapping[str, str], name: str) -> Mapping[str, str]:
    pairs = {}
    for word in _words(given.get(name, "")):
        key, equals, value = word.partition("=")
        if not equals:
            raise InvalidInputError(f"not pairs: option={name} value={given[name]} example=created_at=us,day=D")
        pairs[key.strip()] = value.strip()
    return pairs


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) == 0:
        raise InvalidInputError(f"not a number above 0: option={name} value={text}")
    return int(text)


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidInputError(f"neither true nor false: option={name} value={text}")
    return text == "true"


def _one_of(given: Mapping[str, str], name: str, kind: type[_E], default: _E) -> _E:
    text = given.get(name, default.value).strip().lower()
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(str(each.value) for each in kind)
        close = difflib.get_close_matches(text, [str(each.value) for each in kind], 1)
        hint = f"did_you_mean={close[0]}" if close else f"known={known}"
        raise InvalidInputError(f"unknown value: option={name} value={text} {hint}") from None
