"""The lineage of a table's catalog for procedures, compared with the snapshot files."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from engine.catalog import Catalog
from engine.lineage.lineage import Lineage
from engine.lineage.store.jdbc import JdbcLineageMeta
from engine.lineage.tables import require_lineage
from engine.lineage.truth.checked import checked_meta, missing_commits
from engine.lineage.truth.tables_now import TablesNow
from engine.table import Table
from lsm.errors import InvalidInputError
from lsm.nearest_names import some_text

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLineage:
    """The lineage of a catalog."""

    catalog: Catalog
    lineage: Lineage
    meta: JdbcLineageMeta

    def refuse_missing(self, tables: Collection[str], *, without: Collection[str] = ()) -> None:
        """Refuse an answer that leaves out commits which have read some tables: their lineage was deleted.

        Args:
            tables: names.
            without: jobs that the answer is not about.

        Raises:
            InvalidInputError: there are any; names them.
        """
        found = [
            f"{table.name}@{snapshot.id}"
            for table, snapshot, origin in missing_commits(self.meta, self.lineage, TablesNow.of(self.catalog))
            if origin.job not in without and any(each.table in tables for each in origin.reads)
        ]
        if found:
            raise InvalidInputError(
                f"lineage of commits is not in the store: {some_text('tables', sorted(tables))} commits={len(found)} "
                f"first={found[:_SHOWN]} fix='fluvial repair-lineage --all, then ask again'"
            )


@contextmanager
def checked_lineage(table: Table) -> Iterator[CheckedLineage]:
    """The lineage of a table's catalog.

    Raises:
        InvalidInputError: the table was opened by its path, or the catalog records no lineage.
        UnavailableError: the store does not answer.
    """
    place = table.store.catalog
    if place is None:
        raise InvalidInputError(f"a table without a catalog has no lineage: table={table.name} fix=open its catalog")
    catalog = Catalog(place.warehouse, place.options)
    lineage = require_lineage(catalog)
    with checked_meta(lineage, catalog) as meta:
        yield CheckedLineage(catalog=catalog, lineage=lineage, meta=meta)
