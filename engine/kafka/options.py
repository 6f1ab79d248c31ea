"""Options of the source ``fluvial-kafka``, parsed once into a frozen value.

Names are those of Spark's own Kafka connector where it has the option. One default differs: a new query starts at the
earliest record, because leaving out existing records is seldom meant when a table is filled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Self

from engine.kafka.offsets import LATEST_OFFSET, TopicPosition, parse_positions
from engine.request.option_check import unknown_option
from filestore.options.option import CHANGES, NOTHING, ROWS, Option, OptionValues
from filestore.options.parsing import Parser, boolean, integer, member, text, verbatim
from filestore.options.references import with_secrets
from logstore.format.schema_registry import SchemaRegistry
from logstore.format.source.ranges import OutOfRange
from logstore.format.source.unavailable import UNAVAILABLE_VALUE, bytes_of
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.refusals import OPTION_PREFIX
from logstore.kafka.topics import LogTopics
from lsm.errors import FluvialError, InvalidInputError
from lsm.secret_names import shown_address

SOURCE_CLIENT_PREFIX: Final = "kafka."
EARLIEST_WORD: Final = "earliest"
LATEST_WORD: Final = "latest"


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
    """What to do about members of rows, known by schema parts, that no column has."""

    IGNORE = "ignore"
    FAIL = "fail"


class OutOfRangeRule(Enum):
    """Treatment of infinite dates and times, and of decimals with more digits than their column."""

    FAIL = "fail"
    NULL = "null"
    CLAMP = "clamp"


class UnavailableValues(Enum):
    """Treatment of updates without the values that the connector left out."""

    KEEP = "keep"  # the writer takes the values that the table has, see the column _unavailable
    FAIL = "fail"


class Truncates(Enum):
    """Treatment of a truncate event."""

    FAIL = "fail"  # it is a record that cannot be decoded
    EMIT = "emit"  # a row of kind -T without values; rows before it may be left out


class PartialDeletesRule(Enum):
    """Treatment of a delete whose row has only its key, as PostgreSQL logs it by default."""

    KEEP = "keep"
    FAIL = "fail"


class NewTypes(Enum):
    """Which other types of a known column stop the query, so that a restart with them takes the values."""

    IGNORE = "ignore"
    WIDER = "wider"  # numbers of more digits
    OTHER = "other"  # text where the column has no text, too


class OnBadRecord(Enum):
    """What to do with a record that cannot be decoded."""

    FAIL = "fail"
    DEAD_LETTER = "dead-letter"


def _columns_and_units(value: str) -> Mapping[str, str]:
    pairs = {}
    for word in _words(value):
        key, equals, unit = word.partition("=")
        if not equals:
            raise ValueError("expected='pairs as created_at=us,day=D'")
        pairs[key.strip()] = unit.strip()
    return pairs


def _words(value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in value.split(",") if word.strip()))


_WORDS: Final = Parser(_words, "names")
_NO_UNITS: Final[Mapping[str, str]] = {}


class SourceValues(OptionValues):
    """What the source ``fluvial-kafka`` may be given, besides client properties behind ``kafka.``."""

    topics = Option("subscribe", _WORDS, (), "Topics, with commas between them.", ROWS)
    starting_offsets = Option(
        "startingOffsets", text, EARLIEST_WORD, "Where a new query starts: earliest, latest, or offsets as JSON.", ROWS
    )
    ending_offsets = Option(
        "endingOffsets", text, LATEST_WORD, "Where a batch query ends: latest, or offsets as JSON.", ROWS
    )
    max_offsets_per_trigger = Option(
        "maxOffsetsPerTrigger", integer(1), None, "Most records of a micro-batch.", CHANGES
    )
    fail_on_data_loss = Option(
        "failOnDataLoss", boolean, True, "Fail when records are lost before they are read.", ROWS
    )
    value_format = Option("value.format", member(ValueFormat), ValueFormat.RAW, "What the value of a record is.", ROWS)
    key_columns = Option(
        "key.columns", _WORDS, (), "Columns of the key; needed where a delete carries its key only.", ROWS
    )
    update_before = Option("update-before", boolean, False, "An update is -U and +U.", CHANGES)
    epoch_units = Option(
        "epoch-units",
        Parser(_columns_and_units, "column=unit pairs"),
        _NO_UNITS,
        "What the numbers of a column count: created_at=us,day=D (D s ms us ns).",
        ROWS,
    )
    decimals = Option(
        "decimals", member(DecimalForm), DecimalForm.NUMBER, "How envelopes without a schema part write decimals.", ROWS
    )
    new_fields = Option(
        "new-fields", member(OnNewFields), OnNewFields.IGNORE, "Fields of rows that no column has.", ROWS
    )
    new_types = Option(
        "new-types", member(NewTypes), NewTypes.IGNORE, "Types of rows that a column does not hold.", ROWS
    )
    out_of_range = Option(
        "out-of-range",
        member(OutOfRangeRule),
        OutOfRangeRule.FAIL,
        "Infinite dates, decimals with too many digits.",
        ROWS,
    )
    unavailable_values = Option(
        "unavailable-values",
        member(UnavailableValues),
        None,
        "Large values that an update left out: keep (with the column _unavailable) takes those of the table.",
        ROWS,
    )
    placeholder = Option(
        "unavailable.value.placeholder",
        text,
        UNAVAILABLE_VALUE,
        "What the connector writes for values it left out: a text, or hex: with the digits of bytes.",
        ROWS,
    )
    truncates = Option(
        "truncates",
        member(Truncates),
        Truncates.FAIL,
        "Truncate events: fail, or emit a row of kind -T for the sink.",
        ROWS,
    )
    partial_deletes = Option(
        "partial-deletes",
        member(PartialDeletesRule),
        PartialDeletesRule.KEEP,
        "Deletes whose row has only its key: keep, or fail where a table needs the values.",
        ROWS,
    )
    on_bad_record = Option(
        "on-bad-record", member(OnBadRecord), OnBadRecord.FAIL, "Records that cannot be decoded.", ROWS
    )
    dead_letter_topic = Option("dead-letter.topic", text, None, "Topic of records that cannot be decoded.", NOTHING)
    registry_url = Option("schema.registry.url", text, None, "Registry of the schemas of debezium-avro.", NOTHING)
    registry_user_info = Option(
        "schema.registry.basic.auth.user.info", verbatim, None, "user:password of the registry.", NOTHING, secret=True
    )


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
    new_types: NewTypes = NewTypes.IGNORE
    out_of_range: OutOfRange = "fail"
    unavailable_values: UnavailableValues | None = None  # None: as the columns say
    placeholder: str = UNAVAILABLE_VALUE
    truncates: Truncates = Truncates.FAIL
    partial_deletes: PartialDeletesRule = PartialDeletesRule.KEEP

    @property
    def starts_at_latest(self) -> bool:
        """Whether the start depends on the time of the query's start: at the end of a partition."""
        wanted = self.starting_offsets
        return wanted == LATEST_WORD if isinstance(wanted, str) else LATEST_OFFSET in wanted.values()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse options as Spark passes them, with keys in any case, and references in place of secrets.

        Raises:
            InvalidInputError: an option is unknown, missing, or has an invalid value.
        """
        known = {name.lower(): name for name in SourceValues.declared}
        named = {known.get(key.lower(), key.lower()): value for key, value in options.items()}
        for key in named:
            if key not in SourceValues.declared and not key.startswith(SOURCE_CLIENT_PREFIX):
                raise unknown_option(key, (*SourceValues.declared, f"{SOURCE_CLIENT_PREFIX}*"), "option of the source")
        given = SourceValues(with_secrets(named))
        if not given.topics:
            raise InvalidInputError("no topic to read: option=subscribe example=orders,payments")
        _check_together(given)
        return cls(
            topics=given.topics,
            properties=_properties(given),
            starting_offsets=_positions(given, SourceValues.starting_offsets),
            ending_offsets=_positions(given, SourceValues.ending_offsets),
            max_offsets_per_trigger=given.max_offsets_per_trigger,
            fail_on_data_loss=given.fail_on_data_loss,
            value_format=given.value_format,
            key_columns=given.key_columns,
            has_update_before=given.update_before,
            epoch_units=given.epoch_units,
            has_base64_decimals=given.decimals is DecimalForm.BASE64,
            on_new_fields=given.new_fields,
            on_bad_record=given.on_bad_record,
            dead_letter_topic=given.dead_letter_topic,
            registry=_registry(given),
            new_types=given.new_types,
            out_of_range=given.out_of_range.value,
            unavailable_values=given.unavailable_values,
            placeholder=given.placeholder,
            truncates=given.truncates,
            partial_deletes=given.partial_deletes,
        )


def with_source_option_names(error: FluvialError) -> FluvialError:
    """An error of Fluvial's Kafka client, with the option names of the source."""
    return type(error)(str(error).replace(OPTION_PREFIX, SOURCE_CLIENT_PREFIX))


def check_reachable(properties: KafkaProperties) -> None:
    """Fail within seconds when no broker listens. Raises: UnavailableError, InvalidInputError."""
    try:
        LogTopics(properties).check_reachable()
    except FluvialError as error:
        raise with_source_option_names(error) from None


def _check_together(given: SourceValues) -> None:
    bytes_of(given.placeholder)
    bad, dead_letter_topic = given.on_bad_record, given.dead_letter_topic
    if (bad is OnBadRecord.DEAD_LETTER) != (dead_letter_topic is not None):
        raise InvalidInputError(
            f"options belong together: on-bad-record={bad.value} dead-letter.topic={dead_letter_topic} "
            f"fix=set on-bad-record={OnBadRecord.DEAD_LETTER.value} and dead-letter.topic, or neither"
        )
    if dead_letter_topic in given.topics:
        raise InvalidInputError(
            "the topic of dead letters is a topic of the source, which would read them again: "
            f"option=dead-letter.topic value={dead_letter_topic} fix=name another topic"
        )


def _properties(given: SourceValues) -> KafkaProperties:
    try:
        return KafkaProperties.parse(given.behind(SOURCE_CLIENT_PREFIX))
    except InvalidInputError as error:
        raise with_source_option_names(error) from None


def _registry(given: SourceValues) -> SchemaRegistry | None:
    url = given.registry_url
    if (url is None) == (given.value_format is ValueFormat.DEBEZIUM_AVRO):
        raise InvalidInputError(
            f"options belong together: value.format={given.value_format.value} "
            f"schema.registry.url={url and shown_address(url)} "
            f"fix=set value.format={ValueFormat.DEBEZIUM_AVRO.value} and schema.registry.url, or neither"
        )
    return None if url is None else SchemaRegistry(url=url, user_info=given.registry_user_info)


def _positions(given: SourceValues, option: Option[str]) -> StartPositions:
    positions = given[option]
    if positions.lower() in (EARLIEST_WORD, LATEST_WORD):
        return positions.lower()
    return parse_positions(positions, option=option.key)
