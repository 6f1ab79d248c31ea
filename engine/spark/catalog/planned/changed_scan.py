"""The rows of a table that Spark reads to change them: all, or those of the keys that a statement matches."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.types import StructType

from engine.spark.catalog.proxy import Proxy, called
from engine.spark.catalog.scan import FILTER, FilteredBySpark, ScanBuilderProxy, ScanProxy
from engine.spark.catalog.session_state import CatalogSession
from filestore.schema.table_schema import TableSchema

_MOST_TEXT: Final = 4 << 20  # of a condition that names keys; where there are more, all rows are read

Note = Callable[[str], None]
"""Gets the condition of the rows that are read, when there is one."""


class ChangedScanBuilder(ScanBuilderProxy):
    """One read. Conditions of the statement are left to Spark: a row that is not read is not replaced."""

    def __init__(
        self,
        session: CatalogSession,
        name: str,
        options: Mapping[str, str],
        columns: StructType,
        schema: TableSchema,
        note: Note,
    ) -> None:
        """See ``ScanBuilderProxy``."""
        super().__init__(session, name, options, columns, schema, None)
        self._keys = schema.primary_keys
        self._note = note

    @called
    def pushPredicates(self, predicates: Any) -> Any:
        """Implements ``pushPredicates`` of Spark's interface."""
        return predicates

    @called
    def build(self) -> "ChangedScan":
        """Implements ``build`` of Spark's interface."""
        return ChangedScan(
            self._session,
            self._name,
            self._options,
            self._columns,
            keys=self._keys,
            text_of=self._text,
            note=self._note,
        )

    def _text(self, predicate: Any) -> str | None:
        return self._text_of(predicate, {field.name: field.dataType for field in self._columns.fields})


class ChangedScan(ScanProxy, FilteredBySpark):
    """One read by the source in Python, which leaves out exactly the rows that a condition leaves out.

    Spark finds the keys that match when the statement runs, and says them by ``filter``.
    """

    def __init__(
        self,
        session: CatalogSession,
        name: str,
        options: Mapping[str, str],
        columns: StructType,
        *,
        keys: Sequence[str],
        text_of: Callable[[Any], str | None],
        note: Note,
    ) -> None:
        """Of a table with this key; ``text_of`` gives a condition as Fluvial reads it."""
        super().__init__(session, name, options, columns, columns, None, is_system=False)
        self._keys = keys
        self._text_of = text_of
        self._note = note

    def _plain_paths(self) -> Sequence[str]:
        return ()

    @called
    def filterAttributes(self) -> Any:
        """Spark's: the key."""
        return self.references(self._keys)

    @called
    def filter(self, predicates: Any) -> None:
        """Spark's: values of each column of the key, of all rows that the statement matches."""
        texts = [text for each in predicates if (text := self._condition(each)) is not None]
        condition = " AND ".join(f"({text})" for text in texts)
        if texts and len(condition) <= _MOST_TEXT:
            self._options = {**self._options, FILTER: condition}
            self._note(condition)
            for made in ("_python_scan", "_batch_scan"):
                self.__dict__.pop(made, None)

    def _condition(self, predicate: Any) -> str | None:
        if str(predicate.name()) == "IN" and len(predicate.children()) == 1:
            return f"{predicate.children()[0].toString()} IS NULL"  # no row matches, and no key is null
        return self._text_of(predicate)

    @called
    def toBatch(self) -> "_Batch":
        """Spark's: it asks before it says which keys match."""
        return _Batch(self)

    def of_now(self) -> Any:
        """Spark's own batch of the source, with the condition that is known."""
        return self._python_scan.toBatch()

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = (
            *ScanProxy.Java.implements,
            "org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering",
        )


class _Batch(Proxy):
    def __init__(self, scan: ChangedScan) -> None:
        super().__init__(scan.inside)
        self._scan = scan

    @called
    def planInputPartitions(self) -> Any:
        """Implements ``planInputPartitions`` of Spark's interface."""
        return self._scan.of_now().planInputPartitions()

    @called
    def createReaderFactory(self) -> Any:
        """Implements ``createReaderFactory`` of Spark's interface."""
        return self._scan.of_now().createReaderFactory()

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("org.apache.spark.sql.connector.read.Batch",)
