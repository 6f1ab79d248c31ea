"""What a declaration promises: one place, values that cannot change, secrets that are never shown."""

import pickle
import re
from pathlib import Path

import pytest

from filestore.options.catalog_options import CatalogOptions
from filestore.options.option import NOTHING, Option, OptionValues
from filestore.options.parsing import boolean, integer, text
from filestore.options.secrets import shown_value, without_secrets
from filestore.options.table_options import TableOptions
from lsm.errors import InvalidInputError
from lsm.secret_names import STARS, shown_address, shown_pairs

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = [path for name in ("engine", "filestore", "logstore", "lsm") for path in (ROOT / name).rglob("*.py")]
# what reads an option by its text, or a boolean by hand
BY_TEXT = {
    r"\b(?:options|settings)\.value\(": "use the typed attribute, or options[Option]",
    r"\boptions\.raw\b": "use the typed attribute",
    r"\.lower\(\) == \"true\"": "use filestore.options.parsing.boolean",
    r"options\[\"[\w.-]+\"\] == \"true\"": "use filestore.options.parsing.boolean",
    r"in \(\"true\", \"false\"\)": "use filestore.options.parsing.boolean",
}
# the parser itself, and values of rows
ALLOWED = ("filestore/options/parsing.py", "filestore/predicate/literals.py", "logstore/json/reading.py")


class Values(OptionValues):
    """Some options."""

    flag = Option("a.flag", boolean, False, "A flag.", NOTHING, essential=True)
    number = Option("a.number", integer(1), None, "A number.", NOTHING)
    token = Option("a.word", text, None, "A word.", NOTHING, secret=True)


@pytest.mark.sweep
def test_no_option_is_a_text_behind_the_door() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}: {fix}"
        for path in PRODUCT
        if path.relative_to(ROOT).as_posix() not in ALLOWED
        for pattern, fix in BY_TEXT.items()
        for match in re.finditer(pattern, path.read_text())
    ]
    assert len(PRODUCT) > 400
    assert found == []


def test_values_are_typed_and_the_class_holds_the_declarations() -> None:
    values = Values({"a.flag": " TRUE ", "b.other": "x"})
    assert (values.flag, values.number, values.token) == (True, None, None)
    assert (values[Values.flag], values.gives(Values.flag), values.gives(Values.number)) == (True, True, False)
    assert (Values.flag.key, Values.flag.attribute, [*Values.declared]) == (
        "a.flag", "flag", ["a.flag", "a.number", "a.word"],
    )  # fmt: skip
    assert (values.behind("b."), values.free("b.other"), values.free("a.flag")) == ({"other": "x"}, "x", None)


def test_values_cannot_change_and_are_equal_by_their_texts() -> None:
    values = Values({"a.number": "3"})
    with pytest.raises(AttributeError, match="cannot change"):
        values.number = 4  # type: ignore[misc, assignment]
    assert values == Values({"a.number": "3"}) != Values({"a.number": "4"})
    assert hash(values) == hash(pickle.loads(pickle.dumps(values)))


def test_a_text_that_cannot_be_read_is_refused_at_once_or_when_it_is_asked_for() -> None:
    """Tables of other engines may hold values that are not known here."""
    with pytest.raises(InvalidInputError, match=r"option=a.number value='x' expected='a whole number, 1 or more' fix="):
        Values({"a.number": "x"})
    lenient = Values({"a.number": "x", "a.flag": "true"}, lenient=True)
    assert lenient.flag
    with pytest.raises(InvalidInputError, match=r"option=a\.number value='x'"):
        _ = lenient.number
    with pytest.raises(InvalidInputError, match=r"option=a\.flag"):
        Values({"a.flag": "x"}, lenient=True)


def test_an_option_is_declared_in_one_class() -> None:
    with pytest.raises((AssertionError, RuntimeError)):
        type("Again", (OptionValues,), {"flag": Values.__dict__["flag"]})


def test_a_secret_is_shown_nowhere_not_even_when_it_is_wrong() -> None:
    values = Values({"a.word": "never", "x.api-key": "never", "a.flag": "true"})
    assert "never" not in repr(values)
    assert values.shown() == {"a.word": STARS, "x.api-key": STARS, "a.flag": "true"}
    secret = Option("a.pin", integer(1), None, "A number.", NOTHING, secret=True)
    with pytest.raises(InvalidInputError) as caught:
        secret.read({"a.pin": "never"})
    assert "never" not in str(caught.value)


SECRETS = [key for kind in (TableOptions, CatalogOptions) for key, each in kind.declared.items() if each.is_secret]
HIDDEN = [
    *SECRETS, "s3.secret.key", "fs.azure.account.key", "lineage-meta.token", "my.sas", "http.auth", "db.password",
    "client.secret", "log.kafka.sasl.jaas.config", "log.kafka.ssl.keystore.key", "schema.registry.basic.auth.user.info",
    "log.kafka.sasl.oauthbearer.config", "fs.azure.account.key.store.dfs.core.windows.net", "gcs.service-account-key",
    "log.kafka.ssl.key.pem", "apiKey", "x_api_key", "DB_PASSWD", "fs.azure.sas.box.store", "accessToken",
    "spark.hadoop.fs.s3a.secret.key", "kafka.sasl.oauthbearer.client.credentials.client.secret", "monkey",
]  # fmt: skip
SHOWN = [
    "primary-key", "bucket-key", "row-counts.index-key", "catalog-key", "fields.a.nested-key", "s3.access-key",
    "s3.access.key", "log.kafka.acks", "log.commit-token.topic", "new.in-paimon-9", "partition", "log.kafka.client.id",
    "log.kafka.ssl.key.location", "key.deserializer", "fs.azure.account.auth.type", "clustering.key", "partition_keys",
]  # fmt: skip


@pytest.mark.parametrize("key", HIDDEN)
def test_secrets_are_hidden_declared_or_by_the_end_of_their_name(key: str) -> None:
    assert shown_value(key, "never") == STARS
    assert without_secrets({key: "never"}) == {key: STARS}


@pytest.mark.parametrize("key", SHOWN)
def test_what_is_declared_and_no_secret_is_shown_whatever_its_name(key: str) -> None:
    assert shown_value(key, "word") == "word"


def test_the_passwords_are_secrets() -> None:
    assert {"jdbc.password", "openlineage.api-key", "s3.secret-key", "s3.session-token"} <= {*SECRETS}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:never@h/x", "postgresql://u:******@h/x"),
        ("postgresql://u:never@ss w@h/x", "postgresql://u:******@h/x"),
        ("postgresql://u:never/b?c@d@h/db", "postgresql://u:******@h/db"),
        ("postgresql://u@h/x", "postgresql://u@h/x"),
        ("u:never@h", "u:******@h"),
        ("http://h/api?api_key=never&user=me", "http://h/api?api_key=******&user=me"),
        ("https://h/x?sv=never&sig=never#token=never", "https://h/x?sv=******&sig=******#token=******"),
        ("jdbc:mysql://h/d?user=u&password=never&sslmode=on", "jdbc:mysql://h/d?user=u&password=******&sslmode=on"),
        ("jdbc:oracle:thin:scott/never@h:1521/x", "jdbc:oracle:thin:scott/******@h:1521/x"),
        ("host=h password=never dbname=x", "host=h password=****** dbname=x"),
        ("host=h password='ne\\'ver' port=1", "host=h password=****** port=1"),
        ("Server=h;Pwd=my never;Database=x", "Server=h;Pwd=******;Database=x"),
        (
            'x.LoginModule required username="u" password="never";',
            'x.LoginModule required username="u" password=******;',
        ),
        ('{"user": "u", "api_key": "never"}', '{"user": "u", "api_key": "******"}'),
        ("a:9092,b:9092", "a:9092,b:9092"),
        ("s3://bucket/path", "s3://bucket/path"),
        ("id > 5 AND v = 3", "id > 5 AND v = 3"),
        ("key = 3 AND code = 'a'", "key = 3 AND code = 'a'"),
    ],
)
def test_what_lets_one_in_is_hidden_in_any_text(text: str, shown: str) -> None:
    """Addresses with logins and parameters, pairs of libpq, ODBC and JAAS, members of JSON."""
    assert shown_value("new.in-paimon-9", text) == shown == shown_address(text)


def test_pairs_of_sql_are_hidden_in_their_length() -> None:
    text = "SET TBLPROPERTIES ('log.kafka.sasl.password' = 'never', \"s3.secret-key\" 'never', 'bucket' = '4')"
    shown = shown_pairs(text, keeps_length=True)
    assert "never" not in shown
    assert len(shown) == len(text)
    assert shown.endswith("'bucket' = '4')")


def test_long_words_cost_their_length() -> None:
    """No pattern goes back and forth over them."""
    for each in ("a" * 200_000, "a " * 100_000, "'" * 200_000, "=" * 200_000, "a=" * 100_000, "://@:" * 40_000):
        shown_address(each)
