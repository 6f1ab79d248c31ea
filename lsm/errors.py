"""Every error of Fluvial, one class for each thing that a caller can do about it.

    FluvialError
    ├── ConflictError         another writer was first: plan again
    │   └── TakenOverError    another run of the same query continues: end this one
    ├── UnavailableError      a service or a file cannot be reached now: retry later
    ├── CommittedError        the rows are visible, what follows a commit failed: do not write them again
    ├── OutcomeUnknownError   the change may have been applied: keep every file, retry with the same identifier
    ├── InvalidInputError     the request is wrong: change it
    └── CorruptDataError      stored data violates the format: stop and investigate

Messages are a lower-case fact followed by ``key=value`` pairs, because only the text crosses Spark's process
boundaries. Each class takes one positional message, so that it can be pickled.
"""

import re
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text with control characters but tab and line feed as escapes: a terminal obeys them, and logs are split."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


class FluvialError(Exception):
    """Root of every error that Fluvial raises on purpose."""

    def __str__(self) -> str:
        return printable(super().__str__())


class ConflictError(FluvialError):
    """Another writer's change came first. Nothing of this change is visible: plan again on the new state."""


class TakenOverError(ConflictError):
    """Another run of the same streaming query has taken over its batches: end this run, and do not start it again."""


class NewColumnsError(ConflictError):
    """A record has columns or types that the query does not know; restarted with those of that record, it does.

    ``index`` is that of the record among those that were decoded.
    """

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


class UnavailableError(FluvialError):
    """A broker, a disk or a service does not answer. Nothing of this change is visible: retry later."""


class OverloadedError(UnavailableError):
    """This machine is too busy to start a process in time. Nothing of this change is visible: retry later."""


class OpenTransactionError(UnavailableError):
    """A transaction is open behind the last record of the log that is settled."""


class CommittedError(FluvialError):
    """The rows are visible, and the message names their snapshot; something that follows a commit failed."""


class OutcomeUnknownError(FluvialError):
    """The change may or may not be visible. Delete nothing and retry with the same identifier."""


class InvalidInputError(FluvialError):
    """The request is invalid: an option, a value, a type, a name. Retrying cannot help."""


class ManyProblemsError(InvalidInputError):
    """Several things are wrong with a request, for example a job file: each is a line of the message."""


class MissingTableError(InvalidInputError):
    """There is no table of a name: a wrong name, or it was dropped or renamed meanwhile."""


class MissingDatabaseError(InvalidInputError):
    """There is no database of a name."""


class MissingColumnError(InvalidInputError):
    """A table, or the rows of a query, have no column of a name."""


class TableExistsError(InvalidInputError):
    """There is a table of a name that a new one is to have."""


class DatabaseExistsError(InvalidInputError):
    """There is a database of a name that a new one is to have."""


class ColumnExistsError(InvalidInputError):
    """A table has a column of a name that another one is to have."""


class MissingTopicError(InvalidInputError):
    """A topic to read does not exist: a wrong name, or its producer has not created it yet."""


class CorruptDataError(FluvialError):
    """Stored bytes violate the format. Stop: continuing would lose or invent rows."""
