"""Which names and which lock a catalog has, by its options."""

from dataclasses import dataclass

from filestore.catalog.table_names import DirectoryNames, TableNames
from filestore.catalog.warehouse import Warehouse
from filestore.io.commit_lock import CatalogLockFactory
from filestore.io.file_io import Clock
from filestore.options.catalog_options import CatalogOptions
from filestore.table_store import TableRegistry
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Metastore:
    """Names of tables, and what commits exclude each other by."""

    names: TableNames
    lock_factory: CatalogLockFactory | None  # None: exclusive creation of files is enough
    registry: TableRegistry | None = None  # what follows schemas and commits
    read_only: str | None = None  # why nothing may be written; None: it may


def open_metastore(options: CatalogOptions, warehouse: Warehouse, clock: Clock) -> Metastore:
    """What the option ``metastore`` says. A database is not asked before it is needed.

    Raises:
        InvalidInputError: options that contradict each other, an address that cannot be read, a missing library.
    """
    if options.metastore == "filesystem":
        if options.uri is not None or options.lock_enabled:
            raise InvalidInputError(
                "uri and lock.enabled are for names in a database: metastore=filesystem "
                "fix='set metastore=jdbc, hive or rest'"
            )
        return Metastore(names=DirectoryNames(warehouse.root, warehouse.io), lock_factory=None)
    uri = options.uri
    if options.lock_type not in (None, options.metastore):
        raise InvalidInputError(
            f"lock is another metastore's: lock.type={options.lock_type} metastore={options.metastore} "
            f"fix='set lock.type={options.metastore}, or leave it out'"
        )
    if options.metastore == "rest":
        return _rest(options, warehouse)
    if options.metastore == "hive":
        return _hive(options, warehouse, clock)
    if uri is None:
        raise InvalidInputError("metastore=jdbc needs a database: fix='set uri=sqlite:////path/of/file'")
    from filestore.catalog.sql_database import SqlDatabase  # SQLAlchemy takes its time to import
    from filestore.catalog.sql_names import SqlLockFactory, SqlNames

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
        lock_factory=factory if _locks(options, warehouse) else None,
    )


def _locks(options: CatalogOptions, warehouse: Warehouse) -> bool:
    """Whether commits take the metastore's lock; by default where files cannot be created exclusively for sure."""
    return warehouse.is_object_store if options.lock_enabled is None else options.lock_enabled


def _hive(options: CatalogOptions, warehouse: Warehouse, clock: Clock) -> Metastore:
    from filestore.io.hdfs_client import hadoop_user

    if options.uri is None:
        raise InvalidInputError("metastore=hive needs a Hive metastore: fix='set uri=thrift://host:9083'")
    from filestore.catalog.hive_metastore import HiveMetastore
    from filestore.catalog.hive_names import HiveNames
    from filestore.catalog.hive_registry import HiveLockFactory, HiveRegistry

    metastore, user = HiveMetastore.of(options.uri), hadoop_user()
    factory = HiveLockFactory(
        metastore=metastore,
        user=user,
        clock=clock,
        timeout_ms=options.lock_acquire_timeout_ms,
        longest_sleep_ms=options.lock_check_max_sleep_ms,
    )
    names = HiveNames(metastore=metastore, root=warehouse.root, user=user, clock=clock)
    return Metastore(
        names=names, lock_factory=factory if _locks(options, warehouse) else None, registry=HiveRegistry(names=names)
    )


def _rest(options: CatalogOptions, warehouse: Warehouse) -> Metastore:
    from filestore.catalog.rest_names import READ_ONLY, RestNames, RestServer

    if options.lock_enabled:
        raise InvalidInputError("a REST catalog has no lock: lock.enabled=true metastore=rest fix='leave it out'")
    server = RestServer.of(
        options.uri,
        warehouse=options.rest_warehouse or warehouse.root,
        provider=options.token_provider,
        token=options.token,
    )
    return Metastore(names=RestNames(server=server, root=warehouse.root), lock_factory=None, read_only=READ_ONLY)
