"""How a text is shown whose option is not declared: client properties, settings of other engines, addresses.

What looks like a secret is hidden unless it is known to be none: a name that is not known costs a look into the
configuration, a secret that is shown costs a new one.
"""

import re
from typing import Final
from urllib.parse import urlsplit

STARS: Final = "******"

_WORDS: Final = (
    r"password|passwd|passphrase|\bpwd\b|secret|jaas|credential|private|user ?info|signature|authorization"
    r"|\bsas\b|account key|\bbearer token"
)
_ENDINGS: Final = r"key|token|auth|config|conf|pem|jwt|headers?|cookie|\bsig|\bcode"
_SECRET: Final = re.compile(rf"{_WORDS}|(?:{_ENDINGS})(?: \d+)?$")
_HARMLESS: Final = re.compile(
    r"\b(?:primary|bucket|partition|index|nested|sort|order|sequence|catalog|row|record|join|foreign|clustering) keys?$"
    r"|(?:access|idempotency) key (?:id|name)$|\b(?:key|token|private key|secret) (?:location|path|file|topic)$"
)
_SEPARATORS: Final = re.compile(r"[.\-_/:]+")

# Who logs in, and with what: up to the last @, whatever was left unescaped in a password.
_LOGIN: Final = re.compile(r"(?P<before>//|\bthin:)(?P<user>[^/:@?#]*)(?P<mark>[:/])(?P<password>.*)@", re.DOTALL)
# Parameters behind an address, pairs of libpq, ODBC and SQL. A value without quotes ends where the next pair begins.
_PAIR: Final = re.compile(
    r"(?P<name>(?<![\w.\-])[A-Za-z_][\w.\-]*|'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`)"
    r"(?P<sign>\s*=\s*|(?<=['\"`])[ \t]+(?=['\"]))"
    r"(?P<value>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|[^&;,#\s'\"()]+(?:[ \t]+(?![\w.\-]+\s*=)[^&;,#\s'\"()]+)*)"
)
_BARE_LOGIN: Final = re.compile(r"^(?P<before>)(?P<user>[^/:@\s]*)(?P<mark>:)(?P<password>.*)@", re.DOTALL)
_ADDRESS: Final = re.compile(r"[A-Za-z][\w+.\-]*://[^\s'\"<>,()]+")
# Members of a text in JSON.
_MEMBER: Final = re.compile(
    r"(?P<quote>[\"'])(?P<name>[\w.\-]+)(?P=quote)(?P<sign>\s*:\s*)(?P<value>\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^,}\]\s]+)"
)
_QUERY: Final = re.compile(r"(?P<mark>[?&;#])(?P<name>[^=&;#\s]+)=(?P<value>[^&;#]*)")
_HARMLESS_PARAMETERS: Final = frozenset(
    {
        *("application_name", "charset", "connect_timeout", "currentschema", "database", "encoding", "host", "mode"),
        *("options", "port", "region", "schema", "servertimezone", "ssl", "sslmode", "timeout", "user", "usessl"),
        "version",
    }
)

_ORDINARY: Final = frozenset({"key", "code", "config", "conf", "header", "headers"})
"""Names of columns and of facts in messages, which say nothing by themselves."""


def is_secret_name(key: str) -> bool:
    """Whether a name that is not declared is taken for one of a secret."""
    words = _SEPARATORS.sub(" ", _split_humps(key)).lower().strip()
    return bool(_SECRET.search(words)) and not _HARMLESS.search(words)


def shown_text(key: str, text: str, *, is_declared: bool) -> str:
    """The text with stars for what must not be seen: all of it, or the password inside an address.

    Args:
        key: by whose name a secret is known, where it is not declared.
        text: of the option.
        is_declared: the option is known, and is no secret.
    """
    if not is_declared and is_secret_name(key):
        return STARS
    return shown_address(text)


def shown_address(text: str) -> str:
    """The text with stars for what lets one in: passwords and parameters in addresses, ``password=`` anywhere."""
    if "@" in text and ":" in text:
        login = _LOGIN if "//" in text or "thin:" in text else _BARE_LOGIN
        text = login.sub(_without_login, text)
    start = text.find("://")
    if start >= 0:
        text = text[:start] + _QUERY.sub(_without_parameter, text[start:])
    if ":" in text and ("'" in text or '"' in text):
        text = _MEMBER.sub(_without_member, text)
    return shown_pairs(text)


def is_same_place(one: str, other: str) -> bool:
    """Whether two addresses have the same scheme, host and port: only then a login for one is for the other."""
    return _place(one) == _place(other)


def _place(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def shown_line(line: str) -> str:
    """A line of a log, of any library, with stars for the logins and parameters of the addresses in it."""
    return _ADDRESS.sub(lambda found: shown_address(found[0]), line) if "://" in line else line


def without_value(given: str) -> str:
    """The beginning of what is no ``key=value``, up to where a value may begin."""
    return re.split(r"[=:\s]", given.strip(), maxsplit=1)[0]


def _without_login(found: re.Match[str]) -> str:
    return f"{found['before']}{found['user']}{found['mark']}{STARS}@"


def _without_parameter(found: re.Match[str]) -> str:
    is_shown = found["name"].lower() in _HARMLESS_PARAMETERS
    return found[0] if is_shown else f"{found['mark']}{found['name']}={STARS}"


def shown_pairs(text: str, *, keeps_length: bool = False) -> str:
    """The text, of SQL or any other, with stars for the values of ``key = value`` whose key is one of a secret.

    Args:
        text: any.
        keeps_length: a star for each character, so that places in the text stay.
    """

    def hidden(found: re.Match[str]) -> str:
        name = found["name"].strip("'\"`")
        if name.lower() in _ORDINARY or not is_secret_name(name):
            return found[0]
        stars = "*" * len(found["value"]) if keeps_length else STARS
        return f"{found['name']}{found['sign']}{stars}"

    return _PAIR.sub(hidden, text)


def _without_member(found: re.Match[str]) -> str:
    quoted = f"{found['quote']}{found['name']}{found['quote']}{found['sign']}"
    return f"{quoted}{found['quote']}{STARS}{found['quote']}" if is_secret_name(found["name"]) else found[0]


def _split_humps(key: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", ".", key)
