"""Names of databases and tables in a Hive metastore, as Paimon's Hive catalog keeps them.

A table is there when its name is and its schema too. The metastore has a copy of columns and properties, for Hive.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from filestore.catalog.hive_metastore import HiveMetastore
from filestore.catalog.hive_tables import ZONED, follow_schema, given_back, is_paimon, left_alone, new_table, owns_files
from filestore.catalog.table_names import TablePlace, database_below
from filestore.catalog.warehouse import warehouse_path
from filestore.io.file_io import Clock
from filestore.io.places import is_inside
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import walk
from lsm.errors import ConflictError, InvalidInputError, MissingTableError
from lsm.undo import undoing

if TYPE_CHECKING:
    from hive_metastore.ThriftHiveMetastore import Client
    from hive_metastore.ttypes import EnvironmentContext, Partition, Table

_BATCH: Final = 300  # tables in one answer
_ALL: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveNames:
    """The names of a metastore; those of other formats are not listed."""

    metastore: HiveMetastore
    root: str  # the warehouse: databases without a location of their own are below it
    user: str
    clock: Clock

    def databases(self) -> list[str]:
        """All databases, sorted."""
        return sorted(self.metastore.run("list databases", lambda client: client.get_all_databases()))

    def has_database(self, database: str) -> bool:
        """Whether there is such a database."""
        return self._database(database) is not None

    def database_path(self, database: str) -> str:
        """Location of a database in the metastore; below the warehouse while it does not exist."""
        found = self._database(database)
        location = None if found is None else found.locationUri
        return warehouse_path(location or database_below(self.root, database))

    def database_properties(self, database: str) -> Mapping[str, str]:
        """Stored properties of a database."""
        found = self._database(database)
        return {} if found is None else dict(found.parameters or {})

    def add_database(self, database: str) -> None:
        """Make one below the warehouse. Raises: ConflictError when it is there."""
        from hive_metastore.ttypes import Database

        _check_lower_case(database)
        location = database_below(self.root, database)
        made = Database(name=database, locationUri=location, parameters={}, ownerName=self.user)
        self.metastore.run("add a database", lambda client: client.create_database(made))

    def remove_database(self, database: str) -> None:
        """Forget a database; a missing one is fine. Raises: InvalidInputError when it has tables, of any format."""
        if self.has_database(database):
            self.metastore.run(
                "remove a database", lambda client: client.drop_database(database, False, False), missing=()
            )

    def tables(self, database: str) -> list[str]:
        """Names of a database's tables, sorted."""
        return sorted(self.table_paths(database))

    def table_paths(self, database: str) -> Mapping[str, str]:
        """Names and directories of its tables."""

        def ask(client: "Client") -> "list[Table]":
            names = client.get_all_tables(database)
            return [
                table
                for start in range(0, len(names), _BATCH)
                for table in client.get_table_objects_by_name(database, names[start : start + _BATCH])
            ]

        found: list[Table] = self.metastore.run("list tables", ask, missing=[])
        return {table.tableName: warehouse_path(table.sd.location) for table in found if is_paimon(table)}

    def has_table(self, database: str, table: str) -> bool:
        """Whether the name is that of a table of Paimon's."""
        return is_paimon(self.find(database, table))

    def place(self, database: str, table: str) -> TablePlace:
        """Location of a table in the metastore; in the directory of its database while it does not exist."""
        found = self.find(database, table)
        if found is None or not found.sd.location:
            return TablePlace(path=f"{self.database_path(database)}/{table}")
        path = warehouse_path(found.sd.location)
        usual = database_below(self.root, database)
        is_usual = is_inside(path, [usual]) or is_inside(path, [self.database_path(database)])
        return TablePlace(path=path, is_own=is_paimon(found) and not is_usual)

    @property
    def is_trusted(self) -> bool:
        """Yes: external tables lie wherever another engine has put them."""
        return True

    def owns_files(self, database: str, table: str) -> bool:
        """False for external tables, whose files stay when they are dropped."""
        found = self.find(database, table)
        return found is None or owns_files(found)

    def add_table(self, database: str, table: str, schema: TableSchema, place: TablePlace) -> None:
        """Take the name with the columns of a schema, and the database's when it is missing; an existing name is fine.

        Raises: InvalidInputError when the name is that of a table of another format, or cannot be one.
        """
        _check_lower_case(table)
        if not self.has_database(database):
            with suppress(ConflictError):
                self.add_database(database)
        now_ms, zoned = self.clock.now_ms(), self._zoned(schema)
        made = new_table(database, table, schema, place.path, owner=self.user, now_ms=now_ms, zoned=zoned)
        try:
            self.metastore.run("add a table", lambda client: client.create_table(made))
        except ConflictError as error:
            if not self.has_table(database, table):
                raise InvalidInputError(
                    f"name is that of a table of another format: table={database}.{table} uri={self.metastore.shown} "
                    "fix='choose another name'"
                ) from error

    def note_schema(self, database: str, table: str, schema: TableSchema, *, before: TableSchema | None = None) -> None:
        """Bring the metastore's copy of a table up to a schema; a missing table is fine.

        Args:
            database: its name.
            table: its name.
            schema: of the main branch.
            before: the one that the metastore has; properties that were only in it go. None: none go.
        """
        found = self.find(database, table)
        if found is not None and follow_schema(found, schema, before=before, zoned=self._zoned(schema)):
            self._alter((database, table), found)

    def remove_table(self, database: str, table: str, path: str) -> None:
        """Forget the name; a missing one is fine. Files stay as they are."""
        if self.has_table(database, table) and self.place(database, table).path == path:
            self.metastore.run(
                "remove a table", lambda client: client.drop_table(database, table, False) or (), missing=()
            )

    @property
    def keeps_places(self) -> bool:
        """True: the location in the metastore is authoritative, as in Paimon's Hive catalog."""
        return True

    def rename_table(self, source: tuple[str, str], target: tuple[str, str], move: Callable[[], None] | None) -> None:
        """Note another name and place, and move the directory, both or none; without ``move`` the name alone.

        A crash in between leaves the new name without its files, which are still in the old place; without ``move``
        it leaves an external table to Hive, until it is renamed.

        Raises: ConflictError when the name is taken; what ``move`` raises.
        """
        _check_lower_case(target[1])
        old = self.find(*source)
        if old is None:
            raise MissingTableError(f"no such table: table={'.'.join(source)} uri={self.metastore.shown}")
        if self.find(*target) is not None:
            raise ConflictError(f"name is taken in the Hive metastore: table={'.'.join(target)}")
        old = given_back(old)
        new = deepcopy(old)
        new.dbName, new.tableName = target
        if move is None:
            self._alter(source, left_alone(old))  # else the metastore would move the files itself
            with undoing(lambda: self._alter(source, old)):
                self._alter(source, new)
            return
        new.sd.location = self.place(*target).path
        self._alter(source, new)
        with undoing(lambda: self._alter(target, old)):
            move()
        self._move_partitions(target, old.sd.location, new.sd.location)

    def find(self, database: str, table: str) -> "Table | None":
        """The metastore's entry of a table, of any format."""
        found: list[Table] = self.metastore.run(
            "find a table", lambda client: [client.get_table(database, table)], missing=[]
        )
        return found[0] if found else None

    def add_partitions(self, database: str, table: str, values_and_places: Sequence[tuple[list[str], str]]) -> None:
        """List partitions, by their texts and directories; those that are listed stay. A missing table is fine."""
        from hive_metastore.ttypes import AddPartitionsRequest, Partition, StorageDescriptor

        found = self.find(database, table)
        if found is None or not found.partitionKeys:
            return
        now_s = self.clock.now_ms() // 1000
        fields = {name: getattr(found.sd, name) for name in ("cols", "inputFormat", "outputFormat", "serdeInfo")}
        made = [
            Partition(
                values=values,
                dbName=database,
                tableName=table,
                createTime=now_s,
                lastAccessTime=now_s,
                sd=StorageDescriptor(**fields, location=place, parameters={}),
                parameters={},
            )
            for values, place in values_and_places
        ]
        request = AddPartitionsRequest(dbName=database, tblName=table, parts=made, ifNotExists=True, needResult=False)
        self.metastore.run("add partitions", lambda client: client.add_partitions_req(request))

    def remove_partitions(self, database: str, table: str, values: Sequence[list[str]]) -> None:
        """List partitions no more, by their texts; missing ones are fine. Files stay as they are."""
        for each in values:
            self.metastore.run(
                "remove a partition",
                lambda client, each=each: client.drop_partition(database, table, each, False),  # type: ignore[misc]
                missing=False,
            )

    def _database(self, database: str) -> Any:
        found: list[Any] = self.metastore.run(
            "find a database", lambda client: [client.get_database(database)], missing=[]
        )
        return found[0] if found else None

    def _zoned(self, schema: TableSchema) -> str:
        has_some = any(inner.root == "TIMESTAMP_LTZ" for field in schema.fields for inner in walk(field.type))
        return "timestamp" if has_some and not self.metastore.has_zoned_timestamps() else ZONED

    def _alter(self, name: tuple[str, str], table: "Table") -> None:
        context = _cascading()
        self.metastore.run(
            "change a table", lambda client: client.alter_table_with_environment_context(*name, table, context)
        )

    def _move_partitions(self, name: tuple[str, str], old: str, new: str) -> None:
        """Partitions that are listed are where the table is now."""

        def ask(client: "Client") -> "list[Partition]":
            return list(client.get_partitions(*name, _ALL))

        found: list[Partition] = self.metastore.run("list partitions", ask, missing=[])
        for each in found:
            each.sd.location = new + each.sd.location.removeprefix(old)
        if found:
            self.metastore.run("move partitions", lambda client: client.alter_partitions(*name, found))


def _cascading() -> "EnvironmentContext":
    from hive_metastore.ttypes import EnvironmentContext

    return EnvironmentContext(properties={"CASCADE": "true", "DO_NOT_UPDATE_STATS": "true"})


def _check_lower_case(name: str) -> None:
    """Raises: InvalidInputError for a name that Hive would write otherwise."""
    if name != name.lower():
        raise InvalidInputError(f"Hive has names in lower case only: name={name} fix='write {name.lower()}'")
