"""Tables by name. Creating one creates its files and its log; dropping it drops both."""

import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa

from engine.lineage.settings import settle_before_first_database, settle_when_opened
from engine.log.catalog_login import CatalogLogin
from engine.system_tables.names import CATALOG_DATABASES, is_system_table
from engine.table import Table
from filestore.catalog.catalog import FileCatalog
from filestore.catalog.table_place import without_place
from filestore.io.file_io import FileIO
from filestore.layout.branch_names import split_branch
from filestore.layout.file_names import check_spelling
from filestore.options.catalog_options import CatalogOptions, CatalogPlace
from filestore.options.rules import CHECK_PREFIX
from filestore.options.table_options import TableOptions, canonical_options, given_to_table
from filestore.predicate.predicate import Not
from filestore.schema.row_counts import seen_schema
from filestore.schema.schema_store import PATH_KEY, ROOT_KEYS, given_fields, new_schema, warn_of_other_shape
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField
from lsm.errors import CorruptDataError, InvalidInputError, TableExistsError
from lsm.undo import undoing, undoing_unless_visible

if TYPE_CHECKING:
    from engine.log.table_log import TableLog
    from engine.system_tables.read import SystemRead
    from filestore.evolution.schema_change import SchemaChange, SetOption

logger = logging.getLogger("fluvial.catalog")

RETENTION_KEY: Final = "log.retention"


class Catalog:
    """The tables of one warehouse, by whichever engine they were made.

    Every table is managed: ``create_table`` adds the catalog's defaults to its options and makes its files and its
    topic; ``drop_table`` removes both. Names are kept in directories or in a database.
    """

    def __init__(self, warehouse: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> None:
        """Open a warehouse; it is made when the first database is.

        Args:
            warehouse: directory, as a path (a relative one starts at the working directory) or a ``file://`` address;
                or ``s3://bucket/prefix``.
            options: of the catalog (``metastore``, ``uri``, ``s3.*``, ...: see docs/catalogs.md); all others are
                defaults for tables that are made here, under the table's own names or behind ``table-default.``; a
                table that exists keeps its own, but the login to its brokers (``log.kafka.sasl.*``, ...) is this one,
                and tables do not store its secrets.

        Raises:
            InvalidInputError: an address or an option that cannot be; names similar ones.
        """
        if not isinstance(warehouse, str | os.PathLike):
            raise InvalidInputError(f"a warehouse is a path or an address: given={warehouse!r} fix='write it as text'")
        warehouse = os.fspath(warehouse)
        self._options = CatalogOptions.parse(options or {})
        place = warehouse if urlsplit(warehouse).scheme or not warehouse.strip() else os.path.abspath(warehouse)
        root = {key: text for key, text in self._options.table_defaults.items() if key in ROOT_KEYS}
        self._files = FileCatalog(place, {**self._options.given, **root})
        self._defaults = without_place(self._options.table_defaults)
        self._login = CatalogLogin(self._defaults)
        settle_when_opened(self)

    def __repr__(self) -> str:
        return f"Catalog({self.warehouse!r})"

    @property
    def options(self) -> Mapping[str, str]:
        """Options that the catalog was opened with, secrets included: its own, and the defaults of new tables."""
        return {**self._options.given, **self._options.table_defaults}

    @property
    def warehouse(self) -> str:
        """Directory of the warehouse, or its address in an object store."""
        return self._files.warehouse

    @property
    def file_io(self) -> FileIO:
        """What reads and writes files where the warehouse is."""
        return self._files.file_io

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a database.

        Args:
            name: of the database.
            if_not_exists: do nothing where there is such a database.

        Raises:
            InvalidInputError: there is such a database and ``if_not_exists`` is false, or the name cannot be one.
        """
        self._check_not_reserved(name)
        settle_before_first_database(self)
        self._files.create_database(name, if_not_exists=if_not_exists)

    def drop_database(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Remove a database.

        Args:
            name: of the database.
            cascade: drop its tables too, with files and topics.
            if_exists: do nothing where there is no such database.

        Raises:
            InvalidInputError: there is none and ``if_exists`` is false, it has tables and ``cascade`` is false, or it
                is the database of lineage, which every catalog has.
        """
        if name in CATALOG_DATABASES and name not in self.list_databases():
            raise InvalidInputError(
                f"the tables of this database cannot be dropped, every catalog has them: database={name} "
                "fix='CALL sys.delete_table_lineage and sys.delete_data_lineage remove what is recorded of a job'"
            )
        if if_exists and name not in self.list_databases():
            return
        tables = self.list_tables(name)
        for table in tables if cascade else ():
            self.drop_table(f"{name}.{table}")
        self._files.drop_database(name)

    def list_databases(self) -> list[str]:
        """Names of the databases, sorted; without ``sys`` and ``paimon``, which every catalog has."""
        return self._files.list_databases()

    def list_tables(self, database: str) -> list[str]:
        """Names of a database's tables, sorted. Raises: InvalidInputError: there is none; names similar ones."""
        own = CATALOG_DATABASES.get(database) if database not in self.list_databases() else None
        return self._files.list_tables(database) if own is None else list(own)

    def table_exists(self, name: str) -> bool:
        """Whether there is a table ``database.table``, or a branch of one, ``database.table$branch_b``.

        Raises: InvalidInputError: a name that no table can have.
        """
        return self._files.table_exists(name)

    def table(self, name: str, *, branch: str | None = None) -> Table:
        """Open a table.

        Args:
            name: ``database.table``, or ``database.table$branch_b`` for one of its branches.
            branch: name of the branch, instead of ``$branch_b``. None: the branch in the name, else main.

        Returns:
            The table, with the schema of this moment.

        Raises:
            InvalidInputError: there is no such table or branch (the message names similar ones), or the branch in the
                name differs from ``branch``.
        """
        self._check_writable(name)
        return Table(self._login.applied(self._files.table(name, branch=branch)))

    def described(self, name: str, *, branch: str | None = None) -> Table:
        """Open a table to describe it, also one that this release cannot read: columns, options, snapshots, tags.

        Args:
            name: as in ``table``.
            branch: as in ``table``.

        Returns:
            The table. If ``Table.closed`` is a reason, its rows and files cannot be read or written.

        Raises:
            InvalidInputError: there is no such table or branch.
            CorruptDataError: the schema cannot be decoded.
        """
        self._check_writable(name)
        return Table(self._login.applied(self._files.table(name, branch=branch, to_describe=True)))

    def system_table(self, name: str, options: Mapping[str, str] | None = None) -> "SystemRead":
        """Metadata as rows: ``database.table$files`` of a table, or ``sys.tables`` of the whole catalog.

        Args:
            name: name of the system table, see docs/system-tables.md.
            options: ``scan.snapshot-id``, ``scan.tag-name`` or ``scan.timestamp`` choose the snapshot.

        Returns:
            The system table; each read of it sees the state of that moment.

        Raises:
            InvalidInputError: there is no such table or system table; names similar ones.
        """
        from engine.system_tables.read import open_system

        return open_system(self, name, options)

    def create_table(
        self,
        name: str,
        schema: pa.Schema | Sequence[DataField],
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
        case_sensitive: bool = False,
    ) -> Table:
        """Make a table, its topic too when it has a log, and its database when there is none.

        Args:
            name: ``database.table``.
            schema: the columns.
            primary_key: columns that identify a row; () for a table that only takes inserts.
            partition_by: columns that split the table into directories; part of the key, if there is one.
            options: see docs/options.md; they win over the catalog's. ``path`` is a directory of the table's own, and
                ``file.path`` a root in which it is ``<database>.db/<table>``: below the catalog option
                ``external-paths.allowed``.
            comment: shown to users.
            if_not_exists: return the existing table.
            case_sensitive: two columns may differ in case only, which Spark reads with spark.sql.caseSensitive=true.

        Returns:
            The new table, or with ``if_not_exists`` the existing one.

        Raises:
            InvalidInputError: it exists, or columns, keys or options do not go together. Nothing was made.
            UnavailableError: the brokers do not answer. Nothing was made.
            OutcomeUnknownError: the brokers did not confirm the claim of ``log.kafka.topic``. No table was made.
        """
        from engine.log.table_codec import record_codec, registered
        from engine.log.table_log import default_topic
        from engine.log.table_topic import NewLog, make_topic
        from engine.types.column_names import CaseRule
        from logstore.kafka.clients import KafkaProperties

        if if_not_exists and self._files.table_exists(name):
            warn_of_other_shape(name, self.table(name).schema, schema, primary_key, partition_by, options)
            return self.table(name)
        self._check_not_reserved(name.partition(".")[0])
        CaseRule(case_sensitive).check_fields(given_fields(schema))
        check_spelling("table", name)  # before there is a topic
        own, place = without_place(options), self._files.places.of_new(name, options).path
        given = given_to_table(own, self._defaults)
        parsed = TableOptions.parse(given, primary_key=primary_key)
        stored = {**self._login.stored(given, own), PATH_KEY: place}
        if parsed.log_system == "none":
            return self._created(name, schema, primary_key, partition_by, stored, comment, if_not_exists)
        if self._files.table_exists(name):
            raise TableExistsError(f"table exists: table={name} fix=choose another name, or if_not_exists=True")
        first = new_schema(  # refuses what cannot be, before there is a topic
            schema, primary_key=primary_key, partition_by=partition_by, options=stored, comment=comment, time_ms=0
        )
        settle_before_first_database(self)  # before anything is in a directory that looks like a database
        parsed = parsed.with_only(self._login.opening(given))
        properties, bucket = KafkaProperties.parse(parsed.log_kafka), int(stored.setdefault("bucket", "1"))
        topic = make_topic(
            properties,
            table_id=str(uuid.uuid4()),
            default_name=default_topic(name),
            wanted_name=parsed.log_topic,
            bucket_count=bucket,
            replication=parsed.log_replication,
            retention_ms=parsed.log_retention_ms,
            sets_retention=RETENTION_KEY in own,
            log_format=parsed.log_format,
        )
        if topic.is_adopted and RETENTION_KEY not in own:
            stored.pop(RETENTION_KEY, None)  # the catalog's, which is for topics that it makes
        log = NewLog.keyed(topic, properties, self.file_io, place)
        with undoing_unless_visible(log.undo):
            registered(record_codec(seen_schema(first), parsed, topic.name), first, [first])
            made = self._created(
                name, schema, primary_key, partition_by, {**stored, **log.options}, comment, if_not_exists
            )
        if made.options.log_topic_id != topic.topic_id:  # another process made the table meanwhile
            log.undo()
        return made

    def own_place(self, name: str) -> str | None:
        """The directory of a table outside the directory of its database; None: the table is inside it."""
        return place.path if (place := self._files.places.find(name)).is_own else None

    def has_log(self, options: Mapping[str, str]) -> bool:
        """Whether a table that is created with these options gets a log."""
        given = {**self._defaults, **canonical_options(options)}
        return TableOptions.parse(given, strict=False).log_system != "none"

    def alter_table(self, name: str, changes: "Sequence[SchemaChange]") -> Table:
        """Publish the next version of a table's schema, all changes or none; rows stay as they are.

        Writing streams continue with the columns that they know, and what they write stays readable: restart them to
        write new columns. Reading streams fail with a message that says so; restart them.

        Args:
            name: ``database.table``, or ``database.table$branch_b``: then the branch's schema alone changes.
            changes: ``AddColumn``, ``SetOption`` and their like, in ``fluvial``; applied in order. ``log.system`` gives
                the table a log or takes it away; only options of the log's location may be changed with it.

        Returns:
            The table with the published schema.

        Raises:
            InvalidInputError: no such table, or a change is refused and why; nothing has changed.
            ConflictError: others altered the table again and again: try again.
            UnavailableError: the brokers do not answer, and ``log.retention`` is among the changes; nothing has
                changed, or only the retention is left to do: run it again.
        """
        from engine.log.replacement import LogWanted
        from engine.log.table_codec import register_next
        from engine.log.table_log import TableLog
        from engine.request.writer_options import EVEN_UNTRACKED
        from filestore.evolution.schema_change import RemoveOption, SetOption
        from filestore.options.log_place import SERVERS_KEY
        from logstore.kafka.topics import LogTopics

        self._check_writable(name)
        table = self.table(name)
        wanted = LogWanted.of(changes, table.store)
        if wanted is not None:
            wanted.apply(table.store, servers=self._defaults.get(SERVERS_KEY))
            return self.table(name)
        log = TableLog.of(table.files, EVEN_UNTRACKED)
        retained = any(isinstance(each, (SetOption, RemoveOption)) and each.key == RETENTION_KEY for each in changes)
        topics = LogTopics(log.properties) if log is not None and retained else None
        if topics is not None:
            topics.check_reachable()
        register_next(None if log is None else log.codec, table.store, changes)
        schema = self._altered(name, table, changes)
        if topics is not None and log is not None:
            topics.set_retention(log.topic, schema.table_options.log_retention_ms)
        return self.table(name)

    def _altered(self, name: str, table: Table, changes: "Sequence[SchemaChange]") -> TableSchema:
        """Publish the changes. A new constraint holds for the rows that are there, and those that come meanwhile."""
        from filestore.evolution.schema_change import RemoveOption, SetOption

        added = added_constraints(table.schema, changes)
        if not added:
            return self._files.alter_table(name, changes)
        seen = table.latest_snapshot()
        check_kept(table, added)
        schema = self._files.alter_table(name, changes)
        now = self.table(name)
        if now.latest_snapshot() != seen:
            before = [
                SetOption(each.key, table.schema.options[each.key])
                if each.key in table.schema.options
                else RemoveOption(each.key)
                for each in added
            ]
            with undoing(lambda: self._files.alter_table(name, before)):
                check_kept(now, added)
        return schema

    @property
    def can_rename_tables(self) -> bool:
        """Whether tables can be renamed: not in an object store, unless the catalog stores the paths of tables."""
        return self._files.can_rename_tables

    def rename_table(self, name: str, new_name: str) -> Table:
        """Rename a table. Its topic keeps its name.

        Where the directory moves, open readers and writers fail, and have to open the table again.

        Args:
            name: ``database.table``.
            new_name: ``database.table``; the database must exist.

        Returns:
            The table under its new name, as ``described`` opens it.

        Raises:
            InvalidInputError: there is no such table, the new name is taken or cannot be one, or a branch is named.
        """
        self._check_renamed(name)
        self._files.rename_table(name, new_name)
        return self.described(new_name)

    def _check_renamed(self, name: str) -> None:
        self._check_writable(name)
        _check_whole(name, "CALL sys.rename_branch")
        if (log := self._log_named_by(name)) is not None:
            raise InvalidInputError(
                f"the topic of this table is found by the table's name: table={name} topic={log.topic} "
                "fix=create a table and copy"
            )

    def _log_named_by(self, name: str) -> "TableLog | None":
        """The log whose topic is found by the table's name; None: it has none, or its schema names the topic."""
        from filestore.options.log_place import TOPIC_KEY

        log = self._log_of(name)
        return None if log is None or TOPIC_KEY in self.described(name).schema.options else log

    def swap_tables(self, name: str, other: str) -> bool:
        """Exchange the names of two tables of one database in one step; see ``rename_table``.

        Args:
            name: ``database.table``.
            other: ``database.table``.

        Returns:
            False: this catalog cannot exchange names, and nothing was done.

        Raises:
            InvalidInputError: there is no such table, or one of them is a branch.
        """
        for each in (name, other) if self._files.swapping is not None else ():
            self._check_renamed(each)
        if self._files.exchanges_directories and any(self._log_named_by(each) is not None for each in (name, other)):
            return False
        return self._files.swap_tables(name, other)

    def drop_table(self, name: str, *, if_exists: bool = False, force: bool = False) -> list[str]:
        """Delete a table's files and its topics: main's, former ones, and those of its branches.

        A topic that the table did not make, or that is another one by now, stays; a warning says so.

        Args:
            name: ``database.table``.
            if_exists: do nothing where there is no such table.
            force: drop the files although brokers do not answer, because they were shut down permanently, or although
                the table's logs are unknown, because its schema cannot be decoded.

        Returns:
            The topics that may remain because brokers do not answer; without ``force`` only topics of former logs.
            Delete them yourself if the brokers answer again.

        Raises:
            InvalidInputError: there is none and ``if_exists`` is false, or this user may not delete its topic: nothing
                was dropped.
            UnavailableError: the brokers do not answer. Nothing was dropped.
        """
        from engine.log.table_topic import dropped_logs, is_removed, reached_topics

        self._check_writable(name)
        if self._files.forgot_unfinished(name) or (not (exists := self._files.table_exists(name)) and if_exists):
            return []
        _check_whole(name, "CALL sys.delete_branch")
        try:
            logs, former_ones = dropped_logs(lambda: self._logs(name), name, exists=exists, force=force)
        except (CorruptDataError, InvalidInputError):
            if if_exists and not self._files.table_exists(name):  # another user has dropped it since
                return []
            raise
        own = [(reached_topics(log, name, force=force), log) for log in logs]
        former = [(reached_topics(log, name, force=True), log) for log in former_ones]  # they hold nothing up
        self._files.drop_table(name, if_exists=if_exists)
        left = [log.topic for topics, log in own if topics is None or not is_removed(topics, log, force=force)]
        left += [log.topic for topics, log in former if topics is None or not is_removed(topics, log, force=True)]
        if left:
            logger.warning("the brokers did not answer, topics may be left: table=%s topics=%s", name, left)
        return left

    def _logs(self, name: str) -> "tuple[list[TableLog], list[TableLog]]":
        from engine.log.replacement import former_logs
        from engine.versions.branches import logs_of

        store = self.described(name).store
        return logs_of(store), former_logs(store)

    def _check_not_reserved(self, database: str) -> None:
        """Refuse a database that every catalog has; one that is a user's from before is fine."""
        from engine.lineage.tables import DATABASE as LINEAGE_DATABASE

        if database == LINEAGE_DATABASE and database not in self._files.list_databases():
            raise InvalidInputError(
                f"name is that of the tables of lineage, which every catalog has: database={database} "
                "fix='choose another name'"
            )

    def _check_writable(self, name: str) -> None:
        if not isinstance(name, str):
            raise InvalidInputError(f"a table is named database.table: given={name!r} fix='write its name as text'")
        if is_system_table(self, name):
            from engine.system_tables.read import no_rows_error

            raise no_rows_error(name)

    def _log_of(self, name: str) -> "TableLog | None":
        from engine.log.table_log import TableLog
        from engine.request.writer_options import EVEN_UNTRACKED

        return TableLog.of(self.described(name).files, EVEN_UNTRACKED)  # there is one, whether it is used or not

    def _created(self, name: str, schema: Any, *arguments: Any) -> Table:
        from engine.lineage.recording import check_lineage

        settle_before_first_database(self)
        check_lineage(CatalogPlace(warehouse=self.warehouse, options=self._options.given), self.file_io)
        primary_key, partition_by, options, comment, if_not_exists = arguments
        made = self._files.create_table(
            name,
            schema,
            primary_key=primary_key,
            partition_by=partition_by,
            options=options,
            comment=comment,
            if_not_exists=if_not_exists,
        )
        return Table(self._login.applied(made))


def _check_whole(name: str, fix: str) -> None:
    """Refuse a branch where a table is meant. Raises: InvalidInputError."""
    _, branch = split_branch(name)
    if branch is not None:
        raise InvalidInputError(f"a branch is not a table of its own: table={name} branch={branch} fix='{fix}'")


def added_constraints(schema: TableSchema, changes: "Sequence[SchemaChange]") -> "list[SetOption]":
    """The constraints among changes that a table does not have; none of changes of columns, which only rename them."""
    from filestore.evolution.schema_change import RemoveOption, SetOption

    if not all(isinstance(each, (SetOption, RemoveOption)) for each in changes):
        return []
    return [
        each
        for each in changes
        if isinstance(each, SetOption)
        and each.key.startswith(CHECK_PREFIX)
        and schema.options.get(each.key) != each.text
    ]


def check_kept(table: Table, added: "Sequence[SetOption]") -> None:
    """Refuse constraints that rows of a table break. Raises: InvalidInputError naming one, and some of the rows."""
    from filestore.predicate.row_rules import RowRule, refuse_broken

    keys = table.schema.primary_keys
    for each in added:
        rule = RowRule.parse(each.key.removeprefix(CHECK_PREFIX), each.text, table.schema)
        columns = [name for name in table.schema.column_names if name in {*keys, *rule.columns}]
        for rows in table.read().to_batches(columns=columns, filter=Not(part=rule.predicate)):
            refuse_broken([rule], rows, None, table=table.name, keys=keys)
