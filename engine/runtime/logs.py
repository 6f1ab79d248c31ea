"""Log messages as text for people or as JSON lines for machines.

Our messages are a fact followed by ``key=value`` pairs; in JSON the pairs are fields, so nothing has to parse them.
JSON lines also have the ids of what was done when they were written (``with_ids``), to join them with snapshots.
"""

import ast
import datetime as dt
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from lsm.errors import InvalidInputError, printable
from lsm.secret_names import shown_line

Form = Literal["text", "json"]

ROOT: Final = "fluvial"
_MAX_BYTES: Final = 32 << 20
_KEPT: Final = 3
_TEXT: Final = "%(levelname)s %(name)s: %(message)s"
_LIST: Final = r"\[(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\[\]'\"])*\]"  # as Python writes it
_PAIR: Final = re.compile(rf"(?:^|\s)([a-z][a-z0-9_.-]*)=('[^']*'|\"[^\"]*\"|{_LIST}|[^\s]+)")
_WHOLE: Final = re.compile(r"-?\d{1,18}")
_RESERVED: Final = frozenset({"time", "level", "logger", "message", "error"})
_IDS: Final[ContextVar[Mapping[str, object]]] = ContextVar("fluvial_log_ids", default={})  # noqa: B039  (never changed)


@contextmanager
def with_ids(**ids: object) -> Iterator[None]:
    """Give the messages of this thread these fields in JSON while the block runs; None: the id is not known."""
    token = _IDS.set({**_IDS.get(), **{key: each for key, each in ids.items() if each is not None}})
    try:
        yield
    finally:
        _IDS.reset(token)


class JsonLines(logging.Formatter):
    """One JSON object per message: time (UTC), level, logger, message, ids, the message's ``key=value`` pairs.

    A pair of the message wins over an id of the same name, and that over one of the process.
    """

    def __init__(self, ids: Mapping[str, object] | None = None) -> None:
        """``ids``: of the process, such as its job."""
        super().__init__()
        self._ids = ids or {}

    def format(self, record: logging.LogRecord) -> str:
        """The line, without a line break."""
        message = shown_line(_writable(record.getMessage()))
        body: dict[str, object] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
            **self._ids,
            **_IDS.get(),
            **fields_of(message),
        }
        if record.exc_info:
            body["error"] = shown_line(_writable(self.formatException(record.exc_info)))
        return orjson.dumps(body).decode()


class TextLines(logging.Formatter):
    """Messages for people; what a terminal would obey is shown as an escape."""

    def format(self, record: logging.LogRecord) -> str:
        """The lines of a message and its traceback."""
        return printable(shown_line(super().format(record)))


def fields_of(message: str) -> dict[str, Any]:
    """The ``key=value`` pairs of a message; whole numbers become integers, lists are lists, quotes are removed."""
    found: dict[str, Any] = {}
    for key, text in _PAIR.findall(message):
        name = f"{key}_" if key in _RESERVED else key
        if text[0] == "[" and text[-1] == "]":
            found[name] = _list_of(text)
            continue
        plain = text[1:-1] if text[0] in "'\"" and text[-1] == text[0] and len(text) > 1 else text
        found[name] = int(plain) if _WHOLE.fullmatch(plain) else plain
    return found


def _list_of(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _writable(text: str) -> str:
    """The text with lone surrogates replaced, which UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()


class StandardError(logging.Handler):
    """Log messages to the current ``sys.stderr``: progress bars and Spark's log file replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        sys.stderr.write(self.format(record) + "\n")


def configure_logging(
    level: int | str = logging.WARNING,
    form: Form = "text",
    file: str | Path | None = None,
    *,
    levels: Mapping[str, str] | None = None,
    all_loggers: bool = False,
    ids: Mapping[str, object] | None = None,
) -> logging.Handler:
    """Send log messages to one place, replacing an earlier ``configure_logging``.

    Args:
        level: the lowest level shown.
        form: text, or one JSON object per line.
        file: appended to, 32 MB; three older parts are kept as ``.1``, the newest, to ``.3``. None is standard error.
        levels: levels of individual loggers, which are then shown too.
        all_loggers: show messages of libraries too, not only those of ``fluvial``.
        ids: fields of each JSON line, such as the job.

    Returns:
        The handler, for callers that want to remove it.

    Raises:
        InvalidInputError: the file cannot be opened, or the level is unknown.
    """
    if isinstance(level, str) and not isinstance(logging.getLevelName(level.upper()), int):
        raise InvalidInputError(f"no such log level: level={level} known=debug, info, warning, error")
    handler: logging.Handler = StandardError()
    if file is not None:
        try:
            handler = RotatingFileHandler(file, maxBytes=_MAX_BYTES, backupCount=_KEPT, encoding="utf-8")
        except OSError as error:
            raise InvalidInputError(f"log file cannot be opened: file={file} reason={error.strerror}") from error
    shown = [logging.Filter(name) for name in (ROOT, *(levels or {}))]
    if not all_loggers:
        handler.addFilter(lambda record: any(each.filter(record) for each in shown))
    text = _TEXT if file is None else f"%(asctime)s {_TEXT}"
    handler.setFormatter(JsonLines(ids) if form == "json" else TextLines(text))
    handler.set_name(ROOT)
    root = logging.getLogger()
    for each in list(root.handlers):
        if each.get_name() == ROOT:
            root.removeHandler(each)
            each.close()
    root.addHandler(handler)
    root.setLevel(level.upper() if isinstance(level, str) else level)
    for name, each_level in (levels or {}).items():
        logging.getLogger(name).setLevel(each_level.upper())
    return handler


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address that a process listens at."""
    return host in ("localhost", "::1") or host.startswith("127.")


def warn_if_open(host: str, port: int, *, shows: str) -> None:
    """Say what all who reach an address read there, without a password, unless only this machine reaches it."""
    if not is_loopback(host):
        logging.getLogger(f"{ROOT}.listening").warning(
            "all who reach an address read %s, without a password: host=%s port=%d "
            "fix='listen at 127.0.0.1, or let a firewall or network policy admit only those who may'",
            shows, host, port,
        )  # fmt: skip
