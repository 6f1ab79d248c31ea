"""Which names and which lock a catalog has, by its options."""

from dataclasses import dataclass

from filestore.catalog.table_names import DirectoryNames, TableNames
from filestore.catalog.warehouse import Warehouse
from filestore.io.commit_lock import CatalogLockFactory
from filestore.io.file_io import Clock
from filestore.options.catalog_options import CatalogOptions
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Metastore:
    """Names of tables, and what commits exclude each other by."""

    names: TableNames
    lock_factory: CatalogLockFactory | None  # None: exclusive creation of files is enough


def open_metastore(options: CatalogOptions, warehouse: Warehouse, clock: Clock) -> Metastore:
    """What the option ``metastore`` says. A database is not asked before it is needed.

    Raises:
        InvalidInputError: options that contradict each other, an address that cannot be read, a missing library.
    """
    locks = options.lock_enabled
    if options.metastore == "filesystem":
        if options.uri is not None or locks:
            raise InvalidInputError(
                "uri and lock.enabled are for names in a database: metastore=filesystem fix='set metastore=jdbc'"
            )
        return Metastore(names=DirectoryNames(warehouse.root, warehouse.io), lock_factory=None)
    uri = options.uri
    if uri is None:
        raise InvalidInputError("metastore=jdbc needs a database: fix='set uri=sqlite:////path/of/file'")
    from filestore.catalog.sql_database import SqlDatabase  # SQLAlchemy takes its time to import
    from filestore.catalog.sql_lock import SqlLockFactory
    from filestore.catalog.sql_names import SqlNames

    database = SqlDatabase.of(uri, user=options.jdbc_user, password=options.jdbc_password)
    key = options.catalog_key
    factory = SqlLockFactory(
        database=database,
        catalog_key=key,
        clock=clock,
        timeout_ms=options.lock_acquire_timeout_ms,
        longest_sleep_ms=options.lock_check_max_sleep_ms,
    )
    return Metastore(
        names=SqlNames(database=database, catalog_key=key, root=warehouse.root),
        lock_factory=factory if (warehouse.is_object_store if locks is None else locks) else None,
    )
