"""Where log messages go: standard error or a file, as text or as JSON."""

import datetime as dt
import logging
import sys
from typing import Final

import orjson

from engine.deploy.operation_config import LoggingConfig

_TEXT: Final = "%(levelname)s %(name)s: %(message)s"
_TEXT_IN_FILE: Final = f"%(asctime)s {_TEXT}"
_OURS: Final = "fluvial"


class StandardErrorHandler(logging.Handler):
    """Log messages to what standard error is at the time: progress bars and Spark's log file change that."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        sys.stderr.write(self.format(record) + "\n")


class JsonFormatter(logging.Formatter):
    """One JSON object per message: time (UTC), level, logger, message, and a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        facts = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(facts).decode()


def set_up_logging(config: LoggingConfig, *, is_debug: bool = False, replaces: bool = False) -> None:
    """Send messages where a job wants them.

    Args:
        config: of the job.
        is_debug: everything from level info on, of libraries too, whatever the job says.
        replaces: also when messages go somewhere already.
    """
    handler = StandardErrorHandler() if config.file is None else logging.FileHandler(config.file, encoding="utf-8")
    if not is_debug:
        # what libraries have to say about an interrupted call, for one, is nothing to users
        handler.addFilter(lambda record: record.name.split(".")[0] == _OURS or record.name in config.levels)
    text = _TEXT if config.file is None else _TEXT_IN_FILE
    handler.setFormatter(JsonFormatter() if config.format == "json" else logging.Formatter(text))
    logging.basicConfig(level=logging.INFO if is_debug else config.level.upper(), handlers=[handler], force=replaces)
    for name, level in config.levels.items():
        logging.getLogger(name).setLevel(level.upper())
