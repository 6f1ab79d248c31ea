"""``CHANGES`` and ``.changes()``: what Spark asks a catalog for a table's changes by, as options of the source."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql.types import StructType

from engine.request.read_keys import CHANGES_OPTION
from engine.spark.catalog.proxy import Proxy, called
from engine.spark.catalog.session_state import CatalogSession
from engine.spark.changes_reader import COMMIT_VERSION, ChangesRequest, own_options
from engine.spark.data_source import FORMAT_NAME
from filestore.diff.version_range import Bound

_NONE: Final = "NONE"
_NET: Final = "NET_CHANGES"


class ChangelogProxy(Proxy):
    """The changes of one table between two bounds. They are exact, so Spark has only net changes to compute."""

    def __init__(
        self,
        session: CatalogSession,
        name: str,
        columns: StructType,
        keys: Sequence[str],
        place: Mapping[str, str],
        request: ChangesRequest,
    ) -> None:
        """The changes of a table, with these columns; ``keys``: the primary key, () for none."""
        super().__init__(session.inside)
        self._name = name
        self._columns = columns
        self._keys = keys
        self._options = {**place, CHANGES_OPTION: request.to_option()}

    # ---- what Spark calls

    def name(self) -> str:
        """Implements ``name`` of Spark's interface."""
        return f"{self._name} changes"

    @called
    def columns(self) -> Any:
        """Implements ``columns`` of Spark's interface."""
        return self.inside.columns(self.inside.struct(self._columns))

    def containsCarryoverRows(self) -> bool:
        """Spark's: rows that are only rewritten are left out already."""
        return False

    def containsIntermediateChanges(self) -> bool:
        """Spark's: a row of a key may change in several versions; without a key rows have no identity."""
        return bool(self._keys)

    def representsUpdateAsDeleteAndInsert(self) -> bool:
        """Spark's: they have the form that was asked for already."""
        return False

    @called
    def rowId(self) -> Any:
        """Spark's: the primary key."""
        return self.references(self._keys)

    @called
    def rowVersion(self) -> Any:
        """Spark's: a row of a key changes at most once in a version."""
        return self.references([COMMIT_VERSION])[0]

    @called
    def newScanBuilder(self, options: Any) -> Any:
        """Spark's: of its own table over the source."""
        given = own_options(self.inside.texts_by_key(options.asCaseSensitiveMap()))
        table = self.inside.python_table(self.inside.struct(self._columns), FORMAT_NAME)
        return table.newScanBuilder(self.inside.options({**given, **self._options}))

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("org.apache.spark.sql.connector.catalog.Changelog",)


def changes_request(context: Any) -> ChangesRequest:
    """What Spark's context asks for: the range and what becomes of several changes of a row."""
    found = context.range()
    mode = str(context.deduplicationMode().name())
    start: Bound | None = None
    end: Bound | None = None
    kind = found.getClass().getSimpleName()
    if kind == "VersionRange":
        start = Bound(version=str(found.startingVersion()), is_inclusive=found.startingBoundInclusive())
        if found.endingVersion().isPresent():
            end = Bound(version=str(found.endingVersion().get()), is_inclusive=found.endingBoundInclusive())
    elif kind == "TimestampRange":
        start = Bound(time_us=int(found.startingTimestamp()), is_inclusive=found.startingBoundInclusive())
        if found.endingTimestamp().isPresent():
            end = Bound(time_us=int(found.endingTimestamp().get()), is_inclusive=found.endingBoundInclusive())
    return ChangesRequest(
        start=start,
        end=end,
        shows_updates=bool(context.computeUpdates()),
        keeps_carryovers=mode == _NONE,
        folds_expired=mode == _NET,
    )
