"""Commands of Fluvial's as calls of one procedure: Spark decides when a statement runs, and shows its rows."""

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame

from engine.runtime.spark_messages import spark_condition
from engine.spark.catalog.proxy import Proxy, called
from engine.spark.catalog.session_state import AsSpark, CatalogSession
from engine.spark.catalog.statements import Statements
from engine.spark_internals.catalog import SparkInside
from engine.spark_internals.session import jvm_frame
from lsm.errors import InvalidInputError

PROCEDURE_SPACE: Final = "sys"
PROCEDURE: Final = "statement"
CALL_TEXT: Final = f"CALL `{{catalog}}`.`{PROCEDURE_SPACE}`.`{PROCEDURE}`('{{text}}')"


class StatementProcedure(Proxy):
    """``CALL catalog.sys.statement(text)``: the text in hexadecimal digits."""

    def __init__(self, session: CatalogSession, catalog: str, statements: Statements) -> None:
        """A procedure for a session and one of its catalogs."""
        super().__init__(session.inside)
        self._session = session
        self._catalog = catalog
        self._statements = statements

    def name(self) -> str:
        """Implements ``name`` of Spark's interface."""
        return PROCEDURE

    def description(self) -> str:
        """Implements ``description`` of Spark's interface."""
        return "runs a statement of Fluvial"

    def bind(self, given: Any) -> "StatementProcedure":
        """Spark's: there is one form."""
        return self

    @called
    def parameters(self) -> Any:
        """Spark's: one text."""
        return self.inside.text_parameter

    def isDeterministic(self) -> bool:
        """Implements ``isDeterministic`` of Spark's interface."""
        return False

    @called
    def call(self, row: Any) -> Any:
        """Run the statement; where Spark has a condition for what is wrong, its rows raise Spark's error."""
        text = bytes.fromhex(row.getString(0)).decode()
        with AsSpark():
            try:
                frame = self._statements.run(self._session, self._catalog, text)
            except InvalidInputError as error:
                condition = spark_condition(error)
                if condition is None:
                    raise
                return self.inside.raising(condition, str(error), row)
        return self.inside.one(None if frame is None else ResultScan(self.inside, frame))

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = (
            "org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure",
            "org.apache.spark.sql.connector.catalog.procedures.BoundProcedure",
        )


class ResultScan(Proxy):
    """The rows of a command."""

    def __init__(self, inside: SparkInside, frame: DataFrame) -> None:
        """A small frame."""
        super().__init__(inside)
        self._frame = frame

    @called
    def readSchema(self) -> Any:
        """Implements ``readSchema`` of Spark's interface."""
        return jvm_frame(self._frame).schema()

    @called
    def rows(self) -> Any:
        """Implements ``rows`` of Spark's interface."""
        return self.inside.rows_of(jvm_frame(self._frame))

    def description(self) -> str:
        """Implements ``description`` of Spark's interface."""
        return "result of a statement of Fluvial"

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("org.apache.spark.sql.connector.read.LocalScan",)
