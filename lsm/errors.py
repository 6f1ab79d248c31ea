"""Every error of Fluvial, one class for each thing that a caller can do about it.

    FluvialError
    ├── ConflictError         somebody else was first: plan again
    ├── UnavailableError      a service or a file cannot be reached now: retry later
    ├── OutcomeUnknownError   it may have happened: keep every file, retry with the same identifier
    ├── InvalidInputError     the request is wrong: change it
    └── CorruptDataError      what was stored is not what was written: stop and look

Messages are a lower-case fact followed by ``key=value`` pairs, because the text is all that crosses Spark's process
borders. Each class takes one positional message, so that it can be pickled.
"""


class FluvialError(Exception):
    """Root of every error that Fluvial raises on purpose."""


class ConflictError(FluvialError):
    """Somebody else's change came first. Nothing of ours is visible: plan again on the new state."""


class UnavailableError(FluvialError):
    """A broker, a disk or a service does not answer. Nothing of ours is visible: retry later."""


class OutcomeUnknownError(FluvialError):
    """The change may or may not be visible. Delete nothing and retry with the same identifier."""


class InvalidInputError(FluvialError):
    """The request itself is wrong: an option, a value, a type, a name. Retrying cannot help."""


class CorruptDataError(FluvialError):
    """Stored bytes do not say what the format demands. Stop: going on would lose or invent rows."""
