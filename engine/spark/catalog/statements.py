"""What the parser of a session asks about a text: whose it is, and what it gives."""

from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from engine.spark.catalog.session_state import CatalogSession
from lsm.errors import FluvialError


@dataclass(frozen=True, slots=True)
class OwnQuery:
    """A text that reads tables of Fluvial."""

    frame: DataFrame  # planned, and not computed


@dataclass(frozen=True, slots=True)
class OwnCommand:
    """A text that Fluvial runs when Spark runs the statement."""

    catalog: str  # its name in the session


@dataclass(frozen=True, slots=True)
class SparkText:
    """A text that Spark reads by itself."""

    text: str  # in words that it knows


class Statements(Protocol):
    """Fluvial's SQL, as the sessions of Spark see it."""

    def route(self, session: CatalogSession, text: str) -> OwnQuery | OwnCommand | SparkText:
        """The way in which a text is run. Raises: InvalidInputError: it is Fluvial's, and wrong."""
        ...

    def is_syntax_error(self, error: FluvialError) -> bool:
        """Whether a text cannot be read: then Spark's own error counts."""
        ...

    def run(self, session: CatalogSession, catalog: str, text: str) -> DataFrame | None:
        """Run a command; its rows, if it has any. Raises: FluvialError."""
        ...
